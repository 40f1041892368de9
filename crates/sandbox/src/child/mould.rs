//! A mould: a worker that never has a job, and of which copies are made that have one each.
//!
//! It is locked in like every worker and has built what reading needs. It hears two wishes: a copy, and how a copy
//! ended. A copy takes its own socket in place of the mould's, gives up what only the mould may do, and says how it is
//! locked in before it reads a byte of its job. Promise: nothing from outside ever reaches the mould, so that every
//! copy begins as it did; a copy has no way to the mould or to another copy.

use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{Inside, WorkerError};
use crate::jail::{limits, seccomp};
use crate::layers::{LayerName, Layers, Mode};
use crate::protocol::mould::{Answer, WISH, Wish, receive, send};
use crate::protocol::{Decoder, Locked, Malformed, ToGateway};
use crate::wait::wait;

/// How a mould is locked in, and what its copies keep to.
#[derive(Debug, Clone)]
pub(super) struct Cast {
    pub(super) layers: Layers,
    pub(super) mode: Mode,
    pub(super) memory: u64,
}

/// Which of the two a process is after a copy was made.
enum Side {
    Mould { number: i32, copy: OwnedFd },
    Copy,
}

impl Inside {
    /// Whether this process has no job itself, but copies of it do.
    #[must_use]
    pub const fn is_mould(&self) -> bool {
        self.mould.is_some()
    }

    /// Makes copies for as long as the gateway wants them. Returns in each copy, which is locked in and has a job to come;
    /// in the mould itself only when it is over.
    ///
    /// # Errors
    /// The gateway is gone or wants something else; or, in a copy, a lock is missing that must not be.
    pub fn copies(mut self) -> Result<Self, WorkerError> {
        let Some(cast) = self.mould.take() else { return Ok(self) };
        tidy();
        loop {
            match self.wish()? {
                (Wish::Copy { cpu_seconds }, Some(socket)) => match split() {
                    Ok(Side::Copy) => return self.become_copy(socket, cast, cpu_seconds),
                    Ok(Side::Mould { number, copy }) => self.answer(Answer::Copied { number }, Some(&copy))?,
                    Err(error) => self.answer(Answer::Failed { errno: error.raw_os_error() }, None)?,
                },
                (Wish::Bury { number }, None) => self.answer(bury(number), None)?,
                (Wish::Copy { .. }, None) | (Wish::Bury { .. }, Some(_)) => return Err(Malformed::Shape.into()),
            }
        }
    }

    /// Another's socket, less to use, fewer calls; then it says so.
    fn become_copy(mut self, socket: OwnedFd, cast: Cast, cpu_seconds: u64) -> Result<Self, WorkerError> {
        let Cast { mut layers, mode, memory } = cast;
        // The mould's socket is closed by this, and with it the only thing the two had in common.
        rustix::io::dup3(&socket, &mut self.socket, rustix::io::DupFlags::empty()).map_err(std::io::Error::from)?;
        drop(socket);
        self.decoder = Decoder::default();
        layers.again(LayerName::Limits, limits::lower(memory, cpu_seconds));
        let ends = set_parent_process_death_signal(Some(Signal::KILL));
        layers.again(LayerName::Dumpable, ends.map(|()| "no core, no look inside, ends with its mould".to_owned()));
        layers.again(LayerName::Seccomp, seccomp::load(seccomp::List::Plain, std::process::id()));
        let suffice = layers.suffice(mode);
        self.say(ToGateway::Locked(Locked { layers }))?;
        if suffice { Ok(self) } else { Err(WorkerError::NotLockedIn) }
    }

    /// The next wish, with the socket that came with it.
    fn wish(&mut self) -> Result<(Wish, Option<OwnedFd>), WorkerError> {
        let (bytes, socket) = receive::<WISH>(self.socket.as_fd())?;
        Ok((Wish::decode(&bytes).ok_or(Malformed::Shape)?, socket))
    }

    fn answer(&mut self, answer: Answer, copy: Option<&OwnedFd>) -> Result<(), WorkerError> {
        Ok(send(self.socket.as_fd(), &answer.encode(), copy)?)
    }
}

/// Puts free memory in order once, which each copy would otherwise do for itself, on pages that are copied for it.
fn tidy() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the allocator has no safe form of it")]
    // SAFETY: the call takes no pointer and gives free memory back; the process has one thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes a copy of this process, which has one thread.
fn split() -> rustix::io::Result<Side> {
    let mut copy: libc::c_int = -1;
    #[expect(unsafe_code, reason = "there is no safe clone")]
    // SAFETY: with these flags the call is a fork: the copy has memory of its own and goes on here on its own stack. The
    // process has one thread, so no lock is held by anybody who is not there any more. The third argument is where the
    // kernel stores a descriptor of the copy, and only on the mould's side.
    let number = unsafe {
        let (flags, none) = (libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD), 0 as libc::c_long);
        libc::syscall(libc::SYS_clone, flags, none, &raw mut copy, none, none)
    };
    match i32::try_from(number) {
        Ok(0) => Ok(Side::Copy),
        Ok(number) if number > 0 => {
            #[expect(unsafe_code, reason = "the kernel gives the descriptor as a number")]
            // SAFETY: the clone succeeded, so the kernel has stored a new descriptor that nobody else owns.
            let copy = unsafe { OwnedFd::from_raw_fd(copy) };
            Ok(Side::Mould { number, copy })
        }
        Ok(_) | Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
    }
}

/// Waits for the end of a copy, which is near or past, and reaps it.
fn bury(number: i32) -> Answer {
    match wait(libc::P_PID, number) {
        Ok(ended) => Answer::Buried { code: ended.code, status: ended.status, millis: ended.cpu.as_millis() },
        Err(error) => Answer::Failed { errno: error.raw_os_error().unwrap_or(-1) },
    }
}
