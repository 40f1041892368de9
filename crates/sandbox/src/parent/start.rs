//! Starts a worker: one clone, one exec, nothing inherited.
//!
//! Takes the program and the descriptors that a worker may have; gives the process and our end of its socket. The child
//! of the clone shares our memory until it execs, as with `posix_spawn`, so the size of the gateway does not matter;
//! unlike `posix_spawn`, the clone creates the namespaces and returns a descriptor of the process. Promise: between
//! clone and exec there are only system calls; no descriptor except the named ones survives.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::NamespacesMode;
use super::process::WorkerProcess;
use crate::jail::descriptors::{FRAMES, SCRATCH};

/// Descriptors to hand over are above their final numbers, so that none is overwritten before it is used.
const HIGH: RawFd = 16;
/// The stack between clone and exec.
const STACK: usize = 32 << 10;
/// All namespaces that are requested, except the network.
const OWN: c_int =
    libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
/// The first argument that makes our program a worker.
pub(super) const WORKER: &CStr = c"worker";
const NAME: &CStr = c"sluice";

/// What a process of ours starts with.
pub(super) struct ProcessLaunch<'a> {
    pub(super) program: &'a OwnedFd,
    /// The first argument, which selects its role.
    pub(super) role: &'static CStr,
    /// Standard input, output and error.
    pub(super) standard: [&'a OwnedFd; 3],
    pub(super) scratch: Option<&'a OwnedFd>,
    pub(super) namespaces: NamespacesMode,
    /// Its network.
    pub(super) network: LaunchNetwork,
}

/// The network of a process at its start, where namespaces are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchNetwork {
    /// A network of its own, in which everything is down. Workers have this one.
    Empty,
    /// A network of its own, which it may set up before it locks itself in.
    SetUp,
    /// The network of the machine.
    Shared,
}

/// A worker that has started.
#[derive(Debug)]
pub(super) struct LaunchedProcess {
    pub(super) life: WorkerProcess,
    /// Its number, which no other process gets before it is reaped.
    pub(super) pid: i32,
    pub(super) socket: OwnedFd,
    /// Whether it has namespaces, and if not, why.
    pub(super) namespaces: Result<(), String>,
}

/// The data of the clone. It is on our stack while this thread is suspended.
struct CloneSteps {
    program: RawFd,
    standard: [RawFd; 3],
    socket: RawFd,
    scratch: RawFd,
    namespaces: bool,
    sets_network_up: bool,
    arguments: [*const c_char; 3],
    environment: [*const c_char; 1],
    /// The error of the child.
    error: c_int,
}

/// A duplicate of a descriptor, high enough to be handed over.
pub(super) fn high(fd: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, HIGH)?)
}

/// Starts a worker; without namespaces if the system does not allow them.
pub(super) fn start(birth: &ProcessLaunch<'_>) -> io::Result<LaunchedProcess> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let theirs = high(&theirs)?;
    let with = match birth.namespaces {
        NamespacesMode::WhereAllowed => spawn(birth, &theirs, true).map_err(Some),
        NamespacesMode::Off => Err(None),
    };
    let ((life, pid), namespaces) = match with {
        Ok(born) => (born, Ok(())),
        Err(Some(error)) => (spawn(birth, &theirs, false)?, Err(error.to_string())),
        Err(None) => (spawn(birth, &theirs, false)?, Err("they were not asked for".to_owned())),
    };
    Ok(LaunchedProcess { life, pid, socket: ours, namespaces })
}

fn spawn(birth: &ProcessLaunch<'_>, socket: &OwnedFd, namespaces: bool) -> io::Result<(WorkerProcess, i32)> {
    let own = match (namespaces, birth.network) {
        (false, _) => 0,
        (true, LaunchNetwork::Shared) => OWN,
        (true, LaunchNetwork::Empty | LaunchNetwork::SetUp) => OWN | libc::CLONE_NEWNET,
    };
    let mut steps = CloneSteps {
        program: birth.program.as_raw_fd(),
        standard: birth.standard.map(AsRawFd::as_raw_fd),
        socket: socket.as_raw_fd(),
        scratch: birth.scratch.map_or(-1, OwnedFd::as_raw_fd),
        namespaces,
        sets_network_up: birth.network == LaunchNetwork::SetUp,
        arguments: [NAME.as_ptr(), birth.role.as_ptr(), std::ptr::null()],
        environment: [std::ptr::null()],
        error: 0,
    };
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | own;
    let mut pidfd: c_int = -1;
    let masked = SignalMaskGuard::all()?;
    #[expect(unsafe_code, reason = "there is no safe clone")]
    // SAFETY: with CLONE_VFORK this thread stands still until the child has called exec or `_exit`, so `steps`,
    // `stack` and `pidfd` outlive every use the child makes of them. The child runs `first_steps` on a stack of
    // its own (u128 gives the alignment), makes only system calls, and cannot be interrupted by a handler of
    // ours because all signals are blocked around the clone.
    let pid = unsafe {
        libc::clone(first_steps, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut steps).cast(), &raw mut pidfd)
    };
    let failed = io::Error::last_os_error();
    drop(masked);
    if pid < 0 {
        return Err(failed);
    }
    #[expect(unsafe_code, reason = "the kernel gives the descriptor as a number")]
    // SAFETY: the clone succeeded, so the kernel has stored a new descriptor that nobody else owns.
    let life = WorkerProcess::new(unsafe { OwnedFd::from_raw_fd(pidfd) });
    // Dropping the handle reaps the child, which has given up already.
    if steps.error == 0 { Ok((life, pid)) } else { Err(io::Error::from_raw_os_error(steps.error)) }
}

/// The steps of the child: the descriptors that it keeps, and exec. Only system calls; our memory is shared.
extern "C" fn first_steps(steps: *mut c_void) -> c_int {
    #[expect(unsafe_code, reason = "between clone and exec only bare system calls are allowed")]
    // SAFETY: `steps` is the `CloneSteps` of the thread that waits for us, and nothing else touches it meanwhile. The
    // numbers in it are open descriptors, the arrays end with null, and every call here is allowed between clone and
    // exec. The descriptor table is a copy (no CLONE_FILES), so closing descriptors does not affect the parent.
    unsafe {
        let steps = &mut *steps.cast::<CloneSteps>();
        let [input, output, error] = steps.standard;
        let mut fine = libc::dup2(input, 0) == 0
            && libc::dup2(output, 1) == 1
            && libc::dup2(error, 2) == 2
            && libc::dup2(steps.socket, FRAMES) == FRAMES;
        let mut first = FRAMES + 1;
        if fine && steps.scratch >= 0 {
            fine = libc::dup2(steps.scratch, SCRATCH) == SCRATCH;
            first = SCRATCH + 1;
        }
        // Marked, not closed: the program must still be executed.
        fine = fine && libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0;
        if fine && steps.namespaces {
            fine = keep_capabilities(steps.sets_network_up);
        }
        if fine {
            libc::syscall(
                libc::SYS_execveat,
                steps.program,
                c"".as_ptr(),
                steps.arguments.as_ptr(),
                steps.environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        steps.error = *libc::__errno_location();
        libc::_exit(127)
    }
}

/// The capability to mount, for an empty root folder.
const SYS_ADMIN: u32 = 21;
/// The capability to set up an interface.
const NET_ADMIN: u32 = 12;

/// Inside its new user namespace the child has all capabilities, until exec. Those that are kept here survive exec, so
/// that the worker can create an empty root folder or bring its loopback up; it drops them right after.
#[expect(unsafe_code, reason = "between clone and exec only bare system calls are allowed")]
unsafe fn keep_capabilities(sets_network_up: bool) -> bool {
    // Version 3 of the interface: 64 capabilities, given as two halves of effective, permitted, inheritable.
    let header: [u32; 2] = [0x2008_0522, 0];
    let network = if sets_network_up { 1_u32 << NET_ADMIN } else { 0 };
    let bits = 1_u32 << SYS_ADMIN | network;
    let sets: [[u32; 3]; 2] = [[bits, bits, bits], [0, 0, 0]];
    // SAFETY: both arrays have the layout of the kernel's structures and live until the calls return.
    unsafe {
        let raised = |which: u32| libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, which, 0, 0) == 0;
        libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) == 0
            && raised(SYS_ADMIN)
            && (!sets_network_up || raised(NET_ADMIN))
    }
}

/// Blocks all signals of this thread until it is dropped.
struct SignalMaskGuard(libc::sigset_t);

impl SignalMaskGuard {
    fn all() -> io::Result<Self> {
        #[expect(unsafe_code, reason = "signal masks have no safe form")]
        // SAFETY: all-zero is a valid `sigset_t`, and both are filled before they are used.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) {
                0 => Ok(Self(before)),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for SignalMaskGuard {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "signal masks have no safe form")]
        // SAFETY: the mask is the one this thread had before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}
