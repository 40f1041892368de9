//! Sessions: issued by the gateway, so that no agent can use the session of another.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::ids::SessionId;
use sluice_core::refusal::Code;
use sluice_core::{Actor, AgentName};
use sluice_gateway::Gateway;
use sluice_gateway::rooms::identity::Principal;
use sluice_services::CallError;
use sluice_store::{LONGEST_TASK, SessionFilter, StatedTask, StoreError, TaskSource};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{ListPage, SessionView};

/// A new session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSessionBody {
    /// What the user asked for. Only with a task key or an operator token.
    #[serde(default)]
    pub task: Option<String>,
    /// The name of the client program.
    #[serde(default)]
    pub client: Option<String>,
    /// The agent of the session. Only an operator names one; a key is bound to its own agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
}

/// A prompt of the user in an open session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionPromptBody {
    /// The user's own words.
    pub task: String,
}

/// `POST /v1/sessions`.
pub(super) async fn open(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let NewSessionBody { task, client, agent } = visit.parse_body()?;
    let gw = &visit.gw;
    let principal = visit.principal()?;
    let agent = agent_of(gw, principal, agent)?;
    if gw.keyring.is_paused(&agent) {
        return Err(CallError::new(Code::IdentityPaused));
    }
    if client.as_ref().is_some_and(|client| client.chars().count() > 100) {
        return Err(CallError::with_text(Code::SchemaWrongType, "a client's name has at most 100 characters"));
    }
    let task = task.map(|text| stated(principal, text)).transpose()?;
    let id = SessionId::mint(gw.ids.as_ref());
    gw.store.open_session(id, agent, client, task).await?;
    gw.signals.events.notify_written();
    let session = gw.store.session(id).await?.ok_or_else(|| CallError::new(Code::IdentitySession))?;
    Ok(HttpReply::json(201, &SessionView::from(&session)))
}

/// The agent for which a session is opened: that of the key, or the one that an operator names.
fn agent_of(gw: &Gateway, principal: &Principal, named: Option<AgentName>) -> Result<AgentName, CallError> {
    let Some(own) = principal.agent().or_else(|| principal.task_for()) else {
        let named = named
            .ok_or_else(|| CallError::with_text(Code::SchemaMissingArgument, "name the `agent` of the session"))?;
        return if gw.keyring.knows(&named) { Ok(named) } else { Err(CallError::new(Code::IdentityUnknownAgent)) };
    };
    match named {
        Some(named) if named != *own => {
            Err(CallError::with_text(Code::IdentityNotAllowed, "this key is for another agent"))
        }
        Some(_) | None => Ok(own.clone()),
    }
}

/// A task with the principal that stated it.
fn stated(principal: &Principal, text: String) -> Result<StatedTask, CallError> {
    if text.chars().count() > LONGEST_TASK {
        return Err(CallError::with_text(Code::SchemaWrongType, "a task has at most 20000 characters"));
    }
    // SECURITY: a task decides what counts as asked for. An agent must not write its own.
    let by = match (principal.task_for(), principal.operator()) {
        (Some(_), _) => TaskSource::Key(principal.key()),
        (None, Some((name, _))) => TaskSource::Operator(Actor::Operator(name.clone())),
        (None, None) => return Err(CallError::new(Code::IdentityTaskKey)),
    };
    Ok(StatedTask { text, by })
}

/// `POST /v1/sessions/{session_id}/task`.
pub(super) async fn state(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let SessionPromptBody { task } = visit.parse_body()?;
    let id: SessionId = visit.path_param("session_id")?;
    let principal = visit.principal()?;
    let (agent, task) = (principal.task_for().cloned(), stated(principal, task)?);
    visit.gw.store.state_task(id, agent, task).await.map_err(|error| match error {
        StoreError::NotFound { .. } => CallError::new(Code::IdentitySession),
        other => other.into(),
    })?;
    visit.gw.signals.events.notify_written();
    let session = visit.gw.store.session(id).await?.ok_or_else(|| CallError::new(Code::IdentitySession))?;
    Ok(HttpReply::json(200, &SessionView::from(&session)))
}

/// `GET /v1/sessions`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (limit, before) = (visit.limit()?, visit.query_param("cursor")?);
    let wanted = SessionFilter {
        tainted: visit.query_param::<bool>("tainted")?.unwrap_or(false),
        agent: visit.query_param("agent")?,
    };
    let found = visit.gw.store.sessions(wanted, before, limit.saturating_add(1)).await?;
    let has_more = found.len() > limit as usize;
    let data: Vec<SessionView> = found.iter().take(limit as usize).map(SessionView::from).collect();
    let next_cursor = has_more.then(|| data.last().map(|one| one.session_id.clone())).flatten();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor, has_more }))
}

/// `GET /v1/sessions/{session_id}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let session = visit.gw.store.session(visit.path_param("session_id")?).await?;
    let agent = visit.principal()?.agent();
    let own = session.filter(|session| agent.is_none_or(|agent| *agent == session.agent));
    Ok(HttpReply::json(200, &SessionView::from(&own.ok_or_else(|| CallError::new(Code::IdentitySession))?)))
}

/// `DELETE /v1/sessions/{session_id}`.
pub(super) async fn end(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let id: SessionId = visit.path_param("session_id")?;
    let session = visit.store.session(id).await?;
    let agent = visit.principal()?.agent();
    let own = session.filter(|session| agent.is_none_or(|agent| *agent == session.agent));
    own.ok_or_else(|| CallError::new(Code::IdentitySession))?;
    visit.gw.store.end_session(id, visit.actor()?).await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::nothing())
}

/// `POST /v1/sessions/{session_id}/clear`: lifts the taint after a person has checked the session.
pub(super) async fn clear(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let id: SessionId = visit.path_param("session_id")?;
    visit.gw.store.clear_taint(id, visit.actor()?).await?;
    visit.gw.signals.events.notify_written();
    let session = visit.gw.store.session(id).await?.ok_or_else(|| CallError::new(Code::IdentitySession))?;
    Ok(HttpReply::json(200, &SessionView::from(&session)))
}
