//! The clock, for operators: whether it is followed, and an admin's word that it is right.

use schemars::JsonSchema;
use serde::Serialize;

use super::reply::Reply;
use super::route::Visit;
use crate::{Gateway, No};

/// How the clock stands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ClockView {
    /// `followed` or `in_doubt`.
    pub standing: &'static str,
    /// The time the gateway goes by.
    pub now: String,
    /// What the clock of the machine says, where that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<String>,
    /// How far the two are apart, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart_ms: Option<u64>,
    /// How far the database is ahead of the time the gateway goes by, in milliseconds: it was written to by a clock that was
    /// ahead, and nothing happens earlier than it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_ahead_ms: Option<u64>,
    /// After a repair: open writes that were admitted by a clock that was ahead. Their times are as that clock gave them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_ahead: Option<u64>,
}

async fn view(gw: &Gateway, writes_ahead: Option<u64>) -> Result<ClockView, No> {
    let (now, doubt) = (gw.clock.now(), gw.clock.doubt());
    let ahead = gw.store.ahead_of(now).await?;
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
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &view(&visit.gw, None).await?))
}

/// `POST /v1/clock/repair`.
pub(super) async fn repair(visit: Visit) -> Result<Reply, No> {
    let by = visit.actor()?;
    let now = visit.gw.clock.trust_again();
    let repaired = visit.gw.store.repair_clock(now, by).await?;
    visit.gw.events.wrote();
    visit.gw.due.notify_one();
    Ok(Reply::json(200, &view(&visit.gw, Some(repaired.ahead)).await?))
}
