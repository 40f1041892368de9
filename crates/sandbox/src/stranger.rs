//! The looser profile: a program of others, with the files and the one port it was given.
//!
//! Such programs (interpreters, servers for tools) need to execute things, open libraries and start threads, so a list
//! of allowed system calls is not for them. [`enter`] is our own program in the role that becomes one: it reads its
//! [`Terms`], gives up every capability, shuts itself in and executes the other. What holds: no capability and none to
//! be had, no file but those named and what a system needs to run programs, no network but perhaps one port of a
//! namespace of its own, no system calls that reach around this, limits. What does not: `docs/mounts.md` says it. A program that does one job and
//! speaks in frames (an adapter of others) is kept more closely: [`Profile::Job`].

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
use crate::jail::{descriptors, limits, network, privileges, signals, wide};
use crate::layers::{LayerName, Layers, Mode};
use crate::protocol::mould::send;

/// The first argument that makes our program become another.
pub(crate) const ROLE: &CStr = c"stranger";
/// Layers without which `required` refuses.
const MANDATORY: [LayerName; 4] = [LayerName::Limits, LayerName::Privileges, LayerName::Landlock, LayerName::Seccomp];

/// How closely a program of others is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Profile {
    /// One that stays: it may start processes and look up what servers look up; a forbidden call fails.
    Server,
    /// One that does a single job and speaks in frames: one process, no socket, no file of the system but programs
    /// and their libraries. A forbidden call is its death, as it is for a worker of ours.
    Job {
        /// Processor time, in seconds.
        cpu_seconds: u64,
    },
    /// One that does a single task with programs of its own: it may start processes, but executes nothing except the
    /// program and the folders of [`Terms::read`]. What the system has installed beside them is only read.
    Tool {
        /// Processor time, in seconds.
        cpu_seconds: u64,
    },
}

/// A folder as it was when it was checked: the program is refused if the path leads to another one by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedFolder {
    /// The path, as it is named in [`Terms::look`] or [`Terms::write`].
    pub path: PathBuf,
    /// The device that it was on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// What a program of others may reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Network {
    /// Nothing: it cannot open a socket.
    None,
    /// One loopback port in a network namespace of its own, in which there is nothing else. The listening socket is
    /// created inside the namespace and handed to the parent: [`crate::parent::stranger::Stranger::listener`].
    OwnNamespace {
        /// The port that the program connects to.
        port: u16,
    },
    /// One port of the machine's own network, kept by Landlock and seccomp alone. Refused unless the mode is
    /// [`Mode::Degraded`].
    MachinePort {
        /// The port that the program connects to.
        port: u16,
    },
}

impl Network {
    /// The only TCP port the program may connect to.
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::OwnNamespace { port } | Self::MachinePort { port } => Some(port),
        }
    }
}

/// What a program of others is started with, and what it may reach.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The program, by its whole path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// All of its environment.
    pub environment: Vec<(String, String)>,
    /// The folder it starts in.
    pub folder: PathBuf,
    /// Files and folders it may read and execute.
    pub read: Vec<PathBuf>,
    /// Files and folders it may read, but neither execute nor change.
    #[serde(default)]
    pub look: Vec<PathBuf>,
    /// Files and folders it may read and change.
    pub write: Vec<PathBuf>,
    /// Folders among these that must be the ones that were checked.
    #[serde(default)]
    pub pinned: Vec<PinnedFolder>,
    /// What it may reach over the network.
    pub network: Network,
    /// Memory it may write to, in bytes.
    pub memory: u64,
    /// Largest file it may write, in bytes.
    pub file_bytes: u64,
    /// Processes and threads; kept where it has namespaces of its own.
    pub processes: u64,
    /// How closely it is kept.
    pub profile: Profile,
    /// Whether a missing layer refuses it.
    pub mode: Mode,
    /// Whether it has namespaces, and if not, why: filled in by the parent.
    pub namespaces: Result<(), String>,
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SECURITY: the environment holds secrets.
        f.debug_struct("Terms").field("program", &self.program).field("network", &self.network).finish_non_exhaustive()
    }
}

/// What our program says before it becomes the other.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) layers: Layers,
    pub(crate) missing: Vec<LayerName>,
    pub(crate) trouble: Option<String>,
}

impl Said {
    /// The last word counts: a failure to execute comes after the layers.
    pub(crate) fn read(heard: &[u8]) -> Option<Self> {
        heard.split(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok())
    }
}

/// Becomes the other program, or ends. There must be one thread only.
pub fn enter() -> ! {
    let code = match become_other() {
        Ok(never) => match never {},
        Err(Failed::NoParent) => {
            eprintln!("error: this role is started by the gateway, not by hand");
            2
        }
        Err(Failed::Told) => EXIT_FAULT,
    };
    exit(code)
}

enum Failed {
    NoParent,
    /// Whoever started us knows.
    Told,
}

enum Never {}

fn become_other() -> Result<Never, Failed> {
    let socket = descriptors::frames().map_err(|_| Failed::NoParent)?;
    let stream = std::os::unix::net::UnixStream::from(socket);
    let mut text = Vec::new();
    io::Read::read_to_end(&mut &stream, &mut text).map_err(|_| Failed::Told)?;
    let terms: Terms = serde_json::from_slice(&text).map_err(|_| Failed::Told)?;
    let Locked { layers, trouble, listener } = lock(&terms);
    // A path that is not there leaves a lock open, too: then the path is what is wrong.
    let missing: Vec<LayerName> = match trouble {
        Some(_) => Vec::new(),
        None => mandatory(terms.network).filter(|name| !layers.has(*name)).collect(),
    };
    let refused = terms.mode == Mode::Required && !missing.is_empty();
    let trouble = trouble.or_else(|| refused.then(|| "a layer is missing and `sandbox` is `required`".to_owned()));
    let stop = trouble.is_some();
    let said = Said { layers, missing, trouble };
    say(&stream, &said, listener.map(OwnedFd::from).as_ref())?;
    if stop {
        return Err(Failed::Told);
    }
    // Open until the other program takes our place: its end is how the parent knows.
    rustix::io::fcntl_setfd(&stream, rustix::io::FdFlags::CLOEXEC).map_err(|_| Failed::Told)?;
    // Inherited, and full since the process was born: a program that hears no signal cannot be ended gently.
    signals::unblock_all().map_err(|_| Failed::Told)?;
    // Resets the handling of broken pipes, too.
    let error = Command::new(&terms.program)
        .args(&terms.arguments)
        .env_clear()
        .envs(terms.environment.iter().map(|(name, value)| (name, value)))
        .exec();
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => " (does its interpreter lie in a folder it may read?)",
        _ => "",
    };
    let why = format!("`{}` cannot be executed: {error}{hint}", terms.program.display());
    say(&stream, &Said { trouble: Some(why), missing: Vec::new(), ..said }, None)?;
    Err(Failed::Told)
}

/// Says one line, and hands the listening socket over beside it. The copy on this side is closed by the caller.
fn say(mut stream: &std::os::unix::net::UnixStream, said: &Said, listener: Option<&OwnedFd>) -> Result<(), Failed> {
    let mut line = serde_json::to_vec(said).map_err(|_| Failed::Told)?;
    line.push(b'\n');
    match listener {
        Some(_) => send(stream.as_fd(), &line, listener).map_err(|_| Failed::Told),
        None => stream.write_all(&line).map_err(|_| Failed::Told),
    }
}

/// Layers without which `required` refuses. Landlock and seccomp do not know every way to open a connection, so a
/// program that may open any needs a network of its own.
fn mandatory(network: Network) -> impl Iterator<Item = LayerName> {
    MANDATORY.into_iter().chain(network.port().map(|_| LayerName::Namespaces))
}

/// How locking in went.
struct Locked {
    layers: Layers,
    /// The first thing that went wrong and is no lock.
    trouble: Option<String>,
    /// Listens at the one port of the program's own network.
    listener: Option<TcpListener>,
}

/// Puts the locks on.
fn lock(terms: &Terms) -> Locked {
    let mut layers = Layers::default();
    let mut trouble = None;
    let mut or_trouble = |what: &str, went: io::Result<()>| {
        if let Err(error) = went {
            trouble.get_or_insert(format!("{what}: {error}"));
        }
    };
    // A group of its own, so that everything it starts can be ended with it.
    or_trouble("no session of its own", setsid().map(|_| ()).map_err(io::Error::from));
    let folder = std::env::set_current_dir(&terms.folder);
    or_trouble(&format!("the folder `{}` cannot be entered", terms.folder.display()), folder);
    layers.note(LayerName::Descriptors, descriptors::close_others(false));
    layers.note(LayerName::Environment, Ok::<_, String>(format!("{} variables", terms.environment.len())));
    layers.note(LayerName::Limits, limits::set_wide(terms));
    layers.note(LayerName::Namespaces, namespaces(terms));
    // While it still has the capability to set its network up.
    let listener = match terms.network {
        Network::OwnNamespace { port } => {
            let opened = terms.namespaces.clone().map_err(io::Error::other).and_then(|()| network::open(port));
            opened.map_err(|error| or_trouble("it has no network of its own", Err(error))).ok()
        }
        Network::None | Network::MachinePort { .. } => None,
    };
    layers.note(LayerName::Privileges, privileges::drop_all());
    // After the capabilities are gone: a change of those forgets the signal.
    or_trouble("it would outlive the gateway", set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    match wide::files(terms) {
        Ok(detail) => layers.note(LayerName::Landlock, Ok::<_, String>(detail)),
        Err(wide::WideError::Path(path, why)) => {
            layers.note(LayerName::Landlock, Err::<String, _>("not reached"));
            trouble.get_or_insert(format!("`{path}` cannot be opened to it: {why}"));
        }
        Err(error) => layers.note(LayerName::Landlock, Err::<String, _>(error)),
    }
    layers.note(LayerName::Seccomp, wide::calls(terms.network.port().is_some(), terms.profile));
    Locked { layers, trouble, listener }
}

/// How far the namespaces hold. With the machine's own network they count as missing.
fn namespaces(terms: &Terms) -> Result<String, String> {
    terms.namespaces.clone()?;
    match terms.network {
        Network::None => Ok("own of each kind".to_owned()),
        Network::OwnNamespace { port } => Ok(format!("own of each kind, with port {port} in the network")),
        Network::MachinePort { .. } => Err("own of each kind but the network".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_do_not_print_their_environment() {
        let terms = Terms {
            program: "/bin/true".into(),
            arguments: Vec::new(),
            environment: vec![("TOKEN".into(), "canary-9914".into())],
            folder: "/".into(),
            read: Vec::new(),
            look: Vec::new(),
            write: Vec::new(),
            pinned: Vec::new(),
            network: Network::None,
            memory: 0,
            file_bytes: 0,
            processes: 0,
            profile: Profile::Server,
            mode: Mode::Required,
            namespaces: Ok(()),
        };
        assert!(!format!("{terms:?}").contains("canary"));
    }

    #[test]
    fn the_last_word_counts() {
        let line = |trouble: Option<&str>| {
            let said = Said { layers: Layers::default(), missing: Vec::new(), trouble: trouble.map(str::to_owned) };
            serde_json::to_string(&said).unwrap() + "\n"
        };
        let heard = line(None) + &line(Some("no such file"));
        assert_eq!(Said::read(heard.as_bytes()).unwrap().trouble.as_deref(), Some("no such file"));
        assert!(Said::read(b"").is_none());
    }
}
