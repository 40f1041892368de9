//! Keeping house: heartbeats, expiry, retention, checkpoints, disk space, keys revoked elsewhere.
//!
//! Promise: a question whose time is up is a no within a second, what can no longer be undone is forgotten,
//! and every entry is under a signed checkpoint within five minutes or a thousand entries.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::Span;
use tokio::sync::watch;

use super::tick;
use crate::gateway::Room;
use crate::{Gateway, No};

const EVERY: Duration = Duration::from_secs(1);
const BEAT: u64 = 5;
const PRUNE: u64 = 60;
const PAGE: u32 = 200;

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut round = 0;
    let mut failing = false;
    while tick(&mut stop, EVERY, std::future::pending()).await {
        match step(&gw, round).await {
            Ok(()) => failing = false,
            Err(no) if failing => drop(no),
            Err(no) => {
                failing = true;
                tracing::error!(code = no.refusal.code().as_str(), "housekeeping failed: {}", no.refusal);
            }
        }
        round += 1;
    }
}

/// One second's housekeeping.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn step(gw: &Gateway, round: u64) -> Result<(), No> {
    gw.found_room(room_left(gw));
    gw.keyring.refresh(&gw.store).await?;
    if round.is_multiple_of(BEAT) {
        gw.store.beat().await?;
    }
    for approval in gw.store.expire_approvals(PAGE).await? {
        if let Some(card) = gw.store.approval(approval).await? {
            card.items.iter().for_each(|item| gw.moved(item.hold));
        }
    }
    if round.is_multiple_of(PRUNE) {
        for point in gw.store.expired_rollbacks(PAGE).await? {
            if let Ok(service) = gw.services.for_service(&point.service) {
                service.forget(&point.content).await;
            }
        }
        gw.store.expire_rollbacks(PAGE).await?;
        gw.store.prune(gw.now(), PAGE).await?;
    }
    Ok(())
}

/// How much room the disk of the data folder has.
fn room_left(gw: &Gateway) -> Room {
    let Ok(disk) = rustix::fs::statvfs(&gw.config.data) else { return Room::Enough };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let whole = disk.f_blocks.saturating_mul(disk.f_frsize).max(1);
    let limits = &gw.config.disk;
    if limits.stop.is_below(free, whole) {
        Room::None
    } else if limits.low.is_below(free, whole) {
        Room::Low
    } else {
        Room::Enough
    }
}

/// How long a checkpoint may be late.
pub const CHECKPOINT: Span = Span::from_mins(5);
