//! Status: the state of the gateway, freezes, and alerts to people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::budget::DailyBudget;
use sluice_core::ids::MessageId;
use sluice_core::policy::reading::closest;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, Millis, NodeName, ServiceName};
use sluice_gateway::channels::health::ChannelHealth;
use sluice_gateway::{DiskSpace, Gateway, GatewayPhase, operating};
use sluice_services::CallError;
use sluice_services::alerts::as_json;
use sluice_services::connections::ServiceConnectionView;
use sluice_services::failing::FailureAudience;
use sluice_services::value::at;
use sluice_store::{AlertFilter, FreezeTarget, HoldFilter, MessageSeverity, PrunedLog, Store, StoreError};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{FreezeView, HoldView, ListPage, ObservingView, listed};

/// How long the status waits for the database.
const SOON: Millis = Millis::from_secs(2);
/// Most retrying writes that are shown.
const RETRYING_SHOWN: u32 = 5;

/// The status of the gateway.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StatusView {
    /// `starting`, `open` or `stopping`.
    pub phase: String,
    /// The name of this node.
    pub node: String,
    /// The release of the gateway.
    pub release: String,
    /// The time of the gateway.
    pub now: String,
    /// The version of the rules in force.
    pub policy_version: String,
    /// How many rules are in force.
    pub rules: usize,
    /// The freezes in force.
    pub freezes: Vec<FreezeView>,
    /// Whether the database did not answer in time: then its data (writes, approvals, alerts, audit logs, services) is
    /// left out.
    pub busy: bool,
    /// Held writes by state, without those that are over.
    pub holds: std::collections::BTreeMap<String, u64>,
    /// Some writes with a failed attempt that are tried again, each with its next attempt and its last error.
    pub retrying: Vec<HoldView>,
    /// How many approvals are open.
    pub open_approvals: usize,
    /// What may happen within a day without a person, and how much of it is used: of the whole gateway, and of agents
    /// that used something.
    pub budgets: Vec<BudgetUseView>,
    /// How many alerts of at least severity warning nobody has acknowledged.
    pub open_alerts: usize,
    /// Whether the clock jumped a moment ago; nothing is sent then.
    pub clock_suspect: bool,
    /// Why the gateway does not follow the machine's clock: it jumped further than is accepted without a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
    /// How many writes that piled up while the gateway was not running leave per second at each service, while that is
    /// limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<u32>,
    /// `enough`, `low` or `none`.
    pub disk: String,
    /// The ends of the audit logs.
    pub audit: Vec<AuditLogView>,
    /// How many event streams are open.
    pub listeners: usize,
    /// The sandbox of workers.
    pub sandbox: SandboxView,
    /// Services that are connected.
    pub services: Vec<ServiceConnectionView>,
    /// Mounted servers that are not open or lack a sandbox layer, and their tools that wait for a person.
    pub mounts: Vec<MountStatusView>,
    /// The channels over which people are asked and answer.
    pub channels: Vec<ChannelStatusView>,
    /// Whether nobody is notified: no channel is set up, or no person can be reached over one.
    pub nobody_is_told: bool,
    /// How live nodes on the same database differ now, as text.
    pub nodes_differ: Vec<String>,
    /// Agents in observe mode: their calls are judged and recorded, and not stopped.
    pub observing: Vec<ObservingView>,
}

/// How much of a budget is used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BudgetUseView {
    /// `account`, `gateway` or `new_targets`.
    pub budget: String,
    /// The agent, if it is a budget of one agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The service, if it is a budget at one service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// What was used within the last 24 hours.
    pub used: u32,
    /// What may be used before a person is asked.
    pub limit: u32,
}

/// All budgets that are in use.
async fn budgets(gw: &Gateway, store: &Store) -> Result<Vec<BudgetUseView>, CallError> {
    let limits = &gw.config.budgets;
    let used = store.budgets_in_use(gw.now()).await?.into_iter().map(|one| BudgetUseView {
        budget: one.budget.as_str().into(),
        limit: match (one.budget, &one.service) {
            (DailyBudget::Account, Some(service)) => limits.account_limit(service),
            (DailyBudget::Account, None) => limits.writes_per_account,
            (DailyBudget::Gateway, _) => limits.writes_per_gateway,
            (DailyBudget::NewTargets, _) => limits.new_targets_per_agent,
        },
        agent: one.agent.map(|agent| agent.to_string()),
        service: one.service,
        used: one.used,
    });
    Ok(used.collect())
}

/// The condition of a channel.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChannelStatusView {
    /// The name of the channel.
    pub name: String,
    /// Receiving: `heard`, `not_heard`, or `untried` before the first attempt.
    pub state: String,
    /// Since when it is in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why no answers are received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Sending: `sending`, `not_sending`, or `untried` before the first attempt.
    pub delivery: String,
    /// Since when it is in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_since: Option<String>,
    /// Why nothing can be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_reason: Option<String>,
    /// How many people it reaches.
    pub people: usize,
}

/// A mounted server that a person should check.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountStatusView {
    /// The name of the mount.
    pub name: String,
    /// `starting`, `open` or `down`.
    pub state: String,
    /// Why it is not open, or which sandbox layers it lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Tools that wait for a person.
    pub waiting_tools: usize,
}

/// The sandbox of workers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SandboxView {
    /// `required`, `degraded`, or `closed` if this gateway starts no workers.
    pub mode: String,
    /// Sandbox layers that are off.
    pub missing: Vec<String>,
}

/// The end of an audit log.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AuditLogView {
    /// The name of the log.
    pub log: String,
    /// How many entries it has.
    pub entries: u64,
    /// The hash of the last entry.
    pub hash: String,
    /// How many entries the last signed checkpoint covers.
    pub signed: u64,
    /// The public key that verifies its checkpoints, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How the key is known: `this_node`, which signs the log, or `its_node`, another node that signs it and published
    /// the key in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_from: Option<&'static str>,
    /// Where its entries begin here, if earlier ones were archived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<AuditLogStartView>,
}

/// Replaces the archived entries of a log. A verifier starts with it, and need not trust it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AuditLogStartView {
    /// The number of the first entry that is still here, so the number of entries before it.
    pub size: u64,
    /// The roots of the complete subtrees over the earlier entries, largest first.
    pub peaks: Vec<String>,
    /// The hash of the last earlier entry.
    pub head: String,
    /// How many entries are archived. The last of them may still be here as well.
    pub archived: u64,
}

impl From<PrunedLog> for AuditLogStartView {
    fn from(PrunedLog { start, archived }: PrunedLog) -> Self {
        let peaks = start.frontier.peaks().iter().map(ToString::to_string).collect();
        Self { size: start.frontier.size(), peaks, head: start.head.to_string(), archived }
    }
}

/// The current end of every audit log.
pub(super) async fn logs(gw: &Gateway, store: &Store) -> Result<Vec<AuditLogView>, CallError> {
    let told = store.known_nodes().await?;
    let mut logs = Vec::new();
    for (log, head) in store.logs().await? {
        let signed = store.last_checkpoint(log.clone()).await?.map_or(0, |signed| signed.size);
        let own = gw.audit_keys.iter().find(|(of, _)| *of == log).map(|(_, key)| (key.to_string(), "this_node"));
        // SECURITY: a node's word counts for its own logs only, even where others read it.
        let its = told.iter().filter(|node| is_log_of(&log, &node.name)).flat_map(|node| &node.report.log_keys);
        let its = its.filter(|(of, _)| *of == log).map(|(_, key)| (key.clone(), "its_node")).next();
        let (key, key_from) = own.or(its).unzip();
        let (entries, hash) = (head.size, head.hash.to_string());
        let start = store.pruned_log(log.clone()).await?.map(Into::into);
        logs.push(AuditLogView { log: log.to_string(), entries, hash, signed, key, key_from, start });
    }
    Ok(logs)
}

/// Whether a log belongs to this node: its own log or that of its stop lane.
fn is_log_of(log: &NodeName, node: &NodeName) -> bool {
    log == node || log.as_str().strip_suffix("/stop") == Some(node.as_str())
}

/// The data that only the database has.
#[derive(Default)]
struct StatusCounts {
    audit: Vec<AuditLogView>,
    holds: std::collections::BTreeMap<String, u64>,
    retrying: Vec<HoldView>,
    open_approvals: usize,
    open_alerts: usize,
    budgets: Vec<BudgetUseView>,
    services: Vec<ServiceConnectionView>,
    nodes_differ: Vec<String>,
}

impl StatusCounts {
    async fn read(gw: &Gateway) -> Result<Self, CallError> {
        // Over a connection of its own, which ordinary work cannot block and for which stopping does not wait.
        let store = &gw.store.with_status_reads();
        let severe = AlertFilter { open_only: true, severity_at_least: MessageSeverity::Warning, agent: None };
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
async fn retrying(store: &Store) -> Result<Vec<HoldView>, CallError> {
    let filter = HoldFilter { states: vec!["ready"], retrying_only: true, newest_first: true, ..HoldFilter::default() };
    listed::holds(store, &store.holds_page(filter, None, RETRYING_SHOWN).await?, FailureAudience::Person).await
}

/// `GET /v1/status`.
pub(super) async fn status(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = &visit.gw;
    let policy = gw.policy.get();
    let freezes = gw.stop_lane().freezes().await?;
    // The status is needed most when things go wrong: data that the database does not return in time is left out.
    let counts = tokio::time::timeout(SOON.as_duration(), StatusCounts::read(gw)).await;
    let (counts, busy) = match counts {
        Ok(Ok(counts)) => (counts, false),
        Ok(Err(no)) => {
            tracing::warn!(code = no.refusal.code().as_str(), "the status could not be read in full");
            (StatusCounts::default(), true)
        }
        Err(_) => (StatusCounts::default(), true),
    };
    let StatusCounts { audit, holds, retrying, open_approvals, open_alerts, budgets, services, nodes_differ } = counts;
    let is_waiting = ["held", "ready"].into_iter().any(|state| holds.contains_key(state));
    let slow_start = gw.slow_start().filter(|_| is_waiting);
    let view = StatusView {
        phase: match gw.phase() {
            GatewayPhase::Starting => "starting".into(),
            GatewayPhase::Open => "open".into(),
            GatewayPhase::Stopping => "stopping".into(),
        },
        node: gw.store.node().to_string(),
        release: gw.about.release.into(),
        now: gw.now().to_string(),
        policy_version: policy.version().to_owned(),
        rules: policy.rule_count(),
        freezes: freezes.iter().map(FreezeView::from).collect(),
        busy,
        holds,
        retrying,
        open_approvals,
        budgets,
        open_alerts,
        clock_suspect: gw.clock_is_suspect(),
        clock_doubt: gw.clock.ignored_jump().map(|doubt| {
            let way = if doubt.forward { "ahead" } else { "back" };
            format!("the clock jumped {way} by {} and the gateway does not follow it", doubt.by)
        }),
        slow_start,
        disk: match gw.disk_space() {
            DiskSpace::Enough => "enough".into(),
            DiskSpace::Low => "low".into(),
            DiskSpace::None => "none".into(),
        },
        audit,
        listeners: gw.signals.events.listeners(),
        sandbox: sandbox(gw),
        services,
        nodes_differ,
        mounts: mounts(gw),
        nobody_is_told: !channels(gw).iter().any(|channel| channel.people > 0),
        channels: channels(gw),
        observing: gw.keyring.agents().iter().filter_map(|agent| super::agents::observing(gw, agent)).collect(),
    };
    Ok(HttpReply::json(200, &view))
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

/// All channels of the configuration, with their condition.
pub(super) fn channels(gw: &Gateway) -> Vec<ChannelStatusView> {
    let (hearing, sending) = (gw.hearing.all(), gw.sending.all());
    let found = |all: &[(&'static str, ChannelHealth)], name: &str| {
        all.iter().find(|(known, _)| *known == name).map(|(_, condition)| condition.clone())
    };
    let view = |name: &'static str| {
        let (heard, sent) = (found(&hearing, name), found(&sending, name));
        let word = |of: &Option<ChannelHealth>, [well, ill]: [&str; 2]| match of {
            None => "untried".to_owned(),
            Some(ChannelHealth { reason: None, .. }) => well.to_owned(),
            Some(_) => ill.to_owned(),
        };
        let since = |of: &Option<ChannelHealth>| of.as_ref().map(|condition| condition.since.to_string());
        ChannelStatusView {
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
    sluice_gateway::channels::names(&gw.config).into_iter().map(view).collect()
}

fn mounts(gw: &Gateway) -> Vec<MountStatusView> {
    let all = gw.mounts.all().into_iter().map(|service| {
        let (condition, waiting) = (service.condition(), service.pins());
        let waiting_tools = waiting.iter().filter(|pin| pin.waiting.is_some()).count();
        let (name, state) = (service.mount().name.clone(), condition.phase.as_str().to_owned());
        MountStatusView { name, state, reason: condition.reason, waiting_tools }
    });
    all.filter(|mount| mount.state != "open" || mount.reason.is_some() || mount.waiting_tools > 0).collect()
}

/// `GET /livez`: the process answers.
pub(super) async fn live(_: RoutedRequest) -> Result<HttpReply, CallError> {
    Ok(HttpReply::json(200, &json!({"status": "ok"})))
}

/// `GET /readyz`: whether new calls are accepted. Names the services that are not ready yet: calls to them are refused.
pub(super) async fn ready(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    visit.gw.require_accepting_calls()?;
    visit.store.freezes().await?;
    let starting: Vec<String> = visit.gw.services.starting_services().iter().map(ToString::to_string).collect();
    match starting.is_empty() {
        true => Ok(HttpReply::json(200, &json!({"status": "ok"}))),
        false => Ok(HttpReply::json(200, &json!({"status": "ok", "starting": starting}))),
    }
}

/// The scope of a freeze.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FreezeBody {
    /// One agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// One service. With neither, everything is frozen.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub service: Option<ServiceName>,
    /// The reason for the freeze.
    #[serde(default)]
    pub reason: String,
}

/// The result of a freeze, with what it could no longer stop.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FreezeResultView {
    /// What is frozen now.
    pub scope: String,
    /// Writes that are already under way.
    pub in_flight: Vec<String>,
    /// Whether such an agent or service exists now. It is frozen in any case, because it may be added later.
    pub known: bool,
    /// A similar name that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

/// `GET /v1/freezes`.
pub(super) async fn freezes(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let data = visit.gw.stop_lane().freezes().await?.iter().map(FreezeView::from).collect();
    Ok(HttpReply::json(200, &ListPage::<FreezeView> { data, next_cursor: None, has_more: false }))
}

/// `POST /v1/freezes`.
pub(super) async fn freeze(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let FreezeBody { agent, service, reason } = visit.parse_body()?;
    let scope = scope(agent, service)?;
    let in_flight = operating::freeze(&visit.gw, scope.clone(), visit.actor()?, reason).await?;
    let in_flight = in_flight.iter().map(ToString::to_string).collect();
    let (known, nearest) = acquaintance(&visit.gw, &scope);
    Ok(HttpReply::json(201, &FreezeResultView { scope: scope.to_string(), in_flight, known, nearest }))
}

/// Whether the frozen name is known here, and a similar known name if not. Looked up in memory only: a freeze waits for
/// nothing.
fn acquaintance(gw: &Gateway, scope: &FreezeTarget) -> (bool, Option<String>) {
    let (name, there): (&str, Vec<String>) = match scope {
        FreezeTarget::All => return (true, None),
        FreezeTarget::Agent(agent) => (agent.as_str(), gw.keyring.agents().iter().map(ToString::to_string).collect()),
        FreezeTarget::Service(service) => {
            let offered = gw.catalogue.known();
            let offered = offered.iter().map(|capability| capability.service().to_string());
            // Tools of clients and the approval API are frozen by these names, and no service stands behind them.
            let doors = ["custom", "approvals"].map(str::to_owned);
            let there = gw.services.names().iter().map(ToString::to_string).chain(offered).chain(doors).collect();
            (service.as_str(), there)
        }
    };
    if there.iter().any(|other| other == name) {
        return (true, None);
    }
    (false, closest(name, there.iter().map(String::as_str)).map(str::to_owned))
}

/// `DELETE /v1/freezes`.
pub(super) async fn unfreeze(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let scope = scope(visit.query_param("agent")?, visit.query_param("service")?)?;
    operating::unfreeze(&visit.gw, scope, visit.actor()?).await?;
    Ok(HttpReply::nothing())
}

fn scope(agent: Option<AgentName>, service: Option<ServiceName>) -> Result<FreezeTarget, CallError> {
    match (agent, service) {
        (None, None) => Ok(FreezeTarget::All),
        (Some(agent), None) => Ok(FreezeTarget::Agent(agent)),
        (None, Some(service)) => Ok(FreezeTarget::Service(service)),
        (Some(_), Some(_)) => Err(CallError::with_text(Code::DoorParameter, "name an agent or a service, not both")),
    }
}

/// `GET /v1/alerts`.
pub(super) async fn alerts(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let severity = match visit.query_param::<String>("severity")?.as_deref() {
        None | Some("info") => MessageSeverity::Info,
        Some("action") => MessageSeverity::Action,
        Some("warning") => MessageSeverity::Warning,
        Some("critical") => MessageSeverity::Critical,
        Some(_) => {
            let text = "severity is `info`, `action`, `warning` or `critical`";
            return Err(CallError::with_text(Code::DoorParameter, text));
        }
    };
    let open_only = visit.query_param::<bool>("open")?.unwrap_or(false);
    let filter = AlertFilter { open_only, severity_at_least: severity, agent: visit.query_param("agent")? };
    let after: Option<MessageId> = visit.query_param("cursor")?;
    let data: Vec<Value> = visit.store.alerts(filter, after, limit + 1).await?.iter().map(as_json).collect();
    let cursor = |alert: &Value| at(alert, "/alert_id").as_str().unwrap_or_default().to_owned();
    Ok(HttpReply::json(200, &ListPage::of(data, limit, cursor)))
}

/// `POST /v1/alerts/{alert_id}/acknowledge`.
pub(super) async fn acknowledge(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let id: MessageId = visit.path_param("alert_id")?;
    visit.gw.store.acknowledge(id, visit.actor()?).await.map_err(|error: StoreError| CallError::from(error))?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::nothing())
}
