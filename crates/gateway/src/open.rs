//! Opening: a configuration becomes a gateway.
//!
//! Takes the configuration and the outside world (clock, ids, randomness); gives a gateway that has read its
//! rules, opened its database and its folders, and knows its key. Promise: whatever cannot be had is said
//! before anything is served.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::audit::checkpoint::{Signer, origin};
use sluice_core::audit::key::{SecretKey, VerifierKey};
use sluice_core::capability::{Catalogue, CatalogueError};
use sluice_core::policy::{Fault, LivePolicy, LoadErrors};
use sluice_core::{AgentName, Clock, Entropy, Ids, NodeName, ServiceName};
use sluice_store::{Store, StoreError};

use crate::catalogue::LiveCatalogue;
use crate::config::{Agents, Config, Database};
use crate::connections::{self, Connections};
use crate::custom::{self, CustomGround};
use crate::egress::Egress;
use crate::egress::wire::{SystemDialer, SystemResolver, Wire, trust};
use crate::intake::{self, Intake};
use crate::mounts::{self, Mounts};
use crate::oauth::Oauth;
use crate::proxies::{self, Ground, Proxies};
use crate::recovery::{self, Recovery};
use crate::rooms::leak::{Patterns, Scan};
use crate::services::about::About;
use crate::services::alerts::Alerts;
use crate::services::comms::Comms;
use crate::services::files::{self, Files, Root, Roots};
use crate::services::git::{Git, GitGround};
use crate::services::network::Network;
use crate::services::process::Process;
use crate::services::scheduler::Scheduler;
use crate::services::secrets::Secrets;
use crate::services::state::State;
use crate::services::{Service, Services};
use crate::standstill::Standstill;
use crate::vault::{Source, Vault};
use crate::workers::Workers;
use crate::{Gateway, Parts, policies};

/// Why a gateway could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The rules cannot be used.
    #[error("{0}")]
    Policy(LoadErrors),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A folder cannot be used.
    #[error("the folder `{path}` cannot be used: {why}")]
    Folder {
        /// Which.
        path: String,
        /// Why not.
        why: String,
    },
    /// The key that signs the record cannot be used.
    #[error("the key that signs the record cannot be used: {0}")]
    Key(String),
    /// The vault cannot be opened.
    #[error("{0}")]
    Vault(String),
    /// Certificates that should be trusted cannot be read.
    #[error("the certificates of `egress.ca_file` cannot be used: {0}")]
    Trust(String),
    /// The patterns of what must not leave cannot be used.
    #[error("the leak scan cannot be prepared: {0}")]
    Leak(String),
    /// A mistake of ours.
    #[error("the catalogue of capabilities is broken: {0}")]
    Catalogue(String),
}

/// The world outside: injected, so that tests own it.
#[derive(Clone)]
pub struct World {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
    /// Where randomness comes from.
    pub entropy: Arc<dyn Entropy>,
    /// The release.
    pub release: &'static str,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

impl OpenError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Policy(_) => "policy.invalid",
            Self::Store(error) => error.code(),
            Self::Folder { .. } => "open.folder",
            Self::Key(_) => "open.key",
            Self::Vault(_) => "vault.locked",
            Self::Trust(_) => "open.trust",
            Self::Leak(_) => "open.leak",
            Self::Catalogue(_) => "gateway.internal",
        }
    }
}

/// Opens everything a gateway needs. Gives warnings about the rules along.
///
/// # Errors
/// The first thing that cannot be had.
pub async fn open(config: Config, world: &World) -> Result<(Arc<Gateway>, Vec<Fault>), OpenError> {
    open_on(config, world, open_store).await
}

/// As [`open`], on a store of the caller's.
///
/// # Errors
/// As [`open`].
pub async fn open_on(
    mut config: Config,
    world: &World,
    store: impl FnOnce(&Config, &World) -> Result<Store, StoreError>,
) -> Result<(Arc<Gateway>, Vec<Fault>), OpenError> {
    make_private(&config.data)?;
    recovery::place::settle(&mut config);
    let scan = Patterns::new(&config.leak.settings()).map_err(|error| OpenError::Leak(error.to_string()))?;
    let scan: Arc<dyn Scan> = Arc::new(scan);
    let declared = proxies::find(&config.proxies, scan.as_ref());
    let mut custom = custom::find(&config.capabilities, scan.as_ref());
    let mut known = catalogue(&declared)?;
    custom::look_at_machine(&mut custom, &config);
    custom::add_to(&mut known, &mut custom);
    let catalogue = Arc::new(LiveCatalogue::new(known));
    let found = policies::Found::folder(&config.policies);
    if !found.faults.is_empty() {
        return Err(OpenError::Policy(LoadErrors { faults: found.faults }));
    }
    let (policy, mut warnings) = LivePolicy::new(&found.sources, &catalogue.known()).map_err(OpenError::Policy)?;
    let policy = Arc::new(policy);
    let store = Arc::new(store(&config, world)?);
    warnings.extend(found.warnings.iter().cloned());
    let agents: Vec<AgentName> = store.agents().await?.into_iter().map(|agent| agent.name).collect();
    warnings.extend(policies::of_no_agent(&found.sources, &agents));
    let key_is_new = !key_file(&config.data, &store, store.node()).exists();
    let recovery = recovery::start::open(&config, &store, world, key_is_new).await?;
    let mut signers = Vec::new();
    for log in store.own_logs() {
        let signer = signer(&config.data, (&store, &recovery), &log, world).await?;
        signers.push((log, signer));
    }
    let (vault, egress) = way_out(&config, world, &store, &scan).await?;
    let workers = Arc::new(Workers::default());
    let intake = Arc::new(Intake::new(intake::Ground {
        workers: Arc::clone(&workers),
        store: Arc::clone(&store),
        vault: Arc::clone(&vault),
        ids: Arc::clone(&world.ids),
        entropy: Arc::clone(&world.entropy),
        settings: config.content.clone(),
        scan: Arc::clone(&scan),
    }));
    let folder = config.data.join("proxies");
    let ground = Ground::new(Arc::clone(&store), Arc::clone(&egress), Arc::clone(&workers), folder, world);
    let proxies = Proxies::open(declared, &Arc::new(ground));
    let folder = config.data.join("replicas");
    let ground = connections::Ground::new(&store, (&vault, &egress), &workers, folder, world);
    let connections = Arc::new(Connections::new(ground));
    let oauth = Arc::new(Oauth::new(Arc::clone(&store), Arc::clone(&vault), Arc::clone(&egress), world));
    connections.kept_fresh_by(Arc::clone(&oauth) as _);
    let (services, about) = services(&config, world, &store, (&policy, &catalogue), (&vault, &egress, &intake))?;
    local_programs(&config, world, &services, (&workers, &egress))?;
    for (name, service) in proxies.services() {
        services.put(name, service);
    }
    proxies::spawn::open(&proxies, &services);
    let standstill = Arc::new(Standstill::default());
    let folder = config.data.join("custom");
    let ground = CustomGround::new((&egress, &intake, &vault), (&workers, &standstill), folder, world);
    for (name, service) in custom::open(&custom, ground) {
        services.put(name, service);
    }
    let ground = mounts::Ground {
        store: Arc::clone(&store),
        vault: Arc::clone(&vault),
        workers: Arc::clone(&workers),
        intake: Arc::clone(&intake),
        folder: config.data.join("mounts"),
        clock: Arc::clone(&world.clock),
    };
    let mounts = Mounts::new(&config, ground, &egress);
    for (name, service) in mounts.services() {
        services.put(name, service);
    }
    catalogue.replace(catalogue.known(), &services);
    let gw = Gateway::new(Parts {
        store,
        policy,
        catalogue,
        config,
        clock: Arc::clone(&world.clock),
        ids: Arc::clone(&world.ids),
        entropy: Arc::clone(&world.entropy),
        services,
        about,
        scan: Box::new(scan),
        vault,
        egress,
        workers,
        intake,
        proxies,
        connections,
        oauth,
        mounts,
        standstill,
        signers,
        recovery,
    });
    let version = gw.policy.get().version().to_owned();
    let known = gw.store.policy_history(1).await?.first().is_some_and(|record| record.version == version);
    if !known {
        let by = sluice_core::Actor::Node(gw.store.node().clone());
        gw.store.policy_loaded(version, policies::as_json(&found.sources), by).await?;
    }
    let gw = Arc::new(gw);
    gw.connections.belong_to(&gw);
    Ok((gw, warnings))
}

/// Freezes everything before the gateway is served. Answers whether it was not frozen before; doing it again is doing it
/// once, and lifts nothing.
///
/// # Errors
/// When it cannot be recorded: then the gateway must not be served.
pub async fn frozen(gw: &Gateway) -> Result<bool, OpenError> {
    let node = sluice_core::Actor::Node(gw.store.node().clone());
    let first = gw.store.freeze_all_once(node, "the gateway was started with --frozen".into()).await?;
    gw.standstill.look(&gw.store).await;
    Ok(first)
}

/// Everything that ships with the gateway, and what whole declarations of proxies bring.
fn catalogue(declared: &[proxies::Found]) -> Result<Catalogue, OpenError> {
    let broken = |error: CatalogueError| OpenError::Catalogue(error.to_string());
    let mut catalogue = Catalogue::builtin().map_err(broken)?;
    for found in declared.iter().filter(|found| found.is_whole()) {
        for capability in found.declared.iter().flat_map(|proxy| proxy.capabilities(&found.name)) {
            catalogue.add(capability).map_err(broken)?;
        }
    }
    Ok(catalogue)
}

fn open_store(config: &Config, world: &World) -> Result<Store, StoreError> {
    match &config.database {
        Database::File(path) => Store::open_file_unread(path, config.node.clone(), Arc::clone(&world.clock)),
        Database::Server(url) => Store::open_server(url.expose(), config.node.clone()),
    }
}

/// The vault, and the only way out.
async fn way_out(
    config: &Config,
    world: &World,
    store: &Arc<Store>,
    scan: &Arc<dyn Scan>,
) -> Result<(Arc<Vault>, Arc<Egress>), OpenError> {
    let (source, before) = (Source::of(config), Source::before(config));
    let vault = Vault::open(Arc::clone(store), world, source, before).await;
    let vault = Arc::new(vault.map_err(|error| OpenError::Vault(error.to_string()))?);
    let tls = trust(config.egress.ca_file.as_deref()).map_err(OpenError::Trust)?;
    let wire = Wire::new(Arc::new(SystemResolver), Arc::new(SystemDialer), tls);
    let egress = Egress::new(Arc::clone(store), Arc::clone(&vault), Arc::clone(scan), wire, world);
    config.egress.connections.0.iter().for_each(|connection| egress.open(connection.clone()));
    Ok((vault, Arc::new(egress)))
}

/// The data folder: made if missing, for its owner only.
fn make_private(data: &Path) -> Result<(), OpenError> {
    let refuse = |error: std::io::Error| OpenError::Folder { path: data.display().to_string(), why: error.to_string() };
    std::fs::create_dir_all(data).map_err(refuse)?;
    let mode = std::fs::metadata(data).map_err(refuse)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(data, std::fs::Permissions::from_mode(0o700)).map_err(refuse)?;
    }
    Ok(())
}

/// The signer of a log, with its key: read, or made on the first start. Its public half lies beside it.
async fn signer(
    data: &Path,
    (store, recovery): (&Store, &Recovery),
    node: &NodeName,
    world: &World,
) -> Result<Signer, OpenError> {
    let (folder, path) = (data.join("keys"), key_file(data, store, node));
    let broken = |why: String| OpenError::Key(why);
    let key = match std::fs::read_to_string(&path) {
        Ok(text) => SecretKey::parse(text.trim()).map_err(|error| broken(error.to_string()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = SecretKey::generate(&origin(node), world.entropy.as_ref())
                .map_err(|error| broken(error.to_string()))?;
            write_private(&folder, &path, key.to_text().as_bytes()).map_err(|error| broken(error.to_string()))?;
            key
        }
        Err(error) => return Err(broken(error.to_string())),
    };
    publish(&path.with_extension("pub"), key.public()).map_err(|error| broken(error.to_string()))?;
    // Nothing is signed over a database that is not trusted; what is in it need not be a checkpoint of ours.
    let last = if recovery.is_suspected() { None } else { store.last_checkpoint(node.clone()).await? };
    let signer = match last {
        Some(last) => Signer::resume(key, node, &last.note),
        None => Signer::new(key, node),
    };
    signer.map_err(|error| broken(error.to_string()))
}

/// The file with the key that signs a log of this node.
fn key_file(data: &Path, store: &Store, log: &NodeName) -> PathBuf {
    let lane = log.as_str().strip_prefix(store.node().as_str()).unwrap_or_default();
    data.join("keys").join(format!("audit{}.key", lane.replace('/', "-")))
}

/// The public half beside the key, for whoever is to check the record without us: always that of the key in use.
fn publish(path: &Path, key: &VerifierKey) -> std::io::Result<()> {
    let text = format!("{key}\n");
    if std::fs::read_to_string(path).is_ok_and(|kept| kept == text) {
        return Ok(());
    }
    let fresh = path.with_extension("pub.new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, path)
}

fn write_private(folder: &Path, path: &Path, content: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// The folders opened to agents.
fn open_folders(
    config: &Config,
    (policy, intake, store): (&Arc<LivePolicy>, &Arc<Intake>, &Arc<Store>),
    world: &World,
) -> Result<Files, OpenError> {
    let list = config.filesystem.roots.iter().map(|root| Root {
        path: root.path.display().to_string(),
        agents: match &root.agents {
            Agents::All => files::Agents::All,
            Agents::Named(names) => files::Agents::Named(names.clone()),
        },
        read_only: root.read_only,
        trusted: root.trusted,
    });
    let roots = Roots { list: list.collect(), allow_hard_links: config.filesystem.allow_hard_links };
    let with = (Arc::clone(policy), Arc::clone(intake), Arc::clone(store));
    Files::screened(with, roots, Arc::clone(&world.clock))
        .map_err(|error| OpenError::Folder { path: "filesystem.roots".into(), why: error.to_string() })
}

/// Git, and programs that agents may run, below the opened folders.
fn local_programs(
    config: &Config,
    world: &World,
    services: &Services,
    (workers, egress): (&Arc<Workers>, &Arc<Egress>),
) -> Result<(), OpenError> {
    let name = |text: &str| ServiceName::new(text).map_err(|error| OpenError::Catalogue(error.to_string()));
    let Some(files) = services.files() else { return Ok(()) };
    let files = Arc::new(files.clone());
    if config.git.enabled {
        let ground = GitGround {
            files: Arc::clone(&files),
            workers: Arc::clone(workers),
            egress: Arc::clone(egress),
            clock: Arc::clone(&world.clock),
            ids: Arc::clone(&world.ids),
            scratch: config.data.join("git"),
        };
        services.put(name("git")?, Arc::new(Git::new(ground, config.git.clone())));
    }
    if !config.process.programs.is_empty() {
        let (clock, scratch) = (Arc::clone(&world.clock), config.data.join("process"));
        let process = Process::new((files, Arc::clone(workers)), clock, scratch, config.process.clone());
        services.put(name("process")?, Arc::new(process));
    }
    Ok(())
}

/// Everything behind the gate that the gateway itself provides.
fn services(
    config: &Config,
    world: &World,
    store: &Arc<Store>,
    (policy, catalogue): (&Arc<LivePolicy>, &Arc<LiveCatalogue>),
    (vault, egress, intake): (&Arc<Vault>, &Arc<Egress>, &Arc<Intake>),
) -> Result<(Services, Arc<About>), OpenError> {
    let name = |text: &str| ServiceName::new(text).map_err(|error| OpenError::Catalogue(error.to_string()));
    let state = Arc::new(State::new(Arc::clone(store), config.state.clone(), Arc::clone(intake)));
    let alerts: Arc<dyn Service> = Arc::new(Alerts::new(Arc::clone(store)));
    let secrets: Arc<dyn Service> = Arc::new(Secrets::new(Arc::clone(store), Arc::clone(vault)));
    let mut services = Services::default().with_state(name("state")?, state).with(name("alerts")?, alerts);
    services = services.with(name("secrets")?, secrets);
    let comms: Arc<dyn Service> = Arc::new(Comms::new(Arc::clone(store), Arc::clone(intake)));
    let scheduler = Scheduler::new(Arc::clone(store), Arc::clone(catalogue), Arc::clone(&world.clock));
    let scheduler: Arc<dyn Service> = Arc::new(scheduler);
    services = services.with(name("comms")?, comms).with(name("scheduler")?, scheduler);
    if egress.connections().iter().any(|connection| connection.agents.is_some()) {
        let network = Network::new(Arc::clone(egress), Arc::clone(intake), Arc::clone(&world.clock));
        let network: Arc<dyn Service> = Arc::new(network);
        services = services.with(name("network")?, network);
    }
    if !config.filesystem.roots.is_empty() {
        let files = open_folders(config, (policy, intake, store), world)?;
        services = services.with_files(name("filesystem")?, Arc::new(files));
    }
    let folders = config.filesystem.roots.iter().map(|root| {
        let agents = match &root.agents {
            Agents::All => Vec::new(),
            Agents::Named(names) => names.clone(),
        };
        (root.path.clone(), agents)
    });
    let about = Arc::new(About {
        store: Arc::clone(store),
        policy: Arc::clone(policy),
        catalogue: Arc::clone(catalogue),
        folders: folders.collect(),
        release: world.release,
    });
    let services = services.with(name("agent")?, about.clone()).with(name("system")?, about.clone());
    catalogue.replace(catalogue.known(), &services);
    Ok((services, about))
}
