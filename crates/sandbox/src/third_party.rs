//! The looser profile: a third-party program with the files and the one port that it was given.
//!
//! Such programs (interpreters, tool servers) must execute programs, open libraries and start threads, so a list of
//! allowed system calls does not fit them. [`enter`] runs in our own program, in the role that becomes the other: it
//! reads its [`ThirdPartyTerms`], drops every capability, locks itself in and executes the other program. In force: no capability
//! and no way to get one, no file except those named and what a system needs to run programs, no network except perhaps
//! one port of its own namespace, no system calls that bypass this, limits. `docs/mounts.md` lists what is not. A
//! program that does one job and speaks frames (a third-party adapter) is restricted more: [`ThirdPartyProfile::Job`].

use std::ffi::CStr;
use std::fmt;
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};

use crate::child::{EXIT_FAULT, exit};
use crate::jail::{descriptors, limits, network, privileges, signals, third_party};
use crate::zygote_protocol::send;
use sluice_protocol::{JailLayerName, JailLayers, JailMode};

/// The first argument that makes our program become another one.
pub(crate) const ROLE: &CStr = c"stranger";
/// Layers without which `required` refuses.
const MANDATORY: [JailLayerName; 4] =
    [JailLayerName::Limits, JailLayerName::Privileges, JailLayerName::Landlock, JailLayerName::Seccomp];

/// How strictly a third-party program is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ThirdPartyProfile {
    /// A long-running program: it may start processes and look up what servers look up; a forbidden call fails.
    Server,
    /// A program that does a single job and speaks frames: one process, no socket, no system file except programs and
    /// their libraries. A forbidden call kills it, as it kills one of our workers.
    Job {
        /// Processor time, in seconds.
        cpu_seconds: u64,
    },
    /// A program that does a single task with its own tools: it may start processes, but executes nothing except the
    /// program and the folders of [`ThirdPartyTerms::read`]. Other programs of the system can only be read.
    Tool {
        /// Processor time, in seconds.
        cpu_seconds: u64,
    },
}

/// A folder as it was when it was checked: the program is refused if the path leads to another folder by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedFolder {
    /// The path, as it is named in [`ThirdPartyTerms::look`] or [`ThirdPartyTerms::write`].
    pub path: PathBuf,
    /// The device that it was on.
    pub device: u64,
    /// Its inode number there.
    pub inode: u64,
}

/// What a third-party program may reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ThirdPartyNetwork {
    /// Nothing: it cannot open a socket.
    None,
    /// One loopback port in a network namespace of its own, in which there is nothing else. The listening socket is
    /// created inside the namespace and handed to the parent: the `listener` of [`crate::parent::third_party::ThirdPartyProcess`].
    OwnNamespace {
        /// The port that the program connects to.
        port: u16,
    },
    /// One port of the machine's own network, restricted by Landlock and seccomp alone. Refused unless the mode is
    /// [`JailMode::Degraded`].
    MachinePort {
        /// The port that the program connects to.
        port: u16,
    },
}

impl ThirdPartyNetwork {
    /// The only TCP port the program may connect to.
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::OwnNamespace { port } | Self::MachinePort { port } => Some(port),
        }
    }
}

/// The start terms of a third-party program, and what it may reach.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThirdPartyTerms {
    /// The program, by its full path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its complete environment.
    pub environment: Vec<(String, String)>,
    /// The folder it starts in.
    pub folder: PathBuf,
    /// Files and folders it may read and execute.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may read, but neither execute nor change.
    #[serde(default)]
    pub look: Vec<PathBuf>,
    /// Files and folders it may read and change.
    pub write: Vec<PathBuf>,
    /// Folders among these that must be the ones that were checked.
    #[serde(default)]
    pub pinned: Vec<PinnedFolder>,
    /// What it may reach over the network.
    pub network: ThirdPartyNetwork,
    /// Memory it may write to, in bytes.
    pub memory: u64,
    /// Largest file it may write, in bytes.
    pub file_bytes: u64,
    /// Most processes and threads; enforced where it has its own namespaces.
    pub processes: u64,
    /// How strictly it is restricted.
    pub profile: ThirdPartyProfile,
    /// Whether a missing layer refuses it.
    pub mode: JailMode,
    /// Whether it has namespaces, and if not, why: filled in by the parent.
    pub namespaces: Result<(), String>,
}

impl fmt::Debug for ThirdPartyTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SECURITY: the environment holds secrets.
        f.debug_struct("Terms").field("program", &self.program).field("network", &self.network).finish_non_exhaustive()
    }
}

/// The report of our program before it becomes the other one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireLockInReport {
    pub(crate) layers: JailLayers,
    pub(crate) missing: Vec<JailLayerName>,
    pub(crate) trouble: Option<String>,
}

impl WireLockInReport {
    /// The last report counts: a failure to execute comes after the layers.
    pub(crate) fn read(heard: &[u8]) -> Option<Self> {
        heard.split(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok())
    }
}

/// Becomes the other program, or ends. There must be only one thread.
pub fn enter() -> ! {
    let code = match become_other() {
        Ok(never) => match never {},
        Err(BecomeProgramError::NoParent) => {
            eprintln!("error: this role is started by the gateway, not by hand");
            2
        }
        Err(BecomeProgramError::Told) => EXIT_FAULT,
    };
    exit(code)
}

enum BecomeProgramError {
    NoParent,
    /// The parent knows already.
    Told,
}

enum NeverReturns {}

fn become_other() -> Result<NeverReturns, BecomeProgramError> {
    let socket = descriptors::frames().map_err(|_| BecomeProgramError::NoParent)?;
    let stream = std::os::unix::net::UnixStream::from(socket);
    let mut text = Vec::new();
    io::Read::read_to_end(&mut &stream, &mut text).map_err(|_| BecomeProgramError::Told)?;
    let terms: ThirdPartyTerms = serde_json::from_slice(&text).map_err(|_| BecomeProgramError::Told)?;
    let LockInOutcome { layers, trouble, listener } = lock(&terms);
    // A path that does not exist also leaves a lock open: then the path is the real error.
    let missing: Vec<JailLayerName> = match trouble {
        Some(_) => Vec::new(),
        None => mandatory(terms.network).filter(|name| !layers.has(*name)).collect(),
    };
    let refused = terms.mode == JailMode::Required && !missing.is_empty();
    let trouble = trouble.or_else(|| refused.then(|| "a layer is missing and `sandbox` is `required`".to_owned()));
    let stop = trouble.is_some();
    let said = WireLockInReport { layers, missing, trouble };
    say(&stream, &said, listener.map(OwnedFd::from).as_ref())?;
    if stop {
        return Err(BecomeProgramError::Told);
    }
    // Open until the other program replaces ours: its end tells the parent.
    rustix::io::fcntl_setfd(&stream, rustix::io::FdFlags::CLOEXEC).map_err(|_| BecomeProgramError::Told)?;
    // The mask is inherited, and was full since the start: a program that receives no signal cannot be ended gently.
    signals::unblock_all().map_err(|_| BecomeProgramError::Told)?;
    // This also resets the handling of broken pipes.
    let error = Command::new(&terms.program)
        .args(&terms.arguments)
        .env_clear()
        .envs(terms.environment.iter().map(|(name, value)| (name, value)))
        .exec();
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => " (is its interpreter in a folder that it may read?)",
        _ => "",
    };
    let why = format!("`{}` cannot be executed: {error}{hint}", terms.program.display());
    say(&stream, &WireLockInReport { trouble: Some(why), missing: Vec::new(), ..said }, None)?;
    Err(BecomeProgramError::Told)
}

/// Sends one line, with the listening socket. The caller closes this side's copy.
fn say(
    mut stream: &std::os::unix::net::UnixStream,
    said: &WireLockInReport,
    listener: Option<&OwnedFd>,
) -> Result<(), BecomeProgramError> {
    let mut line = serde_json::to_vec(said).map_err(|_| BecomeProgramError::Told)?;
    line.push(b'\n');
    match listener {
        Some(_) => send(stream.as_fd(), &line, listener).map_err(|_| BecomeProgramError::Told),
        None => stream.write_all(&line).map_err(|_| BecomeProgramError::Told),
    }
}

/// Layers without which `required` refuses. Landlock and seccomp do not know every way to open a connection, so a
/// program that may open any needs its own network.
fn mandatory(network: ThirdPartyNetwork) -> impl Iterator<Item = JailLayerName> {
    MANDATORY.into_iter().chain(network.port().map(|_| JailLayerName::Namespaces))
}

/// The result of locking in.
struct LockInOutcome {
    layers: JailLayers,
    /// The first error that is not about a lock.
    trouble: Option<String>,
    /// Listens on the only port of the program's own network.
    listener: Option<TcpListener>,
}

/// Sets the locks.
fn lock(terms: &ThirdPartyTerms) -> LockInOutcome {
    let mut layers = JailLayers::default();
    let mut trouble = None;
    let mut or_trouble = |what: &str, went: io::Result<()>| {
        if let Err(error) = went {
            trouble.get_or_insert(format!("{what}: {error}"));
        }
    };
    // Its own process group, so that everything that it starts can be ended with it.
    or_trouble("no session of its own", setsid().map(|_| ()).map_err(io::Error::from));
    let folder = std::env::set_current_dir(&terms.folder);
    or_trouble(&format!("the folder `{}` cannot be entered", terms.folder.display()), folder);
    layers.note(JailLayerName::Descriptors, descriptors::close_others(false));
    layers.note(JailLayerName::Environment, Ok::<_, String>(format!("{} variables", terms.environment.len())));
    layers.note(JailLayerName::Limits, limits::set_wide(terms));
    layers.note(JailLayerName::Namespaces, namespaces(terms));
    // While it still has the capability to set up its network.
    let listener = match terms.network {
        ThirdPartyNetwork::OwnNamespace { port } => {
            let opened = terms.namespaces.clone().map_err(io::Error::other).and_then(|()| network::open(port));
            opened.map_err(|error| or_trouble("it has no network of its own", Err(error))).ok()
        }
        ThirdPartyNetwork::None | ThirdPartyNetwork::MachinePort { .. } => None,
    };
    layers.note(JailLayerName::Privileges, privileges::drop_all());
    // After the capabilities are dropped: a change of them clears this signal.
    or_trouble("it would outlive the gateway", set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    match third_party::files(terms) {
        Ok(detail) => layers.note(JailLayerName::Landlock, Ok::<_, String>(detail)),
        Err(third_party::ThirdPartyJailError::Path(path, why)) => {
            layers.note(JailLayerName::Landlock, Err::<String, _>("not reached"));
            trouble.get_or_insert(format!("`{path}` cannot be opened to it: {why}"));
        }
        Err(error) => layers.note(JailLayerName::Landlock, Err::<String, _>(error)),
    }
    layers.note(JailLayerName::Seccomp, third_party::calls(terms.network.port().is_some(), terms.profile));
    LockInOutcome { layers, trouble, listener }
}

/// Which namespaces are in force. With the machine's own network they count as missing.
fn namespaces(terms: &ThirdPartyTerms) -> Result<String, String> {
    terms.namespaces.clone()?;
    match terms.network {
        ThirdPartyNetwork::None => Ok("own of each kind".to_owned()),
        ThirdPartyNetwork::OwnNamespace { port } => Ok(format!("own of each kind, with port {port} in the network")),
        ThirdPartyNetwork::MachinePort { .. } => Err("own of each kind but the network".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_do_not_print_their_environment() {
        let terms = ThirdPartyTerms {
            program: "/bin/true".into(),
            arguments: Vec::new(),
            environment: vec![("TOKEN".into(), "canary-9914".into())],
            folder: "/".into(),
            read: Vec::new(),
            look: Vec::new(),
            write: Vec::new(),
            pinned: Vec::new(),
            network: ThirdPartyNetwork::None,
            memory: 0,
            file_bytes: 0,
            processes: 0,
            profile: ThirdPartyProfile::Server,
            mode: JailMode::Required,
            namespaces: Ok(()),
        };
        assert!(!format!("{terms:?}").contains("canary"));
    }

    #[test]
    fn the_last_word_counts() {
        let line = |trouble: Option<&str>| {
            let said = WireLockInReport {
                layers: JailLayers::default(),
                missing: Vec::new(),
                trouble: trouble.map(str::to_owned),
            };
            serde_json::to_string(&said).unwrap() + "\n"
        };
        let heard = line(None) + &line(Some("no such file"));
        assert_eq!(WireLockInReport::read(heard.as_bytes()).unwrap().trouble.as_deref(), Some("no such file"));
        assert!(WireLockInReport::read(b"").is_none());
    }
}
