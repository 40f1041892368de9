//! Readers: forks of one zygote, each of which reads one item and ends.
//!
//! Takes something to read; gives how its reader ended. A zygote is started after the first item, and a few forks of it
//! wait for the next ones. Promise: no reader has met another item; where there is no zygote, or it failed, a worker
//! started for the item reads it; a gateway that reads nothing for a while keeps neither zygote nor forks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::Millis;
use sluice_core::crash::CrashCause;
use sluice_sandbox::parent::zygote::{ZygoteChild, ZygoteHandle};

use super::{
    JailMode, RefusingWorkerHost, SLOWEST, Spawner, WorkerCancel, WorkerEnd, WorkerHost, WorkerJob, WorkerLimits,
    WorkerStartError, WorkerTask,
};

/// Forks that wait, locked in, for something to read.
const READY: usize = 4;
/// Most forks of one zygote. Then a new zygote starts, so that the state that forks share does not live forever.
const MOST: u64 = 4_096;
/// A zygote that made no fork for this long ends.
const IDLE: Duration = Duration::from_secs(600);
/// How many zygotes may fail one after the other before the gateway stops trying.
const TRIES: u32 = 3;
/// The end of a fork whose zygote is gone.
const UNKNOWN: CrashCause = CrashCause::Exited { code: -1 };
/// Processor time of a zygote, and the most that one fork may have.
const LONGEST: Millis = Millis::from_secs(60);

/// The readers of a gateway.
#[derive(Debug)]
pub(super) struct ReaderPool {
    spawner: Arc<Spawner>,
    mode: JailMode,
    moulds: Mutex<ReaderZygoteState>,
    /// Forks that wait, for one item each.
    waiting: Mutex<Vec<WaitingReader>>,
    /// Whether something was read since the zygote's thread last checked.
    used: AtomicBool,
}

/// The current zygote.
#[derive(Debug, Default)]
struct ReaderZygoteState {
    now: Option<RunningReaderZygote>,
    starting: bool,
    failed: u32,
}

/// The handle of a zygote. Its thread ends it once nothing holds this handle.
#[derive(Debug, Clone)]
struct RunningReaderZygote {
    copies: ZygoteHandle,
    _stays: mpsc::Sender<()>,
}

/// A fork that waits, and its zygote, which must not end before it.
#[derive(Debug)]
struct WaitingReader {
    copy: ZygoteChild,
    _mould: RunningReaderZygote,
}

impl RunningReaderZygote {
    fn copy(self, limits: WorkerLimits) -> Result<WaitingReader, WorkerStartError> {
        Ok(WaitingReader { copy: self.copies.start_child(limits)?, _mould: self })
    }

    fn lasts(&self) -> bool {
        self.copies.is_there() && self.copies.children_started() < MOST
    }
}

impl ReaderPool {
    pub(super) fn new(spawner: Arc<Spawner>, mode: JailMode) -> Self {
        Self { spawner, mode, moulds: Mutex::default(), waiting: Mutex::default(), used: AtomicBool::new(false) }
    }

    /// Runs one job that needs no outside in a reader that has read nothing before. It blocks until the end.
    pub(super) fn perform(&self, job: WorkerJob, cancel: &WorkerCancel) -> Result<WorkerEnd, WorkerStartError> {
        self.used.store(true, Ordering::Relaxed);
        let limits = WorkerLimits { wall: SLOWEST, cpu: SLOWEST, ..WorkerLimits::default() };
        loop {
            // The lock is not held while it works.
            let first = self.waiting().pop();
            let end = match first {
                Some(WaitingReader { copy, _mould }) if copy.is_there() => {
                    copy.perform(job.clone(), &mut RefusingWorkerHost, cancel)?
                }
                // It did not stay alive: another one may.
                Some(_) => continue,
                None => self.perform_within(limits, job.clone(), &mut RefusingWorkerHost, cancel)?,
            };
            // It is not known how it ended: its zygote died, which no item can cause. A worker that was started for the
            // item has no zygote.
            return match &end {
                WorkerEnd::Crashed(crash) if crash.cause == UNKNOWN => self.spawner.run(
                    WorkerTask { job, limits, mode: self.mode, scratch: None },
                    &mut RefusingWorkerHost,
                    cancel,
                ),
                WorkerEnd::Clean(_) | WorkerEnd::Crashed(_) | WorkerEnd::CutOff { .. } => Ok(end),
            };
        }
    }

    /// The same with its own limits, in a fork that is made for it.
    pub(super) fn perform_within(
        &self,
        limits: WorkerLimits,
        job: WorkerJob,
        host: &mut dyn WorkerHost,
        cancel: &WorkerCancel,
    ) -> Result<WorkerEnd, WorkerStartError> {
        let mould = self.moulds().now.clone();
        match mould.map(|mould| mould.copy(limits)) {
            Some(Ok(WaitingReader { copy, _mould })) => copy.perform(job, host, cancel),
            // If the zygote fails, a worker of its own does the job and reports its own errors.
            Some(Err(_)) | None => {
                self.spawner.run(WorkerTask { job, limits, mode: self.mode, scratch: None }, host, cancel)
            }
        }
    }

    /// Makes sure that there is a zygote and that forks wait. For a moment at which nobody waits for an answer.
    pub(super) fn make_ready(self: &Arc<Self>) {
        let mould = {
            let mut moulds = self.moulds();
            if moulds.now.as_ref().is_some_and(|here| !here.lasts()) {
                moulds.now = None;
                self.waiting().clear();
            }
            if moulds.now.is_none() && !moulds.starting && moulds.failed < TRIES {
                moulds.starting = true;
                self.start(&mut moulds);
            }
            moulds.now.clone()
        };
        let limits = WorkerLimits { wall: SLOWEST, cpu: SLOWEST, ..WorkerLimits::default() };
        while let Some(here) = mould.as_ref().filter(|_| self.waiting().len() < READY) {
            // If none can be made, the next caller gets the reason from a worker of its own.
            let Ok(copy) = here.clone().copy(limits) else { return };
            self.waiting().push(copy);
        }
    }

    /// Starts a thread with a zygote, because the zygote ends with the thread that started it. It does not keep the
    /// readers alive.
    fn start(self: &Arc<Self>, moulds: &mut ReaderZygoteState) {
        let (readers, spawner, mode) = (Arc::downgrade(self), Arc::clone(&self.spawner), self.mode);
        let keep = move || keep(&readers, &spawner, mode);
        if std::thread::Builder::new().name("worker-mould".into()).spawn(keep).is_err() {
            moulds.starting = false;
            moulds.failed += 1;
        }
    }

    /// Records that there is a zygote, or that it could not be made.
    fn started(&self, mould: Option<RunningReaderZygote>) {
        let mut moulds = self.moulds();
        moulds.starting = false;
        moulds.failed = if mould.is_some() { 0 } else { moulds.failed + 1 };
        moulds.now = mould;
    }

    /// Ends the zygote and its forks if nothing was read for a while.
    fn end_if_idle(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            self.moulds().now = None;
            self.waiting().clear();
        }
    }

    fn moulds(&self) -> MutexGuard<'_, ReaderZygoteState> {
        self.moulds.lock()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingReader>> {
        self.waiting.lock()
    }
}

/// The thread of a zygote: it runs until nothing holds the handle any more.
fn keep(readers: &Weak<ReaderPool>, spawner: &Spawner, mode: JailMode) {
    let most = WorkerLimits { wall: SLOWEST, cpu: LONGEST, ..WorkerLimits::default() };
    let mould = spawner.start_zygote(most, mode);
    let (stays, over) = mpsc::channel();
    let here = mould.as_ref().ok().map(|mould| RunningReaderZygote { copies: mould.handle(), _stays: stays });
    match readers.upgrade() {
        Some(readers) => readers.started(here),
        None => return,
    }
    while mould.is_ok() && over.recv_timeout(IDLE) == Err(RecvTimeoutError::Timeout) {
        if let Some(readers) = readers.upgrade() {
            readers.end_if_idle();
        }
    }
}
