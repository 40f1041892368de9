//! Readers: copies of one mould, each of which reads one item and ends.
//!
//! Takes something to read; gives how its reader ended. A mould is started behind the first item, and a few copies of it wait for
//! the next. Promise: no reader has met another item; where there is no mould, or it broke, a worker started for
//! the item reads it; a gateway that reads nothing for a while keeps neither mould nor copies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sluice_core::Span;
use sluice_core::crash::Cause;
use sluice_sandbox::parent::mould::{Copies, Copy};

use super::{Alone, Cancel, End, Host, Job, Limits, Mode, NotStarted, SLOWEST, Spawner, Task};

/// Copies that wait, locked in, for something to read.
const READY: usize = 4;
/// Copies of one mould. After them there is another, so that what copies have in common does not stay for ever.
const MOST: u64 = 4_096;
/// A mould that made no copy for so long ends.
const IDLE: Duration = Duration::from_secs(600);
/// Moulds that may fail one after the other before nobody tries again.
const TRIES: u32 = 3;
/// How a copy ended whose mould is gone.
const UNKNOWN: Cause = Cause::Exited { code: -1 };
/// Processor time of a mould, and the most a copy of it may have.
const LONGEST: Span = Span::from_secs(60);

/// The readers of a gateway.
#[derive(Debug)]
pub(super) struct Readers {
    spawner: Arc<Spawner>,
    mode: Mode,
    moulds: Mutex<Moulds>,
    /// Copies that wait, for one item each.
    waiting: Mutex<Vec<Waiting>>,
    /// Whether something was read since the mould's thread last looked.
    used: AtomicBool,
}

/// Which mould there is.
#[derive(Debug, Default)]
struct Moulds {
    now: Option<Here>,
    starting: bool,
    failed: u32,
}

/// A mould that can be asked. Its thread ends it once nobody has this any more.
#[derive(Debug, Clone)]
struct Here {
    copies: Copies,
    _stays: mpsc::Sender<()>,
}

/// A copy that waits, and its mould, which must not end before it.
#[derive(Debug)]
struct Waiting {
    copy: Copy,
    _mould: Here,
}

impl Here {
    fn copy(self, limits: Limits) -> Result<Waiting, NotStarted> {
        Ok(Waiting { copy: self.copies.copy(limits)?, _mould: self })
    }

    fn lasts(&self) -> bool {
        self.copies.is_there() && self.copies.made() < MOST
    }
}

impl Readers {
    pub(super) fn new(spawner: Arc<Spawner>, mode: Mode) -> Self {
        Self { spawner, mode, moulds: Mutex::default(), waiting: Mutex::default(), used: AtomicBool::new(false) }
    }

    /// Has a reader that has read nothing before do one job that needs no outside. It blocks until the end.
    pub(super) fn perform(&self, job: Job, cancel: &Cancel) -> Result<End, NotStarted> {
        self.used.store(true, Ordering::Relaxed);
        let limits = Limits { wall: SLOWEST, cpu: SLOWEST, ..Limits::default() };
        loop {
            // The lock is not held while it works.
            let first = self.waiting().pop();
            let end = match first {
                Some(Waiting { copy, _mould }) if copy.is_there() => copy.perform(job.clone(), &mut Alone, cancel)?,
                // It did not stay: another may.
                Some(_) => continue,
                None => self.perform_within(limits, job.clone(), &mut Alone, cancel)?,
            };
            // Nobody can say how it ended: its mould went, which no item can bring about. One started for the item stands alone.
            return match &end {
                End::Crashed(crash) if crash.cause == UNKNOWN => {
                    self.spawner.run(Task { job, limits, mode: self.mode, scratch: None }, &mut Alone, cancel)
                }
                End::Clean(_) | End::Crashed(_) | End::CutOff { .. } => Ok(end),
            };
        }
    }

    /// The same with limits of its own, by a copy that is made for it.
    pub(super) fn perform_within(
        &self,
        limits: Limits,
        job: Job,
        host: &mut dyn Host,
        cancel: &Cancel,
    ) -> Result<End, NotStarted> {
        let mould = self.moulds().now.clone();
        match mould.map(|mould| mould.copy(limits)) {
            Some(Ok(Waiting { copy, _mould })) => copy.perform(job, host, cancel),
            // Whatever is wrong with the mould, a worker of its own says for itself.
            Some(Err(_)) | None => self.spawner.run(Task { job, limits, mode: self.mode, scratch: None }, host, cancel),
        }
    }

    /// Sees to it that there is a mould and that copies wait. For a moment at which nobody waits for an answer.
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
        let limits = Limits { wall: SLOWEST, cpu: SLOWEST, ..Limits::default() };
        while let Some(here) = mould.as_ref().filter(|_| self.waiting().len() < READY) {
            // Where none can be made, whoever comes next is told why by a worker of its own.
            let Ok(copy) = here.clone().copy(limits) else { return };
            self.waiting().push(copy);
        }
    }

    /// A thread with a mould, because that ends with the thread that started it. It does not keep the readers.
    fn start(self: &Arc<Self>, moulds: &mut Moulds) {
        let (readers, spawner, mode) = (Arc::downgrade(self), Arc::clone(&self.spawner), self.mode);
        let keep = move || keep(&readers, &spawner, mode);
        if std::thread::Builder::new().name("worker-mould".into()).spawn(keep).is_err() {
            moulds.starting = false;
            moulds.failed += 1;
        }
    }

    /// There is a mould, or it could not be made.
    fn started(&self, mould: Option<Here>) {
        let mut moulds = self.moulds();
        moulds.starting = false;
        moulds.failed = if mould.is_some() { 0 } else { moulds.failed + 1 };
        moulds.now = mould;
    }

    /// Lets the mould and its copies go if nothing was read for a while.
    fn end_if_idle(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            self.moulds().now = None;
            self.waiting().clear();
        }
    }

    fn moulds(&self) -> MutexGuard<'_, Moulds> {
        self.moulds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The life of a mould's thread: until nobody has the way to it any more.
fn keep(readers: &Weak<Readers>, spawner: &Spawner, mode: Mode) {
    let most = Limits { wall: SLOWEST, cpu: LONGEST, ..Limits::default() };
    let mould = spawner.mould(most, mode);
    let (stays, over) = mpsc::channel();
    let here = mould.as_ref().ok().map(|mould| Here { copies: mould.copies(), _stays: stays });
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
