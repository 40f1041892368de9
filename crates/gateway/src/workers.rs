//! Workers of this gateway: how many at once, with which limits, locked in how well.
//!
//! Takes an [`Order`] and a [`Host`] that answers for the gateway; gives how the worker ended. Until
//! [`Workers::open`] was called there are none. Promise: never more workers at work than configured, and few that
//! wait; a caller that goes away takes its worker with it; with `sandbox: required` nothing runs that is not locked in.

mod kept;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use sluice_core::{Clock, Span};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub use sluice_sandbox::parent::stranger::Stranger;
pub use sluice_sandbox::parent::{
    Alone, Cancel, Crash, CutOff, Done, End, Host, Limits, Namespaces, NotStarted, Program, Spawner, Task, Usage,
};
pub use sluice_sandbox::protocol::{Exchange, Item, Job, Outcome, Progress, Reply, Report};
pub use sluice_sandbox::stranger::{Profile, Terms};
pub use sluice_sandbox::{Layer, LayerName, Layers, Mode, landlock_version};

use self::kept::{Ended, Kept, Read};
use crate::config::{Config, Sandbox};

/// How long one reading may take.
const SLOWEST: Span = Span::from_secs(5);
/// Workers that wait, locked in, for something to read.
const READY: usize = 2;
/// How long one of them waits before it ends, so that a quiet gateway keeps none.
const IDLE: Duration = Duration::from_secs(600);

/// What a worker is to do.
#[derive(Debug, Clone)]
pub struct Order {
    /// The job.
    pub job: Job,
    /// A folder of its own, if it has one.
    pub scratch: Option<PathBuf>,
    /// How much it may use, if not as much as configured.
    pub limits: Option<Limits>,
    /// Whether a missing layer refuses it, if not as configured.
    pub mode: Option<Mode>,
}

/// Why there was no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// This gateway starts no workers.
    #[error("this gateway starts no workers")]
    Closed,
    /// It was not started, or not given its job.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// The system gives no descriptor for it.
    #[error("a worker cannot be watched: {0}")]
    System(#[from] io::Error),
    /// The first worker did not answer as one.
    #[error("the first worker did not answer as it must: {0}")]
    Strange(String),
}

impl WorkersError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Closed => "worker.closed",
            Self::NotStarted(why) => why.code(),
            Self::System(_) => "worker.spawn",
            Self::Strange(_) => "worker.not_one",
        }
    }
}

/// The workers of a gateway.
#[derive(Debug, Default)]
pub struct Workers(OnceLock<Yard>);

#[derive(Debug)]
struct Yard {
    spawner: Arc<Spawner>,
    slots: Arc<Semaphore>,
    limits: Limits,
    sandbox: Sandbox,
    /// As the first worker was locked in.
    layers: Layers,
    /// Ways to the threads of workers that wait.
    waiting: Mutex<Vec<mpsc::SyncSender<Errand>>>,
    /// Readers of conversations that may have one of their own.
    kept: Kept,
}

/// Something to read, on its way to the thread of a worker.
struct Errand {
    job: Job,
    cancel: Cancel,
    place: OwnedSemaphorePermit,
    answer: oneshot::Sender<Result<End, NotStarted>>,
}

impl Workers {
    /// Begins to start workers, the first one at once, to see how well this system locks them in. It blocks for
    /// some milliseconds.
    ///
    /// # Errors
    /// Workers cannot be started, or layers are missing and `sandbox` is `required`.
    pub fn open(&self, program: Program, config: &Config, clock: Arc<dyn Clock>) -> Result<&Layers, WorkersError> {
        let (spawner, limits) = (Spawner::new(program, clock)?, limits(config));
        let layers = probe(&spawner, limits, mode(config.sandbox))?;
        let slots = Arc::new(Semaphore::new(usize::try_from(config.workers.at_once).unwrap_or(1)));
        let yard = Yard {
            spawner: Arc::new(spawner),
            slots,
            limits,
            sandbox: config.sandbox,
            layers,
            waiting: Mutex::default(),
            kept: Kept::default(),
        };
        Ok(&self.0.get_or_init(|| yard).layers)
    }

    /// How workers are locked in; nothing while there are none.
    #[must_use]
    pub fn layers(&self) -> Option<(Sandbox, &Layers)> {
        self.0.get().map(|yard| (yard.sandbox, &yard.layers))
    }

    /// Starts a program of others behind the looser profile. It ends with the calling thread.
    ///
    /// # Errors
    /// This gateway starts nothing, or the program could not be started or locked in.
    pub fn stranger(&self, terms: Terms) -> Result<Stranger, WorkersError> {
        let yard = self.0.get().ok_or(WorkersError::Closed)?;
        let mode = mode(yard.sandbox);
        Ok(yard.spawner.stranger(Terms { mode, ..terms })?)
    }

    /// Waits for a place, starts a worker, and waits for its end. The host comes back with what it gathered.
    ///
    /// # Errors
    /// There was no worker, or it was not given its job.
    pub async fn run<H: Host + Send + 'static>(&self, order: Order, host: H) -> Result<(End, H), WorkersError> {
        self.watched(order, host, |spawner, task, host, cancel| spawner.run(task, host, cancel)).await
    }

    /// As [`Self::run`], by a program of others that is locked in before it begins.
    ///
    /// # Errors
    /// The program could not be started or locked in, or was not given its job.
    pub async fn run_program<H: Host + Send + 'static>(
        &self,
        order: Order,
        terms: Terms,
        host: H,
    ) -> Result<(End, H), WorkersError> {
        self.watched(order, host, |spawner, task, host, cancel| spawner.errand(task, terms, host, cancel)).await
    }

    async fn watched<H: Host + Send + 'static>(
        &self,
        order: Order,
        mut host: H,
        how: impl FnOnce(&Spawner, Task<'_>, &mut H, &Cancel) -> Result<End, NotStarted> + Send + 'static,
    ) -> Result<(End, H), WorkersError> {
        let yard = self.0.get().ok_or(WorkersError::Closed)?;
        let place = Arc::clone(&yard.slots).acquire_owned().await.map_err(|_| WorkersError::Closed)?;
        let spawner = Arc::clone(&yard.spawner);
        let (limits, mode) = (order.limits.unwrap_or(yard.limits), order.mode.unwrap_or_else(|| mode(yard.sandbox)));
        let cancel = Cancel::new()?;
        let leaving = Leaving::with(&cancel);
        // A worker dies with the thread that watches it, so it is started there.
        let watched = tokio::task::spawn_blocking(move || {
            let task = Task { job: order.job, limits, mode, scratch: order.scratch.as_deref() };
            let end = how(&spawner, task, &mut host, &cancel);
            drop(place);
            end.map(|end| (end, host))
        });
        let ended = watched.await.map_err(|error| WorkersError::Strange(error.to_string()));
        drop(leaving);
        Ok(ended??)
    }
}

impl Workers {
    /// Has a worker read something that needs no outside. One that is locked in already is there for it, if the others
    /// before it left one; each reads once and ends, and the next is made ready meanwhile.
    ///
    /// # Errors
    /// There was no worker, or it was not given its job.
    pub async fn read(&self, job: Job) -> Result<End, WorkersError> {
        let yard = self.0.get().ok_or(WorkersError::Closed)?;
        let place = Arc::clone(&yard.slots).acquire_owned().await.map_err(|_| WorkersError::Closed)?;
        let cancel = Cancel::new()?;
        let leaving = Leaving::with(&cancel);
        let (answer, ended) = oneshot::channel();
        yard.hand_over(Errand { job, cancel, place, answer })?;
        yard.make_ready();
        let ended = ended.await.map_err(|_| WorkersError::Strange("its thread ended".into()));
        drop(leaving);
        Ok(ended??)
    }

    /// Has something read by the reader of a conversation, which is there for the next item of it as well. Nothing if
    /// that one did not come back with it: then somebody else may try.
    ///
    /// # Errors
    /// There was no worker, or it took too long.
    pub(crate) async fn read_kept(
        &self,
        whose: &str,
        task: Value,
        bytes: Vec<u8>,
    ) -> Result<Option<Read>, WorkersError> {
        let yard = self.0.get().ok_or(WorkersError::Closed)?;
        let _place = Arc::clone(&yard.slots).acquire_owned().await.map_err(|_| WorkersError::Closed)?;
        match yard.kept.read(yard, whose, (task, bytes)).await? {
            Ended::Read(read) => Ok(Some(read)),
            Ended::Broke => Ok(None),
            Ended::TookTooLong => Err(WorkersError::Strange("it took too long".into())),
        }
    }
}

impl Yard {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<mpsc::SyncSender<Errand>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives something to read to a worker that waits, or else to a new one.
    fn hand_over(&self, mut errand: Errand) -> io::Result<()> {
        loop {
            // The lock is not held while the errand is on its way.
            let first = self.waiting().pop();
            let Some(way) = first else { break };
            match way.send(errand) {
                Ok(()) => return Ok(()),
                // That one has waited long enough and ended.
                Err(mpsc::SendError(back)) => errand = back,
            }
        }
        let sent = self.start()?.send(errand);
        sent.map_err(|_| io::Error::other("the thread of a worker ended early"))
    }

    /// Sees to it that some wait. Where none can be started, whoever comes next is told why.
    fn make_ready(&self) {
        let mut waiting = self.waiting();
        while waiting.len() < READY {
            match self.start() {
                Ok(way) => waiting.push(way),
                Err(_) => return,
            }
        }
    }

    /// A thread with a worker that gets ready. A worker ends with the thread that started it.
    fn start(&self) -> io::Result<mpsc::SyncSender<Errand>> {
        let (way, errands) = mpsc::sync_channel(1);
        let (spawner, mode) = (Arc::clone(&self.spawner), mode(self.sandbox));
        let wait = move || wait(&spawner, mode, &errands);
        std::thread::Builder::new().name("worker-ready".into()).spawn(wait)?;
        Ok(way)
    }
}

/// The life of such a thread: a worker locks itself in, waits for its errand, does it, and is over.
fn wait(spawner: &Spawner, mode: Mode, errands: &mpsc::Receiver<Errand>) {
    let limits = Limits { wall: SLOWEST, cpu: SLOWEST, ..Limits::default() };
    let ready = spawner.ready(limits, mode);
    let Ok(Errand { job, cancel, place, answer }) = errands.recv_timeout(IDLE) else { return };
    let end = match ready {
        Ok(ready) if ready.is_there() => ready.perform(job, &mut Alone, &cancel),
        // It did not get ready, or did not stay: whatever was wrong with that one, the next says for itself.
        Ok(_) | Err(_) => spawner.run(Task { job, limits, mode, scratch: None }, &mut Alone, &cancel),
    };
    drop(place);
    // Whoever asked may have gone.
    let _told = answer.send(end);
}

/// Whoever waited for a worker is gone: so is the worker.
struct Leaving(Option<Cancel>);

impl Leaving {
    fn with(cancel: &Cancel) -> Self {
        Self(Some(cancel.clone()))
    }

    /// The worker may go on.
    fn stay(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

fn mode(sandbox: Sandbox) -> Mode {
    match sandbox {
        Sandbox::Required => Mode::Required,
        Sandbox::Degraded => Mode::Degraded,
    }
}

fn limits(config: &Config) -> Limits {
    let settings = &config.workers;
    Limits { wall: settings.time, cpu: settings.processor, memory: settings.memory.as_bytes(), ..Limits::default() }
}

/// One worker with nothing to do: how well is it locked in?
///
/// # Errors
/// There is none, or it is not locked in as it must be.
pub fn probe(spawner: &Spawner, limits: Limits, mode: Mode) -> Result<Layers, WorkersError> {
    let job = Job { kind: "describe".into(), payload: Value::Null, attachments: Vec::new() };
    let task = Task { job, limits, mode, scratch: None };
    match spawner.run(task, &mut Alone, &Cancel::new()?)? {
        End::Clean(done) => Ok(done.layers),
        End::Crashed(crash) => Err(WorkersError::Strange(format!("{:?}", crash.cause))),
        End::CutOff { why, .. } => Err(WorkersError::Strange(format!("cut off: {why:?}"))),
    }
}
