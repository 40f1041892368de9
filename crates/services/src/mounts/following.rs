//! Mounts of a node follow changes on the other nodes of its database.
//!
//! Takes what other nodes report about their mounted servers and what the database says of accepted tools; says
//! whether this node has to read its own configuration again, or has a server checked again. Promise: another node can make this one check and
//! nothing more: only this node's own configuration declares what is mounted here.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use sluice_core::nodes::{KnownNode, ServiceKind};
use sluice_core::{NodeName, ServiceName};
use sluice_store::PinnedTool;

use crate::{CallError, ServiceContext};

/// What was last seen of the other nodes.
#[derive(Debug, Default)]
pub(super) struct MountFollowState {
    mounted: Mutex<BTreeMap<NodeName, BTreeSet<ServiceName>>>,
    pins: Mutex<BTreeMap<String, Vec<PinnedTool>>>,
}

/// Whether the mounts of another live node changed since it was last seen and differ from those of this node.
pub fn mounted_elsewhere_changed<'n>(context: &ServiceContext, others: impl Iterator<Item = &'n KnownNode>) -> bool {
    let own: BTreeSet<ServiceName> = context.mounts.services().into_iter().map(|(name, _)| name).collect();
    let mut mounted = context.mounts.followed.mounted.lock();
    let mut changed = false;
    for node in others {
        let services = node.report.services.iter().filter(|service| service.kind == ServiceKind::Mounted);
        let now: BTreeSet<ServiceName> = services.map(|service| service.name.clone()).collect();
        let is_other = now != own;
        let before = mounted.insert(node.name.clone(), now.clone());
        changed |= is_other && before.is_some_and(|before| before != now);
    }
    changed
}

/// Has every server checked again of which another node accepted a tool or revoked an acceptance.
///
/// # Errors
/// When the database cannot be read.
pub async fn follow_acceptances(context: &ServiceContext) -> Result<(), CallError> {
    for service in context.mounts.all() {
        let name = &service.mount().name;
        let now = context.store.mount_tools(name).await?;
        let mut pins = context.mounts.followed.pins.lock();
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
