//! Keeping house: heartbeats, expiry, retention, checkpoints, disk space, keys revoked elsewhere.
//!
//! Promise: a question whose time is up is a no within a second, what can no longer be undone is forgotten,
//! every entry is under a signed
//! checkpoint within five minutes or a thousand entries, a credential that is old enough is asked for anew, and a
//! gateway whose file can no longer be believed ends.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::NodeName;
use sluice_core::recovery::{Finding, FindingKind};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::RollbackState;
use sluice_store::StoreError;
use tokio::sync::watch;

use super::tick;
use crate::gateway::{Lost, Room};
use crate::proxies::rotation;
use crate::{Gateway, No, recovery};

const EVERY: Duration = Duration::from_secs(1);
const BEAT: u64 = 5;
const PRUNE: u64 = 60;
const SIGN: u64 = 300;
const SWEEP: u64 = 3_600;
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
    let beat = if round.is_multiple_of(BEAT) { gw.store.beat().await } else { Ok(()) };
    if let Err(StoreError::Damaged { .. }) = &beat {
        gw.give_up(Lost::Record);
    }
    gw.keyring.refresh(&gw.store).await?;
    gw.egress.refresh().await?;
    beat?;
    for approval in gw.store.expire_approvals(PAGE).await? {
        gw.asked(approval);
        if let Some(card) = gw.store.approval(approval).await? {
            card.items.iter().for_each(|item| gw.moved(item.hold));
        }
    }
    // A thousand entries, or five minutes, whichever comes first.
    checkpoint(gw, if round.is_multiple_of(SIGN) { 1 } else { 1_000 }).await?;
    if round.is_multiple_of(PRUNE) {
        for point in gw.store.expire_rollbacks(PAGE).await? {
            let hold = gw.store.hold(point.hold).await?;
            if let Some(service) = hold.and_then(|hold| gw.services.for_service(&hold.service).ok()) {
                service.forget(&point.content).await;
            }
        }
        gw.store.prune(gw.now(), PAGE).await?;
        gw.store.sweep_secrets().await?;
    }
    if round.is_multiple_of(SWEEP) {
        sweep(gw).await?;
        rotation::ask(gw).await?;
    }
    Ok(())
}

/// Removes old contents that nobody can go back to any more: what was left when the gateway died between writing
/// that down and removing them.
///
/// # Errors
/// When the database cannot be read.
pub async fn sweep(gw: &Gateway) -> Result<(), No> {
    let Some(files) = gw.services.files() else { return Ok(()) };
    for hold in files.kept().await {
        let over = match gw.store.rollback_of(hold).await? {
            Some(point) => match point.state {
                RollbackState::Captured { .. } | RollbackState::Sealed { .. } => false,
                RollbackState::Undone { .. } | RollbackState::Expired { .. } | RollbackState::Abandoned { .. } => true,
            },
            // A write that is still on its way may have kept something before its point is on record.
            None => gw.store.hold(hold).await?.is_none_or(|hold| hold.state.is_final()),
        };
        if over {
            files.sweep(hold).await;
        }
    }
    Ok(())
}

/// How much room the disk of the data folder has.
fn room_left(gw: &Gateway) -> Room {
    let Ok(disk) = rustix::fs::statvfs(&gw.config.data) else { return Room::Enough };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let whole = disk.f_blocks.saturating_mul(disk.f_frsize).max(1);
    let limits = &gw.config.disk;
    if limits.stop.undercut(free, whole) {
        Room::None
    } else if limits.low.undercut(free, whole) {
        Room::Low
    } else {
        Room::Enough
    }
}

/// Signs the ends of this node's logs, where they have grown enough. A record that cannot be signed any more freezes
/// everything: it is not what was signed before.
///
/// # Errors
/// When the record cannot be read or a checkpoint not kept.
pub async fn checkpoint(gw: &Gateway, at_least: u64) -> Result<bool, No> {
    if gw.recovery.is_suspected() {
        return Ok(false);
    }
    match sign(gw, at_least).await {
        Ok(signed) => Ok(signed),
        Err(Unsigned::No(no)) => Err(no),
        Err(Unsigned::Finding(finding)) => {
            // SECURITY: a signer that refuses has seen a record that does not grow out of the last one.
            let text = finding.to_string();
            recovery::suspect(gw, vec![finding]).await?;
            Err(No::from(Refusal::new(Code::StoreDamaged).with_text(&text)))
        }
    }
}

/// Why nothing was signed.
enum Unsigned {
    No(No),
    Finding(Finding),
}

impl From<No> for Unsigned {
    fn from(no: No) -> Self {
        Self::No(no)
    }
}

/// What a fault of the store means for a log that was about to be signed.
fn unsigned(log: &NodeName) -> impl Fn(StoreError) -> Unsigned {
    move |error| match error {
        StoreError::Damaged { .. } | StoreError::Impossible { .. } => {
            Unsigned::Finding(Finding::new(FindingKind::RecordDamaged, &error, "-").of(log))
        }
        other => Unsigned::No(other.into()),
    }
}

async fn sign(gw: &Gateway, at_least: u64) -> Result<bool, Unsigned> {
    let mut signers = gw.signers.lock().await;
    let mut signed_any = false;
    for (log, signer) in signers.iter_mut() {
        let signed = gw.store.last_checkpoint(log.clone()).await.map_err(unsigned(log))?.map_or(0, |last| last.size);
        let logs = gw.store.logs().await.map_err(unsigned(log))?;
        let size = logs.into_iter().find(|(name, _)| name == log).map_or(0, |(_, head)| head.size);
        // A log that is now shorter than what was signed is not one that has not grown.
        if size >= signer.last().tree.size && size.saturating_sub(signed) < at_least.max(1) {
            continue;
        }
        let grown = gw.store.grown_log(log.clone()).await.map_err(unsigned(log))?;
        let size = grown.growth.head.size;
        let refused = |error| Unsigned::Finding(Finding::new(FindingKind::SigningRefused, error, "-").of(log));
        let note = signer.sign(&grown.growth).map_err(refused)?;
        gw.store.checkpointed(grown, note.clone()).await.map_err(|error| Unsigned::No(error.into()))?;
        recovery::signed(gw, log, size, &note).await?;
        signed_any = true;
    }
    Ok(signed_any)
}
