//! Zygotes: a process that is locked in and ready, and forks of it that do one job each.
//!
//! Takes limits; gives a worker that waits for its job, at the cost of a fork instead of a start. The zygote itself
//! never gets a job ([`crate::child::LockedInWorker::serve_as_zygote`]). Promise: a fork is watched and reaped like every worker; when
//! the zygote is dropped or fails, it and all its forks are dead.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sluice_core::{Clock, Millis};

use super::process::{ProcessExit, WorkerProcess};
use super::start::LaunchedProcess;
use super::{
    RefusingWorkerHost, Spawner, WorkerCancel, WorkerEnd, WorkerHost, WorkerLimits, WorkerStartError, WorkerTask, watch,
};
use crate::zygote_protocol::{ANSWER, ZygoteRequest, ZygoteResponse, receive, send};
use sluice_protocol::JailMode;
use sluice_protocol::{MessageToWorker, WorkerFrameError, WorkerJob};

/// How long a zygote may take to answer.
const SLOWEST: Duration = Duration::from_secs(5);

/// A process that is forked for jobs. It ends with the thread that started it, and when it is dropped.
pub struct Zygote {
    copies: ZygoteHandle,
    /// Killed and reaped last: the kernel ends its forks with it.
    _life: WorkerProcess,
    here: PhantomData<*const ()>,
}

impl std::fmt::Debug for Zygote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mould").field("copies", &self.copies).finish_non_exhaustive()
    }
}

/// The handle of a zygote, for any thread.
#[derive(Clone)]
pub struct ZygoteHandle {
    desk: Arc<ZygoteSocket>,
    clock: Arc<dyn Clock>,
    mode: JailMode,
}

impl std::fmt::Debug for ZygoteHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").field("made", &self.children_started()).finish_non_exhaustive()
    }
}

/// The connection to a zygote. After a wrong answer, it is closed.
#[derive(Debug)]
pub(super) struct ZygoteSocket {
    socket: Mutex<Option<OwnedFd>>,
    made: AtomicU64,
}

impl Spawner {
    /// Starts a zygote and waits until it is locked in. `memory` and `cpu` are the most that any of its forks may use.
    ///
    /// # Errors
    /// When it could not be started, or was not locked in well enough.
    pub fn start_zygote(&self, most: WorkerLimits, mode: JailMode) -> Result<Zygote, WorkerStartError> {
        let started = self.clock.since_boot();
        let born = self.start(None)?;
        let job = WorkerJob { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let task = WorkerTask { job, limits: most, mode, scratch: None };
        let cancel = WorkerCancel::new().map_err(WorkerStartError::Spawn)?;
        let around = watch::WorkerWatchContext {
            host: &mut RefusingWorkerHost,
            cancel: &cancel,
            clock: self.clock.as_ref(),
            started,
        };
        let (life, socket) = watch::lock_in(born, &task, around, watch::LaunchRole::Mould)?.apart();
        let patient = || -> io::Result<()> {
            rustix::io::ioctl_fionbio(&socket, false)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(SLOWEST))?;
            Ok(set_socket_timeout(&socket, Timeout::Send, Some(SLOWEST))?)
        };
        patient().map_err(WorkerStartError::Spawn)?;
        let desk = Arc::new(ZygoteSocket { socket: Mutex::new(Some(socket)), made: AtomicU64::new(0) });
        let copies = ZygoteHandle { desk, clock: Arc::clone(&self.clock), mode };
        Ok(Zygote { copies, _life: life, here: PhantomData })
    }
}

impl Zygote {
    /// A handle of the zygote.
    #[must_use]
    pub fn handle(&self) -> ZygoteHandle {
        self.copies.clone()
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.copies.desk.shut();
    }
}

impl ZygoteHandle {
    /// A worker that is locked in and waits for its one job. It has no folder.
    ///
    /// # Errors
    /// When the zygote is gone, or the fork was not locked in well enough to get a job.
    pub fn start_child(&self, limits: WorkerLimits) -> Result<ZygoteChild, WorkerStartError> {
        let started = self.clock.since_boot();
        let born = self.desk.copy(limits.cpu.as_millis().div_ceil(1000).max(1)).map_err(WorkerStartError::Spawn)?;
        let job = WorkerJob { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let task = WorkerTask { job, limits, mode: self.mode, scratch: None };
        let cancel = WorkerCancel::new().map_err(WorkerStartError::Spawn)?;
        let around = watch::WorkerWatchContext {
            host: &mut RefusingWorkerHost,
            cancel: &cancel,
            clock: self.clock.as_ref(),
            started,
        };
        let waiting = watch::lock_in(born, &task, around, watch::LaunchRole::Copy)?;
        Ok(ZygoteChild { waiting, clock: Arc::clone(&self.clock) })
    }

    /// How many forks were made.
    #[must_use]
    pub fn children_started(&self) -> u64 {
        self.desk.made.load(Ordering::Relaxed)
    }

    /// Whether the zygote has answered correctly until now.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.desk.socket.lock().is_some()
    }
}

/// A fork of a zygote that waits for its one job.
pub struct ZygoteChild {
    waiting: watch::WaitingWorker,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for ZygoteChild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Copy")
    }
}

impl ZygoteChild {
    /// Whether it still waits.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.waiting.is_there()
    }

    /// Gives it its job, and waits until it has ended. Its time begins now.
    ///
    /// # Errors
    /// When the job has no kind or is too large.
    pub fn perform(
        self,
        job: WorkerJob,
        host: &mut dyn WorkerHost,
        cancel: &WorkerCancel,
    ) -> Result<WorkerEnd, WorkerStartError> {
        if !job.has_a_kind() {
            return Err(WorkerStartError::Job(WorkerFrameError::Shape));
        }
        let job = MessageToWorker::Job(job).encode()?;
        let started = self.clock.since_boot();
        self.waiting.perform(job, watch::WorkerWatchContext { host, cancel, clock: self.clock.as_ref(), started })
    }
}

impl ZygoteSocket {
    fn copy(self: &Arc<Self>, cpu_seconds: u64) -> io::Result<LaunchedProcess> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        match self.ask(ZygoteRequest::Copy { cpu_seconds }, Some(&theirs))? {
            (ZygoteResponse::Copied { number }, Some(process)) => {
                self.made.fetch_add(1, Ordering::Relaxed);
                let life = WorkerProcess::of_copy(process, number, Arc::clone(self));
                Ok(LaunchedProcess { life, pid: 0, socket: ours, namespaces: Ok(()) })
            }
            (ZygoteResponse::Failed { errno }, None) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(self.broken()),
        }
    }

    /// How a fork ended that has ended or was killed; `None` if it is not known.
    pub(super) fn bury(&self, number: i32) -> Option<(ProcessExit, Millis)> {
        match self.ask(ZygoteRequest::Bury { number }, None).ok()? {
            (ZygoteResponse::Buried { code, status, millis }, None) => {
                Some((ProcessExit::from_wait(code, status), Millis::from_millis(millis)))
            }
            (ZygoteResponse::Failed { .. }, None) => None,
            _ => {
                self.shut();
                None
            }
        }
    }

    /// One request, one answer. Any failure in between ends the zygote: otherwise an answer could be matched to another
    /// request.
    fn ask(&self, wish: ZygoteRequest, with: Option<&OwnedFd>) -> io::Result<(ZygoteResponse, Option<OwnedFd>)> {
        let mut place = self.socket.lock();
        let socket = place.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let asked = send(socket.as_fd(), &wish.encode(), with).and_then(|()| {
            let (bytes, handed) = receive::<ANSWER>(socket.as_fd())?;
            Ok((ZygoteResponse::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?, handed))
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

    /// Stops asking. The zygote sees the end of its socket and ends, and its forks with it.
    fn shut(&self) {
        *self.socket.lock() = None;
    }
}
