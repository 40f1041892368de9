//! The life of one worker process, and its burial.
//!
//! Holds the process by its descriptor, which can never mean another process. A copy is the child of its mould, which
//! reaps it for us. Promise: dropping it kills the
//! worker and reaps it; after that nothing of it is left.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::process::{Signal, pidfd_send_signal};
use sluice_core::Span;

use super::mould::Desk;

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
        loop {
            #[expect(unsafe_code, reason = "no safe wait tells what a process used")]
            // SAFETY: all-zero is a valid value of both structures, the call fills them, and the number is an open
            // descriptor of a process. After a success `siginfo` describes an ended child, so its status is set.
            let (done, code, status, usage) = unsafe {
                let mut about: libc::siginfo_t = std::mem::zeroed();
                let mut usage: libc::rusage = std::mem::zeroed();
                let process = self.process.as_raw_fd();
                let done = libc::syscall(
                    libc::SYS_waitid,
                    libc::P_PIDFD,
                    process,
                    &raw mut about,
                    libc::WEXITED,
                    &raw mut usage,
                );
                (done, about.si_code, about.si_status(), usage)
            };
            if done == 0 {
                self.reaped = true;
                return (Exit::from_wait(code, status), spent(&usage));
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                self.reaped = true;
                return (Exit::Unknown, Span::ZERO);
            }
        }
    }
}

/// Processor time. What the kernel gives for memory is useless here: it counts what the child of a clone shared
/// with us before it called exec.
pub(crate) fn spent(usage: &libc::rusage) -> Span {
    let millis = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_usec).unwrap_or(0) / 1000
    };
    Span::from_millis(millis(usage.ru_utime) + millis(usage.ru_stime))
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
