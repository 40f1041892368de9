//! Ways out, for operators: what they may, what they have used, and starting over.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sluice_core::ids::ConnectionName;
use sluice_core::refusal::Code;
use sluice_core::throttle::Breaker;
use sluice_store::EgressState;

use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::config::connection_shown;
use crate::egress::Connection;
use crate::{Gateway, No};

/// A way out and how it stands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConnectionView {
    /// Its name.
    pub name: String,
    /// `closed` lets requests pass, `open` none, `half_open` one request.
    pub breaker: String,
    /// Refusals (429) in a row.
    pub refusals: u32,
    /// Until when nothing passes.
    pub open_until: Option<String>,
    /// Requests in the last minute.
    pub used_minute: u64,
    /// Requests in the last hour.
    pub used_hour: u64,
    /// Requests since a person last looked.
    pub burned: u64,
    /// What it may.
    pub allows: Value,
}

async fn states(gw: &Gateway) -> Result<Vec<EgressState>, No> {
    Ok(gw.egress.states().await?)
}

fn view(gw: &Gateway, connection: &Connection, states: &[EgressState]) -> ConnectionView {
    let state = states.iter().find(|state| state.connection == connection.name);
    let (used, breaker) = state.map(|state| (state.used, state.breaker)).unwrap_or_default();
    let Breaker { refusals, open_until, .. } = breaker;
    ConnectionView {
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
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let states = states(&visit.gw).await?;
    let data = visit.gw.egress.connections().iter().map(|one| view(&visit.gw, one, &states)).collect();
    Ok(Reply::json(200, &Page::<ConnectionView> { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/egress/{name}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    one(&visit).await
}

/// `POST /v1/egress/{name}/reset`.
pub(super) async fn reset(visit: Visit) -> Result<Reply, No> {
    let name: ConnectionName = visit.part("name")?;
    let known = visit.gw.egress.connection(&name).ok_or_else(|| No::new(Code::StoreNotFound))?;
    visit.gw.egress.reset(&known.name, visit.actor()?).await?;
    visit.gw.events.wrote();
    one(&visit).await
}

async fn one(visit: &Visit) -> Result<Reply, No> {
    let name: ConnectionName = visit.part("name")?;
    let connection = visit.gw.egress.connection(&name).ok_or_else(|| No::new(Code::StoreNotFound))?;
    Ok(Reply::json(200, &view(&visit.gw, &connection, &states(&visit.gw).await?)))
}
