//! Keeps the copies of connected services up to date, and takes up what other nodes did about services.
//!
//! One round per connection every so often, and whenever someone wants it. Promise: one connection never waits for
//! another, none is copied twice at once, none while a person has frozen its service,
//! and what another node connected, ended or mounted is noticed within seconds.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{ServiceName, Span};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::tick;
use crate::gateway::Phase;
use crate::{Gateway, mounts};

/// How often it looks whether something is due.
const EVERY: Duration = Duration::from_millis(500);
/// How often it looks what other nodes connected and ended, and what they mounted.
const FOLLOWED_EVERY: Span = Span::from_secs(1);
const MOUNTS_FOLLOWED_EVERY: Span = Span::from_secs(5);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut rounds = JoinSet::new();
    let (mut followed, mut mounts_followed) = (gw.clock.since_boot(), gw.clock.since_boot());
    while tick(&mut stop, EVERY, gw.connections.woken()).await {
        while rounds.try_join_next().is_some() {}
        if gw.phase() != Phase::Open {
            continue;
        }
        if gw.store.is_shared() && is_due(&gw, &mut followed, FOLLOWED_EVERY) {
            rounds.spawn(follow_connections(Arc::clone(&gw)));
        }
        if gw.store.is_shared() && is_due(&gw, &mut mounts_followed, MOUNTS_FOLLOWED_EVERY) {
            rounds.spawn(follow_mounts(Arc::clone(&gw)));
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

/// Whether it is time again, by the age of the machine.
fn is_due(gw: &Gateway, last: &mut Span, every: Span) -> bool {
    let now = gw.clock.since_boot();
    let due = now.as_millis().saturating_sub(last.as_millis()) >= every.as_millis();
    if due {
        *last = now;
    }
    due
}

// That the database cannot be read is said by housekeeping, once.
async fn follow_connections(gw: Arc<Gateway>) {
    if let Err(no) = gw.connections.follow().await {
        tracing::debug!("connections of other nodes cannot be looked at: {}", no.refusal);
    }
}

async fn follow_mounts(gw: Arc<Gateway>) {
    if let Err(no) = mounts::follow(&gw).await {
        tracing::warn!("the mounts stay as they are: {}", no.refusal);
    }
}
