//! Moulds: a process that is locked in and ready, and copies of it that do one job each.
//!
//! Takes limits; gives a worker that waits for its job, for the price of a copy instead of that of a start. The mould
//! itself never gets a job ([`crate::child::Inside::copies`]). Promise: a copy is held and buried like every worker; when the mould
//! is dropped or breaks, it and all its copies are dead.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sluice_core::{Clock, Span};

use super::life::{Exit, Life};
use super::start::Born;
use super::{Alone, Cancel, End, Host, Limits, NotStarted, Spawner, Task, watch};
use crate::layers::Mode;
use crate::protocol::mould::{ANSWER, Answer, Wish, receive, send};
use crate::protocol::{Job, Malformed, ToWorker};

/// How long a mould may take for an answer.
const SLOWEST: Duration = Duration::from_secs(5);

/// A process of which copies are made. It ends with the thread that started it, and when it is dropped.
pub struct Mould {
    copies: Copies,
    /// Killed and reaped last: the kernel ends its copies with it.
    _life: Life,
    here: PhantomData<*const ()>,
}

impl std::fmt::Debug for Mould {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mould").field("copies", &self.copies).finish_non_exhaustive()
    }
}

/// The way to a mould, from any thread.
#[derive(Clone)]
pub struct Copies {
    desk: Arc<Desk>,
    clock: Arc<dyn Clock>,
    mode: Mode,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").field("made", &self.made()).finish_non_exhaustive()
    }
}

/// Where a mould is asked. Once it did not answer as it must, nobody is there any more.
#[derive(Debug)]
pub(super) struct Desk {
    socket: Mutex<Option<OwnedFd>>,
    made: AtomicU64,
}

impl Spawner {
    /// Starts a mould and stays until it is locked in. `memory` and `cpu` are the most that any of its copies may use.
    ///
    /// # Errors
    /// It could not be started, or was not locked in well enough.
    pub fn mould(&self, most: Limits, mode: Mode) -> Result<Mould, NotStarted> {
        let started = self.clock.since_boot();
        let born = self.start(None)?;
        let job = Job { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let task = Task { job, limits: most, mode, scratch: None };
        let cancel = Cancel::new().map_err(NotStarted::Spawn)?;
        let around = watch::Around { host: &mut Alone, cancel: &cancel, clock: self.clock.as_ref(), started };
        let (life, socket) = watch::lock_in(born, &task, around, watch::Becomes::Mould)?.apart();
        let patient = || -> io::Result<()> {
            rustix::io::ioctl_fionbio(&socket, false)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(SLOWEST))?;
            Ok(set_socket_timeout(&socket, Timeout::Send, Some(SLOWEST))?)
        };
        patient().map_err(NotStarted::Spawn)?;
        let desk = Arc::new(Desk { socket: Mutex::new(Some(socket)), made: AtomicU64::new(0) });
        let copies = Copies { desk, clock: Arc::clone(&self.clock), mode };
        Ok(Mould { copies, _life: life, here: PhantomData })
    }
}

impl Mould {
    /// The way to it.
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.copies.clone()
    }
}

impl Drop for Mould {
    fn drop(&mut self) {
        self.copies.desk.shut();
    }
}

impl Copies {
    /// A worker that is locked in and waits for its one job. It has no folder.
    ///
    /// # Errors
    /// The mould is not there any more, or the copy was not locked in well enough to be given a job.
    pub fn copy(&self, limits: Limits) -> Result<Copy, NotStarted> {
        let started = self.clock.since_boot();
        let born = self.desk.copy(limits.cpu.as_millis().div_ceil(1000).max(1)).map_err(NotStarted::Spawn)?;
        let job = Job { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let task = Task { job, limits, mode: self.mode, scratch: None };
        let cancel = Cancel::new().map_err(NotStarted::Spawn)?;
        let around = watch::Around { host: &mut Alone, cancel: &cancel, clock: self.clock.as_ref(), started };
        let waiting = watch::lock_in(born, &task, around, watch::Becomes::Copy)?;
        Ok(Copy { waiting, clock: Arc::clone(&self.clock) })
    }

    /// How many were made.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.desk.made.load(Ordering::Relaxed)
    }

    /// Whether the mould answered as it must until now.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.desk.socket.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// A copy of a mould that waits for its one job.
pub struct Copy {
    waiting: watch::Waiting,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Copy")
    }
}

impl Copy {
    /// Whether it still waits.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.waiting.is_there()
    }

    /// Gives it its job, and stays until it is over. Its time begins now.
    ///
    /// # Errors
    /// The job has no kind or is too large.
    pub fn perform(self, job: Job, host: &mut dyn Host, cancel: &Cancel) -> Result<End, NotStarted> {
        if !job.has_a_kind() {
            return Err(NotStarted::Job(Malformed::Shape));
        }
        let job = ToWorker::Job(job).encode()?;
        let started = self.clock.since_boot();
        self.waiting.perform(job, watch::Around { host, cancel, clock: self.clock.as_ref(), started })
    }
}

impl Desk {
    fn copy(self: &Arc<Self>, cpu_seconds: u64) -> io::Result<Born> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        match self.ask(Wish::Copy { cpu_seconds }, Some(&theirs))? {
            (Answer::Copied { number }, Some(process)) => {
                self.made.fetch_add(1, Ordering::Relaxed);
                let life = Life::of_copy(process, number, Arc::clone(self));
                Ok(Born { life, pid: 0, socket: ours, namespaces: Ok(()) })
            }
            (Answer::Failed { errno }, None) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(self.broken()),
        }
    }

    /// How a copy ended that has ended or was killed; nothing if nobody can say.
    pub(super) fn bury(&self, number: i32) -> Option<(Exit, Span)> {
        match self.ask(Wish::Bury { number }, None).ok()? {
            (Answer::Buried { code, status, millis }, None) => {
                Some((Exit::from_wait(code, status), Span::from_millis(millis)))
            }
            (Answer::Failed { .. }, None) => None,
            _ => {
                self.shut();
                None
            }
        }
    }

    /// One wish, one answer. Whatever goes wrong in between ends the mould, or an answer would be taken for another's.
    fn ask(&self, wish: Wish, with: Option<&OwnedFd>) -> io::Result<(Answer, Option<OwnedFd>)> {
        let mut place = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = place.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let asked = send(socket.as_fd(), &wish.encode(), with).and_then(|()| {
            let (bytes, handed) = receive::<ANSWER>(socket.as_fd())?;
            Ok((Answer::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?, handed))
        });
        if asked.is_err() {
            *place = None;
        }
        asked
    }

    fn broken(&self) -> io::Error {
        self.shut();
        io::Error::from(io::ErrorKind::InvalidData)
    }

    /// Nobody is asked any more. The mould sees the end of its socket and ends, and its copies with it.
    fn shut(&self) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
