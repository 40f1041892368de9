//! Housekeeping: heartbeats, expiry, retention, checkpoints, disk space, keys revoked on other nodes.
//!
//! Promise: an approval whose time is up is denied within a second; data that can no longer be undone is deleted as
//! fast as it arrives, and never while the clock is uncertain; every entry is under a signed checkpoint within five
//! minutes or a thousand entries; a credential that is old enough is renewed; and a gateway ends when its database file
//! can no longer be trusted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_config::Retention;
use sluice_core::audit::checkpoint::CheckpointSigner;
use sluice_core::ids::MessageId;
use sluice_core::recovery::{RecoveryFinding, RecoveryFindingKind};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::RollbackState;
use sluice_core::{Actor, NodeName};
use sluice_services::CallError;
use sluice_services::proxies::rotation;
use sluice_services::timer::tick;
use sluice_store::{MessageSeverity, OutboxMessage, RetentionPeriods, StoreError};
use tokio::sync::watch;

use super::health_watch;
use crate::gateway::{DiskSpace, FatalGatewayError};
use crate::rooms::client_writes;
use crate::{Gateway, nodes, recovery};

const EVERY: Duration = Duration::from_secs(1);
const BEAT: u64 = 5;
const PRUNE: u64 = 60;
const WATCH: u64 = 60;
const SIGN: u64 = 300;
const SWEEP: u64 = 3_600;
const PAGE: u32 = 200;
/// Rows of each kind in one transaction of retention, and transactions in one second: together more than any load
/// creates in a second, and each short enough not to delay other writers.
const PRUNE_PAGE: u32 = 500;
const PRUNES: usize = 20;
/// Pages of rollback points and of kept files that end in one second. Each of them may have files to delete, which
/// must not delay what else happens every second.
const UNDO_PAGES: usize = 5;
/// Old writes that are looked at in one transaction of retention.
const OLD_PAGE: u32 = 500;

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
    // So that the other nodes do not have to wait until this one counts as gone.
    if let Err(no) = nodes::report(&gw).await {
        tracing::warn!(code = no.refusal.code().as_str(), "the stop of this node could not be recorded");
    }
}

/// One second's housekeeping.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn step(gw: &Gateway, round: u64) -> Result<(), CallError> {
    gw.set_disk_space(room_left(gw));
    let beat = if round.is_multiple_of(BEAT) { gw.store.record_heartbeat().await } else { Ok(()) };
    match &beat {
        Err(StoreError::Damaged { .. }) => gw.give_up(FatalGatewayError::Record),
        Err(StoreError::Removed) => gw.give_up(FatalGatewayError::Removed),
        Ok(()) | Err(_) => {}
    }
    gw.keyring.refresh(&gw.store).await?;
    gw.egress.refresh().await?;
    beat?;
    for approval in gw.store.expire_approvals(PAGE).await? {
        gw.notify_approval_changed(approval);
        if let Some(card) = gw.store.approval(approval).await? {
            card.items.iter().for_each(|item| gw.notify_hold_changed(item.hold));
        }
    }
    // After a thousand entries or five minutes, whichever comes first.
    checkpoint(gw, if round.is_multiple_of(SIGN) { 1 } else { 1_000 }).await?;
    watch_clock(gw).await?;
    if round.is_multiple_of(WATCH) {
        health_watch::look(gw).await?;
    }
    // What ends with the time is not ended while the clock is uncertain.
    let is_sure = gw.clock.ignored_jump().is_none();
    if is_sure {
        forget(gw, round.is_multiple_of(PRUNE)).await?;
    }
    if is_sure && round.is_multiple_of(PRUNE) {
        gw.store.sweep_secrets().await?;
    }
    if round.is_multiple_of(SWEEP) {
        sweep(gw).await?;
        rotation::ask(gw).await?;
    }
    // Last, so that nothing about other nodes keeps this one from its own work.
    if round.is_multiple_of(BEAT) {
        nodes::report(gw).await?;
        nodes::look(gw).await?;
    }
    Ok(())
}

/// Deletes what is over, in short transactions, until nothing is left or this second's share is used up. It starts once
/// a minute, and continues every second while there is more.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn forget(gw: &Gateway, begins: bool) -> Result<(), CallError> {
    let mut state = *gw.retention.lock();
    if begins {
        state.rows = true;
        state.points = true;
        state.client_writes = true;
        state.writes.get_or_insert_default();
    }
    let Retention { writes, sessions, proxy_tasks, policies, audit: _ } = &gw.config.retention;
    let periods = RetentionPeriods { writes: *writes, sessions: *sessions, proxy_tasks: *proxy_tasks };
    if begins {
        gw.store.forget_policies(gw.now(), *policies, PRUNE_PAGE).await?;
    }
    for _ in 0..UNDO_PAGES {
        state.points = state.points && expire_rollback_points(gw).await?;
        state.client_writes = state.client_writes && client_writes::expire(gw, PAGE).await?;
    }
    for _ in 0..PRUNES {
        if state.rows {
            state.rows = gw.store.prune(gw.now(), PRUNE_PAGE).await? >= u64::from(PRUNE_PAGE);
        }
        if let Some(from) = state.writes {
            state.writes = gw.store.delete_expired(gw.now(), &periods, (from, OLD_PAGE)).await?.next;
        }
    }
    *gw.retention.lock() = state;
    Ok(())
}

/// Ends one page of rollback points whose time is up, and deletes what was kept for them. Returns whether there may be
/// more.
async fn expire_rollback_points(gw: &Gateway) -> Result<bool, CallError> {
    let points = gw.store.expire_rollbacks(PAGE).await?;
    let is_full = points.len() >= PAGE as usize;
    for point in points {
        let hold = gw.store.hold(point.hold).await?;
        if let Some(service) = hold.and_then(|hold| gw.services.for_service(&hold.service).ok()) {
            service.discard_undo_data(&point.content).await;
        }
    }
    Ok(is_full)
}

/// Alerts people once when the clock jumps further than the gateway follows, and when the database has seen a later
/// time than the current one.
async fn watch_clock(gw: &Gateway) -> Result<(), CallError> {
    let doubt = gw.clock.ignored_jump();
    let before = gw.clock_told.swap(doubt.is_some(), Ordering::SeqCst);
    let Some(doubt) = doubt.filter(|_| !before) else { return Ok(()) };
    let (by, wall) = (doubt.by, doubt.wall);
    let way = if doubt.forward { "ahead" } else { "back" };
    tracing::error!("the clock jumped {way} by {by} and the gateway does not follow it; see sluice clock");
    let body = serde_json::json!({
        "text": format!("The clock of this machine jumped {way} by {by}, to {wall}. The gateway counts the time that \
            really passed, and keeps all data meanwhile. If the clock is wrong, correct it. If it is correct now, an \
            admin runs `sluice clock repair`."),
    });
    let id = MessageId::mint(gw.ids.as_ref());
    let message = OutboxMessage { id, topic: "clock.jumped".into(), severity: MessageSeverity::Critical, body };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    gw.signals.letters.notify_one();
    Ok(())
}

/// Removes old contents that nobody can roll back to any more: those that were left when the gateway was killed between
/// recording the removal and doing it.
///
/// # Errors
/// When the database cannot be read.
pub async fn sweep(gw: &Gateway) -> Result<(), CallError> {
    client_writes::sweep(gw).await?;
    let Some(files) = gw.services.files() else { return Ok(()) };
    for hold in files.kept().await {
        let over = match gw.store.hold_rollback(hold).await? {
            Some(point) => match point.state {
                RollbackState::Captured { .. } | RollbackState::Sealed { .. } => false,
                RollbackState::Undone { .. } | RollbackState::Expired { .. } | RollbackState::Abandoned { .. } => true,
            },
            // A write that is still under way may have stored contents before its rollback point is recorded.
            None => gw.store.hold(hold).await?.is_none_or(|hold| hold.state.is_final()),
        };
        if over {
            files.sweep(hold).await;
        }
    }
    Ok(())
}

/// How much free space the disk of the data folder has.
fn room_left(gw: &Gateway) -> DiskSpace {
    let Ok(disk) = rustix::fs::statvfs(&gw.config.data) else { return DiskSpace::Enough };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let whole = disk.f_blocks.saturating_mul(disk.f_frsize).max(1);
    let limits = &gw.config.disk;
    if limits.stop.undercut(free, whole) {
        DiskSpace::None
    } else if limits.low.undercut(free, whole) {
        DiskSpace::Low
    } else {
        DiskSpace::Enough
    }
}

/// Signs checkpoints of this node's logs that have grown enough. If a log can no longer be signed, everything is
/// frozen: the log is not what was signed before.
///
/// # Errors
/// When the log cannot be read or a checkpoint cannot be stored.
pub async fn checkpoint(gw: &Gateway, at_least: u64) -> Result<bool, CallError> {
    if gw.recovery.is_suspected() {
        return Ok(false);
    }
    match sign(gw, at_least).await {
        Ok(signed) => Ok(signed),
        Err(CheckpointingError::No(no)) => Err(no),
        Err(CheckpointingError::Finding(finding)) => {
            // SECURITY: a signer refuses when the log does not extend the one it signed last.
            let text = finding.to_string();
            recovery::suspect(gw, vec![finding]).await?;
            Err(CallError::from(Refusal::new(Code::StoreDamaged).with_text(&text)))
        }
    }
}

/// Why no checkpoint was signed.
enum CheckpointingError {
    No(CallError),
    Finding(RecoveryFinding),
}

impl From<CallError> for CheckpointingError {
    fn from(no: CallError) -> Self {
        Self::No(no)
    }
}

/// What a store error means for a log that was about to be signed.
fn unsigned(log: &NodeName) -> impl Fn(StoreError) -> CheckpointingError {
    move |error| match error {
        StoreError::Damaged { .. } | StoreError::Impossible { .. } => {
            CheckpointingError::Finding(RecoveryFinding::new(RecoveryFindingKind::RecordDamaged, &error, "-").of(log))
        }
        other => CheckpointingError::No(other.into()),
    }
}

async fn sign(gw: &Gateway, at_least: u64) -> Result<bool, CheckpointingError> {
    let mut signers = gw.signers.lock().await;
    let mut signed_any = false;
    for (log, signer) in signers.iter_mut() {
        let signed = gw.store.last_checkpoint(log.clone()).await.map_err(unsigned(log))?.map_or(0, |last| last.size);
        let logs = gw.store.logs().await.map_err(unsigned(log))?;
        let size = logs.into_iter().find(|(name, _)| name == log).map_or(0, |(_, head)| head.size);
        let last = signer.last().tree.size;
        if signed < last && last <= size {
            keep_signed(gw, log, signer).await?;
            signed_any = true;
            continue;
        }
        // A log that is now shorter than what was signed must not pass as one that has not grown.
        if size >= signer.last().tree.size && size.saturating_sub(signed) < at_least.max(1) {
            continue;
        }
        let grown = gw.store.prepare_log_checkpoint(log.clone()).await.map_err(unsigned(log))?;
        let size = grown.growth.head.size;
        let refused = |error| {
            CheckpointingError::Finding(RecoveryFinding::new(RecoveryFindingKind::SigningRefused, error, "-").of(log))
        };
        let note = signer.sign(&grown.growth).map_err(refused)?;
        gw.store.keep_checkpoint(grown, note.clone()).await.map_err(|error| CheckpointingError::No(error.into()))?;
        recovery::remember_signed_checkpoint(gw, log, size, &note).await?;
        signed_any = true;
    }
    Ok(signed_any)
}

/// Stores a checkpoint that was signed and could not be stored, for example because the disk was full: the same note,
/// if the log still is what was signed. Nothing else is signed before.
async fn keep_signed(gw: &Gateway, log: &NodeName, signer: &CheckpointSigner) -> Result<(), CheckpointingError> {
    let refused = |error: &dyn std::fmt::Display| {
        CheckpointingError::Finding(RecoveryFinding::new(RecoveryFindingKind::SigningRefused, error, "-").of(log))
    };
    let last = signer.last();
    let grown = gw.store.prepare_log_checkpoint_at(log.clone(), last.tree.size).await.map_err(unsigned(log))?;
    if (grown.growth.root, grown.growth.head.hash) != (last.tree.root, last.head) {
        return Err(refused(&"the audit log is not what was signed last"));
    }
    let note = signer.last_note().map_err(|error| refused(&error))?;
    gw.store.keep_checkpoint(grown, note.clone()).await.map_err(|error| CheckpointingError::No(error.into()))?;
    recovery::remember_signed_checkpoint(gw, log, last.tree.size, &note).await?;
    Ok(())
}
