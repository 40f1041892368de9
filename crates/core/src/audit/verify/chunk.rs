//! The fast way: chunks of whole lines, each checked on its own thread.
//!
//! A chunk is given the hash before it as the line above states it. If all chunks hold and each
//! continues the one before, the whole chain holds. Anything unusual ends the fast way.

use std::io::{self, BufRead};

use super::super::export::{MAX_LINE, hash_of_hex, hex_of};
use super::super::{AuditHash, leaf, tree};
use super::VerifyContext;
use super::checkpoints::{CheckpointQueue, UncheckedCheckpoint};
use super::line::DecimalCounter;

/// Bytes read before a chunk ends with the next line. Small enough for the cache of a core.
const CHUNK: usize = 256 << 10;
/// Most checkpoints set aside for one chunk: more than it has lines. With more, the slow way takes over.
const MOST_MARKS: usize = 4096;

/// A chunk and what it is to be checked against.
pub(super) struct ChunkJob {
    pub(super) bytes: Vec<u8>,
    /// The hash the line above states; nothing if it states none.
    pub(super) before: Option<AuditHash>,
    /// The place its first line claims.
    pub(super) first: u64,
    /// The checkpoints for sizes inside it, smallest first.
    pub(super) marks: Vec<UncheckedCheckpoint>,
}

/// A chunk that was checked, and what is in it if all of it holds.
pub(super) struct CheckedChunk {
    pub(super) job: ChunkJob,
    pub(super) found: Option<ChunkContents>,
}

/// What a chunk contains.
pub(super) struct ChunkContents {
    /// One up to each checkpoint, and one after the last.
    pub(super) stretches: Vec<ChunkSegment>,
    /// The hash before the last one.
    pub(super) before: AuditHash,
}

/// Entries between two checkpoints or ends of a chunk.
pub(super) struct ChunkSegment {
    /// The largest complete subtrees they make up, left to right.
    pub(super) subtrees: Vec<(u8, AuditHash)>,
    /// The hash of the last.
    pub(super) head: AuditHash,
}

impl ChunkJob {
    /// Hashes every entry, and the trees and signatures that are inside the chunk.
    pub(super) fn check(self, check: &VerifyContext) -> CheckedChunk {
        let found = self.found(check);
        CheckedChunk { job: self, found }
    }

    fn found(&self, check: &VerifyContext) -> Option<ChunkContents> {
        let mut cuts = self.marks.iter().map(UncheckedCheckpoint::size).peekable();
        let (mut place, mut counter) = (self.first, DecimalCounter::new(self.first));
        let (mut before, mut head) = (self.before?, self.before?);
        let mut stretches = Vec::new();
        let mut run = Vec::new();
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() {
            while cuts.next_if_eq(&place).is_some() {
                stretches.push(ChunkSegment { subtrees: std::mem::take(&mut run), head });
            }
            let (line, after) = rest.split_at_checked(line_end(rest)?)?;
            rest = after.get(1..)?;
            let (digits, body) = check.shape.fits(line, &counter).filter(|_| line.len() < MAX_LINE)?;
            // From here on the stated hash is used. It is the computed one or we stop; this way the processor
            // need not wait for one hash before it begins the next, nor for the entry before its node.
            let hash = hash_of_hex(digits);
            if hex_of(&leaf(&head, body)) != *digits {
                return None;
            }
            (before, head) = (head, hash);
            grow(&mut run, place, hash);
            place = place.checked_add(1)?;
            counter.step();
        }
        while cuts.next_if_eq(&place).is_some() {
            stretches.push(ChunkSegment { subtrees: std::mem::take(&mut run), head });
        }
        stretches.push(ChunkSegment { subtrees: run, head });
        let signed = self.marks.iter().all(|mark| mark.is_signed(check));
        (cuts.next().is_none() && signed).then_some(ChunkContents { stretches, before })
    }
}

/// Finds the end of the first line. Vector instructions skip blocks without a line feed: the plain search
/// takes a tenth of the time of the hashing.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let full = |block: &&[u8; 32]| !block.iter().fold(false, |found, byte| found | (*byte == b'\n'));
    let skipped = blocks.iter().take_while(full).count();
    let tail = blocks.get(skipped).map_or(rest, <[u8; 32]>::as_slice);
    tail.iter().position(|byte| *byte == b'\n').map(|at| skipped * 32 + at)
}

/// Appends a leaf to subtrees that may begin anywhere in the tree.
fn grow(run: &mut Vec<(u8, AuditHash)>, place: u64, leaf: AuditHash) {
    let (mut level, mut index, mut hash) = (0, place, leaf);
    // A node with an odd index completes its parent if its left half is in this run as well.
    while index & 1 == 1 {
        let Some((_, left)) = run.pop_if(|(left, _)| *left == level) else { break };
        (level, index, hash) = (level + 1, index >> 1, tree::node(&left, &hash));
    }
    run.push((level, hash));
}

/// Cuts the entries into chunks.
pub(super) struct ChunkReader<E> {
    from: E,
    /// The beginning of the next chunk, read with the last.
    carry: Vec<u8>,
    /// The hash the last line of the last chunk states.
    before: Option<AuditHash>,
    spare: Vec<Vec<u8>>,
}

impl<E: BufRead> ChunkReader<E> {
    /// The entries after the one with this hash.
    pub(super) const fn new(from: E, before: AuditHash) -> Self {
        Self { from, carry: Vec::new(), before: Some(before), spare: Vec::new() }
    }

    /// Takes back a buffer that is no longer needed.
    pub(super) fn reuse(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare.push(bytes);
    }

    /// All that is not in a chunk yet.
    pub(super) fn into_reader(self) -> impl BufRead {
        io::Read::chain(io::Cursor::new(self.carry), self.from)
    }

    /// The next chunk with its checkpoints; `None` at the end. What lines claim here is compared
    /// with what is known when the chunk's turn comes.
    pub(super) fn next_job<C: BufRead>(
        &mut self,
        marks: &mut CheckpointQueue<C>,
        check: &VerifyContext,
    ) -> io::Result<Option<ChunkJob>> {
        let Some(bytes) = self.next_bytes()? else { return Ok(None) };
        let first_line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let last_line = bytes.strip_suffix(b"\n").and_then(|bytes| bytes.rsplit(|byte| *byte == b'\n').next());
        let last = last_line.and_then(|line| check.shape.parse(line).ok());
        let before = std::mem::replace(&mut self.before, last.as_ref().map(|line| line.hash));
        let ends = check.shape.claims(first_line).zip(last.map(|line| line.seq));
        let most = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some((first, last)) = ends.filter(|(first, last)| last.wrapping_sub(*first) < most) else {
            return Ok(Some(ChunkJob { bytes, before: None, first: 0, marks: Vec::new() }));
        };
        let mut inside = Vec::new();
        while inside.len() < MOST_MARKS
            && let Some(mark) = marks.take_up_to(last.saturating_add(1), check)?
        {
            inside.push(mark);
        }
        Ok(Some(ChunkJob { bytes, before, first, marks: inside }))
    }

    fn next_bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.append(&mut self.carry);
        let mut ends = false;
        while bytes.len() < CHUNK || !(ends || bytes.len() > MAX_LINE) {
            let more = self.from.fill_buf()?;
            if more.is_empty() {
                break;
            }
            // Not all of a large buffer at once, or a file in memory would be one chunk.
            let more = more.get(..CHUNK).unwrap_or(more);
            ends |= more.contains(&b'\n');
            bytes.extend_from_slice(more);
            let used = more.len();
            self.from.consume(used);
        }
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            self.carry.extend_from_slice(bytes.get(end + 1..).unwrap_or_default());
            bytes.truncate(end + 1);
        }
        Ok((!bytes.is_empty()).then_some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_its_first_line_feed() {
        for length in 0..100 {
            let mut bytes = vec![b'x'; length];
            assert_eq!(line_end(&bytes), None);
            bytes.push(b'\n');
            assert_eq!(line_end(&bytes), Some(length));
            bytes.extend_from_slice(b"more\n and more\n");
            assert_eq!(line_end(&bytes), Some(length));
        }
    }
}
