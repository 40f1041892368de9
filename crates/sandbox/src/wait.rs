//! The burial of a process: how it ended, and what it used.
//!
//! Takes a child of the calling process that has ended or was killed; gives what the kernel says of it, and reaps it.

use std::io;

use sluice_core::Span;

/// What the kernel says of a process that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// As `waitid` says why.
    pub(crate) code: i32,
    /// The exit code or the signal.
    pub(crate) status: i32,
    /// Processor time.
    pub(crate) cpu: Span,
}

/// Waits for a child, named by number or descriptor as `kind` says, and reaps it.
pub(crate) fn wait(kind: libc::idtype_t, child: i32) -> io::Result<Ended> {
    loop {
        #[expect(unsafe_code, reason = "no safe wait tells what a process used")]
        // SAFETY: all-zero is a valid value of both structures and the call fills them; a wrong number is an error of the
        // call. After a success `siginfo` describes an ended child, so its status is set.
        let (done, code, status, usage) = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            let mut usage: libc::rusage = std::mem::zeroed();
            let done = libc::syscall(libc::SYS_waitid, kind, child, &raw mut about, libc::WEXITED, &raw mut usage);
            (done, about.si_code, about.si_status(), usage)
        };
        if done == 0 {
            return Ok(Ended { code, status, cpu: spent(&usage) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Processor time. What the kernel gives for memory is useless here: it counts what the child of a clone shared
/// with us before it called exec.
fn spent(usage: &libc::rusage) -> Span {
    let millis = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_usec).unwrap_or(0) / 1000
    };
    Span::from_millis(millis(usage.ru_utime) + millis(usage.ru_stime))
}
