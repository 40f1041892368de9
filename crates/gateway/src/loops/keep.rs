//! Keeping house: heartbeats, expiry, retention, checkpoints, disk space, keys revoked elsewhere.
//!
//! Promise: a question whose time is up is a no within a second, what can no longer be undone is forgotten as fast as it
//! comes and never while the clock is in doubt, every entry is under a signed
//! checkpoint within five minutes or a thousand entries, a credential that is old enough is asked for anew, and a
//! gateway whose file can no longer be believed ends.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sluice_core::audit::checkpoint::Signer;
use sluice_core::ids::MessageId;
use sluice_core::recovery::{Finding, FindingKind};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::RollbackState;
use sluice_core::{Actor, NodeName};
use sluice_store::{Message, RetentionPeriods, Severity, StoreError};
use tokio::sync::watch;

use super::{tick, watching};
use crate::config::Retention;
use crate::gateway::{Lost, Room};
use crate::proxies::rotation;
use crate::rooms::client_writes;
use crate::{Gateway, No, nodes, recovery};

const EVERY: Duration = Duration::from_secs(1);
const BEAT: u64 = 5;
const PRUNE: u64 = 60;
const WATCH: u64 = 60;
const SIGN: u64 = 300;
const SWEEP: u64 = 3_600;
const PAGE: u32 = 200;
/// Rows of each kind in one transaction of retention, and transactions in one second: together more than any load makes in a
/// second, and each short enough that whoever writes next does not notice.
const PRUNE_PAGE: u32 = 500;
const PRUNES: usize = 20;
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
    // So that the others do not have to wait until it counts as gone.
    if let Err(no) = nodes::report(&gw).await {
        tracing::warn!(code = no.refusal.code().as_str(), "that this node stops could not be written down");
    }
}

/// One second's housekeeping.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn step(gw: &Gateway, round: u64) -> Result<(), No> {
    gw.found_room(room_left(gw));
    let beat = if round.is_multiple_of(BEAT) { gw.store.beat().await } else { Ok(()) };
    match &beat {
        Err(StoreError::Damaged { .. }) => gw.give_up(Lost::Record),
        Err(StoreError::Removed) => gw.give_up(Lost::Removed),
        Ok(()) | Err(_) => {}
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
    watch_clock(gw).await?;
    if round.is_multiple_of(WATCH) {
        watching::look(gw).await?;
    }
    // What ends with the time waits until the time is known.
    let is_sure = gw.clock.doubt().is_none();
    if is_sure {
        forget(gw, round.is_multiple_of(PRUNE)).await?;
    }
    if is_sure && round.is_multiple_of(PRUNE) {
        for point in gw.store.expire_rollbacks(PAGE).await? {
            let hold = gw.store.hold(point.hold).await?;
            if let Some(service) = hold.and_then(|hold| gw.services.for_service(&hold.service).ok()) {
                service.forget(&point.content).await;
            }
        }
        client_writes::expire(gw, PAGE).await?;
        gw.store.sweep_secrets().await?;
    }
    if round.is_multiple_of(SWEEP) {
        sweep(gw).await?;
        rotation::ask(gw).await?;
    }
    // Last, so that nothing another node says keeps this one from its own.
    if round.is_multiple_of(BEAT) {
        nodes::report(gw).await?;
        nodes::look(gw).await?;
    }
    Ok(())
}

/// Forgets what is over, in short transactions, until nothing is left or this second's share is used up. It begins once a
/// minute, and goes on every second while there is more.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn forget(gw: &Gateway, begins: bool) -> Result<(), No> {
    let mut state = *gw.retention.lock().unwrap_or_else(PoisonError::into_inner);
    if begins {
        state.rows = true;
        state.writes.get_or_insert_default();
    }
    let Retention { writes, sessions, proxy_tasks, policies } = &gw.config.retention;
    let periods = RetentionPeriods { writes: *writes, sessions: *sessions, proxy_tasks: *proxy_tasks };
    if begins {
        gw.store.forget_policies(gw.now(), *policies, PRUNE_PAGE).await?;
    }
    for _ in 0..PRUNES {
        if state.rows {
            state.rows = gw.store.prune(gw.now(), PRUNE_PAGE).await? >= u64::from(PRUNE_PAGE);
        }
        if let Some(from) = state.writes {
            state.writes = gw.store.retain(gw.now(), &periods, (from, OLD_PAGE)).await?.next;
        }
    }
    *gw.retention.lock().unwrap_or_else(PoisonError::into_inner) = state;
    Ok(())
}

/// Tells people once when the clock jumps further than it is followed, and when the database has seen a later time than it
/// is.
async fn watch_clock(gw: &Gateway) -> Result<(), No> {
    let doubt = gw.clock.doubt();
    let before = gw.clock_told.swap(doubt.is_some(), Ordering::SeqCst);
    let Some(doubt) = doubt.filter(|_| !before) else { return Ok(()) };
    let (by, wall) = (doubt.by, doubt.wall);
    let way = if doubt.forward { "ahead" } else { "back" };
    tracing::error!("the clock jumped {way} by {by} and is not followed; sluice clock shows it");
    let body = serde_json::json!({
        "text": format!("The clock of this machine jumped {way} by {by}, to {wall}. The gateway goes on with the time that \
            really passed, and forgets nothing meanwhile. If the clock is wrong, set it right. If it is right now, an \
            admin runs `sluice clock repair`."),
    });
    let id = MessageId::mint(gw.ids.as_ref());
    let message = Message { id, topic: "clock.jumped".into(), severity: Severity::Critical, body };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    gw.letters.notify_one();
    Ok(())
}

/// Removes old contents that nobody can go back to any more: what was left when the gateway died between writing
/// that down and removing them.
///
/// # Errors
/// When the database cannot be read.
pub async fn sweep(gw: &Gateway) -> Result<(), No> {
    client_writes::sweep(gw).await?;
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
        let last = signer.last().tree.size;
        if signed < last && last <= size {
            keep_signed(gw, log, signer).await?;
            signed_any = true;
            continue;
        }
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

/// Keeps what was signed and could not be kept, because the disk was full, say: the same note, if the record still is what
/// was signed. Nothing else is signed before.
async fn keep_signed(gw: &Gateway, log: &NodeName, signer: &Signer) -> Result<(), Unsigned> {
    let refused = |error: &dyn std::fmt::Display| {
        Unsigned::Finding(Finding::new(FindingKind::SigningRefused, error, "-").of(log))
    };
    let last = signer.last();
    let grown = gw.store.grown_log_to(log.clone(), last.tree.size).await.map_err(unsigned(log))?;
    if (grown.growth.root, grown.growth.head.hash) != (last.tree.root, last.head) {
        return Err(refused(&"the record is not what was signed last"));
    }
    let note = signer.last_note().map_err(|error| refused(&error))?;
    gw.store.checkpointed(grown, note.clone()).await.map_err(|error| Unsigned::No(error.into()))?;
    recovery::signed(gw, log, last.tree.size, &note).await?;
    Ok(())
}
