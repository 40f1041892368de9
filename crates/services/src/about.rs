//! The `agent.*` and `system.*` capabilities: what an agent can learn about itself, its rules and the gateway.
//!
//! Reads only. Promise: an agent sees its own name, folders, sessions and rules, and nothing of other agents.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::policy::{LivePolicy, PolicyInput};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{AgentName, BoxedFuture, CapabilityName, Millis};
use sluice_store::{ScheduleState, StateScope, Store, StoreError};

use super::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};
use crate::catalogue::LiveCatalogue;
use crate::value::put;

/// The sources of the answers.
#[derive(Debug)]
pub struct AboutService {
    /// The store.
    pub store: Arc<Store>,
    /// The rules in force.
    pub policy: Arc<LivePolicy>,
    /// The capabilities.
    pub catalogue: Arc<LiveCatalogue>,
    /// Folders opened to agents, each with the agents it is open to (an empty list means all).
    pub folders: Vec<(PathBuf, Vec<AgentName>)>,
    /// The release of the gateway.
    pub release: &'static str,
}

const NAMES: [&str; 8] = [
    "agent.whoami",
    "agent.capabilities",
    "agent.session",
    "agent.policy",
    "system.info",
    "system.time",
    "system.health",
    "system.metrics",
];

impl AboutService {
    /// The names of the capabilities that this service carries out.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }

    async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let arguments = ask.action.arguments();
        let agent = ask.action.agent();
        match ask.action.capability().as_str() {
            "agent.whoami" => Ok(json!({
                "agent": agent, "session_id": ask.session, "folders": self.folders_of(agent),
                "policy_version": self.policy.get().version(),
            })),
            "agent.capabilities" => {
                let category = arguments.get("category").and_then(Value::as_str);
                Ok(json!({"capabilities": self.capabilities(agent, category, ask.now)}))
            }
            "agent.session" => self.session(ask).await,
            "agent.policy" => Ok(self.rules(agent, ask.now)),
            "system.info" => Ok(json!({"name": "Sluicegate", "release": self.release, "node": self.store.node()})),
            "system.time" => time(ask, arguments.get("timezone").and_then(Value::as_str)),
            "system.health" => {
                let freezes = self.store.freezes().await.map_err(refuse)?;
                let scopes: Vec<String> = freezes.iter().map(|freeze| freeze.scope.to_string()).collect();
                Ok(json!({"status": "ok", "frozen": scopes}))
            }
            "system.metrics" => self.metrics(ask, arguments.get("window").and_then(Value::as_str)).await,
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    /// The agent's own metrics: what it did in a window, what waits for it, how much it keeps.
    async fn metrics(&self, ask: &ServiceRead, window: Option<&str>) -> Result<Value, Refusal> {
        let (agent, window) = (ask.action.agent().clone(), window.unwrap_or("5m"));
        let span = window_of(window).ok_or_else(|| {
            let text = "window is a number of at least 1 with `s`, `m` or `h`, at most 168h";
            Refusal::new(Code::SchemaWrongType).with_text(text)
        })?;
        let activity = self.store.activity_of(agent.clone(), ask.now - span).await.map_err(refuse)?;
        let (_, messages) = self.store.messages_for(agent.clone(), None, 1, ask.now).await.map_err(refuse)?;
        let plans = self.store.schedules_of(agent.clone()).await.map_err(refuse)?;
        let plans = plans.iter().filter(|plan| plan.state == ScheduleState::Active).count();
        let kept = self.store.state_usage(StateScope::Persistent(agent)).await.map_err(refuse)?;
        let writes: Map<String, Value> =
            activity.writes.into_iter().map(|(state, count)| (state, count.into())).collect();
        Ok(json!({
            "window": window, "writes_by_state": writes, "open_questions": activity.questions,
            "messages_waiting": messages, "active_schedules": plans, "persistent_state_bytes": kept,
        }))
    }

    /// Every capability of this gateway with the verdict of policy, as far as it is known without arguments.
    #[must_use]
    pub fn capabilities(&self, agent: &AgentName, category: Option<&str>, now: sluice_core::UtcMillis) -> Vec<Value> {
        let policy = self.policy.get();
        let nothing = Map::new();
        let wanted = |name: &CapabilityName| category.is_none_or(|category| name.as_str().starts_with(category));
        self.catalogue
            .offered()
            .iter()
            .filter(|spec| wanted(&spec.name))
            .map(|spec| {
                let verdict = policy.judge(&PolicyInput::new(agent, &spec.name, &nothing, now));
                let mut told = super::describe(spec);
                // With arguments, conditions may decide otherwise.
                put(&mut told, "tier_without_arguments", verdict.tier.as_str());
                told
            })
            .collect()
    }

    /// Every capability of this gateway, for people.
    #[must_use]
    pub fn offered(&self, category: Option<&str>) -> Vec<Value> {
        let offered = self.catalogue.offered();
        let wanted = |name: &CapabilityName| category.is_none_or(|category| name.as_str().starts_with(category));
        offered.iter().filter(|spec| wanted(&spec.name)).map(super::describe).collect()
    }

    async fn session(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let tainted = self.store.has_tainted_session(ask.action.agent().clone()).await.map_err(refuse)?;
        let Some(id) = ask.session else { return Ok(json!({"session_id": null, "tainted": tainted})) };
        let session = self.store.session(id).await.map_err(refuse)?;
        let session = session.ok_or_else(|| Refusal::new(Code::IdentitySession))?;
        Ok(json!({
            "session_id": session.id, "client": session.client, "opened_at": session.opened_at.to_string(),
            "has_task": session.task.is_some(), "tainted": tainted,
        }))
    }

    fn rules(&self, agent: &AgentName, now: sluice_core::UtcMillis) -> Value {
        let policy = self.policy.get();
        let nothing = Map::new();
        let tiers: Map<String, Value> = self
            .catalogue
            .offered()
            .iter()
            .map(|spec| {
                let verdict = policy.judge(&PolicyInput::new(agent, &spec.name, &nothing, now));
                (spec.name.to_string(), verdict.tier.as_str().into())
            })
            .collect();
        json!({"version": policy.version(), "agent": agent, "tiers_without_arguments": tiers})
    }

    /// The folders that an agent may name.
    #[must_use]
    pub fn folders_of(&self, agent: &AgentName) -> Vec<String> {
        let open = |agents: &[AgentName]| agents.is_empty() || agents.contains(agent);
        self.folders.iter().filter(|(_, agents)| open(agents)).map(|(path, _)| path.display().to_string()).collect()
    }
}

/// Parses a span such as `5m`.
fn window_of(text: &str) -> Option<Millis> {
    let unit = text.chars().next_back()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok().filter(|number| *number > 0)?;
    let seconds = match unit {
        's' => number,
        'm' => number.checked_mul(60)?,
        'h' => number.checked_mul(3_600)?,
        _ => return None,
    };
    (seconds <= 168 * 3_600).then(|| Millis::from_secs(seconds))
}

fn time(ask: &ServiceRead, zone: Option<&str>) -> Result<Value, Refusal> {
    let now = jiff::Timestamp::from_millisecond(ask.now.as_millis()).map_err(|_| Refusal::new(Code::GatewayClock))?;
    let zone = zone.unwrap_or("UTC");
    let local = now
        .in_tz(zone)
        .map_err(|_| Refusal::new(Code::SchemaWrongType).with_text("timezone is a name such as Europe/Berlin"))?;
    Ok(json!({
        "utc": ask.now.to_string(), "local": local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(), "timezone": zone,
        "unix_ms": ask.now.as_millis(),
    }))
}

fn refuse(error: StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).with_source(error)
}

/// This service changes nothing, so nothing can be prepared, performed or undone.
fn nothing<'a, Out: Send + 'a>() -> BoxedFuture<'a, Result<Out, WriteError>> {
    Box::pin(std::future::ready(Err(WriteError::refused(Code::GatewayUnsupported))))
}

impl Service for AboutService {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        NAMES.contains(&capability.as_str())
    }
    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(self.answer(ask))
    }
    fn prepare<'a>(&'a self, _: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        nothing()
    }
    fn perform<'a>(
        &'a self,
        _: Permit,
        _: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        nothing()
    }
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(std::future::ready(LookupOutcome::Absent))
    }
    fn current_fingerprint<'a>(
        &'a self,
        _: &'a Hold,
        _: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        nothing()
    }
    fn undo<'a>(&'a self, _: Permit, _: &'a Hold, _: &'a [u8]) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        nothing()
    }
    fn discard_undo_data<'a>(&'a self, _: &'a [u8]) -> BoxedFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
