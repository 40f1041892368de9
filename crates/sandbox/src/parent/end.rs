//! How a worker ended, in the terms of the crash report.
//!
//! Takes what the parent and the kernel observed; gives an [`WorkerEnd`]. Promise: whether an end looks like an attack
//! follows from observations, never from what the worker said about itself.

use sluice_core::Millis;
use sluice_core::crash::CrashCause;

use super::process::ProcessExit;
use super::{FinishedWorker, WorkerLimits};
use crate::child::EXIT_ABORTED;
use sluice_protocol::CrashLocation;
use sluice_protocol::JailLayers;

/// How a worker ended.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerEnd {
    /// It reported and exited.
    Clean(FinishedWorker),
    /// It crashed, or did something forbidden.
    Crashed(WorkerCrash),
    /// We stopped it without finding a fault.
    CutOff {
        /// Why it was stopped.
        why: WorkerCutOffReason,
        /// The layers that locked it in.
        layers: JailLayers,
        /// The resources that it used.
        usage: WorkerUsage,
    },
}

/// A crash, with what the crash report needs.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerCrash {
    /// The cause of the end.
    pub cause: CrashCause,
    /// Where it says that it crashed: its own words, kept separate from the report.
    pub last_words: Option<CrashLocation>,
    /// The layers that locked it in.
    pub layers: JailLayers,
    /// The resources that it used.
    pub usage: WorkerUsage,
}

/// Why we stopped a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerCutOffReason {
    /// Its time was up.
    Time,
    /// Nobody needs the result any more.
    Cancelled,
}

/// The resources that a worker used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerUsage {
    /// Time from spawn to end.
    pub wall: Millis,
    /// Processor time.
    pub cpu: Millis,
    /// Frames that it sent.
    pub frames: u64,
    /// Bytes that it sent.
    pub bytes: u64,
    /// Exchanges that it requested.
    pub exchanges: u64,
}

/// What is known of a process that ended by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExitedWorker {
    pub(super) exit: ProcessExit,
    pub(super) cpu: Millis,
    /// Whether it had reported.
    pub(super) reported: bool,
    /// Whether it had said where it crashed.
    pub(super) spoke: bool,
    /// Whether a frame was incomplete.
    pub(super) midway: bool,
}

/// Why a process ended that we did not kill; `None` if it ended well.
pub(super) fn cause(remains: ExitedWorker, limits: &WorkerLimits) -> Option<CrashCause> {
    let ExitedWorker { exit, cpu, reported, spoke, midway } = remains;
    // The kernel limits by ticks and reports by another clock, which lags far behind on a busy machine. Nothing else
    // kills a worker that has used half of its time.
    let out_of_time = cpu.as_millis() * 2 >= limits.cpu.as_millis().div_ceil(1000).max(1) * 1000;
    match exit {
        // Only the filter kills with this signal.
        ProcessExit::Signal(libc::SIGSYS) => Some(CrashCause::Forbidden),
        ProcessExit::Signal(libc::SIGXCPU | libc::SIGXFSZ) => Some(CrashCause::Exhausted),
        ProcessExit::Signal(libc::SIGKILL) if out_of_time => Some(CrashCause::Exhausted),
        ProcessExit::Signal(signal) => Some(CrashCause::Signalled { signal }),
        // Rust aborts when memory or the stack is exhausted. A panic inside a panic aborts too, but speaks first.
        ProcessExit::Code(EXIT_ABORTED) if !spoke => Some(CrashCause::Exhausted),
        ProcessExit::Code(_) if midway => Some(CrashCause::MalformedFrame),
        ProcessExit::Code(0) if reported => None,
        ProcessExit::Code(code) => Some(CrashCause::Exited { code }),
        ProcessExit::Unknown => Some(CrashCause::Exited { code: -1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(exit: ProcessExit) -> ExitedWorker {
        ExitedWorker { exit, cpu: Millis::from_millis(20), reported: false, spoke: false, midway: false }
    }

    fn why(remains: ExitedWorker) -> Option<CrashCause> {
        cause(remains, &WorkerLimits { cpu: Millis::from_secs(2), ..WorkerLimits::default() })
    }

    #[test]
    fn only_a_report_and_a_quiet_exit_are_a_good_end() {
        assert_eq!(why(ExitedWorker { reported: true, ..remains(ProcessExit::Code(0)) }), None);
        assert_eq!(why(remains(ProcessExit::Code(0))), Some(CrashCause::Exited { code: 0 }));
        assert_eq!(
            why(ExitedWorker { reported: true, ..remains(ProcessExit::Code(1)) }),
            Some(CrashCause::Exited { code: 1 })
        );
        let halfway = ExitedWorker { reported: true, midway: true, ..remains(ProcessExit::Code(0)) };
        assert_eq!(why(halfway), Some(CrashCause::MalformedFrame));
        assert_eq!(why(remains(ProcessExit::Unknown)), Some(CrashCause::Exited { code: -1 }));
    }

    #[test]
    fn the_filter_and_the_limits_are_told_apart_from_bad_luck() {
        assert_eq!(why(remains(ProcessExit::Signal(libc::SIGSYS))), Some(CrashCause::Forbidden));
        assert_eq!(why(remains(ProcessExit::Signal(libc::SIGKILL))), Some(CrashCause::Signalled { signal: 9 }));
        let busy = ExitedWorker { cpu: Millis::from_millis(1_700), ..remains(ProcessExit::Signal(libc::SIGKILL)) };
        assert_eq!(why(busy), Some(CrashCause::Exhausted));
        assert_eq!(why(remains(ProcessExit::Signal(libc::SIGSEGV))), Some(CrashCause::Signalled { signal: 11 }));
        assert_eq!(why(remains(ProcessExit::Code(EXIT_ABORTED))), Some(CrashCause::Exhausted));
        let spoke = ExitedWorker { spoke: true, ..remains(ProcessExit::Code(EXIT_ABORTED)) };
        assert_eq!(why(spoke), Some(CrashCause::Exited { code: EXIT_ABORTED }));
    }
}
