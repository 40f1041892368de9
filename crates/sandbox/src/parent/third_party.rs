//! Third-party programs that keep running, behind the looser profile of [`crate::third_party`].
//!
//! Takes what such a program may reach; gives the process, its three standard descriptors and the layers in force.
//! Promise: our own program starts it, and locks itself in before it becomes the other program; after a wait or a drop,
//! it is dead, and with it everything that it started (without namespaces: everything that stayed in its process
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

use sluice_core::Millis;

use super::process::{ProcessExit, WorkerProcess};
use super::{Spawner, WorkerCancel, WorkerEnd, WorkerHost, WorkerStartError, WorkerTask, start, watch};
use crate::third_party::{ROLE, ThirdPartyNetwork, ThirdPartyTerms, WireLockInReport};
use sluice_protocol::{JailLayerName, JailLayers};
use sluice_protocol::{MessageToWorker, WorkerFrameError, WorkerJob};

/// How long our own program may take until it has become the other one.
const BECOMING: Duration = Duration::from_secs(20);

/// A running third-party program.
#[derive(Debug)]
pub struct ThirdPartyProcess {
    life: Option<WorkerProcess>,
    pid: i32,
    /// The layers that lock it in.
    pub layers: JailLayers,
    /// Its standard input; close it to signal the end.
    pub input: Option<OwnedFd>,
    /// Its standard output.
    pub output: Option<OwnedFd>,
    /// Its standard error output.
    pub error: Option<OwnedFd>,
    /// The listening socket on the only port of its own network namespace, if it has one: accept from it here.
    pub listener: Option<OwnedFd>,
}

impl Spawner {
    /// Starts a third-party program. The calling thread must live as long as the program should: the program ends with
    /// it.
    ///
    /// # Errors
    /// When it could not be started or locked in.
    pub fn start_third_party(&self, mut terms: ThirdPartyTerms) -> Result<ThirdPartyProcess, WorkerStartError> {
        let failed = WorkerStartError::Spawn;
        let (theirs_in, input) = io::pipe().map_err(failed)?;
        let (output, theirs_out) = io::pipe().map_err(failed)?;
        let (error, theirs_error) = io::pipe().map_err(failed)?;
        let [theirs_in, theirs_out, theirs_error] =
            [OwnedFd::from(theirs_in), OwnedFd::from(theirs_out), OwnedFd::from(theirs_error)];
        let high = |fd: &OwnedFd| start::high(fd).map_err(failed);
        let standard = [high(&theirs_in)?, high(&theirs_out)?, high(&theirs_error)?];
        let [one, two, three] = &standard;
        let born = start::start(&start::ProcessLaunch {
            program: &self.program.0,
            role: ROLE,
            standard: [one, two, three],
            scratch: None,
            namespaces: self.namespaces,
            network: match terms.network {
                ThirdPartyNetwork::None => start::LaunchNetwork::Empty,
                ThirdPartyNetwork::OwnNamespace { .. } => start::LaunchNetwork::SetUp,
                ThirdPartyNetwork::MachinePort { .. } => start::LaunchNetwork::Shared,
            },
        })
        .map_err(failed)?;
        terms.namespaces = born.namespaces;
        let (said, listener) = tell(born.socket, &terms).map_err(failed)?;
        let stranger = ThirdPartyProcess {
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

    /// Has a third-party program do one job, and waits until it has ended. It speaks the frames of a worker, over its
    /// standard input and output, which are one socket; it is locked in before its first instruction and does not
    /// report that itself.
    ///
    /// # Errors
    /// When it could not be started, or not locked in well enough to get the job.
    pub fn run_third_party_job(
        &self,
        mut task: WorkerTask<'_>,
        mut terms: ThirdPartyTerms,
        host: &mut dyn WorkerHost,
        cancel: &WorkerCancel,
    ) -> Result<WorkerEnd, WorkerStartError> {
        if !task.job.has_a_kind() {
            return Err(WorkerStartError::Job(WorkerFrameError::Shape));
        }
        let nothing = WorkerJob { kind: String::new(), payload: serde_json::Value::Null, attachments: Vec::new() };
        let job = MessageToWorker::Job(std::mem::replace(&mut task.job, nothing)).encode()?;
        let started = self.clock.since_boot();
        let failed = |error: rustix::io::Errno| WorkerStartError::Spawn(error.into());
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.map_err(failed)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(failed)?;
        let theirs = start::high(&theirs).map_err(WorkerStartError::Spawn)?;
        let born = start::start(&start::ProcessLaunch {
            program: &self.program.0,
            role: ROLE,
            standard: [&theirs, &theirs, &self.nothing],
            scratch: None,
            namespaces: self.namespaces,
            network: start::LaunchNetwork::Empty,
        });
        let born = born.map_err(WorkerStartError::Spawn)?;
        drop(theirs);
        (terms.namespaces, terms.mode, terms.network) = (born.namespaces, task.mode, ThirdPartyNetwork::None);
        let (said, _) = tell(born.socket, &terms).map_err(WorkerStartError::Spawn)?;
        refused(said.trouble, said.missing)?;
        let waiting = watch::WaitingWorker::locked_in(born.life, ours, &task, said.layers);
        waiting.perform(job, watch::WorkerWatchContext { host, cancel, clock: self.clock.as_ref(), started })
    }
}

/// The error that kept our program from becoming the other one.
fn refused(trouble: Option<String>, missing: Vec<JailLayerName>) -> Result<(), WorkerStartError> {
    match trouble {
        None => Ok(()),
        Some(_) if !missing.is_empty() => Err(WorkerStartError::Layers(missing)),
        Some(why) => Err(WorkerStartError::Spawn(io::Error::other(why))),
    }
}

/// Sends the terms and waits for the result, until the other program has replaced ours.
fn tell(socket: OwnedFd, terms: &ThirdPartyTerms) -> io::Result<(WireLockInReport, Option<OwnedFd>)> {
    rustix::io::ioctl_fionbio(&socket, false)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(BECOMING))?;
    set_socket_timeout(&socket, Timeout::Send, Some(BECOMING))?;
    let mut stream = std::os::unix::net::UnixStream::from(socket);
    stream.write_all(&serde_json::to_vec(terms)?)?;
    shutdown(&stream, Shutdown::Write)?;
    let (heard, listener) = hear(&stream)?;
    let said = WireLockInReport::read(&heard).ok_or_else(|| io::Error::other("it ended before it was locked in"))?;
    Ok((said, listener))
}

/// Everything that our program reports, and the descriptor that it passes with it.
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

impl ThirdPartyProcess {
    /// Waits until it ends by itself or is cancelled; then it is dead.
    pub fn wait(mut self, cancel: &WorkerCancel) {
        // The caller may have taken these; an open input left here would keep the program waiting forever.
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

impl ThirdPartyProcess {
    /// Waits until it ends by itself or is cancelled, and returns how it ended. Everything that it started ends with
    /// it.
    #[must_use]
    pub fn wait_for_exit(mut self, cancel: &WorkerCancel) -> (ProgramExit, Millis) {
        (self.input, self.output, self.error, self.listener) = (None, None, None, None);
        let Some(life) = self.life.take() else { return (ProgramExit::Unknown, Millis::ZERO) };
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
    /// When the system gives no further descriptor.
    pub fn signals(&self) -> io::Result<ProgramSignalSender> {
        let life = self.life.as_ref().ok_or_else(|| io::Error::other("the program has ended"))?;
        life.as_fd().try_clone_to_owned().map(ProgramSignalSender)
    }

    fn end(&self, life: WorkerProcess) -> (ProgramExit, Millis) {
        life.kill();
        // Its number stays valid until it is reaped, and it leads its own process group.
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _gone = kill_process_group(pid, Signal::KILL);
        }
        let (exit, processor) = life.bury();
        let exit = match exit {
            ProcessExit::Code(code) => ProgramExit::Code(code),
            ProcessExit::Signal(signal) => ProgramExit::Signal(signal),
            ProcessExit::Unknown => ProgramExit::Unknown,
        };
        (exit, processor)
    }
}

/// How a third-party program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramExit {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// It is not known.
    Unknown,
}

/// The signals that a program can get.
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

/// Sends signals to one program. After its end they have no effect.
#[derive(Debug)]
pub struct ProgramSignalSender(OwnedFd);

impl ProgramSignalSender {
    /// Sends a signal. Returns whether there was still a program to receive it.
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

impl Drop for ThirdPartyProcess {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            self.end(life);
        }
    }
}
