//! The signal mask: all signals are blocked while a process starts, and the new program must receive signals again.

/// Unblocks every signal. There must be only one thread.
pub(crate) fn unblock_all() -> std::io::Result<()> {
    #[expect(unsafe_code, reason = "signal masks have no safe form")]
    // SAFETY: all-zero is a valid `sigset_t`, it is filled before it is used, and no old mask is asked for.
    let failed = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(failed)) }
}
