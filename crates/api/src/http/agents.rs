//! Agents and credentials, for operators.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::ids::KeyId;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, CapabilityName, Millis, PersonName, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_services::CallError;
use sluice_store::{AccessKey, AccessKeyKind, Agent, IssueKey, ObserveMode, RotateKey, StoreError};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{AgentView, KeyView, ListPage, ObservingView, OperatorRoleName, ToolListView};
use crate::mcp;

/// How many seconds the old key keeps working after a rotation, by default.
const OVERLAP: u64 = 3600;
/// How long an agent is observed by default, and at most, in seconds.
const OBSERVED: u64 = 24 * 3600;
const LONGEST_OBSERVED: u64 = 7 * 24 * 3600;
/// The longest lifetime that a key can be given, in seconds: ten years. For longer, leave the end out.
const LONGEST_LIFE: u64 = 3650 * 24 * 3600;

/// `GET /v1/agents`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (agents, keys) = (visit.gw.store.agents().await?, visit.gw.store.keys().await?);
    let data = agents.iter().map(|agent| view(&visit.gw, agent, &keys)).collect();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

fn view(gw: &Gateway, agent: &Agent, keys: &[AccessKey]) -> AgentView {
    let works = |key: &&AccessKey| {
        matches!(&key.kind, AccessKeyKind::Agent(name) if *name == agent.name)
            && key.revoked_at.is_none()
            && key.expires_at.is_none_or(|end| gw.now() < end)
    };
    AgentView {
        name: agent.name.to_string(),
        note: agent.note.clone(),
        created_at: agent.created_at.to_string(),
        paused: agent.paused_at.is_some(),
        removed: agent.removed_at.is_some(),
        keys: u32::try_from(keys.iter().filter(works).count()).unwrap_or(u32::MAX),
        observing: observing(gw, &agent.name),
        tools: Vec::new(),
    }
}

/// The lists of tools of an agent.
async fn tool_lists(gw: &Gateway, agent: &AgentName) -> Result<Vec<ToolListView>, CallError> {
    let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let lists = mcp::lists_of(gw, agent).await?.into_iter().map(|list| ToolListView {
        toolset: list.toolset,
        clients: list.clients,
        tools: short(list.budget.tools),
        tokens: short(list.budget.tokens),
    });
    Ok(lists.collect())
}

/// The observe mode of an agent, while it lasts.
pub(super) fn observing(gw: &Gateway, agent: &AgentName) -> Option<ObservingView> {
    let mode = gw.keyring.observing(agent, gw.now())?;
    Some(ObservingView { agent: agent.to_string(), until: mode.until.to_string(), leaving: mode.leaving })
}

/// How long an agent is observed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObserveAgentBody {
    /// Seconds: by default a day, at most a week.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Capabilities that have effects outside the gateway and are observed too, by name.
    #[serde(default)]
    pub leaving: Vec<String>,
}

/// `POST /v1/agents/{name}/observe`.
pub(super) async fn observe(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ObserveAgentBody { seconds, leaving } = visit.parse_body()?;
    let seconds = seconds.unwrap_or(OBSERVED);
    if !(60..=LONGEST_OBSERVED).contains(&seconds) {
        return Err(CallError::with_text(Code::DoorParameter, "an agent is observed for a minute to a week"));
    }
    if leaving.len() > 100 || leaving.iter().any(|name| CapabilityName::new(name.as_str()).is_err()) {
        return Err(CallError::with_text(Code::DoorParameter, "`leaving` lists capabilities by their full names"));
    }
    let name: AgentName = visit.path_param("name")?;
    let mode = ObserveMode { until: visit.gw.now() + Millis::from_secs(seconds), leaving };
    visit.gw.store.observe_agent(name.clone(), visit.actor()?, mode).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// `DELETE /v1/agents/{name}/observe`.
pub(super) async fn end_observing(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let name: AgentName = visit.path_param("name")?;
    visit.gw.store.end_observing(name.clone(), visit.actor()?).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// A new agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgentBody {
    /// The name of the agent, also that of its policy file.
    #[schemars(with = "String")]
    pub name: AgentName,
    /// What the agent is for.
    #[serde(default)]
    pub note: String,
}

/// `POST /v1/agents`.
pub(super) async fn add(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let NewAgentBody { name, note } = visit.parse_body()?;
    if note.chars().count() > 500 {
        return Err(CallError::with_text(Code::DoorParameter, "a note has at most 500 characters"));
    }
    let added = visit.gw.store.add_agent(name.clone(), note, visit.actor()?).await;
    added.map_err(|error| match error {
        StoreError::Conflict | StoreError::Exists { .. } => CallError::new(Code::IdentityAgentExists),
        other => other.into(),
    })?;
    one(&visit.gw, &name, 201).await
}

/// `GET /v1/agents/{name}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    one(&visit.gw, &visit.path_param("name")?, 200).await
}

async fn one(gw: &Gateway, name: &AgentName, status: u16) -> Result<HttpReply, CallError> {
    gw.keyring.refresh(&gw.store).await?;
    gw.signals.events.notify_written();
    let (agents, keys) = (gw.store.agents().await?, gw.store.keys().await?);
    let agent = agents.iter().find(|agent| agent.name == *name);
    let agent = agent.ok_or_else(|| CallError::new(Code::IdentityUnknownAgent))?;
    let tools = if agent.removed_at.is_some() { Vec::new() } else { tool_lists(gw, name).await? };
    Ok(HttpReply::json(status, &AgentView { tools, ..view(gw, agent, &keys) }))
}

/// A reason.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonBody {
    /// The reason in the operator's words.
    #[serde(default)]
    pub reason: String,
}

/// `POST /v1/agents/{name}/pause`.
pub(super) async fn pause(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ReasonBody { reason } = visit.parse_body()?;
    if reason.chars().count() > 500 {
        return Err(CallError::with_text(Code::DoorParameter, "a reason has at most 500 characters"));
    }
    let name: AgentName = visit.path_param("name")?;
    visit.gw.store.pause_agent(name.clone(), visit.actor()?, reason).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// `POST /v1/agents/{name}/resume`.
pub(super) async fn resume(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let name: AgentName = visit.path_param("name")?;
    visit.gw.store.resume_agent(name.clone(), visit.actor()?).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// `DELETE /v1/agents/{name}`.
pub(super) async fn remove(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let name: AgentName = visit.path_param("name")?;
    let stopped = visit.gw.store.remove_agent(name, visit.actor()?).await.map_err(unknown)?;
    visit.gw.keyring.refresh(&visit.gw.store).await?;
    visit.gw.signals.events.notify_written();
    for hold in stopped {
        visit.gw.forget_window(hold);
        visit.gw.notify_hold_changed(hold);
    }
    Ok(HttpReply::nothing())
}

fn unknown(error: StoreError) -> CallError {
    match error {
        StoreError::NotFound { .. } => CallError::new(Code::IdentityUnknownAgent),
        other => other.into(),
    }
}

/// `GET /v1/keys`.
pub(super) async fn keys(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let data = visit.gw.store.keys().await?.iter().map(KeyView::from).collect();
    Ok(HttpReply::json(200, &ListPage::<KeyView> { data, next_cursor: None, has_more: false }))
}

/// A new credential.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKeyBody {
    /// The agent that the key is for.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// The person that the operator token is for.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub operator: Option<PersonName>,
    /// What that person may do.
    #[serde(default)]
    pub role: Option<OperatorRoleName>,
    /// The name of the service that hands in people's replies, for an inbox key.
    #[serde(default)]
    pub inbox: Option<String>,
    /// The agent whose user's task is stated with the key, for a task key.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub task_for: Option<AgentName>,
    /// A label for people.
    #[serde(default)]
    pub label: Option<String>,
    /// How long it works, in seconds; without an end if not given.
    #[serde(default)]
    pub ttl_s: Option<u64>,
}

/// `POST /v1/keys`.
pub(super) async fn issue(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let body: NewKeyBody = visit.parse_body()?;
    let gw = &visit.gw;
    if body.label.as_ref().is_some_and(|label| label.chars().count() > 100) {
        return Err(CallError::with_text(Code::DoorParameter, "a label has at most 100 characters"));
    }
    let (kind, word) = match (body.agent, body.operator, body.inbox, body.task_for) {
        (Some(agent), None, None, None) => (AccessKeyKind::Agent(agent), TokenKind::Agent),
        (None, Some(person), None, None) => {
            (AccessKeyKind::Operator(person, body.role.unwrap_or(OperatorRoleName::Viewer).into()), TokenKind::Operator)
        }
        (None, None, Some(name), None) if !name.is_empty() && name.len() <= 64 => {
            (AccessKeyKind::Inbox(name), TokenKind::Inbox)
        }
        (None, None, None, Some(agent)) => (AccessKeyKind::Task(agent), TokenKind::Task),
        _ => {
            let text = "name exactly one of `agent`, `operator`, `inbox` and `task_for`";
            return Err(CallError::with_text(Code::DoorParameter, text));
        }
    };
    let token = KeyToken::generate(word, gw.entropy.as_ref());
    let new = IssueKey {
        id: KeyId::mint(gw.ids.as_ref()),
        kind,
        label: body.label,
        hash: token.hash(),
        expires_at: end_of(gw, body.ttl_s)?,
        by: visit.actor()?,
    };
    let key = gw.store.issue_key(new).await.map_err(unknown)?;
    shown_once(gw, &key, &token).await
}

/// When a key with this lifetime expires.
fn end_of(gw: &Gateway, ttl_s: Option<u64>) -> Result<Option<UtcMillis>, CallError> {
    match ttl_s {
        None => Ok(None),
        Some(ttl) if (1..=LONGEST_LIFE).contains(&ttl) => Ok(Some(gw.now() + Millis::from_secs(ttl))),
        Some(_) => {
            Err(CallError::with_text(Code::DoorParameter, "a key works for 1 second to ten years, or without an end"))
        }
    }
}

/// How a key is replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKeyBody {
    /// How long the old one keeps working, in seconds; by default an hour.
    #[serde(default)]
    pub overlap_s: Option<u64>,
    /// How long the new one works, in seconds; without an end if not given.
    #[serde(default)]
    pub ttl_s: Option<u64>,
}

/// `POST /v1/keys/{key_id}/rotate`.
pub(super) async fn rotate(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let RotateKeyBody { overlap_s, ttl_s } = visit.parse_body()?;
    let gw = &visit.gw;
    let old: KeyId = visit.path_param("key_id")?;
    let keys = gw.store.keys().await?;
    let found = keys.iter().find(|key| key.id == old).ok_or_else(|| CallError::new(Code::StoreNotFound))?;
    let word = match found.kind {
        AccessKeyKind::Agent(_) => TokenKind::Agent,
        AccessKeyKind::Operator(..) => TokenKind::Operator,
        AccessKeyKind::Inbox(_) => TokenKind::Inbox,
        AccessKeyKind::Task(_) => TokenKind::Task,
    };
    let token = KeyToken::generate(word, gw.entropy.as_ref());
    let rotate = RotateKey {
        old,
        new: KeyId::mint(gw.ids.as_ref()),
        hash: token.hash(),
        keep_old_until: gw.now() + Millis::from_secs(overlap_s.unwrap_or(OVERLAP).min(LONGEST_LIFE)),
        expires_at: end_of(gw, ttl_s)?,
        by: visit.actor()?,
    };
    let key = gw.store.rotate_key(rotate).await?;
    shown_once(gw, &key, &token).await
}

async fn shown_once(gw: &Gateway, key: &AccessKey, token: &KeyToken) -> Result<HttpReply, CallError> {
    gw.keyring.refresh(&gw.store).await?;
    gw.signals.events.notify_written();
    let view = KeyView { token: Some(token.expose().to_owned()), ..KeyView::from(key) };
    Ok(HttpReply::json(201, &view))
}

/// `DELETE /v1/keys/{key_id}`.
pub(super) async fn revoke(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    visit.gw.store.revoke_key(visit.path_param("key_id")?, visit.actor()?).await?;
    visit.gw.keyring.refresh(&visit.gw.store).await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::nothing())
}
