//! The life of one worker process, and its burial.
//!
//! Holds the process by its descriptor, which can never mean another process. A copy is the child of its mould, which
//! reaps it for us. Promise: dropping it kills the
//! worker and reaps it; after that nothing of it is left.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::process::{Signal, pidfd_send_signal};
use sluice_core::Span;

use super::mould::Desk;
use crate::wait::wait;

/// A worker process.
#[derive(Debug)]
pub(super) struct Life {
    process: OwnedFd,
    reaped: bool,
    /// Of a copy: whom to ask, and its number there.
    mould: Option<(Arc<Desk>, i32)>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Somebody else reaped it: nobody knows.
    Unknown,
}

impl Exit {
    /// As `waitid` tells it.
    pub(super) fn from_wait(code: i32, status: i32) -> Self {
        if code == libc::CLD_EXITED { Self::Code(status) } else { Self::Signal(status) }
    }
}

impl Life {
    pub(super) fn new(process: OwnedFd) -> Self {
        Self { process, reaped: false, mould: None }
    }

    pub(super) fn of_copy(process: OwnedFd, number: i32, desk: Arc<Desk>) -> Self {
        Self { process, reaped: false, mould: Some((desk, number)) }
    }

    /// Kills it. One that has ended is as dead as before.
    pub(super) fn kill(&self) {
        let _sent = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Waits for its end and reaps it. Only after a kill or once its descriptor can be read, or it may take long.
    pub(super) fn bury(mut self) -> (Exit, Span) {
        self.reap()
    }

    fn reap(&mut self) -> (Exit, Span) {
        if let Some((desk, number)) = &self.mould {
            self.reaped = true;
            return desk.bury(*number).unwrap_or((Exit::Unknown, Span::ZERO));
        }
        self.reaped = true;
        // Somebody else may have reaped it.
        wait(libc::P_PIDFD, self.process.as_raw_fd())
            .map_or((Exit::Unknown, Span::ZERO), |ended| (Exit::from_wait(ended.code, ended.status), ended.cpu))
    }
}

impl AsFd for Life {
    /// Can be read once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}
