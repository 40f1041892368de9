//! Servers: the gateway and the axum floor, each as a process of its own.
//!
//! Takes a role in words; prints its listen addresses, and serves until its standard input closes, so that no server
//! outlives the measurement.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use sluice_core::{Clock, Entropy, Ids, Millis, UtcMillis, GatewayDeps};
use sluice_config::{Config, ConfigContext};
use sluice_gateway::open::open;
use sluice_services::workers::WorkerProgram;
use sluice_gateway::GatewayPhase;
use sluice_api::serve;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::folder::BenchEngine;
use crate::floor::{FloorRow, postgres, sqlite};
use crate::load::{self, WallClock};

/// Connections of the floor on PostgreSQL: at most as many as there are clients.
const CONNECTIONS: usize = 64;

/// The operating system's randomness.
#[derive(Debug)]
pub struct RealEntropy;

impl Entropy for RealEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        // Without randomness the measurement is the same.
        let _filled = getrandom::fill(buffer);
    }
}

/// Ids that sort by age.
#[derive(Debug)]
pub struct RealIds;

impl Ids for RealIds {
    fn mint(&self) -> u128 {
        let mut random = [0; 16];
        RealEntropy.fill(&mut random);
        let millis = u128::try_from(WallClock.now().as_millis()).unwrap_or(0) & 0xffff_ffff_ffff;
        millis << 80 | u128::from_be_bytes(random) >> 48
    }
}

/// Both clocks of the machine.
#[derive(Debug)]
struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> UtcMillis {
        WallClock.now()
    }

    fn since_boot(&self) -> Millis {
        Millis::from_secs(3600) + Millis::from_millis(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// The world in which a gateway is opened.
pub fn world(clock: Arc<dyn Clock>) -> GatewayDeps {
    GatewayDeps { clock, ids: Arc::new(RealIds), entropy: Arc::new(RealEntropy), release: "0.0.0" }
}

/// The configuration of the gateway.
pub fn config(folder: &Path) -> anyhow::Result<Config> {
    let around = ConfigContext { here: folder.to_path_buf(), ..ConfigContext::default() };
    let loaded = Config::load(Some(&folder.join("sluice.yaml")), &[], &around);
    Ok(loaded.map_err(|error| anyhow::anyhow!("{error:?}"))?.0)
}

/// The role of the gateway; with workers, if their program is given.
pub fn gateway(folder: &Path, workers: Option<&Path>) -> anyhow::Result<()> {
    let config = config(folder)?;
    load::runtime()?.block_on(async {
        let world = world(Arc::new(RealClock(Instant::now())));
        let (gw, _) = open(config, &world).await?;
        if let Some(program) = workers {
            gw.workers.open(WorkerProgram::at(program)?, &gw.config, Arc::clone(&world.clock))?;
        }
        let bound = serve::bind(&gw).await?;
        let addresses = format!("{} {}", bound.address()?, bound.stop_address()?);
        let (tell, told) = watch::channel(false);
        let ready = async {
            while gw.phase() == GatewayPhase::Starting {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            say(&addresses)?;
            tokio::task::spawn_blocking(until_closed).await?;
            tell.send_replace(true);
            anyhow::Ok(())
        };
        let (_served, asked) = tokio::join!(serve::serve(Arc::clone(&gw), bound, told), ready);
        asked
    })
}

/// The table into which the axum handler inserts.
#[derive(Clone)]
enum FloorBackend {
    File(sqlite::SqliteFloorHandle, Arc<Mutex<rusqlite::Connection>>),
    Server(Arc<postgres::PostgresFloor>, Arc<AtomicUsize>),
}

/// The role of the floor.
pub fn floor(engine: &str) -> anyhow::Result<()> {
    load::runtime()?.block_on(async {
        let rows = if engine.starts_with("postgres") {
            let floor = postgres::PostgresFloor::at(engine, CONNECTIONS).await?;
            FloorBackend::Server(Arc::new(floor), Arc::default())
        } else {
            let door = sqlite::SqliteFloor::rows(Path::new(engine))?.forever()?;
            FloorBackend::File(door, Arc::new(Mutex::new(rusqlite::Connection::open(engine)?)))
        };
        let app = Router::new()
            .route("/", get(async || "hello"))
            .route("/insert", post(insert))
            .route("/rows/{id}", get(row));
        let app = app.with_state(rows);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        say(&format!("{address} {address}"))?;
        let ended = async {
            drop(tokio::task::spawn_blocking(until_closed).await);
        };
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
        tokio::select! {
            served = async { axum::serve(listener, app).await } => served?,
            () = ended => {}
        }
        Ok(())
    })
}

/// One row, durable; nothing else.
async fn insert(State(rows): State<FloorBackend>, body: Bytes) -> (StatusCode, String) {
    let id = RealIds.mint();
    let row = FloorRow { id: id.to_be_bytes(), body: body.to_vec() };
    let done = match rows {
        FloorBackend::File(door, _) => door.insert(row).await,
        FloorBackend::Server(floor, next) => match floor.inserter(next.fetch_add(1, Ordering::Relaxed)) {
            Ok(inserter) => inserter.insert(row).await,
            Err(error) => Err(error),
        },
    };
    match done {
        Ok(()) => (StatusCode::ACCEPTED, format!("{{\"status\":\"held\",\"id\":\"{id:032x}\"}}")),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

/// One row, read by its id.
async fn row(
    State(rows): State<FloorBackend>,
    axum::extract::Path(id): axum::extract::Path<String>,
) -> (StatusCode, Vec<u8>) {
    let FloorBackend::File(_, connection) = rows else { return (StatusCode::NOT_IMPLEMENTED, Vec::new()) };
    let id = u128::from_str_radix(&id, 16).unwrap_or(0).to_be_bytes();
    let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
    let found = connection
        .prepare_cached("SELECT body FROM jobs WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([id.as_slice()], |row| row.get(0)));
    found.map_or((StatusCode::NOT_FOUND, Vec::new()), |body| (StatusCode::OK, body))
}

pub fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

pub fn until_closed() {
    let mut rest = Vec::new();
    let _closed = std::io::stdin().read_to_end(&mut rest);
}

/// A server in a process of its own. It ends when this value is dropped.
pub struct ServerProcess {
    process: std::process::Child,
    main: SocketAddr,
    stop: SocketAddr,
    /// The time from its start until it accepts calls.
    pub ready: Duration,
}

impl ServerProcess {
    /// The gateway of this folder.
    pub fn gateway(folder: &Path) -> anyhow::Result<Self> {
        Self::start(&["gateway", &folder.display().to_string()])
    }

    /// The gateway of this folder, with workers of this program.
    pub fn gateway_with(folder: &Path, workers: &Path) -> anyhow::Result<Self> {
        Self::start(&["gateway", &folder.display().to_string(), &workers.display().to_string()])
    }

    /// The floor on this engine.
    pub fn floor(engine: &BenchEngine) -> anyhow::Result<Self> {
        Self::start(&["floor", &engine.floor()])
    }

    /// Starts the role that these words name.
    pub fn start(words: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("role").args(words);
        Self::of(command)
    }

    /// Starts any program that prints its listen address like our roles, and ends with its standard input.
    pub fn of(mut command: Command) -> anyhow::Result<Self> {
        let began = Instant::now();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let ready = began.elapsed();
        let (main, stop) = line.trim().split_once(' ').with_context(|| format!("{command:?} did not start: {line}"))?;
        Ok(Self { process, main: main.parse()?, stop: stop.parse()?, ready })
    }

    pub fn address(&self) -> SocketAddr {
        self.main
    }

    pub fn stop_address(&self) -> SocketAddr {
        self.stop
    }

    /// Processor time of the whole process so far.
    pub fn processor(&self) -> anyhow::Result<Duration> {
        let process = self.process.id();
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanos += text.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
        // Exact, but without threads that have ended; the count of the whole process includes them, in hundredths of a
        // second.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks: u64 = [11, 12].iter().filter_map(|place| fields.get(*place)?.parse::<u64>().ok()).sum();
        Ok(Duration::from_nanos(nanos).max(Duration::from_millis(ticks * 10)))
    }

    /// The same including its children: those it has reaped, in hundredths of a second, and those that are alive.
    pub fn processor_of_all(&self) -> anyhow::Result<Duration> {
        let own = self.process.id().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{own}/stat"))?;
        let field = |stat: &str, place: usize| {
            stat.rsplit(") ").next().unwrap_or_default().split(' ').nth(place).map(str::to_owned).unwrap_or_default()
        };
        let buried: u64 = [13, 14].iter().filter_map(|place| field(&stat, *place).parse::<u64>().ok()).sum();
        let mut living = 0;
        for process in std::fs::read_dir("/proc")?.flatten() {
            let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            if field(&stat, 1) == own {
                let text = std::fs::read_to_string(process.path().join("schedstat")).unwrap_or_default();
                living += text.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Ok(self.processor()? + Duration::from_millis(buried * 10) + Duration::from_nanos(living))
    }

    /// Memory in MB: now (`VmRSS`) or at most (`VmHWM`).
    pub fn memory(&self, which: &str) -> anyhow::Result<f64> {
        memory_of(&self.process.id().to_string(), which)
    }
}

/// Memory of a process in MB.
pub fn memory_of(process: &str, which: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(which)).context("no such line")?;
    let kibibytes: f64 = line.trim_start_matches(':').split_whitespace().next().context("no figure")?.parse()?;
    Ok(kibibytes * 1024.0 / 1e6)
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ended = self.process.wait();
    }
}
