//! The workers of this gateway: how many run at once, with which limits, and how well they are locked in.
//!
//! Takes an [`WorkerAssignment`] and a [`WorkerHost`] that answers for the gateway; gives how the worker ended. There are no workers
//! before [`GatewayWorkers::open`] was called. Promise: never more workers at work than configured, and few that wait to read;
//! a caller that goes away takes its worker with it; with `sandbox: required`, nothing runs that is not locked in.

mod kept_readers;
mod readers;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluice_core::refusal::Code;
use sluice_core::{Clock, Millis};
use sluice_protocol::{ContentCleanTask, WorkerDescribeTask};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub use sluice_protocol::{
    ExchangeReply, WorkerExchange, WorkerItem, WorkerJob, WorkerJobOutcome, WorkerProgress, WorkerReport,
};
pub use sluice_sandbox::parent::third_party::{ProgramExit, ProgramSignal, ProgramSignalSender, ThirdPartyProcess};
pub use sluice_sandbox::parent::{
    FinishedWorker, NamespacesMode, RefusingWorkerHost, Spawner, WorkerCancel, WorkerCrash, WorkerCutOffReason,
    WorkerEnd, WorkerHost, WorkerLimits, WorkerProgram, WorkerStartError, WorkerTask, WorkerUsage,
};
pub use sluice_sandbox::third_party::{PinnedFolder, ThirdPartyNetwork, ThirdPartyProfile, ThirdPartyTerms};
pub use sluice_sandbox::{JailLayer, JailLayerName, JailLayers, JailMode, landlock_version};

use self::kept_readers::{KeptReadResult, KeptReaders, ReaderOutput};
use self::readers::ReaderPool;
use sluice_config::{Config, Sandbox};

/// How long one read may take.
const SLOWEST: Millis = Millis::from_secs(5);

/// The order for one worker.
#[derive(Debug, Clone)]
pub struct WorkerAssignment {
    /// The job.
    pub job: WorkerJob,
    /// Its own folder, if it has one.
    pub scratch: Option<PathBuf>,
    /// Its limits, if they differ from the configuration.
    pub limits: Option<WorkerLimits>,
    /// Whether a missing layer refuses it, if this differs from the configuration.
    pub mode: Option<JailMode>,
}

/// Why there was no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerPoolError {
    /// This gateway starts no workers.
    #[error("this gateway starts no workers")]
    Closed,
    /// It was not started, or did not get its job.
    #[error(transparent)]
    NotStarted(#[from] WorkerStartError),
    /// The system gave no descriptor for it.
    #[error("a worker cannot be watched: {0}")]
    System(#[from] io::Error),
    /// The first worker did not answer correctly.
    #[error("the first worker did not answer as it must: {0}")]
    Strange(String),
}

impl WorkerPoolError {
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

    /// The code of the refusal that an agent gets. [`Self::code`] is for operators: it names the fault.
    #[must_use]
    pub const fn refusal_code(&self) -> Code {
        match self {
            Self::Closed | Self::NotStarted(_) | Self::System(_) | Self::Strange(_) => Code::GatewaySandbox,
        }
    }
}

/// How a third-party program is kept from hosts that were not declared for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkIsolation {
    /// A network namespace of its own, and the filters.
    Namespace,
    /// Landlock and seccomp in the machine's own network.
    FiltersOnly,
}

/// Why a third-party program may have no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkIsolationError {
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
pub struct GatewayWorkers(OnceLock<WorkerPool>);

#[derive(Debug)]
struct WorkerPool {
    spawner: Arc<Spawner>,
    slots: Arc<Semaphore>,
    limits: WorkerLimits,
    sandbox: Sandbox,
    /// The layers of the first worker.
    layers: JailLayers,
    /// Readers that read one item each.
    readers: Arc<ReaderPool>,
    /// Readers that are kept for one conversation each.
    kept: KeptReaders,
}

tokio::task_local! {
    /// The place that was reserved for the work of this task, until its worker takes it.
    static RESERVED: Mutex<Option<OwnedSemaphorePermit>>;
}

/// A worker's place, reserved before the worker starts.
#[derive(Debug)]
pub struct WorkerSlot(OwnedSemaphorePermit);

impl WorkerSlot {
    /// Runs some work whose first worker uses this place.
    pub async fn used_by<T>(self, work: impl Future<Output = T>) -> T {
        RESERVED.scope(Mutex::new(Some(self.0)), work).await
    }

    /// The place reserved for the work of this task, for work that continues in another task.
    pub fn take_reserved() -> Option<Self> {
        let place = RESERVED.try_with(|place| place.lock().take());
        place.ok().flatten().map(Self)
    }
}

impl WorkerPool {
    /// The place reserved for this work, or the next free one.
    async fn place(&self) -> Result<OwnedSemaphorePermit, WorkerPoolError> {
        match WorkerSlot::take_reserved() {
            Some(WorkerSlot(place)) => Ok(place),
            None => Arc::clone(&self.slots).acquire_owned().await.map_err(|_| WorkerPoolError::Closed),
        }
    }
}

impl GatewayWorkers {
    /// Reserves a place for a worker that is started later.
    ///
    /// # Errors
    /// When this gateway starts no workers.
    pub async fn reserve(&self) -> Result<WorkerSlot, WorkerPoolError> {
        let pool = self.0.get().ok_or(WorkerPoolError::Closed)?;
        let place = Arc::clone(&pool.slots).acquire_owned().await.map_err(|_| WorkerPoolError::Closed)?;
        Ok(WorkerSlot(place))
    }

    /// Starts the first worker to see how well this system locks workers in, and enables others. It blocks for some
    /// milliseconds.
    ///
    /// # Errors
    /// When workers cannot be started, or layers are missing and `sandbox` is `required`.
    pub fn open(
        &self,
        program: WorkerProgram,
        config: &Config,
        clock: Arc<dyn Clock>,
    ) -> Result<&JailLayers, WorkerPoolError> {
        let (spawner, limits) = (Spawner::new(program, clock)?, limits(config));
        let layers = probe(&spawner, limits, mode(config.sandbox))?;
        let slots = Arc::new(Semaphore::new(usize::try_from(config.workers.at_once).unwrap_or(1)));
        let spawner = Arc::new(spawner);
        let pool = WorkerPool {
            readers: Arc::new(ReaderPool::new(Arc::clone(&spawner), mode(config.sandbox))),
            spawner,
            slots,
            limits,
            sandbox: config.sandbox,
            layers,
            kept: KeptReaders::default(),
        };
        Ok(&self.0.get_or_init(|| pool).layers)
    }

    /// How workers are locked in; `None` while there are none.
    #[must_use]
    pub fn layers(&self) -> Option<(Sandbox, &JailLayers)> {
        self.0.get().map(|pool| (pool.sandbox, &pool.layers))
    }

    /// How a third-party program with hosts is kept from all other hosts: in a network namespace where the system
    /// allows one, else by filters alone if the configuration accepts that.
    ///
    /// # Errors
    /// When this gateway starts nothing, or there are no namespaces and `sandbox` is `required`.
    pub fn network_isolation(&self) -> Result<NetworkIsolation, NetworkIsolationError> {
        let pool = self.0.get().ok_or(NetworkIsolationError::Closed)?;
        match (pool.layers.has(JailLayerName::Namespaces), pool.sandbox) {
            (true, _) => Ok(NetworkIsolation::Namespace),
            (false, Sandbox::Degraded) => Ok(NetworkIsolation::FiltersOnly),
            (false, Sandbox::Required) => Err(NetworkIsolationError::NoNamespaces),
        }
    }

    /// Starts a third-party program behind the looser profile. It ends with the calling thread.
    ///
    /// # Errors
    /// When this gateway starts nothing, or the program could not be started or locked in.
    pub fn start_third_party(&self, terms: ThirdPartyTerms) -> Result<ThirdPartyProcess, WorkerPoolError> {
        let pool = self.0.get().ok_or(WorkerPoolError::Closed)?;
        let mode = mode(pool.sandbox);
        Ok(pool.spawner.start_third_party(ThirdPartyTerms { mode, ..terms })?)
    }

    /// Waits for a place, starts a worker, and waits for its end. Returns the host with everything it collected.
    ///
    /// # Errors
    /// When there was no worker, or it did not get its job.
    pub async fn run<H: WorkerHost + Send + 'static>(
        &self,
        order: WorkerAssignment,
        host: H,
    ) -> Result<(WorkerEnd, H), WorkerPoolError> {
        self.watched(order, host, |spawner, task, host, cancel| spawner.run(task, host, cancel)).await
    }

    /// Like [`Self::run`], with a third-party program that is locked in before it begins.
    ///
    /// # Errors
    /// When the program could not be started or locked in, or did not get its job.
    pub async fn run_program<H: WorkerHost + Send + 'static>(
        &self,
        order: WorkerAssignment,
        terms: ThirdPartyTerms,
        host: H,
    ) -> Result<(WorkerEnd, H), WorkerPoolError> {
        self.watched(order, host, |spawner, task, host, cancel| spawner.run_third_party_job(task, terms, host, cancel))
            .await
    }

    async fn watched<H: WorkerHost + Send + 'static>(
        &self,
        order: WorkerAssignment,
        mut host: H,
        how: impl FnOnce(&Spawner, WorkerTask<'_>, &mut H, &WorkerCancel) -> Result<WorkerEnd, WorkerStartError>
        + Send
        + 'static,
    ) -> Result<(WorkerEnd, H), WorkerPoolError> {
        let pool = self.0.get().ok_or(WorkerPoolError::Closed)?;
        let place = pool.place().await?;
        let spawner = Arc::clone(&pool.spawner);
        let (limits, mode) = (order.limits.unwrap_or(pool.limits), order.mode.unwrap_or_else(|| mode(pool.sandbox)));
        let cancel = WorkerCancel::new()?;
        let leaving = CancelWorkerOnDrop::with(&cancel);
        // A worker dies with the thread that watches it, so that thread starts it.
        let watched = tokio::task::spawn_blocking(move || {
            let task = WorkerTask { job: order.job, limits, mode, scratch: order.scratch.as_deref() };
            let end = how(&spawner, task, &mut host, &cancel);
            drop(place);
            end.map(|end| (end, host))
        });
        let ended = watched.await.map_err(|error| WorkerPoolError::Strange(error.to_string()));
        drop(leaving);
        Ok(ended??)
    }
}

impl GatewayWorkers {
    /// Has a worker read something that needs no requests to the outside. The worker has read nothing before and ends
    /// after it; meanwhile the next one is prepared.
    ///
    /// # Errors
    /// When there was no worker, or it did not get its job.
    pub async fn read(&self, job: WorkerJob) -> Result<WorkerEnd, WorkerPoolError> {
        let pool = self.0.get().ok_or(WorkerPoolError::Closed)?;
        let place = Arc::clone(&pool.slots).acquire_owned().await.map_err(|_| WorkerPoolError::Closed)?;
        let cancel = WorkerCancel::new()?;
        let leaving = CancelWorkerOnDrop::with(&cancel);
        let (answer, ended) = oneshot::channel();
        let readers = Arc::clone(&pool.readers);
        tokio::task::spawn_blocking(move || {
            let end = readers.perform(job, &cancel);
            drop(place);
            // The caller may have gone.
            let _told = answer.send(end);
            readers.make_ready();
        });
        let ended = ended.await.map_err(|_| WorkerPoolError::Strange("its thread ended".into()));
        drop(leaving);
        Ok(ended??)
    }

    /// Has something read by the reader of a conversation, which stays for the next item of that conversation. `None`
    /// if that reader failed: then another one may try.
    ///
    /// # Errors
    /// When there was no worker, or it took too long.
    pub async fn read_kept(
        &self,
        whose: &str,
        task: ContentCleanTask,
        bytes: Vec<u8>,
    ) -> Result<Option<ReaderOutput>, WorkerPoolError> {
        let pool = self.0.get().ok_or(WorkerPoolError::Closed)?;
        let _place = Arc::clone(&pool.slots).acquire_owned().await.map_err(|_| WorkerPoolError::Closed)?;
        match pool.kept.read(pool, whose, (task, bytes)).await? {
            KeptReadResult::Read(read) => Ok(Some(read)),
            KeptReadResult::Broke => Ok(None),
            KeptReadResult::TookTooLong => Err(WorkerPoolError::Strange("it took too long".into())),
        }
    }
}

/// Ends a worker whose caller is gone.
struct CancelWorkerOnDrop(Option<WorkerCancel>);

impl CancelWorkerOnDrop {
    fn with(cancel: &WorkerCancel) -> Self {
        Self(Some(cancel.clone()))
    }

    /// Lets the worker go on.
    fn stay(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelWorkerOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

fn mode(sandbox: Sandbox) -> JailMode {
    match sandbox {
        Sandbox::Required => JailMode::Required,
        Sandbox::Degraded => JailMode::Degraded,
    }
}

fn limits(config: &Config) -> WorkerLimits {
    let settings = &config.workers;
    WorkerLimits {
        wall: settings.time,
        cpu: settings.processor,
        memory: settings.memory.as_bytes(),
        ..WorkerLimits::default()
    }
}

/// Starts one worker with nothing to do, to see how well it is locked in.
///
/// # Errors
/// When there is none, or it is not locked in as required.
pub fn probe(spawner: &Spawner, limits: WorkerLimits, mode: JailMode) -> Result<JailLayers, WorkerPoolError> {
    let job = WorkerJob::of(&WorkerDescribeTask, Vec::new());
    let task = WorkerTask { job, limits, mode, scratch: None };
    match spawner.run(task, &mut RefusingWorkerHost, &WorkerCancel::new()?)? {
        WorkerEnd::Clean(done) => Ok(done.layers),
        WorkerEnd::Crashed(crash) => Err(WorkerPoolError::Strange(format!("{:?}", crash.cause))),
        WorkerEnd::CutOff { why, .. } => Err(WorkerPoolError::Strange(format!("cut off: {why:?}"))),
    }
}
