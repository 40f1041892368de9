//! Watches: changes that an agent asked to be notified of, fetched by number.
//!
//! One address for watches of folders and of shared values. Promise: an agent reads only its own watches, and sees
//! nothing that the rules in force would not let it read without approval, and no names that look like an attack.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use sluice_core::policy::PolicyInput;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, CallId, CapabilityName, Millis, Tier};
use sluice_gateway::Gateway;
use sluice_services::CallError;
use sluice_services::files::FileChanges;
use sluice_services::intake::ContentRecipient;
use sluice_services::state::StateKeyChanges;
use tokio::time::timeout;

use super::reply::HttpReply;
use super::route::RoutedRequest;

/// How often shared values are checked: another node may have changed them.
const EVERY: Millis = Millis::from_millis(500);

/// The changes that a watch saw.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum WatchChangesView {
    /// Changes below a folder.
    Folder(FileChanges),
    /// Changes of shared values.
    Shared(StateKeyChanges),
}

/// `GET /v1/watches/{watch_id}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, agent) = (&visit.gw, asked(&visit)?);
    let id: String = visit.path_param("watch_id")?;
    let (after, wait) = (visit.query_param::<u64>("after")?.unwrap_or(0), visit.wait()?);
    if let Some(files) = gw.services.files()
        && let Some(changes) = files.changes_within(agent, &id, after, wait).await
    {
        let changes = files.screen_changes(reader(gw, agent), changes).await?;
        return Ok(HttpReply::json(200, &WatchChangesView::Folder(changes)));
    }
    let began = gw.clock.since_boot();
    loop {
        let changes = shared(gw, agent, &id, after).await?.ok_or_else(|| CallError::new(Code::FilesNoWatch))?;
        let over = gw.clock.since_boot().as_millis().saturating_sub(began.as_millis()) >= wait.as_millis();
        if over || !changes.events.is_empty() || changes.overflow {
            return Ok(HttpReply::json(200, &WatchChangesView::Shared(changes)));
        }
        let _again = timeout(EVERY.as_duration(), std::future::pending::<()>()).await;
    }
}

/// `DELETE /v1/watches/{watch_id}`.
pub(super) async fn end(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, agent) = (&visit.gw, asked(&visit)?);
    let id: String = visit.path_param("watch_id")?;
    let ended = gw.services.files().is_some_and(|files| files.unwatch(agent, &id))
        || gw.services.state().is_some_and(|state| state.unwatch(agent, &id));
    if ended { Ok(HttpReply::nothing()) } else { Err(CallError::new(Code::FilesNoWatch)) }
}

fn asked(visit: &RoutedRequest) -> Result<&AgentName, CallError> {
    let agent = visit.principal()?.agent().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?;
    if visit.gw.keyring.is_paused(agent) { Err(CallError::new(Code::IdentityPaused)) } else { Ok(agent) }
}

/// The reader that fetches changes: it makes a request of its own, outside any session.
fn reader(gw: &Gateway, agent: &AgentName) -> ContentRecipient {
    ContentRecipient { agent: agent.clone(), session: None, call: CallId::mint(gw.ids.as_ref()), notes: None }
}

/// Changes of shared values, without those that the agent could not read without approval.
async fn shared(gw: &Gateway, agent: &AgentName, id: &str, after: u64) -> Result<Option<StateKeyChanges>, CallError> {
    let Some(state) = gw.services.state() else { return Ok(None) };
    let Some(mut changes) = state.changes(agent, id, after).await? else { return Ok(None) };
    let name = CapabilityName::new("state.shared.get").map_err(|_| CallError::new(Code::GatewayInternal))?;
    let policy = gw.policy.get();
    changes.events.retain(|change| {
        let arguments = Map::from_iter([("key".to_owned(), Value::String(change.key.clone()))]);
        policy.judge(&PolicyInput::new(agent, &name, &arguments, gw.now())).tier <= Tier::Notify
    });
    Ok(Some(state.screen_changes(&reader(gw, agent), gw.now(), changes).await?))
}
