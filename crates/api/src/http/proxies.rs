//! Security proxies, for operators: their state, how their tasks ended, and letting them run again.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::Actor;
use sluice_core::proxy::Proxy;
use sluice_core::refusal::Code;
use sluice_gateway::Gateway;
use sluice_services::CallError;
use sluice_services::proxies::{ProxyFile, ProxyService, rotation};
use sluice_store::{ProxySuspension, ProxyTask, ProxyTaskState, StoreError};

use super::proxy_reports::RoutingScoreView;
use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// How many tasks are shown with a proxy.
const SHOWN: u32 = 20;

/// One proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyView {
    /// The name of the proxy.
    pub name: String,
    /// The service behind it.
    pub service: String,
    /// `idle`, `running`, `waiting`, `quarantined` or `flawed`.
    pub state: String,
    /// Why it does not run, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `acquaintance`, `friend` or `ally`.
    pub trust: String,
    /// The capabilities of the proxy.
    pub capabilities: Vec<String>,
    /// The errors in its file.
    pub flaws: Vec<String>,
    /// Warnings that a person should read although the proxy may run.
    pub warnings: Vec<String>,
    /// How much each operation gains from isolation.
    pub routing: Vec<RoutingScoreView>,
    /// The newest tasks.
    pub tasks: Vec<ProxyTaskView>,
    /// The names of archived workspaces.
    pub archives: Vec<String>,
    /// How many drafts there are in each state.
    pub drafts: std::collections::BTreeMap<String, usize>,
    /// The latest counterparts, and what is stored about them. Their facts come from the service.
    pub relations: Vec<ProxyRelationView>,
    /// The drafts that calls refer to, newest first.
    pub named_drafts: Vec<ProxyDraftView>,
    /// The latest refused proposals of tasks to store something, newest first.
    pub refused_proposals: Vec<RefusedProposalView>,
    /// When its credential must be replaced, if it has a permanent account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_by: Option<String>,
}

/// A counterpart of a permanent account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyRelationView {
    /// The name that calls use.
    pub name: String,
    /// The time of the first contact.
    pub since: String,
    /// The time of the last contact.
    pub last: String,
    /// What is stored about it.
    pub facts: Value,
    /// How many recent exchanges a task is given.
    pub recent: usize,
}

/// A draft that calls refer to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyDraftView {
    /// The name that calls use.
    pub name: String,
    /// `IN_PROGRESS`, `SENT` or `ABANDONED`.
    pub state: String,
    /// The operation that last changed it.
    pub operation: String,
    /// When it was last changed.
    pub at: String,
    /// The contents of the draft.
    pub fields: Value,
}

/// A proposal that was refused.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RefusedProposalView {
    /// When it was refused.
    pub at: String,
    /// The task that proposed it.
    pub task_id: String,
    /// `relation` or `draft`.
    pub about: String,
    /// Why it was refused, as a code: `proposal.leak`.
    pub code: String,
}

/// One task.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyTaskView {
    /// The id of the task.
    pub task_id: String,
    /// The operation of the task.
    pub operation: String,
    /// The agent that asked for it.
    pub agent: String,
    /// `running`, `clean`, `crashed` or `cut_off`.
    pub state: String,
    /// When it started.
    pub started_at: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How many requests it made.
    pub requests: u64,
    /// The crash report, in its published form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<Value>,
}

/// `GET /v1/proxies`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = &visit.gw;
    let standings = gw.store.proxy_standings().await?;
    let mut data = Vec::new();
    for found in gw.proxies.found() {
        data.push(view(gw, &found, &standings, 1).await?);
    }
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/proxies/{name}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    one(&visit.gw, &visit.path_param::<String>("name")?).await
}

async fn one(gw: &Gateway, name: &str) -> Result<HttpReply, CallError> {
    let found = declared(gw, name)?;
    let standings = gw.store.proxy_standings().await?;
    let mut shown = view(gw, &found, &standings, SHOWN).await?;
    if let Some(proxy) = gw.proxies.get(name) {
        lasting(&mut shown, &proxy);
    }
    Ok(HttpReply::json(200, &shown))
}

async fn view(
    gw: &Gateway,
    found: &ProxyFile,
    standings: &[ProxySuspension],
    tasks: u32,
) -> Result<ProxyView, CallError> {
    let name = found.name.as_str();
    let service = gw.proxies.get(name);
    let tasks = gw.store.proxy_tasks(name, false, None, tasks).await?;
    let standing = standings.iter().find(|standing| standing.proxy == name);
    let state = match standing {
        // If a file becomes invalid while its proxy runs, the proxy keeps running with the earlier one.
        _ if service.is_none() => "flawed",
        Some(ProxySuspension { quarantined: true, .. }) => "quarantined",
        Some(_) => "waiting",
        None if tasks.iter().any(|task| task.state == ProxyTaskState::Running) => "running",
        None => "idle",
    };
    let mut flaws: Vec<String> = found.flaws.iter().map(ToString::to_string).collect();
    flaws.extend(found.declared.as_ref().err().map(ToString::to_string));
    let declared = service.as_ref().map(|proxy| proxy.declared()).or(found.declared.as_ref().ok());
    let workspace = service.as_ref().map(|proxy| proxy.workspace());
    let mut drafts = std::collections::BTreeMap::new();
    for (_, draft) in workspace.map(|workspace| workspace.drafts()).unwrap_or_default() {
        *drafts.entry(draft.state).or_insert(0) += 1;
    }
    let archived = workspace.map(|workspace| workspace.archived()).unwrap_or_default();
    let rotation = match declared {
        Some(declared) => rotation::of(gw, declared).await?,
        None => None,
    };
    Ok(ProxyView {
        name: name.to_owned(),
        service: declared.map(|proxy| proxy.service.clone()).unwrap_or_default(),
        state: state.into(),
        reason: standing.map(|standing| standing.reason.clone()),
        trust: declared.map(|proxy| word(&proxy.trust)).unwrap_or_default(),
        capabilities: declared
            .map(|proxy| proxy.capabilities(name).iter().map(|capability| capability.name.to_string()).collect())
            .unwrap_or_default(),
        flaws,
        warnings: found.warnings.iter().map(ToString::to_string).collect(),
        routing: declared.map(|proxy| routing(name, proxy)).unwrap_or_default(),
        tasks: tasks.iter().map(task_view).collect(),
        archives: archived.into_iter().map(|archived| archived.name).collect(),
        drafts,
        relations: Vec::new(),
        named_drafts: Vec::new(),
        refused_proposals: Vec::new(),
        rotate_by: rotation.map(|rotation| rotation.due.to_string()),
    })
}

/// Adds what a permanent account stores.
fn lasting(shown: &mut ProxyView, proxy: &ProxyService) {
    let Some(identity) = &proxy.declared().identity else { return };
    let (workspace, most) = (proxy.workspace(), SHOWN as usize);
    shown.relations = workspace
        .sides(most)
        .into_iter()
        .map(|side| ProxyRelationView {
            recent: workspace.recent(&side.name, identity.recent as usize).len(),
            name: side.name,
            since: side.since,
            last: side.last,
            facts: Value::Object(side.facts),
        })
        .collect();
    let drafts = workspace.named_drafts().into_iter().take(most);
    let drafts = drafts.map(|draft| ProxyDraftView {
        name: draft.name,
        state: draft.state,
        operation: draft.operation,
        at: draft.at,
        fields: Value::Object(draft.fields),
    });
    shown.named_drafts = drafts.collect();
    let refused = workspace.refused(most).into_iter();
    shown.refused_proposals = refused
        .map(|one| RefusedProposalView { at: one.at, task_id: one.task, about: one.about, code: one.code })
        .collect();
}

fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn task_view(task: &ProxyTask) -> ProxyTaskView {
    ProxyTaskView {
        task_id: task.id.to_string(),
        operation: task.operation.clone(),
        agent: task.agent.to_string(),
        state: task.state.as_str().into(),
        started_at: task.started_at.to_string(),
        ended_at: task.ended_at.map(|at| at.to_string()),
        requests: task.requests,
        crash: task.report.as_ref().and_then(|report| serde_json::to_value(report).ok()),
    }
}

/// `GET /v1/proxies/{name}/crashes`.
pub(super) async fn crashes(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let name: String = visit.path_param("name")?;
    declared(&visit.gw, &name)?;
    let (limit, after) = (visit.limit()?, visit.query_param("cursor")?);
    let tasks = visit.gw.store.proxy_tasks(&name, true, after, limit.saturating_add(1)).await?;
    let has_more = tasks.len() > limit as usize;
    let data: Vec<ProxyTaskView> = tasks.iter().take(limit as usize).map(task_view).collect();
    let next_cursor = has_more.then(|| data.last().map(|task| task.task_id.clone())).flatten();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor, has_more }))
}

/// `POST /v1/proxies/{name}/clear`.
pub(super) async fn clear(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, name) = (&visit.gw, visit.path_param::<String>("name")?);
    declared(gw, &name)?;
    gw.store.clear_proxy(&name, visit.actor()?).await.map_err(|error| match error {
        StoreError::NotFound { .. } => {
            CallError::with_text(Code::StoreNotFound, "this proxy does not wait for a person: it may run")
        }
        other => other.into(),
    })?;
    begin_anew(gw, &name, visit.actor()?).await?;
    gw.signals.events.notify_written();
    one(gw, &name).await
}

/// Resets the request count of a proxy that had used up its requests, after a person has checked it.
async fn begin_anew(gw: &Gateway, name: &str, by: Actor) -> Result<(), CallError> {
    let Some(proxy) = gw.proxies.get(name) else { return Ok(()) };
    let states = gw.egress.states().await?;
    let used = states.iter().find(|state| state.connection == *proxy.connection());
    let burn = u64::from(proxy.declared().limits().burn);
    if used.is_some_and(|state| state.used.burned >= burn) {
        gw.egress.reset(proxy.connection(), by).await?;
    }
    Ok(())
}

/// Why a proxy is put into quarantine.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineProxyBody {
    /// The reason in the operator's words.
    #[serde(default)]
    pub reason: String,
}

/// `POST /v1/proxies/{name}/quarantine`.
pub(super) async fn quarantine(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let QuarantineProxyBody { reason } = visit.parse_body()?;
    let (gw, name) = (&visit.gw, visit.path_param::<String>("name")?);
    known(gw, &name)?;
    gw.store.quarantine_proxy(&name, visit.actor()?, reason.chars().take(500).collect()).await?;
    gw.signals.events.notify_written();
    one(gw, &name).await
}

/// `POST /v1/proxies/{name}/archive`.
pub(super) async fn archive(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, name) = (&visit.gw, visit.path_param::<String>("name")?);
    let proxy = known(gw, &name)?;
    let (workspace, now) = (proxy.workspace().clone(), gw.now());
    files(move || workspace.make().and_then(|()| workspace.archive(now)).map(|_| ())).await?;
    note(gw, &visit, "proxy.archived", &name).await?;
    one(gw, &name).await
}

/// The source of a restored workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreWorkspaceBody {
    /// The name of an archive; by default the last good copy.
    #[serde(default)]
    pub archive: Option<String>,
}

/// `POST /v1/proxies/{name}/restore`.
pub(super) async fn restore(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let RestoreWorkspaceBody { archive } = visit.parse_body()?;
    let (gw, name) = (&visit.gw, visit.path_param::<String>("name")?);
    let workspace = known(gw, &name)?.workspace().clone();
    if archive.as_ref().is_some_and(|wanted| !workspace.archived().iter().any(|archived| archived.name == *wanted)) {
        return Err(CallError::with_text(Code::StoreNotFound, "there is no archive with that name"));
    }
    if archive.is_none() && !workspace.has_good() {
        return Err(CallError::with_text(
            Code::StoreNotFound,
            "there is no good copy yet: the first task that ends cleanly creates one",
        ));
    }
    files(move || workspace.restore(archive.as_deref())).await?;
    note(gw, &visit, "proxy.restored", &name).await?;
    one(gw, &name).await
}

async fn files(work: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Result<(), CallError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| CallError::new(Code::GatewayInternal))?;
    done.map_err(|_| CallError::with_text(Code::FilesFailed, "the workspace could not be moved"))
}

async fn note(gw: &Gateway, visit: &RoutedRequest, what: &'static str, name: &str) -> Result<(), CallError> {
    gw.store.note_proxy(name, what, visit.actor()?).await?;
    gw.signals.events.notify_written();
    Ok(())
}

fn declared(gw: &Gateway, name: &str) -> Result<Arc<ProxyFile>, CallError> {
    gw.proxies.found().into_iter().find(|found| found.name == name).ok_or_else(missing)
}

fn routing(name: &str, proxy: &Proxy) -> Vec<RoutingScoreView> {
    let operations = proxy.operations.iter();
    operations
        .map(|(operation, about)| {
            RoutingScoreView::of(format!("proxy.{name}.{operation}"), &proxy.routing_score(about))
        })
        .collect()
}

pub(super) fn known(gw: &Gateway, name: &str) -> Result<Arc<ProxyService>, CallError> {
    gw.proxies.get(name).ok_or_else(missing)
}

fn missing() -> CallError {
    CallError::with_text(Code::StoreNotFound, "there is no proxy with this name; GET /v1/proxies lists them")
}
