//! How the gateway is, what is frozen, and what it tells people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::ids::MessageId;
use sluice_core::policy::reading::closest;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, ServiceName, Span};
use sluice_store::{AlertFilter, Scope, Severity, Store, StoreError};

use super::reply::Reply;
use super::route::Visit;
use super::views::{FreezeView, ObservingView, Page};
use crate::No;
use crate::connections::ConnectionView;
use crate::gateway::{Gateway, Phase, Room};
use crate::services::alerts::as_json;
use crate::value::at;

/// How long the status waits for the database.
const SOON: Span = Span::from_secs(2);

/// How the gateway is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StatusView {
    /// `starting`, `open` or `stopping`.
    pub phase: String,
    /// This node.
    pub node: String,
    /// The release.
    pub release: String,
    /// The time here.
    pub now: String,
    /// The rules in force.
    pub policy_version: String,
    /// How many rules those are.
    pub rules: usize,
    /// What is frozen.
    pub freezes: Vec<FreezeView>,
    /// The database did not answer in time: what it alone knows (writes, approvals, alerts, record, services) is left out.
    pub busy: bool,
    /// Held writes by state, without those that are over.
    pub holds: std::collections::BTreeMap<String, u64>,
    /// Questions nobody has answered yet.
    pub open_approvals: usize,
    /// Alerts nobody has acknowledged, at least warnings.
    pub open_alerts: usize,
    /// Whether the clock has jumped a moment ago; nothing is sent then.
    pub clock_suspect: bool,
    /// `enough`, `low` or `none`.
    pub disk: String,
    /// Ends of the audit logs.
    pub audit: Vec<LogView>,
    /// Streams of events being listened to.
    pub listeners: usize,
    /// How workers are locked in.
    pub sandbox: SandboxView,
    /// Services that are connected.
    pub services: Vec<ConnectionView>,
    /// Mounted servers that are not open, and tools of theirs that wait for a person.
    pub mounts: Vec<MountStatus>,
    /// Channels over which people answer, as far as they have been tried.
    pub channels: Vec<ChannelStatus>,
    /// Agents in observe mode: their calls are judged and recorded, and not stopped.
    pub observing: Vec<ObservingView>,
}

/// How well people are heard over a channel.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChannelStatus {
    /// Its name.
    pub name: String,
    /// `heard` or `not_heard`.
    pub state: String,
    /// Since when.
    pub since: String,
    /// Why it is not heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A mounted server that somebody should look at.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountStatus {
    /// Its name.
    pub name: String,
    /// `starting`, `open` or `down`.
    pub state: String,
    /// Why it is not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Tools that wait for a person.
    pub waiting_tools: usize,
}

/// How workers are locked in.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SandboxView {
    /// `required`, `degraded`, or `closed` where this gateway starts no workers.
    pub mode: String,
    /// Layers that are off.
    pub missing: Vec<String>,
}

/// The end of an audit log.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LogView {
    /// Its node.
    pub log: String,
    /// Entries in it.
    pub entries: u64,
    /// The hash of the last.
    pub hash: String,
    /// Entries under the last signed checkpoint.
    pub signed: u64,
    /// The public key its checkpoints are checked with, if this node signs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Every audit log, as it ends now.
pub(super) async fn logs(gw: &Gateway, store: &Store) -> Result<Vec<LogView>, No> {
    let mut logs = Vec::new();
    for (log, head) in store.logs().await? {
        let signed = store.last_checkpoint(log.clone()).await?.map_or(0, |signed| signed.size);
        let key = gw.audit_keys.iter().find(|(of, _)| *of == log).map(|(_, key)| key.to_string());
        logs.push(LogView { log: log.to_string(), entries: head.size, hash: head.hash.to_string(), signed, key });
    }
    Ok(logs)
}

/// What only the database knows.
#[derive(Default)]
struct Counts {
    audit: Vec<LogView>,
    holds: std::collections::BTreeMap<String, u64>,
    open_approvals: usize,
    open_alerts: usize,
    services: Vec<ConnectionView>,
}

impl Counts {
    async fn read(gw: &Gateway) -> Result<Self, No> {
        // Over a connection of its own, which ordinary work cannot keep busy and stopping does not wait for.
        let store = &gw.store.asked_for_status();
        let severe = AlertFilter { open_only: true, severity_at_least: Severity::Warning, agent: None };
        Ok(Self {
            audit: logs(gw, store).await?,
            holds: store.holds_by_state().await?.into_iter().collect(),
            open_approvals: store.open_approvals(1000).await?.len(),
            open_alerts: store.alerts(severe, None, 1000).await?.len(),
            services: gw.connections.list(store).await?.into_iter().filter(|one| one.state != "disconnected").collect(),
        })
    }
}

/// `GET /v1/status`.
pub(super) async fn status(visit: Visit) -> Result<Reply, No> {
    let gw = &visit.gw;
    let policy = gw.policy.get();
    let freezes = gw.stop_lane().freezes().await?;
    // How things are is asked most urgently when they are not well: what the database does not say at once is left out.
    let counts = tokio::time::timeout(SOON.as_duration(), Counts::read(gw)).await;
    let (counts, busy) = match counts {
        Ok(Ok(counts)) => (counts, false),
        Ok(Err(no)) => {
            tracing::warn!(code = no.refusal.code().as_str(), "how things stand could not be read whole");
            (Counts::default(), true)
        }
        Err(_) => (Counts::default(), true),
    };
    let Counts { audit, holds, open_approvals, open_alerts, services } = counts;
    let view = StatusView {
        phase: match gw.phase() {
            Phase::Starting => "starting".into(),
            Phase::Open => "open".into(),
            Phase::Stopping => "stopping".into(),
        },
        node: gw.store.node().to_string(),
        release: gw.about.release.into(),
        now: gw.now().to_string(),
        policy_version: policy.version().to_owned(),
        rules: policy.rules(),
        freezes: freezes.iter().map(FreezeView::from).collect(),
        busy,
        holds,
        open_approvals,
        open_alerts,
        clock_suspect: gw.clock_is_suspect(),
        disk: match gw.room() {
            Room::Enough => "enough".into(),
            Room::Low => "low".into(),
            Room::None => "none".into(),
        },
        audit,
        listeners: gw.events.listeners(),
        sandbox: sandbox(gw),
        services,
        mounts: mounts(gw),
        channels: channels(gw),
        observing: gw.keyring.agents().iter().filter_map(|agent| super::agents::observing(gw, agent)).collect(),
    };
    Ok(Reply::json(200, &view))
}

fn sandbox(gw: &Gateway) -> SandboxView {
    match gw.workers.layers() {
        Some((mode, layers)) => SandboxView {
            mode: mode.as_str().into(),
            missing: layers.missing().iter().map(ToString::to_string).collect(),
        },
        None => SandboxView { mode: "closed".into(), missing: Vec::new() },
    }
}

fn channels(gw: &Gateway) -> Vec<ChannelStatus> {
    let all = gw.hearing.all().into_iter().map(|(name, condition)| ChannelStatus {
        name: name.to_owned(),
        state: if condition.reason.is_none() { "heard".into() } else { "not_heard".into() },
        since: condition.since.to_string(),
        reason: condition.reason,
    });
    all.collect()
}

fn mounts(gw: &Gateway) -> Vec<MountStatus> {
    let all = gw.mounts.all().into_iter().map(|service| {
        let (condition, waiting) = (service.condition(), service.pins());
        let waiting_tools = waiting.iter().filter(|pin| pin.waiting.is_some()).count();
        let (name, state) = (service.mount().name.clone(), condition.phase.as_str().to_owned());
        MountStatus { name, state, reason: condition.reason, waiting_tools }
    });
    all.filter(|mount| mount.state != "open" || mount.waiting_tools > 0).collect()
}

/// `GET /livez`: the process answers.
pub(super) async fn live(_: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &json!({"status": "ok"})))
}

/// `GET /readyz`: new calls are taken.
pub(super) async fn ready(visit: Visit) -> Result<Reply, No> {
    visit.gw.takes_calls()?;
    visit.store.freezes().await?;
    Ok(Reply::json(200, &json!({"status": "ok"})))
}

/// What to freeze.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FreezeBody {
    /// One agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// One service. Neither: everything.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub service: Option<ServiceName>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// What a freeze could no longer stop.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Frozen {
    /// What is frozen now.
    pub scope: String,
    /// Writes already on their way.
    pub in_flight: Vec<String>,
    /// Whether there is such an agent or service now. It is frozen all the same: it may come.
    pub known: bool,
    /// What there is and is called almost like that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

/// `GET /v1/freezes`.
pub(super) async fn freezes(visit: Visit) -> Result<Reply, No> {
    let data = visit.gw.stop_lane().freezes().await?.iter().map(FreezeView::from).collect();
    Ok(Reply::json(200, &Page::<FreezeView> { data, next_cursor: None, has_more: false }))
}

/// `POST /v1/freezes`.
pub(super) async fn freeze(mut visit: Visit) -> Result<Reply, No> {
    let FreezeBody { agent, service, reason } = visit.take()?;
    if reason.chars().count() > 500 {
        return Err(No::saying(Code::DoorParameter, "a reason has at most 500 characters"));
    }
    let scope = scope(agent, service)?;
    let in_flight = visit.gw.stop_lane().freeze(scope.clone(), visit.actor()?, reason).await?;
    visit.gw.events.wrote();
    let in_flight = in_flight.iter().map(ToString::to_string).collect();
    let (known, nearest) = acquaintance(&visit.gw, &scope);
    Ok(Reply::json(201, &Frozen { scope: scope.to_string(), in_flight, known, nearest }))
}

/// Whether what is frozen is known here, and what is called almost like it if not. Looked up in memory only: a freeze
/// waits for nothing.
fn acquaintance(gw: &Gateway, scope: &Scope) -> (bool, Option<String>) {
    let (name, there): (&str, Vec<String>) = match scope {
        Scope::All => return (true, None),
        Scope::Agent(agent) => (agent.as_str(), gw.keyring.agents().iter().map(ToString::to_string).collect()),
        Scope::Service(service) => {
            let offered = gw.catalogue.known();
            let offered = offered.iter().map(|capability| capability.service().to_string());
            let there = gw.services.names().iter().map(ToString::to_string).chain(offered).collect();
            (service.as_str(), there)
        }
    };
    if there.iter().any(|other| other == name) {
        return (true, None);
    }
    (false, closest(name, there.iter().map(String::as_str)).map(str::to_owned))
}

/// `DELETE /v1/freezes`.
pub(super) async fn unfreeze(visit: Visit) -> Result<Reply, No> {
    let scope = scope(visit.asked("agent")?, visit.asked("service")?)?;
    visit.gw.store.unfreeze(scope, visit.actor()?).await?;
    visit.gw.events.wrote();
    visit.gw.due.notify_one();
    Ok(Reply::nothing())
}

fn scope(agent: Option<AgentName>, service: Option<ServiceName>) -> Result<Scope, No> {
    match (agent, service) {
        (None, None) => Ok(Scope::All),
        (Some(agent), None) => Ok(Scope::Agent(agent)),
        (None, Some(service)) => Ok(Scope::Service(service)),
        (Some(_), Some(_)) => Err(No::saying(Code::DoorParameter, "name an agent or a service, not both")),
    }
}

/// `GET /v1/alerts`.
pub(super) async fn alerts(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let severity = match visit.asked::<String>("severity")?.as_deref() {
        None | Some("info") => Severity::Info,
        Some("action") => Severity::Action,
        Some("warning") => Severity::Warning,
        Some("critical") => Severity::Critical,
        Some(_) => {
            let text = "severity is `info`, `action`, `warning` or `critical`";
            return Err(No::saying(Code::DoorParameter, text));
        }
    };
    let open_only = visit.asked::<bool>("open")?.unwrap_or(false);
    let filter = AlertFilter { open_only, severity_at_least: severity, agent: visit.asked("agent")? };
    let after: Option<MessageId> = visit.asked("cursor")?;
    let data: Vec<Value> = visit.store.alerts(filter, after, limit + 1).await?.iter().map(as_json).collect();
    let cursor = |alert: &Value| at(alert, "/alert_id").as_str().unwrap_or_default().to_owned();
    Ok(Reply::json(200, &Page::of(data, limit, cursor)))
}

/// `POST /v1/alerts/{alert_id}/acknowledge`.
pub(super) async fn acknowledge(visit: Visit) -> Result<Reply, No> {
    let id: MessageId = visit.part("alert_id")?;
    visit.gw.store.acknowledge(id, visit.actor()?).await.map_err(|error: StoreError| No::from(error))?;
    visit.gw.events.wrote();
    Ok(Reply::nothing())
}
