//! Mounted servers: MCP servers of others behind the gate.
//!
//! Takes the `mounts` of the configuration; gives each as a service whose tools are capabilities `<mount>.<tool>`.
//! Programs run behind the looser profile of the sandbox, addresses are reached through egress. Promise: a tool can be
//! called only while the server says of it exactly what was accepted; what a server says is data from outside; one
//! server in trouble is that server's trouble alone.

mod answer;
mod child;
mod guest;
mod hatch;
mod headers;
mod http;
mod keep;
mod service;
mod tools;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ::http::Method;
use sluice_core::ids::ConnectionName;
use sluice_core::{Clock, ServiceName, Span};
use sluice_store::Store;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Gateway;
use crate::config::{Config, Mount, MountAddress, Way};
use crate::egress::{Connection, Egress, HostPattern, PathPattern, Target};
use crate::intake::Intake;
use crate::vault::Vault;
use crate::workers::Workers;

pub use service::{Condition, MountService, Phase, ToolCondition};

/// Everything a mount needs of the gateway.
pub struct Ground {
    /// What must not be forgotten.
    pub store: Arc<Store>,
    /// Credentials.
    pub vault: Arc<Vault>,
    /// Where definitions are looked at, and who starts programs.
    pub workers: Arc<Workers>,
    /// The way in for answers.
    pub intake: Arc<Intake>,
    /// Folder of the programs' own folders.
    pub folder: PathBuf,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// The mounts of a gateway.
#[derive(Debug, Default)]
pub struct Mounts {
    by_name: BTreeMap<String, Arc<MountService>>,
}

impl Mounts {
    /// Prepares every mount; none is started yet. Ways to addresses are opened.
    #[must_use]
    pub fn new(config: &Config, ground: Ground, egress: &Egress) -> Self {
        let ground = Arc::new(ground);
        let mut by_name = BTreeMap::new();
        for mount in &config.mounts.0 {
            if let Way::Address(address) = &mount.way {
                match connection(mount, address) {
                    Ok(connection) => egress.open(connection),
                    Err(why) => tracing::error!(mount = %mount.name, "there is no way to `{}`: {why}", mount.name),
                }
            }
            let service = MountService::new(mount.clone(), Arc::clone(&ground));
            by_name.insert(mount.name.clone(), Arc::new(service));
        }
        Self { by_name }
    }

    /// The mount of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<MountService>> {
        self.by_name.get(name)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<MountService>> {
        self.by_name.values()
    }

    /// Each as a service, under the name it is counted and frozen under.
    pub fn services(&self) -> impl Iterator<Item = (ServiceName, Arc<MountService>)> {
        self.by_name.iter().filter_map(|(name, service)| Some((service_name(name)?, Arc::clone(service))))
    }

    /// Whether what goes to this service leaves the gateway, reads included.
    #[must_use]
    pub fn owns(&self, service: &ServiceName) -> bool {
        service.as_str().strip_prefix("mount.").is_some_and(|name| self.by_name.contains_key(name))
    }
}

/// What batch protection and freezes call a mount.
#[must_use]
pub fn service_name(mount: &str) -> Option<ServiceName> {
    tools::service_name(mount)
}

fn connection_name(mount: &str) -> Option<ConnectionName> {
    ConnectionName::new(format!("mount.{mount}")).ok()
}

/// The connection of a mount: its host, its path and nothing else.
fn connection(mount: &Mount, address: &MountAddress) -> Result<Connection, String> {
    let target = Target::parse(&address.url)?;
    let name = connection_name(&mount.name).ok_or_else(|| "its name cannot be used".to_owned())?;
    let mut connection = Connection::new(name, vec![HostPattern::parse(target.host())?]);
    connection.ports = vec![target.port()];
    connection.plain_http = address.http;
    connection.methods = vec![Method::POST];
    let path = address.url.split_once("://").map_or("", |(_, rest)| rest);
    let path = path.find('/').and_then(|at| path.get(at..)).unwrap_or("/");
    connection.paths = vec![PathPattern::parse(path.split(['?', '#']).next().unwrap_or("/"))?];
    connection.redirects = 0;
    connection.max_answer = mount.max_answer.as_bytes();
    connection.timeout = mount.timeout.max(Span::from_secs(1));
    connection.idle_timeout = mount.timeout.max(Span::from_secs(1));
    connection.limits.per_minute = address.per_minute;
    connection.limits.per_hour = None;
    connection.limits.burn = None;
    connection.allow_addresses = address.allow_addresses.clone();
    connection.credential = address.credential.clone();
    Ok(connection)
}

/// Keeps every mount until told to stop.
pub async fn run(gw: Arc<Gateway>, stop: watch::Receiver<bool>) {
    let mut kept = JoinSet::new();
    for service in gw.mounts.iter() {
        kept.spawn(keep::keep(Arc::clone(&gw), Arc::clone(service), stop.clone()));
    }
    while let Some(ended) = kept.join_next().await {
        if let Err(error) = ended {
            tracing::error!("a mount is no longer kept: {error}");
        }
    }
}

/// Has a mount looked at again, and waits for it. False if that took too long.
pub async fn look_again(service: &MountService) -> bool {
    let mut looked = service.looked.subscribe();
    let before = *looked.borrow_and_update();
    service.again.notify_one();
    let span = service.mount().start_timeout.as_duration() * 2;
    timeout(span, looked.wait_for(|times| *times > before)).await.is_ok_and(|waited| waited.is_ok())
}
