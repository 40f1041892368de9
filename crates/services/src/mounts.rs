//! Mounted servers: third-party MCP servers behind the gate.
//!
//! Takes the `mounts` of the configuration; gives each as a service whose tools are capabilities `<mount>.<tool>`.
//! Programs run behind the looser profile of the sandbox, addresses are reached through egress. Promise: a tool can be
//! called only while the server describes it exactly as it was accepted; everything a server says is outside content; a
//! failure of one server affects that server alone.

mod answer;
mod arguments;
mod child;
mod client;
mod facts;
mod following;
mod headers;
mod http;
mod logs;
mod reload;
mod runtimes;
mod service;
pub mod sign_in;
mod supervisor;
mod tool_checks;
mod tools;
mod wire;
mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ::http::Method;
use parking_lot::RwLock;
use sluice_config::network::{EgressConnection, EgressUrl, HostPattern, PathPattern};
use sluice_config::{Config, ConfigErrors, MountAddress, MountConfig, MountTransport};
use sluice_core::ids::ConnectionName;
use sluice_core::refusal::Refusal;
use sluice_core::{CapabilityName, Clock, Millis, ServiceName};
use sluice_egress::Egress;
use sluice_egress::vault::Vault;
use sluice_store::Store;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::intake::Intake;
use crate::workers::GatewayWorkers;
use crate::{Service as _, ServiceContext};

pub use facts::ProposedFacts;
pub use following::{follow_acceptances, mounted_elsewhere_changed};
pub use logs::{MountLogLine, MountLogSource};
pub use reload::{MountsReloadSummary, reload};
pub use service::{MountCondition, MountPhase, MountService, MountToolCondition};
pub use sign_in::{MountSignInLink, MountSignInNeed, MountSignInParams};

/// Everything that a mount needs from the gateway.
pub struct MountsDeps {
    /// The durable state.
    pub store: Arc<Store>,
    /// The vault, which holds the credentials.
    pub vault: Arc<Vault>,
    /// The workers that screen definitions and start programs.
    pub workers: Arc<GatewayWorkers>,
    /// The intake, which screens answers.
    pub intake: Arc<Intake>,
    /// The folder that holds the programs' own folders.
    pub folder: PathBuf,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for MountsDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Reads the configuration again, the same way as when the gateway started.
pub type MountConfigSource = Box<dyn Fn() -> Result<Config, ConfigErrors> + Send + Sync>;

/// The mounts of a gateway.
pub struct MountedServers {
    deps: Arc<MountsDeps>,
    by_name: RwLock<BTreeMap<String, Arc<MountService>>>,
    /// Signals a new mount that no task keeps yet.
    came: Notify,
    /// Held while the mounts change.
    turn: Mutex<()>,
    source: OnceLock<MountConfigSource>,
    followed: following::MountFollowState,
}

impl std::fmt::Debug for MountedServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all()).finish()
    }
}

impl MountedServers {
    /// Prepares every mount; starts none. Connections to addresses are opened.
    #[must_use]
    pub fn new(config: &Config, deps: MountsDeps, egress: &Egress) -> Self {
        let mounts = Self {
            deps: Arc::new(deps),
            by_name: RwLock::default(),
            came: Notify::new(),
            turn: Mutex::new(()),
            source: OnceLock::new(),
            followed: following::MountFollowState::default(),
        };
        for mount in &config.mounts.0 {
            mounts.put(mount.clone(), egress);
        }
        mounts
    }

    /// Sets where the configuration is read again. The first call counts; later ones are ignored.
    pub fn follow(&self, source: MountConfigSource) {
        // There is one caller, at the start.
        let _first = self.source.set(source);
    }

    /// The mount of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<MountService>> {
        self.by_name.read().get(name).cloned()
    }

    /// All mounts, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<MountService>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Why an unknown capability may be known soon: its mount is being started and has not listed its tools yet.
    #[must_use]
    pub fn starting(&self, capability: &CapabilityName) -> Option<Refusal> {
        let (mount, _) = capability.as_str().split_once('.')?;
        self.get(mount)?.starting()
    }

    /// Each mount as a service, under the name used for counting and freezing.
    #[must_use]
    pub fn services(&self) -> Vec<(ServiceName, Arc<MountService>)> {
        self.all().into_iter().filter_map(|service| Some((service_name(&service.mount().name)?, service))).collect()
    }

    /// Prepares one mount in place of the one with the same name; its connection is opened.
    fn put(&self, mount: MountConfig, egress: &Egress) -> Arc<MountService> {
        match &mount.way {
            MountTransport::Address(address) => match connection(&mount, address) {
                Ok(connection) => egress.open(connection),
                Err(why) => tracing::error!(mount = %mount.name, "`{}` cannot be connected: {why}", mount.name),
            },
            // It may have been an address before.
            MountTransport::Program(_) => connection_name(&mount.name).iter().for_each(|way| egress.close(way)),
        }
        let name = mount.name.clone();
        let service = Arc::new(MountService::new(mount, Arc::clone(&self.deps)));
        self.by_name.write().insert(name, Arc::clone(&service));
        service
    }

    /// Removes one mount; its connection is closed.
    fn take(&self, name: &str, egress: &Egress) {
        self.by_name.write().remove(name);
        connection_name(name).iter().for_each(|way| egress.close(way));
    }
}

/// Whether requests to this service leave the gateway, including reads. Decided by the name alone, so that a mount that
/// is added or removed meanwhile changes nothing.
#[must_use]
pub fn is_mount(service: &ServiceName) -> bool {
    service.as_str().starts_with("mount.")
}

/// The service name of a mount, for batch protection and freezes.
#[must_use]
pub fn service_name(mount: &str) -> Option<ServiceName> {
    tools::service_name(mount)
}

fn connection_name(mount: &str) -> Option<ConnectionName> {
    ConnectionName::new(format!("mount.{mount}")).ok()
}

/// The connection of a mount: its host, its path and nothing else.
fn connection(mount: &MountConfig, address: &MountAddress) -> Result<EgressConnection, String> {
    let target = EgressUrl::parse(&address.url)?;
    let name = connection_name(&mount.name).ok_or_else(|| "its name cannot be used".to_owned())?;
    let mut connection = EgressConnection::new(name, vec![HostPattern::parse(target.host())?]);
    connection.ports = vec![target.port()];
    connection.plain_http = address.http;
    connection.methods = vec![Method::POST];
    let path = address.url.split_once("://").map_or("", |(_, rest)| rest);
    let path = path.find('/').and_then(|at| path.get(at..)).unwrap_or("/");
    connection.paths = vec![PathPattern::parse(path.split(['?', '#']).next().unwrap_or("/"))?];
    connection.redirects = 0;
    connection.max_answer = mount.max_answer.as_bytes();
    connection.timeout = mount.timeout.max(Millis::from_secs(1));
    connection.idle_timeout = mount.timeout.max(Millis::from_secs(1));
    connection.limits.per_minute = address.per_minute;
    connection.limits.per_hour = None;
    connection.limits.burn = None;
    connection.allow_addresses = address.allow_addresses.clone();
    connection.credential = address.credential.clone();
    Ok(connection)
}

/// Keeps every mount that exists or is added, until it is stopped.
pub async fn run(context: Arc<ServiceContext>, mut stop: watch::Receiver<bool>) {
    let mut kept = JoinSet::new();
    let fell = |ended: Result<(), tokio::task::JoinError>| {
        if let Err(error) = ended {
            tracing::error!("a mount is no longer watched: {error}");
        }
    };
    loop {
        for service in context.mounts.all().into_iter().filter(|service| service.take()) {
            kept.spawn(supervisor::keep(Arc::clone(&context), service));
        }
        tokio::select! {
            () = context.mounts.came.notified() => {}
            Some(ended) = kept.join_next() => fell(ended),
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    // No other mount can be added while this task holds the turn.
    let _turn = context.mounts.turn.lock().await;
    context.mounts.all().iter().for_each(|service| service.stop());
    while let Some(ended) = kept.join_next().await {
        fell(ended);
    }
}

/// Has the tools of a mount checked again, and waits for a check that began after this call. False if that took too
/// long.
pub async fn look_again(service: &MountService) -> bool {
    let request = service.checks.request();
    // Time for two starts and a list.
    let span = service.mount().start_timeout.as_duration() * 3;
    timeout(span, service.checks.until_answered(request)).await.is_ok()
}
