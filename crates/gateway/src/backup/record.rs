//! The audit logs in a copied database: their positions, and their verification.
//!
//! Takes a copied database file; gives the positions of its logs, and verifies each of them with the offline verifier.
//! Promise: a log with a known key is verified entry by entry against every checkpoint that was signed over it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

use sluice_core::NodeName;
use sluice_core::audit::checkpoint::{Checkpoint, origin};
use sluice_core::audit::export::{AuditExportFormat, AuditExportHeader, write_checkpoint, write_entry};
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::verify::{AuditExport, VerifierTrust, verify};
use sluice_core::audit::{ChainHead, leaf};
use sluice_core::backup::BackedUpLog;
use sluice_core::recovery::DatabaseFacts;
use sluice_store::Store;

use super::BackupError;

/// Entries read in one query.
const PAGE: u32 = 4096;

/// A verified log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedLog {
    /// The name of the log.
    pub log: NodeName,
    /// The number of entries.
    pub entries: u64,
    /// The number of entries under a signed checkpoint; nothing if the key is not known and only the chain was checked.
    pub covered: Option<u64>,
}

/// The ends of the logs in a copy, with the last signed checkpoint and the key of each, as far as known here.
pub(super) async fn positions(
    record: &Path,
    node: &NodeName,
    keys: &[VerifierKey],
) -> Result<(DatabaseFacts, Vec<BackedUpLog>), BackupError> {
    let store = Store::open_to_read(record)?;
    let facts = store.recovery_facts(node.clone(), BTreeMap::new()).await?;
    let mut logs = Vec::new();
    for (log, head) in store.logs().await? {
        let last = store.last_checkpoint(log.clone()).await?;
        let key = keys.iter().find(|key| key.name() == origin(&log)).map(ToString::to_string);
        let checkpoint = last.map(|last| last.note.to_string());
        logs.push(BackedUpLog { log, size: head.size, hash: head.hash, checkpoint, key });
    }
    Ok((facts, logs))
}

/// Verifies the audit logs of a copy, and that they match the manifest. `scratch` is a temporary folder.
pub(super) async fn check(
    record: &Path,
    wanted: &[BackedUpLog],
    scratch: &Path,
) -> Result<Vec<VerifiedLog>, BackupError> {
    let store = Store::open_to_read(record)?;
    let found = store.logs().await?;
    if found.len() != wanted.len() {
        let why = format!("it has {} logs, the manifest says {}", found.len(), wanted.len());
        return Err(BackupError::Record(why));
    }
    let mut verified = Vec::new();
    for log in wanted {
        let head = found.iter().find(|(name, _)| *name == log.log).map(|(_, head)| *head);
        if head != (Some(ChainHead { size: log.size, hash: log.hash })) {
            return Err(BackupError::Record(format!("log {} does not end where the manifest says", log.log)));
        }
        let last = store.last_checkpoint(log.log.clone()).await?.map(|last| last.note.to_string());
        if last != log.checkpoint {
            return Err(BackupError::Record(format!("log {} has another last checkpoint than the manifest", log.log)));
        }
        let covered = match &log.key {
            Some(key) => Some(prove(&store, log, key, scratch).await?),
            None => {
                walk(&store, log).await?;
                None
            }
        };
        verified.push(VerifiedLog { log: log.log.clone(), entries: log.size, covered });
    }
    Ok(verified)
}

/// The complete offline verification of one log. Returns the number of entries under a signed checkpoint.
async fn prove(store: &Store, log: &BackedUpLog, key: &str, scratch: &Path) -> Result<u64, BackupError> {
    let key: VerifierKey =
        key.parse().map_err(|_| BackupError::Record(format!("the key of log {} is not valid", log.log)))?;
    let (entries, checkpoints) = (scratch.join("verify-entries"), scratch.join("verify-checkpoints"));
    let mut out = BufWriter::new(File::create(&checkpoints).map_err(BackupError::Write)?);
    for signed in store.checkpoints(log.log.clone()).await? {
        write_checkpoint(&mut out, &signed.note).map_err(BackupError::Write)?;
    }
    out.flush().map_err(BackupError::Write)?;
    let mut out = BufWriter::new(File::create(&entries).map_err(BackupError::Write)?);
    let start = store.pruned_log(log.log.clone()).await?.map(|pruned| pruned.start);
    let mut next = start.as_ref().map_or(0, |start| start.frontier.size());
    loop {
        let page = store.entries(log.log.clone(), next, PAGE).await?;
        let Some(last) = page.last() else { break };
        next = last.seq + 1;
        for entry in &page {
            write_entry(&mut out, &entry.hash, &entry.body).map_err(BackupError::Write)?;
        }
    }
    out.flush().map_err(BackupError::Write)?;
    let about = AuditExportHeader {
        form: AuditExportFormat::V1,
        key: key.clone(),
        log: log.log.clone(),
        size: log.size,
        start,
    };
    let trust = VerifierTrust { key: Some(key), anchors: Vec::new(), threads: None };
    let open = |path: &Path| File::open(path).map(BufReader::new).map_err(BackupError::read(path));
    let export = AuditExport { log: &about.to_bytes(), entries: open(&entries)?, checkpoints: open(&checkpoints)? };
    let report = verify(export, &trust).map_err(|error| BackupError::Record(format!("log {}: {error}", log.log)))?;
    for path in [&entries, &checkpoints] {
        fs::remove_file(path).map_err(BackupError::Write)?;
    }
    if report.head != log.hash {
        return Err(BackupError::Record(format!("log {} does not end where the manifest says", log.log)));
    }
    Ok(report.covered)
}

/// Checks the chain of another node's log whose key is not known here, and its last checkpoint as far as it can be
/// read.
async fn walk(store: &Store, log: &BackedUpLog) -> Result<(), BackupError> {
    let broken = |seq: u64| BackupError::Record(format!("entry {seq} of log {} does not match the chain", log.log));
    let signed = log.checkpoint.as_deref().map(|note| {
        let note = sluice_core::audit::note::SignedNote::parse(note.as_bytes()).ok()?;
        Checkpoint::parse(note.text_unverified()).ok()
    });
    let signed = signed.map(|signed| signed.ok_or_else(|| broken(log.size))).transpose()?;
    let mut reached = match store.pruned_log(log.log.clone()).await? {
        Some(pruned) => ChainHead { size: pruned.start.frontier.size(), hash: pruned.start.head },
        None => ChainHead::genesis(&log.log),
    };
    while reached.size < log.size {
        let page = store.entries(log.log.clone(), reached.size, PAGE).await?;
        if page.is_empty() {
            return Err(broken(reached.size));
        }
        for entry in page {
            let hash = leaf(&reached.hash, &entry.body);
            if entry.seq != reached.size || hash != entry.hash {
                return Err(broken(reached.size));
            }
            reached = ChainHead { size: entry.seq + 1, hash };
            if signed.as_ref().is_some_and(|signed| signed.tree.size == reached.size && signed.head != hash) {
                return Err(broken(entry.seq));
            }
        }
    }
    if reached.hash == log.hash { Ok(()) } else { Err(broken(log.size)) }
}
