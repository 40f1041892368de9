//! The configuration of a gateway: `sluice.yaml`, the environment and flags.
//!
//! Takes the path of a file, variables and flags; gives one [`Config`] with plain typed values, and where each
//! of them comes from. Promise: the configuration is read once and passed down; a flag wins over a variable, a variable
//! over the file, the file over the default; all errors are reported at once, each with its place.
#![warn(missing_docs)]

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
mod mount_facts;
mod mounts;
pub mod network;
mod oauth;
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
mod tools;
mod vault;
mod workers;

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use serde_json::Value;
use sluice_core::policy::{FileFault, MAX_BYTES};
use sluice_core::{CapabilityName, Millis, NodeName, ServiceName};

pub use approvals::{AllowedTargets, Approvals, ConfiguredPerson, Needs, NoticeChannel, NoticeChoice, Risk};
pub use batch::{Batch, BatchLimitOverrides};
pub use budgets::Budgets;
pub use channels::{
    BaseUrl, Email, EmailAddress, Inbox, MailDomain, MailboxFolderName, Security, SingleWord, Telegram,
};
pub use connected::Connected;
pub use content::{Content, ContentThreshold, ContentThresholds};
pub use database::{DatabaseLocation, DatabaseSettings, DatabaseUrl};
pub use disk::Disk;
pub use egress::{ConfiguredConnections, Egress, shown as connection_shown};
pub use filesystem::{AgentSelection, Filesystem, FilesystemRootConfig};
pub use general::{General, HostAuthority, PORT, WebOrigin};
pub use holds::{CapabilityDelays, Holds};
pub use leak::{Leak, LeakPatterns, LeakPhrase};
pub use limits::Limits;
pub use log::{Log, LogFormat, LogLevel};
pub use manual::{markdown, schema};
pub use mount_facts::{MountTargetKind, MountToolFacts};
pub use mounts::{
    ConfiguredMounts, EnvValue, MountAddress, MountConfig, MountProgram, MountSignIn, MountTransport,
    is_name as is_mount_name, skeleton,
};
pub use oauth::{DocumentUrl, OauthClient};
pub use origin::{ConfigOrigin, ConfigOrigins};
pub use programs::{Git, Process};
pub use reader::CommandLineFlag;
pub use recovery::{Audit, Recovery, WitnessConfig, is_state_file_of, state_file_places};
pub use release::{LookupTimes, Release, ReleasePace, ReleasePaces};
pub use retention::Retention;
pub use services::{AdapterProgram, ConnectableService, ConnectableServices};
pub use sessions::{KnownTarget, Sessions};
pub use setting::word;
pub use size::{ByteSize, FreeDiskFloor};
pub use state::State;
pub use tls::{TlsConfig, TlsFiles};
pub use tools::{AgentToolsets, ClientNamePrefix, ClientToolsets, ToolSettings, Toolset, ToolsetMember, ToolsetPart};
pub use vault::Vault;
pub use workers::{Sandbox, Workers};

use manual::known_keys;
use reader::ConfigReader;
use section::ConfigSection as _;

/// The name of the configuration file.
pub const FILE: &str = "sluice.yaml";

/// What the program knows about its surroundings.
#[derive(Debug, Clone, Default)]
pub struct ConfigContext {
    /// The folder the program was started in; relative paths of variables and flags start here.
    pub here: PathBuf,
    /// The name of the host.
    pub host: Option<String>,
    /// Values given on the command line.
    pub flags: Vec<CommandLineFlag>,
}

/// The configuration of one gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it was read from.
    pub file: Option<PathBuf>,
    /// The name of this gateway.
    pub node: NodeName,
    /// Folder for the database and keys.
    pub data: PathBuf,
    /// Folder of policy files.
    pub policies: PathBuf,
    /// Folder with declarations of security proxies.
    pub proxies: PathBuf,
    /// Folder with declarations of custom capabilities.
    pub capabilities: PathBuf,
    /// The address that serves agents and people.
    pub listen: SocketAddr,
    /// The address that serves cancel, deny, freeze and status.
    pub stop_listen: SocketAddr,
    /// `Host` values that are accepted in addition to the loopback names, in lower case.
    pub public_hosts: Vec<String>,
    /// `ConfigOrigin` values that are accepted, in lower case.
    pub origins: Vec<String>,
    /// The gateway's own certificate.
    pub tls: Option<TlsConfig>,
    /// Whether a reverse proxy in front of the gateway terminates TLS.
    pub behind_proxy: bool,
    /// The database.
    pub database: DatabaseLocation,
    /// How much of the gateway clients can use.
    pub limits: Limits,
    /// How long writes wait.
    pub holds: Holds,
    /// How writes leave.
    pub release: Release,
    /// How much an agent may do before a person decides.
    pub batch: Batch,
    /// How much may happen within a day.
    pub budgets: Budgets,
    /// How long data that is over is kept.
    pub retention: Retention,
    /// Approval requests to people.
    pub approvals: Approvals,
    /// The Telegram bot for approval requests.
    pub telegram: Telegram,
    /// E-mail for approval requests.
    pub email: Email,
    /// Replies that a forwarding service hands in.
    pub inbox: Inbox,
    /// Folders agents may use.
    pub filesystem: Filesystem,
    /// Git repositories below these folders.
    pub git: Git,
    /// Programs that agents may run below these folders.
    pub process: Process,
    /// How much agents may store.
    pub state: State,
    /// How much disk space must stay free.
    pub disk: Disk,
    /// Sessions of agents.
    pub sessions: Sessions,
    /// Content from outside.
    pub content: Content,
    /// Data that must not leave the gateway.
    pub leak: Leak,
    /// The log on stderr.
    pub log: Log,
    /// Whether workers may run without all layers of their jail.
    pub sandbox: Sandbox,
    /// Third-party MCP servers behind the gate.
    pub mounts: ConfiguredMounts,
    /// Which tools agents are shown over MCP.
    pub tools: ToolSettings,
    /// How much workers may use.
    pub workers: Workers,
    /// Connected services.
    pub services: Connected,
    /// How the gateway names itself to authorization servers.
    pub oauth: OauthClient,
    /// Where the root key of the vault comes from.
    pub vault: Vault,
    /// Connections of the egress proxy.
    pub egress: Egress,
    /// Witnesses of the audit log.
    pub audit: Audit,
    /// Where state is kept outside the database, as configured.
    pub recovery: Recovery,
    /// The state file outside the database.
    pub state_file: PathBuf,
    /// The file to which signed checkpoints are appended.
    pub checkpoints_file: PathBuf,
    /// The folder in which systemd puts credentials.
    pub credentials: Option<PathBuf>,
    shown: Vec<(String, Value)>,
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// All errors: of the file by line, then of variables and flags.
    pub faults: Vec<FileFault>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if n == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}

impl From<Vec<FileFault>> for ConfigErrors {
    fn from(faults: Vec<FileFault>) -> Self {
        Self { faults }
    }
}

impl Config {
    /// Reads the configuration. Keys that no layer sets have their defaults.
    ///
    /// # Errors
    /// All errors of all layers.
    pub fn load(
        file: Option<&Path>,
        env: &[(String, String)],
        around: &ConfigContext,
    ) -> Result<(Self, ConfigOrigins), ConfigErrors> {
        let name = file.map_or_else(|| FILE.to_owned(), |file| file.display().to_string());
        let text = file.map(|file| read(file, &name)).transpose()?.unwrap_or_default();
        let absolute = file.map(|file| setting::clean(&around.here.join(file)));
        let folder = absolute.as_deref().and_then(Path::parent).unwrap_or(&around.here);
        let veiled = reader::veil(&text);
        let tree = reader::tree(&name, &text, &veiled)?;
        let known = known_keys();
        let mut reader = ConfigReader::new(&name, &veiled, folder, &around.here);
        if let Some(root) = &tree {
            reader.lay_file(root, &known);
        }
        reader.lay_environment(env, &known);
        reader.lay_flags(&around.flags);
        let mut written = ConfigSections::read(&mut reader);
        let home = recovery::state_home(env);
        let machine = (around.host.as_deref(), home.as_deref());
        let config = written.settle(&mut reader, folder, absolute.clone(), machine);
        let origins = reader.finish()?;
        // A missing value was already reported, so `finish` has failed before.
        let unusable = || vec![FileFault::of_file("config.value", name, "the configuration cannot be used")].into();
        let credentials = env.iter().find(|(name, _)| name == "CREDENTIALS_DIRECTORY").map(|(_, path)| path.into());
        config.map(|config| (Self { credentials, ..config }, origins)).ok_or_else(unusable)
    }

    /// The window of a service; `None` if writes are not counted there.
    #[must_use]
    pub fn window_for(&self, service: &ServiceName) -> Option<sluice_core::batch::SlidingWindow> {
        self.batch.window_for(service)
    }

    /// How long a write of this capability waits, if the capability itself says `default`.
    #[must_use]
    pub fn delay_for(&self, capability: &CapabilityName, default: Millis) -> Millis {
        self.holds.delays.of(capability).unwrap_or(default)
    }

    /// Every key and its effective value, in the order of the manual. Secrets are hidden.
    #[must_use]
    pub fn shown(&self) -> &[(String, Value)] {
        &self.shown
    }
}

/// All sections as written.
#[derive(Debug, Clone, PartialEq, Default)]
struct ConfigSections {
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
    tools: ToolSettings,
    workers: Workers,
    services: Connected,
    oauth: OauthClient,
    vault: Vault,
    egress: Egress,
    audit: Audit,
    recovery: Recovery,
}

impl ConfigSections {
    fn read(reader: &mut ConfigReader<'_>) -> Self {
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
            tools: ToolSettings::read(reader),
            workers: Workers::read(reader),
            services: Connected::read(reader),
            oauth: OauthClient::read(reader),
            vault: Vault::read(reader),
            egress: Egress::read(reader),
            audit: Audit::read(reader),
            recovery: Recovery::read(reader),
        }
    }

    /// Fills in what depends on the machine, and checks keys that depend on each other.
    fn settle(
        &mut self,
        reader: &mut ConfigReader<'_>,
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
            tools: self.tools.clone(),
            workers: self.workers.clone(),
            services: self.services.clone(),
            oauth: self.oauth.clone(),
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
            self.tools.shown(),
            self.workers.shown(),
            self.services.shown(),
            self.oauth.shown(),
            self.vault.shown(),
            self.egress.shown(),
            self.audit.shown(),
            self.recovery.shown(),
        ]
        .concat()
    }
}

/// The text of the file, up to the size limit.
fn read(path: &Path, name: &str) -> Result<String, ConfigErrors> {
    let refused = |code, message: String| ConfigErrors { faults: vec![FileFault::of_file(code, name, message)] };
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a larger file is noticed without being read.
    let limit = MAX_BYTES as u64 + 1;
    let opened = fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    opened.map_err(|error| refused("config.unreadable", format!("the file cannot be read: {}", io_words(&error))))?;
    if bytes.len() > MAX_BYTES {
        return Err(refused("config.too_large", format!("larger than {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| refused("config.not_utf8", "not valid UTF-8 text".into()))
}

/// An error of the operating system as a short text.
fn io_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::IsADirectory => "the path is a folder".into(),
        _ => error.to_string().to_lowercase(),
    }
}
