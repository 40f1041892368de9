//! Reaps a process: how it ended, and what it used.
//!
//! Takes a child of the calling process that has ended or was killed; gives the kernel's record of it, and reaps it.

use std::io;

use sluice_core::Millis;

/// The kernel's record of a process that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReapedProcess {
    /// The reason code of `waitid`.
    pub(crate) code: i32,
    /// The exit code or the signal.
    pub(crate) status: i32,
    /// Processor time.
    pub(crate) cpu: Millis,
}

/// Waits for a child, identified by number or descriptor according to `kind`, and reaps it.
pub(crate) fn wait(kind: libc::idtype_t, child: i32) -> io::Result<ReapedProcess> {
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
            return Ok(ReapedProcess { code, status, cpu: spent(&usage) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Processor time. The kernel's memory figures are useless here: they count what the child of a clone shared with us
/// before exec.
fn spent(usage: &libc::rusage) -> Millis {
    let millis = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_usec).unwrap_or(0) / 1000
    };
    Millis::from_millis(millis(usage.ru_utime) + millis(usage.ru_stime))
}
