//! Reads and writes any bytes of a file that is encrypted in blocks.
//!
//! Takes a file as it lies on the disk; gives its content. A file is padded with zeros to
//! whole blocks; SQLite accepts that, because it counts whole pages and whole frames. Promise: only the blocks that
//! hold written bytes are written, each in full; a reader sees each block before or after a write of another thread.

use parking_lot::RwLock;

use crate::xts::{BLOCK, CipherBlock, XtsCipher};

/// A file as it lies on the disk.
pub trait RawFile {
    /// The error of a failed read or write.
    type No;

    /// Fills the bytes from this position on. Gives whether all of them were there; if not, the rest is undefined.
    fn read(&mut self, into: &mut [u8], at: u64) -> Result<bool, Self::No>;

    /// Writes the bytes.
    fn write(&mut self, from: &[u8], at: u64) -> Result<(), Self::No>;

    /// The length of the file.
    fn size(&mut self) -> Result<u64, Self::No>;
}

/// Blocks that two writes share: the end of a frame of the log and the beginning of the next are written one after
/// the other, and a reader may read the first while the second is written. The system does not define
/// what it sees then. One lock for all files is enough: it is held for one copy into the system's memory.
static SHARED: RwLock<()> = RwLock::new(());

/// Gives the content from this position on, and whether all of it was there; if not, the rest is zeros.
pub fn read<R: RawFile>(raw: &mut R, cipher: &XtsCipher, into: &mut [u8], at: u64) -> Result<bool, R::No> {
    let cover = BlockRange::of(into.len(), at);
    if cover.is_exact(into.len()) {
        return read_decrypted(raw, cipher, into, at);
    }
    let mut wide = vec![0_u8; cover.length];
    let whole = {
        let _nobody_writes = SHARED.read();
        read_decrypted(raw, cipher, &mut wide, cover.from)?
    };
    if let Some(part) = wide.get(cover.before..cover.before + into.len()) {
        into.copy_from_slice(part);
    }
    Ok(whole)
}

/// Writes content.
pub fn write<R: RawFile>(
    raw: &mut R,
    cipher: &XtsCipher,
    (from, at): (&[u8], u64),
    room: &mut Vec<u8>,
) -> Result<(), R::No> {
    let cover = BlockRange::of(from.len(), at);
    room.clear();
    room.resize(cover.length, 0);
    let _alone;
    if !cover.is_exact(from.len()) {
        _alone = SHARED.write();
        let last = cover.length.saturating_sub(BLOCK);
        if let Some(first) = room.get_mut(..BLOCK).filter(|_| cover.before > 0) {
            read_decrypted(raw, cipher, first, cover.from)?;
        }
        let cut = cover.before + from.len() < cover.length;
        if let Some(end) = room.get_mut(last..).filter(|_| cut && (last > 0 || cover.before == 0)) {
            read_decrypted(raw, cipher, end, cover.from + last as u64)?;
        }
    }
    if let Some(part) = room.get_mut(cover.before..cover.before + from.len()) {
        part.copy_from_slice(from);
    }
    cipher.encrypt(blocks(room), cover.from / BLOCK as u64);
    raw.write(room, cover.from)
}

/// Rounds a length up to whole blocks.
pub const fn rounded(length: u64) -> u64 {
    length.div_ceil(BLOCK as u64) * BLOCK as u64
}

/// Reads and decrypts whole blocks. Bytes after the end are zeros.
fn read_decrypted<R: RawFile>(raw: &mut R, cipher: &XtsCipher, into: &mut [u8], at: u64) -> Result<bool, R::No> {
    let whole = raw.read(into, at)?;
    let there = if whole { into.len() } else { usize::try_from(raw.size()?.saturating_sub(at)).unwrap_or(0) };
    let there = (there - there % BLOCK).min(into.len());
    let (sealed, missing) = into.split_at_mut(there);
    cipher.decrypt(blocks(sealed), at / BLOCK as u64);
    missing.fill(0);
    Ok(whole)
}

fn blocks(bytes: &mut [u8]) -> &mut [CipherBlock] {
    bytes.as_chunks_mut().0
}

/// The whole blocks that hold some bytes.
struct BlockRange {
    from: u64,
    length: usize,
    /// Bytes of the first block that come before them.
    before: usize,
}

impl BlockRange {
    fn of(length: usize, at: u64) -> Self {
        let before = usize::try_from(at % BLOCK as u64).unwrap_or(0);
        Self { from: at - before as u64, length: (before + length).next_multiple_of(BLOCK), before }
    }

    const fn is_exact(&self, length: usize) -> bool {
        self.before == 0 && self.length == length
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::SealKey;

    /// A file in memory.
    #[derive(Default)]
    struct Memory(Vec<u8>);

    impl RawFile for Memory {
        type No = Infallible;

        fn read(&mut self, into: &mut [u8], at: u64) -> Result<bool, Infallible> {
            let there = self.0.get(at as usize..).unwrap_or_default();
            let n = there.len().min(into.len());
            into.fill(0);
            into[..n].copy_from_slice(&there[..n]);
            Ok(n == into.len())
        }

        fn write(&mut self, from: &[u8], at: u64) -> Result<(), Infallible> {
            let end = at as usize + from.len();
            self.0.resize(self.0.len().max(end), 0);
            self.0[at as usize..end].copy_from_slice(from);
            Ok(())
        }

        fn size(&mut self) -> Result<u64, Infallible> {
            Ok(self.0.len() as u64)
        }
    }

    proptest! {
        /// Compared with a plain file: what is written at any position, the same is read everywhere.
        #[test]
        fn what_is_read_is_what_was_written(
            writes in prop::collection::vec((0_usize..3000, prop::collection::vec(any::<u8>(), 1..900)), 1..12),
            reads in prop::collection::vec((0_u64..4200, 1_usize..1500), 1..12),
        ) {
            let (cipher, mut raw, mut plain) = (SealKey::new([5; 32]).cipher(b"a"), Memory::default(), Vec::new());
            let mut room = Vec::new();
            for (at, bytes) in &writes {
                // SQLite leaves no gaps that it reads.
                let at = (*at).min(plain.len());
                write(&mut raw, &cipher, (bytes, at as u64), &mut room).unwrap();
                plain.resize(plain.len().max(at + bytes.len()), 0);
                plain[at..at + bytes.len()].copy_from_slice(bytes);
                prop_assert_eq!(raw.0.len() as u64, rounded(plain.len() as u64));
                // The plain text is nowhere in the file, neither all of it nor its beginning.
                prop_assert!(bytes.len() < 16 || !raw.0.windows(16).any(|w| w == &bytes[..16]));
            }
            let end = raw.0.len() as u64;
            plain.resize(raw.0.len(), 0);
            for (at, length) in reads {
                let mut into = vec![7_u8; length];
                let whole = read(&mut raw, &cipher, &mut into, at).unwrap();
                prop_assert_eq!(whole, at + length as u64 <= end);
                let expected: Vec<u8> = (at as usize..at as usize + length).map(|n| plain.get(n).copied().unwrap_or(0)).collect();
                prop_assert_eq!(into, expected);
            }
        }
    }

    #[test]
    fn a_write_touches_no_block_beside_its_own() {
        let (cipher, mut raw, mut room) = (SealKey::new([6; 32]).cipher(b"a"), Memory::default(), Vec::new());
        write(&mut raw, &cipher, (&[1; 4096], 0), &mut room).unwrap();
        let before = raw.0.clone();
        write(&mut raw, &cipher, (&[2; 24], 1000), &mut room).unwrap();
        let changed: Vec<usize> = (0..4096).filter(|n| before[*n] != raw.0[*n]).collect();
        assert!(changed.iter().all(|n| (992..1024).contains(n)), "{changed:?}");
    }
}
