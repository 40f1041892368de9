//! Security proxies: isolated interfaces to services nobody trusts.
//!
//! Takes the declarations of a folder; gives each as a service behind the gate, with a connection of its own on the
//! way out and a workspace that outlives its tasks. Promise: a declaration with a flaw opens nothing, and the others
//! run on; every task is visible from its start to its end.

pub(crate) mod budget;
mod host;
pub mod keep;
pub mod reload;
pub mod rotation;
mod run;
mod service;
pub(crate) mod spawn;
pub mod workspace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use http::Method;
use sluice_content::leak::Scope;
use sluice_core::crash::{Cause, CrashReport, Footprint, Scene, next_step};
use sluice_core::ids::{ConnectionName, JobId, MessageId, SecretName};
use sluice_core::proxy::{self, Flaw, Proxy, ProxyBudget, ProxyUsage, Unreadable};
use sluice_core::refusal::Code;
use sluice_core::{CapabilityName, Clock, Ids, ServiceName, Span, Timestamp};
use sluice_store::{ProxyTask, Store, TaskEnd, TaskNotes, TaskSpent, TaskState};
use tokio::task::JoinSet;

use crate::egress::ssrf::Net;
use crate::egress::{Connection, Egress, HostPattern, Operation, PathPattern, Placement, Target};
use crate::open::World;
use crate::rooms::leak::{Outgoing, Scan};
use crate::workers::Workers;
use crate::{Gateway, No, declarations};

pub use service::ProxyService;
pub use workspace::Workspace;

/// Everything a task of a proxy needs of the gateway.
pub struct Ground {
    /// What must not be forgotten.
    pub store: Arc<Store>,
    /// The way out.
    pub egress: Arc<Egress>,
    /// Where tasks run.
    pub workers: Arc<Workers>,
    /// Folder of the workspaces.
    pub folder: PathBuf,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
    /// Tasks under way. They end with the gateway, not with their callers.
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A declaration as it was found on disk.
#[derive(Debug)]
pub struct Found {
    /// Its name: the file's, without the ending.
    pub name: String,
    /// Where.
    pub path: PathBuf,
    /// What it says, if it can be read.
    pub declared: Result<Proxy, Unreadable>,
    /// What is wrong with it.
    pub flaws: Vec<Flaw>,
    /// What a person should look at although it may run.
    pub warnings: Vec<Flaw>,
}

impl Found {
    /// Whether it may run.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.declared.is_ok() && self.flaws.is_empty()
    }
}

/// Reads a folder of declarations, by name. A folder that is not there holds none.
#[must_use]
pub fn find(folder: &Path, scan: &dyn Scan) -> Vec<Found> {
    declarations::files(folder).into_iter().map(|path| read(path, scan)).collect()
}

/// Reads one declaration and looks for everything that is wrong with it.
#[must_use]
pub fn read(path: PathBuf, scan: &dyn Scan) -> Found {
    let (name, declared) = declarations::read(&path, proxy::MAX_BYTES, Proxy::from_yaml);
    let flaws = declared.as_ref().map(|proxy| flaws(proxy, &name, scan)).unwrap_or_default();
    let warnings = declared.as_ref().map(Proxy::warnings).unwrap_or_default();
    Found { name, path, declared, flaws, warnings }
}

/// What is wrong with a declaration, secrets it spells out included.
fn flaws(proxy: &Proxy, name: &str, scan: &dyn Scan) -> Vec<Flaw> {
    let mut flaws = proxy.check(name);
    let look = |flaws: &mut Vec<Flaw>, place: &str, field: &str, text: &str| {
        let found = scan.outgoing(&Outgoing { url: "", headers: &[], body: text.as_bytes(), scope: Scope::Service });
        if !found.is_empty() && !flaws.iter().any(|flaw| flaw.code == "proxy.secret") {
            let text = format!("`{field}` holds what must not leave; put it in the vault");
            flaws.push(Flaw { code: "proxy.secret", place: place.to_owned(), text });
        }
    };
    look(&mut flaws, "base_url", "base_url", base_path(proxy));
    for (operation, about) in &proxy.operations {
        for (field, text) in about.literals() {
            look(&mut flaws, &format!("operations.{operation}"), &field, &text);
        }
        if let Some(schema) = &about.answer
            && sluice_content::stages::Schema::compile(&proxy::tighten(schema, proxy.trust)).is_err()
        {
            let text = "the schema cannot be used: it refers elsewhere, or checking it has no bound".to_owned();
            flaws.push(Flaw { code: "proxy.schema", place: format!("operations.{operation}.answer"), text });
        }
    }
    if let Err(why) = connection(proxy, name) {
        flaws.push(Flaw { code: "proxy.connection", place: "base_url".into(), text: why });
    }
    flaws
}

/// The connection of a proxy: its host, its methods, its paths and nothing else.
///
/// # Errors
/// What cannot be made a connection of.
pub fn connection(proxy: &Proxy, name: &str) -> Result<Connection, String> {
    let limits = proxy.limits();
    let target = Target::parse(&proxy.base_url)?;
    let named = ConnectionName::new(format!("proxy.{name}")).map_err(|why| why.to_string())?;
    let host = HostPattern::parse(target.host())?;
    let mut connection = Connection::new(named, vec![host]);
    connection.ports = vec![target.port()];
    connection.plain_http = proxy.base_url.starts_with("http://");
    connection.redirects = 0;
    connection.max_answer = u64::from(limits.answer_kb) << 10;
    connection.timeout = limits.wall().min(Span::from_mins(5));
    connection.limits.per_minute = Some(limits.per_minute);
    connection.limits.per_hour = Some(limits.per_hour);
    connection.limits.burn = Some(limits.burn);
    connection.breaker = limits.breaker();
    connection.methods = proxy.operations.values().map(|operation| method(operation.method)).collect();
    connection.paths = proxy.operations.values().map(|operation| path(proxy, operation)).collect::<Result<_, _>>()?;
    for net in &proxy.allow_addresses {
        connection.allow_addresses.push(Net::parse(net)?);
    }
    if let Some(secret) = &proxy.credential {
        let secret = SecretName::new(secret.as_str()).map_err(|why| why.to_string())?;
        connection.credential = Some((secret, Placement::Bearer));
    }
    Ok(connection)
}

fn method(method: proxy::Method) -> Method {
    match method {
        proxy::Method::Get => Method::GET,
        proxy::Method::Post => Method::POST,
        proxy::Method::Put => Method::PUT,
        proxy::Method::Patch => Method::PATCH,
        proxy::Method::Delete => Method::DELETE,
    }
}

/// The path of an operation; a part that a call fills stays open, for one part and no more.
fn path(proxy: &Proxy, operation: &proxy::Operation) -> Result<PathPattern, String> {
    PathPattern::with_places(&format!("{}{}", base_path(proxy), operation.path))
}

/// The path in the base address, without a slash at its end.
pub(crate) fn base_path(proxy: &Proxy) -> &str {
    let rest = proxy.base_url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default().trim_end_matches('/')
}

/// What a ticket for one operation is good for.
fn right(proxy: &Proxy, operation: &proxy::Operation) -> Result<Operation, String> {
    Ok(Operation { method: method(operation.method), path: path(proxy, operation)? })
}

/// The proxies of a gateway. Their files may change while it runs.
#[derive(Debug)]
pub struct Proxies {
    ground: Arc<Ground>,
    current: RwLock<Arc<Current>>,
    /// One after the other: whoever read the files before they changed must not have the last word.
    reloading: tokio::sync::Mutex<()>,
}

/// The proxies as they are now.
#[derive(Debug, Default)]
struct Current {
    found: Vec<Arc<Found>>,
    by_name: BTreeMap<String, Arc<ProxyService>>,
}

impl Proxies {
    /// Opens every declaration without a flaw.
    #[must_use]
    pub fn open(found: Vec<Found>, ground: &Arc<Ground>) -> Self {
        let mut by_name = BTreeMap::new();
        for one in &found {
            let (Ok(declared), true) = (&one.declared, one.is_whole()) else {
                tracing::error!(proxy = %one.name, "the proxy `{}` has flaws and is not opened", one.name);
                continue;
            };
            let made = connection(declared, &one.name).ok().zip(Workspace::new(&ground.folder, &one.name));
            let Some((connection, workspace)) = made else { continue };
            ground.egress.open(connection);
            let service = ProxyService::new(one.name.clone(), declared.clone(), workspace, Arc::clone(ground));
            by_name.extend(service.map(|service| (one.name.clone(), Arc::new(service))));
        }
        let current = Current { found: found.into_iter().map(Arc::new).collect(), by_name };
        let (ground, reloading) = (Arc::clone(ground), tokio::sync::Mutex::default());
        Self { ground, current: RwLock::new(Arc::new(current)), reloading }
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, next: Current) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    /// The proxy of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<ProxyService>> {
        self.current().by_name.get(name).cloned()
    }

    /// All, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<ProxyService>> {
        self.current().by_name.values().cloned().collect()
    }

    /// Every declaration as its file was last read, whole or not, by name.
    #[must_use]
    pub fn found(&self) -> Vec<Arc<Found>> {
        self.current().found.clone()
    }

    /// Each as a service, under the name it is counted and frozen under.
    #[must_use]
    pub fn services(&self) -> Vec<(ServiceName, Arc<ProxyService>)> {
        let named = |service: Arc<ProxyService>| Some((Proxy::service_name(service.name())?, service));
        self.all().into_iter().filter_map(named).collect()
    }
}

impl Ground {
    fn message(&self) -> MessageId {
        MessageId::mint(self.ids.as_ref())
    }

    /// Puts the ground together.
    #[must_use]
    pub fn new(store: Arc<Store>, egress: Arc<Egress>, workers: Arc<Workers>, folder: PathBuf, world: &World) -> Self {
        let (clock, ids) = (Arc::clone(&world.clock), Arc::clone(&world.ids));
        Self { store, egress, workers, folder, clock, ids, tasks: Mutex::default() }
    }

    /// Runs a task to its end.
    fn owns(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Ends the tasks that this node left running when it died: drafts are marked, the crash is written down. Whether
/// something had changed cannot be told any more; nobody was seen to attack.
///
/// # Errors
/// When the ends cannot be recorded.
pub(crate) async fn bury_left(gw: &Gateway) -> Result<(), No> {
    let (now, message) = (gw.now(), MessageId::mint(gw.ids.as_ref()));
    let (buried, reports) = (AtomicU64::new(0), Arc::new(Mutex::new(Vec::new())));
    let (kept, folder) = (Arc::clone(&reports), gw.proxies.ground.folder.clone());
    let budgets: BTreeMap<String, ProxyBudget> =
        gw.proxies.all().iter().map(|proxy| (proxy.name().to_owned(), proxy.declared().budget)).collect();
    let ids = Arc::clone(&gw.ids);
    let left = gw.store.end_left_tasks(move |task| {
        let last_action = CapabilityName::new(format!("proxy.{}.{}", task.proxy, task.operation)).ok();
        let cause = Cause::GatewayEnded;
        // Reports are called after their moment, and no two may share one.
        let at = now + Span::from_millis(buried.fetch_add(1, Ordering::Relaxed));
        let files = kept_files(&folder, &task.proxy, task.id);
        let scene = Scene { at, cause, last_action, requests: task.requests, content: None, files: &files };
        let report = CrashReport::new(&scene);
        let left = Left { proxy: task.proxy.clone(), operation: task.operation.clone(), task: task.id };
        kept.lock().unwrap_or_else(PoisonError::into_inner).push((left, report.clone()));
        // The task is not started again by itself: whoever asked is gone, too.
        let next = next_step(&report, 0, Footprint::Modified);
        let budget = budgets.get(&task.proxy).copied().unwrap_or_default();
        let spent = task.reserved.map(|(_, reserved)| TaskSpent {
            used: left_usage(task, reserved, now),
            limits: budget.limits(),
            message: MessageId::mint(ids.as_ref()),
        });
        let notes = TaskNotes { failed: Some(Code::WorkerCrashed.as_str().into()), ..TaskNotes::default() };
        let crash = Some((report, next, message));
        TaskEnd { crash, spent, notes, ..TaskEnd::of(TaskState::Crashed, task.requests) }
    });
    left.await?;
    let reports = std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));
    for (left, report) in reports {
        let Some(workspace) = gw.proxies.workspace(&left.proxy) else { continue };
        let line =
            serde_json::json!({"at": now.to_string(), "event": "end", "state": "crashed", "crash": report.crash_id()});
        let written = workspace
            .make()
            .and_then(|()| workspace.log(&[line]))
            .and_then(|()| workspace.crashed(&report))
            .and_then(|_| gw.proxies.abandon(&left, &workspace));
        if let Err(error) = written {
            tracing::error!(proxy = %left.proxy, "the end of a task that was left cannot be written down: {error}");
        }
    }
    Ok(())
}

/// What a task that was left can have used: nobody saw its answer, so a request that left counts with all that was
/// reserved for it.
fn left_usage(task: &ProxyTask, reserved: ProxyUsage, now: Timestamp) -> ProxyUsage {
    let millis = now.since(task.started_at).as_millis().min(reserved.millis);
    match task.requests {
        0 => ProxyUsage { millis, ..ProxyUsage::default() },
        requests => ProxyUsage { requests: requests.max(reserved.requests), millis, ..reserved },
    }
}

/// The files a task that was left had written: its draft, if it began one, and the log, to which its end is added now.
fn kept_files(folder: &Path, proxy: &str, task: JobId) -> Vec<String> {
    let mut files = vec!["logs/audit.jsonl".to_owned()];
    let draft = format!("drafts/{task}.json");
    let has_draft = Workspace::new(folder, proxy).is_some_and(|workspace| workspace.path().join(&draft).is_file());
    files.extend(has_draft.then_some(draft));
    files
}

/// A task that was left running.
struct Left {
    proxy: String,
    operation: String,
    task: JobId,
}

impl Proxies {
    /// The folder of a proxy, whether or not its file can be used now.
    fn workspace(&self, name: &str) -> Option<Workspace> {
        let open = self.get(name).map(|proxy| proxy.workspace().clone());
        open.or_else(|| Workspace::new(&self.ground.folder, name))
    }

    /// Marks what a task that was left worked on. Which of the drafts with a name that was, nobody can tell any more: if
    /// it can have been one of them, it may have been any.
    fn abandon(&self, left: &Left, workspace: &Workspace) -> std::io::Result<()> {
        let proxy = self.get(&left.proxy);
        let operation = proxy.as_ref().and_then(|proxy| proxy.declared().operations.get(&left.operation));
        match operation {
            Some(operation) if operation.draft.is_none() => workspace.abandon(left.task),
            Some(_) | None => workspace.abandon_drafts().map(drop),
        }
    }
}
