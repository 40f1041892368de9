//! Strangers: programs of others that stay, behind the looser profile of [`crate::stranger`].
//!
//! Takes what such a program may reach; gives the process, its three standard descriptors and the layers that hold.
//! Promise: it is started by our own program, which locks itself in before it becomes the other; when it is waited for
//! or dropped, it is dead, and with it everything it started (without namespaces: everything that stayed in its
//! group).

use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketFlags, SocketType, recvmsg,
    shutdown, socketpair,
};
use rustix::process::{Pid, Signal, kill_process_group};

use sluice_core::Span;

use super::life::{Exit, Life};
use super::{Cancel, End, Host, NotStarted, Spawner, Task, start, watch};
use crate::layers::{LayerName, Layers};
use crate::protocol::{Job, Malformed, ToWorker};
use crate::stranger::{Network, ROLE, Said, Terms};

/// How long our own program may take until it has become the other.
const BECOMING: Duration = Duration::from_secs(20);

/// A program of others that runs.
#[derive(Debug)]
pub struct Stranger {
    life: Option<Life>,
    pid: i32,
    /// How it is locked in.
    pub layers: Layers,
    /// What it reads; closed for it to see the end.
    pub input: Option<OwnedFd>,
    /// What it writes.
    pub output: Option<OwnedFd>,
    /// What it complains about.
    pub error: Option<OwnedFd>,
    /// The socket that listens at the one port of its own network namespace, if it has one: accept from it here.
    pub listener: Option<OwnedFd>,
}

impl Spawner {
    /// Starts a program of others. The calling thread has to stay as long as the program should: it ends with it.
    ///
    /// # Errors
    /// It could not be started, or not be locked in.
    pub fn stranger(&self, mut terms: Terms) -> Result<Stranger, NotStarted> {
        let failed = NotStarted::Spawn;
        let (theirs_in, input) = io::pipe().map_err(failed)?;
        let (output, theirs_out) = io::pipe().map_err(failed)?;
        let (error, theirs_error) = io::pipe().map_err(failed)?;
        let [theirs_in, theirs_out, theirs_error] =
            [OwnedFd::from(theirs_in), OwnedFd::from(theirs_out), OwnedFd::from(theirs_error)];
        let high = |fd: &OwnedFd| start::high(fd).map_err(failed);
        let standard = [high(&theirs_in)?, high(&theirs_out)?, high(&theirs_error)?];
        let [one, two, three] = &standard;
        let born = start::start(&start::Birth {
            program: &self.program.0,
            role: ROLE,
            standard: [one, two, three],
            scratch: None,
            namespaces: self.namespaces,
            network: match terms.network {
                Network::None => start::BirthNetwork::Empty,
                Network::OwnNamespace { .. } => start::BirthNetwork::SetUp,
                Network::MachinePort { .. } => start::BirthNetwork::Shared,
            },
        })
        .map_err(failed)?;
        terms.namespaces = born.namespaces;
        let (said, listener) = tell(born.socket, &terms).map_err(failed)?;
        let stranger = Stranger {
            life: Some(born.life),
            pid: born.pid,
            layers: said.layers,
            input: Some(input.into()),
            output: Some(output.into()),
            error: Some(error.into()),
            listener,
        };
        refused(said.trouble, said.missing)?;
        Ok(stranger)
    }

    /// Has a program of others do one job, and stays until it is over. It speaks in the frames of a worker, over its
    /// standard input and output, which are one socket; it is locked in before its first instruction and never says so
    /// itself.
    ///
    /// # Errors
    /// It could not be started, or not be locked in well enough to be given the job.
    pub fn errand(
        &self,
        mut task: Task<'_>,
        mut terms: Terms,
        host: &mut dyn Host,
        cancel: &Cancel,
    ) -> Result<End, NotStarted> {
        if !task.job.has_a_kind() {
            return Err(NotStarted::Job(Malformed::Shape));
        }
        let nothing = Job { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let job = ToWorker::Job(std::mem::replace(&mut task.job, nothing)).encode()?;
        let started = self.clock.since_boot();
        let failed = |error: rustix::io::Errno| NotStarted::Spawn(error.into());
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.map_err(failed)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(failed)?;
        let theirs = start::high(&theirs).map_err(NotStarted::Spawn)?;
        let born = start::start(&start::Birth {
            program: &self.program.0,
            role: ROLE,
            standard: [&theirs, &theirs, &self.nothing],
            scratch: None,
            namespaces: self.namespaces,
            network: start::BirthNetwork::Empty,
        });
        let born = born.map_err(NotStarted::Spawn)?;
        drop(theirs);
        (terms.namespaces, terms.mode, terms.network) = (born.namespaces, task.mode, Network::None);
        let (said, _) = tell(born.socket, &terms).map_err(NotStarted::Spawn)?;
        refused(said.trouble, said.missing)?;
        let waiting = watch::Waiting::locked_in(born.life, ours, &task, said.layers);
        waiting.perform(job, watch::Around { host, cancel, clock: self.clock.as_ref(), started })
    }
}

/// What our program says that is in the way of becoming the other.
fn refused(trouble: Option<String>, missing: Vec<LayerName>) -> Result<(), NotStarted> {
    match trouble {
        None => Ok(()),
        Some(_) if !missing.is_empty() => Err(NotStarted::Layers(missing)),
        Some(why) => Err(NotStarted::Spawn(io::Error::other(why))),
    }
}

/// Hands the terms over and hears how it went, until the other program has taken the place of ours.
fn tell(socket: OwnedFd, terms: &Terms) -> io::Result<(Said, Option<OwnedFd>)> {
    rustix::io::ioctl_fionbio(&socket, false)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(BECOMING))?;
    set_socket_timeout(&socket, Timeout::Send, Some(BECOMING))?;
    let mut stream = std::os::unix::net::UnixStream::from(socket);
    stream.write_all(&serde_json::to_vec(terms)?)?;
    shutdown(&stream, Shutdown::Write)?;
    let (heard, listener) = hear(&stream)?;
    let said = Said::read(&heard).ok_or_else(|| io::Error::other("it ended before it was locked in"))?;
    Ok((said, listener))
}

/// Everything our program says, and the descriptor it hands over beside that.
fn hear(stream: &std::os::unix::net::UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let (mut heard, mut handed) = (Vec::new(), None);
    loop {
        let mut piece = [0; 4096];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let count = retry_on_intr(|| {
            let into = &mut [IoSliceMut::new(&mut piece)];
            recvmsg(stream, into, &mut beside, RecvFlags::CMSG_CLOEXEC).map(|received| received.bytes)
        })?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                handed = descriptors.last().or(handed);
            }
        }
        match piece.get(..count) {
            Some([]) | None => return Ok((heard, handed)),
            Some(said) => heard.extend_from_slice(said),
        }
    }
}

impl Stranger {
    /// Waits until it ends by itself or is cancelled; then it is dead.
    pub fn wait(mut self, cancel: &Cancel) {
        // Whoever holds these has them; what was left here would keep it waiting for input for ever.
        (self.input, self.output, self.error, self.listener) = (None, None, None, None);
        let Some(life) = &self.life else { return };
        let process = life.as_fd();
        loop {
            let mut watched = [PollFd::new(&process, PollFlags::IN), PollFd::new(&cancel.0, PollFlags::IN)];
            match poll(&mut watched, None) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

impl Stranger {
    /// Waits until it ends by itself or is cancelled, and tells how it ended. What it started ends with it.
    #[must_use]
    pub fn ended(mut self, cancel: &Cancel) -> (ProgramExit, Span) {
        (self.input, self.output, self.error, self.listener) = (None, None, None, None);
        let Some(life) = self.life.take() else { return (ProgramExit::Unknown, Span::ZERO) };
        let process = life.as_fd();
        loop {
            let mut watched = [PollFd::new(&process, PollFlags::IN), PollFd::new(&cancel.0, PollFlags::IN)];
            match poll(&mut watched, None) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        self.end(life)
    }

    /// A handle that sends signals to the program while another thread waits for its end.
    ///
    /// # Errors
    /// The system gives no further descriptor.
    pub fn signals(&self) -> io::Result<ProgramSignals> {
        let life = self.life.as_ref().ok_or_else(|| io::Error::other("the program has ended"))?;
        life.as_fd().try_clone_to_owned().map(ProgramSignals)
    }

    fn end(&self, life: Life) -> (ProgramExit, Span) {
        life.kill();
        // Its number is its own until it is reaped, and it leads the group it made for itself.
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _gone = kill_process_group(pid, Signal::KILL);
        }
        let (exit, processor) = life.bury();
        let exit = match exit {
            Exit::Code(code) => ProgramExit::Code(code),
            Exit::Signal(signal) => ProgramExit::Signal(signal),
            Exit::Unknown => ProgramExit::Unknown,
        };
        (exit, processor)
    }
}

/// How a program of others ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramExit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody can tell.
    Unknown,
}

/// The signals that a program can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramSignal {
    /// `SIGHUP`.
    Hangup,
    /// `SIGINT`.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
}

/// Sends signals to one program. After its end they reach nobody.
#[derive(Debug)]
pub struct ProgramSignals(OwnedFd);

impl ProgramSignals {
    /// Sends a signal. Whether there was still a program to get it.
    pub fn send(&self, signal: ProgramSignal) -> bool {
        let signal = match signal {
            ProgramSignal::Hangup => Signal::HUP,
            ProgramSignal::Interrupt => Signal::INT,
            ProgramSignal::Terminate => Signal::TERM,
            ProgramSignal::Kill => Signal::KILL,
        };
        rustix::process::pidfd_send_signal(&self.0, signal).is_ok()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            self.end(life);
        }
    }
}
