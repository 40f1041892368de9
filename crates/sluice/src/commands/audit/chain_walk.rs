//! `sluice audit verify` on a database: verifies the chain of one log from its first entry to its head.
//!
//! Takes the source of the audit log and one of its logs; gives how far the chain reaches and which checkpoints match
//! it. Promise: a missing or changed entry is reported with its position. Entries may be missing at the beginning only
//! if a later entry says that they were archived.

use sluice_core::NodeName;
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::verify::VerifierTrust;
use sluice_core::audit::{AuditEntry, ChainHead, SealedAuditEntry};

use super::expected_checkpoints::ExpectedCheckpoints;
use super::source::{AuditLogSource, SourcedAuditLog};
use crate::console::{CommandConsole, TaskProgress};
use crate::failure::{CliError, CommandExit};

/// A log that was verified from its first entry to its head.
pub(super) struct WalkedAuditLog {
    pub(super) size: u64,
    /// Checkpoints kept elsewhere.
    pub(super) anchors: ExpectedCheckpoints,
    /// The last checkpoint in the audit log.
    pub(super) signed: ExpectedCheckpoints,
}

/// Verifies a log. If its oldest entries are archived meanwhile, it is verified again from the new first entry.
pub(super) fn walk_current(
    source: &AuditLogSource,
    mut log: SourcedAuditLog,
    trust: &VerifierTrust,
    screen: &CommandConsole,
) -> Result<(SourcedAuditLog, WalkedAuditLog), CliError> {
    loop {
        let key = trust.key.as_ref().filter(|named| named.name() == origin(&log.name)).or(log.key.as_ref());
        let mut anchors = ExpectedCheckpoints::new(&log, &trust.anchors, key, "a checkpoint kept elsewhere")?;
        let last = last_checkpoint(source, &log.name)?.filter(|_| key.is_some());
        let mut signed = ExpectedCheckpoints::new(&log, last.as_slice(), key, "its last checkpoint in the database")?;
        let progress = screen.progress("verifying", Some(log.head.size));
        match walk(source, &log, &mut [&mut anchors, &mut signed], &progress) {
            Ok(size) => return Ok((log, WalkedAuditLog { size, anchors, signed })),
            Err(failure) => {
                let again = source.logs()?.into_iter().find(|again| again.name == log.name);
                // Each time a log is pruned while it is read, fewer entries are left, so this ends.
                log = again.filter(|again| again.first() > log.first()).ok_or(failure)?;
            }
        }
    }
}

/// The checkpoint of a log that covers the most entries.
fn last_checkpoint(source: &AuditLogSource, log: &NodeName) -> Result<Option<SignedNote>, CliError> {
    let (mut after, mut last) = (0, None);
    loop {
        let page = source.checkpoints(log, after)?;
        let Some((size, note)) = page.into_iter().last() else { return Ok(last) };
        (after, last) = (size, Some(note));
    }
}

fn walk(
    source: &AuditLogSource,
    of: &SourcedAuditLog,
    anchors: &mut [&mut ExpectedCheckpoints],
    progress: &TaskProgress,
) -> Result<u64, CliError> {
    let (log, head) = (&of.name, of.head);
    let broken = |seq: u64, why: &str| {
        CliError::new(CommandExit::NotVerified, format!("entry #{seq} of {log} does not match (audit.changed)"))
            .why(why.to_owned())
            .hint("stop the gateway and keep the file; an export or an older checkpoint shows when it changed")
    };
    let mut reached = match &of.start {
        Some(start) => ChainHead { size: start.frontier.size(), hash: start.head },
        None => ChainHead::genesis(log),
    };
    let mut pruned_to = None;
    loop {
        let page = source.entries(log, reached.size, u32::MAX)?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            if entry.seq != reached.size {
                return Err(broken(reached.size, "the entry is missing"));
            }
            let hash = sluice_core::audit::leaf(&reached.hash, &entry.body);
            if hash != entry.hash {
                return Err(broken(entry.seq, "its hash does not match its content and the previous entry"));
            }
            anchors.iter_mut().try_for_each(|anchors| anchors.push(reached, hash))?;
            pruned_to = pruned_by(&entry).or(pruned_to);
            reached = ChainHead { size: entry.seq + 1, hash };
        }
        progress.reached(reached.size, None);
    }
    if reached != head && reached.size <= head.size {
        return Err(broken(reached.size, "the log ends before its head"));
    }
    // SECURITY: entries that were not archived count as missing, whatever the database stores beside the log.
    if of.first() > 0 && pruned_to != Some(of.first()) {
        return Err(broken(0, "the entry is missing, and no later entry says that it was archived"));
    }
    anchors.iter_mut().try_for_each(|anchors| anchors.finish(reached))?;
    Ok(reached.size)
}

/// The position up to which this entry says the log was pruned, if it is such an entry.
fn pruned_by(entry: &SealedAuditEntry) -> Option<u64> {
    let is_about = entry.body.windows(KIND_PRUNED.len()).any(|part| part == KIND_PRUNED);
    let entry: AuditEntry = is_about.then(|| serde_json::from_slice(&entry.body).ok()).flatten()?;
    entry.fact.detail.get("pruned_to").filter(|_| entry.fact.kind == "audit.pruned")?.parse().ok()
}

/// Marks an entry that says its log was pruned.
const KIND_PRUNED: &[u8] = br#""kind":"audit.pruned""#;
