//! Connected services: accounts behind the gate, each with its own replica and one narrow way out.
//!
//! Takes what a person connects, and a credential in the vault (`service/<connection>/access`, stored there by the
//! sign-in); gives a service that answers reads from the replica and performs writes in locked-in workers. The state of
//! a connection is kept in the store; the replica keeps the data and its cursor. Promise: reads send no request to the
//! service; a job may make only the requests that its step needs; when the service refuses the credential, all work
//! stops until a person signs in again.

mod addressed;
mod answer;
mod apart;
mod attachments;
mod following;
mod foresight;
pub mod grants;
mod job;
mod lifecycle;
mod mail;
mod manifest;
mod program;
mod sealing;
mod search;
mod sync;
mod third_party;
mod view;
mod withheld;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use sluice_config::network::EgressUrl;
use sluice_core::connection::ConnectionState;
use sluice_core::ids::{ConnectionName, MessageId, SecretName};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Actor, Clock, GatewayDeps, Ids, Millis, ServiceName};
use sluice_egress::Egress;
use sluice_egress::oauth::{CredentialRefresher, ServiceEndpoints};
use sluice_egress::vault::Vault;
use sluice_store::replica::Replica;
use sluice_store::{ServiceConnection as Row, Store};
use tokio::sync::Notify;

use crate::workers::GatewayWorkers;
use crate::{CallError, ServiceContext};

pub use manifest::AdapterManifest;
pub use sync::SyncSummary;
pub use view::{ConnectionTestView, DisconnectReceiptView, ServiceConnectionView, SyncProgressView};

/// The parameters of a new connection.
#[derive(Debug, Clone)]
pub struct ConnectServiceParams {
    /// The name of the connection: `gmail`.
    pub name: ServiceName,
    /// The name of the adapter: `gmail`.
    pub adapter: String,
    /// The addresses of the service.
    pub endpoints: ServiceEndpoints,
    /// The person who connects it.
    pub by: Actor,
}

/// Everything that connections need from the gateway.
pub struct ConnectionsDeps {
    /// The durable state.
    pub store: Arc<Store>,
    /// The vault, which holds the credentials.
    pub vault: Arc<Vault>,
    /// The only way out for requests.
    pub egress: Arc<Egress>,
    /// The workers in which adapters run.
    pub workers: Arc<GatewayWorkers>,
    /// The folder of the replicas.
    pub folder: PathBuf,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
}

impl std::fmt::Debug for ConnectionsDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl ConnectionsDeps {
    /// Builds the ground.
    #[must_use]
    pub fn new(
        store: &Arc<Store>,
        (vault, egress): (&Arc<Vault>, &Arc<Egress>),
        workers: &Arc<GatewayWorkers>,
        folder: PathBuf,
        world: &GatewayDeps,
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
struct ConnectionHandle {
    row: RwLock<Row>,
    manifest: Arc<AdapterManifest>,
    /// Address of the service.
    target: EgressUrl,
    /// The path that every request path starts with.
    base_path: String,
    copy: RwLock<Option<Arc<Replica>>>,
    /// There is a replica, but its key is wrong or missing.
    locked: AtomicBool,
    /// Held during a sync, so that only one runs.
    turn: tokio::sync::Mutex<()>,
    pace: Mutex<sync::SyncPacing>,
    /// Someone requested a sync now.
    wanted: AtomicBool,
}

impl ConnectionHandle {
    fn row(&self) -> Row {
        self.row.read().clone()
    }

    fn state(&self) -> ConnectionState {
        self.row.read().state
    }

    fn keep(&self, row: Row) {
        *self.row.write() = row;
    }

    fn copy(&self) -> Option<Arc<Replica>> {
        self.copy.read().clone()
    }

    /// The refusal that says why there is no replica to read from.
    fn no_copy(&self) -> Refusal {
        let locked = self.locked.load(Ordering::SeqCst);
        Refusal::new(if locked { Code::StoreWrongKey } else { Code::ExecuteReconnect })
    }

    /// Checks that this connection has a replica: a service behind a third-party adapter has none.
    fn require_replica(&self) -> Result<(), CallError> {
        let text = "this service has no replica: its reads go to the service itself";
        match &self.manifest.foreign {
            Some(_) => Err(CallError::with_text(Code::GatewayUnsupported, text)),
            None => Ok(()),
        }
    }

    /// The name of the connection's way out.
    fn egress_connection_name(name: &ServiceName) -> Result<ConnectionName, CallError> {
        ConnectionName::new(format!("service.{name}")).map_err(|_| CallError::new(Code::SchemaBadName))
    }
}

/// The connections of a gateway.
pub struct ServiceConnections {
    deps: ConnectionsDeps,
    lines: RwLock<BTreeMap<ServiceName, Arc<ConnectionHandle>>>,
    manifests: Mutex<HashMap<String, Arc<AdapterManifest>>>,
    fresh: OnceLock<Arc<dyn CredentialRefresher>>,
    gateway: OnceLock<Weak<ServiceContext>>,
    wake: Notify,
    /// Held while a connection begins or ends here, and while changes of another node are applied.
    changing: tokio::sync::Mutex<()>,
    /// Connections of other nodes that could not be applied here: the version, and when, in time since boot.
    failed: Mutex<HashMap<ServiceName, (u64, Millis)>>,
}

impl std::fmt::Debug for ServiceConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.lines.read().keys()).finish()
    }
}

impl ServiceConnections {
    /// No connections yet: `open` reads those that exist already.
    #[must_use]
    pub fn new(deps: ConnectionsDeps) -> Self {
        Self {
            deps,
            lines: RwLock::default(),
            manifests: Mutex::default(),
            fresh: OnceLock::new(),
            gateway: OnceLock::new(),
            wake: Notify::new(),
            changing: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Sets the gateway that owns the connections. Called once, when the gateway is built.
    pub fn attach_context(&self, gateway: &Arc<ServiceContext>) {
        // A gateway is built only once.
        let _first = self.gateway.set(Arc::downgrade(gateway));
    }

    /// Sets who keeps credentials fresh. The first one stays; without one, credentials are used as they are.
    pub fn set_credential_refresher(&self, keeper: Arc<dyn CredentialRefresher>) {
        let _first = self.fresh.set(keeper);
    }

    /// The name of the secret that the requests of a job carry.
    ///
    /// # Errors
    /// When the connection name does not fit into a secret name.
    pub fn access_secret(name: &ServiceName) -> Result<SecretName, CallError> {
        SecretName::new(format!("service/{name}/access")).map_err(|_| CallError::new(Code::SchemaBadName))
    }

    /// The name of the secret that is used to sign in again.
    ///
    /// # Errors
    /// When the connection name does not fit into a secret name.
    pub fn oauth_secret(name: &ServiceName) -> Result<SecretName, CallError> {
        SecretName::new(format!("service/{name}/oauth")).map_err(|_| CallError::new(Code::SchemaBadName))
    }

    /// The name of the secret with the encryption key of the replica, if the replica is encrypted.
    ///
    /// # Errors
    /// When the connection name does not fit into a secret name.
    pub fn copy_secret(name: &ServiceName) -> Result<SecretName, CallError> {
        SecretName::new(format!("service/{name}/copy")).map_err(|_| CallError::new(Code::SchemaBadName))
    }

    /// The scope that the access secret must be bound to: the service's capabilities, at its host.
    ///
    /// # Errors
    /// When there is no such connection.
    pub async fn access_scope(&self, name: &ServiceName) -> Result<sluice_egress::vault::SecretScope, CallError> {
        let line = self.find_or_open(name).await?;
        let capabilities = vec![format!("{}.*", line.manifest.service)];
        let hosts = [line.target.host().to_owned()];
        sluice_egress::vault::SecretScope::new(capabilities, &hosts)
            .map_err(|why| CallError::with_text(Code::SchemaWrongType, &why))
    }

    fn context(&self) -> Result<Arc<ServiceContext>, CallError> {
        self.gateway.get().and_then(Weak::upgrade).ok_or_else(|| CallError::new(Code::GatewayStopping))
    }

    fn message(&self) -> MessageId {
        MessageId::mint(self.deps.ids.as_ref())
    }

    fn node(&self) -> Actor {
        Actor::Node(self.deps.store.node().clone())
    }

    fn known(&self, name: &ServiceName) -> Option<Arc<ConnectionHandle>> {
        self.lines.read().get(name).cloned()
    }

    fn all(&self) -> Vec<Arc<ConnectionHandle>> {
        self.lines.read().values().cloned().collect()
    }
}

/// The refusal for a name that no connection has.
fn unknown(name: &ServiceName) -> CallError {
    CallError::with_text(Code::StoreNotFound, &format!("there is no connection `{name}`"))
}
