//! A house for workers: what is outside is watched, the clock is real.

pub mod acts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::crash::Cause;
use sluice_core::{Clock, Span, Timestamp};
use sluice_sandbox::Mode;
use sluice_sandbox::parent::mould::{Copies, Mould};
use sluice_sandbox::parent::{Cancel, Done, End, Host, Limits, Namespaces, NotStarted, Program, Spawner, Task};
use sluice_sandbox::protocol::{Exchange, Item, Job, Outcome, Reply};

/// The machine's clock: workers are real, so is their time.
pub struct Ticking;

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn since_boot(&self) -> Span {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Span::from_millis(u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap())
    }
}

/// Answers with large bodies and keeps what comes.
#[derive(Default)]
pub struct Answering {
    pub items: Vec<Item>,
    pub asked: u64,
}

impl Host for Answering {
    fn exchange(&mut self, _: Exchange, _: Span) -> Result<Reply, Cause> {
        self.asked += 1;
        Ok(Reply::Answer { status: 200, headers: Vec::new(), body: vec![b'x'; 64 << 10] })
    }

    fn item(&mut self, item: Item) -> Result<(), Cause> {
        self.items.push(item);
        Ok(())
    }
}

/// With namespaces where the system allows them, and without.
pub const BOTH: [Namespaces; 2] = [Namespaces::WhereAllowed, Namespaces::Off];

/// Why a worker broke, if it did.
pub fn cause(end: &End) -> Option<&Cause> {
    match end {
        End::Crashed(crash) => Some(&crash.cause),
        End::Clean(_) | End::CutOff { .. } => None,
    }
}

pub struct House {
    folder: tempfile::TempDir,
    pub spawner: Spawner,
    limits: Limits,
}

const SECRET: &str = "nobody may read this";

pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_evil-worker"))
}

impl House {
    pub fn new(namespaces: Namespaces) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scratch")).unwrap();
        for name in ["outside.txt", "sluice.db"] {
            std::fs::write(folder.path().join(name), SECRET).unwrap();
        }
        std::os::unix::fs::symlink("../outside.txt", folder.path().join("scratch/way-out")).unwrap();
        let program = Program::at(&program()).unwrap();
        let spawner = Spawner::new(program, Arc::new(Ticking)).unwrap().namespaces(namespaces);
        let limits =
            Limits { wall: Span::from_secs(30), scratch_bytes: 1 << 20, exchanges: 100_000, ..Limits::default() };
        Self { folder, spawner, limits }
    }

    pub fn limits(mut self, change: impl FnOnce(Limits) -> Limits) -> Self {
        self.limits = change(self.limits);
        self
    }

    pub fn cancel(&self) -> Cancel {
        Cancel::new().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn task<'a>(&self, act: &str, scratch: Option<&'a Path>) -> Task<'a> {
        let payload = json!({
            "parent": std::process::id(),
            "outside": self.path("outside.txt"),
            "database": self.path("sluice.db"),
        });
        let job = Job { kind: act.into(), payload, attachments: Vec::new() };
        Task { job, limits: self.limits, mode: Mode::Required, scratch }
    }

    /// A mould whose copies may use as much as its workers.
    pub fn mould(&self) -> Mould {
        self.spawner.mould(self.limits, Mode::Required).unwrap()
    }

    /// In a copy.
    pub fn run_copy(&self, copies: &Copies, act: &str) -> End {
        let copy = copies.copy(self.limits).unwrap();
        copy.perform(self.task(act, None).job, &mut Answering::default(), &self.cancel()).unwrap()
    }

    pub fn run(&self, act: &str) -> End {
        self.run_until(&self.cancel(), act)
    }

    pub fn run_until(&self, cancel: &Cancel, act: &str) -> End {
        self.spawner.run(self.task(act, None), &mut Answering::default(), cancel).unwrap()
    }

    pub fn run_with_scratch(&self, act: &str) -> End {
        let scratch = self.path("scratch");
        self.spawner.run(self.task(act, Some(&scratch)), &mut Answering::default(), &self.cancel()).unwrap()
    }

    pub fn try_run(&self, task: Task<'_>) -> Result<End, NotStarted> {
        self.spawner.run(task, &mut Answering::default(), &self.cancel())
    }

    /// What lies outside is as it was.
    pub fn is_untouched(&self) {
        for name in ["outside.txt", "sluice.db"] {
            assert_eq!(std::fs::read_to_string(self.path(name)).unwrap(), SECRET);
        }
        let mut names: Vec<_> =
            std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["outside.txt", "scratch", "sluice.db"]);
    }

    /// An honest job after all of that.
    pub fn still_works(&self) {
        let end = self.run("echo");
        let End::Clean(done) = &end else { panic!("{end:?}") };
        assert_eq!(value(done)["parent"], std::process::id());
    }
}

pub fn value(done: &Done) -> Value {
    match &done.report.outcome {
        Outcome::Done(value) => value.clone(),
        failed @ Outcome::Failed { .. } => panic!("{failed:?}"),
    }
}
