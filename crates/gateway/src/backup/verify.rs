//! Verifies a backup without restoring it.
//!
//! Takes a backup, its key and a temporary folder; gives the result. Everything is decrypted, hashed and compared with
//! the signed manifest, databases are opened read-only and checked page by page, and the audit logs are verified
//! against their checkpoints. Promise: a backup that verifies here can be restored.

use std::path::Path;

use sluice_core::audit::key::VerifierKey;
use sluice_core::backup::{BackupEngine, BackupManifest};
use sluice_egress::vault::root_key_fits;
use sluice_store::Store;
use sluice_store::backup::{check_pages, read_dump};

use super::lock::BackupKey;
use super::record::{self, VerifiedLog};
use super::unpack::{DATABASE, DUMP, EnvelopedKey, UnpackedBackup, open_envelope, unpack};
use super::{BackupError, create};

/// The parameters of a verification.
#[allow(missing_debug_implementations, reason = "the key may be a passphrase")]
pub struct VerifyBackupParams<'a> {
    /// The backup.
    pub backup: &'a Path,
    /// The key that opens it.
    pub key: &'a BackupKey,
    /// The envelope with its keys, if it is verified too.
    pub keys: Option<&'a Path>,
    /// The public key of the gateway, known from elsewhere.
    pub trusted: Option<&'a VerifierKey>,
    /// A private folder with room for all of it.
    pub scratch: &'a Path,
}

/// The result of a verification.
#[derive(Debug)]
pub struct VerifiedBackup {
    /// The manifest of the backup.
    pub manifest: BackupManifest,
    /// The verified logs.
    pub logs: Vec<VerifiedLog>,
    /// The key that signed the manifest.
    pub signer: VerifierKey,
    /// Whether the caller knew that key from elsewhere.
    pub signer_known: bool,
    /// How many keys the envelope holds, if one was named.
    pub keys: Option<usize>,
    /// Whether the root key in the envelope opens the vault of the backup; nothing if either is not included.
    pub vault_opens: Option<bool>,
}

/// Verifies a backup.
///
/// # Errors
/// The first error, and where it is.
pub async fn verify(params: VerifyBackupParams<'_>) -> Result<VerifiedBackup, BackupError> {
    let (verified, _) = verify_into(&params).await?;
    Ok(verified)
}

/// Like [`verify`], but leaves the files in the temporary folder, with the layout of the backup.
pub(super) async fn verify_into(
    params: &VerifyBackupParams<'_>,
) -> Result<(VerifiedBackup, Vec<EnvelopedKey>), BackupError> {
    let VerifyBackupParams { backup, key, keys, trusted, scratch } = params;
    create::make_folder(scratch)?;
    let UnpackedBackup { manifest, signer } = unpack(backup, key, scratch)?;
    if let Some(trusted) = trusted.filter(|trusted| **trusted != signer) {
        return Err(BackupError::Signature(format!("it is signed by {signer}, and the gateway's key is {trusted}")));
    }
    let record = match manifest.engine {
        BackupEngine::Sqlite => scratch.join(DATABASE),
        BackupEngine::Postgres => {
            let record = scratch.join("record.db");
            read_dump(&scratch.join(DUMP), &record)?;
            record
        }
    };
    let examined = sluice_store::examine_file(&record)?;
    if examined.schema != manifest.schema {
        return Err(BackupError::Record(format!(
            "schema {}, but the manifest says {}",
            examined.schema, manifest.schema
        )));
    }
    let logs = record::check(&record, &manifest.logs, scratch).await?;
    for file in manifest.files.iter().filter(|file| is_clear_copy(&file.path)) {
        check_pages(&scratch.join(&file.path))
            .map_err(|error| BackupError::damaged(&format!("`{}`", file.path), &error.to_string()))?;
    }
    let enveloped = match keys {
        Some(path) => open_envelope(path, key, &manifest)?,
        None => Vec::new(),
    };
    let vault_opens = vault_opens(&record, &enveloped).await?;
    if vault_opens == Some(false) {
        return Err(BackupError::Key("the root key in the envelope does not open the vault of this backup".into()));
    }
    let verified = VerifiedBackup {
        manifest,
        logs,
        signer,
        signer_known: trusted.is_some(),
        keys: keys.map(|_| enveloped.len()),
        vault_opens,
    };
    Ok((verified, enveloped))
}

/// Whether a file is an unencrypted replica; an encrypted one is checked by its hash.
fn is_clear_copy(path: &str) -> bool {
    path.starts_with("data/replicas/") && path.ends_with(".db")
}

async fn vault_opens(record: &Path, keys: &[EnvelopedKey]) -> Result<Option<bool>, BackupError> {
    let Some(key) = keys.iter().find(|key| key.path == "data/keys/root.key") else { return Ok(None) };
    let Some(root) = Store::open_to_read(record)?.vault_root().await? else { return Ok(None) };
    let text = std::str::from_utf8(&key.content).unwrap_or_default();
    Ok(Some(root_key_fits(text, &root)))
}
