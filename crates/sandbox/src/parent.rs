//! The gateway's half: spawn a worker, watch it, kill it, bury it.
//!
//! Takes a [`Task`] and a [`Host`] that answers for the gateway; gives an [`End`]. It blocks, so each worker
//! has a thread of its own while it lives; a [`Cancel`] ends it from anywhere. Promise: when [`Spawner::run`]
//! returns, by whatever way, the worker is dead and reaped and its descriptors are closed.

mod end;
mod life;
pub mod mould;
mod start;
pub mod stranger;
mod watch;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode as FileMode, OFlags};
use sluice_core::crash::Cause;
use sluice_core::{Clock, Span};

pub use end::{Crash, CutOff, End, Usage};

use crate::layers::{LayerName, Layers, Mode};
use crate::protocol::{Exchange, Item, Job, Malformed, Progress, Reply, Report, ToWorker};

/// How much a worker may use before it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From spawn to end.
    pub wall: Span,
    /// Processor time; the kernel counts in whole seconds.
    pub cpu: Span,
    /// Address space, in bytes.
    pub memory: u64,
    /// Largest file in the scratch folder, in bytes.
    pub scratch_bytes: u64,
    /// Frames it may send.
    pub frames: u64,
    /// Bytes it may send.
    pub bytes: u64,
    /// Exchanges it may ask for.
    pub exchanges: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Span::from_mins(5),
            cpu: Span::from_secs(30),
            memory: 256 << 20,
            scratch_bytes: 16 << 20,
            frames: 20_000,
            bytes: 256 << 20,
            exchanges: 200,
        }
    }
}

/// What a worker is started for.
#[derive(Debug)]
pub struct Task<'a> {
    /// The job.
    pub job: Job,
    /// How much it may use.
    pub limits: Limits,
    /// Whether a missing layer refuses it.
    pub mode: Mode,
    /// A folder of its own, if it has one.
    pub scratch: Option<&'a Path>,
}

/// Answers a worker on behalf of the gateway. What it is given was checked for its shape and for nothing else.
pub trait Host {
    /// Sends something, or refuses. `left` is how long the worker may still live: longer is useless.
    ///
    /// # Errors
    /// The worker is to be ended, and for what.
    fn exchange(&mut self, exchange: Exchange, left: Span) -> Result<Reply, Cause>;

    /// Takes one result.
    ///
    /// # Errors
    /// The worker is to be ended, and for what.
    fn item(&mut self, item: Item) -> Result<(), Cause>;

    /// Hears how far it is.
    fn progress(&mut self, progress: Progress) {
        let _unheard = progress;
    }
}

/// A worker that needs no outside: exchanges are refused, items are not expected.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Host for Alone {
    fn exchange(&mut self, _: Exchange, _: Span) -> Result<Reply, Cause> {
        let text = "this job has no way out".to_owned();
        Ok(Reply::Refused { code: "egress.none".into(), text, not_sent: true })
    }

    fn item(&mut self, _: Item) -> Result<(), Cause> {
        Err(Cause::MalformedFrame)
    }
}

/// Why a worker was not started, or not given its job.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// It could not be started.
    #[error("the worker could not be started: {0}")]
    Spawn(#[source] io::Error),
    /// Layers are missing that must not be.
    #[error("the worker was not given its job: missing {}", names(.0))]
    Layers(Vec<LayerName>),
    /// It ended before it was locked in: not our program, or one of another release.
    #[error("the worker ended before it was locked in ({0})")]
    NoWorker(String),
    /// The job is larger than it may be, or has no kind.
    #[error("the job cannot be given to a worker: {0}")]
    Job(#[from] Malformed),
}

fn names(layers: &[LayerName]) -> String {
    layers.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}

impl NotStarted {
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

/// What ended well.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// What the worker reported.
    pub report: Report,
    /// How it was locked in.
    pub layers: Layers,
    /// What it used.
    pub usage: Usage,
}

/// The program workers are started from, held open: what is at its path later does not matter.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// The program that runs now.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn own() -> io::Result<Self> {
        Self::at(Path::new("/proc/self/exe"))
    }

    /// A program at a path. It must call [`crate::child::enter`] when its first argument is `worker`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn at(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self(start::high(&rustix::fs::open(&path, flags, FileMode::empty())?)?))
    }
}

/// Ends a worker from anywhere.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<OwnedFd>);

impl Cancel {
    /// Not cancelled yet.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Ends the worker that watches it, now or as soon as there is one. Twice is as good as once.
    pub fn cancel(&self) {
        // The only way this fails is a counter that is full, and then it is cancelled already.
        let _written = rustix::io::write(self.0.as_fd(), &1_u64.to_ne_bytes());
    }
}

/// Starts workers.
pub struct Spawner {
    program: Program,
    /// What workers have for the three standard descriptors.
    nothing: OwnedFd,
    clock: Arc<dyn Clock>,
    namespaces: Namespaces,
}

/// Whether workers get namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// Where the system allows it.
    WhereAllowed,
    /// Never: for measurements, and for tests of what is left without them.
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
    /// There is no `/dev/null`.
    pub fn new(program: Program, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let nothing = start::high(&rustix::fs::open("/dev/null", flags, FileMode::empty())?)?;
        Ok(Self { program, nothing, clock, namespaces: Namespaces::WhereAllowed })
    }

    /// With or without namespaces.
    #[must_use]
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Starts a worker, gives it its job, and stays until it is over.
    ///
    /// # Errors
    /// It could not be started, or was not locked in well enough to be given the job.
    pub fn run(&self, mut task: Task<'_>, host: &mut dyn Host, cancel: &Cancel) -> Result<End, NotStarted> {
        if !task.job.has_a_kind() {
            return Err(NotStarted::Job(Malformed::Shape));
        }
        let nothing = Job { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let job = ToWorker::Job(std::mem::replace(&mut task.job, nothing)).encode()?;
        let started = self.clock.since_boot();
        let scratch = match task.scratch {
            Some(folder) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let opened = rustix::fs::open(folder, flags, FileMode::empty()).map_err(io::Error::from);
                Some(opened.and_then(|folder| start::high(&folder)).map_err(NotStarted::Spawn)?)
            }
            None => None,
        };
        let born = self.start(scratch.as_ref())?;
        watch::watch(born, job, &task, watch::Around { host, cancel, clock: self.clock.as_ref(), started })
    }

    fn start(&self, scratch: Option<&OwnedFd>) -> Result<start::Born, NotStarted> {
        let born = start::start(&start::Birth {
            program: &self.program.0,
            role: start::WORKER,
            standard: [&self.nothing; 3],
            scratch,
            namespaces: self.namespaces,
            network: start::BirthNetwork::Empty,
        });
        born.map_err(NotStarted::Spawn)
    }
}
