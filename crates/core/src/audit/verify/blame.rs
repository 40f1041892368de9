//! Names a fault: which entry, in what way.
//!
//! Takes the first line that does not continue the chain, and all that follows it. The places that
//! lines claim tell missing, inserted and moved ones apart. When the line claims the right place, the
//! next checkpoint is asked: if its root comes out with the stated hashes, they are the signed ones
//! and only this body was changed; if it comes out with this one hash recomputed, only this hash
//! was; if it comes out with neither and yet the chain from here on ends as signed, then it is the entries
//! before this one that were rewritten.

use std::io::{self, BufRead};

use super::super::checkpoint::Checkpoint;
use super::super::tree::Frontier;
use super::super::{Hash, leaf};
use super::line::Line;
use super::marks::Marks;
use super::walk::{Lines, Read1};
use super::{Check, Fault, Kind, Sofar};

/// A line that does not continue the chain.
pub(super) struct Suspect {
    pub(super) line: Vec<u8>,
    /// Number of entries the export is said to have.
    pub(super) size: u64,
}

/// The fault in it.
pub(super) fn name<E: BufRead, C: BufRead>(
    suspect: &Suspect,
    lines: &mut Lines<E>,
    marks: &mut Marks<C>,
    sofar: &Sofar,
    check: &Check,
) -> io::Result<Fault> {
    let parsed = check.shape.parse(&suspect.line);
    let signed = marks.take_up_to(u64::MAX, check)?.filter(|mark| mark.is_signed(check)).map(|mark| mark.checkpoint);
    let ahead = Ahead::look(lines, parsed.as_ref().ok(), signed.as_ref(), sofar, check)?;
    Ok(match parsed {
        Err(what) => {
            let kind = if ahead.resumes.is_some() { Kind::Inserted } else { Kind::Malformed };
            Fault { expected: ahead.resumes, ..sofar.fault(kind, what) }
        }
        Ok(line) if line.seq == sofar.size() => in_place(&line, &ahead, sofar),
        Ok(line) => out_of_place(&line, &ahead, sofar, suspect.size),
    })
}

/// The line claims the right place and does not continue the chain.
fn in_place(line: &Line<'_>, ahead: &Ahead, sofar: &Sofar) -> Fault {
    let (given, stated) = (leaf(&sofar.head, line.body), line.hash);
    let fault = |kind, what, expected, found| {
        let base = sofar.fault(kind, what);
        Fault { says: Some(line.seq), expected: Some(expected), found: Some(found), ..base }
    };
    if let Some(real) = ahead.resumes {
        return fault(Kind::Inserted, "the entry itself is in the next line", real, stated);
    }
    match ahead.verdict {
        Verdict::Body => fault(Kind::Changed, "its body is not the one that was signed", stated, given),
        Verdict::Hash => fault(Kind::Changed, "its hash is not the one that was signed", given, stated),
        Verdict::Earlier if sofar.covered < line.seq => {
            let base = fault(Kind::Forked, "entries before this chain's end as signed were rewritten", stated, given);
            Fault { seq: sofar.covered.max(sofar.first), last: line.seq - 1, says: None, ..base }
        }
        Verdict::Earlier | Verdict::Open => {
            fault(Kind::Changed, "its hash is not that of its body and the entry before", given, stated)
        }
    }
}

/// The line claims another place.
fn out_of_place(line: &Line<'_>, ahead: &Ahead, sofar: &Sofar, size: u64) -> Fault {
    let (here, says) = (sofar.size(), line.seq);
    let fault = |kind, what| Fault { says: Some(says), found: Some(line.hash), ..sofar.fault(kind, what) };
    // Two lines that both continue the entry before them.
    let twin = says + 1 == here && sofar.before.is_some_and(|before| leaf(&before, line.body) == line.hash);
    if twin && line.hash != sofar.head {
        let base = fault(Kind::Inserted, "two lines claim this place");
        return Fault { seq: says, last: says, expected: Some(sofar.head), ..base };
    }
    let resumes =
        ahead.next == Some(here) && (ahead.after == Some(here + 1) || ahead.after.is_none() && says != here + 1);
    let counted = ahead.next.is_none() && here + 1 == size;
    if twin || resumes || here >= size {
        return fault(Kind::Inserted, "the line does not belong here");
    }
    match (ahead.here_later, says < here || ahead.says_later) {
        (true, true) => fault(Kind::Inserted, "the line does not belong here; the entry comes later"),
        (true, false) => fault(Kind::Reordered, "the entry comes later"),
        (false, _) if ahead.next == Some(here + 1) || says < here || counted => {
            fault(Kind::Changed, "another line stands in its place")
        }
        (false, _) => fault(Kind::Missing, "the entry is nowhere in the export"),
    }
}

/// What the next checkpoint says about a line in the right place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The stated hashes are those that were signed.
    Body,
    /// They are with this line's recomputed.
    Hash,
    /// The chain from this line on is the signed one; the entries before it are not.
    Earlier,
    /// Nothing.
    Open,
}

/// What follows the line.
struct Ahead {
    /// The places the next two lines claim.
    next: Option<u64>,
    after: Option<u64>,
    /// The hash of the next line, if it is the entry that should be here.
    resumes: Option<Hash>,
    /// Whether a later line claims this place.
    here_later: bool,
    /// Whether a later line claims the place this line claims.
    says_later: bool,
    verdict: Verdict,
}

impl Ahead {
    fn look<E: BufRead>(
        lines: &mut Lines<E>,
        suspect: Option<&Line<'_>>,
        signed: Option<&Checkpoint>,
        sofar: &Sofar,
        check: &Check,
    ) -> io::Result<Self> {
        let here = sofar.size();
        let mut ahead = Self {
            next: None,
            after: None,
            resumes: None,
            here_later: false,
            says_later: false,
            verdict: Verdict::Open,
        };
        let mut inquest = suspect.zip(signed).map(|(line, signed)| Inquest::open(line, signed.clone(), sofar));
        let mut number = 0_u64;
        loop {
            if let Some(verdict) = inquest.as_ref().and_then(Inquest::verdict) {
                ahead.verdict = verdict;
                inquest = None;
            }
            if !matches!(lines.next()?, Read1::Line) {
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
                inquest.hear(&line);
            }
        }
    }
}

/// The log continued up to the next checkpoint, in the two ways that a single change leaves open.
struct Inquest {
    signed: Checkpoint,
    as_stated: Frontier,
    recomputed: Frontier,
    /// The hash stated last, and whether every line since the suspect continues the one before.
    head: Hash,
    chained: bool,
}

impl Inquest {
    fn open(line: &Line<'_>, signed: Checkpoint, sofar: &Sofar) -> Self {
        let (mut as_stated, mut recomputed) = (sofar.frontier.clone(), sofar.frontier.clone());
        as_stated.push(line.hash);
        recomputed.push(leaf(&sofar.head, line.body));
        Self { signed, as_stated, recomputed, head: line.hash, chained: true }
    }

    fn hear(&mut self, line: &Line<'_>) {
        self.chained &= leaf(&self.head, line.body) == line.hash;
        self.head = line.hash;
        self.as_stated.push(line.hash);
        self.recomputed.push(line.hash);
    }

    fn verdict(&self) -> Option<Verdict> {
        if self.as_stated.size() != self.signed.tree.size {
            return None;
        }
        let root = self.signed.tree.root;
        Some(if self.as_stated.root() == root {
            Verdict::Body
        } else if self.recomputed.root() == root {
            Verdict::Hash
        } else if self.chained && self.head == self.signed.head {
            Verdict::Earlier
        } else {
            Verdict::Open
        })
    }
}
