//! Security proxies, for operators: how they stand, how their tasks ended, and letting them run again.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::Actor;
use sluice_core::proxy::Proxy;
use sluice_core::refusal::Code;
use sluice_store::{ProxyTask, Standing, StoreError, TaskState};

use super::proxy_reports::ScoreView;
use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::proxies::{Found, ProxyService, rotation};
use crate::{Gateway, No};

/// Tasks shown with a proxy.
const SHOWN: u32 = 20;

/// One proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyView {
    /// Its name.
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
    /// What can be asked of it.
    pub capabilities: Vec<String>,
    /// What is wrong with its file.
    pub flaws: Vec<String>,
    /// What a person should look at although it may run.
    pub warnings: Vec<String>,
    /// How much each operation gains from isolation.
    pub routing: Vec<ScoreView>,
    /// The newest tasks.
    pub tasks: Vec<TaskView>,
    /// Names of workspaces set aside.
    pub archives: Vec<String>,
    /// Drafts by state.
    pub drafts: std::collections::BTreeMap<String, usize>,
    /// The sides it last dealt with, and what is kept about them. Their facts come from the service.
    pub relations: Vec<RelationView>,
    /// Drafts that calls name, newest first.
    pub named_drafts: Vec<DraftView>,
    /// What tasks last proposed to keep and may not, newest first.
    pub refused_proposals: Vec<RefusedView>,
    /// When its credential is to be replaced, if it has a lasting account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_by: Option<String>,
}

/// Another side of a lasting account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RelationView {
    /// As calls name it.
    pub name: String,
    /// When it was first dealt with.
    pub since: String,
    /// When it was last dealt with.
    pub last: String,
    /// What is kept about it.
    pub facts: Value,
    /// Exchanges a task is told of.
    pub recent: usize,
}

/// A draft that calls name.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DraftView {
    /// As calls name it.
    pub name: String,
    /// `IN_PROGRESS`, `SENT` or `ABANDONED`.
    pub state: String,
    /// Which operation moved it last.
    pub operation: String,
    /// When.
    pub at: String,
    /// What is kept in it.
    pub fields: Value,
}

/// A proposal that was not taken.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RefusedView {
    /// When.
    pub at: String,
    /// Which task proposed it.
    pub task_id: String,
    /// `relation` or `draft`.
    pub about: String,
    /// Why not: `proposal.leak`.
    pub code: String,
}

/// One task.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskView {
    /// The task.
    pub task_id: String,
    /// What it was to do.
    pub operation: String,
    /// For whom.
    pub agent: String,
    /// `running`, `clean`, `crashed` or `cut_off`.
    pub state: String,
    /// Since when.
    pub started_at: String,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Requests it made.
    pub requests: u64,
    /// The crash report, in its published form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<Value>,
}

/// `GET /v1/proxies`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let gw = &visit.gw;
    let standings = gw.store.proxy_standings().await?;
    let mut data = Vec::new();
    for found in gw.proxies.found() {
        data.push(view(gw, &found, &standings, 1).await?);
    }
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/proxies/{name}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    one(&visit.gw, &visit.part::<String>("name")?).await
}

async fn one(gw: &Gateway, name: &str) -> Result<Reply, No> {
    let found = declared(gw, name)?;
    let standings = gw.store.proxy_standings().await?;
    let mut shown = view(gw, &found, &standings, SHOWN).await?;
    if let Some(proxy) = gw.proxies.get(name) {
        lasting(&mut shown, &proxy);
    }
    Ok(Reply::json(200, &shown))
}

async fn view(gw: &Gateway, found: &Found, standings: &[Standing], tasks: u32) -> Result<ProxyView, No> {
    let name = found.name.as_str();
    let service = gw.proxies.get(name);
    let tasks = gw.store.proxy_tasks(name, false, None, tasks).await?;
    let standing = standings.iter().find(|standing| standing.proxy == name);
    let state = match standing {
        // A file that broke while its proxy ran leaves it running as it was.
        _ if service.is_none() => "flawed",
        Some(Standing { quarantined: true, .. }) => "quarantined",
        Some(_) => "waiting",
        None if tasks.iter().any(|task| task.state == TaskState::Running) => "running",
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

/// What a lasting account keeps.
fn lasting(shown: &mut ProxyView, proxy: &ProxyService) {
    let Some(identity) = &proxy.declared().identity else { return };
    let (workspace, most) = (proxy.workspace(), SHOWN as usize);
    shown.relations = workspace
        .sides(most)
        .into_iter()
        .map(|side| RelationView {
            recent: workspace.recent(&side.name, identity.recent as usize).len(),
            name: side.name,
            since: side.since,
            last: side.last,
            facts: Value::Object(side.facts),
        })
        .collect();
    let drafts = workspace.named_drafts().into_iter().take(most);
    let drafts = drafts.map(|draft| DraftView {
        name: draft.name,
        state: draft.state,
        operation: draft.operation,
        at: draft.at,
        fields: Value::Object(draft.fields),
    });
    shown.named_drafts = drafts.collect();
    let refused = workspace.refused(most).into_iter();
    shown.refused_proposals =
        refused.map(|one| RefusedView { at: one.at, task_id: one.task, about: one.about, code: one.code }).collect();
}

fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn task_view(task: &ProxyTask) -> TaskView {
    TaskView {
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
pub(super) async fn crashes(visit: Visit) -> Result<Reply, No> {
    let name: String = visit.part("name")?;
    declared(&visit.gw, &name)?;
    let (limit, after) = (visit.limit()?, visit.asked("cursor")?);
    let tasks = visit.gw.store.proxy_tasks(&name, true, after, limit.saturating_add(1)).await?;
    let has_more = tasks.len() > limit as usize;
    let data: Vec<TaskView> = tasks.iter().take(limit as usize).map(task_view).collect();
    let next_cursor = has_more.then(|| data.last().map(|task| task.task_id.clone())).flatten();
    Ok(Reply::json(200, &Page { data, next_cursor, has_more }))
}

/// `POST /v1/proxies/{name}/clear`.
pub(super) async fn clear(visit: Visit) -> Result<Reply, No> {
    let (gw, name) = (&visit.gw, visit.part::<String>("name")?);
    declared(gw, &name)?;
    gw.store.clear_proxy(&name, visit.actor()?).await.map_err(|error| match error {
        StoreError::NotFound { .. } => No::saying(Code::StoreNotFound, "nothing stands against this proxy: it may run"),
        other => other.into(),
    })?;
    begin_anew(gw, &name, visit.actor()?).await?;
    gw.events.wrote();
    one(gw, &name).await
}

/// A person has looked: a proxy that had used up all its requests may make as many again.
async fn begin_anew(gw: &Gateway, name: &str, by: Actor) -> Result<(), No> {
    let Some(proxy) = gw.proxies.get(name) else { return Ok(()) };
    let states = gw.egress.states().await?;
    let used = states.iter().find(|state| state.connection == *proxy.connection());
    let burn = u64::from(proxy.declared().limits().burn);
    if used.is_some_and(|state| state.used.burned >= burn) {
        gw.egress.reset(proxy.connection(), by).await?;
    }
    Ok(())
}

/// Why a proxy is set aside.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAside {
    /// In the operator's words.
    #[serde(default)]
    pub reason: String,
}

/// `POST /v1/proxies/{name}/quarantine`.
pub(super) async fn quarantine(mut visit: Visit) -> Result<Reply, No> {
    let SetAside { reason } = visit.take()?;
    let (gw, name) = (&visit.gw, visit.part::<String>("name")?);
    known(gw, &name)?;
    gw.store.quarantine_proxy(&name, visit.actor()?, reason.chars().take(500).collect()).await?;
    gw.events.wrote();
    one(gw, &name).await
}

/// `POST /v1/proxies/{name}/archive`.
pub(super) async fn archive(visit: Visit) -> Result<Reply, No> {
    let (gw, name) = (&visit.gw, visit.part::<String>("name")?);
    let proxy = known(gw, &name)?;
    let (workspace, now) = (proxy.workspace().clone(), gw.now());
    files(move || workspace.make().and_then(|()| workspace.archive(now)).map(|_| ())).await?;
    note(gw, &visit, "proxy.archived", &name).await?;
    one(gw, &name).await
}

/// What a workspace is brought back from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BringBack {
    /// The name of an archive; the last good copy if none is named.
    #[serde(default)]
    pub archive: Option<String>,
}

/// `POST /v1/proxies/{name}/restore`.
pub(super) async fn restore(mut visit: Visit) -> Result<Reply, No> {
    let BringBack { archive } = visit.take()?;
    let (gw, name) = (&visit.gw, visit.part::<String>("name")?);
    let workspace = known(gw, &name)?.workspace().clone();
    if archive.as_ref().is_some_and(|wanted| !workspace.archived().iter().any(|archived| archived.name == *wanted)) {
        return Err(No::saying(Code::StoreNotFound, "there is no archive of that name"));
    }
    if archive.is_none() && !workspace.has_good() {
        return Err(No::saying(
            Code::StoreNotFound,
            "no good copy is kept yet: the first task that ends clean makes one",
        ));
    }
    files(move || workspace.restore(archive.as_deref())).await?;
    note(gw, &visit, "proxy.restored", &name).await?;
    one(gw, &name).await
}

async fn files(work: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Result<(), No> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| No::new(Code::GatewayInternal))?;
    done.map_err(|_| No::saying(Code::FilesFailed, "the workspace could not be moved"))
}

async fn note(gw: &Gateway, visit: &Visit, what: &'static str, name: &str) -> Result<(), No> {
    gw.store.note_proxy(name, what, visit.actor()?).await?;
    gw.events.wrote();
    Ok(())
}

fn declared(gw: &Gateway, name: &str) -> Result<Arc<Found>, No> {
    gw.proxies.found().into_iter().find(|found| found.name == name).ok_or_else(missing)
}

fn routing(name: &str, proxy: &Proxy) -> Vec<ScoreView> {
    let operations = proxy.operations.iter();
    operations
        .map(|(operation, about)| ScoreView::of(format!("proxy.{name}.{operation}"), &proxy.routing_score(about)))
        .collect()
}

pub(super) fn known(gw: &Gateway, name: &str) -> Result<Arc<ProxyService>, No> {
    gw.proxies.get(name).ok_or_else(missing)
}

fn missing() -> No {
    No::saying(Code::StoreNotFound, "there is no proxy of this name; GET /v1/proxies lists them")
}
