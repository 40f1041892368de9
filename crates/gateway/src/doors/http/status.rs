//! How the gateway is, what is frozen, and what it tells people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::budget::Budget;
use sluice_core::ids::MessageId;
use sluice_core::policy::reading::closest;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, NodeName, ServiceName, Span};
use sluice_store::{AlertFilter, HoldFilter, Scope, Severity, Store, StoreError};

use super::reply::Reply;
use super::route::Visit;
use super::views::failing::{self, Audience};
use super::views::{FreezeView, HoldView, ObservingView, Page};
use crate::channels::hearing::Condition;
use crate::connections::ConnectionView;
use crate::gateway::{Gateway, Phase, Room};
use crate::services::alerts::as_json;
use crate::value::at;
use crate::{No, recovery};

/// How long the status waits for the database.
const SOON: Span = Span::from_secs(2);
/// Most writes that are tried again and shown.
const RETRYING_SHOWN: u32 = 5;

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
    /// Writes of which an attempt failed and that are tried again, a few of them: each with its next attempt and its last error.
    pub retrying: Vec<HoldView>,
    /// Questions nobody has answered yet.
    pub open_approvals: usize,
    /// What may happen within a day without a person, and how much of it has: of the whole gateway, and of agents where
    /// something was used.
    pub budgets: Vec<BudgetView>,
    /// Alerts nobody has acknowledged, at least warnings.
    pub open_alerts: usize,
    /// Whether the clock has jumped a moment ago; nothing is sent then.
    pub clock_suspect: bool,
    /// Why the clock of the machine is not followed: it jumped further than it is without a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
    /// How many writes that piled up while the gateway was away leave in a second at each service, while that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<u32>,
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
    /// Mounted servers that are not open or do without a layer they should have, and tools of theirs that wait for a person.
    pub mounts: Vec<MountStatus>,
    /// Channels over which people are asked and answer.
    pub channels: Vec<ChannelStatus>,
    /// Whether nobody is told anything: no channel is set up, or no person has one of those that are.
    pub nobody_is_told: bool,
    /// In what live nodes on the same database differ now, in words.
    pub nodes_differ: Vec<String>,
    /// Agents in observe mode: their calls are judged and recorded, and not stopped.
    pub observing: Vec<ObservingView>,
}

/// How much of a budget is used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BudgetView {
    /// `account`, `gateway` or `new_targets`.
    pub budget: String,
    /// Whose, where it is of one agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// At which service, where it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// What was used within the last 24 hours.
    pub used: u32,
    /// What may be used before a person is asked.
    pub limit: u32,
}

/// Every budget in use.
async fn budgets(gw: &Gateway, store: &Store) -> Result<Vec<BudgetView>, No> {
    let limits = &gw.config.budgets;
    let used = store.budgets_in_use(gw.now()).await?.into_iter().map(|one| BudgetView {
        budget: one.budget.as_str().into(),
        limit: match (one.budget, &one.service) {
            (Budget::Account, Some(service)) => limits.account_limit(service),
            (Budget::Account, None) => limits.writes_per_account,
            (Budget::Gateway, _) => limits.writes_per_gateway,
            (Budget::NewTargets, _) => limits.new_targets_per_agent,
        },
        agent: one.agent.map(|agent| agent.to_string()),
        service: one.service,
        used: one.used,
    });
    Ok(used.collect())
}

/// How well people are heard over a channel.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChannelStatus {
    /// Its name.
    pub name: String,
    /// `heard`, `not_heard`, or `untried` before anything came or went.
    pub state: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why it is not heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `sending`, `not_sending`, or `untried` before anything was sent.
    pub delivery: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_since: Option<String>,
    /// Why nothing is delivered over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_reason: Option<String>,
    /// People who are reached over it.
    pub people: usize,
}

/// A mounted server that somebody should look at.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountStatus {
    /// Its name.
    pub name: String,
    /// `starting`, `open` or `down`.
    pub state: String,
    /// Why it is not open, or what it does without.
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
    /// The public key its checkpoints are checked with, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where the key is known from: `this_node`, which signs the log, or `its_node`, another one that signs it and said so in the
    /// database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_from: Option<&'static str>,
}

/// Every audit log, as it ends now.
pub(super) async fn logs(gw: &Gateway, store: &Store) -> Result<Vec<LogView>, No> {
    let told = store.known_nodes().await?;
    let mut logs = Vec::new();
    for (log, head) in store.logs().await? {
        let signed = store.last_checkpoint(log.clone()).await?.map_or(0, |signed| signed.size);
        let own = gw.audit_keys.iter().find(|(of, _)| *of == log).map(|(_, key)| (key.to_string(), "this_node"));
        // SECURITY: a node speaks for its own logs only, also where others read it.
        let its = told.iter().filter(|node| is_log_of(&log, &node.name)).flat_map(|node| &node.report.log_keys);
        let its = its.filter(|(of, _)| *of == log).map(|(_, key)| (key.clone(), "its_node")).next();
        let (key, key_from) = own.or(its).unzip();
        let (entries, hash) = (head.size, head.hash.to_string());
        logs.push(LogView { log: log.to_string(), entries, hash, signed, key, key_from });
    }
    Ok(logs)
}

/// Whether a log is this node's: its own or that of its stop lane.
fn is_log_of(log: &NodeName, node: &NodeName) -> bool {
    log == node || log.as_str().strip_suffix("/stop") == Some(node.as_str())
}

/// What only the database knows.
#[derive(Default)]
struct Counts {
    audit: Vec<LogView>,
    holds: std::collections::BTreeMap<String, u64>,
    retrying: Vec<HoldView>,
    open_approvals: usize,
    open_alerts: usize,
    budgets: Vec<BudgetView>,
    services: Vec<ConnectionView>,
    nodes_differ: Vec<String>,
}

impl Counts {
    async fn read(gw: &Gateway) -> Result<Self, No> {
        // Over a connection of its own, which ordinary work cannot keep busy and stopping does not wait for.
        let store = &gw.store.asked_for_status();
        let severe = AlertFilter { open_only: true, severity_at_least: Severity::Warning, agent: None };
        Ok(Self {
            audit: logs(gw, store).await?,
            holds: store.holds_by_state().await?.into_iter().collect(),
            retrying: retrying(store).await?,
            open_approvals: store.open_approvals(1000).await?.len(),
            open_alerts: store.alerts(severe, None, 1000).await?.len(),
            budgets: budgets(gw, store).await?,
            nodes_differ: super::nodes::differences(gw, store).await?,
            services: gw.connections.list(store).await?.into_iter().filter(|one| one.state != "disconnected").collect(),
        })
    }
}

/// The newest writes that are tried again.
async fn retrying(store: &Store) -> Result<Vec<HoldView>, No> {
    let filter = HoldFilter { states: vec!["ready"], retrying_only: true, newest_first: true, ..HoldFilter::default() };
    failing::listed(store, &store.holds_page(filter, None, RETRYING_SHOWN).await?, Audience::Person).await
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
    let Counts { audit, holds, retrying, open_approvals, open_alerts, budgets, services, nodes_differ } = counts;
    let is_waiting = ["held", "ready"].into_iter().any(|state| holds.contains_key(state));
    let slow_start = gw.slow_start().filter(|_| is_waiting);
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
        retrying,
        open_approvals,
        budgets,
        open_alerts,
        clock_suspect: gw.clock_is_suspect(),
        clock_doubt: gw.clock.doubt().map(|doubt| {
            let way = if doubt.forward { "ahead" } else { "back" };
            format!("the clock jumped {way} by {} and is not followed", doubt.by)
        }),
        slow_start,
        disk: match gw.room() {
            Room::Enough => "enough".into(),
            Room::Low => "low".into(),
            Room::None => "none".into(),
        },
        audit,
        listeners: gw.events.listeners(),
        sandbox: sandbox(gw),
        services,
        nodes_differ,
        mounts: mounts(gw),
        nobody_is_told: !channels(gw).iter().any(|channel| channel.people > 0),
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

/// Every channel of the configuration, with how well it hears and sends.
pub(super) fn channels(gw: &Gateway) -> Vec<ChannelStatus> {
    let (hearing, sending) = (gw.hearing.all(), gw.sending.all());
    let found = |all: &[(&'static str, Condition)], name: &str| {
        all.iter().find(|(known, _)| *known == name).map(|(_, condition)| condition.clone())
    };
    let view = |name: &'static str| {
        let (heard, sent) = (found(&hearing, name), found(&sending, name));
        let word = |of: &Option<Condition>, [well, ill]: [&str; 2]| match of {
            None => "untried".to_owned(),
            Some(Condition { reason: None, .. }) => well.to_owned(),
            Some(_) => ill.to_owned(),
        };
        let since = |of: &Option<Condition>| of.as_ref().map(|condition| condition.since.to_string());
        ChannelStatus {
            name: name.to_owned(),
            state: word(&heard, ["heard", "not_heard"]),
            since: since(&heard),
            reason: heard.and_then(|condition| condition.reason),
            delivery: word(&sent, ["sending", "not_sending"]),
            delivery_since: since(&sent),
            delivery_reason: sent.and_then(|condition| condition.reason),
            people: gw.config.approvals.people.iter().filter(|person| person.place(name).is_some()).count(),
        }
    };
    crate::channels::names(&gw.config).into_iter().map(view).collect()
}

fn mounts(gw: &Gateway) -> Vec<MountStatus> {
    let all = gw.mounts.all().into_iter().map(|service| {
        let (condition, waiting) = (service.condition(), service.pins());
        let waiting_tools = waiting.iter().filter(|pin| pin.waiting.is_some()).count();
        let (name, state) = (service.mount().name.clone(), condition.phase.as_str().to_owned());
        MountStatus { name, state, reason: condition.reason, waiting_tools }
    });
    all.filter(|mount| mount.state != "open" || mount.reason.is_some() || mount.waiting_tools > 0).collect()
}

/// `GET /livez`: the process answers.
pub(super) async fn live(_: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &json!({"status": "ok"})))
}

/// `GET /readyz`: new calls are taken. Names the services that are not up yet: calls to them are told so.
pub(super) async fn ready(visit: Visit) -> Result<Reply, No> {
    visit.gw.takes_calls()?;
    visit.store.freezes().await?;
    let starting: Vec<String> = visit.gw.services.not_up().iter().map(ToString::to_string).collect();
    match starting.is_empty() {
        true => Ok(Reply::json(200, &json!({"status": "ok"}))),
        false => Ok(Reply::json(200, &json!({"status": "ok", "starting": starting}))),
    }
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
    visit.gw.standstill.look(&visit.gw.store).await;
    recovery::remember_stop(&visit.gw).await;
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
    visit.gw.standstill.look(&visit.gw.store).await;
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
