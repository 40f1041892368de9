//! The gateway's half: spawns a worker, watches it, kills it, reaps it.
//!
//! Takes a [`WorkerTask`] and a [`WorkerHost`] that answers for the gateway; gives an [`WorkerEnd`]. It blocks, so each worker has its
//! own thread while it lives; a [`WorkerCancel`] ends it from any thread. Promise: whenever [`Spawner::run`] returns, the
//! worker is dead and reaped and its descriptors are closed.

mod end;
mod process;
mod start;
pub mod third_party;
mod watch;
pub mod zygote;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode as FileMode, OFlags};
use sluice_core::crash::CrashCause;
use sluice_core::{Clock, Millis};

pub use end::{WorkerCrash, WorkerCutOffReason, WorkerEnd, WorkerUsage};

use sluice_protocol::{
    ExchangeReply, MessageToWorker, NextItemReply, WorkerExchange, WorkerFrameError, WorkerItem, WorkerJob,
    WorkerProgress, WorkerReport,
};
use sluice_protocol::{JailLayerName, JailLayers, JailMode};

/// How much a worker may use before it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Time from spawn to end.
    pub wall: Millis,
    /// Processor time; the kernel counts in whole seconds.
    pub cpu: Millis,
    /// Address space, in bytes.
    pub memory: u64,
    /// Largest file in the scratch folder, in bytes.
    pub scratch_bytes: u64,
    /// Most frames that it may send.
    pub frames: u64,
    /// Most bytes that it may send.
    pub bytes: u64,
    /// Most exchanges that it may request.
    pub exchanges: u64,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            wall: Millis::from_mins(5),
            cpu: Millis::from_secs(30),
            memory: 256 << 20,
            scratch_bytes: 16 << 20,
            frames: 20_000,
            bytes: 256 << 20,
            exchanges: 200,
        }
    }
}

/// The task of a worker.
#[derive(Debug)]
pub struct WorkerTask<'a> {
    /// The job.
    pub job: WorkerJob,
    /// Its limits.
    pub limits: WorkerLimits,
    /// Whether a missing layer refuses it.
    pub mode: JailMode,
    /// Its own folder, if it has one.
    pub scratch: Option<&'a Path>,
}

/// Answers a worker on behalf of the gateway. Only the shape of its messages has been checked.
pub trait WorkerHost {
    /// Sends a request, or refuses. `left` is the remaining lifetime of the worker: a longer request is useless.
    ///
    /// # Errors
    /// The cause, when the worker must be ended.
    fn exchange(&mut self, exchange: WorkerExchange, left: Millis) -> Result<ExchangeReply, CrashCause>;

    /// Gives the next item of a conversation. Only the host of a kept reader has any; every other worker that asks is
    /// ended.
    ///
    /// # Errors
    /// The cause, when the worker must be ended.
    fn next_item(&mut self, left: Millis) -> Result<NextItemReply, CrashCause> {
        let _unused = left;
        Err(CrashCause::MalformedFrame)
    }

    /// Takes one result.
    ///
    /// # Errors
    /// The cause, when the worker must be ended.
    fn item(&mut self, item: WorkerItem) -> Result<(), CrashCause>;

    /// Receives the progress.
    fn progress(&mut self, progress: WorkerProgress) {
        let _unheard = progress;
    }
}

/// A host for a worker that needs no outside: exchanges are refused, items are not expected.
#[derive(Debug, Clone, Copy, Default)]
pub struct RefusingWorkerHost;

impl WorkerHost for RefusingWorkerHost {
    fn exchange(&mut self, _: WorkerExchange, _: Millis) -> Result<ExchangeReply, CrashCause> {
        let text = "this job may not send requests".to_owned();
        Ok(ExchangeReply::Refused { code: "egress.none".into(), text, not_sent: true })
    }

    fn item(&mut self, _: WorkerItem) -> Result<(), CrashCause> {
        Err(CrashCause::MalformedFrame)
    }
}

/// Why a worker was not started, or did not get its job.
#[derive(Debug, thiserror::Error)]
pub enum WorkerStartError {
    /// It could not be started.
    #[error("the worker could not be started: {0}")]
    Spawn(#[source] io::Error),
    /// Mandatory layers are missing.
    #[error("the worker was not given its job: missing {}", names(.0))]
    Layers(Vec<JailLayerName>),
    /// It ended before it was locked in: not our program, or a program of another release.
    #[error("the worker ended before it was locked in ({0})")]
    NoWorker(String),
    /// The job is too large, or has no kind.
    #[error("the job cannot be given to a worker: {0}")]
    Job(#[from] WorkerFrameError),
}

fn names(layers: &[JailLayerName]) -> String {
    layers.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}

impl WorkerStartError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Spawn(_) => "worker.spawn",
            Self::Layers(_) => "worker.layers",
            Self::NoWorker(_) => "worker.not_one",
            Self::Job(_) => "worker.job",
        }
    }
}

/// The result of a worker that ended well.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedWorker {
    /// The worker's report.
    pub report: WorkerReport,
    /// The layers that locked it in.
    pub layers: JailLayers,
    /// The resources that it used.
    pub usage: WorkerUsage,
}

/// The program from which workers are started, held open: a later change at its path has no effect.
#[derive(Debug)]
pub struct WorkerProgram(OwnedFd);

impl WorkerProgram {
    /// The running program.
    ///
    /// # Errors
    /// When `/proc` does not exist.
    pub fn own() -> io::Result<Self> {
        Self::at(Path::new("/proc/self/exe"))
    }

    /// A program at a path. It must call [`crate::child::enter`] when its first argument is `worker`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn at(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self(start::high(&rustix::fs::open(&path, flags, FileMode::empty())?)?))
    }
}

/// Ends a worker from any thread.
#[derive(Debug, Clone)]
pub struct WorkerCancel(Arc<OwnedFd>);

impl WorkerCancel {
    /// A handle that is not cancelled yet.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Ends the worker that watches it, now or as soon as there is one. A second call has no effect.
    pub fn cancel(&self) {
        // This fails only if the counter is full, and then it is cancelled already.
        let _written = rustix::io::write(self.0.as_fd(), &1_u64.to_ne_bytes());
    }
}

/// Starts workers.
pub struct Spawner {
    program: WorkerProgram,
    /// The three standard descriptors of workers: `/dev/null`.
    nothing: OwnedFd,
    clock: Arc<dyn Clock>,
    namespaces: NamespacesMode,
}

/// Whether workers get namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespacesMode {
    /// Where the system allows it.
    WhereAllowed,
    /// Never: for measurements, and for tests of the protection without them.
    Off,
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawner").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts workers from this program.
    ///
    /// # Errors
    /// When there is no `/dev/null`.
    pub fn new(program: WorkerProgram, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let nothing = start::high(&rustix::fs::open("/dev/null", flags, FileMode::empty())?)?;
        Ok(Self { program, nothing, clock, namespaces: NamespacesMode::WhereAllowed })
    }

    /// Sets whether workers get namespaces.
    #[must_use]
    pub fn namespaces(mut self, namespaces: NamespacesMode) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Starts a worker, gives it its job, and waits until it has ended.
    ///
    /// # Errors
    /// When it could not be started, or was not locked in well enough to get the job.
    pub fn run(
        &self,
        mut task: WorkerTask<'_>,
        host: &mut dyn WorkerHost,
        cancel: &WorkerCancel,
    ) -> Result<WorkerEnd, WorkerStartError> {
        if !task.job.has_a_kind() {
            return Err(WorkerStartError::Job(WorkerFrameError::Shape));
        }
        let nothing = WorkerJob { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let job = MessageToWorker::Job(std::mem::replace(&mut task.job, nothing)).encode()?;
        let started = self.clock.since_boot();
        let scratch = match task.scratch {
            Some(folder) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let opened = rustix::fs::open(folder, flags, FileMode::empty()).map_err(io::Error::from);
                Some(opened.and_then(|folder| start::high(&folder)).map_err(WorkerStartError::Spawn)?)
            }
            None => None,
        };
        let born = self.start(scratch.as_ref())?;
        watch::watch(born, job, &task, watch::WorkerWatchContext { host, cancel, clock: self.clock.as_ref(), started })
    }

    fn start(&self, scratch: Option<&OwnedFd>) -> Result<start::LaunchedProcess, WorkerStartError> {
        let born = start::start(&start::ProcessLaunch {
            program: &self.program.0,
            role: start::WORKER,
            standard: [&self.nothing; 3],
            scratch,
            namespaces: self.namespaces,
            network: start::LaunchNetwork::Empty,
        });
        born.map_err(WorkerStartError::Spawn)
    }
}
