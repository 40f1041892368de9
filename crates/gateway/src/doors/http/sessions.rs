//! Sessions: issued by the gateway, so that nobody can borrow one.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::ids::SessionId;
use sluice_core::refusal::Code;
use sluice_core::{Actor, AgentName};
use sluice_store::{LONGEST_TASK, SessionFilter, StatedTask, StoreError, TaskSource};

use super::reply::Reply;
use super::route::Visit;
use super::views::{Page, SessionView};
use crate::rooms::identity::Visitor;
use crate::{Gateway, No};

/// A new session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// What the user asked for. Only with a task key or an operator token.
    #[serde(default)]
    pub task: Option<String>,
    /// Which program talks.
    #[serde(default)]
    pub client: Option<String>,
    /// For which agent. Only an operator names one; a key is bound to its own.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
}

/// What the user says, in a session that is open.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// The user's own words.
    pub task: String,
}

/// `POST /v1/sessions`.
pub(super) async fn open(mut visit: Visit) -> Result<Reply, No> {
    let NewSession { task, client, agent } = visit.take()?;
    let gw = &visit.gw;
    let visitor = visit.visitor()?;
    let agent = agent_of(gw, visitor, agent)?;
    if gw.keyring.is_paused(&agent) {
        return Err(No::new(Code::IdentityPaused));
    }
    if client.as_ref().is_some_and(|client| client.chars().count() > 100) {
        return Err(No::saying(Code::SchemaWrongType, "a client's name has at most 100 characters"));
    }
    let task = task.map(|text| stated(visitor, text)).transpose()?;
    let id = SessionId::mint(gw.ids.as_ref());
    gw.store.open_session(id, agent, client, task).await?;
    gw.events.wrote();
    let session = gw.store.session(id).await?.ok_or_else(|| No::new(Code::IdentitySession))?;
    Ok(Reply::json(201, &SessionView::from(&session)))
}

/// For which agent a session is opened: that of the key, or the one an operator names.
fn agent_of(gw: &Gateway, visitor: &Visitor, named: Option<AgentName>) -> Result<AgentName, No> {
    let Some(own) = visitor.agent().or_else(|| visitor.task_for()) else {
        let named = named.ok_or_else(|| No::saying(Code::SchemaMissingArgument, "name the `agent` of the session"))?;
        return if gw.keyring.knows(&named) { Ok(named) } else { Err(No::new(Code::IdentityUnknownAgent)) };
    };
    match named {
        Some(named) if named != *own => Err(No::saying(Code::IdentityNotAllowed, "this key is for another agent")),
        Some(_) | None => Ok(own.clone()),
    }
}

/// A task with who states it.
fn stated(visitor: &Visitor, text: String) -> Result<StatedTask, No> {
    if text.chars().count() > LONGEST_TASK {
        return Err(No::saying(Code::SchemaWrongType, "a task has at most 20000 characters"));
    }
    // SECURITY: a task decides what counts as asked for. An agent must not write its own.
    let by = match (visitor.task_for(), visitor.operator()) {
        (Some(_), _) => TaskSource::Key(visitor.key()),
        (None, Some((name, _))) => TaskSource::Operator(Actor::Operator(name.clone())),
        (None, None) => return Err(No::new(Code::IdentityTaskKey)),
    };
    Ok(StatedTask { text, by })
}

/// `POST /v1/sessions/{session_id}/task`.
pub(super) async fn state(mut visit: Visit) -> Result<Reply, No> {
    let Prompt { task } = visit.take()?;
    let id: SessionId = visit.part("session_id")?;
    let visitor = visit.visitor()?;
    let (agent, task) = (visitor.task_for().cloned(), stated(visitor, task)?);
    visit.gw.store.state_task(id, agent, task).await.map_err(|error| match error {
        StoreError::NotFound { .. } => No::new(Code::IdentitySession),
        other => other.into(),
    })?;
    visit.gw.events.wrote();
    let session = visit.gw.store.session(id).await?.ok_or_else(|| No::new(Code::IdentitySession))?;
    Ok(Reply::json(200, &SessionView::from(&session)))
}

/// `GET /v1/sessions`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let (limit, before) = (visit.limit()?, visit.asked("cursor")?);
    let wanted =
        SessionFilter { tainted: visit.asked::<bool>("tainted")?.unwrap_or(false), agent: visit.asked("agent")? };
    let found = visit.gw.store.sessions(wanted, before, limit.saturating_add(1)).await?;
    let has_more = found.len() > limit as usize;
    let data: Vec<SessionView> = found.iter().take(limit as usize).map(SessionView::from).collect();
    let next_cursor = has_more.then(|| data.last().map(|one| one.session_id.clone())).flatten();
    Ok(Reply::json(200, &Page { data, next_cursor, has_more }))
}

/// `GET /v1/sessions/{session_id}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let session = visit.gw.store.session(visit.part("session_id")?).await?;
    let agent = visit.visitor()?.agent();
    let own = session.filter(|session| agent.is_none_or(|agent| *agent == session.agent));
    Ok(Reply::json(200, &SessionView::from(&own.ok_or_else(|| No::new(Code::IdentitySession))?)))
}

/// `DELETE /v1/sessions/{session_id}`.
pub(super) async fn end(visit: Visit) -> Result<Reply, No> {
    let id: SessionId = visit.part("session_id")?;
    let session = visit.store.session(id).await?;
    let agent = visit.visitor()?.agent();
    let own = session.filter(|session| agent.is_none_or(|agent| *agent == session.agent));
    own.ok_or_else(|| No::new(Code::IdentitySession))?;
    visit.gw.store.end_session(id, visit.actor()?).await?;
    visit.gw.events.wrote();
    Ok(Reply::nothing())
}

/// `POST /v1/sessions/{session_id}/clear`: a person has looked, and lifts the taint.
pub(super) async fn clear(visit: Visit) -> Result<Reply, No> {
    let id: SessionId = visit.part("session_id")?;
    visit.gw.store.clear_taint(id, visit.actor()?).await?;
    visit.gw.events.wrote();
    let session = visit.gw.store.session(id).await?.ok_or_else(|| No::new(Code::IdentitySession))?;
    Ok(Reply::json(200, &SessionView::from(&session)))
}
