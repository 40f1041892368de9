//! SHA-256 of many short messages, each hashed in one call.
//!
//! Takes the parts of a message; gives its hash, the same as `sha2::Sha256` gives. The ordinary
//! interface fills and empties a block buffer and calls the processor three times for a message of
//! a few hundred bytes; laying the padded message out first and calling once is about a third
//! faster there, and entries and tree nodes are such messages.

use sha2::block_api::compress256;

use super::AuditHash;

/// The state SHA-256 begins with (FIPS 180-4, 5.3.3).
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Room for messages, used again and again.
#[derive(Debug, Default)]
pub(super) struct ShaMessageBuffer {
    blocks: Vec<[u8; 64]>,
}

impl ShaMessageBuffer {
    /// The hash of the parts one after another.
    pub(super) fn hash<const N: usize>(&mut self, parts: [&[u8]; N]) -> AuditHash {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.blocks.resize((length + 9).div_ceil(64), [0; 64]);
        lay_out(self.blocks.as_flattened_mut(), parts, length);
        finish(&self.blocks)
    }
}

/// The hash of 65 bytes: a tree node.
pub(super) fn hash_node(prefix: [u8; 1], left: &AuditHash, right: &AuditHash) -> AuditHash {
    let mut blocks = [[0; 64]; 2];
    lay_out(blocks.as_flattened_mut(), [&prefix, &left.0, &right.0], 65);
    finish(&blocks)
}

/// The message, a one bit, zeros, and its length in bits. There is room for at least nine bytes after the message.
fn lay_out<const N: usize>(mut to: &mut [u8], parts: [&[u8]; N], length: usize) {
    for part in parts {
        let Some((place, rest)) = to.split_at_mut_checked(part.len()) else { return };
        place.copy_from_slice(part);
        to = rest;
    }
    to.fill(0);
    if let Some(first) = to.first_mut() {
        *first = 0x80;
    }
    if let Some(bits) = to.last_chunk_mut::<8>() {
        // A message in memory has fewer than 2^61 bytes.
        *bits = u64::try_from(length).unwrap_or(0).wrapping_mul(8).to_be_bytes();
    }
}

fn finish(blocks: &[[u8; 64]]) -> AuditHash {
    let mut state = START;
    compress256(&mut state, blocks);
    let mut bytes = [0; 32];
    let (words, _) = bytes.as_chunks_mut::<4>();
    words.iter_mut().zip(state).for_each(|(to, word)| *to = word.to_be_bytes());
    AuditHash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    #[test]
    fn hashes_are_those_of_sha2_for_every_length_around_a_block() {
        let data: Vec<u8> = (0..700_usize).map(|i| (i * 31) as u8).collect();
        let mut messages = ShaMessageBuffer::default();
        // Down as well as up: room that was used for a longer message must not show.
        for length in (0..=700).chain((0..=700).rev()) {
            let (a, b) = data[..length].split_at(length / 3);
            assert_eq!(messages.hash([a, b]).0, <[u8; 32]>::from(Sha256::digest(&data[..length])), "{length}");
        }
    }

    #[test]
    fn a_node_is_its_65_bytes() {
        let (left, right) = (AuditHash([3; 32]), AuditHash([4; 32]));
        let bytes = [&[1][..], &left.0, &right.0].concat();
        assert_eq!(hash_node([1], &left, &right).0, <[u8; 32]>::from(Sha256::digest(bytes)));
    }
}
