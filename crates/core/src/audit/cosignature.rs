//! Cosignatures: what a witness says about a checkpoint, in the C2SP `cosignature/v1` form.
//!
//! Takes a witness's public key and the lines it answered with; gives the lines that hold. Promise: a line that
//! [`WitnessKey::find_valid_cosignature`] gives was signed by that witness over exactly this checkpoint.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest as _, Sha256};

use super::key::{KeyError, KeyId, is_key_name};
use super::note::SignedNote;
use crate::hex;

/// Type byte of an Ed25519 cosigner's key.
const COSIGNER: u8 = 4;
/// Bytes of a timestamp before the signature itself.
const TIME: usize = 8;

/// The public key of a witness: `name+id+base64(0x04 ‖ public key)`.
#[derive(Clone, PartialEq, Eq)]
pub struct WitnessKey {
    name: String,
    id: KeyId,
    key: VerifyingKey,
}

/// A cosignature that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cosignature {
    /// The signature line as it came, without its line end.
    pub line: String,
    /// When the witness signed, in seconds since 1970.
    pub time: u64,
}

impl WitnessKey {
    /// The name it signs under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A key by its name and bytes.
    ///
    /// # Errors
    /// When the name cannot stand in a signature line, or the bytes are no sound key.
    pub fn new(name: &str, bytes: &[u8; 32]) -> Result<Self, KeyError> {
        if !is_key_name(name) {
            return Err(KeyError::Name);
        }
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::Bytes)?;
        if key.is_weak() {
            return Err(KeyError::Bytes);
        }
        let hash = Sha256::new().chain_update(name).chain_update([b'\n', COSIGNER]).chain_update(bytes).finalize();
        let [a, b, c, d, ..] = <[u8; 32]>::from(hash);
        Ok(Self { name: name.to_owned(), id: [a, b, c, d], key })
    }

    /// The first of the witness's answered lines that is this witness's own and holds for this checkpoint.
    #[must_use]
    pub fn find_valid_cosignature(&self, checkpoint: &SignedNote, answer: &str) -> Option<Cosignature> {
        let text = checkpoint.text_unverified();
        // Anything else a witness answers is parsed by the same reader as a note.
        let note = SignedNote::parse(format!("{text}\n{answer}").as_bytes()).ok()?;
        let own = note.signatures().iter().filter(|line| line.name == self.name && line.id == self.id);
        let held = own.filter_map(|line| {
            let (time, signature) = line.bytes.split_first_chunk::<TIME>()?;
            let time = u64::from_be_bytes(*time);
            let signature = <[u8; 64]>::try_from(signature).map(|bytes| Signature::from_bytes(&bytes)).ok()?;
            self.key.verify_strict(&message(text, time), &signature).ok()?;
            let bytes = [line.id.as_slice(), &line.bytes].concat();
            Some(Cosignature { line: format!("\u{2014} {} {}", line.name, STANDARD.encode(bytes)), time })
        });
        held.into_iter().find(|held| i64::try_from(held.time).is_ok())
    }

    /// The prefix of this key's signature lines: for witnesses.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }
}

/// The bytes a cosigner signs.
#[must_use]
pub fn message(checkpoint: &str, time: u64) -> Vec<u8> {
    format!("cosignature/v1\ntime {time}\n{checkpoint}").into_bytes()
}

impl FromStr for WitnessKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(bytes)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(KeyError::Form);
        };
        let bytes = STANDARD.decode(bytes).map_err(|_| KeyError::Form)?;
        let Some((&COSIGNER, bytes)) = bytes.split_first() else { return Err(KeyError::Bytes) };
        let key = Self::new(name, bytes.try_into().map_err(|_| KeyError::Bytes)?)?;
        if hex::encode(&key.id) == id { Ok(key) } else { Err(KeyError::Id) }
    }
}

impl fmt::Display for WitnessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![COSIGNER];
        bytes.extend_from_slice(self.key.as_bytes());
        write!(f, "{}+{}+{}", self.name, hex::encode(&self.id), STANDARD.encode(bytes))
    }
}

impl fmt::Debug for WitnessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};

    const CHECKPOINT: &str = "sluicegate/audit/gw-1\n3\nFLk0cG5M4iMMMHcDs8k84KGE2RYvwmyAm4j7j+bR7lo=\n\
        chain 92e7d114443f3a97980b8e676da65b63018259f61706f2a27c952e2df60f726a\n";

    fn note() -> SignedNote {
        let log = "\u{2014} sluicegate/audit/gw-1 /aHO5F3QfLt8HyrozVVaJxukVEpKhxDg0yhp5HlVNZqye/Q+tPE761HVCSfTvVN8uiC949xUtclMNHX+DX7VP3zKFwE=\n";
        SignedNote::parse(format!("{CHECKPOINT}\n{log}").as_bytes()).unwrap()
    }

    fn line(key: &WitnessKey, secret: &SigningKey, text: &str, time: u64) -> String {
        let signature = secret.sign(&message(text, time)).to_bytes();
        let bytes = [key.id().as_slice(), &time.to_be_bytes(), &signature].concat();
        format!("\u{2014} {} {}\n", key.name(), STANDARD.encode(bytes))
    }

    #[test]
    fn only_the_witness_s_own_line_over_this_very_checkpoint_is_kept() {
        let secret = SigningKey::from_bytes(&[9; 32]);
        let key = WitnessKey::new("witness.example/w1", &secret.verifying_key().to_bytes()).unwrap();
        let good = line(&key, &secret, CHECKPOINT, 1_679_315_147);
        let kept = key.find_valid_cosignature(&note(), &good).unwrap();
        assert_eq!((format!("{}\n", kept.line), kept.time), (good.clone(), 1_679_315_147));
        let stranger = SigningKey::from_bytes(&[8; 32]);
        let forged = line(&key, &stranger, CHECKPOINT, 1_679_315_147);
        let elsewhere = line(&key, &secret, &CHECKPOINT.replace("\n3\n", "\n4\n"), 1_679_315_147);
        let late = line(&key, &secret, CHECKPOINT, u64::MAX);
        for bad in [&forged, &elsewhere, &late, "", "ok\n", good.trim_end()] {
            assert_eq!(key.find_valid_cosignature(&note(), bad), None, "{bad}");
        }
        assert!(key.find_valid_cosignature(&note(), &format!("{forged}{good}")).is_some(), "others' lines are ignored");
    }

    #[test]
    fn a_witness_key_reads_back_and_another_kind_of_key_is_refused() {
        let secret = SigningKey::from_bytes(&[9; 32]);
        let key = WitnessKey::new("witness.example/w1", &secret.verifying_key().to_bytes()).unwrap();
        assert_eq!(key.to_string().parse(), Ok(key));
        // The key of a log has another type byte.
        let log: Result<WitnessKey, _> = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW".parse();
        assert_eq!(log, Err(KeyError::Bytes));
    }
}
