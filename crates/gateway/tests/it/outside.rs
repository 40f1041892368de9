//! The outside in a box: servers on loopback that do as they are told, names that mean what a test says, and a
//! recorder of every address that was dialled.

#![allow(dead_code, reason = "each story uses its own part of the outside")]

use std::collections::HashMap;
use std::future::Future;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sluice_config::network::{EgressConnection, HostPattern, IpNetwork};
use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::{Actor, BoxedFuture, GatewayDeps, Millis, NodeName, PersonName};
use sluice_egress::Egress;
use sluice_egress::leak::{EmptyLeakScanner, LeakScanner};
use sluice_egress::transport::{EgressTransport, HostResolver, SystemDialer, TcpDialer, trust};
use sluice_egress::vault::{NewSecretValue, RootKeySource, SecretScope, SecretValue, Vault};
use sluice_store::Store;
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::{CountingIds, SeededEntropy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing_subscriber::fmt::MakeWriter;

/// Names that mean what a test says: one list of addresses per look-up, the last one for ever.
#[derive(Default)]
pub struct TestDnsNames {
    known: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub asked: AtomicUsize,
}

impl TestDnsNames {
    pub fn mean(&self, name: &str, answers: &[&[&str]]) {
        let parse = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        self.known.lock().unwrap().insert(name.into(), answers.iter().map(parse).collect());
    }
}

impl HostResolver for TestDnsNames {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxedFuture<'a, std::io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut known = self.known.lock().unwrap();
        let found = known.get_mut(host).map(|answers| {
            if answers.len() > 1 { answers.remove(0) } else { answers.first().cloned().unwrap_or_default() }
        });
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        Box::pin(std::future::ready(found.ok_or_else(missing)))
    }
}

/// Remembers every address that was dialled. Only loopback is really reached: tests have no other network.
#[derive(Default)]
pub struct DialRecorder {
    pub dialled: Mutex<Vec<SocketAddr>>,
}

impl TcpDialer for DialRecorder {
    fn dial(&self, address: SocketAddr) -> BoxedFuture<'_, std::io::Result<TcpStream>> {
        self.dialled.lock().unwrap().push(address);
        if address.ip().to_canonical().is_loopback() || address.ip().to_canonical().is_unspecified() {
            return Box::pin(async move { SystemDialer.dial(address).await });
        }
        Box::pin(std::future::ready(Err(std::io::ErrorKind::NetworkUnreachable.into())))
    }
}

/// A way out with everything around it in the hands of a test.
pub struct TestEgress {
    pub egress: Arc<Egress>,
    pub vault: Arc<Vault>,
    pub store: Arc<Store>,
    pub clock: ManualClock,
    pub names: Arc<TestDnsNames>,
    pub dialler: Arc<DialRecorder>,
    pub folder: tempfile::TempDir,
}

pub fn ana() -> Actor {
    Actor::Operator(PersonName::new("ana").unwrap())
}

pub fn named(name: &str) -> ConnectionName {
    ConnectionName::new(name).unwrap()
}

impl TestEgress {
    pub async fn new() -> Self {
        Self::with(None, Arc::new(EmptyLeakScanner)).await
    }

    pub async fn with(ca: Option<&Path>, scan: Arc<dyn LeakScanner>) -> Self {
        let clock = ManualClock::default();
        Self::at(tempfile::tempdir().unwrap(), clock, ca, scan).await
    }

    async fn at(folder: tempfile::TempDir, clock: ManualClock, ca: Option<&Path>, scan: Arc<dyn LeakScanner>) -> Self {
        let shared: Arc<dyn sluice_core::Clock> = Arc::new(clock.clone());
        let path = folder.path().join("sluice.db");
        let store = Arc::new(Store::open_file(&path, NodeName::new("gw").unwrap(), Arc::clone(&shared)).unwrap());
        let seed = u64::try_from(sluice_core::Clock::now(&clock).as_millis()).unwrap();
        let world = GatewayDeps {
            clock: shared,
            ids: Arc::new(CountingIds::after(seed)),
            entropy: Arc::new(SeededEntropy::new(seed)),
            release: "0.0.0",
        };
        let source = RootKeySource::File(folder.path().join("root.key"));
        let vault = Arc::new(Vault::open(Arc::clone(&store), &world, source, None).await.unwrap());
        let (names, dialler) = (Arc::new(TestDnsNames::default()), Arc::new(DialRecorder::default()));
        let wire = EgressTransport::new(names.clone(), dialler.clone(), trust(ca).unwrap());
        let egress = Arc::new(Egress::new(Arc::clone(&store), Arc::clone(&vault), scan, wire, &world));
        Self { egress, vault, store, clock, names, dialler, folder }
    }

    /// The gateway stops and comes back.
    pub async fn restart(self, off: Millis) -> Self {
        let Self { egress, vault, store, clock, folder, .. } = self;
        let connections = egress.connections();
        drop((egress, vault, store));
        clock.restart(off);
        let out = Self::at(folder, clock, None, Arc::new(EmptyLeakScanner)).await;
        connections.iter().for_each(|connection| out.egress.open(EgressConnection::clone(connection)));
        out
    }

    pub async fn secret(&self, name: &str, value: &str, hosts: &[&str]) {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.into()).collect();
        let scope = SecretScope::new(vec!["network.*".into(), "proxy.*".into()], &hosts).unwrap();
        let (value, overlap) = (SecretValue::new(value.into()), Millis::from_hours(1));
        let new = NewSecretValue { value, kind: None, scope: Some(scope), overlap };
        self.vault.set(&SecretName::new(name).unwrap(), new, ana()).await.unwrap();
    }

    pub fn dialled(&self) -> Vec<SocketAddr> {
        self.dialler.dialled.lock().unwrap().clone()
    }
}

/// A connection to a loopback server by its address, as wide as can be.
pub fn wide(upstream: &LoopbackUpstream) -> EgressConnection {
    let mut connection = EgressConnection::new(named("web"), vec![HostPattern::parse("127.0.0.1").unwrap()]);
    connection.ports = vec![upstream.address.port()];
    connection.plain_http = true;
    connection.methods = sluice_config::network::METHODS.to_vec();
    connection.allow_addresses = vec![IpNetwork::parse("127.0.0.1").unwrap()];
    connection.limits = sluice_core::throttle::ConnectionLimits::NONE;
    connection.timeout = Millis::from_secs(20);
    connection.idle_timeout = Millis::from_secs(10);
    connection
}

/// A server on loopback that does as it is told.
pub struct LoopbackUpstream {
    pub address: SocketAddr,
    pub accepted: Arc<AtomicUsize>,
    /// Heads of all requests, with their bodies.
    pub heard: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl LoopbackUpstream {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// For each connection, does this.
    pub async fn raw<F, W>(work: F) -> Self
    where
        F: Fn(TcpStream, Arc<Mutex<Vec<String>>>) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, heard) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = JoinSet::new();
        let (count, log) = (Arc::clone(&accepted), Arc::clone(&heard));
        tasks.spawn(async move {
            let mut inner = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                inner.spawn(work(stream, Arc::clone(&log)));
            }
        });
        Self { address, accepted, heard, _tasks: tasks }
    }

    /// Answers each request, on lines that stay open.
    pub async fn answering(answer: impl Fn(&str, usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let (answer, count) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        Self::raw(move |mut stream, log| {
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
            async move {
                while let Some(request) = request(&mut stream).await {
                    let nth = count.fetch_add(1, Ordering::SeqCst);
                    let bytes = answer(&request, nth);
                    log.lock().unwrap().push(request);
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }
}

/// One request with its body, if one comes.
pub async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            if body.len() >= length.map_or(0, |digits| digits.trim().parse().unwrap()) {
                return Some(text);
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => read.extend_from_slice(&buffer[..n]),
        }
    }
}

/// An answer with a length.
pub fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

/// Keeps every line that is logged.
#[derive(Clone, Default)]
pub struct CapturedLogLines(pub Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLogLines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
