//! Connected services: accounts behind the gate, each with a copy of its own and one narrow way out.
//!
//! Takes what a person connects, and a credential in the vault (`service/<connection>/access`, put there by whoever
//! signs in); gives a service that answers reads from the copy and carries writes out in locked-in workers. How a
//! connection stands is kept in the store, its copy and the copy's cursor in the replica. Promise: reads ask nothing
//! of the service; a job may make only the requests its step needs; a credential the service refuses ends all work
//! until a person signs in again.

mod addressed;
mod answer;
mod apart;
mod attachments;
mod following;
mod foreign;
mod foresight;
mod job;
mod lifecycle;
mod mail;
mod manifest;
mod program;
mod sealing;
mod search;
mod sync;
mod view;
mod withheld;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use serde::{Deserialize, Serialize};
use sluice_core::connection::ConnectionState;
use sluice_core::ids::{ConnectionName, MessageId, SecretName};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Actor, Clock, Ids, ServiceName, Span};
use sluice_store::replica::Replica;
use sluice_store::{Connection as Row, Store};
use tokio::sync::Notify;

use crate::egress::{Egress, Target};
use crate::open::World;
use crate::services::Work;
use crate::vault::Vault;
use crate::workers::Workers;
use crate::{Gateway, No};

pub use manifest::Manifest;
pub use sync::Synced;
pub use view::{ConnectionView, Progress, Receipt, Tested};

/// Why there is no fresh credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFresh {
    /// The service takes no credential of ours any more: a person has to sign in.
    NeedsReauth,
    /// Not now: whoever gives out credentials does not answer.
    Later,
}

/// Keeps the credential at `service/<connection>/access` usable.
pub trait KeepFresh: Send + Sync {
    /// Called before each job: sees to it that the credential will last for a while.
    fn fresh<'a>(&'a self, connection: &'a ServiceName) -> Work<'a, Result<(), NotFresh>>;

    /// Called once after the service refused the credential (401): gets another one, whatever the old one's age.
    fn refused<'a>(&'a self, connection: &'a ServiceName) -> Work<'a, Result<(), NotFresh>> {
        self.fresh(connection)
    }
}

/// Where a service and whoever signs people in to it are reached. What is not given is the adapter's own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Endpoints {
    /// The service itself: `https://gmail.googleapis.com`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// Where a person says yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorize: Option<String>,
    /// Where a code becomes tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Where tokens end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<String>,
    /// As what we are known there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// What is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// A print of what an adapter of others said about itself when a person connected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_print: Option<String>,
}

/// What a person wants connected.
#[derive(Debug, Clone)]
pub struct Connect {
    /// What it will be called: `gmail`.
    pub name: ServiceName,
    /// The adapter: `gmail`.
    pub adapter: String,
    /// Where it is reached.
    pub endpoints: Endpoints,
    /// Who connects it.
    pub by: Actor,
}

/// Everything connections need of the gateway.
pub struct Ground {
    /// What must not be forgotten.
    pub store: Arc<Store>,
    /// Credentials.
    pub vault: Arc<Vault>,
    /// The way out.
    pub egress: Arc<Egress>,
    /// Where adapters run.
    pub workers: Arc<Workers>,
    /// Folder of the copies.
    pub folder: PathBuf,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Ground {
    /// Puts the ground together.
    #[must_use]
    pub fn new(
        store: &Arc<Store>,
        (vault, egress): (&Arc<Vault>, &Arc<Egress>),
        workers: &Arc<Workers>,
        folder: PathBuf,
        world: &World,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            vault: Arc::clone(vault),
            egress: Arc::clone(egress),
            workers: Arc::clone(workers),
            folder,
            clock: Arc::clone(&world.clock),
            ids: Arc::clone(&world.ids),
        }
    }
}

/// One connection in this process.
struct Line {
    row: RwLock<Row>,
    manifest: Arc<Manifest>,
    /// Where the service is.
    target: Target,
    /// Path that every request starts with.
    base_path: String,
    copy: RwLock<Option<Arc<Replica>>>,
    /// There is a copy, and its key is another one or gone.
    locked: AtomicBool,
    /// Whoever copies holds it.
    turn: tokio::sync::Mutex<()>,
    pace: Mutex<sync::Pace>,
    /// Someone wants the copy brought up to date now.
    wanted: AtomicBool,
}

impl Line {
    fn row(&self) -> Row {
        self.row.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> ConnectionState {
        self.row.read().unwrap_or_else(PoisonError::into_inner).state
    }

    fn keep(&self, row: Row) {
        *self.row.write().unwrap_or_else(PoisonError::into_inner) = row;
    }

    fn copy(&self) -> Option<Arc<Replica>> {
        self.copy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why there is no copy to look into.
    fn no_copy(&self) -> Refusal {
        let locked = self.locked.load(Ordering::SeqCst);
        Refusal::new(if locked { Code::StoreWrongKey } else { Code::ExecuteReconnect })
    }

    /// Of a service of others no copy is kept.
    fn has_a_copy(&self) -> Result<(), No> {
        let text = "no copy is kept of this service: its reads are asked of it";
        match &self.manifest.foreign {
            Some(_) => Err(No::saying(Code::GatewayUnsupported, text)),
            None => Ok(()),
        }
    }

    /// What its way out is called.
    fn way(name: &ServiceName) -> Result<ConnectionName, No> {
        ConnectionName::new(format!("service.{name}")).map_err(|_| No::new(Code::SchemaBadName))
    }
}

/// The connections of a gateway.
pub struct Connections {
    ground: Ground,
    lines: RwLock<BTreeMap<ServiceName, Arc<Line>>>,
    manifests: Mutex<HashMap<String, Arc<Manifest>>>,
    fresh: OnceLock<Arc<dyn KeepFresh>>,
    gateway: OnceLock<Weak<Gateway>>,
    wake: Notify,
    /// Held by whoever begins or ends a connection here, and by whoever takes up what another node did.
    changing: tokio::sync::Mutex<()>,
    /// Connections of other nodes that could not be taken up: which version, and when, by the age of the machine.
    failed: Mutex<HashMap<ServiceName, (u64, Span)>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.lines.read().unwrap_or_else(PoisonError::into_inner).keys()).finish()
    }
}

impl Connections {
    /// None yet: `open` reads those that were connected before.
    #[must_use]
    pub fn new(ground: Ground) -> Self {
        Self {
            ground,
            lines: RwLock::default(),
            manifests: Mutex::default(),
            fresh: OnceLock::new(),
            gateway: OnceLock::new(),
            wake: Notify::new(),
            changing: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Whose they are. Said once, when the gateway is put together.
    pub(crate) fn belong_to(&self, gateway: &Arc<Gateway>) {
        // A gateway is put together once.
        let _first = self.gateway.set(Arc::downgrade(gateway));
    }

    /// Who keeps credentials usable. The first one stays; without one, they are used as they are.
    pub fn kept_fresh_by(&self, keeper: Arc<dyn KeepFresh>) {
        let _first = self.fresh.set(keeper);
    }

    /// The secret a job's requests carry.
    ///
    /// # Errors
    /// When the name does not fit into one.
    pub fn access_secret(name: &ServiceName) -> Result<SecretName, No> {
        SecretName::new(format!("service/{name}/access")).map_err(|_| No::new(Code::SchemaBadName))
    }

    /// What signing in again is done with.
    ///
    /// # Errors
    /// When the name does not fit into one.
    pub fn oauth_secret(name: &ServiceName) -> Result<SecretName, No> {
        SecretName::new(format!("service/{name}/oauth")).map_err(|_| No::new(Code::SchemaBadName))
    }

    /// The key its copy is encrypted with, if it is.
    ///
    /// # Errors
    /// When the name does not fit into one.
    pub fn copy_secret(name: &ServiceName) -> Result<SecretName, No> {
        SecretName::new(format!("service/{name}/copy")).map_err(|_| No::new(Code::SchemaBadName))
    }

    /// What the access secret has to be bound to: the service's capabilities, at its host.
    ///
    /// # Errors
    /// When there is no such connection.
    pub async fn access_scope(&self, name: &ServiceName) -> Result<crate::vault::Scope, No> {
        let line = self.line(name).await?;
        let capabilities = vec![format!("{}.*", line.manifest.service)];
        let hosts = [line.target.host().to_owned()];
        crate::vault::Scope::new(capabilities, &hosts).map_err(|why| No::saying(Code::SchemaWrongType, &why))
    }

    fn gateway(&self) -> Result<Arc<Gateway>, No> {
        self.gateway.get().and_then(Weak::upgrade).ok_or_else(|| No::new(Code::GatewayStopping))
    }

    fn message(&self) -> MessageId {
        MessageId::mint(self.ground.ids.as_ref())
    }

    fn node(&self) -> Actor {
        Actor::Node(self.ground.store.node().clone())
    }

    fn known(&self, name: &ServiceName) -> Option<Arc<Line>> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn all(&self) -> Vec<Arc<Line>> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// There is none of this name.
fn unknown(name: &ServiceName) -> No {
    No::saying(Code::StoreNotFound, &format!("there is no connection `{name}`"))
}
