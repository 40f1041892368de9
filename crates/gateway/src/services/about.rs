//! What an agent can learn about itself, its rules and the gateway.
//!
//! `agent.*` and `system.*`, reads only. Promise: an agent sees its own name, folders, sessions and rules,
//! and nothing of other agents.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::policy::{LivePolicy, Question};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{AgentName, CapabilityName, Span};
use sluice_store::{ScheduleState, Shelf, Store, StoreError};

use crate::catalogue::LiveCatalogue;
use crate::value::put;

use super::{Ask, Found, Performed, Prepared, ReadSource, Service, Trouble, Work};

/// What can be learnt.
#[derive(Debug)]
pub struct About {
    /// The store.
    pub store: Arc<Store>,
    /// The rules in force.
    pub policy: Arc<LivePolicy>,
    /// Everything that can be asked.
    pub catalogue: Arc<LiveCatalogue>,
    /// Folders opened to agents, with whom they are open to (nobody named: everyone).
    pub folders: Vec<(PathBuf, Vec<AgentName>)>,
    /// The release.
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

impl About {
    /// What it carries out itself.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }

    async fn answer(&self, ask: &Ask) -> Result<Value, Refusal> {
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

    /// The agent's own numbers: what it did in a window, what waits for it, how much it keeps.
    async fn metrics(&self, ask: &Ask, window: Option<&str>) -> Result<Value, Refusal> {
        let (agent, window) = (ask.action.agent().clone(), window.unwrap_or("5m"));
        let span = window_of(window).ok_or_else(|| {
            let text = "window is a number of at least 1 with `s`, `m` or `h`, at most 168h";
            Refusal::new(Code::SchemaWrongType).with_text(text)
        })?;
        let activity = self.store.activity_of(agent.clone(), ask.now - span).await.map_err(refuse)?;
        let (_, messages) = self.store.messages_for(agent.clone(), None, 1, ask.now).await.map_err(refuse)?;
        let plans = self.store.schedules_of(agent.clone()).await.map_err(refuse)?;
        let plans = plans.iter().filter(|plan| plan.state == ScheduleState::Active).count();
        let kept = self.store.state_usage(Shelf::Persistent(agent)).await.map_err(refuse)?;
        let writes: Map<String, Value> =
            activity.writes.into_iter().map(|(state, count)| (state, count.into())).collect();
        Ok(json!({
            "window": window, "writes_by_state": writes, "open_questions": activity.questions,
            "messages_waiting": messages, "active_schedules": plans, "persistent_state_bytes": kept,
        }))
    }

    /// Every capability of this gateway with what policy says to it, as far as that can be told without
    /// arguments.
    #[must_use]
    pub fn capabilities(&self, agent: &AgentName, category: Option<&str>, now: sluice_core::Timestamp) -> Vec<Value> {
        let policy = self.policy.get();
        let nothing = Map::new();
        let wanted = |name: &CapabilityName| category.is_none_or(|category| name.as_str().starts_with(category));
        self.catalogue
            .offered()
            .iter()
            .filter(|spec| wanted(&spec.name))
            .map(|spec| {
                let verdict = policy.judge(&Question::new(agent, &spec.name, &nothing, now));
                let mut told = super::describe(spec);
                // Conditions may decide otherwise once there are arguments.
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

    async fn session(&self, ask: &Ask) -> Result<Value, Refusal> {
        let tainted = self.store.any_tainted(ask.action.agent().clone()).await.map_err(refuse)?;
        let Some(id) = ask.session else { return Ok(json!({"session_id": null, "tainted": tainted})) };
        let session = self.store.session(id).await.map_err(refuse)?;
        let session = session.ok_or_else(|| Refusal::new(Code::IdentitySession))?;
        Ok(json!({
            "session_id": session.id, "client": session.client, "opened_at": session.opened_at.to_string(),
            "has_task": session.task.is_some(), "tainted": tainted,
        }))
    }

    fn rules(&self, agent: &AgentName, now: sluice_core::Timestamp) -> Value {
        let policy = self.policy.get();
        let nothing = Map::new();
        let tiers: Map<String, Value> = self
            .catalogue
            .offered()
            .iter()
            .map(|spec| {
                let verdict = policy.judge(&Question::new(agent, &spec.name, &nothing, now));
                (spec.name.to_string(), verdict.tier.as_str().into())
            })
            .collect();
        json!({"version": policy.version(), "agent": agent, "tiers_without_arguments": tiers})
    }

    /// Folders an agent may name.
    #[must_use]
    pub fn folders_of(&self, agent: &AgentName) -> Vec<String> {
        let open = |agents: &[AgentName]| agents.is_empty() || agents.contains(agent);
        self.folders.iter().filter(|(_, agents)| open(agents)).map(|(path, _)| path.display().to_string()).collect()
    }
}

/// `5m` as a span.
fn window_of(text: &str) -> Option<Span> {
    let unit = text.chars().next_back()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok().filter(|number| *number > 0)?;
    let seconds = match unit {
        's' => number,
        'm' => number.checked_mul(60)?,
        'h' => number.checked_mul(3_600)?,
        _ => return None,
    };
    (seconds <= 168 * 3_600).then(|| Span::from_secs(seconds))
}

fn time(ask: &Ask, zone: Option<&str>) -> Result<Value, Refusal> {
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
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).because(error)
}

/// Nothing here changes anything, so nothing can be prepared, performed or undone.
fn nothing<'a, Out: Send + 'a>() -> Work<'a, Result<Out, Trouble>> {
    Box::pin(std::future::ready(Err(Trouble::refused(Code::GatewayUnsupported))))
}

impl Service for About {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        NAMES.contains(&capability.as_str())
    }
    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(self.answer(ask))
    }
    fn prepare<'a>(&'a self, _: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
        nothing()
    }
    fn perform<'a>(&'a self, _: Permit, _: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Result<Performed, Trouble>> {
        nothing()
    }
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(std::future::ready(Found::Absent))
    }
    fn present<'a>(&'a self, _: &'a Hold, _: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>> {
        nothing()
    }
    fn undo<'a>(&'a self, _: Permit, _: &'a Hold, _: &'a [u8]) -> Work<'a, Result<Performed, Trouble>> {
        nothing()
    }
    fn forget<'a>(&'a self, _: &'a [u8]) -> Work<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
