//! The configuration of a gateway: `sluice.yaml`, the environment and flags.
//!
//! Takes the path of a file, variables and flags; gives one [`Config`] with plain typed values, and where each
//! of them comes from. Promise: read once and passed down; a flag wins over a variable, a variable over the
//! file, the file over the default; whatever is not understood is refused with its place, all of it at once.

mod approvals;
mod batch;
mod budgets;
mod channels;
mod check;
mod connected;
mod content;
mod database;
mod disk;
mod egress;
mod filesystem;
mod general;
mod holds;
mod leak;
mod limits;
mod log;
mod manual;
mod mounts;
mod origin;
mod programs;
mod reader;
mod recovery;
mod release;
mod retention;
mod section;
mod services;
mod sessions;
mod setting;
mod size;
mod state;
#[cfg(test)]
mod tests;
mod tls;
mod vault;
mod workers;

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_core::policy::{Fault, MAX_BYTES};
use sluice_core::{CapabilityName, NodeName, ServiceName, Span};

pub use approvals::{Approvals, Needs, NoticeChannel, NoticeChoice, Person, Risk, Targets};
pub use batch::{Batch, Services};
pub use budgets::Budgets;
pub use channels::{Address, BaseUrl, Domain, Email, Folder, Inbox, Security, Telegram, Word};
pub use connected::Connected;
pub use content::{Content, Threshold, Thresholds};
pub use database::{Database, DatabaseSettings, Secret};
pub use disk::Disk;
pub use egress::{Connections, Egress, shown as connection_shown};
pub use filesystem::{Agents, Filesystem, Root};
pub use general::{General, Host, PORT, WebOrigin};
pub use holds::{Delays, Holds};
pub use leak::{Leak, LeakPatterns, Phrase};
pub use limits::Limits;
pub use log::{Log, LogFormat, LogLevel};
pub use manual::{markdown, schema};
pub use mounts::{
    Address as MountAddress, EnvValue, Mount, Mounts, Program as MountProgram, Way, is_name as is_mount_name, skeleton,
};
pub use origin::{Origin, Origins};
pub use programs::{Git, Process};
pub use reader::Flag;
pub use recovery::{Audit, Recovery, Witness, is_state_file_of, state_file_places};
pub use release::{Lookups, Pace, Paces, Release};
pub use retention::Retention;
pub use services::{Account, Accounts, AdapterProgram};
pub use sessions::{KnownTarget, Sessions};
pub use setting::word;
pub use size::{Floor, Size};
pub use state::State;
pub use tls::{Tls, TlsFiles};
pub use vault::Vault;
pub use workers::{Sandbox, Workers};

use manual::known_keys;
use reader::Reader;
use section::Section as _;

/// How the file is called.
pub const FILE: &str = "sluice.yaml";

/// What the edge of the program knows.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// The folder the program was started in; relative paths of variables and flags begin here.
    pub here: PathBuf,
    /// Name of the host.
    pub host: Option<String>,
    /// Values given on the command line.
    pub flags: Vec<Flag>,
}

/// The configuration of one gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it was read from.
    pub file: Option<PathBuf>,
    /// Who this gateway is.
    pub node: NodeName,
    /// Folder for the database and keys.
    pub data: PathBuf,
    /// Folder of policy files.
    pub policies: PathBuf,
    /// Folder with declarations of security proxies.
    pub proxies: PathBuf,
    /// Folder with declarations of custom capabilities.
    pub capabilities: PathBuf,
    /// Where agents and people are answered.
    pub listen: SocketAddr,
    /// Where cancel, deny, freeze and status are answered.
    pub stop_listen: SocketAddr,
    /// `Host` values that are answered beside the loopback names, in lower case.
    pub public_hosts: Vec<String>,
    /// `Origin` values that are answered, in lower case.
    pub origins: Vec<String>,
    /// The gateway's own certificate.
    pub tls: Option<Tls>,
    /// A proxy before the gateway ends TLS.
    pub behind_proxy: bool,
    /// Where the gateway remembers.
    pub database: Database,
    /// How much clients can take.
    pub limits: Limits,
    /// How long writes wait.
    pub holds: Holds,
    /// How writes leave.
    pub release: Release,
    /// How much fits before a person looks.
    pub batch: Batch,
    /// How much fits within a day.
    pub budgets: Budgets,
    /// How long what is over stays.
    pub retention: Retention,
    /// Questions put to people.
    pub approvals: Approvals,
    /// The bot that asks people.
    pub telegram: Telegram,
    /// Mail that asks people.
    pub email: Email,
    /// Replies that are handed in.
    pub inbox: Inbox,
    /// Folders agents may use.
    pub filesystem: Filesystem,
    /// Repositories below these folders.
    pub git: Git,
    /// Programs that agents may run there.
    pub process: Process,
    /// How much agents may remember.
    pub state: State,
    /// What must stay free.
    pub disk: Disk,
    /// Sessions of agents.
    pub sessions: Sessions,
    /// What comes in.
    pub content: Content,
    /// What must not leave.
    pub leak: Leak,
    /// What is said on stderr.
    pub log: Log,
    /// Whether workers may do without layers of their jail.
    pub sandbox: Sandbox,
    /// Servers of others behind the gate.
    pub mounts: Mounts,
    /// How much workers may use.
    pub workers: Workers,
    /// Connected services.
    pub services: Connected,
    /// Where the root key of the vault comes from.
    pub vault: Vault,
    /// Ways out.
    pub egress: Egress,
    /// Who cosigns the record.
    pub audit: Audit,
    /// What is remembered outside the database, as it was written.
    pub recovery: Recovery,
    /// The state file outside the database.
    pub state_file: PathBuf,
    /// The file to which signed checkpoints are appended.
    pub checkpoints_file: PathBuf,
    /// Where systemd put its credentials.
    pub credentials: Option<PathBuf>,
    shown: Vec<(String, Value)>,
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// All problems: of the file by line, then of variables and flags.
    pub faults: Vec<Fault>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if n == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}

impl From<Vec<Fault>> for ConfigErrors {
    fn from(faults: Vec<Fault>) -> Self {
        Self { faults }
    }
}

impl Config {
    /// Reads the configuration. Without a file, everything the other layers do not say is default.
    ///
    /// # Errors
    /// All problems of all layers.
    pub fn load(
        file: Option<&Path>,
        env: &[(String, String)],
        around: &Around,
    ) -> Result<(Self, Origins), ConfigErrors> {
        let name = file.map_or_else(|| FILE.to_owned(), |file| file.display().to_string());
        let text = file.map(|file| read(file, &name)).transpose()?.unwrap_or_default();
        let absolute = file.map(|file| setting::clean(&around.here.join(file)));
        let folder = absolute.as_deref().and_then(Path::parent).unwrap_or(&around.here);
        let veiled = reader::veil(&text);
        let tree = reader::tree(&name, &text, &veiled)?;
        let known = known_keys();
        let mut reader = Reader::new(&name, &veiled, folder, &around.here);
        if let Some(root) = &tree {
            reader.lay_file(root, &known);
        }
        reader.lay_environment(env, &known);
        reader.lay_flags(&around.flags);
        let mut written = Written::read(&mut reader);
        let home = recovery::state_home(env);
        let machine = (around.host.as_deref(), home.as_deref());
        let config = written.settle(&mut reader, folder, absolute.clone(), machine);
        let origins = reader.finish()?;
        // Whoever gave nothing has also said why, so that `finish` has already failed.
        let unusable = || vec![Fault::of_file("config.value", name, "it cannot be used")].into();
        let credentials = env.iter().find(|(name, _)| name == "CREDENTIALS_DIRECTORY").map(|(_, path)| path.into());
        config.map(|config| (Self { credentials, ..config }, origins)).ok_or_else(unusable)
    }

    /// The window of a service; nothing where writes are not counted.
    #[must_use]
    pub fn window_for(&self, service: &ServiceName) -> Option<sluice_core::batch::Window> {
        self.batch.window_for(service)
    }

    /// How long a write of this capability waits, if the capability itself says `default`.
    #[must_use]
    pub fn delay_for(&self, capability: &CapabilityName, default: Span) -> Span {
        self.holds.delays.of(capability).unwrap_or(default)
    }

    /// Every key and its value in force, in the order of the manual. Secrets are hidden.
    #[must_use]
    pub fn shown(&self) -> &[(String, Value)] {
        &self.shown
    }
}

/// All sections as they were written.
#[derive(Debug, Clone, PartialEq, Default)]
struct Written {
    general: General,
    tls: TlsFiles,
    database: DatabaseSettings,
    limits: Limits,
    holds: Holds,
    release: Release,
    batch: Batch,
    approvals: Approvals,
    telegram: Telegram,
    email: Email,
    inbox: Inbox,
    budgets: Budgets,
    retention: Retention,
    filesystem: Filesystem,
    git: Git,
    process: Process,
    state: State,
    disk: Disk,
    sessions: Sessions,
    content: Content,
    leak: Leak,
    log: Log,
    workers: Workers,
    services: Connected,
    vault: Vault,
    egress: Egress,
    audit: Audit,
    recovery: Recovery,
}

impl Written {
    fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            general: General::read(reader),
            tls: TlsFiles::read(reader),
            database: DatabaseSettings::read(reader),
            limits: Limits::read(reader),
            holds: Holds::read(reader),
            release: Release::read(reader),
            batch: Batch::read(reader),
            approvals: Approvals::read(reader),
            telegram: Telegram::read(reader),
            email: Email::read(reader),
            inbox: Inbox::read(reader),
            budgets: Budgets::read(reader),
            retention: Retention::read(reader),
            filesystem: Filesystem::read(reader),
            git: Git::read(reader),
            process: Process::read(reader),
            state: State::read(reader),
            disk: Disk::read(reader),
            sessions: Sessions::read(reader),
            content: Content::read(reader),
            leak: Leak::read(reader),
            log: Log::read(reader),
            workers: Workers::read(reader),
            services: Connected::read(reader),
            vault: Vault::read(reader),
            egress: Egress::read(reader),
            audit: Audit::read(reader),
            recovery: Recovery::read(reader),
        }
    }

    /// Fills in what depends on the machine, checks what depends on each other.
    fn settle(
        &mut self,
        reader: &mut Reader<'_>,
        folder: &Path,
        file: Option<PathBuf>,
        (host, home): (Option<&str>, Option<&Path>),
    ) -> Option<Config> {
        let general = &mut self.general;
        general.data = setting::clean(&folder.join(&general.data));
        general.policies = setting::clean(&folder.join(&general.policies));
        general.proxies = setting::clean(&folder.join(&general.proxies));
        general.capabilities = setting::clean(&folder.join(&general.capabilities));
        let node = general.node.clone().or_else(|| general::node_of(host)).or_else(|| NodeName::new("gateway").ok())?;
        general.node = Some(node.clone());
        let stop_listen = check::stop_address(general, reader);
        general.stop_listen = stop_listen;
        let tls = check::tls(&self.tls, reader);
        let database = check::database(&mut self.database, &general.data, reader);
        let (state_file, checkpoints_file) = self.recovery.settle(&general.data, home);
        check::reachable(general, tls.is_some(), reader);
        check::orders(&self.limits, &self.disk, reader);
        check::mail(&self.email, reader);
        check::roots(self, file.as_deref(), reader);
        check::trusted(self, reader);
        check::mounts(self, file.as_deref(), reader);
        let shown = self.shown();
        let Self { general, tls: _, database: _, .. } = self;
        Some(Config {
            file,
            node,
            data: general.data.clone(),
            policies: general.policies.clone(),
            proxies: general.proxies.clone(),
            capabilities: general.capabilities.clone(),
            listen: general.listen,
            stop_listen: stop_listen?,
            public_hosts: general.public_hosts.iter().map(|host| host.as_str().to_owned()).collect(),
            origins: general.origins.iter().map(|origin| origin.as_str().to_owned()).collect(),
            tls,
            behind_proxy: general.behind_proxy,
            database: database?,
            limits: self.limits.clone(),
            holds: self.holds.clone(),
            release: self.release.clone(),
            batch: self.batch.clone(),
            approvals: self.approvals.clone(),
            telegram: self.telegram.clone(),
            email: self.email.clone(),
            inbox: self.inbox.clone(),
            budgets: self.budgets.clone(),
            retention: self.retention.clone(),
            filesystem: self.filesystem.clone(),
            git: self.git.clone(),
            process: self.process.clone(),
            state: self.state.clone(),
            disk: self.disk.clone(),
            sessions: self.sessions.clone(),
            content: self.content.clone(),
            leak: self.leak.clone(),
            log: self.log.clone(),
            sandbox: general.sandbox,
            mounts: general.mounts.clone(),
            workers: self.workers.clone(),
            services: self.services.clone(),
            vault: self.vault.clone(),
            egress: self.egress.clone(),
            audit: self.audit.clone(),
            recovery: self.recovery.clone(),
            state_file,
            checkpoints_file,
            credentials: None,
            shown,
        })
    }

    fn shown(&self) -> Vec<(String, Value)> {
        [
            self.general.shown(),
            self.tls.shown(),
            self.database.shown(),
            self.limits.shown(),
            self.holds.shown(),
            self.release.shown(),
            self.batch.shown(),
            self.approvals.shown(),
            self.telegram.shown(),
            self.email.shown(),
            self.inbox.shown(),
            self.budgets.shown(),
            self.retention.shown(),
            self.filesystem.shown(),
            self.git.shown(),
            self.process.shown(),
            self.state.shown(),
            self.disk.shown(),
            self.sessions.shown(),
            self.content.shown(),
            self.leak.shown(),
            self.log.shown(),
            self.workers.shown(),
            self.services.shown(),
            self.vault.shown(),
            self.egress.shown(),
            self.audit.shown(),
            self.recovery.shown(),
        ]
        .concat()
    }
}

/// The text of the file, within limits.
fn read(path: &Path, name: &str) -> Result<String, ConfigErrors> {
    let refused = |code, message: String| ConfigErrors { faults: vec![Fault::of_file(code, name, message)] };
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a larger file is noticed without being read.
    let limit = MAX_BYTES as u64 + 1;
    let opened = fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    opened.map_err(|error| refused("config.unreadable", format!("not readable: {}", io_words(&error))))?;
    if bytes.len() > MAX_BYTES {
        return Err(refused("config.too_large", format!("larger than {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| refused("config.not_utf8", "not valid UTF-8 text".into()))
}

/// An error of the operating system in few words.
fn io_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::IsADirectory => "it is a folder".into(),
        _ => error.to_string().to_lowercase(),
    }
}
