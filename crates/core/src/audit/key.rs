//! Keys of the audit log: the one that signs checkpoints, and the one that checks them.
//!
//! Takes key texts in the form of Go's `sumdb/note` and C2SP signed notes; gives keys that sign and
//! verify. Promise: a key text with a typing error in its name or its bytes is refused, because the
//! id in the middle is computed from both; a signing key is never printed, cloned or left in memory.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::hex;
use crate::ids::Entropy;

/// Type byte of an Ed25519 key.
const ED25519: u8 = 1;
const PRIVATE: &str = "PRIVATE+KEY+";
/// Longest key name, in bytes.
const NAME: usize = 256;

/// First four bytes of a hash over name, type and public key: says which key a signature claims to be made with.
pub type KeyId = [u8; 4];

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not `name+id+base64`.
    #[error("a key reads `name+id+base64`, a signing key with `PRIVATE+KEY+` before it")]
    Form,
    /// Empty or too long, or has a space, a control character or a plus sign.
    #[error("a key name has 1 to 256 bytes and neither spaces nor control characters nor `+`")]
    Name,
    /// The id was not computed from this name and these bytes.
    #[error("the id in the key does not belong to its name and bytes")]
    Id,
    /// Not an Ed25519 key, or a weak one.
    #[error("not a sound Ed25519 key")]
    Bytes,
}

impl KeyError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Form => "audit.key_form",
            Self::Name => "audit.key_name",
            Self::Id => "audit.key_id",
            Self::Bytes => "audit.key_bytes",
        }
    }
}

/// A public key and the name it signs under.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    id: KeyId,
    key: VerifyingKey,
}

impl VerifierKey {
    /// The name it signs under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its signatures start with.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Whether this key made this signature over exactly these bytes. Strict: one text has one signature only.
    #[must_use]
    pub fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        let signature = <[u8; 64]>::try_from(signature).map(|bytes| Signature::from_bytes(&bytes));
        signature.is_ok_and(|signature| self.key.verify_strict(text, &signature).is_ok())
    }

    fn new(name: String, key: VerifyingKey) -> Result<Self, KeyError> {
        if !is_key_name(&name) {
            return Err(KeyError::Name);
        }
        if key.is_weak() {
            return Err(KeyError::Bytes);
        }
        let hash =
            Sha256::new().chain_update(&name).chain_update([b'\n', ED25519]).chain_update(key.as_bytes()).finalize();
        let [a, b, c, d, ..] = <[u8; 32]>::from(hash);
        Ok(Self { name, id: [a, b, c, d], key })
    }
}

impl FromStr for VerifierKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (name, id, bytes) = parts(text)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Bytes)?;
        let key = Self::new(name.to_owned(), key)?;
        if key.id == id { Ok(key) } else { Err(KeyError::Id) }
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ED25519];
        bytes.extend_from_slice(self.key.as_bytes());
        write!(f, "{}+{}+{}", self.name, hex::encode(&self.id), STANDARD.encode(bytes))
    }
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A private key and the name it signs under. Wiped when dropped.
pub struct SecretKey {
    public: VerifierKey,
    key: SigningKey,
}

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// When the name cannot stand in a signature line.
    pub fn generate(name: &str, entropy: &dyn Entropy) -> Result<Self, KeyError> {
        let mut seed = Zeroizing::new([0; 32]);
        entropy.fill(seed.as_mut_slice());
        Self::from_seed(name, &seed)
    }

    /// Reads the text form, as [`SecretKey::to_text`] writes it; a line end after it is fine.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let (name, id, seed) = parts(text.strip_prefix(PRIVATE).ok_or(KeyError::Form)?)?;
        let key = Self::from_seed(name, &seed)?;
        if key.public.id == id { Ok(key) } else { Err(KeyError::Id) }
    }

    /// The text for the key file: `PRIVATE+KEY+name+id+base64(0x01 ‖ seed)`. Wiped when dropped.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([0; 33]);
        for (to, from) in bytes.iter_mut().zip(std::iter::once(&ED25519).chain(self.key.as_bytes())) {
            *to = *from;
        }
        let digits = Zeroizing::new(STANDARD.encode(bytes.as_slice()));
        // Room for all of it at once: a text that grows leaves copies of its beginning in memory.
        let mut text =
            Zeroizing::new(String::with_capacity(PRIVATE.len() + self.public.name.len() + digits.len() + 10));
        for part in [PRIVATE, &self.public.name, "+", &hex::encode(&self.public.id), "+", &digits] {
            text.push_str(part);
        }
        text
    }

    /// The public key that checks its signatures.
    #[must_use]
    pub const fn public(&self) -> &VerifierKey {
        &self.public
    }

    /// Signs exactly these bytes. [`super::checkpoint`] decides what may be signed.
    pub(super) fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.key.sign(text).to_bytes()
    }

    fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, KeyError> {
        let key = SigningKey::from_bytes(seed);
        Ok(Self { public: VerifierKey::new(name.to_owned(), key.verifying_key())?, key })
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

/// Whether a name can stand in a key and in a signature line.
#[must_use]
pub fn is_key_name(name: &str) -> bool {
    let allowed = |c: char| c != '+' && !c.is_whitespace() && !c.is_control();
    !name.is_empty() && name.len() <= NAME && name.chars().all(allowed)
}

/// `name+id+base64(0x01 ‖ 32 bytes)`. Base64 has plus signs of its own, hence three parts and no more.
fn parts(text: &str) -> Result<(&str, KeyId, Zeroizing<[u8; 32]>), KeyError> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(digits)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(KeyError::Form);
    };
    let id = hex::decode(id).ok_or(KeyError::Form)?;
    let bytes = Zeroizing::new(STANDARD.decode(digits).map_err(|_| KeyError::Form)?);
    let (kind, bytes) = bytes.split_first().ok_or(KeyError::Form)?;
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| KeyError::Bytes)?;
    if *kind == ED25519 { Ok((name, id, Zeroizing::new(bytes))) } else { Err(KeyError::Bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u8);
    impl Entropy for Fixed {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(self.0);
        }
    }

    const PETER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

    #[test]
    fn the_published_example_of_a_key_reads_and_prints() {
        let key: VerifierKey = PETER.parse().unwrap();
        assert_eq!(
            (key.name(), key.id(), key.to_string()),
            ("PeterNeumann", [0xc7, 0x4f, 0x20, 0xa3], PETER.to_owned())
        );
    }

    #[test]
    fn the_published_example_of_a_signing_key_belongs_to_its_public_key() {
        let key =
            SecretKey::parse("PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz").unwrap();
        assert_eq!(key.public().to_string(), PETER);
    }

    #[test]
    fn a_mistyped_key_is_refused() {
        let cases = [
            (PETER.replace("Peter", "Pater"), KeyError::Id),
            (PETER.replace("c74f", "c74e"), KeyError::Id),
            (PETER.replace("c74f", "C74F"), KeyError::Form),
            (PETER.replace("+AR", "+Ah"), KeyError::Bytes),
            (PETER.replace("10TW", "10T"), KeyError::Form),
            (PETER.replace("10TW", ""), KeyError::Bytes),
            (format!("{PETER}\n"), KeyError::Form),
            (PETER.replace("Peter", "Peter "), KeyError::Name),
            ("PeterNeumann+c74f20a3".to_owned(), KeyError::Form),
            (PETER.replace("PeterNeumann", ""), KeyError::Name),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<VerifierKey>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_signing_key_survives_its_text_form_and_prints_nothing() {
        let key = SecretKey::generate("sluicegate/gw-1", &Fixed(7)).unwrap();
        let again = SecretKey::parse(&format!("{}\n", *key.to_text())).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(key.sign(b"x"), again.sign(b"x"));
        assert!(key.public().verifies(b"x", &again.sign(b"x")) && !key.public().verifies(b"y", &again.sign(b"x")));
        assert_eq!(format!("{key:?}"), "SecretKey(…)");
        assert!(SecretKey::parse(&key.public().to_string()).is_err());
        assert!(key.to_text().parse::<VerifierKey>().is_err());
        assert!(SecretKey::generate("with space", &Fixed(7)).is_err());
    }
}
