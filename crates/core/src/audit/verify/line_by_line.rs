//! The slow way: line by line, until the end or the first fault.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use super::super::export::{AuditExportHeader, MAX_LINE};
use super::super::{AuditHash, leaf};
use super::checkpoints::CheckpointQueue;
use super::faults::{self, SuspectLine};
use super::{AuditFault, AuditFaultKind, VerifiedPrefix, VerifyContext, VerifyError};

/// Walks the remaining lines and checks how the export ends.
pub(super) fn finish<E: BufRead, C: BufRead>(
    entries: E,
    mut marks: CheckpointQueue<C>,
    mut sofar: VerifiedPrefix,
    check: &VerifyContext,
    log: &AuditExportHeader,
) -> Result<VerifiedPrefix, VerifyError> {
    let mut lines = BoundedLineReader { from: entries, line: Vec::new() };
    loop {
        while let Some(mark) = marks.take_up_to(sofar.size(), check)? {
            mark.check(&sofar, check)?;
            sofar.cover(&mark);
        }
        match lines.next()? {
            LineReadOutcome::End => break,
            LineReadOutcome::Cut => {
                return Err(sofar.fault(AuditFaultKind::Truncated, "the last line is cut off").into());
            }
            LineReadOutcome::Long => {
                return Err(sofar.fault(AuditFaultKind::Malformed, "the line is longer than 4 MiB").into());
            }
            LineReadOutcome::Line => (),
        }
        match step(&lines.line, &sofar, check) {
            Some(hash) => sofar.push(hash),
            None => {
                let suspect = SuspectLine { line: std::mem::take(&mut lines.line), size: log.size };
                return Err(faults::diagnose(&suspect, &mut lines, &mut marks, &sofar, check)?.into());
            }
        }
    }
    end(&mut marks, &sofar, check, log)?;
    Ok(sofar)
}

/// The hash of the next entry, if the line is that entry.
fn step(line: &[u8], sofar: &VerifiedPrefix, check: &VerifyContext) -> Option<AuditHash> {
    let line = check.shape.parse(line).ok().filter(|line| line.seq == sofar.size())?;
    (leaf(&sofar.head, line.body) == line.hash).then_some(line.hash)
}

/// Whether the export may end here.
fn end<C: BufRead>(
    marks: &mut CheckpointQueue<C>,
    sofar: &VerifiedPrefix,
    check: &VerifyContext,
    log: &AuditExportHeader,
) -> Result<(), VerifyError> {
    if let Some(mark) = marks.take_up_to(u64::MAX, check)? {
        if !mark.is_signed(check) {
            return Err(sofar.fault(AuditFaultKind::Signature, "a checkpoint is not signed by the log's key").into());
        }
        let fault = sofar.fault(AuditFaultKind::Truncated, "a checkpoint covers entries that are not there");
        let last = mark.size().saturating_sub(1);
        return Err(AuditFault { last, expected: Some(mark.checkpoint.head), found: Some(sofar.head), ..fault }.into());
    }
    if sofar.size() < log.size {
        let last = log.size.saturating_sub(1);
        return Err(
            AuditFault { last, ..sofar.fault(AuditFaultKind::Truncated, "`log.json` counts more entries") }.into()
        );
    }
    if sofar.size() > log.size {
        return Err(AuditFault {
            seq: log.size,
            last: log.size,
            ..sofar.fault(AuditFaultKind::Inserted, "`log.json` counts fewer entries")
        }
        .into());
    }
    if let Some(what) = marks.peek_malformed(check)? {
        let seq = sofar.covered.max(sofar.first);
        return Err(
            AuditFault { seq, last: sofar.size().max(seq), ..sofar.fault(AuditFaultKind::Malformed, what) }.into()
        );
    }
    Ok(())
}

/// Lines of bounded length.
pub(super) struct BoundedLineReader<E> {
    from: E,
    /// The line read last, without its line feed.
    pub(super) line: Vec<u8>,
}

/// What was read.
pub(super) enum LineReadOutcome {
    Line,
    /// The file ends within it.
    Cut,
    Long,
    End,
}

impl<E: BufRead> BoundedLineReader<E> {
    pub(super) fn next(&mut self) -> io::Result<LineReadOutcome> {
        self.line.clear();
        let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let length = self.from.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        Ok(match self.line.pop() {
            None => LineReadOutcome::End,
            Some(b'\n') => LineReadOutcome::Line,
            Some(_) if length == MAX_LINE => LineReadOutcome::Long,
            Some(_) => LineReadOutcome::Cut,
        })
    }
}

/// Chunks that were read already, and after them the rest.
pub(super) struct RejoinedReader<R> {
    parts: VecDeque<io::Cursor<Vec<u8>>>,
    rest: R,
}

impl<R: BufRead> RejoinedReader<R> {
    pub(super) fn new(parts: VecDeque<Vec<u8>>, rest: R) -> Self {
        Self { parts: parts.into_iter().map(io::Cursor::new).collect(), rest }
    }
}

impl<R: BufRead> Read for RejoinedReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(to)?;
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for RejoinedReader<R> {
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
