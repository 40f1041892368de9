//! Recovery, for operators: how the database stands to what is remembered outside it, and an admin's decision.

use schemars::JsonSchema;
use serde::Deserialize;

use super::reply::Reply;
use super::route::Visit;
use crate::No;
use crate::recovery::decide::{self, RecoveryDecision};

/// An admin's decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryBody {
    /// Which it was.
    pub decision: RecoveryDecision,
}

/// `GET /v1/recovery`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &decide::view(&visit.gw).await?))
}

/// `POST /v1/recovery`.
pub(super) async fn decide(mut visit: Visit) -> Result<Reply, No> {
    let RecoveryBody { decision } = visit.take()?;
    decide::decide(&visit.gw, decision, visit.actor()?).await?;
    Ok(Reply::json(200, &decide::view(&visit.gw).await?))
}
