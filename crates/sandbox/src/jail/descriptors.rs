//! The descriptors of a worker: three times `/dev/null`, the frame socket, perhaps its scratch folder.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// The frame socket.
pub(crate) const FRAMES: RawFd = 3;
/// The scratch folder, if there is one.
pub(crate) const SCRATCH: RawFd = 4;

/// Closes all others. The parent has done so at exec already; this also covers a program that was started in another
/// way.
pub(crate) fn close_others(with_scratch: bool) -> io::Result<String> {
    let first = if with_scratch { SCRATCH + 1 } else { FRAMES + 1 };
    let first = u32::try_from(first).map_err(io::Error::other)?;
    #[expect(unsafe_code, reason = "closing by number has no safe form")]
    // SAFETY: this runs before anything in this process owns a descriptor above the kept ones: `enter` is the
    // first thing a worker does, and the frame socket and the scratch folder are below `first`.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if closed == 0 {
        Ok(if with_scratch { "the frame socket and the scratch folder" } else { "the frame socket" }.into())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes the frame socket, or reports that there is none.
pub(crate) fn frames() -> io::Result<OwnedFd> {
    take(FRAMES, libc::S_IFSOCK)
}

/// Takes the scratch folder.
pub(crate) fn scratch() -> io::Result<OwnedFd> {
    take(SCRATCH, libc::S_IFDIR)
}

fn take(number: RawFd, kind: libc::mode_t) -> io::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "an inherited descriptor is known by its number alone")]
    // SAFETY: an all-zero `stat` is a valid value, the call fills it, and a wrong number is an error of the call.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if libc::fstat(number, &raw mut status) != 0 {
            return Err(io::Error::last_os_error());
        }
        status
    };
    if status.st_mode & libc::S_IFMT != kind {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    #[expect(unsafe_code, reason = "an inherited descriptor is known by its number alone")]
    // SAFETY: the descriptor is open, was handed over by the parent for this purpose, and nobody else in this
    // process takes these two numbers.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
