//! The signal mask: ours is full while a process is born, and what it becomes must hear signals again.

/// Lets every signal through. There must be one thread only.
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
