//! The key of a sealed database, and what is made of it.
//!
//! Takes 32 random bytes; gives a cipher for each file, and a mark by which the right key is known. Promise: no two
//! files of a database share a cipher; the mark says nothing about the key.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

use crate::xts::Xts;

/// Bytes of a key.
pub const LENGTH: usize = 32;

/// A key. It is not shown.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; LENGTH]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A key of these bytes.
    #[must_use]
    pub fn new(mut bytes: [u8; LENGTH]) -> Self {
        let key = Self(Zeroizing::new(bytes));
        bytes.zeroize();
        key
    }

    /// A key written in hex, as it is kept in a vault.
    #[must_use]
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let mut bytes = Zeroizing::new([0_u8; LENGTH]);
        let (pairs, rest) = text.as_chunks::<2>();
        if pairs.len() != LENGTH || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(high)? << 4 | digit(low)?;
        }
        Some(Self(bytes))
    }

    /// In hex, for a vault.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * LENGTH));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        text
    }

    /// What is written beside the files, so that a wrong key is told from a damaged file.
    #[must_use]
    pub fn mark(&self) -> String {
        let mark = self.made("mark", b"");
        mark.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether it is the key this mark was made with.
    #[must_use]
    pub fn fits(&self, mark: &str) -> bool {
        self.mark().as_bytes().ct_eq(mark.trim().as_bytes()).into()
    }

    /// The cipher of one file.
    pub(crate) fn cipher(&self, file: &[u8]) -> Xts {
        Xts::new(&self.made("data", file), &self.made("place", file))
    }

    fn made(&self, what: &str, file: &[u8]) -> Zeroizing<[u8; LENGTH]> {
        // HMAC fills a key up to a block with zeros; doing it here leaves nothing that could fail.
        let mut key = Zeroizing::new([0_u8; 64]);
        for (to, from) in key.iter_mut().zip(self.0.iter()) {
            *to = *from;
        }
        let mut mac = <Hmac<Sha256>>::new(&(*key).into());
        for part in [b"sluice sealed database 1".as_slice(), what.as_bytes(), file] {
            // Each part with its length before it: no two lists of parts read the same.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        Zeroizing::new(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_hex_and_other_text_is_none() {
        let key = Key::new([0xa7; LENGTH]);
        assert_eq!(Key::from_hex(key.to_hex().as_bytes()).unwrap().mark(), key.mark());
        for wrong in ["", "a7", &"a".repeat(63), &"a".repeat(65), &"g".repeat(64)] {
            assert!(Key::from_hex(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_mark_fits_its_key_alone_and_neither_shows_the_key() {
        let (one, other) = (Key::new([1; LENGTH]), Key::new([2; LENGTH]));
        assert!(one.fits(&one.mark()) && one.fits(&format!("{}\n", one.mark())));
        assert!(!other.fits(&one.mark()) && !one.fits("") && !one.fits("00"));
        assert_eq!(format!("{one:?}"), "Key");
        assert!(!one.mark().contains("0101"));
    }

    #[test]
    fn each_file_has_a_cipher_of_its_own() {
        let key = Key::new([3; LENGTH]);
        let sealed = |key: &Key, file: &[u8]| {
            let mut block = [[0_u8; 16]];
            key.cipher(file).encrypt(&mut block, 0);
            block
        };
        assert_eq!(sealed(&key, b"copy-1.db"), sealed(&key, b"copy-1.db"));
        assert_ne!(sealed(&key, b"copy-1.db"), sealed(&key, b"copy-1.db-wal"));
        assert_ne!(sealed(&key, b"copy-1.db"), sealed(&Key::new([4; LENGTH]), b"copy-1.db"));
    }
}
