//! Backup locks: a passphrase, or the key of a recipient.
//!
//! Takes a passphrase or a key; gives the 32 bytes that wrap the data key of a backup. A passphrase goes through
//! Argon2id with the cost of the vault. With a recipient's public key, an unattended job can make backups that it
//! cannot open itself. Promise: nothing secret is printed, and a passphrase that is too short is refused before
//! anything is written.

use curve25519_dalek::montgomery::MontgomeryPoint;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_core::{Entropy, hex};
use sluice_egress::vault::{PASSPHRASE_COST, passphrase_key};
use zeroize::Zeroizing;

use super::BackupError;

/// The shortest passphrase, in characters, as in the vault.
pub const SHORTEST_PASSPHRASE: usize = 12;
/// The prefixes of a recipient's public key, and of the secret key that opens.
const RECIPIENT: &str = "backup_";
const IDENTITY: &str = "sgb_";

/// The lock of a new backup.
#[allow(missing_debug_implementations, reason = "it may hold a passphrase")]
pub enum BackupLock {
    /// A passphrase.
    Passphrase(Zeroizing<String>),
    /// The public key of a recipient.
    Recipient([u8; 32]),
}

/// The key that opens a backup.
#[allow(missing_debug_implementations, reason = "it holds a passphrase or a key")]
pub enum BackupKey {
    /// A passphrase.
    Passphrase(Zeroizing<String>),
    /// A recipient's secret key.
    Identity(Zeroizing<[u8; 32]>),
}

/// The header fields from which the key of a backup is derived; not secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "with", rename_all = "snake_case", deny_unknown_fields)]
pub enum BackupLockParams {
    /// Argon2id of a passphrase.
    Passphrase {
        /// The memory, in KiB.
        memory: u32,
        /// The number of rounds.
        rounds: u32,
        /// The number of lanes.
        lanes: u32,
        /// The salt, in hex.
        salt: String,
    },
    /// X25519 with a recipient's key.
    Recipient {
        /// The recipient's public key.
        recipient: String,
        /// The public half of a key pair that was made only for this backup, in hex.
        ephemeral: String,
    },
}

impl BackupLock {
    /// A passphrase of sufficient length.
    ///
    /// # Errors
    /// When it is too short.
    pub fn passphrase(text: Zeroizing<String>) -> Result<Self, BackupError> {
        if text.chars().count() < SHORTEST_PASSPHRASE {
            let why = format!("the passphrase has fewer than {SHORTEST_PASSPHRASE} characters");
            return Err(BackupError::Key(why));
        }
        Ok(Self::Passphrase(text))
    }

    /// The public key of a recipient, as [`new_identity`] gives it.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn recipient(text: &str) -> Result<Self, BackupError> {
        let key = text.trim().strip_prefix(RECIPIENT).and_then(hex::decode::<32>);
        let key = key.ok_or_else(|| BackupError::Key(format!("a recipient is {RECIPIENT} and 64 hex digits")))?;
        Ok(Self::Recipient(key))
    }

    /// Makes a key for one backup, and the header fields from which it is derived again.
    pub(super) fn wrap_key(
        &self,
        entropy: &dyn Entropy,
    ) -> Result<(Zeroizing<[u8; 32]>, BackupLockParams), BackupError> {
        match self {
            Self::Passphrase(text) => {
                let mut salt = [0; 16];
                entropy.fill(&mut salt);
                let (memory, rounds, lanes) = PASSPHRASE_COST;
                let key = passphrase_key(text.as_bytes(), &salt, PASSPHRASE_COST).map_err(BackupError::Key)?;
                Ok((key, BackupLockParams::Passphrase { memory, rounds, lanes, salt: hex::encode(&salt) }))
            }
            Self::Recipient(recipient) => {
                let mut secret = Zeroizing::new([0; 32]);
                entropy.fill(secret.as_mut_slice());
                let ephemeral = MontgomeryPoint::mul_base_clamped(*secret).to_bytes();
                let key = agreed(&secret, recipient, (&ephemeral, recipient))?;
                let recipient = format!("{RECIPIENT}{}", hex::encode(recipient));
                Ok((key, BackupLockParams::Recipient { recipient, ephemeral: hex::encode(&ephemeral) }))
            }
        }
    }
}

impl BackupKey {
    /// A recipient's secret key, as [`new_identity`] gives it.
    ///
    /// # Errors
    /// When it is not valid. The error does not repeat the text.
    pub fn identity(text: &str) -> Result<Self, BackupError> {
        let key = text.trim().strip_prefix(IDENTITY).and_then(hex::decode::<32>);
        let key = key.ok_or_else(|| BackupError::Key(format!("an identity is {IDENTITY} and 64 hex digits")))?;
        Ok(Self::Identity(Zeroizing::new(key)))
    }

    /// The key that wrapped a backup, if this opens it.
    pub(super) fn unwrap_key(&self, params: &BackupLockParams) -> Result<Zeroizing<[u8; 32]>, BackupError> {
        let form = || BackupError::damaged("its header", "its lock parameters are not valid");
        match (self, params) {
            (Self::Passphrase(text), BackupLockParams::Passphrase { memory, rounds, lanes, salt }) => {
                let salt = hex::decode::<16>(salt).ok_or_else(form)?;
                // SECURITY: these numbers are not authenticated yet; they must not be able to use up all memory.
                if *memory > 1 << 20 || *rounds > 16 || *lanes > 16 {
                    return Err(form());
                }
                passphrase_key(text.as_bytes(), &salt, (*memory, *rounds, *lanes)).map_err(BackupError::Key)
            }
            (Self::Identity(secret), BackupLockParams::Recipient { recipient, ephemeral }) => {
                let ephemeral = hex::decode::<32>(ephemeral).ok_or_else(form)?;
                let own = MontgomeryPoint::mul_base_clamped(**secret).to_bytes();
                if *recipient != format!("{RECIPIENT}{}", hex::encode(&own)) {
                    return Err(BackupError::WrongKey);
                }
                agreed(secret, &ephemeral, (&ephemeral, &own))
            }
            (Self::Passphrase(_), BackupLockParams::Recipient { recipient, .. }) => {
                Err(BackupError::Key(format!("it was made for {recipient}: name the identity file")))
            }
            (Self::Identity(_), BackupLockParams::Passphrase { .. }) => {
                Err(BackupError::Key("it was made with a passphrase: name the passphrase file".into()))
            }
        }
    }
}

/// A new key pair for a recipient: the secret text, and the public key that backups are made for.
#[must_use]
pub fn new_identity(entropy: &dyn Entropy) -> (Zeroizing<String>, String) {
    let mut secret = Zeroizing::new([0; 32]);
    entropy.fill(secret.as_mut_slice());
    let public = MontgomeryPoint::mul_base_clamped(*secret).to_bytes();
    let digits = Zeroizing::new(hex::encode(secret.as_slice()));
    (Zeroizing::new(format!("{IDENTITY}{}", *digits)), format!("{RECIPIENT}{}", hex::encode(&public)))
}

/// The shared secret of two keys, bound to both public keys.
fn agreed(
    secret: &Zeroizing<[u8; 32]>,
    other: &[u8; 32],
    (ephemeral, recipient): (&[u8; 32], &[u8; 32]),
) -> Result<Zeroizing<[u8; 32]>, BackupError> {
    let shared = Zeroizing::new(MontgomeryPoint(*other).mul_clamped(**secret).to_bytes());
    // SECURITY: a point of small order gives everyone the same secret.
    if shared.iter().all(|byte| *byte == 0) {
        return Err(BackupError::Key("the recipient's key is not valid".into()));
    }
    let hash = Sha256::new().chain_update(b"sluice backup recipient 1").chain_update(shared.as_slice());
    Ok(Zeroizing::new(hash.chain_update(ephemeral).chain_update(recipient).finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_testkit::ids::SeededEntropy;

    #[test]
    fn a_recipient_opens_what_was_made_for_it_and_nobody_else_does() {
        let entropy = SeededEntropy::new(3);
        let (secret, public) = new_identity(&entropy);
        let (other, _) = new_identity(&entropy);
        let (key, params) =
            BackupLock::recipient(&public).unwrap_or_else(|e| panic!("{e}")).wrap_key(&entropy).unwrap();
        let opened = BackupKey::identity(&secret).unwrap_or_else(|e| panic!("{e}")).unwrap_key(&params).unwrap();
        assert_eq!(*key, *opened);
        let wrong = BackupKey::identity(&other).unwrap_or_else(|e| panic!("{e}")).unwrap_key(&params);
        assert!(matches!(wrong, Err(BackupError::WrongKey)));
    }

    #[test]
    fn a_key_of_small_order_is_no_key() {
        let lock = BackupLock::Recipient([0; 32]);
        assert!(matches!(lock.wrap_key(&SeededEntropy::new(1)), Err(BackupError::Key(_))));
    }

    #[test]
    fn a_short_passphrase_makes_no_backup_and_a_bad_key_is_not_quoted() {
        assert!(BackupLock::passphrase(Zeroizing::new("short".into())).is_err());
        for text in ["", "sgb_", "hunter2hunter2", "backup_zz"] {
            let why = BackupKey::identity(text).err().unwrap().to_string();
            assert!(!why.contains("hunter2"), "{why}");
            assert!(BackupLock::recipient(text).is_err());
        }
    }
}
