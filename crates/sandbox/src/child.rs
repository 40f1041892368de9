//! The worker's half: lock in, read the job, communicate, report.
//!
//! Takes only the frame socket that it was started with; gives an [`LockedInWorker`], whose existence means that the locks are
//! on. Promise: no byte of the job is read before the locks are on, and if a mandatory lock is missing, the job is not
//! read at all unless the gateway said `degraded`.

mod scratch;
mod zygote;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

pub use scratch::WorkerScratchFolder;

use crate::jail::{descriptors, landlock, limits, privileges, root, seccomp};
use sluice_protocol::{
    CrashLocation, ExchangeReply, LockedInMessage, MessageToGateway, MessageToWorker, NextItemReply, WorkerExchange,
    WorkerFrameDecoder, WorkerFrameError, WorkerItem, WorkerJob, WorkerProgress, WorkerReport, WorkerTerms,
};
use sluice_protocol::{JailLayerName, JailLayers};

/// The exit code after a report.
pub const EXIT_DONE: i32 = 0;
/// The exit code after an expected fault: no job, no locks, a broken pipe.
pub const EXIT_FAULT: i32 = 70;
/// The exit code of an abort: memory or stack ran out.
pub const EXIT_ABORTED: i32 = 86;
/// The exit code of a panic.
pub const EXIT_PANICKED: i32 = 101;

/// Why a worker cannot work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// There is no gateway at the other end: a person started it.
    #[error("a worker is started by the gateway, not by hand")]
    NoParent,
    /// The pipe to the gateway broke.
    #[error("the gateway cannot be reached: {0}")]
    Pipe(#[from] io::Error),
    /// The gateway sent an unexpected message.
    #[error("the gateway sent an unexpected message: {0}")]
    Frame(#[from] WorkerFrameError),
    /// A mandatory layer is missing.
    #[error("a layer is missing and `sandbox` is `required`")]
    NotLockedIn,
}

/// A worker that is locked in.
#[derive(Debug)]
pub struct LockedInWorker {
    // The process end closes both: `close` is not in the list of allowed calls.
    socket: ManuallyDrop<OwnedFd>,
    decoder: WorkerFrameDecoder,
    scratch: Option<ManuallyDrop<OwnedFd>>,
    /// For a zygote: the settings of its forks.
    mould: Option<zygote::ZygoteJail>,
}

/// Locks this process in. This is the first thing that a worker does; there must be only one thread. `last` is called
/// while system files can still be read: after it, a worker with its own root finds none.
///
/// # Errors
/// When there is no gateway, or a mandatory lock is missing.
pub fn enter(last: impl FnOnce()) -> Result<LockedInWorker, WorkerError> {
    let socket = descriptors::frames().map_err(|_| WorkerError::NoParent)?;
    let mut inside = LockedInWorker {
        socket: ManuallyDrop::new(socket),
        decoder: WorkerFrameDecoder::default(),
        scratch: None,
        mould: None,
    };
    let terms = match inside.hear()? {
        MessageToWorker::Terms(terms) => terms,
        MessageToWorker::Job(_) | MessageToWorker::Reply(_) | MessageToWorker::NextItem(_) => {
            return Err(WorkerFrameError::OutOfTurn.into());
        }
    };
    if terms.scratch_bytes.is_some() {
        inside.scratch = Some(ManuallyDrop::new(descriptors::scratch()?));
    }
    let layers = lock(&terms, inside.scratch.as_deref(), last);
    let suffice = layers.suffice(terms.mode);
    inside.mould =
        terms.mould.then(|| zygote::ZygoteJail { layers: layers.clone(), mode: terms.mode, memory: terms.memory });
    inside.say(MessageToGateway::Locked(LockedInMessage { layers }))?;
    if suffice { Ok(inside) } else { Err(WorkerError::NotLockedIn) }
}

/// Sets the locks, in an order that matters.
fn lock(terms: &WorkerTerms, scratch: Option<&OwnedFd>, last: impl FnOnce()) -> JailLayers {
    let mut layers = JailLayers::default();
    let with_scratch = scratch.is_some();
    // First the locks that need no rights. The parent blocked signals across exec.
    end_on_abort();
    layers.note(JailLayerName::Descriptors, descriptors::close_others(with_scratch));
    let empty = std::env::vars_os().next().is_none();
    layers.note(JailLayerName::Environment, if empty { Ok("empty".to_owned()) } else { Err("it is not empty") });
    layers.note(JailLayerName::Limits, limits::set(terms));
    layers.note(JailLayerName::Namespaces, terms.namespaces.clone().map(|()| "own of each kind".to_owned()));
    // Before the capabilities are dropped: this needs one, which is valid only inside the namespaces.
    match &terms.namespaces {
        Ok(()) => layers.note(JailLayerName::EmptyRoot, root::empty()),
        Err(_) => layers.note(JailLayerName::EmptyRoot, Err("there is no namespace for it")),
    }
    // Before Landlock and seccomp, which need no-new-privileges.
    layers.note(JailLayerName::Privileges, privileges::drop_all());
    layers.note(JailLayerName::Dumpable, privileges::close_to_others());
    // Before Landlock, which would make the system log each failed lookup of a file.
    last();
    // Landlock before seccomp: the filter does not allow to create a ruleset.
    layers.note(JailLayerName::Landlock, landlock::restrict(scratch));
    let list = match (terms.mould, with_scratch) {
        (true, _) => seccomp::SyscallList::Mould,
        (false, true) => seccomp::SyscallList::Scratch,
        (false, false) => seccomp::SyscallList::Plain,
    };
    layers.note(JailLayerName::Seccomp, seccomp::load(list, std::process::id()));
    layers
}

/// Turns an abort into an exit code, and unblocks signals. As the first process of its namespace, a worker would
/// otherwise ignore its own SIGABRT.
fn end_on_abort() {
    extern "C" fn ended(_: libc::c_int) {
        #[expect(unsafe_code, reason = "only `_exit` may be called in a handler")]
        // SAFETY: `_exit` may be called in a signal handler and touches no memory.
        unsafe {
            libc::_exit(EXIT_ABORTED);
        }
    }
    let handler: extern "C" fn(libc::c_int) = ended;
    #[expect(unsafe_code, reason = "handlers have no safe form")]
    // SAFETY: all-zero is a valid `sigaction` and `sigset_t`; the handler only calls `_exit`; the process has one
    // thread.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        // The remaining stack may be empty: the standard library has set up another one for faults.
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGABRT, &raw const action, std::ptr::null_mut());
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

impl LockedInWorker {
    /// Receives the one job.
    ///
    /// # Errors
    /// When the gateway is gone or sends an unexpected message.
    pub fn job(&mut self) -> Result<WorkerJob, WorkerError> {
        match self.hear()? {
            MessageToWorker::Job(job) => Ok(job),
            MessageToWorker::Terms(_) | MessageToWorker::Reply(_) | MessageToWorker::NextItem(_) => {
                Err(WorkerFrameError::OutOfTurn.into())
            }
        }
    }

    /// Asks the gateway to send a request, and waits.
    ///
    /// # Errors
    /// When the gateway is gone or sends an unexpected message.
    pub fn exchange(&mut self, exchange: WorkerExchange) -> Result<ExchangeReply, WorkerError> {
        self.say(MessageToGateway::Exchange(exchange))?;
        match self.hear()? {
            MessageToWorker::Reply(reply) => Ok(reply),
            MessageToWorker::Terms(_) | MessageToWorker::Job(_) | MessageToWorker::NextItem(_) => {
                Err(WorkerFrameError::OutOfTurn.into())
            }
        }
    }

    /// Asks the gateway for the next item of its conversation, and waits.
    ///
    /// # Errors
    /// When the gateway is gone or sends an unexpected message.
    pub fn next_item(&mut self) -> Result<NextItemReply, WorkerError> {
        self.say(MessageToGateway::NextItem)?;
        match self.hear()? {
            MessageToWorker::NextItem(reply) => Ok(reply),
            MessageToWorker::Terms(_) | MessageToWorker::Job(_) | MessageToWorker::Reply(_) => {
                Err(WorkerFrameError::OutOfTurn.into())
            }
        }
    }

    /// Sends one result.
    ///
    /// # Errors
    /// When the gateway is gone, or the item is too large.
    pub fn item(&mut self, item: WorkerItem) -> Result<(), WorkerError> {
        self.say(MessageToGateway::Item(item))
    }

    /// Reports the progress of the job.
    ///
    /// # Errors
    /// When the gateway is gone.
    pub fn progress(&mut self, progress: WorkerProgress) -> Result<(), WorkerError> {
        self.say(MessageToGateway::Progress(progress))
    }

    /// Reports how the job ended. Nothing can be sent after it.
    ///
    /// # Errors
    /// When the gateway is gone, or the report is too large.
    pub fn report(mut self, report: WorkerReport) -> Result<(), WorkerError> {
        self.say(MessageToGateway::Report(report))
    }

    /// The scratch folder, if the job has one.
    #[must_use]
    pub fn scratch(&self) -> Option<WorkerScratchFolder<'_>> {
        self.scratch.as_deref().map(|folder| WorkerScratchFolder::new(folder.as_fd()))
    }

    fn say(&mut self, message: MessageToGateway) -> Result<(), WorkerError> {
        let bytes = message.encode()?;
        Ok(write_all(self.socket.as_fd(), &bytes)?)
    }

    fn hear(&mut self) -> Result<MessageToWorker, WorkerError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(MessageToWorker::decode(frame)?);
            }
            // Most frames are short, and a page of stack that is never touched costs nothing.
            if self.decoder.is_midway() {
                self.receive::<{ 16 << 10 }>()?;
            } else {
                self.receive::<{ 1 << 10 }>()?;
            }
        }
    }

    /// Reads what has arrived, at most this many bytes. Not inlined: the caller would touch its stack.
    #[inline(never)]
    fn receive<const MOST: usize>(&mut self) -> Result<(), WorkerError> {
        let mut piece = [0; MOST];
        // Plain read and write: the filter allows no other use of a socket.
        match rustix::io::read(self.socket.as_fd(), piece.as_mut_slice()) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => self.decoder.feed(piece.get(..count).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(())
    }
}

/// Reports where it crashed, for a panic hook. Only a place in our source leaves, never the words of the panic.
pub fn last_words(place: &str) {
    #[expect(unsafe_code, reason = "a hook owns nothing and knows the socket by its number alone")]
    // SAFETY: a worker keeps this descriptor open until it ends; were it closed, the write would fail and nothing else.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptors::FRAMES) };
    if let Ok(bytes) = MessageToGateway::LastWords(CrashLocation { place: place.to_owned() }).encode() {
        // If this fails, nobody is left to notify.
        let _told = write_all(socket, &bytes);
    }
}

/// Ends the process at once: nothing is flushed and no handler runs.
pub fn exit(code: i32) -> ! {
    #[expect(unsafe_code, reason = "the standard library's exit runs what was registered for it")]
    // SAFETY: ends the process and does not return.
    unsafe {
        libc::_exit(code)
    }
}

fn write_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(socket, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
