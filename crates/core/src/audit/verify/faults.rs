//! Names a fault: which entry is wrong, and in what way.
//!
//! Takes the first line that does not continue the chain, and all that follows it. The places that
//! lines claim tell missing, inserted and moved entries apart. When the line claims the right place, the
//! next checkpoint decides: if its root matches the stated hashes, they are the signed ones
//! and only this body was changed; if it matches with this one hash recomputed, only this hash
//! was changed; if it matches neither and yet the chain from here on ends as signed, then the entries
//! before this one were rewritten.

use std::io::{self, BufRead};

use super::super::checkpoint::Checkpoint;
use super::super::tree::TreeFrontier;
use super::super::{AuditHash, leaf};
use super::checkpoints::CheckpointQueue;
use super::line::EntryLine;
use super::line_by_line::{BoundedLineReader, LineReadOutcome};
use super::{AuditFault, AuditFaultKind, VerifiedPrefix, VerifyContext};

/// A line that does not continue the chain.
pub(super) struct SuspectLine {
    pub(super) line: Vec<u8>,
    /// Number of entries the export is said to have.
    pub(super) size: u64,
}

/// The fault in it.
pub(super) fn diagnose<E: BufRead, C: BufRead>(
    suspect: &SuspectLine,
    lines: &mut BoundedLineReader<E>,
    marks: &mut CheckpointQueue<C>,
    sofar: &VerifiedPrefix,
    check: &VerifyContext,
) -> io::Result<AuditFault> {
    let parsed = check.shape.parse(&suspect.line);
    let signed = marks.take_up_to(u64::MAX, check)?.filter(|mark| mark.is_signed(check)).map(|mark| mark.checkpoint);
    let ahead = LineLookahead::look(lines, parsed.as_ref().ok(), signed.as_ref(), sofar, check)?;
    Ok(match parsed {
        Err(what) => {
            let kind = if ahead.resumes.is_some() { AuditFaultKind::Inserted } else { AuditFaultKind::Malformed };
            AuditFault { expected: ahead.resumes, ..sofar.fault(kind, what) }
        }
        Ok(line) if line.seq == sofar.size() => in_place(&line, &ahead, sofar),
        Ok(line) => out_of_place(&line, &ahead, sofar, suspect.size),
    })
}

/// The line claims the right place and does not continue the chain.
fn in_place(line: &EntryLine<'_>, ahead: &LineLookahead, sofar: &VerifiedPrefix) -> AuditFault {
    let (given, stated) = (leaf(&sofar.head, line.body), line.hash);
    let fault = |kind, what, expected, found| {
        let base = sofar.fault(kind, what);
        AuditFault { says: Some(line.seq), expected: Some(expected), found: Some(found), ..base }
    };
    if let Some(real) = ahead.resumes {
        return fault(AuditFaultKind::Inserted, "the entry itself is in the next line", real, stated);
    }
    match ahead.verdict {
        LineVerdict::Body => fault(AuditFaultKind::Changed, "its body is not the one that was signed", stated, given),
        LineVerdict::Hash => fault(AuditFaultKind::Changed, "its hash is not the one that was signed", given, stated),
        LineVerdict::Earlier if sofar.covered < line.seq => {
            let base = fault(
                AuditFaultKind::Forked,
                "entries before this chain's end as signed were rewritten",
                stated,
                given,
            );
            AuditFault { seq: sofar.covered.max(sofar.first), last: line.seq - 1, says: None, ..base }
        }
        LineVerdict::Earlier | LineVerdict::Open => {
            fault(AuditFaultKind::Changed, "its hash is not that of its body and the entry before", given, stated)
        }
    }
}

/// The line claims another place.
fn out_of_place(line: &EntryLine<'_>, ahead: &LineLookahead, sofar: &VerifiedPrefix, size: u64) -> AuditFault {
    let (here, says) = (sofar.size(), line.seq);
    let fault = |kind, what| AuditFault { says: Some(says), found: Some(line.hash), ..sofar.fault(kind, what) };
    // Two lines that both continue the entry before them.
    let twin = says + 1 == here && sofar.before.is_some_and(|before| leaf(&before, line.body) == line.hash);
    if twin && line.hash != sofar.head {
        let base = fault(AuditFaultKind::Inserted, "two lines claim this place");
        return AuditFault { seq: says, last: says, expected: Some(sofar.head), ..base };
    }
    let resumes =
        ahead.next == Some(here) && (ahead.after == Some(here + 1) || ahead.after.is_none() && says != here + 1);
    let counted = ahead.next.is_none() && here + 1 == size;
    if twin || resumes || here >= size {
        return fault(AuditFaultKind::Inserted, "the line does not belong here");
    }
    match (ahead.here_later, says < here || ahead.says_later) {
        (true, true) => fault(AuditFaultKind::Inserted, "the line does not belong here; the entry comes later"),
        (true, false) => fault(AuditFaultKind::Reordered, "the entry comes later"),
        (false, _) if ahead.next == Some(here + 1) || says < here || counted => {
            fault(AuditFaultKind::Changed, "another line stands in its place")
        }
        (false, _) => fault(AuditFaultKind::Missing, "the entry is nowhere in the export"),
    }
}

/// What the next checkpoint says about a line in the right place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineVerdict {
    /// The stated hashes are the signed ones.
    Body,
    /// The hashes are the signed ones once this line's hash is recomputed.
    Hash,
    /// The chain from this line on is the signed one; the entries before it are not.
    Earlier,
    /// The checkpoint decides nothing.
    Open,
}

/// What follows the line.
struct LineLookahead {
    /// The places the next two lines claim.
    next: Option<u64>,
    after: Option<u64>,
    /// The hash of the next line, if it is the entry that should be here.
    resumes: Option<AuditHash>,
    /// Whether a later line claims this place.
    here_later: bool,
    /// Whether a later line claims the place this line claims.
    says_later: bool,
    verdict: LineVerdict,
}

impl LineLookahead {
    fn look<E: BufRead>(
        lines: &mut BoundedLineReader<E>,
        suspect: Option<&EntryLine<'_>>,
        signed: Option<&Checkpoint>,
        sofar: &VerifiedPrefix,
        check: &VerifyContext,
    ) -> io::Result<Self> {
        let here = sofar.size();
        let mut ahead = Self {
            next: None,
            after: None,
            resumes: None,
            here_later: false,
            says_later: false,
            verdict: LineVerdict::Open,
        };
        let mut inquest =
            suspect.zip(signed).map(|(line, signed)| FaultInvestigation::open(line, signed.clone(), sofar));
        let mut number = 0_u64;
        loop {
            if let Some(verdict) = inquest.as_ref().and_then(FaultInvestigation::verdict) {
                ahead.verdict = verdict;
                inquest = None;
            }
            if !matches!(lines.next()?, LineReadOutcome::Line) {
                return Ok(ahead);
            }
            number += 1;
            let Ok(line) = check.shape.parse(&lines.line) else {
                inquest = None;
                continue;
            };
            match number {
                1 => {
                    ahead.next = Some(line.seq);
                    let real = line.seq == here && leaf(&sofar.head, line.body) == line.hash;
                    ahead.resumes = real.then_some(line.hash);
                }
                2 => ahead.after = Some(line.seq),
                _ => (),
            }
            ahead.here_later |= line.seq == here;
            ahead.says_later |= suspect.is_some_and(|suspect| suspect.seq == line.seq);
            if let Some(inquest) = &mut inquest {
                inquest.push_line(&line);
            }
        }
    }
}

/// The log continued up to the next checkpoint, in the two ways that a single change leaves open.
struct FaultInvestigation {
    signed: Checkpoint,
    as_stated: TreeFrontier,
    recomputed: TreeFrontier,
    /// The hash stated last, and whether every line since the suspect continues the one before.
    head: AuditHash,
    chained: bool,
}

impl FaultInvestigation {
    fn open(line: &EntryLine<'_>, signed: Checkpoint, sofar: &VerifiedPrefix) -> Self {
        let (mut as_stated, mut recomputed) = (sofar.frontier.clone(), sofar.frontier.clone());
        as_stated.push(line.hash);
        recomputed.push(leaf(&sofar.head, line.body));
        Self { signed, as_stated, recomputed, head: line.hash, chained: true }
    }

    fn push_line(&mut self, line: &EntryLine<'_>) {
        self.chained &= leaf(&self.head, line.body) == line.hash;
        self.head = line.hash;
        self.as_stated.push(line.hash);
        self.recomputed.push(line.hash);
    }

    fn verdict(&self) -> Option<LineVerdict> {
        if self.as_stated.size() != self.signed.tree.size {
            return None;
        }
        let root = self.signed.tree.root;
        Some(if self.as_stated.root() == root {
            LineVerdict::Body
        } else if self.recomputed.root() == root {
            LineVerdict::Hash
        } else if self.chained && self.head == self.signed.head {
            LineVerdict::Earlier
        } else {
            LineVerdict::Open
        })
    }
}
