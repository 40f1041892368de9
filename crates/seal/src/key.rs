//! The key of a sealed database, and the values derived from it.
//!
//! Takes 32 random bytes; gives a cipher for each file, and a mark that identifies the right key. Promise: no two
//! files of a database share a cipher; the mark reveals nothing about the key.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

use crate::xts::XtsCipher;

/// Bytes of a key.
pub const LENGTH: usize = 32;

/// A key. It is never printed.
#[derive(Clone)]
pub struct SealKey(Zeroizing<[u8; LENGTH]>);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl SealKey {
    /// A key of these bytes.
    #[must_use]
    pub fn new(mut bytes: [u8; LENGTH]) -> Self {
        let key = Self(Zeroizing::new(bytes));
        bytes.zeroize();
        key
    }

    /// Reads a key from hex, as it is kept in a vault.
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

    /// The key in hex, for a vault.
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

    /// The mark that is stored beside the files, so that a wrong key is distinguished from a damaged file.
    #[must_use]
    pub fn key_check_value(&self) -> String {
        let mark = self.derive_key("mark", b"");
        mark.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this mark was made with this key.
    #[must_use]
    pub fn matches_check_value(&self, mark: &str) -> bool {
        self.key_check_value().as_bytes().ct_eq(mark.trim().as_bytes()).into()
    }

    /// The cipher of one file.
    pub(crate) fn cipher(&self, file: &[u8]) -> XtsCipher {
        XtsCipher::new(&self.derive_key("data", file), &self.derive_key("place", file))
    }

    fn derive_key(&self, what: &str, file: &[u8]) -> Zeroizing<[u8; LENGTH]> {
        // HMAC fills a key up to a block with zeros; doing it here leaves no case that could fail.
        let mut key = Zeroizing::new([0_u8; 64]);
        for (to, from) in key.iter_mut().zip(self.0.iter()) {
            *to = *from;
        }
        let mut mac = <Hmac<Sha256>>::new(&(*key).into());
        for part in [b"sluice sealed database 1".as_slice(), what.as_bytes(), file] {
            // Each part with its length before it: two different lists of parts never give the same bytes.
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
        let key = SealKey::new([0xa7; LENGTH]);
        assert_eq!(SealKey::from_hex(key.to_hex().as_bytes()).unwrap().key_check_value(), key.key_check_value());
        for wrong in ["", "a7", &"a".repeat(63), &"a".repeat(65), &"g".repeat(64)] {
            assert!(SealKey::from_hex(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_mark_fits_its_key_alone_and_neither_shows_the_key() {
        let (one, other) = (SealKey::new([1; LENGTH]), SealKey::new([2; LENGTH]));
        assert!(
            one.matches_check_value(&one.key_check_value())
                && one.matches_check_value(&format!("{}\n", one.key_check_value()))
        );
        assert!(
            !other.matches_check_value(&one.key_check_value())
                && !one.matches_check_value("")
                && !one.matches_check_value("00")
        );
        assert_eq!(format!("{one:?}"), "Key");
        assert!(!one.key_check_value().contains("0101"));
    }

    #[test]
    fn each_file_has_a_cipher_of_its_own() {
        let key = SealKey::new([3; LENGTH]);
        let sealed = |key: &SealKey, file: &[u8]| {
            let mut block = [[0_u8; 16]];
            key.cipher(file).encrypt(&mut block, 0);
            block
        };
        assert_eq!(sealed(&key, b"copy-1.db"), sealed(&key, b"copy-1.db"));
        assert_ne!(sealed(&key, b"copy-1.db"), sealed(&key, b"copy-1.db-wal"));
        assert_ne!(sealed(&key, b"copy-1.db"), sealed(&SealKey::new([4; LENGTH]), b"copy-1.db"));
    }
}
