//! Archiving: entries of the audit log that are older than `retention.audit` move to files.
//!
//! Promise: an entry leaves the database only after the segment that holds it was verified on disk and the log itself says so.
//! Nothing is archived while the clock is uncertain, the database is not trusted, or a witness has not seen the
//! entries.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::audit::key::VerifierKey;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, NodeName};
use sluice_services::timer::tick;
use sluice_store::{MessageSeverity, OutboxMessage, SegmentBounds, StoreError};
use tokio::sync::watch;

use crate::Gateway;
use crate::archive::{self, ArchiveError};

const EVERY: Duration = Duration::from_secs(60);
/// Fewest entries of a segment: fewer are not worth a folder of their own.
const AT_LEAST: u64 = 4_096;
/// Most entries of a segment.
const AT_MOST: u64 = 65_536;
/// Entries that are deleted in one transaction.
const SWEEP_PAGE: u32 = 500;

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut failing = false;
    while tick(&mut stop, EVERY, std::future::pending()).await {
        loop {
            match step(&gw, AT_LEAST, AT_MOST).await {
                Ok(archived) => {
                    failing = false;
                    if archived == 0 || *stop.borrow() {
                        break;
                    }
                }
                Err(error) => {
                    if !failing {
                        tracing::error!("entries of the audit log could not be archived: {error}");
                        failing = alert(&gw).await.is_ok();
                    }
                    break;
                }
            }
        }
    }
}

/// Alerts people once: nothing is lost, and the database grows until the cause is fixed.
async fn alert(gw: &Gateway) -> Result<(), StoreError> {
    let text = "Old entries of the audit log could not be archived. They stay in the database, which keeps growing. \
                The log of the gateway says why.";
    let body = serde_json::json!({"text": text, "folder": gw.config.data.join(archive::FOLDER)});
    let id = MessageId::mint(gw.ids.as_ref());
    let message = OutboxMessage { id, topic: "audit.archive_failing".into(), severity: MessageSeverity::Warning, body };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    gw.signals.letters.notify_one();
    Ok(())
}

/// Archives the next segment of each log of this node that has one. Returns how many segments were archived.
///
/// # Errors
/// When the database or the archive cannot be read or written; nothing is lost then.
pub async fn step(gw: &Gateway, at_least: u64, at_most: u64) -> Result<usize, ArchiveError> {
    if gw.clock.ignored_jump().is_some() || gw.recovery.is_suspected() {
        return Ok(0);
    }
    let mut archived = 0;
    for (log, key) in &gw.audit_keys {
        archived += usize::from(next(gw, (log, key), at_least, at_most).await?);
        while gw.store.sweep_pruned(log.clone(), SWEEP_PAGE).await? {
            tokio::task::yield_now().await;
        }
    }
    Ok(archived)
}

async fn next(
    gw: &Gateway,
    (log, key): (&NodeName, &VerifierKey),
    at_least: u64,
    at_most: u64,
) -> Result<bool, ArchiveError> {
    let within = seen_by_witnesses(gw, log).await?;
    let bounds = SegmentBounds { before: gw.now() - gw.config.retention.audit, within, at_least, at_most };
    let Some(segment) = gw.store.next_segment(log.clone(), bounds).await? else { return Ok(false) };
    let start = archive::write(&gw.store, &segment, key, &archive::folder_of(&gw.config.data, log)).await?;
    let (first, last) = (segment.first(), segment.end - 1);
    gw.store.prune_log(segment, start).await?;
    tracing::info!("entries {first} to {last} of the audit log {log} are archived");
    Ok(true)
}

/// The fewest entries of a log that a witness has seen, of the witnesses that have seen any: entries that a witness
/// lacks must stay, so that they can be proven to it.
async fn seen_by_witnesses(gw: &Gateway, log: &NodeName) -> Result<Option<u64>, ArchiveError> {
    let mut least = None;
    for witness in &gw.config.audit.witnesses {
        let seen = gw.store.cosigned(log.clone(), witness.key.name().to_owned()).await?;
        least = seen.into_iter().chain(least).min();
    }
    Ok(least)
}
