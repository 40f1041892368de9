//! Egress connections, for operators: their limits, their use, and resetting them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sluice_config::connection_shown;
use sluice_config::network::EgressConnection;
use sluice_core::ids::ConnectionName;
use sluice_core::refusal::Code;
use sluice_core::throttle::Breaker;
use sluice_gateway::Gateway;
use sluice_services::CallError;
use sluice_store::EgressState;

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// An egress connection and its state.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EgressConnectionView {
    /// The name of the connection.
    pub name: String,
    /// The circuit breaker: `closed` lets requests pass, `open` none, `half_open` one request.
    pub breaker: String,
    /// Consecutive refusals (429) by the server.
    pub refusals: u32,
    /// Until when no request passes.
    pub open_until: Option<String>,
    /// Requests in the last minute.
    pub used_minute: u64,
    /// Requests in the last hour.
    pub used_hour: u64,
    /// Requests since a person last reset the connection.
    pub burned: u64,
    /// What the connection allows.
    pub allows: Value,
}

async fn states(gw: &Gateway) -> Result<Vec<EgressState>, CallError> {
    Ok(gw.egress.states().await?)
}

fn view(gw: &Gateway, connection: &EgressConnection, states: &[EgressState]) -> EgressConnectionView {
    let state = states.iter().find(|state| state.connection == connection.name);
    let (used, breaker) = state.map(|state| (state.used, state.breaker)).unwrap_or_default();
    let Breaker { refusals, open_until, .. } = breaker;
    EgressConnectionView {
        name: connection.name.to_string(),
        breaker: breaker.word(&connection.breaker, gw.now()).into(),
        refusals,
        open_until: open_until.filter(|until| *until > gw.now()).map(|until| until.to_string()),
        used_minute: used.minute,
        used_hour: used.hour,
        burned: used.burned,
        allows: connection_shown(connection),
    }
}

/// `GET /v1/egress`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let states = states(&visit.gw).await?;
    let data = visit.gw.egress.connections().iter().map(|one| view(&visit.gw, one, &states)).collect();
    Ok(HttpReply::json(200, &ListPage::<EgressConnectionView> { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/egress/{name}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    one(&visit).await
}

/// `POST /v1/egress/{name}/reset`.
pub(super) async fn reset(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let name: ConnectionName = visit.path_param("name")?;
    let known = visit.gw.egress.connection(&name).ok_or_else(|| CallError::new(Code::StoreNotFound))?;
    visit.gw.egress.reset(&known.name, visit.actor()?).await?;
    visit.gw.signals.events.notify_written();
    one(&visit).await
}

async fn one(visit: &RoutedRequest) -> Result<HttpReply, CallError> {
    let name: ConnectionName = visit.path_param("name")?;
    let connection = visit.gw.egress.connection(&name).ok_or_else(|| CallError::new(Code::StoreNotFound))?;
    Ok(HttpReply::json(200, &view(&visit.gw, &connection, &states(&visit.gw).await?)))
}
