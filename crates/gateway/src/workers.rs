//! Workers of this gateway: how many at once, with which limits, locked in how well.
//!
//! Takes an [`Order`] and a [`Host`] that answers for the gateway; gives how the worker ended. Until
//! [`Workers::open`] was called there are none. Promise: never more workers at work than configured, and few that
//! wait to read; a caller that goes away takes its worker with it; with `sandbox: required` nothing runs that is not locked in.

mod kept;
mod readers;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;
use sluice_core::{Clock, Span};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub use sluice_sandbox::parent::stranger::{ProgramExit, ProgramSignal, ProgramSignals, Stranger};
pub use sluice_sandbox::parent::{
    Alone, Cancel, Crash, CutOff, Done, End, Host, Limits, Namespaces, NotStarted, Program, Spawner, Task, Usage,
};
pub use sluice_sandbox::protocol::{Exchange, Item, Job, Outcome, Progress, Reply, Report};
pub use sluice_sandbox::stranger::{Network, PinnedFolder, Profile, Terms};
pub use sluice_sandbox::{Layer, LayerName, Layers, Mode, landlock_version};

use self::kept::{Ended, Kept, Read};
use self::readers::Readers;
use crate::config::{Config, Sandbox};

/// How long one reading may take.
const SLOWEST: Span = Span::from_secs(5);

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

/// What keeps a program of others from hosts that were not declared for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkIsolation {
    /// A network namespace of its own, and the filters.
    Namespace,
    /// Landlock and seccomp in the machine's own network.
    FiltersOnly,
}

/// Why a program of others may have no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkRefused {
    /// This gateway starts no workers.
    #[error("this gateway starts no workers")]
    Closed,
    /// The system does not allow namespaces.
    #[error(
        "`network` needs a network namespace, and this system does not allow one: allow user namespaces (see \
         `sluice doctor`), or set `sandbox: degraded` to keep the program to its hosts by filters alone"
    )]
    NoNamespaces,
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
    /// Read one item each.
    readers: Arc<Readers>,
    /// Readers of conversations that may have one of their own.
    kept: Kept,
}

tokio::task_local! {
    /// The place that was taken for the work of this task, until its worker takes it.
    static RESERVED: Mutex<Option<OwnedSemaphorePermit>>;
}

/// A worker's place, taken before there is a worker.
#[derive(Debug)]
pub struct WorkerPlace(OwnedSemaphorePermit);

impl WorkerPlace {
    /// Does some work whose first worker has this place.
    pub(crate) async fn used_by<T>(self, work: impl Future<Output = T>) -> T {
        RESERVED.scope(Mutex::new(Some(self.0)), work).await
    }

    /// The place that was taken for the work of this task, for work that goes on in another task.
    pub(crate) fn handed_on() -> Option<Self> {
        let place = RESERVED.try_with(|place| place.lock().unwrap_or_else(PoisonError::into_inner).take());
        place.ok().flatten().map(Self)
    }
}

impl Yard {
    /// The place that was taken for this work, or the next one that is free.
    async fn place(&self) -> Result<OwnedSemaphorePermit, WorkersError> {
        match WorkerPlace::handed_on() {
            Some(WorkerPlace(place)) => Ok(place),
            None => Arc::clone(&self.slots).acquire_owned().await.map_err(|_| WorkersError::Closed),
        }
    }
}

impl Workers {
    /// Waits for a place for a worker that is started later.
    ///
    /// # Errors
    /// This gateway starts no workers.
    pub async fn reserve(&self) -> Result<WorkerPlace, WorkersError> {
        let yard = self.0.get().ok_or(WorkersError::Closed)?;
        let place = Arc::clone(&yard.slots).acquire_owned().await.map_err(|_| WorkersError::Closed)?;
        Ok(WorkerPlace(place))
    }

    /// Begins to start workers, the first one at once, to see how well this system locks them in. It blocks for
    /// some milliseconds.
    ///
    /// # Errors
    /// Workers cannot be started, or layers are missing and `sandbox` is `required`.
    pub fn open(&self, program: Program, config: &Config, clock: Arc<dyn Clock>) -> Result<&Layers, WorkersError> {
        let (spawner, limits) = (Spawner::new(program, clock)?, limits(config));
        let layers = probe(&spawner, limits, mode(config.sandbox))?;
        let slots = Arc::new(Semaphore::new(usize::try_from(config.workers.at_once).unwrap_or(1)));
        let spawner = Arc::new(spawner);
        let yard = Yard {
            readers: Arc::new(Readers::new(Arc::clone(&spawner), mode(config.sandbox))),
            spawner,
            slots,
            limits,
            sandbox: config.sandbox,
            layers,
            kept: Kept::default(),
        };
        Ok(&self.0.get_or_init(|| yard).layers)
    }

    /// How workers are locked in; nothing while there are none.
    #[must_use]
    pub fn layers(&self) -> Option<(Sandbox, &Layers)> {
        self.0.get().map(|yard| (yard.sandbox, &yard.layers))
    }

    /// How a program of others that may reach hosts is kept from all others: in a network namespace where the system
    /// allows one, else by filters alone if the configuration accepts that.
    ///
    /// # Errors
    /// This gateway starts nothing, or there are no namespaces and `sandbox` is `required`.
    pub fn network_isolation(&self) -> Result<NetworkIsolation, NetworkRefused> {
        let yard = self.0.get().ok_or(NetworkRefused::Closed)?;
        match (yard.layers.has(LayerName::Namespaces), yard.sandbox) {
            (true, _) => Ok(NetworkIsolation::Namespace),
            (false, Sandbox::Degraded) => Ok(NetworkIsolation::FiltersOnly),
            (false, Sandbox::Required) => Err(NetworkRefused::NoNamespaces),
        }
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
        let place = yard.place().await?;
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
    /// Has a worker read something that needs no outside. It has met nothing before and ends with it; the next is made ready
    /// meanwhile.
    ///
    /// # Errors
    /// There was no worker, or it was not given its job.
    pub async fn read(&self, job: Job) -> Result<End, WorkersError> {
        let yard = self.0.get().ok_or(WorkersError::Closed)?;
        let place = Arc::clone(&yard.slots).acquire_owned().await.map_err(|_| WorkersError::Closed)?;
        let cancel = Cancel::new()?;
        let leaving = Leaving::with(&cancel);
        let (answer, ended) = oneshot::channel();
        let readers = Arc::clone(&yard.readers);
        tokio::task::spawn_blocking(move || {
            let end = readers.perform(job, &cancel);
            drop(place);
            // Whoever asked may have gone.
            let _told = answer.send(end);
            readers.make_ready();
        });
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
