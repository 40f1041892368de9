//! The lifetime of one worker process, until it is reaped.
//!
//! Holds the process by its descriptor, which never refers to another process. A fork is the child of its zygote, which
//! reaps it for us. Promise: dropping it kills the worker and reaps it; after that nothing of it is left.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::process::{Signal, pidfd_send_signal};
use sluice_core::Millis;

use super::zygote::ZygoteSocket;
use crate::wait::wait;

/// A worker process.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    process: OwnedFd,
    reaped: bool,
    /// For a fork: the zygote to ask, and the fork's number there.
    mould: Option<(Arc<ZygoteSocket>, i32)>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessExit {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// Another process reaped it: its end is not known.
    Unknown,
}

impl ProcessExit {
    /// From the values that `waitid` gives.
    pub(super) fn from_wait(code: i32, status: i32) -> Self {
        if code == libc::CLD_EXITED { Self::Code(status) } else { Self::Signal(status) }
    }
}

impl WorkerProcess {
    pub(super) fn new(process: OwnedFd) -> Self {
        Self { process, reaped: false, mould: None }
    }

    pub(super) fn of_copy(process: OwnedFd, number: i32, desk: Arc<ZygoteSocket>) -> Self {
        Self { process, reaped: false, mould: Some((desk, number)) }
    }

    /// Kills it. Killing an ended process has no effect.
    pub(super) fn kill(&self) {
        let _sent = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Waits for its end and reaps it. To be called after a kill or once its descriptor is readable, or it may take
    /// long.
    pub(super) fn bury(mut self) -> (ProcessExit, Millis) {
        self.reap()
    }

    fn reap(&mut self) -> (ProcessExit, Millis) {
        if let Some((desk, number)) = &self.mould {
            self.reaped = true;
            return desk.bury(*number).unwrap_or((ProcessExit::Unknown, Millis::ZERO));
        }
        self.reaped = true;
        // Another process may have reaped it.
        wait(libc::P_PIDFD, self.process.as_raw_fd()).map_or((ProcessExit::Unknown, Millis::ZERO), |ended| {
            (ProcessExit::from_wait(ended.code, ended.status), ended.cpu)
        })
    }
}

impl AsFd for WorkerProcess {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}
