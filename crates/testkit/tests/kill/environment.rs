//! The place of a run, and how its processes are started and ended.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use sluice_core::NodeName;
use sluice_store::Store;
use sluice_testkit::crash_state::{LastingClock, Workload};
use sluice_testkit::oracle::OracleService;
use sluice_testkit::postgres::TestDatabase;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A database and the outside world.
pub struct CrashEnvironment {
    server: Option<TestDatabase>,
    folder: TempDir,
}

/// One workload, driven to its end through any number of kills.
#[derive(Clone, Copy)]
pub struct CrashRun<'a> {
    pub environment: &'a CrashEnvironment,
    pub seed: u64,
    pub work: Workload,
    pub plant: Option<&'static str>,
}

/// How a process is to end early.
#[derive(Clone, Copy)]
pub enum LifeEnding<'a> {
    /// It is not ended early.
    Natural,
    /// It kills itself, at this visit of this point.
    At(&'a str, u32),
    /// It is killed from outside, after this many lines of progress and then a pause.
    Killed { after: u64, pause: Duration },
}

/// Between its start and its first own instruction a child shares every file of this process, including locks. While a
/// store is open here, no child is started.
static BIRTH: RwLock<()> = RwLock::new(());

/// A store in this process.
pub struct OpenedStore {
    pub store: Store,
    _unborn: RwLockReadGuard<'static, ()>,
}

/// The result of one process.
pub struct FinishedLife {
    pub died: bool,
    pub lines: Vec<String>,
}

impl CrashEnvironment {
    pub fn sqlite() -> Self {
        Self { server: None, folder: tempfile::tempdir().unwrap() }
    }

    /// A separate database on the server, if there is a server.
    pub fn postgres() -> Option<Self> {
        Some(Self { server: Some(TestDatabase::fresh()?), folder: tempfile::tempdir().unwrap() })
    }

    /// The same place, emptied. A database on the server is kept and emptied, because creating one takes longer than a
    /// run.
    pub fn cleared(self) -> Self {
        if let Some(database) = &self.server {
            empty(database.url());
        }
        Self { server: self.server, folder: tempfile::tempdir().unwrap() }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn oracle(&self) -> OracleService {
        OracleService::open(self.folder())
    }

    pub fn store_name(&self) -> String {
        match &self.server {
            Some(database) => database.url().to_owned(),
            None => self.folder().join("sluice.db").display().to_string(),
        }
    }

    /// The store after the last process, opened under another node's name.
    pub fn open(&self) -> OpenedStore {
        let unborn = BIRTH.read();
        let clock = LastingClock::resume(self.folder());
        let (name, time) = (NodeName::new("checker").unwrap(), Arc::new(clock.clock.clone()));
        let store = match &self.server {
            Some(database) => Store::open_server_with_clock(database.url(), name, time),
            None => Store::open_file(&self.folder().join("sluice.db"), name, time),
        };
        OpenedStore { store: store.unwrap(), _unborn: unborn }
    }
}

impl CrashRun<'_> {
    /// The command of one process. Every fourth uses another node's name, and has to wait for the leases of the killed
    /// one.
    pub fn command(&self, life: u64) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-driver"));
        command.arg(format!("store={}", self.environment.store_name()));
        command.arg(format!("oracle={}", self.environment.folder().display()));
        command.arg(format!("node={}", if life % 4 == 3 { "gw-2" } else { "gw-1" }));
        command.args([format!("seed={}", self.seed), format!("life={life}"), format!("writes={}", self.work.writes)]);
        if let Some(class) = self.work.class {
            command.arg(format!("class={}", class.as_str()));
        }
        if let Some(plant) = self.plant {
            command.arg(format!("plant={plant}"));
        }
        command
    }

    pub fn live(&self, life: u64, fate: LifeEnding<'_>, more: &[&str]) -> FinishedLife {
        let mut command = self.command(life);
        command.args(more);
        if let LifeEnding::At(point, visit) = fate {
            command.arg(format!("crash={point}:{visit}"));
        }
        let errors = self.environment.folder().join("errors");
        let log = File::options().create(true).append(true).open(&errors).unwrap();
        let birth = BIRTH.write();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        drop(birth);
        let mut progress = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut lines = Vec::new();
        if let LifeEnding::Killed { after, pause } = fate {
            lines.extend(progress.by_ref().take(usize::try_from(after).unwrap()));
            #[expect(clippy::disallowed_methods, reason = "the moment of the kill must not follow the driver's steps")]
            std::thread::sleep(pause);
            child.kill().unwrap();
        }
        lines.extend(progress);
        let status = child.wait().unwrap();
        let died = match (status.signal(), status.code()) {
            (Some(9), _) => true,
            (_, Some(0)) => false,
            _ => panic!(
                "seed {} life {life}: {status}, {:?}\n{}",
                self.seed,
                lines.last(),
                fs::read_to_string(&errors).unwrap_or_default(),
            ),
        };
        FinishedLife { died, lines }
    }
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn empty(url: &str) {
    let tables = "SELECT string_agg(format('DELETE FROM %I', tablename), ';') FROM pg_tables \
                  WHERE schemaname = 'public' AND tablename <> 'schema_version'";
    runtime().block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let emptied = async {
            let statements: Option<String> = client.query_one(tables, &[]).await.unwrap().get(0);
            client.batch_execute(&statements.unwrap_or_default()).await.unwrap();
            drop(client);
        };
        tokio::join!(emptied, connection).1.unwrap();
    });
}
