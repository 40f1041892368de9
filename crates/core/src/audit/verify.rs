//! The offline verifier: is this export the log that was signed?
//!
//! Takes the three files of an export and, from elsewhere, a key or a checkpoint the caller trusts;
//! gives a [`VerificationReport`], or the first [`AuditFault`]. Promise: what the report calls covered is, entry
//! for entry, what a checkpoint was signed over; entries after the last checkpoint are reported as
//! chained only. Memory is bounded, whatever the files contain.
//!
//! The file is checked in two ways. The fast way checks chunks of lines on several threads: an entry needs
//! only the hash before it, which is in the line above. This way only confirms. At the first
//! chunk that is not entirely valid, `walk` takes over, line by line, and says what is wrong.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead};
use std::num::NonZero;
use std::sync::mpsc;

use super::AuditHash;
use super::checkpoint;
use super::export::{AuditExportHeader, AuditLogParseError};
use super::key::VerifierKey;
use super::tree::{TreeFrontier, TreeHead};
use crate::ids::NodeName;

mod checkpoints;
mod chunk;
mod faults;
mod line;
mod line_by_line;

use checkpoints::{CheckpointQueue, UncheckedCheckpoint};
use chunk::{CheckedChunk, ChunkJob, ChunkReader};
use line::EntryLineFormat;
use line_by_line::RejoinedReader;

/// The files of an export.
#[derive(Debug)]
pub struct AuditExport<'a, E, C> {
    /// `log.json`.
    pub log: &'a [u8],
    /// `entries.jsonl`.
    pub entries: E,
    /// `checkpoints.txt`.
    pub checkpoints: C,
}

/// What the caller knows from elsewhere. Without any of it, an export can only be checked against itself.
#[derive(Debug, Clone, Default)]
pub struct VerifierTrust {
    /// The log's key, learnt when it was made. Checkpoints must be signed with it.
    pub key: Option<VerifierKey>,
    /// Signed checkpoints kept elsewhere: the log must contain what they were signed over.
    pub anchors: Vec<super::note::SignedNote>,
    /// How many threads check; one for each processor unless given.
    pub threads: Option<NonZero<usize>>,
}

/// What the verifier confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerificationReport {
    /// Which log.
    pub log: NodeName,
    /// Place of the first exported entry: 0 unless the log was pruned.
    pub first: u64,
    /// Number of exported entries. All of them are chained to one another.
    pub entries: u64,
    /// How many of them a checkpoint covers.
    pub covered: u64,
    /// How many come after the last checkpoint. Anyone who can write the file can have made them up.
    pub uncovered: u64,
    /// Number of checkpoints that hold.
    pub checkpoints: u64,
    /// Hash of the last entry.
    pub head: AuditHash,
    /// All entries as a tree.
    pub tree: TreeHead,
    /// The key the checkpoints are signed with.
    pub key: VerifierKey,
    /// Whether the caller named that key. If not, the export was only checked against itself.
    pub key_known: bool,
    /// How many entries the largest checkpoint from elsewhere covers.
    pub anchored: Option<u64>,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditFaultKind {
    /// Its body or its hash is not what was sealed, or another entry stands in its place.
    Changed,
    /// It is not there, and later ones are.
    Missing,
    /// A line stands in its place that does not belong to the log; the entry itself follows.
    Inserted,
    /// Another entry stands in its place; the entry itself comes later.
    Reordered,
    /// It and all entries after it are missing.
    Truncated,
    /// The chain holds, and a checkpoint was signed over other entries.
    Forked,
    /// A checkpoint is not signed by the log's key.
    Signature,
    /// A line or a checkpoint is not in its form.
    Malformed,
}

/// The first fault of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFault {
    /// The kind of fault.
    pub kind: AuditFaultKind,
    /// The first entry that is wrong; for a checkpoint, the number of entries it covers.
    pub seq: u64,
    /// The last entry it may be instead; the same as `seq` where the evidence names one entry.
    pub last: u64,
    /// The place that the line in its place claims.
    pub says: Option<u64>,
    /// The expected hash.
    pub expected: Option<AuditHash>,
    /// The hash that was found.
    pub found: Option<AuditHash>,
    /// Number of entries before it that a checkpoint covers; the others before it are chained only.
    pub covered: u64,
    /// The fault, in words.
    pub what: &'static str,
}

/// Why an export does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Something is wrong with it.
    #[error(transparent)]
    Fault(Box<AuditFault>),
    /// `log.json` does not say what this is.
    #[error(transparent)]
    Log(#[from] AuditLogParseError),
    /// A file cannot be read.
    #[error("the export cannot be read")]
    Read(#[from] io::Error),
}

impl AuditFaultKind {
    /// Stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Changed => "audit.changed",
            Self::Missing => "audit.missing",
            Self::Inserted => "audit.inserted",
            Self::Reordered => "audit.reordered",
            Self::Truncated => "audit.truncated",
            Self::Forked => "audit.forked",
            Self::Signature => "audit.signature",
            Self::Malformed => "audit.malformed",
        }
    }
}

impl VerifyError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fault(fault) => fault.kind.code(),
            Self::Log(error) => error.code(),
            Self::Read(_) => "audit.unreadable",
        }
    }

    /// The fault, if the error is one.
    #[must_use]
    pub fn fault(&self) -> Option<&AuditFault> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Log(_) | Self::Read(_) => None,
        }
    }
}

impl From<AuditFault> for VerifyError {
    fn from(fault: AuditFault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

impl fmt::Display for AuditFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, seq, last, says, expected, found, covered, what } = self;
        write!(f, "{}: entry {seq}", kind.code())?;
        if last > seq {
            write!(f, " or one up to {last}")?;
        }
        write!(f, ": {what}")?;
        says.filter(|says| says != seq).map_or(Ok(()), |says| write!(f, "; the line says it is entry {says}"))?;
        expected.map_or(Ok(()), |hash| write!(f, "; expected {hash}"))?;
        found.map_or(Ok(()), |hash| write!(f, "; found {hash}"))?;
        write!(f, "; a checkpoint covers the first {covered}")
    }
}

impl std::error::Error for AuditFault {}

/// Verifies an export.
///
/// # Errors
/// With the first fault; or when a file cannot be read, or `log.json` is not in its form.
pub fn verify<E: BufRead, C: BufRead>(
    export: AuditExport<'_, E, C>,
    trust: &VerifierTrust,
) -> Result<VerificationReport, VerifyError> {
    let log = AuditExportHeader::parse(export.log)?;
    let mut sofar = VerifiedPrefix::new(&log);
    if let Some(known) = trust.key.as_ref().filter(|known| **known != log.key) {
        let what = if known.name() == log.key.name() {
            "`log.json` has another key than the log"
        } else {
            "the key given belongs to another log"
        };
        return Err(sofar.fault(AuditFaultKind::Signature, what).into());
    }
    let check = VerifyContext {
        shape: EntryLineFormat::new(&log.log),
        origin: checkpoint::origin(&log.log),
        keys: vec![log.key.clone()],
    };
    let mut marks = CheckpointQueue::new(export.checkpoints, &trust.anchors, &check)?;
    marks.skip_before(&mut sofar, &check)?;

    let cores = || std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let threads = trust.threads.unwrap_or_else(cores).get();
    let mut chunks = ChunkReader::new(export.entries, sofar.head);
    let rest = std::thread::scope(|scope| {
        let lanes = if threads > 1 {
            (0..threads).map_while(|_| ChunkChecker::open(scope, &check)).collect()
        } else {
            Vec::new()
        };
        stream(&lanes, &mut chunks, &mut marks, &mut sofar, &check)
    })?;
    // What is left is either nothing or begins with the chunk that is not as it should be.
    let (parts, early) = rest;
    marks.put_back(early);
    let entries = RejoinedReader::new(parts, chunks.into_reader());
    line_by_line::finish(entries, marks, sofar, &check, &log).map(|sofar| sofar.report(&log, trust))
}

/// What every line and checkpoint is checked against.
struct VerifyContext {
    shape: EntryLineFormat,
    origin: String,
    keys: Vec<VerifierKey>,
}

/// Everything known of the log up to some entry.
struct VerifiedPrefix {
    first: u64,
    frontier: TreeFrontier,
    head: AuditHash,
    /// The hash before `head`, where there is one in this export.
    before: Option<AuditHash>,
    covered: u64,
    checkpoints: u64,
    anchored: Option<u64>,
}

impl VerifiedPrefix {
    fn new(log: &AuditExportHeader) -> Self {
        let start = log.head_before_export();
        let frontier = log.start.as_ref().map_or_else(TreeFrontier::new, |start| start.frontier.clone());
        Self { first: start.size, frontier, head: start.hash, before: None, covered: 0, checkpoints: 0, anchored: None }
    }

    /// Number of entries so far, and so the place of the next.
    const fn size(&self) -> u64 {
        self.frontier.size()
    }

    fn tree(&self) -> TreeHead {
        TreeHead { size: self.size(), root: self.frontier.root() }
    }

    fn push(&mut self, hash: AuditHash) {
        self.frontier.push(hash);
        self.before = Some(std::mem::replace(&mut self.head, hash));
    }

    /// Notes a checkpoint that holds for everything so far.
    fn cover(&mut self, mark: &UncheckedCheckpoint) {
        self.covered = mark.size();
        self.checkpoints += u64::from(!mark.anchor);
        if mark.anchor {
            self.anchored = Some(mark.size());
        }
    }

    /// A fault at the next entry.
    fn fault(&self, kind: AuditFaultKind, what: &'static str) -> AuditFault {
        let seq = self.size();
        AuditFault { kind, seq, last: seq, says: None, expected: None, found: None, covered: self.covered, what }
    }

    /// Takes over the findings of a chunk; `false`, and nothing done, when the chunk does not continue the log.
    fn accept(&mut self, job: &ChunkJob, done: &chunk::ChunkContents) -> bool {
        let mut next = Self { frontier: self.frontier.clone(), ..*self };
        if job.before != Some(self.head) || job.first != self.size() {
            return false;
        }
        for (stretch, mark) in done.stretches.iter().zip(job.marks.iter().map(Some).chain([None])) {
            if !stretch.subtrees.iter().all(|(level, root)| next.frontier.push_subtree(*level, *root)) {
                return false;
            }
            next.head = stretch.head;
            if let Some(mark) = mark {
                if mark.checkpoint.tree != next.tree() || mark.checkpoint.head != next.head {
                    return false;
                }
                next.cover(mark);
            }
        }
        next.before = Some(done.before);
        *self = next;
        true
    }

    fn report(self, log: &AuditExportHeader, trust: &VerifierTrust) -> VerificationReport {
        let (first, size) = (self.first, self.size());
        let covered = self.covered.saturating_sub(first);
        VerificationReport {
            log: log.log.clone(),
            first,
            entries: size - first,
            covered,
            uncovered: size - first - covered,
            checkpoints: self.checkpoints,
            head: self.head,
            tree: self.tree(),
            key: log.key.clone(),
            key_known: trust.key.is_some(),
            anchored: self.anchored,
        }
    }
}

/// One thread with the channels to and from it. Jobs come back in the order they went.
struct ChunkChecker {
    jobs: mpsc::SyncSender<ChunkJob>,
    done: mpsc::Receiver<CheckedChunk>,
}

impl ChunkChecker {
    /// Jobs on the way per lane: one being checked and one waiting, so that no thread waits for the reader.
    const DEPTH: usize = 2;

    /// `None` where the system gives us no more threads.
    fn open<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, check: &'scope VerifyContext) -> Option<Self> {
        let (jobs, inbox) = mpsc::sync_channel::<ChunkJob>(Self::DEPTH);
        let (outbox, done) = mpsc::channel();
        let work = move || inbox.into_iter().map(|job| job.check(check)).all(|done| outbox.send(done).is_ok());
        std::thread::Builder::new().name("audit-verify".into()).spawn_scoped(scope, work).ok()?;
        Some(Self { jobs, done })
    }
}

/// Chunks that were read and not taken over, and the checkpoints set aside for them.
type UncheckedRemainder = (VecDeque<Vec<u8>>, Vec<UncheckedCheckpoint>);

/// Checks chunk after chunk while all are valid. The rest is left for the slow way.
fn stream<E: BufRead, C: BufRead>(
    lanes: &[ChunkChecker],
    chunks: &mut ChunkReader<E>,
    marks: &mut CheckpointQueue<C>,
    sofar: &mut VerifiedPrefix,
    check: &VerifyContext,
) -> Result<UncheckedRemainder, VerifyError> {
    let gone = || io::Error::other("a thread of the verifier ended early");
    let mut flying = VecDeque::new();
    let mut ring = lanes.iter().cycle();
    let mut more = true;
    loop {
        while more && flying.len() < (lanes.len() * ChunkChecker::DEPTH).max(1) {
            let Some(job) = chunks.next_job(marks, check)? else {
                more = false;
                break;
            };
            match ring.next() {
                None => flying.push_back(PendingChunk::Back(job.check(check))),
                Some(lane) => {
                    lane.jobs.send(job).map_err(|_| gone())?;
                    flying.push_back(PendingChunk::Out(lane));
                }
            }
        }
        let Some(done) = flying.pop_front() else { return Ok((VecDeque::new(), Vec::new())) };
        let CheckedChunk { job, found } = done.wait().ok_or_else(gone)?;
        if found.is_some_and(|found| sofar.accept(&job, &found)) {
            chunks.reuse(job.bytes);
            continue;
        }
        let mut left = (VecDeque::from([job.bytes]), job.marks);
        for done in flying {
            let CheckedChunk { job, .. } = done.wait().ok_or_else(gone)?;
            left.0.push_back(job.bytes);
            left.1.extend(job.marks);
        }
        return Ok(left);
    }
}

/// A job that was handed out.
enum PendingChunk<'a> {
    Out(&'a ChunkChecker),
    Back(CheckedChunk),
}

impl PendingChunk<'_> {
    fn wait(self) -> Option<CheckedChunk> {
        match self {
            Self::Out(lane) => lane.done.recv().ok(),
            Self::Back(done) => Some(done),
        }
    }
}
