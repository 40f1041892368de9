//! Sessions: issued by the gateway, so that nobody can borrow one.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::ids::SessionId;
use sluice_core::refusal::Code;
use sluice_store::SessionFilter;

use super::reply::Reply;
use super::route::Visit;
use super::views::{Page, SessionView};
use crate::No;

/// The longest task, in characters.
const LONGEST_TASK: usize = 20_000;

/// A new session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// What the user asked for, if this client is trusted to say so.
    #[serde(default)]
    pub task: Option<String>,
    /// Which program talks.
    #[serde(default)]
    pub client: Option<String>,
}

/// `POST /v1/sessions`.
pub(super) async fn open(mut visit: Visit) -> Result<Reply, No> {
    let NewSession { task, client } = visit.take()?;
    let agent = visit.visitor()?.agent().ok_or_else(|| No::new(Code::IdentityWrongKind))?.clone();
    let gw = &visit.gw;
    if gw.keyring.is_paused(&agent) {
        return Err(No::new(Code::IdentityPaused));
    }
    if client.as_ref().is_some_and(|client| client.chars().count() > 100) {
        return Err(No::saying(Code::SchemaWrongType, "a client's name has at most 100 characters"));
    }
    if task.as_ref().is_some_and(|task| task.chars().count() > LONGEST_TASK) {
        return Err(No::saying(Code::SchemaWrongType, "a task has at most 20000 characters"));
    }
    // SECURITY: a task decides what counts as asked for. An agent must not write its own.
    if task.is_some() && !gw.config.sessions.task_from.contains(&agent) {
        let text = "this agent's client is not trusted to state the user's task (sessions.task_from)";
        return Err(No::saying(Code::IdentityNotAllowed, text));
    }
    let id = SessionId::mint(gw.ids.as_ref());
    gw.store.open_session(id, agent, client, task).await?;
    gw.events.wrote();
    let session = gw.store.session(id).await?.ok_or_else(|| No::new(Code::IdentitySession))?;
    Ok(Reply::json(201, &SessionView::from(&session)))
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
