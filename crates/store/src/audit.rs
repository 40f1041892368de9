//! The record as rows: reading it back, and the tree over it that checkpoints are signed over.
//!
//! Entries are appended by the desk; here they are only read. Checkpoints are prepared here (the tree
//! grown, the proofs made), signed by whoever has the key, and kept here with the inner nodes that
//! became complete, so that any entry can be proven with a few hundred hashes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use sluice_core::NodeName;
use sluice_core::audit::checkpoint::Growth;
use sluice_core::audit::note::Note;
use sluice_core::audit::prove::Proof;
use sluice_core::audit::tree::{self, Frontier, Kept, Sparse, TreeError};
use sluice_core::audit::{Hash, Head, Sealed};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::packed;
use crate::sql::{Row, Tx, Val, params};

const LOGS: &str = "SELECT node, log_size, log_hash FROM nodes ORDER BY node";
const PAGE: &str = "SELECT seq, hash, body FROM audit_entries WHERE log = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3";
const HEAD: &str = "SELECT log_size, log_hash FROM nodes WHERE node = ?1";
const LEAVES: &str = "SELECT hash FROM audit_entries WHERE log = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq";
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

/// Every log there is, with its end.
pub(crate) struct Logs;

impl Query for Logs {
    type Out = Vec<(NodeName, Head)>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(LOGS, &[]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("nodes");
                let (log, size) = (row.parsed()?, row.count()?);
                let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
                Ok((log, Head { size, hash: Hash(hash) }))
            })
            .collect()
    }
}

/// Entries of a log from a place on.
pub(crate) struct Page {
    pub log: NodeName,
    pub from: u64,
    pub limit: u32,
}

impl Query for Page {
    type Out = Vec<Sealed>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(PAGE, &params![&self.log, self.from, self.limit]).await?.into_iter().map(entry).collect()
    }
}

/// A checkpoint that was signed and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// How many entries it covers.
    pub size: u64,
    /// The signed note.
    pub note: Note,
    frontier: Frontier,
}

/// Every checkpoint of a log, oldest first.
pub(crate) struct Checkpoints(pub NodeName);

impl Query for Checkpoints {
    type Out = Vec<Signed>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(CHECKPOINTS, &params![&self.0]).await?.into_iter().map(signed).collect()
    }
}

/// Checkpoints of a log that cover more than so many entries, the oldest first.
pub(crate) struct CheckpointsAfter {
    pub log: NodeName,
    pub size: u64,
    pub limit: u32,
}

impl Query for CheckpointsAfter {
    type Out = Vec<Signed>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let found = tx.rows(CHECKPOINTS_AFTER, &params![&self.log, self.size, self.limit]).await?;
        found.into_iter().map(signed).collect()
    }
}

impl Store {
    /// Every audit log, with its end.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn logs(&self) -> Result<Vec<(NodeName, Head)>, StoreError> {
        self.ask(Logs).await
    }

    /// Entries of an audit log from a place on.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn entries(&self, log: NodeName, from: u64, limit: u32) -> Result<Vec<Sealed>, StoreError> {
        self.ask(Page { log, from, limit }).await
    }

    /// Every signed checkpoint of a log, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn checkpoints(&self, log: NodeName) -> Result<Vec<Signed>, StoreError> {
        self.ask(Checkpoints(log)).await
    }

    /// The newest signed checkpoint of a log. A signer starts from it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn last_checkpoint(&self, log: NodeName) -> Result<Option<Signed>, StoreError> {
        self.ask(LastCheckpoint(log)).await
    }

    /// This node's log as it is now, with proof that it only grew since its last checkpoint.
    ///
    /// # Errors
    /// When the log is damaged or cannot be read.
    pub async fn grown(&self) -> Result<Grown, StoreError> {
        self.ask(Grow { log: self.node.clone(), to: None }).await
    }

    /// Keeps a checkpoint that was signed. Only then may it be shown to anyone.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn checkpointed(&self, grown: Grown, note: Note) -> Result<(), StoreError> {
        let keep = Keep { grown, note };
        if keep.is_of(&self.node) { self.submit(keep).await } else { self.stop_lane().submit(keep).await }
    }

    /// The proof that an entry is in a log; nothing while no checkpoint covers it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn prove(&self, log: NodeName, seq: u64) -> Result<Option<Proof>, StoreError> {
        self.ask(Prove { log, seq }).await
    }

    /// Signed checkpoints of a log that cover more than so many entries, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn checkpoints_after(&self, log: NodeName, size: u64, limit: u32) -> Result<Vec<Signed>, StoreError> {
        self.ask(CheckpointsAfter { log, size, limit }).await
    }
}

/// The newest checkpoint of a log.
pub(crate) struct LastCheckpoint(pub NodeName);

impl Query for LastCheckpoint {
    type Out = Option<Signed>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(LAST_CHECKPOINT, &params![&self.0]).await?.into_iter().next().map(signed).transpose()
    }
}

/// A log grown since its last checkpoint, ready to be signed and then kept.
#[derive(Debug, Clone)]
pub struct Grown {
    /// What the signer wants to see.
    pub growth: Growth,
    log: NodeName,
    frontier: Frontier,
    inner: Vec<(u8, u64, Hash)>,
}

/// Grows the tree from the last checkpoint to the end of the log, or to an earlier size.
pub(crate) struct Grow {
    pub log: NodeName,
    pub to: Option<u64>,
}

impl Query for Grow {
    type Out = Grown;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Grown, StoreError> {
        let log = &self.log;
        let last = LastCheckpoint(log.clone()).run(tx).await?;
        let row = tx.rows(HEAD, &params![log]).await?.into_iter().next();
        let mut row = row.ok_or(StoreError::NotFound { what: "log" })?.of("nodes");
        let size = row.count()?;
        let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
        let mut head = Head { size, hash: Hash(hash) };
        if let Some(to) = self.to.filter(|to| (1..size).contains(to)) {
            let hash = hashes(tx, LEAVES, params![log, to - 1, to]).await?.pop();
            let hash =
                hash.ok_or_else(|| StoreError::Damaged { detail: "an entry that was signed is missing".into() })?;
            head = Head { size: to, hash };
        }

        let (signed, mut frontier) = last.map_or((0, Frontier::new()), |last| (last.size, last.frontier));
        let leaves = hashes(tx, LEAVES, params![log, signed, head.size]).await?;
        let mut inner = Vec::new();
        for leaf in &leaves {
            frontier.append(*leaf, |level, place, hash| inner.push((level, place, hash)));
        }
        if frontier.size() != head.size {
            return Err(StoreError::Damaged { detail: "the log has fewer entries than its head says".into() });
        }
        let root = frontier.root();
        let fresh = Fresh { from: signed, leaves: &leaves, inner: &inner };
        let growth = proven(tx, log, &fresh, |nodes| Growth::prove(nodes, signed, head, root)).await?;
        Ok(Grown { growth, log: log.clone(), frontier, inner })
    }
}

/// Keeps a signed checkpoint with the nodes it completed.
pub(crate) struct Keep {
    pub grown: Grown,
    pub note: Note,
}

impl Keep {
    /// Whether it is a checkpoint of this log.
    pub fn is_of(&self, log: &NodeName) -> bool {
        self.grown.log == *log
    }
}

impl UseCase for Keep {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let Grown { log, frontier, inner, .. } = &self.grown;
        // A node of the simulation signs for itself only; a log has one signer.
        if log != desk.node {
            return Err(StoreError::Conflict);
        }
        // Leaves are in the entries.
        for (level, place, hash) in inner.iter().filter(|(level, ..)| *level > 0) {
            desk.write(KEEP_INNER, params![log, i64::from(*level), *place, *hash]);
        }
        let peaks = serde_json::json!(frontier).to_string();
        desk.write(KEEP, params![log, frontier.size(), peaks, self.note.to_string()]);
        Ok(())
    }
}

/// The proof that an entry is in the log, under the oldest checkpoint that covers it.
pub(crate) struct Prove {
    pub log: NodeName,
    pub seq: u64,
}

impl Query for Prove {
    type Out = Option<Proof>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Proof>, StoreError> {
        let covering = tx.rows(COVERING, &params![&self.log, self.seq]).await?.into_iter().next();
        let Some(checkpoint) = covering.map(signed).transpose()? else { return Ok(None) };
        let (from, limit) = (self.seq.saturating_sub(1), if self.seq == 0 { 1 } else { 2 });
        let mut page = Page { log: self.log.clone(), from, limit }.run(tx).await?;
        let Some(entry) = page.pop().filter(|entry| entry.seq == self.seq) else { return Ok(None) };
        let before = page.pop().map_or_else(|| Head::genesis(&self.log).hash, |entry| entry.hash);
        let fresh = Fresh { from: 0, leaves: &[], inner: &[] };
        let path =
            proven(tx, &self.log, &fresh, |nodes| tree::inclusion_proof(nodes, self.seq, checkpoint.size)).await?;
        Ok(Some(Proof { index: self.seq, before, body: entry.body, path, checkpoint: checkpoint.note }))
    }
}

/// Hashes that are not in the database yet, or were read anyway.
pub(crate) struct Fresh<'a> {
    pub from: u64,
    pub leaves: &'a [Hash],
    pub inner: &'a [(u8, u64, Hash)],
}

/// What a proof asks for, and what it gets. The first pass only notes the questions: a proof's shape
/// does not depend on the hashes, so the second pass asks for exactly the same.
#[derive(Default)]
pub(crate) struct Shelf {
    asked: RefCell<Vec<(u8, Range<u64>)>>,
    found: HashMap<(u8, u64), Hash>,
    is_dry: bool,
}

impl Kept for &Shelf {
    fn kept(&self, level: u8, range: Range<u64>) -> Option<Vec<Hash>> {
        if self.is_dry {
            self.asked.borrow_mut().push((level, range.clone()));
            return Some(range.map(|_| Hash([0; 32])).collect());
        }
        range.map(|place| self.found.get(&(level, place)).copied()).collect()
    }
}

pub(crate) async fn proven<T: Tx, Out>(
    tx: &mut T,
    log: &NodeName,
    fresh: &Fresh<'_>,
    prove: impl Fn(&Sparse<&Shelf>) -> Result<Out, TreeError>,
) -> Result<Out, StoreError> {
    let broken = |_: TreeError| StoreError::Damaged { detail: "a node of the audit tree is missing".into() };
    let mut shelf = Shelf { is_dry: true, ..Shelf::default() };
    prove(&Sparse(&shelf)).map_err(broken)?;
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
            question.push(Val::Int(i64::from(level)));
            INNER
        };
        let read = hashes(tx, sql, question).await?;
        shelf.found.extend(range.zip(read).map(|(place, hash)| ((level, place), hash)));
    }
    prove(&Sparse(&shelf)).map_err(broken)
}

async fn hashes<T: Tx>(tx: &mut T, sql: &'static str, params: Vec<Val>) -> Result<Vec<Hash>, StoreError> {
    let rows = tx.rows(sql, &params).await?;
    rows.into_iter()
        .map(|row| {
            let mut row = row.of("audit_entries");
            let bytes = row.blob()?;
            bytes.try_into().map(Hash).map_err(|_| row.impossible("a hash does not have 32 bytes"))
        })
        .collect()
}

pub(crate) fn entry(row: Row) -> Result<Sealed, StoreError> {
    let mut row = row.of("audit_entries");
    let seq = row.count()?;
    let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
    Ok(Sealed { seq, hash: Hash(hash), body: packed::unpack(row.blob()?) })
}

fn signed(row: Row) -> Result<Signed, StoreError> {
    let mut row = row.of("checkpoints");
    let (size, peaks, note) = (row.count()?, row.text()?, row.text()?);
    let frontier: Frontier = serde_json::from_str(&peaks).map_err(|_| row.impossible("a frontier that is none"))?;
    let note = Note::parse(note.as_bytes()).map_err(|_| row.impossible("a note that is none"))?;
    if frontier.size() != size {
        return Err(row.impossible("a frontier of another size"));
    }
    Ok(Signed { size, note, frontier })
}
