//! Zygote: a worker that never gets a job, and from which ready workers are forked, one job each.
//!
//! It is locked in like every worker and has built what reading needs. It accepts two requests: a new fork, and how a
//! fork ended. A fork puts its own socket in the place of the zygote's, gives up what only the zygote may do, and
//! reports its locks before it reads a byte of its job. Promise: nothing from outside ever reaches the zygote, so every
//! fork starts in the same state; a fork has no way to the zygote or to another fork.

use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{LockedInWorker, WorkerError};
use crate::jail::{limits, seccomp};
use crate::wait::wait;
use crate::zygote_protocol::{WISH, ZygoteRequest, ZygoteResponse, receive, send};
use sluice_protocol::{JailLayerName, JailLayers, JailMode};
use sluice_protocol::{LockedInMessage, MessageToGateway, WorkerFrameDecoder, WorkerFrameError};

/// How a zygote is locked in, and the settings of its forks.
#[derive(Debug, Clone)]
pub(super) struct ZygoteJail {
    pub(super) layers: JailLayers,
    pub(super) mode: JailMode,
    pub(super) memory: u64,
}

/// Which of the two processes this is after a fork.
enum ForkSide {
    Mould { number: i32, copy: OwnedFd },
    Copy,
}

impl LockedInWorker {
    /// Whether this process gets no job itself, but its forks do.
    #[must_use]
    pub const fn is_zygote(&self) -> bool {
        self.mould.is_some()
    }

    /// Makes forks for as long as the gateway wants them. Returns in each fork, which is locked in and waits for a job;
    /// in the zygote itself it returns only at the end.
    ///
    /// # Errors
    /// When the gateway is gone or sends an unexpected request; or, in a fork, when a mandatory lock is missing.
    pub fn serve_as_zygote(mut self) -> Result<Self, WorkerError> {
        let Some(cast) = self.mould.take() else { return Ok(self) };
        tidy();
        loop {
            match self.wish()? {
                (ZygoteRequest::Copy { cpu_seconds }, Some(socket)) => match fork_process() {
                    Ok(ForkSide::Copy) => return self.become_copy(socket, cast, cpu_seconds),
                    Ok(ForkSide::Mould { number, copy }) => {
                        self.answer(ZygoteResponse::Copied { number }, Some(&copy))?
                    }
                    Err(error) => self.answer(ZygoteResponse::Failed { errno: error.raw_os_error() }, None)?,
                },
                (ZygoteRequest::Bury { number }, None) => self.answer(bury(number), None)?,
                (ZygoteRequest::Copy { .. }, None) | (ZygoteRequest::Bury { .. }, Some(_)) => {
                    return Err(WorkerFrameError::Shape.into());
                }
            }
        }
    }

    /// Takes the new socket, lowers the limits and the allowed calls, and reports its locks.
    fn become_copy(mut self, socket: OwnedFd, cast: ZygoteJail, cpu_seconds: u64) -> Result<Self, WorkerError> {
        let ZygoteJail { mut layers, mode, memory } = cast;
        // This closes the zygote's socket, the only thing that the two had in common.
        rustix::io::dup3(&socket, &mut self.socket, rustix::io::DupFlags::empty()).map_err(std::io::Error::from)?;
        drop(socket);
        self.decoder = WorkerFrameDecoder::default();
        layers.again(JailLayerName::Limits, limits::lower(memory, cpu_seconds));
        let ends = set_parent_process_death_signal(Some(Signal::KILL));
        layers.again(JailLayerName::Dumpable, ends.map(|()| "no core, no look inside, ends with its mould".to_owned()));
        layers.again(JailLayerName::Seccomp, seccomp::load(seccomp::SyscallList::Plain, std::process::id()));
        let suffice = layers.suffice(mode);
        self.say(MessageToGateway::Locked(LockedInMessage { layers }))?;
        if suffice { Ok(self) } else { Err(WorkerError::NotLockedIn) }
    }

    /// The next request, with the socket that came with it.
    fn wish(&mut self) -> Result<(ZygoteRequest, Option<OwnedFd>), WorkerError> {
        let (bytes, socket) = receive::<WISH>(self.socket.as_fd())?;
        Ok((ZygoteRequest::decode(&bytes).ok_or(WorkerFrameError::Shape)?, socket))
    }

    fn answer(&mut self, answer: ZygoteResponse, copy: Option<&OwnedFd>) -> Result<(), WorkerError> {
        Ok(send(self.socket.as_fd(), &answer.encode(), copy)?)
    }
}

/// Consolidates free memory once. Otherwise each fork would do it, on pages that are copied for it.
fn tidy() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the allocator has no safe form of it")]
    // SAFETY: the call takes no pointer and gives free memory back; the process has one thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Forks this process, which has one thread.
fn fork_process() -> rustix::io::Result<ForkSide> {
    let mut copy: libc::c_int = -1;
    #[expect(unsafe_code, reason = "there is no safe clone")]
    // SAFETY: with these flags the call is a fork: the child has its own memory and continues here on its own stack.
    // The process has one thread, so no missing thread holds a lock. The third argument is where the kernel stores a
    // descriptor of the child, and only on the zygote's side.
    let number = unsafe {
        let (flags, none) = (libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD), 0 as libc::c_long);
        libc::syscall(libc::SYS_clone, flags, none, &raw mut copy, none, none)
    };
    match i32::try_from(number) {
        Ok(0) => Ok(ForkSide::Copy),
        Ok(number) if number > 0 => {
            #[expect(unsafe_code, reason = "the kernel gives the descriptor as a number")]
            // SAFETY: the clone succeeded, so the kernel has stored a new descriptor that nobody else owns.
            let copy = unsafe { OwnedFd::from_raw_fd(copy) };
            Ok(ForkSide::Mould { number, copy })
        }
        Ok(_) | Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
    }
}

/// Waits for the end of a fork, which is near or past, and reaps it.
fn bury(number: i32) -> ZygoteResponse {
    match wait(libc::P_PID, number) {
        Ok(ended) => ZygoteResponse::Buried { code: ended.code, status: ended.status, millis: ended.cpu.as_millis() },
        Err(error) => ZygoteResponse::Failed { errno: error.raw_os_error().unwrap_or(-1) },
    }
}
