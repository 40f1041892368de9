//! Keeps the copies of connected services up to date.
//!
//! One round per connection every so often, and whenever someone wants it. Promise: one connection never waits for
//! another, none is copied twice at once, and none while a person has frozen its service.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::ServiceName;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::tick;
use crate::Gateway;
use crate::gateway::Phase;

/// How often it looks whether something is due.
const EVERY: Duration = Duration::from_millis(500);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut rounds = JoinSet::new();
    while tick(&mut stop, EVERY, gw.connections.woken()).await {
        while rounds.try_join_next().is_some() {}
        if gw.phase() != Phase::Open {
            continue;
        }
        let frozen = |service: &ServiceName| gw.standstill.names(service);
        for name in gw.connections.due(gw.config.services.sync_every, frozen) {
            let gw = Arc::clone(&gw);
            rounds.spawn(async move {
                let services = gw.connections.names_of(&name);
                let frozen = gw.standstill.until(|seen| services.iter().any(|service| seen.names(service)));
                gw.connections.keep_up(&name, frozen).await;
            });
        }
    }
    // A page that is on its way is given up: the next start goes on from the one before.
    rounds.shutdown().await;
}
