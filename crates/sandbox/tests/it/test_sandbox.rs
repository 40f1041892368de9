//! The test environment for workers: everything outside is watched, the clock is real.

pub mod acts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::crash::CrashCause;
use sluice_core::{Clock, Millis, UtcMillis};
use sluice_protocol::{ExchangeReply, WorkerExchange, WorkerItem, WorkerJob, WorkerJobOutcome};
use sluice_sandbox::JailMode;
use sluice_sandbox::parent::zygote::{Zygote, ZygoteHandle};
use sluice_sandbox::parent::{
    FinishedWorker, NamespacesMode, Spawner, WorkerCancel, WorkerEnd, WorkerHost, WorkerLimits, WorkerProgram,
    WorkerStartError, WorkerTask,
};

/// The machine's clock: workers are real, and so is their time.
pub struct MachineTestClock;

impl Clock for MachineTestClock {
    fn now(&self) -> UtcMillis {
        UtcMillis::from_millis(0)
    }

    fn since_boot(&self) -> Millis {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Millis::from_millis(u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap())
    }
}

/// Answers with large bodies and stores what arrives.
#[derive(Default)]
pub struct AnsweringTestHost {
    pub items: Vec<WorkerItem>,
    pub asked: u64,
}

impl WorkerHost for AnsweringTestHost {
    fn exchange(&mut self, _: WorkerExchange, _: Millis) -> Result<ExchangeReply, CrashCause> {
        self.asked += 1;
        Ok(ExchangeReply::Answer { status: 200, headers: Vec::new(), body: vec![b'x'; 64 << 10] })
    }

    fn item(&mut self, item: WorkerItem) -> Result<(), CrashCause> {
        self.items.push(item);
        Ok(())
    }
}

/// With namespaces where the system allows them, and without.
pub const BOTH: [NamespacesMode; 2] = [NamespacesMode::WhereAllowed, NamespacesMode::Off];

/// Why a worker crashed, if it did.
pub fn cause(end: &WorkerEnd) -> Option<&CrashCause> {
    match end {
        WorkerEnd::Crashed(crash) => Some(&crash.cause),
        WorkerEnd::Clean(_) | WorkerEnd::CutOff { .. } => None,
    }
}

pub struct TestSandbox {
    folder: tempfile::TempDir,
    pub spawner: Spawner,
    limits: WorkerLimits,
}

const SECRET: &str = "nobody may read this";

pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_evil-worker"))
}

impl TestSandbox {
    pub fn new(namespaces: NamespacesMode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scratch")).unwrap();
        for name in ["outside.txt", "sluice.db"] {
            std::fs::write(folder.path().join(name), SECRET).unwrap();
        }
        std::os::unix::fs::symlink("../outside.txt", folder.path().join("scratch/way-out")).unwrap();
        let program = WorkerProgram::at(&program()).unwrap();
        let spawner = Spawner::new(program, Arc::new(MachineTestClock)).unwrap().namespaces(namespaces);
        let limits = WorkerLimits {
            wall: Millis::from_secs(30),
            scratch_bytes: 1 << 20,
            exchanges: 100_000,
            ..WorkerLimits::default()
        };
        Self { folder, spawner, limits }
    }

    pub fn limits(mut self, change: impl FnOnce(WorkerLimits) -> WorkerLimits) -> Self {
        self.limits = change(self.limits);
        self
    }

    pub fn cancel(&self) -> WorkerCancel {
        WorkerCancel::new().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn task<'a>(&self, act: &str, scratch: Option<&'a Path>) -> WorkerTask<'a> {
        let payload = json!({
            "parent": std::process::id(),
            "outside": self.path("outside.txt"),
            "database": self.path("sluice.db"),
        });
        let job = WorkerJob { kind: act.into(), payload, attachments: Vec::new() };
        WorkerTask { job, limits: self.limits, mode: JailMode::Required, scratch }
    }

    /// A zygote whose forks may use as much as its workers.
    pub fn mould(&self) -> Zygote {
        self.spawner.start_zygote(self.limits, JailMode::Required).unwrap()
    }

    /// Runs an act in a fork.
    pub fn run_copy(&self, copies: &ZygoteHandle, act: &str) -> WorkerEnd {
        let copy = copies.start_child(self.limits).unwrap();
        copy.perform(self.task(act, None).job, &mut AnsweringTestHost::default(), &self.cancel()).unwrap()
    }

    pub fn run(&self, act: &str) -> WorkerEnd {
        self.run_until(&self.cancel(), act)
    }

    pub fn run_until(&self, cancel: &WorkerCancel, act: &str) -> WorkerEnd {
        self.spawner.run(self.task(act, None), &mut AnsweringTestHost::default(), cancel).unwrap()
    }

    pub fn run_with_scratch(&self, act: &str) -> WorkerEnd {
        let scratch = self.path("scratch");
        self.spawner.run(self.task(act, Some(&scratch)), &mut AnsweringTestHost::default(), &self.cancel()).unwrap()
    }

    pub fn try_run(&self, task: WorkerTask<'_>) -> Result<WorkerEnd, WorkerStartError> {
        self.spawner.run(task, &mut AnsweringTestHost::default(), &self.cancel())
    }

    /// Checks that everything outside is unchanged.
    pub fn is_untouched(&self) {
        for name in ["outside.txt", "sluice.db"] {
            assert_eq!(std::fs::read_to_string(self.path(name)).unwrap(), SECRET);
        }
        let mut names: Vec<_> =
            std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["outside.txt", "scratch", "sluice.db"]);
    }

    /// Checks that an honest job still works.
    pub fn still_works(&self) {
        let end = self.run("echo");
        let WorkerEnd::Clean(done) = &end else { panic!("{end:?}") };
        assert_eq!(value(done)["parent"], std::process::id());
    }
}

pub fn value(done: &FinishedWorker) -> Value {
    match &done.report.outcome {
        WorkerJobOutcome::Done(value) => value.clone(),
        failed @ WorkerJobOutcome::Failed { .. } => panic!("{failed:?}"),
    }
}
