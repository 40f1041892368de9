//! Mounts of a node follow what happens on the other nodes of its database.
//!
//! Takes what other nodes say of their mounted servers and what the database says of accepted tools; reads this node's own
//! configuration again, or has a server looked at again. Promise: another node can make this one look and nothing more:
//! what is mounted here is what this node's own configuration declares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sluice_core::nodes::ServiceKind;
use sluice_core::{Actor, NodeName, ServiceName};
use sluice_store::PinnedTool;

use super::reload;
use crate::{Gateway, No, nodes};

/// What was seen of the other nodes last.
#[derive(Debug, Default)]
pub(super) struct Followed {
    mounted: Mutex<BTreeMap<NodeName, BTreeSet<ServiceName>>>,
    pins: Mutex<BTreeMap<String, Vec<PinnedTool>>>,
}

/// Takes up what other nodes changed since the last look. A database of its own is changed by nobody else.
///
/// # Errors
/// When the database cannot be read, or this node's configuration cannot be used.
pub async fn follow(gw: &Gateway) -> Result<(), No> {
    if !gw.store.is_shared() {
        return Ok(());
    }
    follow_acceptances(gw).await?;
    if mounted_elsewhere_changed(gw).await? {
        let done = reload(gw, Actor::Node(gw.store.node().clone())).await?;
        if !done.is_nothing() {
            tracing::info!("the mounts of sluice.yaml were taken up, as on another node");
            nodes::report(gw).await?;
        }
    }
    Ok(())
}

/// Whether another live node has other mounts than when it was last seen, and other ones than this node.
async fn mounted_elsewhere_changed(gw: &Gateway) -> Result<bool, No> {
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

/// Has every server looked at again of which a tool was accepted, or no longer is, on another node.
async fn follow_acceptances(gw: &Gateway) -> Result<(), No> {
    for service in gw.mounts.all() {
        let name = &service.mount().name;
        let now = gw.store.mount_tools(name).await?;
        let mut pins = gw.mounts.followed.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = pins.get(name) != Some(&now);
        if is_news && now != service.pins() {
            service.again.notify_one();
        }
        if is_news {
            pins.insert(name.clone(), now);
        }
    }
    Ok(())
}
