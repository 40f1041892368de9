//! The slow way: line by line, until the end or the first fault.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use super::super::export::{Log, MAX_LINE};
use super::super::{Hash, leaf};
use super::blame::{self, Suspect};
use super::marks::Marks;
use super::{Check, Fault, Kind, Sofar, VerifyError};

/// Walks what is left and checks how it ends.
pub(super) fn finish<E: BufRead, C: BufRead>(
    entries: E,
    mut marks: Marks<C>,
    mut sofar: Sofar,
    check: &Check,
    log: &Log,
) -> Result<Sofar, VerifyError> {
    let mut lines = Lines { from: entries, line: Vec::new() };
    loop {
        while let Some(mark) = marks.take_up_to(sofar.size(), check)? {
            mark.check(&sofar, check)?;
            sofar.cover(&mark);
        }
        match lines.next()? {
            Read1::End => break,
            Read1::Cut => return Err(sofar.fault(Kind::Truncated, "the last line is cut off").into()),
            Read1::Long => return Err(sofar.fault(Kind::Malformed, "the line is longer than 4 MiB").into()),
            Read1::Line => (),
        }
        match step(&lines.line, &sofar, check) {
            Some(hash) => sofar.push(hash),
            None => {
                let suspect = Suspect { line: std::mem::take(&mut lines.line), size: log.size };
                return Err(blame::name(&suspect, &mut lines, &mut marks, &sofar, check)?.into());
            }
        }
    }
    end(&mut marks, &sofar, check, log)?;
    Ok(sofar)
}

/// The hash of the next entry, if this is it.
fn step(line: &[u8], sofar: &Sofar, check: &Check) -> Option<Hash> {
    let line = check.shape.parse(line).ok().filter(|line| line.seq == sofar.size())?;
    (leaf(&sofar.head, line.body) == line.hash).then_some(line.hash)
}

/// Whether the export may end here.
fn end<C: BufRead>(marks: &mut Marks<C>, sofar: &Sofar, check: &Check, log: &Log) -> Result<(), VerifyError> {
    if let Some(mark) = marks.take_up_to(u64::MAX, check)? {
        if !mark.is_signed(check) {
            return Err(sofar.fault(Kind::Signature, "a checkpoint is not signed by the log's key").into());
        }
        let fault = sofar.fault(Kind::Truncated, "a checkpoint covers entries that are not there");
        let last = mark.size().saturating_sub(1);
        return Err(Fault { last, expected: Some(mark.checkpoint.head), found: Some(sofar.head), ..fault }.into());
    }
    if sofar.size() < log.size {
        let last = log.size.saturating_sub(1);
        return Err(Fault { last, ..sofar.fault(Kind::Truncated, "`log.json` counts more entries") }.into());
    }
    if sofar.size() > log.size {
        return Err(Fault {
            seq: log.size,
            last: log.size,
            ..sofar.fault(Kind::Inserted, "`log.json` counts fewer entries")
        }
        .into());
    }
    if let Some(what) = marks.bad(check)? {
        let seq = sofar.covered.max(sofar.first);
        return Err(Fault { seq, last: sofar.size().max(seq), ..sofar.fault(Kind::Malformed, what) }.into());
    }
    Ok(())
}

/// Lines of bounded length.
pub(super) struct Lines<E> {
    from: E,
    /// The line read last, without its line feed.
    pub(super) line: Vec<u8>,
}

/// What was read.
pub(super) enum Read1 {
    Line,
    /// The file ends within it.
    Cut,
    Long,
    End,
}

impl<E: BufRead> Lines<E> {
    pub(super) fn next(&mut self) -> io::Result<Read1> {
        self.line.clear();
        let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let length = self.from.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        Ok(match self.line.pop() {
            None => Read1::End,
            Some(b'\n') => Read1::Line,
            Some(_) if length == MAX_LINE => Read1::Long,
            Some(_) => Read1::Cut,
        })
    }
}

/// Chunks that were read already, and after them the rest.
pub(super) struct Rejoined<R> {
    parts: VecDeque<io::Cursor<Vec<u8>>>,
    rest: R,
}

impl<R: BufRead> Rejoined<R> {
    pub(super) fn new(parts: VecDeque<Vec<u8>>, rest: R) -> Self {
        Self { parts: parts.into_iter().map(io::Cursor::new).collect(), rest }
    }
}

impl<R: BufRead> Read for Rejoined<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(to)?;
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Rejoined<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.parts.front_mut().is_some_and(|part| part.fill_buf().is_ok_and(<[u8]>::is_empty)) {
            self.parts.pop_front();
        }
        match self.parts.front_mut() {
            Some(part) => part.fill_buf(),
            None => self.rest.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match self.parts.front_mut() {
            Some(part) => part.consume(amount),
            None => self.rest.consume(amount),
        }
    }
}
