//! Sync: keeps the replicas of connected services up to date, and takes up changes that other nodes made to services.
//!
//! One round per connection at intervals, and on request. Promise: one connection never waits for another, no replica
//! is updated twice at once, none is updated while a person has frozen its service, and a service that another node
//! connected, disconnected or mounted is noticed within seconds.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Millis, ServiceName};
use sluice_services::timer::tick;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gateway::GatewayPhase;
use crate::{Gateway, nodes};

/// How often the loop checks whether something is due.
const EVERY: Duration = Duration::from_millis(500);
/// How often the loop checks what other nodes connected, disconnected and mounted.
const FOLLOWED_EVERY: Millis = Millis::from_secs(1);
const MOUNTS_FOLLOWED_EVERY: Millis = Millis::from_secs(5);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut rounds = JoinSet::new();
    let (mut followed, mut mounts_followed) = (gw.clock.since_boot(), gw.clock.since_boot());
    while tick(&mut stop, EVERY, gw.connections.wait_for_wake()).await {
        while rounds.try_join_next().is_some() {}
        if gw.phase() != GatewayPhase::Open {
            continue;
        }
        if gw.store.is_shared() && is_due(&gw, &mut followed, FOLLOWED_EVERY) {
            rounds.spawn(follow_connections(Arc::clone(&gw)));
        }
        if gw.store.is_shared() && is_due(&gw, &mut mounts_followed, MOUNTS_FOLLOWED_EVERY) {
            rounds.spawn(follow_mounts(Arc::clone(&gw)));
        }
        let frozen = |service: &ServiceName| gw.standstill.is_service_frozen(service);
        for name in gw.connections.due(gw.config.services.sync_every, frozen) {
            let gw = Arc::clone(&gw);
            rounds.spawn(async move {
                let services = gw.connections.names_of(&name);
                let frozen =
                    gw.standstill.wait_until(|seen| services.iter().any(|service| seen.is_service_frozen(service)));
                gw.connections.keep_up(&name, frozen).await;
            });
        }
    }
    // A page that is under way is dropped: the next start continues from the one before.
    rounds.shutdown().await;
}

/// Whether an interval has passed, by the age of the machine.
fn is_due(gw: &Gateway, last: &mut Millis, every: Millis) -> bool {
    let now = gw.clock.since_boot();
    let due = now.as_millis().saturating_sub(last.as_millis()) >= every.as_millis();
    if due {
        *last = now;
    }
    due
}

// Housekeeping reports once that the database cannot be read.
async fn follow_connections(gw: Arc<Gateway>) {
    if let Err(no) = gw.connections.follow().await {
        tracing::debug!("connections of other nodes cannot be read: {}", no.refusal);
    }
}

async fn follow_mounts(gw: Arc<Gateway>) {
    if let Err(no) = nodes::follow_mounts(&gw).await {
        tracing::warn!("the mounts stay as they are: {}", no.refusal);
    }
}
