//! Mounts of a node follow changes on the other nodes of its database.
//!
//! Takes what other nodes report about their mounted servers and what the database says of accepted tools; reads this
//! node's own configuration again, or has a server checked again. Promise: another node can make this one check and
//! nothing more: only this node's own configuration declares what is mounted here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sluice_core::nodes::ServiceKind;
use sluice_core::{Actor, NodeName, ServiceName};
use sluice_store::PinnedTool;

use super::reload;
use crate::{CallError, Gateway, nodes};

/// What was last seen of the other nodes.
#[derive(Debug, Default)]
pub(super) struct MountFollowState {
    mounted: Mutex<BTreeMap<NodeName, BTreeSet<ServiceName>>>,
    pins: Mutex<BTreeMap<String, Vec<PinnedTool>>>,
}

/// Applies what other nodes changed since the last look. A node with its own database has nothing to follow.
///
/// # Errors
/// When the database cannot be read, or this node's configuration cannot be used.
pub async fn follow(gw: &Gateway) -> Result<(), CallError> {
    if !gw.store.is_shared() {
        return Ok(());
    }
    follow_acceptances(gw).await?;
    if mounted_elsewhere_changed(gw).await? {
        let done = reload(gw, Actor::Node(gw.store.node().clone())).await?;
        if !done.is_nothing() {
            tracing::info!("the mounts of sluice.yaml were applied, as on another node");
            nodes::report(gw).await?;
        }
    }
    Ok(())
}

/// Whether the mounts of another live node changed since it was last seen and differ from those of this node.
async fn mounted_elsewhere_changed(gw: &Gateway) -> Result<bool, CallError> {
    let seen = nodes::seen(gw, &gw.store).await?;
    let own: BTreeSet<ServiceName> = gw.mounts.services().into_iter().map(|(name, _)| name).collect();
    let mut mounted = gw.mounts.followed.mounted.lock().unwrap_or_else(PoisonError::into_inner);
    let mut changed = false;
    let others = seen.nodes.iter().filter(|(node, standing)| standing.is_live && node.name != *gw.store.node());
    for (node, _) in others {
        let services = node.report.services.iter().filter(|service| service.kind == ServiceKind::Mounted);
        let now: BTreeSet<ServiceName> = services.map(|service| service.name.clone()).collect();
        let is_other = now != own;
        let before = mounted.insert(node.name.clone(), now.clone());
        changed |= is_other && before.is_some_and(|before| before != now);
    }
    Ok(changed)
}

/// Has every server checked again of which another node accepted a tool or revoked an acceptance.
async fn follow_acceptances(gw: &Gateway) -> Result<(), CallError> {
    for service in gw.mounts.all() {
        let name = &service.mount().name;
        let now = gw.store.mount_tools(name).await?;
        let mut pins = gw.mounts.followed.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = pins.get(name) != Some(&now);
        if is_news && now != service.pins() {
            let _answered_later = service.checks.request();
        }
        if is_news {
            pins.insert(name.clone(), now);
        }
    }
    Ok(())
}
