//! Security proxies: isolated interfaces to untrusted services.
//!
//! Takes the declarations of a folder; gives each as a service behind the gate, with its own connection through egress
//! and a workspace that outlives its tasks. Promise: a declaration with a flaw opens nothing, and the others keep
//! running; every task is visible from its start to its end.

pub mod budget;
mod host;
pub mod keep;
pub mod reload;
pub mod rotation;
mod run;
mod service;
pub mod spawn;
pub mod workspace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use parking_lot::{Mutex, RwLock};
use sluice_config::network::{CredentialPlacement, EgressConnection, EgressUrl, HostPattern, IpNetwork, PathPattern};
use sluice_content::leak::LeakScope;
use sluice_core::crash::{CrashCause, CrashContext, CrashFootprint, CrashReport, next_step};
use sluice_core::ids::{ConnectionName, JobId, MessageId, SecretName};
use sluice_core::proxy::{self, Proxy, ProxyBudget, ProxyFileError, ProxyFlaw, ProxyUsage};
use sluice_core::refusal::Code;
use sluice_core::{CapabilityName, Clock, GatewayDeps, Ids, Millis, ServiceName, UtcMillis};
use sluice_egress::leak::{LeakScanner, OutgoingRequest};
use sluice_egress::{Egress, TicketOperation};
use sluice_store::{ProxyTask, ProxyTaskEnd, ProxyTaskNotes, ProxyTaskState, ProxyTaskUsage, Store};
use tokio::task::JoinSet;

use crate::workers::GatewayWorkers;
use crate::{CallError, ServiceContext, declarations};

pub use service::ProxyService;
pub use workspace::ProxyWorkspace;

/// Everything that a task of a proxy needs from the gateway.
pub struct ProxiesDeps {
    /// The durable state.
    pub store: Arc<Store>,
    /// The only way out for requests.
    pub egress: Arc<Egress>,
    /// The workers in which tasks run.
    pub workers: Arc<GatewayWorkers>,
    /// The folder of the workspaces.
    pub folder: PathBuf,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
    /// Tasks in progress. They end with the gateway, not with their callers.
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for ProxiesDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A declaration as it was found on the disk.
#[derive(Debug)]
pub struct ProxyFile {
    /// Its name: the file name without its extension.
    pub name: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file, if it can be read.
    pub declared: Result<Proxy, ProxyFileError>,
    /// The flaws of the declaration.
    pub flaws: Vec<ProxyFlaw>,
    /// Warnings that a person should check although the proxy may run.
    pub warnings: Vec<ProxyFlaw>,
}

impl ProxyFile {
    /// Whether it may run.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.declared.is_ok() && self.flaws.is_empty()
    }
}

/// Reads a folder of declarations, ordered by name. A folder that does not exist holds none.
#[must_use]
pub fn find(folder: &Path, scan: &dyn LeakScanner) -> Vec<ProxyFile> {
    declarations::files(folder).into_iter().map(|path| read(path, scan)).collect()
}

/// Reads one declaration and finds all its flaws.
#[must_use]
pub fn read(path: PathBuf, scan: &dyn LeakScanner) -> ProxyFile {
    let (name, declared) = declarations::read(&path, proxy::MAX_BYTES, Proxy::from_yaml);
    let flaws = declared.as_ref().map(|proxy| flaws(proxy, &name, scan)).unwrap_or_default();
    let warnings = declared.as_ref().map(Proxy::warnings).unwrap_or_default();
    ProxyFile { name, path, declared, flaws, warnings }
}

/// The flaws of a declaration, including secrets that it contains literally.
fn flaws(proxy: &Proxy, name: &str, scan: &dyn LeakScanner) -> Vec<ProxyFlaw> {
    let mut flaws = proxy.check(name);
    let look = |flaws: &mut Vec<ProxyFlaw>, place: &str, field: &str, text: &str| {
        let found = scan.blocking_pattern_ids(&OutgoingRequest {
            url: "",
            headers: &[],
            body: text.as_bytes(),
            scope: LeakScope::Service,
        });
        if !found.is_empty() && !flaws.iter().any(|flaw| flaw.code == "proxy.secret") {
            let text = format!("`{field}` contains a secret or personal data; put it in the vault");
            flaws.push(ProxyFlaw { code: "proxy.secret", place: place.to_owned(), text });
        }
    };
    look(&mut flaws, "base_url", "base_url", base_path(proxy));
    for (operation, about) in &proxy.operations {
        for (field, text) in about.literals() {
            look(&mut flaws, &format!("operations.{operation}"), &field, &text);
        }
        if let Some(schema) = &about.answer
            && sluice_content::stages::SafeSchema::compile(&proxy::tighten(schema, proxy.trust)).is_err()
        {
            let text =
                "the schema cannot be used: it refers to another document, or the cost of checking it has no limit"
                    .to_owned();
            flaws.push(ProxyFlaw { code: "proxy.schema", place: format!("operations.{operation}.answer"), text });
        }
    }
    if let Err(why) = connection(proxy, name) {
        flaws.push(ProxyFlaw { code: "proxy.connection", place: "base_url".into(), text: why });
    }
    flaws
}

/// The connection of a proxy: its host, its methods, its paths and nothing else.
///
/// # Errors
/// When no connection can be made of the declaration, with the reason.
pub fn connection(proxy: &Proxy, name: &str) -> Result<EgressConnection, String> {
    let limits = proxy.limits();
    let target = EgressUrl::parse(&proxy.base_url)?;
    let named = ConnectionName::new(format!("proxy.{name}")).map_err(|why| why.to_string())?;
    let host = HostPattern::parse(target.host())?;
    let mut connection = EgressConnection::new(named, vec![host]);
    connection.ports = vec![target.port()];
    connection.plain_http = proxy.base_url.starts_with("http://");
    connection.redirects = 0;
    connection.max_answer = u64::from(limits.answer_kb) << 10;
    connection.timeout = limits.wall().min(Millis::from_mins(5));
    connection.limits.per_minute = Some(limits.per_minute);
    connection.limits.per_hour = Some(limits.per_hour);
    connection.limits.burn = Some(limits.burn);
    connection.breaker = limits.breaker();
    connection.methods = proxy.operations.values().map(|operation| method(operation.method)).collect();
    connection.paths = proxy.operations.values().map(|operation| path(proxy, operation)).collect::<Result<_, _>>()?;
    for net in &proxy.allow_addresses {
        connection.allow_addresses.push(IpNetwork::parse(net)?);
    }
    if let Some(secret) = &proxy.credential {
        let secret = SecretName::new(secret.as_str()).map_err(|why| why.to_string())?;
        connection.credential = Some((secret, CredentialPlacement::Bearer));
    }
    Ok(connection)
}

fn method(method: proxy::ProxyMethod) -> Method {
    match method {
        proxy::ProxyMethod::Get => Method::GET,
        proxy::ProxyMethod::Post => Method::POST,
        proxy::ProxyMethod::Put => Method::PUT,
        proxy::ProxyMethod::Patch => Method::PATCH,
        proxy::ProxyMethod::Delete => Method::DELETE,
    }
}

/// The path of an operation; a segment that a call fills matches exactly one segment.
fn path(proxy: &Proxy, operation: &proxy::ProxyOperation) -> Result<PathPattern, String> {
    PathPattern::with_places(&format!("{}{}", base_path(proxy), operation.path))
}

/// The path of the base address, without a trailing slash.
pub fn base_path(proxy: &Proxy) -> &str {
    let rest = proxy.base_url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default().trim_end_matches('/')
}

/// The operation that a ticket allows.
fn right(proxy: &Proxy, operation: &proxy::ProxyOperation) -> Result<TicketOperation, String> {
    Ok(TicketOperation { method: method(operation.method), path: path(proxy, operation)? })
}

/// The proxies of a gateway. Their files may change while it runs.
#[derive(Debug)]
pub struct SecurityProxies {
    deps: Arc<ProxiesDeps>,
    current: RwLock<Arc<LoadedProxies>>,
    /// Reloads run one after the other: a reload that read the files before a change must not win.
    reloading: tokio::sync::Mutex<()>,
}

/// The proxies as they are now.
#[derive(Debug, Default)]
struct LoadedProxies {
    found: Vec<Arc<ProxyFile>>,
    by_name: BTreeMap<String, Arc<ProxyService>>,
}

impl SecurityProxies {
    /// Opens every declaration without a flaw.
    #[must_use]
    pub fn open(found: Vec<ProxyFile>, deps: &Arc<ProxiesDeps>) -> Self {
        let mut by_name = BTreeMap::new();
        for one in &found {
            let (Ok(declared), true) = (&one.declared, one.is_whole()) else {
                tracing::error!(proxy = %one.name, "the proxy `{}` has flaws and is not opened", one.name);
                continue;
            };
            let made = connection(declared, &one.name).ok().zip(ProxyWorkspace::new(&deps.folder, &one.name));
            let Some((connection, workspace)) = made else { continue };
            deps.egress.open(connection);
            let service = ProxyService::new(one.name.clone(), declared.clone(), workspace, Arc::clone(deps));
            by_name.extend(service.map(|service| (one.name.clone(), Arc::new(service))));
        }
        let current = LoadedProxies { found: found.into_iter().map(Arc::new).collect(), by_name };
        let (deps, reloading) = (Arc::clone(deps), tokio::sync::Mutex::default());
        Self { deps, current: RwLock::new(Arc::new(current)), reloading }
    }

    fn current(&self) -> Arc<LoadedProxies> {
        Arc::clone(&self.current.read())
    }

    fn replace(&self, next: LoadedProxies) {
        *self.current.write() = Arc::new(next);
    }

    /// The proxy of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<ProxyService>> {
        self.current().by_name.get(name).cloned()
    }

    /// All proxies, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<ProxyService>> {
        self.current().by_name.values().cloned().collect()
    }

    /// Every declaration as its file was last read, usable or not, by name.
    #[must_use]
    pub fn found(&self) -> Vec<Arc<ProxyFile>> {
        self.current().found.clone()
    }

    /// Each proxy as a service, under the name used for counting and freezing.
    #[must_use]
    pub fn services(&self) -> Vec<(ServiceName, Arc<ProxyService>)> {
        let named = |service: Arc<ProxyService>| Some((Proxy::service_name(service.name())?, service));
        self.all().into_iter().filter_map(named).collect()
    }
}

impl ProxiesDeps {
    fn message(&self) -> MessageId {
        MessageId::mint(self.ids.as_ref())
    }

    /// Builds the ground.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        egress: Arc<Egress>,
        workers: Arc<GatewayWorkers>,
        folder: PathBuf,
        world: &GatewayDeps,
    ) -> Self {
        let (clock, ids) = (Arc::clone(&world.clock), Arc::clone(&world.ids));
        Self { store, egress, workers, folder, clock, ids, tasks: Mutex::default() }
    }

    /// Runs a task to its end.
    fn owns(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Ends the tasks that this node left running when it died: marks their drafts and writes a crash report. Whether
/// something had changed is no longer known; no attack was seen.
///
/// # Errors
/// When the ends cannot be recorded.
pub async fn end_interrupted_tasks(context: &ServiceContext) -> Result<(), CallError> {
    let (now, message) = (context.now(), MessageId::mint(context.ids.as_ref()));
    let (buried, reports) = (AtomicU64::new(0), Arc::new(Mutex::new(Vec::new())));
    let (kept, folder) = (Arc::clone(&reports), context.proxies.deps.folder.clone());
    let budgets: BTreeMap<String, ProxyBudget> =
        context.proxies.all().iter().map(|proxy| (proxy.name().to_owned(), proxy.declared().budget)).collect();
    let ids = Arc::clone(&context.ids);
    let left = context.store.end_left_tasks(move |task| {
        let last_action = CapabilityName::new(format!("proxy.{}.{}", task.proxy, task.operation)).ok();
        let cause = CrashCause::GatewayEnded;
        // Reports are named after their time, and no two may share one.
        let at = now + Millis::from_millis(buried.fetch_add(1, Ordering::Relaxed));
        let files = kept_files(&folder, &task.proxy, task.id);
        let scene = CrashContext { at, cause, last_action, requests: task.requests, content: None, files: &files };
        let report = CrashReport::new(&scene);
        let left = InterruptedProxyTask { proxy: task.proxy.clone(), operation: task.operation.clone(), task: task.id };
        kept.lock().push((left, report.clone()));
        // The task is not restarted automatically: its caller is gone, too.
        let next = next_step(&report, 0, CrashFootprint::Modified);
        let budget = budgets.get(&task.proxy).copied().unwrap_or_default();
        let spent = task.reserved.map(|(_, reserved)| ProxyTaskUsage {
            used: left_usage(task, reserved, now),
            limits: budget.limits(),
            message: MessageId::mint(ids.as_ref()),
        });
        let notes = ProxyTaskNotes { failed: Some(Code::WorkerCrashed.as_str().into()), ..ProxyTaskNotes::default() };
        let crash = Some((report, next, message));
        ProxyTaskEnd { crash, spent, notes, ..ProxyTaskEnd::of(ProxyTaskState::Crashed, task.requests) }
    });
    left.await?;
    let reports = std::mem::take(&mut *reports.lock());
    for (left, report) in reports {
        let Some(workspace) = context.proxies.workspace(&left.proxy) else { continue };
        let line =
            serde_json::json!({"at": now.to_string(), "event": "end", "state": "crashed", "crash": report.crash_id()});
        let written = workspace
            .make()
            .and_then(|()| workspace.log(&[line]))
            .and_then(|()| workspace.write_crash_report(&report))
            .and_then(|_| context.proxies.abandon(&left, &workspace));
        if let Err(error) = written {
            tracing::error!(proxy = %left.proxy, "the end of an abandoned task cannot be recorded: {error}");
        }
    }
    Ok(())
}

/// The most that an abandoned task can have used: its answer is not known, so a request that was sent counts with
/// everything that was reserved for it.
fn left_usage(task: &ProxyTask, reserved: ProxyUsage, now: UtcMillis) -> ProxyUsage {
    let millis = now.since(task.started_at).as_millis().min(reserved.millis);
    match task.requests {
        0 => ProxyUsage { millis, ..ProxyUsage::default() },
        requests => ProxyUsage { requests: requests.max(reserved.requests), millis, ..reserved },
    }
}

/// The files of an abandoned task: its draft, if it began one, and the log, to which its end is added now.
fn kept_files(folder: &Path, proxy: &str, task: JobId) -> Vec<String> {
    let mut files = vec!["logs/audit.jsonl".to_owned()];
    let draft = format!("drafts/{task}.json");
    let has_draft = ProxyWorkspace::new(folder, proxy).is_some_and(|workspace| workspace.path().join(&draft).is_file());
    files.extend(has_draft.then_some(draft));
    files
}

/// A task that was left running.
struct InterruptedProxyTask {
    proxy: String,
    operation: String,
    task: JobId,
}

impl SecurityProxies {
    /// The folder of a proxy, whether or not its file can be used now.
    fn workspace(&self, name: &str) -> Option<ProxyWorkspace> {
        let open = self.get(name).map(|proxy| proxy.workspace().clone());
        open.or_else(|| ProxyWorkspace::new(&self.deps.folder, name))
    }

    /// Marks the drafts of an abandoned task. Which of the named drafts it worked on is no longer known: if it can have
    /// been one of them, it may have been any.
    fn abandon(&self, left: &InterruptedProxyTask, workspace: &ProxyWorkspace) -> std::io::Result<()> {
        let proxy = self.get(&left.proxy);
        let operation = proxy.as_ref().and_then(|proxy| proxy.declared().operations.get(&left.operation));
        match operation {
            Some(operation) if operation.draft.is_none() => workspace.abandon(left.task),
            Some(_) | None => workspace.abandon_drafts().map(drop),
        }
    }
}
