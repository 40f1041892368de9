//! Opening: builds a gateway from a configuration.
//!
//! Takes the configuration and the outside world (clock, ids, randomness); gives a gateway that has read its
//! rules, opened its database and folders, and loaded its key. Promise: anything that is missing or unusable is
//! reported before anything is served.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use sluice_config::{AgentSelection, Config, DatabaseLocation};
use sluice_core::audit::checkpoint::{CheckpointSigner, origin};
use sluice_core::audit::key::{SecretKey, VerifierKey};
use sluice_core::capability::{Catalogue, CatalogueError};
use sluice_core::policy::{FileFault, LivePolicy, PolicyLoadError};
use sluice_core::{AgentName, GatewayDeps, NodeName, ServiceName};
use sluice_egress::Egress;
use sluice_egress::leak::{LeakScanner, PatternLeakScanner};
use sluice_egress::oauth::OauthGrants;
use sluice_egress::transport::{EgressTransport, SystemDialer, SystemResolver, trust};
use sluice_egress::vault::{RootKeySource, Vault};
use sluice_services::about::AboutService;
use sluice_services::active_freezes::ActiveFreezes;
use sluice_services::alerts::AlertsService;
use sluice_services::catalogue::LiveCatalogue;
use sluice_services::comms::CommsService;
use sluice_services::connections::{self, ServiceConnections};
use sluice_services::custom::{self, CustomServiceDeps};
use sluice_services::files::{self, AgentRoot, AgentRoots, FilesystemService};
use sluice_services::git::{GitDeps, GitService};
use sluice_services::intake::{self, Intake};
use sluice_services::mounts::{self, MountedServers};
use sluice_services::network::NetworkService;
use sluice_services::process::ProcessService;
use sluice_services::proxies::{self, ProxiesDeps, SecurityProxies};
use sluice_services::scheduler::SchedulerService;
use sluice_services::secrets::SecretsService;
use sluice_services::state::StateService;
use sluice_services::workers::GatewayWorkers;
use sluice_services::{HoldStopper, Service, ServiceContext, ServiceSignals, Services, policies};
use sluice_store::{Store, StoreError};

use crate::recovery::{self, RecoveryMemory};
use crate::{Gateway, GatewayParts, OpenError};

/// Opens everything a gateway needs. Also returns warnings about the rules.
///
/// # Errors
/// The first part that cannot be used.
pub async fn open(config: Config, world: &GatewayDeps) -> Result<(Arc<Gateway>, Vec<FileFault>), OpenError> {
    open_on(config, world, open_store).await
}

/// Like [`open`], with a store that the caller provides.
///
/// # Errors
/// As [`open`].
pub async fn open_on(
    mut config: Config,
    world: &GatewayDeps,
    store: impl FnOnce(&Config, &GatewayDeps) -> Result<Store, StoreError>,
) -> Result<(Arc<Gateway>, Vec<FileFault>), OpenError> {
    make_private(&config.data)?;
    recovery::place::settle(&mut config);
    let scan = PatternLeakScanner::new(&config.leak.settings()).map_err(|error| OpenError::Leak(error.to_string()))?;
    let scan: Arc<dyn LeakScanner> = Arc::new(scan);
    let declared = proxies::find(&config.proxies, scan.as_ref());
    let mut custom = custom::find(&config.capabilities, scan.as_ref());
    let mut known = catalogue(&declared)?;
    custom::look_at_machine(&mut custom, &config);
    custom::add_to(&mut known, &mut custom);
    let catalogue = Arc::new(LiveCatalogue::new(known));
    let found = policies::PolicyFiles::folder(&config.policies);
    if !found.faults.is_empty() {
        return Err(OpenError::Policy(PolicyLoadError { faults: found.faults }));
    }
    let (policy, mut warnings) = LivePolicy::new(&found.sources, &catalogue.known()).map_err(OpenError::Policy)?;
    let policy = Arc::new(policy);
    let store = Arc::new(store(&config, world)?);
    warnings.extend(found.warnings.iter().cloned());
    let agents: Vec<AgentName> = store.agents().await?.into_iter().map(|agent| agent.name).collect();
    warnings.extend(policies::warn_unknown_agents(&found.sources, &agents));
    let key_is_new = !key_file(&config.data, &store, store.node()).exists();
    let recovery = recovery::start::open(&config, &store, world, key_is_new).await?;
    let mut signers = Vec::new();
    for log in store.own_logs() {
        let signer = signer(&config.data, (&store, &recovery), &log, world).await?;
        signers.push((log, signer));
    }
    let (vault, egress) = way_out(&config, world, &store, &scan).await?;
    let workers = Arc::new(GatewayWorkers::default());
    let intake = Arc::new(Intake::new(intake::IntakeDeps {
        workers: Arc::clone(&workers),
        store: Arc::clone(&store),
        vault: Arc::clone(&vault),
        ids: Arc::clone(&world.ids),
        entropy: Arc::clone(&world.entropy),
        settings: config.content.clone(),
        scan: Arc::clone(&scan),
    }));
    let folder = config.data.join("proxies");
    let deps = ProxiesDeps::new(Arc::clone(&store), Arc::clone(&egress), Arc::clone(&workers), folder, world);
    let proxies = SecurityProxies::open(declared, &Arc::new(deps));
    let folder = config.data.join("replicas");
    let deps = connections::ConnectionsDeps::new(&store, (&vault, &egress), &workers, folder, world);
    let connections = Arc::new(ServiceConnections::new(deps));
    let oauth = Arc::new(OauthGrants::new(Arc::clone(&store), Arc::clone(&vault), Arc::clone(&egress), world));
    connections.set_credential_refresher(Arc::clone(&oauth) as _);
    let (services, about) = services(&config, world, &store, (&policy, &catalogue), (&vault, &egress, &intake))?;
    local_programs(&config, world, &services, (&workers, &egress))?;
    for (name, service) in proxies.services() {
        services.put(name, service);
    }
    proxies::spawn::open(&proxies, &services);
    let standstill = Arc::new(ActiveFreezes::default());
    let folder = config.data.join("custom");
    let deps = CustomServiceDeps::new((&egress, &intake, &vault), (&workers, &standstill), folder, world);
    for (name, service) in custom::open(&custom, deps) {
        services.put(name, service);
    }
    let deps = mounts::MountsDeps {
        store: Arc::clone(&store),
        vault: Arc::clone(&vault),
        workers: Arc::clone(&workers),
        intake: Arc::clone(&intake),
        folder: config.data.join("mounts"),
        clock: Arc::clone(&world.clock),
    };
    let mounts = MountedServers::new(&config, deps, &egress);
    for (name, service) in mounts.services() {
        services.put(name, service);
    }
    catalogue.replace(catalogue.known(), &services);
    let context = Arc::new(ServiceContext {
        store,
        policy,
        catalogue,
        config,
        clock: Arc::clone(&world.clock),
        ids: Arc::clone(&world.ids),
        entropy: Arc::clone(&world.entropy),
        services,
        scan,
        vault,
        egress,
        workers,
        intake,
        proxies,
        connections,
        oauth,
        mounts,
        standstill,
        signals: ServiceSignals::default(),
    });
    context.connections.attach_context(&context);
    let gw = Gateway::new(GatewayParts { context, about, signers, recovery });
    let version = gw.policy.get().version().to_owned();
    let known = gw.store.policy_history(1).await?.first().is_some_and(|record| record.version == version);
    if !known {
        let by = sluice_core::Actor::Node(gw.store.node().clone());
        gw.store.record_policy_loaded(version, policies::as_json(&found.sources), by).await?;
    }
    let gw = Arc::new(gw);
    let stopper: Weak<dyn HoldStopper> = Arc::<Gateway>::downgrade(&gw);
    gw.attach_hold_stopper(stopper);
    Ok((gw, warnings))
}

/// Freezes everything before the gateway is served. Returns whether this call placed the freeze; calling it again
/// changes nothing and lifts nothing.
///
/// # Errors
/// When it cannot be recorded: then the gateway must not be served.
pub async fn freeze_all_at_start(gw: &Gateway) -> Result<bool, OpenError> {
    let node = sluice_core::Actor::Node(gw.store.node().clone());
    let first = gw.store.freeze_all_once(node, "the gateway was started with --frozen".into()).await?;
    gw.standstill.look(&gw.store).await;
    Ok(first)
}

/// The built-in capabilities, and those of the declared proxies.
fn catalogue(declared: &[proxies::ProxyFile]) -> Result<Catalogue, OpenError> {
    let broken = |error: CatalogueError| OpenError::Catalogue(error.to_string());
    let mut catalogue = Catalogue::builtin().map_err(broken)?;
    for found in declared.iter().filter(|found| found.is_whole()) {
        for capability in found.declared.iter().flat_map(|proxy| proxy.capabilities(&found.name)) {
            catalogue.add(capability).map_err(broken)?;
        }
    }
    Ok(catalogue)
}

fn open_store(config: &Config, world: &GatewayDeps) -> Result<Store, StoreError> {
    match &config.database {
        DatabaseLocation::File(path) => Store::open_file_unread(path, config.node.clone(), Arc::clone(&world.clock)),
        DatabaseLocation::Server(url) => Store::open_server(url.expose(), config.node.clone()),
    }
}

/// The vault and egress, the only way out.
async fn way_out(
    config: &Config,
    world: &GatewayDeps,
    store: &Arc<Store>,
    scan: &Arc<dyn LeakScanner>,
) -> Result<(Arc<Vault>, Arc<Egress>), OpenError> {
    let (source, before) = (RootKeySource::of(config), RootKeySource::before(config));
    let vault = Vault::open(Arc::clone(store), world, source, before).await;
    let vault = Arc::new(vault.map_err(|error| OpenError::Vault(error.to_string()))?);
    let tls = trust(config.egress.ca_file.as_deref()).map_err(OpenError::Trust)?;
    let wire = EgressTransport::new(Arc::new(SystemResolver), Arc::new(SystemDialer), tls);
    let egress = Egress::new(Arc::clone(store), Arc::clone(&vault), Arc::clone(scan), wire, world);
    config.egress.connections.0.iter().for_each(|connection| egress.open(connection.clone()));
    Ok((vault, Arc::new(egress)))
}

/// The data folder: created if missing, accessible to its owner only.
fn make_private(data: &Path) -> Result<(), OpenError> {
    let refuse = |error: std::io::Error| OpenError::Folder { path: data.display().to_string(), why: error.to_string() };
    std::fs::create_dir_all(data).map_err(refuse)?;
    let mode = std::fs::metadata(data).map_err(refuse)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(data, std::fs::Permissions::from_mode(0o700)).map_err(refuse)?;
    }
    Ok(())
}

/// The signer of a log with its key: read, or created on the first start. The public key lies beside it.
async fn signer(
    data: &Path,
    (store, recovery): (&Store, &RecoveryMemory),
    node: &NodeName,
    world: &GatewayDeps,
) -> Result<CheckpointSigner, OpenError> {
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
    // Nothing is signed on a database that is not trusted; its last checkpoint may not be from this gateway.
    let last = if recovery.is_suspected() { None } else { store.last_checkpoint(node.clone()).await? };
    let signer = match last {
        Some(last) => CheckpointSigner::resume(key, node, &last.note),
        None => CheckpointSigner::new(key, node),
    };
    signer.map_err(|error| broken(error.to_string()))
}

/// The file with the key that signs a log of this node.
fn key_file(data: &Path, store: &Store, log: &NodeName) -> PathBuf {
    let lane = log.as_str().strip_prefix(store.node().as_str()).unwrap_or_default();
    data.join("keys").join(format!("audit{}.key", lane.replace('/', "-")))
}

/// Writes the public key beside the private one, for anyone who verifies the audit log without the gateway.
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
    world: &GatewayDeps,
) -> Result<FilesystemService, OpenError> {
    let list = config.filesystem.roots.iter().map(|root| AgentRoot {
        path: root.path.display().to_string(),
        agents: match &root.agents {
            AgentSelection::All => files::RootAgents::All,
            AgentSelection::Named(names) => files::RootAgents::Named(names.clone()),
        },
        read_only: root.read_only,
        trusted: root.trusted,
    });
    let roots = AgentRoots { list: list.collect(), allow_hard_links: config.filesystem.allow_hard_links };
    let with = (Arc::clone(policy), Arc::clone(intake), Arc::clone(store));
    FilesystemService::screened(with, roots, Arc::clone(&world.clock))
        .map_err(|error| OpenError::Folder { path: "filesystem.roots".into(), why: error.to_string() })
}

/// Git, and programs that agents may run, inside the opened folders.
fn local_programs(
    config: &Config,
    world: &GatewayDeps,
    services: &Services,
    (workers, egress): (&Arc<GatewayWorkers>, &Arc<Egress>),
) -> Result<(), OpenError> {
    let name = |text: &str| ServiceName::new(text).map_err(|error| OpenError::Catalogue(error.to_string()));
    let Some(files) = services.files() else { return Ok(()) };
    let files = Arc::new(files.clone());
    if config.git.enabled {
        let deps = GitDeps {
            files: Arc::clone(&files),
            workers: Arc::clone(workers),
            egress: Arc::clone(egress),
            clock: Arc::clone(&world.clock),
            ids: Arc::clone(&world.ids),
            scratch: config.data.join("git"),
        };
        services.put(name("git")?, Arc::new(GitService::new(deps, config.git.clone())));
    }
    if !config.process.programs.is_empty() {
        let (clock, scratch) = (Arc::clone(&world.clock), config.data.join("process"));
        let process = ProcessService::new((files, Arc::clone(workers)), clock, scratch, config.process.clone());
        services.put(name("process")?, Arc::new(process));
    }
    Ok(())
}

/// The services that the gateway provides itself.
fn services(
    config: &Config,
    world: &GatewayDeps,
    store: &Arc<Store>,
    (policy, catalogue): (&Arc<LivePolicy>, &Arc<LiveCatalogue>),
    (vault, egress, intake): (&Arc<Vault>, &Arc<Egress>, &Arc<Intake>),
) -> Result<(Services, Arc<AboutService>), OpenError> {
    let name = |text: &str| ServiceName::new(text).map_err(|error| OpenError::Catalogue(error.to_string()));
    let state = Arc::new(StateService::new(Arc::clone(store), config.state.clone(), Arc::clone(intake)));
    let alerts: Arc<dyn Service> = Arc::new(AlertsService::new(Arc::clone(store)));
    let secrets: Arc<dyn Service> = Arc::new(SecretsService::new(Arc::clone(store), Arc::clone(vault)));
    let mut services = Services::default().with_state(name("state")?, state).with(name("alerts")?, alerts);
    services = services.with(name("secrets")?, secrets);
    let comms: Arc<dyn Service> = Arc::new(CommsService::new(Arc::clone(store), Arc::clone(intake)));
    let scheduler = SchedulerService::new(Arc::clone(store), Arc::clone(catalogue), Arc::clone(&world.clock));
    let scheduler: Arc<dyn Service> = Arc::new(scheduler);
    services = services.with(name("comms")?, comms).with(name("scheduler")?, scheduler);
    if egress.connections().iter().any(|connection| connection.agents.is_some()) {
        let network = NetworkService::new(Arc::clone(egress), Arc::clone(intake), Arc::clone(&world.clock));
        let network: Arc<dyn Service> = Arc::new(network);
        services = services.with(name("network")?, network);
    }
    if !config.filesystem.roots.is_empty() {
        let files = open_folders(config, (policy, intake, store), world)?;
        services = services.with_files(name("filesystem")?, Arc::new(files));
    }
    let folders = config.filesystem.roots.iter().map(|root| {
        let agents = match &root.agents {
            AgentSelection::All => Vec::new(),
            AgentSelection::Named(names) => names.clone(),
        };
        (root.path.clone(), agents)
    });
    let about = Arc::new(AboutService {
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
