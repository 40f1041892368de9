//! AES-256-XTS (IEEE 1619), starting at any block.
//!
//! Takes blocks of 16 bytes and their position in the file; gives the same number of blocks. Promise: equal blocks at
//! different positions look different; a change of one block changes no other, so that a write cut short by a power
//! failure damages nothing beside it.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};

/// The bytes of a block.
pub const BLOCK: usize = 16;
/// Blocks of a data unit: 512 bytes.
const UNIT: usize = 32;

/// One block.
pub type CipherBlock = [u8; BLOCK];

/// The cipher of one file.
pub struct XtsCipher {
    data: Aes256,
    place: Aes256,
}

impl XtsCipher {
    pub fn new(data: &[u8; 32], place: &[u8; 32]) -> Self {
        Self { data: Aes256::new(&Array::from(*data)), place: Aes256::new(&Array::from(*place)) }
    }

    /// Encrypts blocks of which the first has the number `first` in its file.
    pub fn encrypt(&self, blocks: &mut [CipherBlock], first: u64) {
        self.walk(blocks, first, |blocks| self.data.encrypt_blocks(blocks));
    }

    /// Decrypts blocks of which the first has the number `first` in its file.
    pub fn decrypt(&self, blocks: &mut [CipherBlock], first: u64) {
        self.walk(blocks, first, |blocks| self.data.decrypt_blocks(blocks));
    }

    fn walk(&self, mut blocks: &mut [CipherBlock], mut first: u64, turn: impl Fn(&mut [aes::Block])) {
        while !blocks.is_empty() {
            let skipped = usize::try_from(first % UNIT as u64).unwrap_or(0);
            let (unit, rest) = blocks.split_at_mut(blocks.len().min(UNIT - skipped));
            self.unit(unit, first / UNIT as u64, skipped, &turn);
            first += unit.len() as u64;
            blocks = rest;
        }
    }

    /// Blocks of one unit, of which `skipped` come before these.
    fn unit(&self, blocks: &mut [CipherBlock], unit: u64, skipped: usize, turn: impl Fn(&mut [aes::Block])) {
        let mut place = Array::from(u128::from(unit).to_le_bytes());
        self.place.encrypt_block(&mut place);
        let mut place = u128::from_le_bytes(place.into());
        for _ in 0..skipped {
            place = doubled(place);
        }
        let mut places = [0_u128; UNIT];
        for (kept, block) in places.iter_mut().zip(blocks.iter_mut()) {
            *kept = place;
            *block = (u128::from_le_bytes(*block) ^ place).to_le_bytes();
            place = doubled(place);
        }
        turn(Array::cast_slice_from_core_mut(blocks));
        for (place, block) in places.iter().zip(blocks.iter_mut()) {
            *block = (u128::from_le_bytes(*block) ^ place).to_le_bytes();
        }
    }
}

/// Multiplies by x in the field of 2^128 elements that the standard defines.
const fn doubled(place: u128) -> u128 {
    (place << 1) ^ (if place >> 127 == 1 { 0x87 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        text.as_bytes()
            .as_chunks::<2>()
            .0
            .iter()
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// IEEE 1619-2007, appendix B, vector 10: AES-256, data unit 255, 512 bytes.
    fn vector() -> (XtsCipher, Vec<CipherBlock>, Vec<CipherBlock>) {
        let key = |text: &str| <[u8; 32]>::try_from(hex(text)).unwrap();
        let xts = XtsCipher::new(
            &key("2718281828459045235360287471352662497757247093699959574966967627"),
            &key("3141592653589793238462643383279502884197169399375105820974944592"),
        );
        let plain: Vec<u8> = (0..512).map(|n: usize| (n % 256) as u8).collect();
        let sealed = hex(include_str!("ieee1619-10.hex").trim());
        let cut = |bytes: Vec<u8>| bytes.as_chunks::<BLOCK>().0.to_vec();
        (xts, cut(plain), cut(sealed))
    }

    #[test]
    fn it_is_the_cipher_of_the_standard() {
        let (xts, plain, sealed) = vector();
        let mut blocks = plain.clone();
        xts.encrypt(&mut blocks, 255 * 32);
        assert_eq!(blocks, sealed);
        xts.decrypt(&mut blocks, 255 * 32);
        assert_eq!(blocks, plain);
    }

    #[test]
    fn a_part_is_sealed_as_it_is_within_the_whole() {
        let (xts, plain, sealed) = vector();
        for (from, to) in [(0, 1), (1, 2), (5, 31), (31, 32), (7, 7)] {
            let mut part = plain[from..to].to_vec();
            xts.encrypt(&mut part, 255 * 32 + from as u64);
            assert_eq!(part, sealed[from..to]);
        }
        let mut long = vec![[9_u8; BLOCK]; 100];
        xts.encrypt(&mut long, 20);
        let mut part = vec![[9_u8; BLOCK]; 40];
        xts.encrypt(&mut part, 50);
        assert_eq!(part, long[30..70]);
        let different: std::collections::BTreeSet<CipherBlock> = long.iter().copied().collect();
        assert_eq!(different.len(), 100, "equal blocks look different at each place");
    }
}
