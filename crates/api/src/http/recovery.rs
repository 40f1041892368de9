//! Recovery, for operators: how the database compares with the state kept outside it, and an admin's decision.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_gateway::recovery::decide::{self, RecoveryDecision};
use sluice_services::CallError;

use super::reply::HttpReply;
use super::route::RoutedRequest;

/// An admin's decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryBody {
    /// What happened to the database.
    pub decision: RecoveryDecision,
}

/// `GET /v1/recovery`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    Ok(HttpReply::json(200, &decide::view(&visit.gw).await?))
}

/// `POST /v1/recovery`.
pub(super) async fn decide(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let RecoveryBody { decision } = visit.parse_body()?;
    decide::decide(&visit.gw, decision, visit.actor()?).await?;
    Ok(HttpReply::json(200, &decide::view(&visit.gw).await?))
}
