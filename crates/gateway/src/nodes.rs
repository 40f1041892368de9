//! Nodes: what this gateway reports about itself, and what it sees of the other nodes on its database.
//!
//! Takes the services of this node and the database's reports of other nodes; gives a report, a list and, where live
//! nodes differ for more than a minute, an alert. Promise: a report is written only when it changes and holds
//! nothing secret; people are notified once of each difference, by the node that notices it first.

use std::collections::HashMap;

use parking_lot::Mutex;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::nodes::{
    self, KnownNode, NodeDifference, NodeLiveness, NodePhase, NodeReport, NodeService, NodeWatch,
};
use sluice_core::{Actor, Millis, ServiceName};
use sluice_services::{CallError, mounts};
use sluice_store::{MessageSeverity, OutboxMessage, Store};

use crate::Gateway;
use crate::gateway::GatewayPhase;

/// Nodes that were last seen longer ago are no longer listed.
const FORGOTTEN_AFTER: Millis = Millis::from_hours(30 * 24);
/// How often, at most, this node checks what the other nodes can carry out.
const LOOKED_EVERY: Millis = Millis::from_secs(5);
/// How long this node skips due writes of a service that it left to another node.
const LEFT_FOR: Millis = Millis::from_secs(1);

/// The state of this node's report and of its checks of the other nodes.
#[derive(Debug, Default)]
pub struct NodeReports {
    watch: Mutex<NodeWatch>,
    /// The report that was written last.
    reported: Mutex<Option<NodeReport>>,
    /// When the other nodes were last checked, in time since boot.
    looked_at: Mutex<Option<Millis>>,
    /// Services whose due writes were left to another node, and when, in time since boot.
    left: Mutex<HashMap<ServiceName, Millis>>,
}

impl NodeReports {
    /// Services whose due writes were left to another node a moment ago: they are skipped until `LEFT_FOR` has
    /// passed.
    pub(crate) fn recently_left_services(&self, boot: Millis) -> Vec<ServiceName> {
        let mut left = self.left.lock();
        left.retain(|_, at| boot.as_millis().saturating_sub(at.as_millis()) < LEFT_FOR.as_millis());
        left.keys().cloned().collect()
    }

    fn leave(&self, service: &ServiceName, boot: Millis) {
        self.left.lock().insert(service.clone(), boot);
    }
}

/// All nodes, as this node sees them.
#[derive(Debug)]
pub struct NodesOverview {
    /// Each node with its standing.
    pub nodes: Vec<(KnownNode, NodeLiveness)>,
    /// The current differences between live nodes.
    pub differences: Vec<NodeDifference>,
}

/// The current report of this node.
fn own_report(gw: &Gateway) -> NodeReport {
    NodeReport {
        release: gw.about.release.to_owned(),
        phase: match gw.phase() {
            GatewayPhase::Starting => NodePhase::Starting,
            GatewayPhase::Open => NodePhase::Open,
            GatewayPhase::Stopping => NodePhase::Stopping,
        },
        policy_version: gw.policy.get().version().to_owned(),
        services: own_services(gw),
        log_keys: gw.audit_keys.iter().map(|(log, key)| (log.clone(), key.to_string())).collect(),
    }
}

fn own_services(gw: &Gateway) -> Vec<NodeService> {
    let mut names = gw.services.names();
    names.sort();
    let known = |name: ServiceName| {
        let service = gw.services.for_service(&name).ok()?;
        Some(NodeService { kind: service.kind(), ready: service.is_ready(), name })
    };
    names.into_iter().filter_map(known).collect()
}

/// Writes the report of this node if it changed since it was last written.
///
/// # Errors
/// When the report cannot be written.
pub async fn report(gw: &Gateway) -> Result<(), CallError> {
    let now = own_report(gw);
    if gw.nodes.reported.lock().as_ref() == Some(&now) {
        return Ok(());
    }
    gw.store.report_node(now.clone()).await?;
    *gw.nodes.reported.lock() = Some(now);
    Ok(())
}

/// Reads all nodes and notes their standing.
///
/// # Errors
/// When the database cannot be read.
pub async fn seen(gw: &Gateway, store: &Store) -> Result<NodesOverview, CallError> {
    let (own, boot) = (gw.store.node(), gw.clock.since_boot());
    let known = store.known_nodes().await?;
    let mut watch = gw.nodes.watch.lock();
    let standing = watch.observe_nodes(own, &known, boot);
    let mut nodes: Vec<(KnownNode, NodeLiveness)> = known.into_iter().zip(standing).collect();
    nodes.retain(|(_, standing)| standing.lag <= FORGOTTEN_AFTER);
    let live: Vec<&KnownNode> = nodes.iter().filter(|(_, standing)| standing.is_live).map(|(node, _)| node).collect();
    watch.note_services(own, &live);
    let differences = nodes::differences(&live);
    drop(watch);
    Ok(NodesOverview { nodes, differences })
}

/// Checks the other nodes and notifies people, once, when live nodes differ for more than a minute, and again when the
/// difference is gone.
/// # Errors
/// When the database cannot be read or written.
pub async fn look(gw: &Gateway) -> Result<(), CallError> {
    if !gw.store.is_shared() {
        return Ok(());
    }
    let found = seen(gw, &gw.store).await?;
    let boot = gw.clock.since_boot();
    *gw.nodes.looked_at.lock() = Some(boot);
    let lasting = gw.nodes.watch.lock().track_lasting_differences(&found.differences, boot);
    let told = match lasting {
        None if gw.store.is_divergence_open().await? => {
            let text = "All live nodes have the same release, rules and services again.";
            gw.store.announce_agreement(message(gw, "nodes.agree", MessageSeverity::Info, text, &[])).await?
        }
        None => false,
        Some(lasting) if lasting.is_empty() => false,
        Some(lasting) => {
            let each: Vec<&str> = lasting.iter().map(|one| one.text.as_str()).collect();
            let text = format!(
                "Nodes on one database differ for over a minute. {}. Give them the same release, policy files and \
                 services; `sluice nodes list` shows each.",
                each.join(". ")
            );
            let kinds = lasting.iter().map(|one| one.kind).collect();
            let alert = message(gw, "nodes.diverge", MessageSeverity::Warning, &text, &lasting);
            gw.store.announce_divergence(kinds, alert).await?
        }
    };
    if told {
        gw.signals.events.notify_written();
        gw.signals.letters.notify_one();
    }
    Ok(())
}

/// Applies what other nodes changed about their mounts since the last look. A node with its own database has nothing to
/// follow.
///
/// # Errors
/// When the database cannot be read, or this node's configuration cannot be used.
pub async fn follow_mounts(gw: &Gateway) -> Result<(), CallError> {
    if !gw.store.is_shared() {
        return Ok(());
    }
    mounts::follow_acceptances(gw).await?;
    let seen = seen(gw, &gw.store).await?;
    let others = seen.nodes.iter().filter(|(node, standing)| standing.is_live && node.name != *gw.store.node());
    if mounts::mounted_elsewhere_changed(gw, others.map(|(node, _)| node)) {
        let done = mounts::reload(gw, Actor::Node(gw.store.node().clone())).await?;
        if !done.is_nothing() {
            tracing::info!("the mounts of sluice.yaml were applied, as on another node");
            report(gw).await?;
        }
    }
    Ok(())
}

fn message(
    gw: &Gateway,
    topic: &str,
    severity: MessageSeverity,
    text: &str,
    differences: &[NodeDifference],
) -> OutboxMessage {
    let each: Vec<&str> = differences.iter().map(|one| one.text.as_str()).collect();
    let body = serde_json::json!({"text": text, "differences": each});
    OutboxMessage { id: MessageId::mint(gw.ids.as_ref()), topic: topic.into(), severity, body }
}

/// Whether this node leaves a due write, or the lookup of its outcome, to another node: this node cannot do it now, and
/// another one can or may soon. A node with a database of its own leaves nothing to others.
///
/// # Errors
/// When the other nodes cannot be checked.
pub(crate) async fn leaves_to_others(gw: &Gateway, hold: &Hold) -> Result<bool, CallError> {
    // A write that its caller carries out needs no service here.
    if !gw.store.is_shared() || sluice_services::is_elsewhere(&hold.action) {
        return Ok(false);
    }
    let (service, boot) = (&hold.service, gw.clock.since_boot());
    if gw.services.for_service(service).is_ok_and(|service| service.is_ready()) {
        gw.nodes.watch.lock().clear_missing_service(service);
        return Ok(false);
    }
    let looked_at = *gw.nodes.looked_at.lock();
    let is_fresh = |at: Millis| boot.as_millis().saturating_sub(at.as_millis()) < LOOKED_EVERY.as_millis();
    if !looked_at.is_some_and(is_fresh) {
        seen(gw, &gw.store).await?;
        *gw.nodes.looked_at.lock() = Some(boot);
    }
    let waits = gw.nodes.watch.lock().track_missing_service(service, boot);
    if waits {
        gw.nodes.leave(service, boot);
    }
    Ok(waits)
}
