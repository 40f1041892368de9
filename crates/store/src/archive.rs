//! Archiving an audit log: its oldest entries leave the database once a file holds them.
//!
//! Takes how old entries must be; gives the next segment of a log, which ends at a signed checkpoint, and prunes the
//! log once that segment is written. Promise: entries are deleted only after a transaction that records in the same log
//! up to where it was pruned. The rest still proves every later entry and all later growth: a log is pruned at
//! multiples of 256, where the tree keeps its inner nodes.

use sluice_core::audit::checkpoint::Checkpoint;
use sluice_core::audit::export::AuditExportStart;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::tree::TreeFrontier;
use sluice_core::audit::{AuditFact, AuditHash};
use sluice_core::{NodeName, UtcMillis};

use crate::Store;
use crate::audit::{LEAVES, ListAuditLogs, decode_checkpoint, hashes};
use crate::calls::first_entry_at;
use crate::error::StoreError;
use crate::instance::hash_at;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// A log is pruned in steps of this many entries: the tree keeps one inner node for each step.
const STEP: u64 = 256;

const PRUNED: &str = "SELECT size, frontier, hash, archived FROM audit_pruned WHERE log = ?1";
const LAST_UP_TO: &str = "SELECT size, frontier, note FROM checkpoints WHERE log = ?1 AND size >= ?2 AND size <= ?3 \
     ORDER BY size DESC LIMIT 1";
const FIRST_FROM: &str = "SELECT size, frontier, note FROM checkpoints WHERE log = ?1 AND size >= ?2 AND size <= ?3 \
     ORDER BY size LIMIT 1";
const AT: &str = "SELECT size, frontier, note FROM checkpoints WHERE log = ?1 AND size = ?2";
const MARK: &str = "INSERT INTO audit_pruned (log, size, frontier, hash, archived, pruned_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (log) DO UPDATE SET size = excluded.size, \
     frontier = excluded.frontier, hash = excluded.hash, archived = excluded.archived, pruned_at = excluded.pruned_at";
const OLD_CHECKPOINTS: &str = "DELETE FROM checkpoints WHERE log = ?1 AND size < ?2";
const OLD_COSIGNATURES: &str = "DELETE FROM cosignatures WHERE log = ?1 AND size < ?2";
const FIRST_ENTRY: &str = "SELECT seq FROM audit_entries WHERE log = ?1 ORDER BY seq LIMIT 1";
const OLD_ENTRIES: &str = "DELETE FROM audit_entries WHERE log = ?1 AND seq >= ?2 AND seq < ?3";

/// A log whose oldest entries were archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunedLog {
    /// What replaces the deleted entries.
    pub start: AuditExportStart,
    /// How many entries are archived: the deleted ones, and fewer than 256 that are still here as well.
    pub archived: u64,
}

/// Limits for the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentBounds {
    /// Only entries older than this.
    pub before: UtcMillis,
    /// Only this many entries from the start of the log: what every witness has cosigned.
    pub within: Option<u64>,
    /// Fewest entries in a segment.
    pub at_least: u64,
    /// Most entries in a segment, unless its checkpoints are further apart.
    pub at_most: u64,
}

/// The next entries of a log to be archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSegment {
    /// The log.
    pub log: NodeName,
    /// What replaces the entries before it; `None` for the first segment of a log.
    pub start: Option<AuditExportStart>,
    /// The entry after its last one: how many entries its last checkpoint covers.
    pub end: u64,
    /// Hash of its last entry.
    pub head: AuditHash,
}

impl LogSegment {
    /// Its first entry.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.start.as_ref().map_or(0, |start| start.frontier.size())
    }

    /// The position up to which the log can be pruned once the segment is archived.
    #[must_use]
    pub const fn prunable(&self) -> u64 {
        self.end - self.end % STEP
    }
}

/// Where a pruned log starts.
pub(crate) struct GetPrunedLog(pub NodeName);

impl StoreQuery for GetPrunedLog {
    type Out = Option<PrunedLog>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(PRUNED, &params![&self.0]).await?.into_iter().next().map(pruned).transpose()
    }
}

/// The first entry of a log that is still here.
pub(crate) async fn first_kept<T: StoreTx>(tx: &mut T, log: &NodeName) -> Result<u64, StoreError> {
    Ok(GetPrunedLog(log.clone()).run(tx).await?.map_or(0, |pruned| pruned.start.frontier.size()))
}

fn pruned(row: SqlRow) -> Result<PrunedLog, StoreError> {
    let mut row = row.of("audit_pruned");
    let (size, frontier) = (row.count::<u64>()?, row.text()?);
    let frontier: TreeFrontier = serde_json::from_str(&frontier).map_err(|_| row.impossible("an invalid frontier"))?;
    let head = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
    let archived = row.count()?;
    if frontier.size() != size || archived < size {
        return Err(row.impossible("a log that was pruned further than it was archived"));
    }
    Ok(PrunedLog { start: AuditExportStart { frontier, head: AuditHash(head) }, archived })
}

/// The hash of the last entry under a checkpoint.
fn head_of(note: &SignedNote) -> Result<AuditHash, StoreError> {
    let read = Checkpoint::parse(note.text_unverified());
    read.map(|checkpoint| checkpoint.head)
        .map_err(|_| StoreError::Impossible { table: "checkpoints", detail: "a note that is not a checkpoint" })
}

struct FindNextSegment {
    log: NodeName,
    bounds: SegmentBounds,
}

impl StoreQuery for FindNextSegment {
    type Out = Option<LogSegment>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let (log, bounds) = (&self.log, &self.bounds);
        let Some((_, head)) = ListAuditLogs.run(tx).await?.into_iter().find(|(name, _)| name == log) else {
            return Ok(None);
        };
        let pruned = GetPrunedLog(log.clone()).run(tx).await?;
        let (first, kept) = pruned.map_or((0, 0), |pruned| (pruned.archived, pruned.start.frontier.size()));
        let old = first_entry_at(tx, log, head.size, bounds.before).await?;
        let old = bounds.within.map_or(old, |within| old.min(within));
        let shortest = first + bounds.at_least.max(STEP);
        let limit = old.min(first.saturating_add(bounds.at_most.max(bounds.at_least)));
        let mut found = tx.rows(LAST_UP_TO, &params![log, shortest, limit]).await?.into_iter().next();
        if found.is_none() {
            found = tx.rows(FIRST_FROM, &params![log, shortest, old]).await?.into_iter().next();
        }
        let Some(end) = found.map(decode_checkpoint).transpose()? else { return Ok(None) };
        let start = match first {
            0 => None,
            first => {
                let missing = || StoreError::Damaged { detail: "the checkpoint of the last segment is missing".into() };
                let row = tx.rows(AT, &params![log, first]).await?.into_iter().next().ok_or_else(missing)?;
                let before = decode_checkpoint(row)?;
                Some(AuditExportStart { head: head_of(&before.note)?, frontier: before.frontier })
            }
        };
        let segment = LogSegment { log: log.clone(), start, end: end.size, head: head_of(&end.note)? };
        Ok(Some(segment).filter(|segment| segment.prunable() > kept))
    }
}

/// Records, in the log and beside it, up to where its entries are archived.
struct PruneLog {
    segment: LogSegment,
    start: AuditExportStart,
}

impl UseCase for PruneLog {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let (segment, log) = (&self.segment, &self.segment.log);
        let (first, to) = (segment.first(), segment.prunable());
        let before = GetPrunedLog(log.clone()).run(unit.tx()).await?;
        let (archived, kept) = before.map_or((0, 0), |before| (before.archived, before.start.frontier.size()));
        // One node writes and signs a log, and its segments follow one another.
        if log != unit.node || archived != first || to <= kept {
            return Err(StoreError::Conflict);
        }
        // No matter who wrote the segment, the entries it replaces must be the start of what was signed.
        let end = unit.tx().rows(AT, &params![log, segment.end]).await?.into_iter().next();
        let end = end.ok_or(StoreError::Conflict)?;
        let end = decode_checkpoint(end)?;
        let mut frontier = self.start.frontier.clone();
        hashes(unit.tx(), LEAVES, params![log, to, segment.end])
            .await?
            .into_iter()
            .for_each(|leaf| frontier.push(leaf));
        let last = hash_at(unit.tx(), log, to - 1).await?;
        if self.start.frontier.size() != to || frontier != end.frontier || last != Some(self.start.head) {
            return Err(StoreError::Conflict);
        }
        let (now, peaks) = (unit.now, serde_json::json!(self.start.frontier).to_string());
        unit.write(MARK, params![log, to, peaks, self.start.head, segment.end, now]);
        unit.write(OLD_CHECKPOINTS, params![log, to]);
        unit.write(OLD_COSIGNATURES, params![log, to]);
        let fact = AuditFact::new("audit.pruned", unit.actor()).with("pruned_to", to).with("first", first);
        unit.record(fact.with("archived_to", segment.end).with("chain", segment.head));
        Ok(())
    }
}

/// Deletes entries that were pruned from a log.
struct SweepPrunedEntries {
    log: NodeName,
    limit: u32,
}

impl UseCase for SweepPrunedEntries {
    type Out = bool;

    /// Writes no audit entry: the entry about the pruning is in the log already.
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let log = &self.log;
        let kept = first_kept(unit.tx(), log).await?;
        let Some(row) = unit.tx().rows(FIRST_ENTRY, &params![log]).await?.into_iter().next() else { return Ok(false) };
        let first: u64 = row.of("audit_entries").count()?;
        if first >= kept {
            return Ok(false);
        }
        let to = kept.min(first + u64::from(self.limit));
        unit.write(OLD_ENTRIES, params![log, first, to]);
        Ok(to < kept)
    }
}

impl Store {
    /// Where the entries of a log start; `None` while it is complete.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn pruned_log(&self, log: NodeName) -> Result<Option<PrunedLog>, StoreError> {
        self.ask(GetPrunedLog(log)).await
    }

    /// The next entries of a log that may be archived: from the last archived one to a signed checkpoint.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn next_segment(&self, log: NodeName, bounds: SegmentBounds) -> Result<Option<LogSegment>, StoreError> {
        self.ask(FindNextSegment { log, bounds }).await
    }

    /// Prunes a log of this node up to the end of a segment. `start` replaces its first [`LogSegment::prunable`]
    /// entries. [`Store::sweep_pruned`] deletes them.
    ///
    /// # Errors
    /// When this is not the next segment, `start` differs from what was signed, or the pruning cannot be recorded.
    pub async fn prune_log(&self, segment: LogSegment, start: AuditExportStart) -> Result<(), StoreError> {
        let is_own = segment.log == *self.node();
        let prune = PruneLog { segment, start };
        if is_own { self.submit(prune).await } else { self.stop_lane().submit(prune).await }
    }

    /// Deletes some of the entries that were pruned from a log. Returns whether there are more.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn sweep_pruned(&self, log: NodeName, limit: u32) -> Result<bool, StoreError> {
        self.submit(SweepPrunedEntries { log, limit }).await
    }
}
