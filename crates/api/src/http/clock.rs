//! The clock, for operators: whether the gateway follows the machine's clock, and an admin's confirmation that it is
//! right.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_gateway::Gateway;
use sluice_services::CallError;

use super::reply::HttpReply;
use super::route::RoutedRequest;

/// The state of the clock.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ClockView {
    /// `followed` or `in_doubt`.
    pub standing: &'static str,
    /// The time that the gateway uses.
    pub now: String,
    /// The time of the machine's clock, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<String>,
    /// The difference between the two, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart_ms: Option<u64>,
    /// How far the database is ahead of the gateway's time, in milliseconds: it was written to by a clock that was
    /// ahead, and nothing is recorded with an earlier time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_ahead_ms: Option<u64>,
    /// After a repair: open writes that were admitted by a clock that was ahead. Their times are those of that clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_ahead: Option<u64>,
}

async fn view(gw: &Gateway, writes_ahead: Option<u64>) -> Result<ClockView, CallError> {
    let (now, doubt) = (gw.clock.now(), gw.clock.ignored_jump());
    let ahead = gw.store.time_ahead_of(now).await?;
    Ok(ClockView {
        standing: if doubt.is_some() { "in_doubt" } else { "followed" },
        now: now.to_string(),
        wall: doubt.map(|doubt| doubt.wall.to_string()),
        apart_ms: doubt.map(|doubt| doubt.by.as_millis()),
        database_ahead_ms: ahead.map(|ahead| ahead.as_millis()),
        writes_ahead,
    })
}

/// `GET /v1/clock`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    Ok(HttpReply::json(200, &view(&visit.gw, None).await?))
}

/// `POST /v1/clock/repair`.
pub(super) async fn repair(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let by = visit.actor()?;
    let now = visit.gw.clock.trust_again();
    let repaired = visit.gw.store.repair_clock(now, by).await?;
    visit.gw.signals.events.notify_written();
    visit.gw.due.notify_one();
    Ok(HttpReply::json(200, &view(&visit.gw, Some(repaired.ahead)).await?))
}
