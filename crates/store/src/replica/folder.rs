//! The folder of a replica: which of its files answers, and whether the files are encrypted.
//!
//! Takes a folder and the configured form; gives files in that form. Promise: a replica in the other form is converted
//! before it answers. If that is interrupted, either the old form or the new one is complete. A wrong key is reported
//! as a wrong key, and nothing is deleted because of it.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::OpenFlags;
use sluice_seal::{Seal, SealKey};

use super::replica_file::{self, ReplicaFile};
use crate::backup::{copy_pages, detach_journal};
use crate::error::StoreError;

/// The file that names the generation that answers.
const POINTER: &str = "current";
/// The file that identifies the key.
const MARK: &str = "seal";
const CLEAR: &str = "db";
const SEALED: &str = "sealed";

/// How a replica is stored on disk.
#[derive(Debug, Clone)]
pub enum ReplicaEncryption {
    /// Not encrypted. If it was encrypted, this key opens it once, to convert it.
    Clear(Option<SealKey>),
    /// Encrypted with this key. If it was not encrypted, it is converted first.
    Sealed(SealKey),
}

/// A folder with a replica in the configured form.
#[derive(Debug)]
pub struct ReplicaFolder {
    folder: PathBuf,
    seal: Option<Arc<Seal>>,
}

impl ReplicaFolder {
    /// Opens a folder, or creates it. Gives the generation that answers.
    pub fn open(folder: &Path, keeping: &ReplicaEncryption) -> Result<(Self, u64), StoreError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unavailable)?;
        let generation = read_current_generation(folder)?;
        let (lies_clear, lies_sealed) =
            (file(folder, generation, CLEAR).exists(), file(folder, generation, SEALED).exists());
        let key = match keeping {
            ReplicaEncryption::Clear(key) => key.as_ref(),
            ReplicaEncryption::Sealed(key) => Some(key),
        };
        if lies_sealed && !fits(folder, key)? {
            return Err(StoreError::WrongKey);
        }
        let seal =
            key.map(|key| Seal::new(key.clone())).transpose().map_err(|error| StoreError::Engine(Box::new(error)))?;
        let seal = seal.map(Arc::new);
        let (place, generation) = match keeping {
            ReplicaEncryption::Sealed(key) => {
                // Before the first encrypted byte: the key is identified from the beginning.
                write_durably(folder, MARK, &key.key_check_value())?;
                let place = Self { folder: folder.to_path_buf(), seal };
                let turned = if lies_clear { place.convert_form(generation, None)? } else { generation };
                (place, turned)
            }
            ReplicaEncryption::Clear(_) => {
                let place = Self { folder: folder.to_path_buf(), seal: None };
                let turned = if lies_sealed { place.convert_form(generation, seal)? } else { generation };
                drop(fs::remove_file(folder.join(MARK)));
                (place, turned)
            }
        };
        Ok((place, generation))
    }

    /// Whether the replica that answers in a folder is encrypted.
    pub fn is_sealed_on_disk(folder: &Path) -> bool {
        read_current_generation(folder).is_ok_and(|generation| file(folder, generation, SEALED).exists())
    }

    pub fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A generation of the replica; created if there is none.
    pub fn copy(&self, generation: u64) -> Result<ReplicaFile, StoreError> {
        ReplicaFile::open(&self.file(generation), generation, self.seal.clone())
    }

    /// From now on this generation answers, also after a restart.
    pub fn set_current(&self, generation: u64) -> Result<(), StoreError> {
        write_durably(&self.folder, POINTER, &generation.to_string())
    }

    /// Deletes earlier generations, and all files in the other form. A later generation is an unfinished rebuild.
    pub fn sweep(&self, current: u64) {
        let wanted = self.form();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((generation, form)) = name.to_str().and_then(named) else { continue };
            if generation < current || form != wanted {
                // A file that cannot be deleted now is tried again at the next start.
                drop(fs::remove_file(entry.path()));
            }
        }
    }

    /// Deletes one generation.
    pub fn remove(&self, generation: u64) {
        remove(&self.file(generation));
    }

    fn form(&self) -> &'static str {
        if self.is_sealed() { SEALED } else { CLEAR }
    }

    fn file(&self, generation: u64) -> PathBuf {
        file(&self.folder, generation, self.form())
    }

    /// Converts a generation from the other form into the next one in ours. Gives the generation that answers then.
    fn convert_form(&self, generation: u64, seal: Option<Arc<Seal>>) -> Result<u64, StoreError> {
        let (other, next) = (if self.is_sealed() { CLEAR } else { SEALED }, generation + 1);
        // The rest of an earlier attempt, or a rebuild that was begun in the other form: it starts again.
        for form in [CLEAR, SEALED] {
            remove(&file(&self.folder, next, form));
        }
        let (from, to) = (file(&self.folder, generation, other), self.file(next));
        replica_file::begin(&to)?;
        {
            let source = replica_file::connect(&from, seal.as_deref(), OpenFlags::default())?;
            let mut target = replica_file::connect(&to, self.seal.as_deref(), OpenFlags::default())?;
            copy_pages(&source, &mut target)?;
        }
        fs::File::open(&to).and_then(|file| file.sync_all()).map_err(unavailable)?;
        self.set_current(next)?;
        self.sweep(next);
        Ok(next)
    }
}

/// Copies the replica that answers in a folder into another folder, in its present form, even while it is being
/// written. An encrypted copy has the same key. Returns whether there was anything to copy.
pub fn back_up(folder: &Path, key: Option<&SealKey>, to: &Path) -> Result<bool, StoreError> {
    let generation = read_current_generation(folder)?;
    let form = [CLEAR, SEALED].into_iter().find(|form| file(folder, generation, form).exists());
    let Some(form) = form else { return Ok(false) };
    let is_sealed = form == SEALED;
    if is_sealed && !fits(folder, key)? {
        return Err(StoreError::WrongKey);
    }
    let seal = key.filter(|_| is_sealed).map(|key| Seal::new(key.clone())).transpose();
    let seal = seal.map_err(|error| StoreError::Engine(Box::new(error)))?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(unavailable)?;
    // An encrypted file can be opened only under its own name.
    let (from, target) = (file(folder, generation, form), file(to, generation, form));
    replica_file::begin(&target)?;
    {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let source = replica_file::connect(&from, seal.as_ref(), flags)?;
        let mut copied = replica_file::connect(&target, seal.as_ref(), OpenFlags::default())?;
        copy_pages(&source, &mut copied)?;
        detach_journal(&copied)?;
    }
    fs::File::open(&target).and_then(|file| file.sync_all()).map_err(unavailable)?;
    if let (true, Some(key)) = (is_sealed, key) {
        write_durably(to, MARK, &key.key_check_value())?;
    }
    write_durably(to, POINTER, &generation.to_string())?;
    Ok(true)
}

/// The generation that answers.
fn read_current_generation(folder: &Path) -> Result<u64, StoreError> {
    match fs::read_to_string(folder.join(POINTER)) {
        Ok(text) => text.trim().parse().map_err(|_| StoreError::Damaged { detail: "the replica's pointer".into() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(1),
        Err(error) => Err(unavailable(error)),
    }
}

/// Whether this is the key of the encrypted files in a folder.
fn fits(folder: &Path, key: Option<&SealKey>) -> Result<bool, StoreError> {
    let Some(key) = key else { return Ok(false) };
    match fs::read_to_string(folder.join(MARK)) {
        Ok(mark) => Ok(key.matches_check_value(&mark)),
        // The key is not known; opening the file will tell.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(unavailable(error)),
    }
}

/// Writes a line into a file, completely or not at all.
fn write_durably(folder: &Path, name: &str, line: &str) -> Result<(), StoreError> {
    let (path, fresh) = (folder.join(name), folder.join(format!("{name}.new")));
    let write = || -> std::io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(unavailable)
}

fn file(folder: &Path, generation: u64, form: &str) -> PathBuf {
    folder.join(format!("copy-{generation}.{form}"))
}

/// Parses the name of a replica file: its generation and form.
fn named(name: &str) -> Option<(u64, &'static str)> {
    let (generation, rest) = name.strip_prefix("copy-")?.split_once('.')?;
    let form = [CLEAR, SEALED].into_iter().find(|form| rest.split('-').next() == Some(form))?;
    Some((generation.parse().ok()?, form))
}

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        // A file that cannot be deleted now is tried again at the next start.
        drop(fs::remove_file(name));
    }
}

pub fn unavailable(error: std::io::Error) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
