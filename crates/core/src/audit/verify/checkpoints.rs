//! The checkpoints in the order of their sizes: those of the export and those from elsewhere.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use super::super::checkpoint::Checkpoint;
use super::super::export::read_note;
use super::super::note::SignedNote;
use super::{AuditFault, AuditFaultKind, VerifiedPrefix, VerifyContext, VerifyError};

/// A checkpoint and its signatures, not checked yet.
pub(super) struct UncheckedCheckpoint {
    pub(super) note: SignedNote,
    pub(super) checkpoint: Checkpoint,
    /// Whether it came from elsewhere.
    pub(super) anchor: bool,
}

impl UncheckedCheckpoint {
    pub(super) const fn size(&self) -> u64 {
        self.checkpoint.tree.size
    }

    pub(super) fn is_signed(&self, check: &VerifyContext) -> bool {
        self.note.open(&check.keys).is_ok()
    }

    fn of(note: SignedNote, anchor: bool, check: &VerifyContext) -> Result<Self, &'static str> {
        let checkpoint = Checkpoint::parse(note.text_unverified()).map_err(|error| error.0)?;
        if checkpoint.origin != check.origin {
            return Err("a checkpoint belongs to another log");
        }
        Ok(Self { note, checkpoint, anchor })
    }

    /// Whether it was signed over exactly what is known so far.
    pub(super) fn check(&self, sofar: &VerifiedPrefix, check: &VerifyContext) -> Result<(), VerifyError> {
        let (signed, tree) = (&self.checkpoint, sofar.tree());
        if !self.is_signed(check) {
            let what = "a checkpoint is not signed by the log's key";
            return Err(AuditFault {
                seq: sofar.covered.max(sofar.first),
                last: self.size().saturating_sub(1),
                ..sofar.fault(AuditFaultKind::Signature, what)
            }
            .into());
        }
        let (expected, found, what) = if signed.tree.root != tree.root {
            (signed.tree.root, tree.root, "a checkpoint was signed over another root")
        } else {
            (signed.head, sofar.head, "a checkpoint was signed over another end of the chain")
        };
        if expected == found {
            return Ok(());
        }
        let seq = sofar.covered.max(sofar.first);
        let last = self.size().saturating_sub(1).max(seq);
        Err(AuditFault {
            seq,
            last,
            expected: Some(expected),
            found: Some(found),
            ..sofar.fault(AuditFaultKind::Forked, what)
        }
        .into())
    }
}

/// What comes next, as far as is known without reading on.
enum NextCheckpoint {
    Unread,
    Mark(Box<UncheckedCheckpoint>),
    Bad(&'static str),
    End,
}

pub(super) struct CheckpointQueue<C> {
    file: C,
    next: NextCheckpoint,
    /// Size of the last one read from the file.
    last: u64,
    /// From elsewhere, smallest first.
    anchors: VecDeque<UncheckedCheckpoint>,
    /// Read before and put back.
    back: VecDeque<UncheckedCheckpoint>,
}

impl<C: BufRead> CheckpointQueue<C> {
    pub(super) fn new(file: C, anchors: &[SignedNote], check: &VerifyContext) -> Result<Self, VerifyError> {
        let mut marks = anchors
            .iter()
            .map(|note| UncheckedCheckpoint::of(note.clone(), true, check))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|what| anchor_fault(AuditFaultKind::Malformed, what))?;
        // Checked at once: no fault of the export explains a wrong anchor.
        if !marks.iter().all(|mark| mark.is_signed(check)) {
            return Err(anchor_fault(
                AuditFaultKind::Signature,
                "the checkpoint from elsewhere is not signed by the log's key",
            )
            .into());
        }
        marks.sort_by_key(UncheckedCheckpoint::size);
        Ok(Self { file, next: NextCheckpoint::Unread, last: 0, anchors: marks.into(), back: VecDeque::new() })
    }

    /// The next one if it covers no more than `size` entries.
    pub(super) fn take_up_to(&mut self, size: u64, check: &VerifyContext) -> io::Result<Option<UncheckedCheckpoint>> {
        Ok(match self.peek(check)? {
            Some(next) if next <= size => self.take(),
            Some(_) | None => None,
        })
    }

    /// Size of the next one. `None` after one that cannot be read: see [`CheckpointQueue::bad`].
    pub(super) fn peek(&mut self, check: &VerifyContext) -> io::Result<Option<u64>> {
        if let Some(mark) = self.back.front() {
            return Ok(Some(mark.size()));
        }
        self.fill(check)?;
        let anchor = self.anchors.front().map(UncheckedCheckpoint::size);
        Ok(match &self.next {
            NextCheckpoint::Mark(mark) => Some(anchor.map_or(mark.size(), |anchor| anchor.min(mark.size()))),
            NextCheckpoint::Unread | NextCheckpoint::Bad(_) | NextCheckpoint::End => anchor,
        })
    }

    /// What is wrong with the next one of the file, if it cannot be read.
    pub(super) fn peek_malformed(&mut self, check: &VerifyContext) -> io::Result<Option<&'static str>> {
        if !self.back.is_empty() {
            return Ok(None);
        }
        self.fill(check)?;
        Ok(if let NextCheckpoint::Bad(what) = self.next { Some(what) } else { None })
    }

    /// Skips those for entries before the export begins: only their signatures can be checked, except at its edge.
    pub(super) fn skip_before(&mut self, sofar: &mut VerifiedPrefix, check: &VerifyContext) -> Result<(), VerifyError> {
        while let Some(mark) = self.take_up_to(sofar.first, check)? {
            if mark.size() == sofar.first {
                mark.check(sofar, check)?;
            } else if !mark.is_signed(check) {
                return Err(sofar
                    .fault(AuditFaultKind::Signature, "a checkpoint is not signed by the log's key")
                    .into());
            }
            sofar.cover(&mark);
        }
        Ok(())
    }

    /// Returns what was taken, in the order it was.
    pub(super) fn put_back(&mut self, marks: Vec<UncheckedCheckpoint>) {
        self.back.extend(marks);
    }

    fn take(&mut self) -> Option<UncheckedCheckpoint> {
        if let Some(mark) = self.back.pop_front() {
            return Some(mark);
        }
        let anchor = self.anchors.front().map(UncheckedCheckpoint::size);
        match std::mem::replace(&mut self.next, NextCheckpoint::Unread) {
            NextCheckpoint::Mark(mark) if anchor.is_none_or(|anchor| mark.size() <= anchor) => Some(*mark),
            kept => {
                self.next = kept;
                self.anchors.pop_front()
            }
        }
    }

    fn fill(&mut self, check: &VerifyContext) -> io::Result<()> {
        if matches!(self.next, NextCheckpoint::Unread) {
            self.next = match read_note(&mut self.file)? {
                None => NextCheckpoint::End,
                Some(bytes) => self.judge(bytes, check),
            };
        }
        Ok(())
    }

    fn judge(&mut self, bytes: Result<Vec<u8>, &'static str>, check: &VerifyContext) -> NextCheckpoint {
        let note = bytes.and_then(|bytes| SignedNote::parse(&bytes).map_err(|_| "a checkpoint is not a signed note"));
        match note.and_then(|note| UncheckedCheckpoint::of(note, false, check)) {
            Err(what) => NextCheckpoint::Bad(what),
            Ok(mark) if mark.size() < self.last => {
                NextCheckpoint::Bad("the checkpoints are not in the order of their sizes")
            }
            Ok(mark) => {
                self.last = mark.size();
                NextCheckpoint::Mark(Box::new(mark))
            }
        }
    }
}

fn anchor_fault(kind: AuditFaultKind, what: &'static str) -> AuditFault {
    AuditFault { kind, seq: 0, last: 0, says: None, expected: None, found: None, covered: 0, what }
}
