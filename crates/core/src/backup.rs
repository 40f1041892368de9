//! Backups: the manifest of a backup, and its signature.
//!
//! Takes what was backed up; gives a [`BackupManifest`] and the text that the gateway's key signs over it. Promise: any
//! changed byte of the manifest is detected, every file of a backup is in it by size and hash, and a signature over a
//! backup can never be taken for one over the audit log, because its text begins with another word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::audit::AuditHash;
use crate::audit::key::{SecretKey, VerifierKey};
use crate::audit::note::{NoteError, SignedNote};
use crate::clock::UtcMillis;
use crate::hex;
use crate::ids::NodeName;

/// Names the form of a backup.
pub const FORM: &str = "sluicegate-backup-v1";
/// The first line of the signed text. The texts of checkpoints begin with `sluicegate/audit/`.
const ORIGIN: &str = "sluicegate/backup/v1";

/// The database engine of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackupEngine {
    /// A database file.
    Sqlite,
    /// A PostgreSQL database, as a dump.
    Postgres,
}

/// The manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupManifest {
    /// [`FORM`].
    pub form: String,
    /// The id of this backup; the envelope with its keys has the same id.
    pub backup: String,
    /// When it was begun.
    pub created_at: UtcMillis,
    /// The release of the program that made it.
    pub release: String,
    /// The gateway, as its database names it.
    pub instance: Option<String>,
    /// The node whose data folder this is.
    pub node: NodeName,
    /// How often that node was started.
    pub epoch: Option<u64>,
    /// The database engine.
    pub engine: BackupEngine,
    /// The schema of the database.
    pub schema: i64,
    /// Every audit log, as far as the backup has it.
    pub logs: Vec<BackedUpLog>,
    /// Every file in the order it lies in the backup, except the manifest itself.
    pub files: Vec<BackedUpFile>,
    /// Files that are not in the backup, with the reason.
    pub left_out: Vec<BackupOmission>,
    /// The tools that made the copies, with their versions.
    pub tools: BTreeMap<String, String>,
}

/// One audit log in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackedUpLog {
    /// Which log.
    pub log: NodeName,
    /// How many entries it has.
    pub size: u64,
    /// The hash of the last of them.
    pub hash: AuditHash,
    /// The last signed checkpoint over it, as a signed note.
    pub checkpoint: Option<String>,
    /// The public key its checkpoints are checked with, where the node that made the backup has it.
    pub key: Option<String>,
}

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackedUpFile {
    /// Where it belongs: below `database/`, `data/` or `config/`.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// SHA-256 of its content, in hex.
    pub sha256: String,
    /// The permissions, as a Unix mode.
    pub mode: u32,
}

/// Something that is not in the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupOmission {
    /// The path that was left out.
    pub path: String,
    /// Why it was left out.
    pub why: String,
}

/// The text that is signed over a manifest: its hash, under a first line of its own.
#[must_use]
pub fn signed_text(manifest: &[u8]) -> String {
    format!("{ORIGIN}\n{}\n", hex::encode(&Sha256::digest(manifest)))
}

/// Signs the bytes of a manifest.
///
/// # Errors
/// Never for a text of this form.
pub fn sign(manifest: &[u8], key: &SecretKey) -> Result<SignedNote, NoteError> {
    SignedNote::sign(signed_text(manifest), key)
}

/// Whether a key has signed exactly these bytes.
///
/// # Errors
/// When it has not, or it has signed other bytes.
pub fn verify(manifest: &[u8], note: &SignedNote, key: &VerifierKey) -> Result<(), NoteError> {
    let text = note.open(std::slice::from_ref(key))?;
    if text == signed_text(manifest) { Ok(()) } else { Err(NoteError::Form("it belongs to another manifest")) }
}

/// Whether a path of a manifest stays where it is put: relative, below one of the three folders, without a way up.
#[must_use]
pub fn is_inside(path: &str) -> bool {
    let known = ["database/", "data/", "config/"].iter().any(|folder| path.starts_with(folder));
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    known && path.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::checkpoint::{Checkpoint, origin};
    use crate::ids::Entropy;

    struct Ones;
    impl Entropy for Ones {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(1);
        }
    }

    fn key() -> SecretKey {
        SecretKey::generate(&origin(&NodeName::new("gw").unwrap()), &Ones).unwrap()
    }

    #[test]
    fn any_changed_byte_of_a_manifest_is_noticed() {
        let (key, bytes) = (key(), br#"{"form":"sluicegate-backup-v1"}"#.to_vec());
        let note = sign(&bytes, &key).unwrap();
        assert_eq!(verify(&bytes, &note, key.public()), Ok(()));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(verify(&changed, &note, key.public()).is_err(), "{at}");
        }
    }

    #[test]
    fn a_signature_over_a_backup_is_none_over_the_record() {
        let note = sign(b"{}", &key()).unwrap();
        assert!(Checkpoint::parse(note.text_unverified()).is_err());
    }

    #[test]
    fn no_path_leads_out_of_where_a_backup_is_put() {
        for path in ["data/a", "database/sluice.db", "config/policies/org.yaml", "data/...x"] {
            assert!(is_inside(path), "{path}");
        }
        let bad = [
            "",
            "/etc/passwd",
            "data",
            "data/",
            "data//a",
            "data/../x",
            "data/a/..",
            "data/./a",
            "other/a",
            "../data/a",
        ];
        for path in bad {
            assert!(!is_inside(path), "{path}");
        }
    }
}
