//! How a worker ended, in words the crash report knows.
//!
//! Takes what the parent and the kernel saw; gives an [`End`]. Promise: whether an end looks like an attack
//! follows from what was seen, never from what the worker said about itself.

use sluice_core::Span;
use sluice_core::crash::Cause;

use super::life::Exit;
use super::{Done, Limits};
use crate::child::EXIT_ABORTED;
use crate::layers::Layers;
use crate::protocol::LastWords;

/// How a worker ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// It reported and left.
    Clean(Done),
    /// It broke, or did what it must not.
    Crashed(Crash),
    /// We stopped it, without fault found.
    CutOff {
        /// Why.
        why: CutOff,
        /// How it was locked in.
        layers: Layers,
        /// What it used.
        usage: Usage,
    },
}

/// A crash, with what the crash report needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Crash {
    /// What ended it.
    pub cause: Cause,
    /// Where it says it broke: its own words, kept beside the report.
    pub last_words: Option<LastWords>,
    /// How it was locked in.
    pub layers: Layers,
    /// What it used.
    pub usage: Usage,
}

/// Why we stopped a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOff {
    /// Its time was over.
    Time,
    /// Nobody wants the result any more.
    Cancelled,
}

/// What a worker used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// From spawn to end.
    pub wall: Span,
    /// Processor time.
    pub cpu: Span,
    /// Frames it sent.
    pub frames: u64,
    /// Bytes it sent.
    pub bytes: u64,
    /// Exchanges it asked for.
    pub exchanges: u64,
}

/// What a process that ended by itself left behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remains {
    pub(super) exit: Exit,
    pub(super) cpu: Span,
    /// It had reported.
    pub(super) reported: bool,
    /// It had said where it broke.
    pub(super) spoke: bool,
    /// A frame had begun and not ended.
    pub(super) midway: bool,
}

/// Why a process that we did not kill ended; nothing if it ended well.
pub(super) fn cause(remains: Remains, limits: &Limits) -> Option<Cause> {
    let Remains { exit, cpu, reported, spoke, midway } = remains;
    // The kernel stops by ticks and reports by another clock, which on a busy machine lags far behind: nobody else
    // kills a worker that has used half of its time.
    let out_of_time = cpu.as_millis() * 2 >= limits.cpu.as_millis().div_ceil(1000).max(1) * 1000;
    match exit {
        // The filter kills with it, and nothing else does.
        Exit::Signal(libc::SIGSYS) => Some(Cause::Forbidden),
        Exit::Signal(libc::SIGXCPU | libc::SIGXFSZ) => Some(Cause::Exhausted),
        Exit::Signal(libc::SIGKILL) if out_of_time => Some(Cause::Exhausted),
        Exit::Signal(signal) => Some(Cause::Signalled { signal }),
        // Rust aborts when memory cannot be had or the stack is used up. A panic in a panic aborts too, and speaks first.
        Exit::Code(EXIT_ABORTED) if !spoke => Some(Cause::Exhausted),
        Exit::Code(_) if midway => Some(Cause::MalformedFrame),
        Exit::Code(0) if reported => None,
        Exit::Code(code) => Some(Cause::Exited { code }),
        Exit::Unknown => Some(Cause::Exited { code: -1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(exit: Exit) -> Remains {
        Remains { exit, cpu: Span::from_millis(20), reported: false, spoke: false, midway: false }
    }

    fn why(remains: Remains) -> Option<Cause> {
        cause(remains, &Limits { cpu: Span::from_secs(2), ..Limits::default() })
    }

    #[test]
    fn only_a_report_and_a_quiet_exit_are_a_good_end() {
        assert_eq!(why(Remains { reported: true, ..remains(Exit::Code(0)) }), None);
        assert_eq!(why(remains(Exit::Code(0))), Some(Cause::Exited { code: 0 }));
        assert_eq!(why(Remains { reported: true, ..remains(Exit::Code(1)) }), Some(Cause::Exited { code: 1 }));
        let halfway = Remains { reported: true, midway: true, ..remains(Exit::Code(0)) };
        assert_eq!(why(halfway), Some(Cause::MalformedFrame));
        assert_eq!(why(remains(Exit::Unknown)), Some(Cause::Exited { code: -1 }));
    }

    #[test]
    fn the_filter_and_the_limits_are_told_apart_from_bad_luck() {
        assert_eq!(why(remains(Exit::Signal(libc::SIGSYS))), Some(Cause::Forbidden));
        assert_eq!(why(remains(Exit::Signal(libc::SIGKILL))), Some(Cause::Signalled { signal: 9 }));
        let busy = Remains { cpu: Span::from_millis(1_700), ..remains(Exit::Signal(libc::SIGKILL)) };
        assert_eq!(why(busy), Some(Cause::Exhausted));
        assert_eq!(why(remains(Exit::Signal(libc::SIGSEGV))), Some(Cause::Signalled { signal: 11 }));
        assert_eq!(why(remains(Exit::Code(EXIT_ABORTED))), Some(Cause::Exhausted));
        let spoke = Remains { spoke: true, ..remains(Exit::Code(EXIT_ABORTED)) };
        assert_eq!(why(spoke), Some(Cause::Exited { code: EXIT_ABORTED }));
    }
}
