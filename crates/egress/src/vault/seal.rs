//! Sealing: XChaCha20-Poly1305 with a data key for each version of a secret, wrapped by the root key.
//!
//! Takes plaintexts and what they belong to; gives versioned blobs: one byte, 24 bytes nonce, ciphertext and tag.
//! Promise: a blob opens only as what it was sealed as. Purpose, secret, version, name and scope are associated data,
//! so that no database row can replace another and no scope can be widened in the database.

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};
use sluice_core::Entropy;
use sluice_core::ids::SecretId;
use zeroize::Zeroizing;

use super::secret::SecretValue;

/// The first byte of every blob.
const FORMAT: u8 = 1;
const NONCE: usize = 24;

/// The key that everything else is sealed under.
#[allow(missing_debug_implementations, reason = "a key that can be printed will be")]
pub struct RootKey(Zeroizing<[u8; 32]>);

/// The purpose of a blob.
#[derive(Debug, Clone, Copy)]
pub(super) enum SealPurpose {
    DataKey,
    Value,
    /// Proves that a root key is the right one.
    Proof,
}

/// The secret that a blob belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct SealContext<'a> {
    pub secret: SecretId,
    pub version: u64,
    pub name: &'a str,
    pub scope: &'a str,
}

/// The error for a blob that was not sealed by this key for this purpose and secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnsealError;

/// A sealed version of a secret.
pub(super) struct SealedSecret {
    pub wrapped: Vec<u8>,
    pub sealed: Vec<u8>,
}

impl SealPurpose {
    const fn word(self) -> &'static str {
        match self {
            Self::DataKey => "data-key",
            Self::Value => "value",
            Self::Proof => "proof",
        }
    }
}

impl SealContext<'_> {
    /// A proof belongs to no secret.
    pub(super) const NOTHING: Self = Self { secret: SecretId::from_bits(0), version: 0, name: "", scope: "" };

    /// Every part has a fixed length or its length in front, so two different values never have the same encoding.
    fn associated(&self, purpose: SealPurpose) -> Vec<u8> {
        let mut all = Vec::with_capacity(128);
        for part in ["sluice vault 1", purpose.word(), self.name, self.scope] {
            all.extend((part.len() as u64).to_be_bytes());
            all.extend(part.as_bytes());
        }
        all.extend(self.secret.bits().to_be_bytes());
        all.extend(self.version.to_be_bytes());
        all
    }
}

impl RootKey {
    /// A key from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// A new random key.
    #[must_use]
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        entropy.fill(bytes.as_mut_slice());
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A fingerprint that reveals nothing about the key.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let hash = Sha256::new().chain_update(b"sluice vault root 1").chain_update(*self.0).finalize();
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// A sealed text that only this key opens.
    pub(super) fn proof(&self, entropy: &dyn Entropy) -> Result<Vec<u8>, UnsealError> {
        seal(&self.0, SealPurpose::Proof, &SealContext::NOTHING, b"root", entropy)
    }

    pub(super) fn opens(&self, proof: &[u8]) -> bool {
        open(&self.0, SealPurpose::Proof, &SealContext::NOTHING, proof).is_ok()
    }

    /// Seals a value under a new data key.
    pub(super) fn seal(
        &self,
        belongs: &SealContext<'_>,
        value: &SecretValue,
        entropy: &dyn Entropy,
    ) -> Result<SealedSecret, UnsealError> {
        let mut data_key = Zeroizing::new([0; 32]);
        entropy.fill(data_key.as_mut_slice());
        let sealed = seal(&data_key, SealPurpose::Value, belongs, value.expose(), entropy)?;
        let wrapped = seal(&self.0, SealPurpose::DataKey, belongs, data_key.as_slice(), entropy)?;
        Ok(SealedSecret { wrapped, sealed })
    }

    /// Opens a value.
    pub(super) fn open(
        &self,
        belongs: &SealContext<'_>,
        wrapped: &[u8],
        sealed: &[u8],
    ) -> Result<SecretValue, UnsealError> {
        let data_key = self.unwrap(belongs, wrapped)?;
        open(&data_key, SealPurpose::Value, belongs, sealed).map(|value| SecretValue::new(value.to_vec()))
    }

    /// Seals a data key under another root key. The value itself does not change.
    pub(super) fn rewrap(
        &self,
        to: &Self,
        belongs: &SealContext<'_>,
        wrapped: &[u8],
        entropy: &dyn Entropy,
    ) -> Result<Vec<u8>, UnsealError> {
        let data_key = self.unwrap(belongs, wrapped)?;
        seal(&to.0, SealPurpose::DataKey, belongs, data_key.as_slice(), entropy)
    }

    fn unwrap(&self, belongs: &SealContext<'_>, wrapped: &[u8]) -> Result<Zeroizing<[u8; 32]>, UnsealError> {
        let data_key = open(&self.0, SealPurpose::DataKey, belongs, wrapped)?;
        <[u8; 32]>::try_from(data_key.as_slice()).map(Zeroizing::new).map_err(|_| UnsealError)
    }
}

fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*key))
}

fn seal(
    key: &[u8; 32],
    purpose: SealPurpose,
    belongs: &SealContext<'_>,
    plain: &[u8],
    entropy: &dyn Entropy,
) -> Result<Vec<u8>, UnsealError> {
    let mut nonce = [0; NONCE];
    entropy.fill(&mut nonce);
    let payload = Payload { msg: plain, aad: &belongs.associated(purpose) };
    let sealed = cipher(key).encrypt(&XNonce::from(nonce), payload).map_err(|_| UnsealError)?;
    Ok([[FORMAT].as_slice(), &nonce, &sealed].concat())
}

fn open(
    key: &[u8; 32],
    purpose: SealPurpose,
    belongs: &SealContext<'_>,
    blob: &[u8],
) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
    let Some((&FORMAT, rest)) = blob.split_first() else { return Err(UnsealError) };
    let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or(UnsealError)?;
    let payload = Payload { msg: sealed, aad: &belongs.associated(purpose) };
    cipher(key).decrypt(&XNonce::from(*nonce), payload).map(Zeroizing::new).map_err(|_| UnsealError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_testkit::ids::SeededEntropy;

    const OF: SealContext<'static> =
        SealContext { secret: SecretId::from_bits(7), version: 3, name: "mail/token", scope: "{\"hosts\":[]}" };

    fn key(seed: u64) -> RootKey {
        RootKey::generate(&SeededEntropy::new(seed))
    }

    fn sealed() -> SealedSecret {
        key(1)
            .seal(&OF, &SecretValue::new(b"hunter2".to_vec()), &SeededEntropy::new(2))
            .unwrap_or_else(|_| panic!("sealed"))
    }

    #[test]
    fn what_was_sealed_opens_as_what_it_was() {
        let SealedSecret { wrapped, sealed } = sealed();
        assert_eq!(key(1).open(&OF, &wrapped, &sealed).unwrap_or_else(|_| panic!("opens")).expose(), b"hunter2");
        assert!(!sealed.windows(7).any(|bytes| bytes == b"hunter2"));
    }

    #[test]
    fn it_opens_as_nothing_else() {
        let SealedSecret { wrapped, sealed } = sealed();
        let others = [
            SealContext { secret: SecretId::from_bits(8), ..OF },
            SealContext { version: 4, ..OF },
            SealContext { name: "mail/other", ..OF },
            SealContext { scope: "{\"hosts\":[\"evil.example\"]}", ..OF },
            // The border between two parts cannot be moved.
            SealContext { name: "mail/token{", scope: "\"hosts\":[]}", ..OF },
        ];
        for other in others {
            assert!(key(1).open(&other, &wrapped, &sealed).is_err(), "{other:?}");
        }
        assert!(key(2).open(&OF, &wrapped, &sealed).is_err(), "another root key");
        assert!(key(1).open(&OF, &sealed, &wrapped).is_err(), "a value in the place of its key");
    }

    #[test]
    fn rewrapping_changes_who_opens_it_and_not_what_it_is() {
        let SealedSecret { wrapped, sealed } = sealed();
        let anew = key(1).rewrap(&key(2), &OF, &wrapped, &SeededEntropy::new(3)).unwrap();
        assert_eq!(key(2).open(&OF, &anew, &sealed).unwrap_or_else(|_| panic!("opens")).expose(), b"hunter2");
        assert!(key(1).open(&OF, &anew, &sealed).is_err());
    }

    #[test]
    fn only_the_right_key_opens_the_proof() {
        let proof = key(1).proof(&SeededEntropy::new(9)).unwrap();
        assert!(key(1).opens(&proof) && !key(2).opens(&proof) && !key(1).opens(b""));
        assert_ne!(key(1).fingerprint(), key(2).fingerprint());
    }

    proptest! {
        #[test]
        fn one_flipped_bit_and_it_stays_shut(at in 0_usize..1000, bit in 0_u8..8, which in any::<bool>()) {
            let SealedSecret { mut wrapped, mut sealed } = sealed();
            let blob = if which { &mut wrapped } else { &mut sealed };
            let at = at % blob.len();
            blob[at] ^= 1 << bit;
            prop_assert!(key(1).open(&OF, &wrapped, &sealed).is_err());
        }

        #[test]
        fn noise_is_refused_without_a_panic(blob in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(key(1).open(&OF, &blob, &blob).is_err());
        }
    }
}
