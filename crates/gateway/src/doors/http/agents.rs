//! Agents and credentials, for operators.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::ids::KeyId;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, CapabilityName, PersonName, Span, Timestamp};
use sluice_store::{Agent, Key, KeyKind, NewKey, Observing, RotateKey, StoreError};

use super::reply::Reply;
use super::route::Visit;
use super::views::{AgentView, KeyView, ObservingView, Page, RoleWord};
use crate::keys::{KindWord, Token};
use crate::{Gateway, No};

/// How long the old key works on after a rotation, unless said otherwise.
const OVERLAP: u64 = 3600;
/// How long an agent is observed unless said otherwise, and at most, in seconds.
const OBSERVED: u64 = 24 * 3600;
const LONGEST_OBSERVED: u64 = 7 * 24 * 3600;
/// The longest a key can be made to work, in seconds: ten years. Whoever wants more does not name an end.
const LONGEST_LIFE: u64 = 3650 * 24 * 3600;

/// `GET /v1/agents`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let (agents, keys) = (visit.gw.store.agents().await?, visit.gw.store.keys().await?);
    let data = agents.iter().map(|agent| view(&visit.gw, agent, &keys)).collect();
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

fn view(gw: &Gateway, agent: &Agent, keys: &[Key]) -> AgentView {
    let works = |key: &&Key| {
        matches!(&key.kind, KeyKind::Agent(name) if *name == agent.name)
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
    }
}

/// The observe mode of an agent, while it lasts.
pub(super) fn observing(gw: &Gateway, agent: &AgentName) -> Option<ObservingView> {
    let mode = gw.keyring.observing(agent, gw.now())?;
    Some(ObservingView { agent: agent.to_string(), until: mode.until.to_string(), leaving: mode.leaving })
}

/// How long an agent is observed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observe {
    /// In seconds: a day if not given, at most a week.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Capabilities that leave the house and are included, by name.
    #[serde(default)]
    pub leaving: Vec<String>,
}

/// `POST /v1/agents/{name}/observe`.
pub(super) async fn observe(mut visit: Visit) -> Result<Reply, No> {
    let Observe { seconds, leaving } = visit.take()?;
    let seconds = seconds.unwrap_or(OBSERVED);
    if !(60..=LONGEST_OBSERVED).contains(&seconds) {
        return Err(No::saying(Code::DoorParameter, "an agent is observed for a minute to a week"));
    }
    if leaving.len() > 100 || leaving.iter().any(|name| CapabilityName::new(name.as_str()).is_err()) {
        return Err(No::saying(Code::DoorParameter, "`leaving` lists capabilities by their whole names"));
    }
    let name: AgentName = visit.part("name")?;
    let mode = Observing { until: visit.gw.now() + Span::from_secs(seconds), leaving };
    visit.gw.store.observe_agent(name.clone(), visit.actor()?, mode).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// `DELETE /v1/agents/{name}/observe`.
pub(super) async fn end_observing(visit: Visit) -> Result<Reply, No> {
    let name: AgentName = visit.part("name")?;
    visit.gw.store.end_observing(name.clone(), visit.actor()?).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// A new agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    /// Its name, also that of its policy file.
    #[schemars(with = "String")]
    pub name: AgentName,
    /// What it is for.
    #[serde(default)]
    pub note: String,
}

/// `POST /v1/agents`.
pub(super) async fn add(mut visit: Visit) -> Result<Reply, No> {
    let NewAgent { name, note } = visit.take()?;
    if note.chars().count() > 500 {
        return Err(No::saying(Code::DoorParameter, "a note has at most 500 characters"));
    }
    let added = visit.gw.store.add_agent(name.clone(), note, visit.actor()?).await;
    added.map_err(|error| match error {
        StoreError::Conflict | StoreError::Exists { .. } => No::new(Code::IdentityAgentExists),
        other => other.into(),
    })?;
    one(&visit.gw, &name, 201).await
}

/// `GET /v1/agents/{name}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    one(&visit.gw, &visit.part("name")?, 200).await
}

async fn one(gw: &Gateway, name: &AgentName, status: u16) -> Result<Reply, No> {
    gw.keyring.refresh(&gw.store).await?;
    gw.events.wrote();
    let (agents, keys) = (gw.store.agents().await?, gw.store.keys().await?);
    let agent = agents.iter().find(|agent| agent.name == *name);
    let agent = agent.ok_or_else(|| No::new(Code::IdentityUnknownAgent))?;
    Ok(Reply::json(status, &view(gw, agent, &keys)))
}

/// Why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Because {
    /// In the operator's words.
    #[serde(default)]
    pub reason: String,
}

/// `POST /v1/agents/{name}/pause`.
pub(super) async fn pause(mut visit: Visit) -> Result<Reply, No> {
    let Because { reason } = visit.take()?;
    if reason.chars().count() > 500 {
        return Err(No::saying(Code::DoorParameter, "a reason has at most 500 characters"));
    }
    let name: AgentName = visit.part("name")?;
    visit.gw.store.pause_agent(name.clone(), visit.actor()?, reason).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// `POST /v1/agents/{name}/resume`.
pub(super) async fn resume(visit: Visit) -> Result<Reply, No> {
    let name: AgentName = visit.part("name")?;
    visit.gw.store.resume_agent(name.clone(), visit.actor()?).await.map_err(unknown)?;
    one(&visit.gw, &name, 200).await
}

/// `DELETE /v1/agents/{name}`.
pub(super) async fn remove(visit: Visit) -> Result<Reply, No> {
    let name: AgentName = visit.part("name")?;
    let stopped = visit.gw.store.remove_agent(name, visit.actor()?).await.map_err(unknown)?;
    visit.gw.keyring.refresh(&visit.gw.store).await?;
    visit.gw.events.wrote();
    for hold in stopped {
        visit.gw.forget_window(hold);
        visit.gw.moved(hold);
    }
    Ok(Reply::nothing())
}

fn unknown(error: StoreError) -> No {
    match error {
        StoreError::NotFound { .. } => No::new(Code::IdentityUnknownAgent),
        other => other.into(),
    }
}

/// `GET /v1/keys`.
pub(super) async fn keys(visit: Visit) -> Result<Reply, No> {
    let data = visit.gw.store.keys().await?.iter().map(KeyView::from).collect();
    Ok(Reply::json(200, &Page::<KeyView> { data, next_cursor: None, has_more: false }))
}

/// A new credential.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKeyBody {
    /// For an agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// For a person.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub operator: Option<PersonName>,
    /// What that person may do.
    #[serde(default)]
    pub role: Option<RoleWord>,
    /// For something that passes on people's replies.
    #[serde(default)]
    pub inbox: Option<String>,
    /// What people call it.
    #[serde(default)]
    pub label: Option<String>,
    /// How long it works, in seconds; for ever if not given.
    #[serde(default)]
    pub ttl_s: Option<u64>,
}

/// `POST /v1/keys`.
pub(super) async fn issue(mut visit: Visit) -> Result<Reply, No> {
    let body: NewKeyBody = visit.take()?;
    let gw = &visit.gw;
    if body.label.as_ref().is_some_and(|label| label.chars().count() > 100) {
        return Err(No::saying(Code::DoorParameter, "a label has at most 100 characters"));
    }
    let (kind, word) = match (body.agent, body.operator, body.inbox) {
        (Some(agent), None, None) => (KeyKind::Agent(agent), KindWord::Agent),
        (None, Some(person), None) => {
            (KeyKind::Operator(person, body.role.unwrap_or(RoleWord::Viewer).into()), KindWord::Operator)
        }
        (None, None, Some(name)) if !name.is_empty() && name.len() <= 64 => (KeyKind::Inbox(name), KindWord::Inbox),
        _ => return Err(No::saying(Code::DoorParameter, "name exactly one of `agent`, `operator` and `inbox`")),
    };
    let token = Token::generate(word, gw.entropy.as_ref());
    let new = NewKey {
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

/// When a key ends that is to work so long.
fn end_of(gw: &Gateway, ttl_s: Option<u64>) -> Result<Option<Timestamp>, No> {
    match ttl_s {
        None => Ok(None),
        Some(ttl) if (1..=LONGEST_LIFE).contains(&ttl) => Ok(Some(gw.now() + Span::from_secs(ttl))),
        Some(_) => Err(No::saying(Code::DoorParameter, "a key works between a second and ten years, or for ever")),
    }
}

/// How a key is replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// How long the old one works on, in seconds; an hour if not given.
    #[serde(default)]
    pub overlap_s: Option<u64>,
    /// How long the new one works, in seconds; for ever if not given.
    #[serde(default)]
    pub ttl_s: Option<u64>,
}

/// `POST /v1/keys/{key_id}/rotate`.
pub(super) async fn rotate(mut visit: Visit) -> Result<Reply, No> {
    let Rotate { overlap_s, ttl_s } = visit.take()?;
    let gw = &visit.gw;
    let old: KeyId = visit.part("key_id")?;
    let keys = gw.store.keys().await?;
    let found = keys.iter().find(|key| key.id == old).ok_or_else(|| No::new(Code::StoreNotFound))?;
    let word = match found.kind {
        KeyKind::Agent(_) => KindWord::Agent,
        KeyKind::Operator(..) => KindWord::Operator,
        KeyKind::Inbox(_) => KindWord::Inbox,
    };
    let token = Token::generate(word, gw.entropy.as_ref());
    let rotate = RotateKey {
        old,
        new: KeyId::mint(gw.ids.as_ref()),
        hash: token.hash(),
        keep_old_until: gw.now() + Span::from_secs(overlap_s.unwrap_or(OVERLAP).min(LONGEST_LIFE)),
        expires_at: end_of(gw, ttl_s)?,
        by: visit.actor()?,
    };
    let key = gw.store.rotate_key(rotate).await?;
    shown_once(gw, &key, &token).await
}

async fn shown_once(gw: &Gateway, key: &Key, token: &Token) -> Result<Reply, No> {
    gw.keyring.refresh(&gw.store).await?;
    gw.events.wrote();
    let view = KeyView { token: Some(token.expose().to_owned()), ..KeyView::from(key) };
    Ok(Reply::json(201, &view))
}

/// `DELETE /v1/keys/{key_id}`.
pub(super) async fn revoke(visit: Visit) -> Result<Reply, No> {
    visit.gw.store.revoke_key(visit.part("key_id")?, visit.actor()?).await?;
    visit.gw.keyring.refresh(&visit.gw.store).await?;
    visit.gw.events.wrote();
    Ok(Reply::nothing())
}
