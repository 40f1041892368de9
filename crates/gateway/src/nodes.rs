//! Nodes: what this gateway says of itself, and what it sees of the others on its database.
//!
//! Takes what stands behind the gate here and what the database says of other nodes; gives a report, a list and, where live
//! nodes differ for more than a minute, an alert. Promise: a report is written when it changes and not otherwise, holds
//! nothing secret, and of each difference people are told once, by whichever node notices it first.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::nodes::{self, Difference, KnownNode, NodePhase, NodeReport, NodeService, NodeStanding, NodeWatch};
use sluice_core::{ServiceName, Span};
use sluice_store::{Message, Severity, Store};

use crate::gateway::Phase;
use crate::{Gateway, No, services};

/// Nodes that were last seen longer ago are no longer listed.
const FORGOTTEN_AFTER: Span = Span::from_hours(30 * 24);
/// How often the other nodes are looked at for what they can carry out, at most.
const LOOKED_EVERY: Span = Span::from_secs(5);
/// How long writes of a service that was left to another node are not looked for.
const LEFT_FOR: Span = Span::from_secs(1);

/// What is remembered of this node's report and of the others.
#[derive(Debug, Default)]
pub struct Nodes {
    watch: Mutex<NodeWatch>,
    /// What was written last.
    reported: Mutex<Option<NodeReport>>,
    /// When the others were last looked at, by the age of the machine.
    looked_at: Mutex<Option<Span>>,
    /// Services of which a due write was left to another node, and when, by the age of the machine.
    left: Mutex<HashMap<ServiceName, Span>>,
}

impl Nodes {
    /// Services of which a due write was left to another node a moment ago: their writes are not looked for until it passed.
    pub(crate) fn left_a_moment_ago(&self, boot: Span) -> Vec<ServiceName> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|_, at| boot.as_millis().saturating_sub(at.as_millis()) < LEFT_FOR.as_millis());
        left.keys().cloned().collect()
    }

    fn leave(&self, service: &ServiceName, boot: Span) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(service.clone(), boot);
    }
}

/// All nodes, as this one sees them.
#[derive(Debug)]
pub struct SeenNodes {
    /// Each with how it stands.
    pub nodes: Vec<(KnownNode, NodeStanding)>,
    /// In what those that are alive differ now.
    pub differences: Vec<Difference>,
}

/// What this node says of itself now.
fn own_report(gw: &Gateway) -> NodeReport {
    NodeReport {
        release: gw.about.release.to_owned(),
        phase: match gw.phase() {
            Phase::Starting => NodePhase::Starting,
            Phase::Open => NodePhase::Open,
            Phase::Stopping => NodePhase::Stopping,
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

/// Writes down what this node is and has, if that changed since it was last written.
///
/// # Errors
/// When it cannot be written.
pub async fn report(gw: &Gateway) -> Result<(), No> {
    let now = own_report(gw);
    if gw.nodes.reported.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(&now) {
        return Ok(());
    }
    gw.store.report_node(now.clone()).await?;
    *gw.nodes.reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    Ok(())
}

/// Reads all nodes and notes how they stand.
///
/// # Errors
/// When the database cannot be read.
pub async fn seen(gw: &Gateway, store: &Store) -> Result<SeenNodes, No> {
    let (own, boot) = (gw.store.node(), gw.clock.since_boot());
    let known = store.known_nodes().await?;
    let mut watch = gw.nodes.watch.lock().unwrap_or_else(PoisonError::into_inner);
    let standing = watch.look(own, &known, boot);
    let mut nodes: Vec<(KnownNode, NodeStanding)> = known.into_iter().zip(standing).collect();
    nodes.retain(|(_, standing)| standing.lag <= FORGOTTEN_AFTER);
    let live: Vec<&KnownNode> = nodes.iter().filter(|(_, standing)| standing.is_live).map(|(node, _)| node).collect();
    watch.note_services(own, &live);
    let differences = nodes::differences(&live);
    drop(watch);
    Ok(SeenNodes { nodes, differences })
}

/// Looks at the other nodes and tells people, once, that live ones differ for more than a minute; and that it is over.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn look(gw: &Gateway) -> Result<(), No> {
    if !gw.store.is_shared() {
        return Ok(());
    }
    let found = seen(gw, &gw.store).await?;
    let boot = gw.clock.since_boot();
    *gw.nodes.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(boot);
    let lasting = gw.nodes.watch.lock().unwrap_or_else(PoisonError::into_inner).lasting(&found.differences, boot);
    let told = match lasting {
        None if gw.store.is_divergence_open().await? => {
            let text = "All live nodes have the same release, rules and services again.";
            gw.store.nodes_agree(message(gw, "nodes.agree", Severity::Info, text, &[])).await?
        }
        None => false,
        Some(lasting) if lasting.is_empty() => false,
        Some(lasting) => {
            let each: Vec<&str> = lasting.iter().map(|one| one.text.as_str()).collect();
            let text = format!(
                "Nodes on one database differ for more than a minute. {}. Bring them to the same release, policy files and \
                 services; `sluice nodes list` shows each.",
                each.join(". ")
            );
            let kinds = lasting.iter().map(|one| one.kind).collect();
            let alert = message(gw, "nodes.diverge", Severity::Warning, &text, &lasting);
            gw.store.nodes_differ(kinds, alert).await?
        }
    };
    if told {
        gw.events.wrote();
        gw.letters.notify_one();
    }
    Ok(())
}

fn message(gw: &Gateway, topic: &str, severity: Severity, text: &str, differences: &[Difference]) -> Message {
    let each: Vec<&str> = differences.iter().map(|one| one.text.as_str()).collect();
    let body = serde_json::json!({"text": text, "differences": each});
    Message { id: MessageId::mint(gw.ids.as_ref()), topic: topic.into(), severity, body }
}

/// Whether a due write, or a look at what became of it, is left to another node: this one cannot do it now, and another one
/// can or may soon. On a database of its own a node leaves nothing.
///
/// # Errors
/// When the other nodes cannot be looked at.
pub(crate) async fn leaves_to_others(gw: &Gateway, hold: &Hold) -> Result<bool, No> {
    // What its caller carries out needs nothing here.
    if !gw.store.is_shared() || services::is_elsewhere(&hold.action) {
        return Ok(false);
    }
    let (service, boot) = (&hold.service, gw.clock.since_boot());
    if gw.services.for_service(service).is_ok_and(|service| service.is_ready()) {
        gw.nodes.watch.lock().unwrap_or_else(PoisonError::into_inner).has(service);
        return Ok(false);
    }
    let looked_at = *gw.nodes.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
    let is_fresh = |at: Span| boot.as_millis().saturating_sub(at.as_millis()) < LOOKED_EVERY.as_millis();
    if !looked_at.is_some_and(is_fresh) {
        seen(gw, &gw.store).await?;
        *gw.nodes.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(boot);
    }
    let waits = gw.nodes.watch.lock().unwrap_or_else(PoisonError::into_inner).waits_for_another(service, boot);
    if waits {
        gw.nodes.leave(service, boot);
    }
    Ok(waits)
}
