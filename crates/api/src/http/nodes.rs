//! Nodes, for operators: the gateways that share the database, their state, and where they differ.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::nodes::{KnownNode, NodeLiveness, NodePhase};
use sluice_gateway::{Gateway, nodes};
use sluice_services::CallError;
use sluice_store::Store;

use super::reply::HttpReply;
use super::route::RoutedRequest;

/// All nodes on the database.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodesView {
    /// Each node, by name.
    pub nodes: Vec<NodeView>,
    /// How live nodes differ now, as text. Empty if they agree.
    pub differences: Vec<String>,
}

/// One node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeView {
    /// The name of the node.
    pub name: String,
    /// Whether it is the node that answers this request.
    pub answers: bool,
    /// `starting`, `open`, `stopping`, `gone` if it was not seen for a minute, or `unknown` if only a newer release
    /// knows its state.
    pub state: &'static str,
    /// Its release.
    pub release: String,
    /// When it was started.
    pub started_at: String,
    /// When it last wrote to the database.
    pub last_seen: String,
    /// How long ago that was, in milliseconds, by the clock of the answering node.
    pub lag_ms: u64,
    /// The rules in force there.
    pub policy_version: String,
    /// The services of the node.
    pub services: Vec<NodeServiceView>,
    /// Since when the node does not trust the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspected_at: Option<String>,
}

/// A service of a node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeServiceView {
    /// The name of the service.
    pub name: String,
    /// `built_in`, `connected`, `mounted`, `custom` or `proxy`; `other` if only a newer release knows.
    pub kind: &'static str,
    /// Whether the node can carry out its writes now.
    pub ready: bool,
}

/// `GET /v1/nodes`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    Ok(HttpReply::json(200, &view(&visit.gw).await?))
}

async fn view(gw: &Gateway) -> Result<NodesView, CallError> {
    let seen = nodes::seen(gw, &gw.store).await?;
    Ok(NodesView {
        nodes: seen.nodes.iter().map(|(node, standing)| one(gw, node, *standing)).collect(),
        differences: seen.differences.into_iter().map(|one| one.text).collect(),
    })
}

/// How live nodes differ now, as text.
pub(super) async fn differences(gw: &Gateway, store: &Store) -> Result<Vec<String>, CallError> {
    if !store.is_shared() {
        return Ok(Vec::new());
    }
    Ok(nodes::seen(gw, store).await?.differences.into_iter().map(|one| one.text).collect())
}

fn one(gw: &Gateway, node: &KnownNode, standing: NodeLiveness) -> NodeView {
    let report = &node.report;
    NodeView {
        name: node.name.to_string(),
        answers: node.name == *gw.store.node(),
        state: match (standing.is_live, report.phase) {
            (true, phase) | (false, phase @ NodePhase::Stopping) => phase.as_str(),
            (false, _) => "gone",
        },
        release: report.release.clone(),
        started_at: node.started_at.to_string(),
        last_seen: node.alive_at.to_string(),
        lag_ms: standing.lag.as_millis(),
        policy_version: report.policy_version.clone(),
        services: report
            .services
            .iter()
            .map(|service| NodeServiceView {
                name: service.name.to_string(),
                kind: service.kind.as_str(),
                ready: service.ready,
            })
            .collect(),
        suspected_at: node.suspected_at.map(|at| at.to_string()),
    }
}
