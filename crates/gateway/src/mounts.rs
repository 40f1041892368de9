//! Mounted servers: MCP servers of others behind the gate.
//!
//! Takes the `mounts` of the configuration; gives each as a service whose tools are capabilities `<mount>.<tool>`.
//! Programs run behind the looser profile of the sandbox, addresses are reached through egress. Promise: a tool can be
//! called only while the server says of it exactly what was accepted; what a server says is data from outside; one
//! server in trouble is that server's trouble alone.

mod answer;
mod child;
mod following;
mod guest;
mod headers;
mod http;
mod keep;
mod reload;
mod service;
mod tools;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use ::http::Method;
use sluice_core::ids::ConnectionName;
use sluice_core::refusal::Refusal;
use sluice_core::{CapabilityName, Clock, ServiceName, Span};
use sluice_store::Store;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Gateway;
use crate::config::{Config, ConfigErrors, Mount, MountAddress, Way};
use crate::egress::{Connection, Egress, HostPattern, PathPattern, Target};
use crate::intake::Intake;
use crate::services::Service as _;
use crate::vault::Vault;
use crate::workers::Workers;

pub use following::follow;
pub use reload::{Reloaded, reload};
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

/// Reads the configuration once more, as it was read when the gateway started.
pub type Source = Box<dyn Fn() -> Result<Config, ConfigErrors> + Send + Sync>;

/// The mounts of a gateway.
pub struct Mounts {
    ground: Arc<Ground>,
    by_name: RwLock<BTreeMap<String, Arc<MountService>>>,
    /// One has come that nobody keeps yet.
    came: Notify,
    /// Whoever changes them holds it.
    turn: Mutex<()>,
    source: OnceLock<Source>,
    followed: following::Followed,
}

impl std::fmt::Debug for Mounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all()).finish()
    }
}

impl Mounts {
    /// Prepares every mount; none is started yet. Ways to addresses are opened.
    #[must_use]
    pub fn new(config: &Config, ground: Ground, egress: &Egress) -> Self {
        let mounts = Self {
            ground: Arc::new(ground),
            by_name: RwLock::default(),
            came: Notify::new(),
            turn: Mutex::new(()),
            source: OnceLock::new(),
            followed: following::Followed::default(),
        };
        for mount in &config.mounts.0 {
            mounts.put(mount.clone(), egress);
        }
        mounts
    }

    /// Says where the configuration is read again. Once: a second one is not taken.
    pub fn follow(&self, source: Source) {
        // There is one caller, at the start.
        let _first = self.source.set(source);
    }

    /// The mount of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<MountService>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<MountService>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Why a capability that nobody knows may be known soon: its mount is being started, and has not said yet what it can.
    #[must_use]
    pub fn starting(&self, capability: &CapabilityName) -> Option<Refusal> {
        let (mount, _) = capability.as_str().split_once('.')?;
        self.get(mount)?.starting()
    }

    /// Each as a service, under the name it is counted and frozen under.
    #[must_use]
    pub fn services(&self) -> Vec<(ServiceName, Arc<MountService>)> {
        self.all().into_iter().filter_map(|service| Some((service_name(&service.mount().name)?, service))).collect()
    }

    /// Prepares one, in the place of the one of this name; its way is opened.
    fn put(&self, mount: Mount, egress: &Egress) -> Arc<MountService> {
        match &mount.way {
            Way::Address(address) => match connection(&mount, address) {
                Ok(connection) => egress.open(connection),
                Err(why) => tracing::error!(mount = %mount.name, "there is no way to `{}`: {why}", mount.name),
            },
            // It may have been an address before.
            Way::Program(_) => connection_name(&mount.name).iter().for_each(|way| egress.close(way)),
        }
        let name = mount.name.clone();
        let service = Arc::new(MountService::new(mount, Arc::clone(&self.ground)));
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::clone(&service));
        service
    }

    /// Forgets one; its way is closed.
    fn take(&self, name: &str, egress: &Egress) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        connection_name(name).iter().for_each(|way| egress.close(way));
    }
}

/// Whether what goes to this service leaves the gateway, reads included. Asked by name alone: a mount that comes or
/// goes meanwhile changes nothing about it.
#[must_use]
pub fn is_mount(service: &ServiceName) -> bool {
    service.as_str().starts_with("mount.")
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

/// Keeps every mount there is, and those that come, until told to stop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut kept = JoinSet::new();
    let fell = |ended: Result<(), tokio::task::JoinError>| {
        if let Err(error) = ended {
            tracing::error!("a mount is no longer kept: {error}");
        }
    };
    loop {
        for service in gw.mounts.all().into_iter().filter(|service| service.take()) {
            kept.spawn(keep::keep(Arc::clone(&gw), service));
        }
        tokio::select! {
            () = gw.mounts.came.notified() => {}
            Some(ended) = kept.join_next() => fell(ended),
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    // Nobody brings another one while the turn is ours.
    let _turn = gw.mounts.turn.lock().await;
    gw.mounts.all().iter().for_each(|service| service.stop());
    while let Some(ended) = kept.join_next().await {
        fell(ended);
    }
}

/// Has a mount looked at again, and waits for it. False if that took too long.
pub async fn look_again(service: &MountService) -> bool {
    let mut looked = service.looked.subscribe();
    let before = *looked.borrow_and_update();
    service.again.notify_one();
    // Two beginnings and a list.
    let span = service.mount().start_timeout.as_duration() * 3;
    timeout(span, looked.wait_for(|times| *times > before)).await.is_ok_and(|waited| waited.is_ok())
}
