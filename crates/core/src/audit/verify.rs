//! The offline verifier: is this export the log that was signed?
//!
//! Takes the three files of an export and, from elsewhere, a key or a checkpoint the caller trusts;
//! gives a [`Report`], or the first [`Fault`]. Promise: whatever the report calls covered is, entry
//! for entry, what a checkpoint was signed over; what comes after the last checkpoint is said to be
//! chained only. Memory is bounded, whatever the files contain.
//!
//! Two ways through the file. Chunks of lines are checked on several threads: an entry needs only
//! the hash before it, and that stands in the line above. This way only ever says yes. At the first
//! chunk that is not entirely as it should be, `walk` takes over, line by line, and says what is wrong.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead};
use std::num::NonZero;
use std::sync::mpsc;

use super::Hash;
use super::checkpoint;
use super::export::{Log, NotLog};
use super::key::VerifierKey;
use super::tree::{Frontier, Tree};
use crate::ids::NodeName;

mod blame;
mod chunk;
mod line;
mod marks;
mod walk;

use chunk::{Chunks, Done, Job};
use line::Shape;
use marks::{Mark, Marks};
use walk::Rejoined;

/// The files of an export.
#[derive(Debug)]
pub struct Export<'a, E, C> {
    /// `log.json`.
    pub log: &'a [u8],
    /// `entries.jsonl`.
    pub entries: E,
    /// `checkpoints.txt`.
    pub checkpoints: C,
}

/// What the caller knows from elsewhere. Without any of it, an export can only be checked against itself.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// The log's key, learnt when it was made. Checkpoints must be signed with it.
    pub key: Option<VerifierKey>,
    /// Signed checkpoints kept elsewhere: the log must contain what they were signed over.
    pub anchors: Vec<super::note::Note>,
    /// How many threads check; one for each processor unless told.
    pub threads: Option<NonZero<usize>>,
}

/// What was found to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which log.
    pub log: NodeName,
    /// Place of the first exported entry: 0 unless the log was pruned.
    pub first: u64,
    /// Number of exported entries. All of them are chained to one another.
    pub entries: u64,
    /// How many of them a checkpoint covers.
    pub covered: u64,
    /// How many come after the last checkpoint. Whoever can write the file can have made them up.
    pub uncovered: u64,
    /// Number of checkpoints that hold.
    pub checkpoints: u64,
    /// Hash of the last entry.
    pub head: Hash,
    /// All entries as a tree.
    pub tree: Tree,
    /// The key the checkpoints are signed with.
    pub key: VerifierKey,
    /// Whether the caller named that key. If not, the export was only checked against itself.
    pub key_known: bool,
    /// How many entries the largest checkpoint from elsewhere covers.
    pub anchored: Option<u64>,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Its body or its hash is not what was sealed, or another entry stands in its place.
    Changed,
    /// It is not there, and later ones are.
    Missing,
    /// A line stands in its place that does not belong to the log; the entry itself follows.
    Inserted,
    /// Another entry stands in its place; the entry itself comes later.
    Reordered,
    /// It and all after it are not there.
    Truncated,
    /// The chain holds, and a checkpoint was signed over other entries.
    Forked,
    /// A checkpoint is not signed by the log's key.
    Signature,
    /// A line or a checkpoint is not in its form.
    Malformed,
}

/// The first thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// In what way.
    pub kind: Kind,
    /// The first entry that is wrong; for a checkpoint, the number of entries it covers.
    pub seq: u64,
    /// The last entry it may be instead; the same as `seq` where the evidence names one entry.
    pub last: u64,
    /// What the line in its place says its place is.
    pub says: Option<u64>,
    /// The hash there should be.
    pub expected: Option<Hash>,
    /// The hash there is.
    pub found: Option<Hash>,
    /// Number of entries before it that a checkpoint covers; the others before it are chained only.
    pub covered: u64,
    /// In words.
    pub what: &'static str,
}

/// Why an export does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Something is wrong with it.
    #[error(transparent)]
    Fault(Box<Fault>),
    /// `log.json` does not say what this is.
    #[error(transparent)]
    Log(#[from] NotLog),
    /// A file cannot be read.
    #[error("the export cannot be read")]
    Read(#[from] io::Error),
}

impl Kind {
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

    /// The fault, if that is what it is.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Log(_) | Self::Read(_) => None,
        }
    }
}

impl From<Fault> for VerifyError {
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

impl fmt::Display for Fault {
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

impl std::error::Error for Fault {}

/// Verifies an export.
///
/// # Errors
/// With the first fault; or when a file cannot be read, or `log.json` is not in its form.
pub fn verify<E: BufRead, C: BufRead>(export: Export<'_, E, C>, trust: &Trust) -> Result<Report, VerifyError> {
    let log = Log::parse(export.log)?;
    let mut sofar = Sofar::new(&log);
    if let Some(known) = trust.key.as_ref().filter(|known| **known != log.key) {
        let what = if known.name() == log.key.name() {
            "`log.json` has another key than the log"
        } else {
            "the key given is of another log"
        };
        return Err(sofar.fault(Kind::Signature, what).into());
    }
    let check =
        Check { shape: Shape::new(&log.log), origin: checkpoint::origin(&log.log), keys: vec![log.key.clone()] };
    let mut marks = Marks::new(export.checkpoints, &trust.anchors, &check)?;
    marks.skip_before(&mut sofar, &check)?;

    let cores = || std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let threads = trust.threads.unwrap_or_else(cores).get();
    let mut chunks = Chunks::new(export.entries, sofar.head);
    let rest = std::thread::scope(|scope| {
        let lanes =
            if threads > 1 { (0..threads).map_while(|_| Lane::open(scope, &check)).collect() } else { Vec::new() };
        stream(&lanes, &mut chunks, &mut marks, &mut sofar, &check)
    })?;
    // What is left is either nothing or begins with the chunk that is not as it should be.
    let (parts, early) = rest;
    marks.put_back(early);
    let entries = Rejoined::new(parts, chunks.into_reader());
    walk::finish(entries, marks, sofar, &check, &log).map(|sofar| sofar.report(&log, trust))
}

/// What every line and checkpoint is measured against.
struct Check {
    shape: Shape,
    origin: String,
    keys: Vec<VerifierKey>,
}

/// All that is known of the log up to some entry.
struct Sofar {
    first: u64,
    frontier: Frontier,
    head: Hash,
    /// The hash before `head`, where there is one in this export.
    before: Option<Hash>,
    covered: u64,
    checkpoints: u64,
    anchored: Option<u64>,
}

impl Sofar {
    fn new(log: &Log) -> Self {
        let start = log.before();
        let frontier = log.start.as_ref().map_or_else(Frontier::new, |start| start.frontier.clone());
        Self { first: start.size, frontier, head: start.hash, before: None, covered: 0, checkpoints: 0, anchored: None }
    }

    /// Number of entries so far, and so the place of the next.
    const fn size(&self) -> u64 {
        self.frontier.size()
    }

    fn tree(&self) -> Tree {
        Tree { size: self.size(), root: self.frontier.root() }
    }

    fn push(&mut self, hash: Hash) {
        self.frontier.push(hash);
        self.before = Some(std::mem::replace(&mut self.head, hash));
    }

    /// Notes a checkpoint that holds for everything so far.
    fn cover(&mut self, mark: &Mark) {
        self.covered = mark.size();
        self.checkpoints += u64::from(!mark.anchor);
        if mark.anchor {
            self.anchored = Some(mark.size());
        }
    }

    /// A fault at the next entry.
    fn fault(&self, kind: Kind, what: &'static str) -> Fault {
        let seq = self.size();
        Fault { kind, seq, last: seq, says: None, expected: None, found: None, covered: self.covered, what }
    }

    /// Takes over what a chunk was found to contain; `false`, and nothing done, when it does not fit on.
    fn accept(&mut self, job: &Job, done: &chunk::Found) -> bool {
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

    fn report(self, log: &Log, trust: &Trust) -> Report {
        let (first, size) = (self.first, self.size());
        let covered = self.covered.saturating_sub(first);
        Report {
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

/// One thread and the way to it and back. Jobs come back in the order they went.
struct Lane {
    jobs: mpsc::SyncSender<Job>,
    done: mpsc::Receiver<Done>,
}

impl Lane {
    /// Jobs on the way per lane: one being checked and one waiting, so that no thread waits for the reader.
    const DEPTH: usize = 2;

    /// Nothing where the system gives us no more threads.
    fn open<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, check: &'scope Check) -> Option<Self> {
        let (jobs, inbox) = mpsc::sync_channel::<Job>(Self::DEPTH);
        let (outbox, done) = mpsc::channel();
        let work = move || inbox.into_iter().map(|job| job.check(check)).all(|done| outbox.send(done).is_ok());
        std::thread::Builder::new().name("audit-verify".into()).spawn_scoped(scope, work).ok()?;
        Some(Self { jobs, done })
    }
}

/// Chunks that were read and not taken over, and the checkpoints set aside for them.
type Left = (VecDeque<Vec<u8>>, Vec<Mark>);

/// Checks chunk after chunk while all is well. What is left afterwards is for the slow way.
fn stream<E: BufRead, C: BufRead>(
    lanes: &[Lane],
    chunks: &mut Chunks<E>,
    marks: &mut Marks<C>,
    sofar: &mut Sofar,
    check: &Check,
) -> Result<Left, VerifyError> {
    let gone = || io::Error::other("a thread of the verifier ended early");
    let mut flying = VecDeque::new();
    let mut ring = lanes.iter().cycle();
    let mut more = true;
    loop {
        while more && flying.len() < (lanes.len() * Lane::DEPTH).max(1) {
            let Some(job) = chunks.next_job(marks, check)? else {
                more = false;
                break;
            };
            match ring.next() {
                None => flying.push_back(Flying::Back(job.check(check))),
                Some(lane) => {
                    lane.jobs.send(job).map_err(|_| gone())?;
                    flying.push_back(Flying::Out(lane));
                }
            }
        }
        let Some(done) = flying.pop_front() else { return Ok((VecDeque::new(), Vec::new())) };
        let Done { job, found } = done.land().ok_or_else(gone)?;
        if found.is_some_and(|found| sofar.accept(&job, &found)) {
            chunks.reuse(job.bytes);
            continue;
        }
        let mut left = (VecDeque::from([job.bytes]), job.marks);
        for done in flying {
            let Done { job, .. } = done.land().ok_or_else(gone)?;
            left.0.push_back(job.bytes);
            left.1.extend(job.marks);
        }
        return Ok(left);
    }
}

/// A job that was given out.
enum Flying<'a> {
    Out(&'a Lane),
    Back(Done),
}

impl Flying<'_> {
    fn land(self) -> Option<Done> {
        match self {
            Self::Out(lane) => lane.done.recv().ok(),
            Self::Back(done) => Some(done),
        }
    }
}
