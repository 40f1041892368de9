//! Watches: what an agent asked to be told of, fetched by number.
//!
//! One address for watches of folders and of shared values. Promise: an agent reads only its own, and hears of
//! nothing that the rules in force would not let it read unasked, nor of names that look like an attack.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use sluice_core::policy::Question;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, CallId, CapabilityName, Span, Tier};
use tokio::time::timeout;

use super::reply::Reply;
use super::route::Visit;
use crate::intake::Reader;
use crate::services::files::Changes;
use crate::services::state::KeyChanges;
use crate::{Gateway, No};

/// How often shared values are looked at: another node may have changed them.
const EVERY: Span = Span::from_millis(500);

/// What a watch saw.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Seen {
    /// Below a folder.
    Folder(Changes),
    /// Of shared values.
    Shared(KeyChanges),
}

/// `GET /v1/watches/{watch_id}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let (gw, agent) = (&visit.gw, asked(&visit)?);
    let id: String = visit.part("watch_id")?;
    let (after, wait) = (visit.asked::<u64>("after")?.unwrap_or(0), visit.wait()?);
    if let Some(files) = gw.services.files()
        && let Some(changes) = files.changes_within(agent, &id, after, wait).await
    {
        let changes = files.screen_changes(reader(gw, agent), changes).await?;
        return Ok(Reply::json(200, &Seen::Folder(changes)));
    }
    let began = gw.clock.since_boot();
    loop {
        let changes = shared(gw, agent, &id, after).await?.ok_or_else(|| No::new(Code::FilesNoWatch))?;
        let over = gw.clock.since_boot().as_millis().saturating_sub(began.as_millis()) >= wait.as_millis();
        if over || !changes.events.is_empty() || changes.overflow {
            return Ok(Reply::json(200, &Seen::Shared(changes)));
        }
        let _again = timeout(EVERY.as_duration(), std::future::pending::<()>()).await;
    }
}

/// `DELETE /v1/watches/{watch_id}`.
pub(super) async fn end(visit: Visit) -> Result<Reply, No> {
    let (gw, agent) = (&visit.gw, asked(&visit)?);
    let id: String = visit.part("watch_id")?;
    let ended = gw.services.files().is_some_and(|files| files.unwatch(agent, &id))
        || gw.services.state().is_some_and(|state| state.unwatch(agent, &id));
    if ended { Ok(Reply::nothing()) } else { Err(No::new(Code::FilesNoWatch)) }
}

fn asked(visit: &Visit) -> Result<&AgentName, No> {
    let agent = visit.visitor()?.agent().ok_or_else(|| No::new(Code::IdentityWrongKind))?;
    if visit.gw.keyring.is_paused(agent) { Err(No::new(Code::IdentityPaused)) } else { Ok(agent) }
}

/// Whoever fetches changes: a request of its own, outside any session.
fn reader(gw: &Gateway, agent: &AgentName) -> Reader {
    Reader { agent: agent.clone(), session: None, call: CallId::mint(gw.ids.as_ref()), notes: None }
}

/// What changed of shared values, without those the agent could not read unasked.
async fn shared(gw: &Gateway, agent: &AgentName, id: &str, after: u64) -> Result<Option<KeyChanges>, No> {
    let Some(state) = gw.services.state() else { return Ok(None) };
    let Some(mut changes) = state.changes(agent, id, after).await? else { return Ok(None) };
    let name = CapabilityName::new("state.shared.get").map_err(|_| No::new(Code::GatewayInternal))?;
    let policy = gw.policy.get();
    changes.events.retain(|change| {
        let arguments = Map::from_iter([("key".to_owned(), Value::String(change.key.clone()))]);
        policy.judge(&Question::new(agent, &name, &arguments, gw.now())).tier <= Tier::Notify
    });
    Ok(Some(state.screen_changes(&reader(gw, agent), gw.now(), changes).await?))
}
