//! Unpacks a backup into a temporary folder and checks every file against the signed manifest.
//!
//! Takes a container and its key; gives files and the manifest. Promise: the result is byte for byte what was put in,
//! no file lies outside the folder, and the files are exactly those that the manifest names.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::SignedNote;
use sluice_core::backup::{self, BackedUpFile, BackupManifest, FORM, is_inside};
use zeroize::Zeroizing;

use super::BackupError;
use super::container::{ContainerKind, ContainerReader};
use super::create::{make_folder, own_key};
use super::lock::BackupKey;

/// The place of the database file in a backup, and of the dump of a server.
pub(super) const DATABASE: &str = "database/sluice.db";
pub(super) const DUMP: &str = "database/database.dump";
/// The longest manifest or signature, in bytes.
const LONGEST_MANIFEST: u64 = 64 << 20;
/// The longest key, in bytes.
const LONGEST_KEY: u64 = 1 << 20;

/// An unpacked backup.
#[derive(Debug)]
pub(super) struct UnpackedBackup {
    pub manifest: BackupManifest,
    /// The key that signed it, as the manifest names it.
    pub signer: VerifierKey,
}

/// One key of an envelope.
pub(super) struct EnvelopedKey {
    pub path: String,
    pub mode: u32,
    pub content: Zeroizing<Vec<u8>>,
}

/// Unpacks a backup into a folder.
pub(super) fn unpack(backup: &Path, key: &BackupKey, into: &Path) -> Result<UnpackedBackup, BackupError> {
    let file = File::open(backup).map_err(BackupError::read(backup))?;
    let (mut reader, header) = ContainerReader::open(file, ContainerKind::Backup, key)?;
    let mut files: Vec<BackedUpFile> = Vec::new();
    let (mut manifest, mut note) = (None, None);
    while let Some(head) = reader.next()? {
        let place = format!("`{}`", head.path);
        let slot = match head.path.as_str() {
            "manifest.json" => Some(&mut manifest),
            "manifest.note" => Some(&mut note),
            _ => None,
        };
        if let Some(slot) = slot {
            if head.size > LONGEST_MANIFEST || slot.is_some() {
                return Err(BackupError::damaged(&place, "it is too large or appears twice"));
            }
            let mut content = Vec::new();
            reader.content(&head, &mut content)?;
            *slot = Some(content);
            continue;
        }
        if !is_inside(&head.path) || manifest.is_some() {
            return Err(BackupError::damaged(&place, "it does not belong in a backup"));
        }
        let path = into.join(&head.path);
        make_folder(path.parent().unwrap_or(into))?;
        let mut options = OpenOptions::new();
        let out = options.write(true).create_new(true).mode(head.mode & 0o700).open(&path);
        let mut out = out.map_err(BackupError::Write)?;
        let sha256 = reader.content(&head, &mut out)?;
        out.sync_all().map_err(BackupError::Write)?;
        files.push(BackedUpFile { path: head.path, size: head.size, sha256, mode: head.mode });
    }
    let (Some(bytes), Some(note)) = (manifest, note) else {
        return Err(BackupError::damaged("its end", "there is no manifest"));
    };
    let manifest: BackupManifest =
        serde_json::from_slice(&bytes).map_err(|_| BackupError::damaged("`manifest.json`", "its format is invalid"))?;
    if manifest.form != FORM || manifest.backup != header.backup {
        return Err(BackupError::damaged("`manifest.json`", "it belongs to another backup"));
    }
    compare(&manifest, &files)?;
    let note = SignedNote::parse(&note).map_err(|error| BackupError::Signature(error.to_string()))?;
    let signer = own_key(&manifest.logs, &manifest.node);
    let signer = signer.ok_or_else(|| BackupError::Signature("the manifest names no key of its own node".into()))?;
    let signer: VerifierKey = signer.parse().map_err(|_| BackupError::Signature("its key is not valid".into()))?;
    backup::verify(&bytes, &note, &signer).map_err(|error| BackupError::Signature(error.to_string()))?;
    Ok(UnpackedBackup { manifest, signer })
}

/// Checks that the files are exactly those of the manifest.
fn compare(manifest: &BackupManifest, files: &[BackedUpFile]) -> Result<(), BackupError> {
    for (n, wanted) in manifest.files.iter().enumerate() {
        match files.get(n) {
            Some(found) if found == wanted => {}
            Some(found) if found.path == wanted.path => {
                return Err(BackupError::damaged(&format!("`{}`", wanted.path), "it is not what the manifest says"));
            }
            _ => return Err(BackupError::damaged(&format!("`{}`", wanted.path), "it is missing")),
        }
    }
    match files.get(manifest.files.len()) {
        Some(extra) => Err(BackupError::damaged(&format!("`{}`", extra.path), "the manifest does not name it")),
        None => Ok(()),
    }
}

/// Opens the envelope with the keys of a backup.
pub(super) fn open_envelope(
    envelope: &Path,
    key: &BackupKey,
    manifest: &BackupManifest,
) -> Result<Vec<EnvelopedKey>, BackupError> {
    let file = File::open(envelope).map_err(BackupError::read(envelope))?;
    let (mut reader, header) = ContainerReader::open(file, ContainerKind::Keys, key)?;
    if header.instance != manifest.instance {
        return Err(BackupError::Key("the envelope holds the keys of another gateway".into()));
    }
    let mut keys = Vec::new();
    while let Some(head) = reader.next()? {
        if !is_inside(&head.path) || !head.path.starts_with("data/") || head.size > LONGEST_KEY {
            return Err(BackupError::damaged(&format!("`{}`", head.path), "it does not belong in an envelope"));
        }
        let mut content = Zeroizing::new(Vec::new());
        reader.content(&head, &mut *content)?;
        keys.push(EnvelopedKey { path: head.path, mode: head.mode, content });
    }
    Ok(keys)
}

/// Writes keys into a folder with the layout of a backup.
pub(super) fn write_keys(keys: &[EnvelopedKey], into: &Path) -> Result<(), BackupError> {
    use std::io::Write as _;
    for key in keys {
        let path: PathBuf = into.join(&key.path);
        make_folder(path.parent().unwrap_or(into))?;
        let mut options = OpenOptions::new();
        let out = options.write(true).create_new(true).mode(key.mode & 0o700).open(&path);
        let mut out = out.map_err(BackupError::Write)?;
        out.write_all(&key.content).and_then(|()| out.sync_all()).map_err(BackupError::Write)?;
    }
    Ok(())
}

/// Restores the permissions of configuration files; all other files stay accessible to their owner only.
pub(super) fn open_up(manifest: &BackupManifest, folder: &Path) -> Result<(), BackupError> {
    use std::os::unix::fs::PermissionsExt as _;
    for file in manifest.files.iter().filter(|file| file.path.starts_with("config/")) {
        let mode = fs::Permissions::from_mode(file.mode & 0o755);
        fs::set_permissions(folder.join(&file.path), mode).map_err(BackupError::Write)?;
    }
    Ok(())
}
