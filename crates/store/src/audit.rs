//! The audit log as rows: reading entries, and the tree over them that checkpoints sign.
//!
//! The unit of work appends entries; this module only reads them. It prepares checkpoints (grows the tree, makes the
//! proofs) for the signer, and stores them with the inner nodes that became complete, so that any entry can be proven
//! with a few hundred hashes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use sluice_core::NodeName;
use sluice_core::audit::checkpoint::LogGrowth;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::prove::AuditEntryProof;
use sluice_core::audit::tree::{self, KeptHashSource, SparseTree, TreeError, TreeFrontier};
use sluice_core::audit::{AuditHash, ChainHead, SealedAuditEntry};

use crate::Store;
use crate::archive;
use crate::error::StoreError;
use crate::packed;
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const LOGS: &str = "SELECT node, log_size, log_hash FROM nodes ORDER BY node";
const PAGE: &str = "SELECT seq, hash, body FROM audit_entries WHERE log = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3";
const HEAD: &str = "SELECT log_size, log_hash FROM nodes WHERE node = ?1";
pub(crate) const LEAVES: &str = "SELECT hash FROM audit_entries WHERE log = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq";
const INNER: &str =
    "SELECT hash FROM audit_nodes WHERE log = ?1 AND level = ?4 AND place >= ?2 AND place < ?3 ORDER BY place";
const KEEP_INNER: &str = "INSERT INTO audit_nodes (log, level, place, hash) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (log, level, place) DO NOTHING";
const LAST_CHECKPOINT: &str = "SELECT size, frontier, note FROM checkpoints WHERE log = ?1 ORDER BY size DESC LIMIT 1";
const COVERING: &str =
    "SELECT size, frontier, note FROM checkpoints WHERE log = ?1 AND size > ?2 ORDER BY size LIMIT 1";
const CHECKPOINTS: &str = "SELECT size, frontier, note FROM checkpoints WHERE log = ?1 ORDER BY size";
const CHECKPOINTS_AFTER: &str =
    "SELECT size, frontier, note FROM checkpoints WHERE log = ?1 AND size > ?2 ORDER BY size LIMIT ?3";
const KEEP: &str = "INSERT INTO checkpoints (log, size, frontier, note) VALUES (?1, ?2, ?3, ?4)";

/// Every log, with its end.
pub(crate) struct ListAuditLogs;

impl StoreQuery for ListAuditLogs {
    type Out = Vec<(NodeName, ChainHead)>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(LOGS, &[]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("nodes");
                let (log, size) = (row.parsed()?, row.count()?);
                let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
                Ok((log, ChainHead { size, hash: AuditHash(hash) }))
            })
            .collect()
    }
}

/// Entries of a log, starting at a position.
pub(crate) struct ListAuditEntries {
    pub log: NodeName,
    pub from: u64,
    pub limit: u32,
}

impl StoreQuery for ListAuditEntries {
    type Out = Vec<SealedAuditEntry>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(PAGE, &params![&self.log, self.from, self.limit]).await?.into_iter().map(decode_entry).collect()
    }
}

/// A checkpoint that was signed and stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// How many entries it covers.
    pub size: u64,
    /// The signed note.
    pub note: SignedNote,
    pub(crate) frontier: TreeFrontier,
}

/// Every checkpoint of a log, oldest first.
pub(crate) struct ListCheckpoints(pub NodeName);

impl StoreQuery for ListCheckpoints {
    type Out = Vec<SignedCheckpoint>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(CHECKPOINTS, &params![&self.0]).await?.into_iter().map(decode_checkpoint).collect()
    }
}

/// Checkpoints of a log that cover more than this many entries, the oldest first.
pub(crate) struct ListCheckpointsAfter {
    pub log: NodeName,
    pub size: u64,
    pub limit: u32,
}

impl StoreQuery for ListCheckpointsAfter {
    type Out = Vec<SignedCheckpoint>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let found = tx.rows(CHECKPOINTS_AFTER, &params![&self.log, self.size, self.limit]).await?;
        found.into_iter().map(decode_checkpoint).collect()
    }
}

impl Store {
    /// Every audit log, with its end.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn logs(&self) -> Result<Vec<(NodeName, ChainHead)>, StoreError> {
        self.ask(ListAuditLogs).await
    }

    /// Entries of an audit log, starting at a position.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn entries(&self, log: NodeName, from: u64, limit: u32) -> Result<Vec<SealedAuditEntry>, StoreError> {
        self.ask(ListAuditEntries { log, from, limit }).await
    }

    /// Every signed checkpoint of a log, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn checkpoints(&self, log: NodeName) -> Result<Vec<SignedCheckpoint>, StoreError> {
        self.ask(ListCheckpoints(log)).await
    }

    /// The newest signed checkpoint of a log. Signers start from it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn last_checkpoint(&self, log: NodeName) -> Result<Option<SignedCheckpoint>, StoreError> {
        self.ask(GetLastCheckpoint(log)).await
    }

    /// This node's log as it is now, with proof that it only grew since its last checkpoint.
    ///
    /// # Errors
    /// When the log is damaged or cannot be read.
    pub async fn prepare_checkpoint(&self) -> Result<UnsignedCheckpoint, StoreError> {
        self.ask(PrepareCheckpoint { log: self.node.clone(), to: None }).await
    }

    /// Stores a signed checkpoint. Only after that may it be shown to anyone.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn keep_checkpoint(&self, grown: UnsignedCheckpoint, note: SignedNote) -> Result<(), StoreError> {
        let keep = KeepCheckpoint { grown, note };
        if keep.is_of(&self.node) { self.submit(keep).await } else { self.stop_lane().submit(keep).await }
    }

    /// The proof that an entry is in a log; `None` while no checkpoint covers it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn prove(&self, log: NodeName, seq: u64) -> Result<Option<AuditEntryProof>, StoreError> {
        self.ask(ProveEntry { log, seq }).await
    }

    /// Signed checkpoints of a log that cover more than this many entries, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn checkpoints_after(
        &self,
        log: NodeName,
        size: u64,
        limit: u32,
    ) -> Result<Vec<SignedCheckpoint>, StoreError> {
        self.ask(ListCheckpointsAfter { log, size, limit }).await
    }
}

/// The newest checkpoint of a log.
pub(crate) struct GetLastCheckpoint(pub NodeName);

impl StoreQuery for GetLastCheckpoint {
    type Out = Option<SignedCheckpoint>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(LAST_CHECKPOINT, &params![&self.0]).await?.into_iter().next().map(decode_checkpoint).transpose()
    }
}

/// A log that grew since its last checkpoint, ready to be signed and stored.
#[derive(Debug, Clone)]
pub struct UnsignedCheckpoint {
    /// What the signer checks.
    pub growth: LogGrowth,
    log: NodeName,
    frontier: TreeFrontier,
    inner: Vec<(u8, u64, AuditHash)>,
}

/// Grows the tree from the last checkpoint to the end of the log, or to an earlier size.
pub(crate) struct PrepareCheckpoint {
    pub log: NodeName,
    pub to: Option<u64>,
}

impl StoreQuery for PrepareCheckpoint {
    type Out = UnsignedCheckpoint;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<UnsignedCheckpoint, StoreError> {
        let log = &self.log;
        let last = GetLastCheckpoint(log.clone()).run(tx).await?;
        let row = tx.rows(HEAD, &params![log]).await?.into_iter().next();
        let mut row = row.ok_or(StoreError::NotFound { what: "log" })?.of("nodes");
        let size = row.count()?;
        let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
        let mut head = ChainHead { size, hash: AuditHash(hash) };
        if let Some(to) = self.to.filter(|to| (1..size).contains(to)) {
            let hash = hashes(tx, LEAVES, params![log, to - 1, to]).await?.pop();
            let hash =
                hash.ok_or_else(|| StoreError::Damaged { detail: "an entry that was signed is missing".into() })?;
            head = ChainHead { size: to, hash };
        }

        let (signed, mut frontier) = last.map_or((0, TreeFrontier::new()), |last| (last.size, last.frontier));
        let leaves = hashes(tx, LEAVES, params![log, signed, head.size]).await?;
        let mut inner = Vec::new();
        for leaf in &leaves {
            frontier.append(*leaf, |level, place, hash| inner.push((level, place, hash)));
        }
        if frontier.size() != head.size {
            return Err(StoreError::Damaged { detail: "the log has fewer entries than its head says".into() });
        }
        let root = frontier.root();
        let fresh = NewTreeHashes { from: signed, leaves: &leaves, inner: &inner };
        let growth = build_proof(tx, log, &fresh, |nodes| LogGrowth::prove(nodes, signed, head, root)).await?;
        Ok(UnsignedCheckpoint { growth, log: log.clone(), frontier, inner })
    }
}

/// Stores a signed checkpoint with the nodes it completed.
pub(crate) struct KeepCheckpoint {
    pub grown: UnsignedCheckpoint,
    pub note: SignedNote,
}

impl KeepCheckpoint {
    /// Whether it is a checkpoint of this log.
    pub fn is_of(&self, log: &NodeName) -> bool {
        self.grown.log == *log
    }
}

impl UseCase for KeepCheckpoint {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let UnsignedCheckpoint { log, frontier, inner, .. } = &self.grown;
        // A node signs only its own log; a log has one signer.
        if log != unit.node {
            return Err(StoreError::Conflict);
        }
        // The leaves are the entries themselves.
        for (level, place, hash) in inner.iter().filter(|(level, ..)| *level > 0) {
            unit.write(KEEP_INNER, params![log, i64::from(*level), *place, *hash]);
        }
        let peaks = serde_json::json!(frontier).to_string();
        unit.write(KEEP, params![log, frontier.size(), peaks, self.note.to_string()]);
        Ok(())
    }
}

/// The proof that an entry is in the log, under the oldest checkpoint that covers it.
pub(crate) struct ProveEntry {
    pub log: NodeName,
    pub seq: u64,
}

impl StoreQuery for ProveEntry {
    type Out = Option<AuditEntryProof>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<AuditEntryProof>, StoreError> {
        let covering = tx.rows(COVERING, &params![&self.log, self.seq]).await?.into_iter().next();
        let Some(checkpoint) = covering.map(decode_checkpoint).transpose()? else { return Ok(None) };
        let (from, limit) = (self.seq.saturating_sub(1), if self.seq == 0 { 1 } else { 2 });
        let mut page = ListAuditEntries { log: self.log.clone(), from, limit }.run(tx).await?;
        // Without the previous entry, because that was archived, the page may reach too far.
        page.retain(|entry| entry.seq <= self.seq);
        let Some(entry) = page.pop().filter(|entry| entry.seq == self.seq) else { return Ok(None) };
        let before = match page.pop() {
            Some(entry) => entry.hash,
            // The first entry follows the start of the log, or the archived part.
            None => match archive::GetPrunedLog(self.log.clone()).run(tx).await? {
                Some(pruned) => pruned.start.head,
                None => ChainHead::genesis(&self.log).hash,
            },
        };
        let fresh = NewTreeHashes { from: 0, leaves: &[], inner: &[] };
        let path =
            build_proof(tx, &self.log, &fresh, |nodes| tree::inclusion_proof(nodes, self.seq, checkpoint.size)).await?;
        Ok(Some(AuditEntryProof { index: self.seq, before, body: entry.body, path, checkpoint: checkpoint.note }))
    }
}

/// Hashes that are not in the database yet, or that were already read.
pub(crate) struct NewTreeHashes<'a> {
    pub from: u64,
    pub leaves: &'a [AuditHash],
    pub inner: &'a [(u8, u64, AuditHash)],
}

/// The hashes that a proof needs. The first pass only notes which ones: the shape of a proof does not depend on the
/// hashes, so the second pass asks for exactly the same.
#[derive(Default)]
pub(crate) struct ProofHashCache {
    asked: RefCell<Vec<(u8, Range<u64>)>>,
    found: HashMap<(u8, u64), AuditHash>,
    is_dry: bool,
}

impl KeptHashSource for &ProofHashCache {
    fn kept_hashes(&self, level: u8, range: Range<u64>) -> Option<Vec<AuditHash>> {
        if self.is_dry {
            self.asked.borrow_mut().push((level, range.clone()));
            return Some(range.map(|_| AuditHash([0; 32])).collect());
        }
        range.map(|place| self.found.get(&(level, place)).copied()).collect()
    }
}

pub(crate) async fn build_proof<T: StoreTx, Out>(
    tx: &mut T,
    log: &NodeName,
    fresh: &NewTreeHashes<'_>,
    prove: impl Fn(&SparseTree<&ProofHashCache>) -> Result<Out, TreeError>,
) -> Result<Out, StoreError> {
    let broken = |_: TreeError| StoreError::Damaged { detail: "a node of the audit tree is missing".into() };
    let mut shelf = ProofHashCache { is_dry: true, ..ProofHashCache::default() };
    prove(&SparseTree(&shelf)).map_err(broken)?;
    let asked = shelf.asked.take();
    shelf.is_dry = false;
    for (place, leaf) in (fresh.from..).zip(fresh.leaves) {
        shelf.found.insert((0, place), *leaf);
    }
    shelf.found.extend(fresh.inner.iter().map(|(level, place, hash)| ((*level, *place), *hash)));
    for (level, range) in asked {
        if range.clone().all(|place| shelf.found.contains_key(&(level, place))) {
            continue;
        }
        let mut question = params![log, range.start, range.end];
        let sql = if level == 0 {
            LEAVES
        } else {
            question.push(SqlValue::Int(i64::from(level)));
            INNER
        };
        let read = hashes(tx, sql, question).await?;
        shelf.found.extend(range.zip(read).map(|(place, hash)| ((level, place), hash)));
    }
    prove(&SparseTree(&shelf)).map_err(broken)
}

pub(crate) async fn hashes<T: StoreTx>(
    tx: &mut T,
    sql: &'static str,
    params: Vec<SqlValue>,
) -> Result<Vec<AuditHash>, StoreError> {
    let rows = tx.rows(sql, &params).await?;
    rows.into_iter()
        .map(|row| {
            let mut row = row.of("audit_entries");
            let bytes = row.blob()?;
            bytes.try_into().map(AuditHash).map_err(|_| row.impossible("a hash does not have 32 bytes"))
        })
        .collect()
}

pub(crate) fn decode_entry(row: SqlRow) -> Result<SealedAuditEntry, StoreError> {
    let mut row = row.of("audit_entries");
    let seq = row.count()?;
    let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
    Ok(SealedAuditEntry { seq, hash: AuditHash(hash), body: packed::unpack(row.blob()?) })
}

pub(crate) fn decode_checkpoint(row: SqlRow) -> Result<SignedCheckpoint, StoreError> {
    let mut row = row.of("checkpoints");
    let (size, peaks, note) = (row.count()?, row.text()?, row.text()?);
    let frontier: TreeFrontier = serde_json::from_str(&peaks).map_err(|_| row.impossible("an invalid frontier"))?;
    let note = SignedNote::parse(note.as_bytes()).map_err(|_| row.impossible("an invalid note"))?;
    if frontier.size() != size {
        return Err(row.impossible("a frontier of another size"));
    }
    Ok(SignedCheckpoint { size, note, frontier })
}
