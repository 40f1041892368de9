//! Watching: one loop that hears, answers, counts and ends.
//!
//! Takes a worker that has begun; gives its end. Promise: every frame is counted and checked before anyone acts
//! on it, the job leaves only after the worker said how it is locked in, and nothing the worker does or
//! fails to do keeps the loop past the wall limit, the host's own answers aside.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use sluice_core::crash::Cause;
use sluice_core::{Clock, Span};

use super::end::{Remains, cause};
use super::life::Life;
use super::start::Born;
use super::{Cancel, Crash, CutOff, Done, End, Host, Limits, NotStarted, Task, Usage};
use crate::layers::{Layers, Mode};
use crate::protocol::{Decoder, LastWords, Malformed, Reply, Report, Terms, ToGateway, ToWorker};

/// How long a worker may stay after its report, or after it has closed its end.
const GRACE: Span = Span::from_secs(1);

/// What surrounds the worker.
pub(super) struct Around<'a> {
    pub(super) host: &'a mut dyn Host,
    pub(super) cancel: &'a Cancel,
    pub(super) clock: &'a dyn Clock,
    pub(super) started: Span,
}

/// Why the loop ended.
enum Over {
    /// The process ended.
    Ended,
    /// It did what it must not.
    Fault(Cause),
    /// We stop it.
    CutOff(CutOff),
    /// It is not locked in well enough.
    NotLockedIn(Layers),
}

impl From<Malformed> for Over {
    fn from(_: Malformed) -> Self {
        Self::Fault(Cause::MalformedFrame)
    }
}

struct Watch<'a> {
    around: Around<'a>,
    socket: OwnedFd,
    limits: Limits,
    mode: Mode,
    decoder: Decoder,
    /// What still has to be written, and how much of it was.
    out: Vec<u8>,
    written: usize,
    deadline: Span,
    /// The job as bytes, until the worker is locked in.
    job: Option<Vec<u8>>,
    layers: Option<Layers>,
    report: Option<Report>,
    last_words: Option<LastWords>,
    closed: bool,
    usage: Usage,
}

/// Stays with a worker until it is over and buried. The job is that of the task, as bytes.
pub(super) fn watch(born: Born, job: Vec<u8>, task: &Task<'_>, around: Around<'_>) -> Result<End, NotStarted> {
    let (life, mut watch) = begin(born, task, around, Becomes::Worker)?;
    watch.job = Some(job);
    let over = watch.stay(&life);
    watch.bury(life, over)
}

/// What was born.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Becomes {
    /// A worker that is told how to lock itself in.
    Worker,
    /// The same, of which copies are made.
    Mould,
    /// A copy, which was locked in before it was one.
    Copy,
}

fn begin<'a>(
    born: Born,
    task: &Task<'_>,
    around: Around<'a>,
    becomes: Becomes,
) -> Result<(Life, Watch<'a>), NotStarted> {
    let Task { limits, mode, scratch, .. } = *task;
    let Born { life, socket, namespaces, .. } = born;
    let terms = Terms {
        mode,
        memory: limits.memory,
        cpu_seconds: limits.cpu.as_millis().div_ceil(1000).max(1),
        scratch_bytes: scratch.map(|_| limits.scratch_bytes),
        namespaces,
        mould: becomes == Becomes::Mould,
    };
    let out = match becomes {
        Becomes::Worker | Becomes::Mould => ToWorker::Terms(terms).encode()?,
        Becomes::Copy => Vec::new(),
    };
    let deadline = around.started + limits.wall;
    let watch = Watch {
        around,
        socket,
        limits,
        mode,
        decoder: Decoder::default(),
        out,
        written: 0,
        deadline,
        job: None,
        layers: None,
        report: None,
        last_words: None,
        closed: false,
        usage: Usage::default(),
    };
    Ok((life, watch))
}

/// A worker that is locked in and has no job yet.
pub(super) struct Waiting {
    life: Life,
    socket: OwnedFd,
    limits: Limits,
    mode: Mode,
    decoder: Decoder,
    layers: Option<Layers>,
    usage: Usage,
}

/// Stays with a worker until it is locked in. The task has no job to give.
pub(super) fn lock_in(
    born: Born,
    task: &Task<'_>,
    around: Around<'_>,
    becomes: Becomes,
) -> Result<Waiting, NotStarted> {
    let (life, mut watch) = begin(born, task, around, becomes)?;
    while watch.layers.is_none() {
        if let Err(over) = watch.turn(&life) {
            let ended = watch.bury(life, over)?;
            return Err(NotStarted::NoWorker(format!("{ended:?}")));
        }
    }
    // Whoever has no job has nothing to say but how it is locked in.
    if watch.report.is_some() || watch.closed || watch.usage.frames > 1 {
        return Err(NotStarted::NoWorker("it spoke before it was asked".to_owned()));
    }
    let Watch { socket, limits, mode, decoder, layers, usage, .. } = watch;
    Ok(Waiting { life, socket, limits, mode, decoder, layers, usage })
}

impl Waiting {
    /// One that somebody else has locked in: it never says so itself, and gets its job at once.
    pub(super) fn locked_in(life: Life, socket: OwnedFd, task: &Task<'_>, layers: Layers) -> Self {
        let Task { limits, mode, .. } = *task;
        Self { life, socket, limits, mode, decoder: Decoder::default(), layers: Some(layers), usage: Usage::default() }
    }

    /// The process and the way to it, for somebody who gives it no job.
    pub(super) fn apart(self) -> (Life, OwnedFd) {
        (self.life, self.socket)
    }

    /// Whether it still waits: it has neither ended nor said anything.
    pub(super) fn is_there(&self) -> bool {
        let mut fds = [
            PollFd::from_borrowed_fd(self.life.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
        ];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }

    /// Gives it its job and stays until it is over and buried. Its time begins now.
    pub(super) fn perform(self, job: Vec<u8>, around: Around<'_>) -> Result<End, NotStarted> {
        let Self { life, socket, limits, mode, decoder, layers, usage } = self;
        let deadline = around.started + limits.wall;
        let mut watch = Watch {
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

impl Watch<'_> {
    fn stay(&mut self, life: &Life) -> Over {
        loop {
            match self.turn(life) {
                Ok(()) => {}
                Err(over) => return over,
            }
        }
    }

    /// Waits for something to happen, and deals with it.
    fn turn(&mut self, life: &Life) -> Result<(), Over> {
        let left = self.left();
        if left == Span::ZERO {
            return Err(self.out_of_time());
        }
        let mut wanted = PollFlags::empty();
        if !self.closed {
            wanted |= PollFlags::IN;
        }
        if self.written < self.out.len() {
            wanted |= PollFlags::OUT;
        }
        // A socket closed at the other end reports itself without being asked; then there is nothing to ask for.
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
            // The kernel has no memory for us; the worker is not worth more of it.
            Err(_) => return Err(Over::CutOff(CutOff::Cancelled)),
        }
        let [cancelled, ended, ready] = fds.map(|fd| fd.revents());
        if !cancelled.is_empty() {
            return Err(Over::CutOff(CutOff::Cancelled));
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
            // What it said before it ended is still there.
            while !self.closed && self.read()? {}
            return Err(Over::Ended);
        }
        Ok(())
    }

    fn left(&self) -> Span {
        let now = self.around.clock.since_boot().as_millis();
        Span::from_millis(self.deadline.as_millis().saturating_sub(now))
    }

    /// The wall limit, or the grace after a report or a closed pipe.
    fn out_of_time(&self) -> Over {
        if self.report.is_some() || self.closed {
            // It said it was done and stays, or it does not speak to us any more and stays.
            return Over::Fault(Cause::Forbidden);
        }
        Over::CutOff(CutOff::Time)
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
            // It does not listen any more. Whether that is a fault shows in how it ends.
            Err(_) => self.written = self.out.len(),
        }
        if self.written == self.out.len() {
            self.out = Vec::new();
            self.written = 0;
        }
    }

    /// Reads once. False when there is nothing to read at the moment.
    fn read(&mut self) -> Result<bool, Over> {
        let mut piece = [0; 64 << 10];
        let count = match rustix::io::read(&self.socket, piece.as_mut_slice()) {
            Ok(0) => 0,
            Ok(count) => count,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => return Ok(true),
            // It left something of ours unread.
            Err(_) => 0,
        };
        if count == 0 {
            self.closed = true;
            self.shorten();
            return Ok(false);
        }
        self.usage.bytes += count as u64;
        if self.usage.bytes > self.limits.bytes {
            return Err(Over::Fault(Cause::Exhausted));
        }
        self.decoder.feed(piece.get(..count).unwrap_or_default());
        while let Some(frame) = self.decoder.next_frame()? {
            self.usage.frames += 1;
            if self.usage.frames > self.limits.frames {
                return Err(Over::Fault(Cause::Exhausted));
            }
            self.hear(ToGateway::decode(frame)?)?;
        }
        Ok(true)
    }

    fn hear(&mut self, message: ToGateway) -> Result<(), Over> {
        // The locks first, then anything but a second time; after the report, nothing.
        if self.report.is_some() || self.layers.is_some() == matches!(message, ToGateway::Locked(_)) {
            return Err(Malformed::OutOfTurn.into());
        }
        match message {
            ToGateway::Locked(locked) => {
                if !locked.layers.suffice(self.mode) {
                    return Err(Over::NotLockedIn(locked.layers));
                }
                self.layers = Some(locked.layers);
                if let Some(job) = self.job.take() {
                    self.say(job)?;
                }
            }
            ToGateway::Exchange(exchange) => {
                if self.usage.exchanges >= self.limits.exchanges {
                    return Err(Over::Fault(Cause::BurnLimit { limit: self.limits.exchanges }));
                }
                self.usage.exchanges += 1;
                let left = self.left();
                let reply = self.around.host.exchange(exchange, left).map_err(Over::Fault)?;
                // An answer that fits no frame is ours to refuse, not the worker's fault.
                let bytes = ToWorker::Reply(reply).encode().or_else(|_| ToWorker::Reply(too_large()).encode())?;
                self.say(bytes)?;
            }
            ToGateway::Item(item) => self.around.host.item(item).map_err(Over::Fault)?,
            ToGateway::Progress(progress) => self.around.host.progress(progress),
            ToGateway::LastWords(words) => self.last_words = Some(words),
            ToGateway::Report(report) => {
                self.report = Some(report);
                self.shorten();
            }
        }
        Ok(())
    }

    /// Puts a message into the queue, and as much of it as fits into the socket.
    fn say(&mut self, bytes: Vec<u8>) -> Result<(), Over> {
        // A worker that asks again without taking its answers would let the queue grow.
        if self.written < self.out.len() {
            return Err(Malformed::OutOfTurn.into());
        }
        self.out = bytes;
        self.written = 0;
        self.write();
        Ok(())
    }

    fn bury(self, life: Life, over: Over) -> Result<End, NotStarted> {
        if !matches!(over, Over::Ended) {
            life.kill();
        }
        let (exit, cpu) = life.bury();
        let Self { around, limits, decoder, layers, report, last_words, mut usage, .. } = self;
        let now = around.clock.since_boot().as_millis();
        usage.wall = Span::from_millis(now.saturating_sub(around.started.as_millis()));
        usage.cpu = cpu;
        let locked = layers.is_some();
        let layers = layers.unwrap_or_default();
        let why = match over {
            Over::NotLockedIn(layers) => return Err(NotStarted::Layers(layers.missing_mandatory())),
            Over::CutOff(why) => return Ok(End::CutOff { why, layers, usage }),
            Over::Fault(cause) => Some(cause),
            Over::Ended => {
                let remains = Remains {
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
            _ if !locked => Err(NotStarted::NoWorker(format!("{exit:?}"))),
            (None, Some(report)) => Ok(End::Clean(Done { report, layers, usage })),
            (Some(cause), _) => Ok(End::Crashed(Crash { cause, last_words, layers, usage })),
            (None, None) => Ok(End::Crashed(Crash { cause: Cause::Exited { code: 0 }, last_words, layers, usage })),
        }
    }
}

fn too_large() -> Reply {
    let text = "the answer is larger than a worker may be given".to_owned();
    Reply::Refused { code: "egress.too_large".into(), text, not_sent: false }
}
