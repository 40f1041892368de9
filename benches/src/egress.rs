//! Egress compared with a bare HTTP client: the same request on a kept connection, to a server on loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use sluice_core::ids::{ConnectionName, JobId, SecretName};
use sluice_core::throttle::ConnectionLimits;
use sluice_core::{Actor, Clock, Millis, NodeName, PersonName, UtcMillis, GatewayDeps};
use sluice_config::network::{METHODS, IpNetwork, CredentialPlacement, EgressConnection, HostPattern};
use sluice_egress::transport::{EgressTransport, SystemDialer, SystemResolver, trust};
use sluice_egress::{Egress, EgressRequest, EgressTicket, TicketScope};
use sluice_egress::leak::EmptyLeakScanner;
use sluice_egress::vault::{self, NewSecretValue, RootKeySource, SecretValue, Vault};
use sluice_store::Store;
use sluice_testkit::ids::{SeededEntropy, SeededIds};
use tokio::runtime::Runtime;

use crate::load::{self, WallClock};
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{self, PairedRounds, RunTimes, in_turns, timed};

const EACH: u64 = 2_000;
const ROUNDS: usize = 7;
const SECRET: &str = "a-secret-of-ordinary-length-0123456789";

/// Both clocks of the machine.
struct EgressClock(Instant);

impl Clock for EgressClock {
    fn now(&self) -> UtcMillis {
        WallClock.now()
    }
    fn since_boot(&self) -> Millis {
        Millis::from_millis(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let runtime = load::runtime()?;
    let server = serve()?;
    let counted = ConnectionLimits { per_minute: Some(100_000_000), per_hour: None, burn: None };
    let pair = against_reqwest(&runtime, server, counted)?;
    let per_second = |side: &[RunTimes]| format!("{} /s", figure(rounds::of(side, RunTimes::per_second)));
    let row = |what: &str, pair: &PairedRounds, target| ReportLine {
        what: what.into(),
        ours: per_second(&pair.ours),
        against: "reqwest alone".into(),
        floor: per_second(&pair.floor),
        ratio: pair.ratio(|took| took.wall.as_secs_f64() / took.count as f64),
        target,
    };
    let rows = vec![row("time of a GET with a credential, counted durably", &pair, RatioTarget::AtMost(1.15))];
    let how = format!(
        "{EACH} requests one after another on one line to a server on loopback that answers 512 bytes; ours by a ticket, with a bearer \
         credential, limits counted in the database and the answer searched for the credential; reqwest with the same header. \
         {ROUNDS} rounds, in turns."
    );
    let notes = vec![
        "Where limits are narrow (64 a minute or fewer) every request is counted by a commit of its own, which costs what a commit costs."
            .into(),
    ];
    let [_, _, _, _, _, title, ..] = ORDER;
    Ok(ReportSection { name: "egress", title, how, rows, notes })
}

fn against_reqwest(runtime: &Runtime, server: SocketAddr, limits: ConnectionLimits) -> anyhow::Result<PairedRounds> {
    let folder = load::folder()?;
    let (egress, ticket) = runtime.block_on(open(folder.path(), server, limits))?;
    let url = format!("http://{server}/v1/items?page=1");
    let _provider = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    in_turns(
        ROUNDS,
        || {
            let work = async {
                for _ in 0..EACH {
                    let answer = egress
                        .exchange(&ticket, EgressRequest::get(&url))
                        .await
                        .map_err(|no| anyhow::anyhow!("{no}"))?;
                    anyhow::ensure!(answer.status == 200 && answer.body.len() == 512, "a wrong answer");
                }
                anyhow::Ok(())
            };
            Ok(timed(EACH, || runtime.block_on(work))?.0)
        },
        || {
            let work = async {
                for _ in 0..EACH {
                    let answer = client.get(&url).bearer_auth(SECRET).send().await?;
                    let status = answer.status();
                    let body = answer.bytes().await?;
                    anyhow::ensure!(status == 200 && body.len() == 512, "a wrong answer");
                }
                anyhow::Ok(())
            };
            Ok(timed(EACH, || runtime.block_on(work))?.0)
        },
    )
}

async fn open(
    folder: &std::path::Path,
    server: SocketAddr,
    limits: ConnectionLimits,
) -> anyhow::Result<(Egress, EgressTicket)> {
    let clock: Arc<dyn Clock> = Arc::new(EgressClock(Instant::now()));
    let store = Arc::new(Store::open_file(&folder.join("sluice.db"), NodeName::new("gw-1")?, Arc::clone(&clock))?);
    let (ids, entropy) = (Arc::new(SeededIds::new(5)), Arc::new(SeededEntropy::new(5)));
    let world = GatewayDeps { clock, ids, entropy, release: "bench" };
    let source = RootKeySource::File(folder.join("root.key"));
    let vault = Arc::new(Vault::open(Arc::clone(&store), &world, source, None).await?);
    let (name, by) = (SecretName::new("bench")?, Actor::Operator(PersonName::new("bench")?));
    let scope = vault::SecretScope::new(vec!["proxy.*".into()], &["127.0.0.1".into()]).map_err(anyhow::Error::msg)?;
    let value = NewSecretValue {
        value: SecretValue::new(SECRET.into()),
        kind: None,
        scope: Some(scope),
        overlap: Millis::ZERO,
    };
    vault.set(&name, value, by.clone()).await?;
    let tls = trust(None).map_err(anyhow::Error::msg)?;
    let wire = EgressTransport::new(Arc::new(SystemResolver), Arc::new(SystemDialer), tls);
    let egress = Egress::new(store, vault, Arc::new(EmptyLeakScanner), wire, &world);
    let host = HostPattern::parse("127.0.0.1").map_err(anyhow::Error::msg)?;
    let mut connection = EgressConnection::new(ConnectionName::new("bench")?, vec![host]);
    connection.ports = vec![server.port()];
    connection.plain_http = true;
    connection.methods = METHODS.to_vec();
    connection.allow_addresses = vec![IpNetwork::parse("127.0.0.1").map_err(anyhow::Error::msg)?];
    connection.limits = limits;
    connection.credential = Some((name, CredentialPlacement::Bearer));
    let connection_name = connection.name.clone();
    egress.open(connection);
    let scope = TicketScope {
        job: JobId::from_bits(1),
        capability: "proxy.bench.get".into(),
        hosts: vec!["127.0.0.1".into()],
        operations: Vec::new(),
        by,
        lasts: Millis::from_hours(2),
    };
    let ticket = egress.issue(&connection_name, scope).await.map_err(|no| anyhow::anyhow!("{no}"))?;
    Ok((egress, ticket))
}

/// A minimal server: a thread for each connection, the same answer to each request.
fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a listener")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let reply =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 512\r\n\r\n{}", "x".repeat(512));
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        read.extend_from_slice(buffer.get(..n).unwrap_or_default());
        // Requests without a body: each ends with an empty line.
        if read.ends_with(b"\r\n\r\n") {
            read.clear();
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }
}
