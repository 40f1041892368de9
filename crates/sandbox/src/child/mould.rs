//! A mould: a worker that never has a job, and of which copies are made that have one each.
//!
//! It is locked in like every worker and has built what reading needs. It hears two wishes: a copy, and how a copy
//! ended. A copy takes its own socket in place of the mould's, gives up what only the mould may do, and says how it is
//! locked in before it reads a byte of its job. Promise: nothing from outside ever reaches the mould, so that every
//! copy begins as it did; a copy has no way to the mould or to another copy.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{Inside, WorkerError};
use crate::jail::{limits, seccomp};
use crate::layers::{LayerName, Layers, Mode};
use crate::protocol::mould::{Answer, WISH, Wish};
use crate::protocol::{Decoder, Locked, Malformed, ToGateway};

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
        let mut bytes = [0; WISH];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let count = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(self.socket.as_fd(), into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(std::io::Error::from(error).into()),
            }
        };
        if count == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        let socket = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut handed) => handed.next(),
            _ => None,
        });
        let wish = Wish::decode(bytes.get(..count).unwrap_or_default()).ok_or(Malformed::Shape)?;
        Ok((wish, socket))
    }

    fn answer(&mut self, answer: Answer, copy: Option<&OwnedFd>) -> Result<(), WorkerError> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        let handed = copy.map(|copy| [copy.as_fd()]);
        if let Some(handed) = &handed {
            beside.push(SendAncillaryMessage::ScmRights(handed));
        }
        let bytes = answer.encode();
        let sent = rustix::net::sendmsg(self.socket.as_fd(), &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL);
        match sent {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(Malformed::Half.into()),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
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
    loop {
        #[expect(unsafe_code, reason = "no safe wait tells what a process used")]
        // SAFETY: all-zero is a valid value of both structures and the call fills them. After a success `siginfo` describes
        // an ended child, so its status is set.
        let (done, code, status, usage) = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            let mut usage: libc::rusage = std::mem::zeroed();
            let done =
                libc::syscall(libc::SYS_waitid, libc::P_PID, number, &raw mut about, libc::WEXITED, &raw mut usage);
            (done, about.si_code, about.si_status(), usage)
        };
        if done == 0 {
            return Answer::Buried { code, status, millis: crate::parent::spent(&usage).as_millis() };
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Answer::Failed { errno: error.raw_os_error().unwrap_or(-1) };
        }
    }
}
