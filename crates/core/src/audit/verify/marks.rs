//! The checkpoints in the order of their sizes: those of the export and those from elsewhere.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use super::super::checkpoint::Checkpoint;
use super::super::export::read_note;
use super::super::note::Note;
use super::{Check, Fault, Kind, Sofar, VerifyError};

/// A checkpoint and its signatures, not checked yet.
pub(super) struct Mark {
    pub(super) note: Note,
    pub(super) checkpoint: Checkpoint,
    /// Whether it came from elsewhere.
    pub(super) anchor: bool,
}

impl Mark {
    pub(super) const fn size(&self) -> u64 {
        self.checkpoint.tree.size
    }

    pub(super) fn is_signed(&self, check: &Check) -> bool {
        self.note.open(&check.keys).is_ok()
    }

    fn of(note: Note, anchor: bool, check: &Check) -> Result<Self, &'static str> {
        let checkpoint = Checkpoint::parse(note.text_unverified()).map_err(|error| error.0)?;
        if checkpoint.origin != check.origin {
            return Err("a checkpoint is of another log");
        }
        Ok(Self { note, checkpoint, anchor })
    }

    /// Whether it was signed over exactly what is known so far.
    pub(super) fn check(&self, sofar: &Sofar, check: &Check) -> Result<(), VerifyError> {
        let (signed, tree) = (&self.checkpoint, sofar.tree());
        if !self.is_signed(check) {
            let what = "a checkpoint is not signed by the log's key";
            return Err(Fault {
                seq: sofar.covered.max(sofar.first),
                last: self.size().saturating_sub(1),
                ..sofar.fault(Kind::Signature, what)
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
        Err(Fault { seq, last, expected: Some(expected), found: Some(found), ..sofar.fault(Kind::Forked, what) }.into())
    }
}

/// What comes next, as far as is known without reading on.
enum Next {
    Unread,
    Mark(Box<Mark>),
    Bad(&'static str),
    End,
}

pub(super) struct Marks<C> {
    file: C,
    next: Next,
    /// Size of the last one read from the file.
    last: u64,
    /// From elsewhere, smallest first.
    anchors: VecDeque<Mark>,
    /// Read before and not used after all.
    back: VecDeque<Mark>,
}

impl<C: BufRead> Marks<C> {
    pub(super) fn new(file: C, anchors: &[Note], check: &Check) -> Result<Self, VerifyError> {
        let mut marks = anchors
            .iter()
            .map(|note| Mark::of(note.clone(), true, check))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|what| anchor_fault(Kind::Malformed, what))?;
        // Checked at once: nothing in the export can be at fault for it.
        if !marks.iter().all(|mark| mark.is_signed(check)) {
            return Err(
                anchor_fault(Kind::Signature, "the checkpoint from elsewhere is not signed by the log's key").into()
            );
        }
        marks.sort_by_key(Mark::size);
        Ok(Self { file, next: Next::Unread, last: 0, anchors: marks.into(), back: VecDeque::new() })
    }

    /// The next one if it covers no more than `size` entries.
    pub(super) fn take_up_to(&mut self, size: u64, check: &Check) -> io::Result<Option<Mark>> {
        Ok(match self.peek(check)? {
            Some(next) if next <= size => self.take(),
            Some(_) | None => None,
        })
    }

    /// Size of the next one. There is none after one that cannot be read: see [`Marks::bad`].
    pub(super) fn peek(&mut self, check: &Check) -> io::Result<Option<u64>> {
        if let Some(mark) = self.back.front() {
            return Ok(Some(mark.size()));
        }
        self.fill(check)?;
        let anchor = self.anchors.front().map(Mark::size);
        Ok(match &self.next {
            Next::Mark(mark) => Some(anchor.map_or(mark.size(), |anchor| anchor.min(mark.size()))),
            Next::Unread | Next::Bad(_) | Next::End => anchor,
        })
    }

    /// What is wrong with the next one of the file, if that is why there is none.
    pub(super) fn bad(&mut self, check: &Check) -> io::Result<Option<&'static str>> {
        if !self.back.is_empty() {
            return Ok(None);
        }
        self.fill(check)?;
        Ok(if let Next::Bad(what) = self.next { Some(what) } else { None })
    }

    /// Those for entries before the export begins: their signatures are all there is to check, except at its edge.
    pub(super) fn skip_before(&mut self, sofar: &mut Sofar, check: &Check) -> Result<(), VerifyError> {
        while let Some(mark) = self.take_up_to(sofar.first, check)? {
            if mark.size() == sofar.first {
                mark.check(sofar, check)?;
            } else if !mark.is_signed(check) {
                return Err(sofar.fault(Kind::Signature, "a checkpoint is not signed by the log's key").into());
            }
            sofar.cover(&mark);
        }
        Ok(())
    }

    /// Returns what was taken, in the order it was.
    pub(super) fn put_back(&mut self, marks: Vec<Mark>) {
        self.back.extend(marks);
    }

    fn take(&mut self) -> Option<Mark> {
        if let Some(mark) = self.back.pop_front() {
            return Some(mark);
        }
        let anchor = self.anchors.front().map(Mark::size);
        match std::mem::replace(&mut self.next, Next::Unread) {
            Next::Mark(mark) if anchor.is_none_or(|anchor| mark.size() <= anchor) => Some(*mark),
            kept => {
                self.next = kept;
                self.anchors.pop_front()
            }
        }
    }

    fn fill(&mut self, check: &Check) -> io::Result<()> {
        if matches!(self.next, Next::Unread) {
            self.next = match read_note(&mut self.file)? {
                None => Next::End,
                Some(bytes) => self.judge(bytes, check),
            };
        }
        Ok(())
    }

    fn judge(&mut self, bytes: Result<Vec<u8>, &'static str>, check: &Check) -> Next {
        let note = bytes.and_then(|bytes| Note::parse(&bytes).map_err(|_| "a checkpoint is not a signed note"));
        match note.and_then(|note| Mark::of(note, false, check)) {
            Err(what) => Next::Bad(what),
            Ok(mark) if mark.size() < self.last => Next::Bad("the checkpoints are not in the order of their sizes"),
            Ok(mark) => {
                self.last = mark.size();
                Next::Mark(Box::new(mark))
            }
        }
    }
}

fn anchor_fault(kind: Kind, what: &'static str) -> Fault {
    Fault { kind, seq: 0, last: 0, says: None, expected: None, found: None, covered: 0, what }
}
