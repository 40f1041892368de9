//! Watches a worker: one loop that receives, answers, counts and ends.
//!
//! Takes a worker that has started; gives its end. Promise: every frame is counted and checked before anything acts on
//! it, the job is sent only after the worker has reported its locks, and nothing that the worker does or fails to do
//! keeps the loop past the wall limit, except the host's own answers.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use sluice_core::crash::CrashCause;
use sluice_core::{Clock, Millis};

use super::end::{ExitedWorker, cause};
use super::process::WorkerProcess;
use super::start::LaunchedProcess;
use super::{
    FinishedWorker, WorkerCancel, WorkerCrash, WorkerCutOffReason, WorkerEnd, WorkerHost, WorkerLimits,
    WorkerStartError, WorkerTask, WorkerUsage,
};
use sluice_protocol::{
    CrashLocation, EXCHANGE_TOO_LARGE, ExchangeReply, MessageToGateway, MessageToWorker, NextItemReply,
    WorkerFrameDecoder, WorkerFrameError, WorkerReport, WorkerTerms,
};
use sluice_protocol::{JailLayers, JailMode};

/// How long a worker may stay after its report, or after it has closed its end.
const GRACE: Millis = Millis::from_secs(1);

/// The surroundings of a worker.
pub(super) struct WorkerWatchContext<'a> {
    pub(super) host: &'a mut dyn WorkerHost,
    pub(super) cancel: &'a WorkerCancel,
    pub(super) clock: &'a dyn Clock,
    pub(super) started: Millis,
}

/// Why the loop ended.
enum WorkerWatchStop {
    /// The process ended.
    Ended,
    /// It did something forbidden.
    Fault(CrashCause),
    /// We stop it.
    CutOff(WorkerCutOffReason),
    /// It is not locked in well enough.
    NotLockedIn(JailLayers),
}

impl From<WorkerFrameError> for WorkerWatchStop {
    fn from(_: WorkerFrameError) -> Self {
        Self::Fault(CrashCause::MalformedFrame)
    }
}

struct WorkerWatch<'a> {
    around: WorkerWatchContext<'a>,
    socket: OwnedFd,
    limits: WorkerLimits,
    mode: JailMode,
    decoder: WorkerFrameDecoder,
    /// The bytes that still have to be written, and how many of them were written.
    out: Vec<u8>,
    written: usize,
    deadline: Millis,
    /// The encoded job, until the worker is locked in.
    job: Option<Vec<u8>>,
    layers: Option<JailLayers>,
    report: Option<WorkerReport>,
    last_words: Option<CrashLocation>,
    closed: bool,
    usage: WorkerUsage,
}

/// Watches a worker until it has ended and is reaped. `job` is the encoded job of the task.
pub(super) fn watch(
    born: LaunchedProcess,
    job: Vec<u8>,
    task: &WorkerTask<'_>,
    around: WorkerWatchContext<'_>,
) -> Result<WorkerEnd, WorkerStartError> {
    let (life, mut watch) = begin(born, task, around, LaunchRole::Worker)?;
    watch.job = Some(job);
    let over = watch.stay(&life);
    watch.bury(life, over)
}

/// The kind of process that was started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchRole {
    /// A worker, which is told how to lock itself in.
    Worker,
    /// A zygote: a worker that is forked for jobs.
    Mould,
    /// A fork, which was locked in before the fork.
    Copy,
}

fn begin<'a>(
    born: LaunchedProcess,
    task: &WorkerTask<'_>,
    around: WorkerWatchContext<'a>,
    becomes: LaunchRole,
) -> Result<(WorkerProcess, WorkerWatch<'a>), WorkerStartError> {
    let WorkerTask { limits, mode, scratch, .. } = *task;
    let LaunchedProcess { life, socket, namespaces, .. } = born;
    let terms = WorkerTerms {
        mode,
        memory: limits.memory,
        cpu_seconds: limits.cpu.as_millis().div_ceil(1000).max(1),
        scratch_bytes: scratch.map(|_| limits.scratch_bytes),
        namespaces,
        mould: becomes == LaunchRole::Mould,
    };
    let out = match becomes {
        LaunchRole::Worker | LaunchRole::Mould => MessageToWorker::Terms(terms).encode()?,
        LaunchRole::Copy => Vec::new(),
    };
    let deadline = around.started + limits.wall;
    let watch = WorkerWatch {
        around,
        socket,
        limits,
        mode,
        decoder: WorkerFrameDecoder::default(),
        out,
        written: 0,
        deadline,
        job: None,
        layers: None,
        report: None,
        last_words: None,
        closed: false,
        usage: WorkerUsage::default(),
    };
    Ok((life, watch))
}

/// A worker that is locked in and has no job yet.
pub(super) struct WaitingWorker {
    life: WorkerProcess,
    socket: OwnedFd,
    limits: WorkerLimits,
    mode: JailMode,
    decoder: WorkerFrameDecoder,
    layers: Option<JailLayers>,
    usage: WorkerUsage,
}

/// Watches a worker until it is locked in. The task has no job.
pub(super) fn lock_in(
    born: LaunchedProcess,
    task: &WorkerTask<'_>,
    around: WorkerWatchContext<'_>,
    becomes: LaunchRole,
) -> Result<WaitingWorker, WorkerStartError> {
    let (life, mut watch) = begin(born, task, around, becomes)?;
    while watch.layers.is_none() {
        if let Err(over) = watch.turn(&life) {
            let ended = watch.bury(life, over)?;
            return Err(WorkerStartError::NoWorker(format!("{ended:?}")));
        }
    }
    // A process without a job may send nothing except its locks.
    if watch.report.is_some() || watch.closed || watch.usage.frames > 1 {
        return Err(WorkerStartError::NoWorker("it spoke before it was asked".to_owned()));
    }
    let WorkerWatch { socket, limits, mode, decoder, layers, usage, .. } = watch;
    Ok(WaitingWorker { life, socket, limits, mode, decoder, layers, usage })
}

impl WaitingWorker {
    /// A worker that another process has locked in: it does not report that itself, and gets its job at once.
    pub(super) fn locked_in(life: WorkerProcess, socket: OwnedFd, task: &WorkerTask<'_>, layers: JailLayers) -> Self {
        let WorkerTask { limits, mode, .. } = *task;
        Self {
            life,
            socket,
            limits,
            mode,
            decoder: WorkerFrameDecoder::default(),
            layers: Some(layers),
            usage: WorkerUsage::default(),
        }
    }

    /// The process and its socket, for a caller that gives it no job.
    pub(super) fn apart(self) -> (WorkerProcess, OwnedFd) {
        (self.life, self.socket)
    }

    /// Whether it still waits: it has neither ended nor sent anything.
    pub(super) fn is_there(&self) -> bool {
        let mut fds = [
            PollFd::from_borrowed_fd(self.life.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
        ];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }

    /// Gives it its job, and watches it until it has ended and is reaped. Its time begins now.
    pub(super) fn perform(self, job: Vec<u8>, around: WorkerWatchContext<'_>) -> Result<WorkerEnd, WorkerStartError> {
        let Self { life, socket, limits, mode, decoder, layers, usage } = self;
        let deadline = around.started + limits.wall;
        let mut watch = WorkerWatch {
            around,
            socket,
            limits,
            mode,
            decoder,
            out: Vec::new(),
            written: 0,
            deadline,
            job: None,
            layers,
            report: None,
            last_words: None,
            closed: false,
            usage,
        };
        let over = match watch.say(job) {
            Ok(()) => watch.stay(&life),
            Err(over) => over,
        };
        watch.bury(life, over)
    }
}

impl WorkerWatch<'_> {
    fn stay(&mut self, life: &WorkerProcess) -> WorkerWatchStop {
        loop {
            match self.turn(life) {
                Ok(()) => {}
                Err(over) => return over,
            }
        }
    }

    /// Waits for an event, and handles it.
    fn turn(&mut self, life: &WorkerProcess) -> Result<(), WorkerWatchStop> {
        let left = self.left();
        if left == Millis::ZERO {
            return Err(self.out_of_time());
        }
        let mut wanted = PollFlags::empty();
        if !self.closed {
            wanted |= PollFlags::IN;
        }
        if self.written < self.out.len() {
            wanted |= PollFlags::OUT;
        }
        // A socket that is closed at the other end is always reported; then there is nothing to ask for.
        let socket = if self.closed { life.as_fd() } else { self.socket.as_fd() };
        let mut fds = [
            PollFd::from_borrowed_fd(self.around.cancel.0.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(life.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(socket, if self.closed { PollFlags::IN } else { wanted }),
        ];
        let wait = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(left.as_millis() % 1000).unwrap_or(0) * 1_000_000,
        };
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            // The kernel has no memory for us; the worker has to end.
            Err(_) => return Err(WorkerWatchStop::CutOff(WorkerCutOffReason::Cancelled)),
        }
        let [cancelled, ended, ready] = fds.map(|fd| fd.revents());
        if !cancelled.is_empty() {
            return Err(WorkerWatchStop::CutOff(WorkerCutOffReason::Cancelled));
        }
        if !ready.is_empty() && !self.closed {
            if ready.contains(PollFlags::OUT) {
                self.write();
            }
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.read()?;
            }
        }
        if !ended.is_empty() {
            // What it sent before it ended is still in the socket.
            while !self.closed && self.read()? {}
            return Err(WorkerWatchStop::Ended);
        }
        Ok(())
    }

    fn left(&self) -> Millis {
        let now = self.around.clock.since_boot().as_millis();
        Millis::from_millis(self.deadline.as_millis().saturating_sub(now))
    }

    /// The wall limit, or the grace after a report or a closed pipe.
    fn out_of_time(&self) -> WorkerWatchStop {
        if self.report.is_some() || self.closed {
            // It reported the end and stays, or it closed its end and stays.
            return WorkerWatchStop::Fault(CrashCause::Forbidden);
        }
        WorkerWatchStop::CutOff(WorkerCutOffReason::Time)
    }

    fn shorten(&mut self) {
        let soon = self.around.clock.since_boot() + GRACE;
        self.deadline = self.deadline.min(soon);
    }

    fn write(&mut self) {
        let rest = self.out.get(self.written..).unwrap_or_default();
        match send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => self.written += count,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // It does not read any more. How it ends shows whether that is a fault.
            Err(_) => self.written = self.out.len(),
        }
        if self.written == self.out.len() {
            self.out = Vec::new();
            self.written = 0;
        }
    }

    /// Reads once. False when there is nothing to read at the moment.
    fn read(&mut self) -> Result<bool, WorkerWatchStop> {
        let mut piece = [0; 64 << 10];
        let count = match rustix::io::read(&self.socket, piece.as_mut_slice()) {
            Ok(0) => 0,
            Ok(count) => count,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => return Ok(true),
            // It left some of our bytes unread.
            Err(_) => 0,
        };
        if count == 0 {
            self.closed = true;
            self.shorten();
            return Ok(false);
        }
        self.usage.bytes += count as u64;
        if self.usage.bytes > self.limits.bytes {
            return Err(WorkerWatchStop::Fault(CrashCause::Exhausted));
        }
        self.decoder.feed(piece.get(..count).unwrap_or_default());
        while let Some(frame) = self.decoder.next_frame()? {
            self.usage.frames += 1;
            if self.usage.frames > self.limits.frames {
                return Err(WorkerWatchStop::Fault(CrashCause::Exhausted));
            }
            self.hear(MessageToGateway::decode(frame)?)?;
        }
        Ok(true)
    }

    fn hear(&mut self, message: MessageToGateway) -> Result<(), WorkerWatchStop> {
        // The locks come first and only once; after the report, nothing may come.
        if self.report.is_some() || self.layers.is_some() == matches!(message, MessageToGateway::Locked(_)) {
            return Err(WorkerFrameError::OutOfTurn.into());
        }
        match message {
            MessageToGateway::Locked(locked) => {
                if !locked.layers.suffice(self.mode) {
                    return Err(WorkerWatchStop::NotLockedIn(locked.layers));
                }
                self.layers = Some(locked.layers);
                if let Some(job) = self.job.take() {
                    self.say(job)?;
                }
            }
            MessageToGateway::Exchange(exchange) => {
                self.count_exchange()?;
                let left = self.left();
                let reply = self.around.host.exchange(exchange, left).map_err(WorkerWatchStop::Fault)?;
                // An answer that does not fit into a frame is refused by us, and is not the worker's fault.
                let bytes =
                    MessageToWorker::Reply(reply).encode().or_else(|_| MessageToWorker::Reply(too_large()).encode())?;
                self.say(bytes)?;
            }
            MessageToGateway::NextItem => {
                self.count_exchange()?;
                let left = self.left();
                let reply = self.around.host.next_item(left).map_err(WorkerWatchStop::Fault)?;
                // For an item that does not fit into a frame there is no answer: another reader may try.
                let over = || MessageToWorker::NextItem(NextItemReply::Over).encode();
                self.say(MessageToWorker::NextItem(reply).encode().or_else(|_| over())?)?;
            }
            MessageToGateway::Item(item) => self.around.host.item(item).map_err(WorkerWatchStop::Fault)?,
            MessageToGateway::Progress(progress) => self.around.host.progress(progress),
            MessageToGateway::LastWords(words) => self.last_words = Some(words),
            MessageToGateway::Report(report) => {
                self.report = Some(report);
                self.shorten();
            }
        }
        Ok(())
    }

    /// A request for something from outside is one of those that a worker may make in its lifetime.
    fn count_exchange(&mut self) -> Result<(), WorkerWatchStop> {
        if self.usage.exchanges >= self.limits.exchanges {
            return Err(WorkerWatchStop::Fault(CrashCause::BurnLimit { limit: self.limits.exchanges }));
        }
        self.usage.exchanges += 1;
        Ok(())
    }

    /// Appends a message to the queue, and writes as much of the queue as fits into the socket.
    fn say(&mut self, bytes: Vec<u8>) -> Result<(), WorkerWatchStop> {
        // A worker that sends requests without reading its answers would make the queue grow.
        if self.written < self.out.len() {
            return Err(WorkerFrameError::OutOfTurn.into());
        }
        self.out = bytes;
        self.written = 0;
        self.write();
        Ok(())
    }

    fn bury(self, life: WorkerProcess, over: WorkerWatchStop) -> Result<WorkerEnd, WorkerStartError> {
        if !matches!(over, WorkerWatchStop::Ended) {
            life.kill();
        }
        let (exit, cpu) = life.bury();
        let Self { around, limits, decoder, layers, report, last_words, mut usage, .. } = self;
        let now = around.clock.since_boot().as_millis();
        usage.wall = Millis::from_millis(now.saturating_sub(around.started.as_millis()));
        usage.cpu = cpu;
        let locked = layers.is_some();
        let layers = layers.unwrap_or_default();
        let why = match over {
            WorkerWatchStop::NotLockedIn(layers) => return Err(WorkerStartError::Layers(layers.missing_mandatory())),
            WorkerWatchStop::CutOff(why) => return Ok(WorkerEnd::CutOff { why, layers, usage }),
            WorkerWatchStop::Fault(cause) => Some(cause),
            WorkerWatchStop::Ended => {
                let remains = ExitedWorker {
                    exit,
                    cpu,
                    reported: report.is_some(),
                    spoke: last_words.is_some(),
                    midway: decoder.is_midway(),
                };
                cause(remains, &limits)
            }
        };
        match (why, report) {
            _ if !locked => Err(WorkerStartError::NoWorker(format!("{exit:?}"))),
            (None, Some(report)) => Ok(WorkerEnd::Clean(FinishedWorker { report, layers, usage })),
            (Some(cause), _) => Ok(WorkerEnd::Crashed(WorkerCrash { cause, last_words, layers, usage })),
            (None, None) => {
                Ok(WorkerEnd::Crashed(WorkerCrash { cause: CrashCause::Exited { code: 0 }, last_words, layers, usage }))
            }
        }
    }
}

fn too_large() -> ExchangeReply {
    let text = "the answer is larger than a worker may be given".to_owned();
    ExchangeReply::Refused { code: EXCHANGE_TOO_LARGE.into(), text, not_sent: false }
}
