//! Nodes, for operators: which gateways share the database, how they are, and where they differ.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::nodes::{KnownNode, NodePhase, NodeStanding};
use sluice_store::Store;

use super::reply::Reply;
use super::route::Visit;
use crate::{Gateway, No, nodes};

/// All nodes on the database.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodesView {
    /// Each node, by name.
    pub nodes: Vec<NodeView>,
    /// In what live nodes differ now, in words. Empty where they agree.
    pub differences: Vec<String>,
}

/// One node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Whether it is the one that answers.
    pub answers: bool,
    /// `starting`, `open`, `stopping`, `gone` if it was not seen for a minute, or `unknown` if only a newer release knows its state.
    pub state: &'static str,
    /// Its release.
    pub release: String,
    /// When it was started.
    pub started_at: String,
    /// When it last wrote to the database.
    pub last_seen: String,
    /// How long ago that was, in milliseconds, by the machine of the node that answers.
    pub lag_ms: u64,
    /// The rules in force there.
    pub policy_version: String,
    /// What stands behind the gate there.
    pub services: Vec<NodeServiceView>,
    /// Since when it does not trust the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspected_at: Option<String>,
}

/// A service of a node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeServiceView {
    /// Its name.
    pub name: String,
    /// `built_in`, `connected`, `mounted`, `custom` or `proxy`; `other` if only a newer release knows.
    pub kind: &'static str,
    /// Whether the node can carry out its writes now.
    pub ready: bool,
}

/// `GET /v1/nodes`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &view(&visit.gw).await?))
}

async fn view(gw: &Gateway) -> Result<NodesView, No> {
    let seen = nodes::seen(gw, &gw.store).await?;
    Ok(NodesView {
        nodes: seen.nodes.iter().map(|(node, standing)| one(gw, node, *standing)).collect(),
        differences: seen.differences.into_iter().map(|one| one.text).collect(),
    })
}

/// In what live nodes differ now, in words.
pub(super) async fn differences(gw: &Gateway, store: &Store) -> Result<Vec<String>, No> {
    if !store.is_shared() {
        return Ok(Vec::new());
    }
    Ok(nodes::seen(gw, store).await?.differences.into_iter().map(|one| one.text).collect())
}

fn one(gw: &Gateway, node: &KnownNode, standing: NodeStanding) -> NodeView {
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
