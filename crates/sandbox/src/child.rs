//! The worker's half: lock the doors, read the job, speak, report.
//!
//! Takes nothing but the frame socket it was born with; gives an [`Inside`], whose existence means that the
//! locks are on. Promise: not a byte of the job is read before they are, and when a mandatory lock is missing
//! the job is not read at all unless the gateway said `degraded`.

mod mould;
mod scratch;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

pub use scratch::Scratch;

use crate::jail::{descriptors, landlock, limits, privileges, root, seccomp};
use crate::layers::{LayerName, Layers};
use crate::protocol::{
    Decoder, Exchange, Item, Job, LastWords, Locked, Malformed, Progress, Reply, Report, Terms, ToGateway, ToWorker,
};

/// The exit code after a report.
pub const EXIT_DONE: i32 = 0;
/// The exit code after a fault that was seen coming: no job, no locks, a torn pipe.
pub const EXIT_FAULT: i32 = 70;
/// The exit code of an abort: memory or stack ran out.
pub const EXIT_ABORTED: i32 = 86;
/// The exit code of a panic.
pub const EXIT_PANICKED: i32 = 101;

/// Why a worker cannot work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Nobody is at the other end: a person started it.
    #[error("a worker is started by the gateway, not by hand")]
    NoParent,
    /// The pipe broke.
    #[error("the gateway cannot be reached: {0}")]
    Pipe(#[from] io::Error),
    /// The gateway said something else.
    #[error("the gateway sent something else: {0}")]
    Frame(#[from] Malformed),
    /// A mandatory layer is missing.
    #[error("a layer is missing and `sandbox` is `required`")]
    NotLockedIn,
}

/// A worker behind closed doors.
#[derive(Debug)]
pub struct Inside {
    // Neither is ever closed but by the end of the process: closing is not in the list of calls.
    socket: ManuallyDrop<OwnedFd>,
    decoder: Decoder,
    scratch: Option<ManuallyDrop<OwnedFd>>,
    /// Of a mould: what its copies keep to.
    mould: Option<mould::Cast>,
}

/// Locks this process in. The first thing a worker does; there must be one thread only. `last` is called while the
/// system can still be asked something, and after it cannot be found any more where there is a root of its own.
///
/// # Errors
/// There is no gateway, or a lock is missing that must not be.
pub fn enter(last: impl FnOnce()) -> Result<Inside, WorkerError> {
    let socket = descriptors::frames().map_err(|_| WorkerError::NoParent)?;
    let mut inside =
        Inside { socket: ManuallyDrop::new(socket), decoder: Decoder::default(), scratch: None, mould: None };
    let terms = match inside.hear()? {
        ToWorker::Terms(terms) => terms,
        ToWorker::Job(_) | ToWorker::Reply(_) => return Err(Malformed::OutOfTurn.into()),
    };
    if terms.scratch_bytes.is_some() {
        inside.scratch = Some(ManuallyDrop::new(descriptors::scratch()?));
    }
    let layers = lock(&terms, inside.scratch.as_deref(), last);
    let suffice = layers.suffice(terms.mode);
    inside.mould = terms.mould.then(|| mould::Cast { layers: layers.clone(), mode: terms.mode, memory: terms.memory });
    inside.say(ToGateway::Locked(Locked { layers }))?;
    if suffice { Ok(inside) } else { Err(WorkerError::NotLockedIn) }
}

/// The locks, in an order that matters.
fn lock(terms: &Terms, scratch: Option<&OwnedFd>, last: impl FnOnce()) -> Layers {
    let mut layers = Layers::default();
    let with_scratch = scratch.is_some();
    // First what needs no right of its own. Signals were blocked across exec by the parent.
    end_on_abort();
    layers.note(LayerName::Descriptors, descriptors::close_others(with_scratch));
    let empty = std::env::vars_os().next().is_none();
    layers.note(LayerName::Environment, if empty { Ok("empty".to_owned()) } else { Err("it is not empty") });
    layers.note(LayerName::Limits, limits::set(terms));
    layers.note(LayerName::Namespaces, terms.namespaces.clone().map(|()| "own of each kind".to_owned()));
    // Before the capabilities go: this needs one, and it is good only inside the namespaces.
    match &terms.namespaces {
        Ok(()) => layers.note(LayerName::EmptyRoot, root::empty()),
        Err(_) => layers.note(LayerName::EmptyRoot, Err("there is no namespace for it")),
    }
    // Before Landlock and seccomp, which ask for no-new-privileges.
    layers.note(LayerName::Privileges, privileges::drop_all());
    layers.note(LayerName::Dumpable, privileges::close_to_others());
    // Before Landlock, which would have each vain look for a file written down where the system keeps a record.
    last();
    // Landlock before seccomp: the filter does not let a ruleset be made any more.
    layers.note(LayerName::Landlock, landlock::restrict(scratch));
    let list = match (terms.mould, with_scratch) {
        (true, _) => seccomp::List::Mould,
        (false, true) => seccomp::List::Scratch,
        (false, false) => seccomp::List::Plain,
    };
    layers.note(LayerName::Seccomp, seccomp::load(list, std::process::id()));
    layers
}

/// Turns an abort into an exit code, and lets signals through again. As first process of its namespace a worker
/// would not even notice its own SIGABRT.
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
        // The stack that is left may be none: the standard library has set one up for faults.
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGABRT, &raw const action, std::ptr::null_mut());
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

impl Inside {
    /// The one job.
    ///
    /// # Errors
    /// The gateway is gone or sends something else.
    pub fn job(&mut self) -> Result<Job, WorkerError> {
        match self.hear()? {
            ToWorker::Job(job) => Ok(job),
            ToWorker::Terms(_) | ToWorker::Reply(_) => Err(Malformed::OutOfTurn.into()),
        }
    }

    /// Asks the gateway to send something, and waits.
    ///
    /// # Errors
    /// The gateway is gone or sends something else.
    pub fn exchange(&mut self, exchange: Exchange) -> Result<Reply, WorkerError> {
        self.say(ToGateway::Exchange(exchange))?;
        match self.hear()? {
            ToWorker::Reply(reply) => Ok(reply),
            ToWorker::Terms(_) | ToWorker::Job(_) => Err(Malformed::OutOfTurn.into()),
        }
    }

    /// Hands over one result.
    ///
    /// # Errors
    /// The gateway is gone, or the item is too large.
    pub fn item(&mut self, item: Item) -> Result<(), WorkerError> {
        self.say(ToGateway::Item(item))
    }

    /// Says how far the job is.
    ///
    /// # Errors
    /// The gateway is gone.
    pub fn progress(&mut self, progress: Progress) -> Result<(), WorkerError> {
        self.say(ToGateway::Progress(progress))
    }

    /// Says how the job ended. Nothing can be said after it.
    ///
    /// # Errors
    /// The gateway is gone, or the report is too large.
    pub fn report(mut self, report: Report) -> Result<(), WorkerError> {
        self.say(ToGateway::Report(report))
    }

    /// The scratch folder, if the job has one.
    #[must_use]
    pub fn scratch(&self) -> Option<Scratch<'_>> {
        self.scratch.as_deref().map(|folder| Scratch::new(folder.as_fd()))
    }

    fn say(&mut self, message: ToGateway) -> Result<(), WorkerError> {
        let bytes = message.encode()?;
        Ok(write_all(self.socket.as_fd(), &bytes)?)
    }

    fn hear(&mut self) -> Result<ToWorker, WorkerError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(ToWorker::decode(frame)?);
            }
            // Most frames are short, and a page of stack that is never touched costs nothing.
            if self.decoder.is_midway() {
                self.receive::<{ 16 << 10 }>()?;
            } else {
                self.receive::<{ 1 << 10 }>()?;
            }
        }
    }

    /// Takes what has come, at most so many bytes. Not inlined: its stack would be touched by whoever calls it.
    #[inline(never)]
    fn receive<const MOST: usize>(&mut self) -> Result<(), WorkerError> {
        let mut piece = [0; MOST];
        // Plain read and write: the filter knows no other way to use a socket.
        match rustix::io::read(self.socket.as_fd(), piece.as_mut_slice()) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => self.decoder.feed(piece.get(..count).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(())
    }
}

/// Says where it broke, for a panic hook. Only a place in our source leaves, never the words of the panic.
pub fn last_words(place: &str) {
    #[expect(unsafe_code, reason = "a hook owns nothing and knows the socket by its number alone")]
    // SAFETY: a worker keeps this descriptor open until it ends; were it closed, the write would fail and nothing else.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptors::FRAMES) };
    if let Ok(bytes) = ToGateway::LastWords(LastWords { place: place.to_owned() }).encode() {
        // Nobody is left to tell.
        let _told = write_all(socket, &bytes);
    }
}

/// Ends the process at once: nothing is flushed, nothing runs any more.
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
