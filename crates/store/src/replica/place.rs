//! Where a copy lies: its folder, which file of it answers, and whether the files are sealed.
//!
//! Takes a folder and how the copy is to be kept; gives files in that form. Promise: a copy in the other form is turned
//! into it before it answers, and whenever that is cut short, either the old form is there whole or the new one; a wrong
//! key is called a wrong key, and nothing is deleted because of it.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::OpenFlags;
use sluice_seal::{Key, Seal};

use super::copy::{self, Copy};
use crate::backup::{copy_pages, settle};
use crate::error::StoreError;

/// The file that says which copy answers.
const POINTER: &str = "current";
/// The file that says which key fits.
const MARK: &str = "seal";
const CLEAR: &str = "db";
const SEALED: &str = "sealed";

/// How a copy is kept on the disk.
#[derive(Debug, Clone)]
pub enum Keeping {
    /// In the clear. If it was sealed, this is the key it is opened with, once and for all.
    Clear(Option<Key>),
    /// Sealed with this key. If it lay in the clear, it is sealed first.
    Sealed(Key),
}

/// A folder with a copy in the form that is wanted.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    seal: Option<Arc<Seal>>,
}

impl Place {
    /// Opens a folder, or makes it. Gives which generation of the copy answers.
    pub fn open(folder: &Path, keeping: &Keeping) -> Result<(Self, u64), StoreError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unavailable)?;
        let generation = pointed(folder)?;
        let (lies_clear, lies_sealed) =
            (file(folder, generation, CLEAR).exists(), file(folder, generation, SEALED).exists());
        let key = match keeping {
            Keeping::Clear(key) => key.as_ref(),
            Keeping::Sealed(key) => Some(key),
        };
        if lies_sealed && !fits(folder, key)? {
            return Err(StoreError::WrongKey);
        }
        let seal =
            key.map(|key| Seal::new(key.clone())).transpose().map_err(|error| StoreError::Engine(Box::new(error)))?;
        let seal = seal.map(Arc::new);
        let (place, generation) = match keeping {
            Keeping::Sealed(key) => {
                // Before the first sealed byte: it is known from the beginning which key it takes.
                lasting(folder, MARK, &key.mark())?;
                let place = Self { folder: folder.to_path_buf(), seal };
                let turned = if lies_clear { place.turn(generation, None)? } else { generation };
                (place, turned)
            }
            Keeping::Clear(_) => {
                let place = Self { folder: folder.to_path_buf(), seal: None };
                let turned = if lies_sealed { place.turn(generation, seal)? } else { generation };
                drop(fs::remove_file(folder.join(MARK)));
                (place, turned)
            }
        };
        Ok((place, generation))
    }

    /// Whether what answers in a folder is sealed.
    pub fn lies_sealed(folder: &Path) -> bool {
        pointed(folder).is_ok_and(|generation| file(folder, generation, SEALED).exists())
    }

    pub fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A generation of the copy; begun if there is none.
    pub fn copy(&self, generation: u64) -> Result<Copy, StoreError> {
        Copy::open(&self.file(generation), generation, self.seal.clone())
    }

    /// From now on this generation answers, also after the next start.
    pub fn point(&self, generation: u64) -> Result<(), StoreError> {
        lasting(&self.folder, POINTER, &generation.to_string())
    }

    /// Deletes earlier generations, and whatever lies in the other form. A later one is a shadow that is not finished.
    pub fn sweep(&self, current: u64) {
        let wanted = self.form();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((generation, form)) = name.to_str().and_then(named) else { continue };
            if generation < current || form != wanted {
                // What cannot be deleted now is tried again at the next start.
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

    /// Turns a generation that lies in the other form into the next one in ours. Gives the one that answers then.
    fn turn(&self, generation: u64, seal: Option<Arc<Seal>>) -> Result<u64, StoreError> {
        let (other, next) = (if self.is_sealed() { CLEAR } else { SEALED }, generation + 1);
        // Half of an earlier attempt, or a fresh copy that was begun in the other form: it is begun again.
        for form in [CLEAR, SEALED] {
            remove(&file(&self.folder, next, form));
        }
        let (from, to) = (file(&self.folder, generation, other), self.file(next));
        copy::begin(&to)?;
        {
            let source = copy::connect(&from, seal.as_deref(), OpenFlags::default())?;
            let mut target = copy::connect(&to, self.seal.as_deref(), OpenFlags::default())?;
            copy_pages(&source, &mut target)?;
        }
        fs::File::open(&to).and_then(|file| file.sync_all()).map_err(unavailable)?;
        self.point(next)?;
        self.sweep(next);
        Ok(next)
    }
}

/// Copies what answers in a folder into another folder, in the form it lies in, while it may be written. A sealed copy is
/// sealed with the same key. Gives whether there was anything to copy.
pub fn back_up(folder: &Path, key: Option<&Key>, to: &Path) -> Result<bool, StoreError> {
    let generation = pointed(folder)?;
    let form = [CLEAR, SEALED].into_iter().find(|form| file(folder, generation, form).exists());
    let Some(form) = form else { return Ok(false) };
    let is_sealed = form == SEALED;
    if is_sealed && !fits(folder, key)? {
        return Err(StoreError::WrongKey);
    }
    let seal = key.filter(|_| is_sealed).map(|key| Seal::new(key.clone())).transpose();
    let seal = seal.map_err(|error| StoreError::Engine(Box::new(error)))?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(unavailable)?;
    // A sealed file opens under its own name alone.
    let (from, target) = (file(folder, generation, form), file(to, generation, form));
    copy::begin(&target)?;
    {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let source = copy::connect(&from, seal.as_ref(), flags)?;
        let mut copied = copy::connect(&target, seal.as_ref(), OpenFlags::default())?;
        copy_pages(&source, &mut copied)?;
        settle(&copied)?;
    }
    fs::File::open(&target).and_then(|file| file.sync_all()).map_err(unavailable)?;
    if let (true, Some(key)) = (is_sealed, key) {
        lasting(to, MARK, &key.mark())?;
    }
    lasting(to, POINTER, &generation.to_string())?;
    Ok(true)
}

/// Which generation answers.
fn pointed(folder: &Path) -> Result<u64, StoreError> {
    match fs::read_to_string(folder.join(POINTER)) {
        Ok(text) => text.trim().parse().map_err(|_| StoreError::Damaged { detail: "the pointer to the copy".into() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(1),
        Err(error) => Err(unavailable(error)),
    }
}

/// Whether this is the key of the sealed files in a folder.
fn fits(folder: &Path, key: Option<&Key>) -> Result<bool, StoreError> {
    let Some(key) = key else { return Ok(false) };
    match fs::read_to_string(folder.join(MARK)) {
        Ok(mark) => Ok(key.fits(&mark)),
        // Nobody knows; the file itself will tell.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(unavailable(error)),
    }
}

/// Writes a line into a file, all or nothing.
fn lasting(folder: &Path, name: &str, line: &str) -> Result<(), StoreError> {
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

/// Reads the name of a file of a copy: its generation and form.
fn named(name: &str) -> Option<(u64, &'static str)> {
    let (generation, rest) = name.strip_prefix("copy-")?.split_once('.')?;
    let form = [CLEAR, SEALED].into_iter().find(|form| rest.split('-').next() == Some(form))?;
    Some((generation.parse().ok()?, form))
}

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        // What cannot be deleted now is tried again at the next start.
        drop(fs::remove_file(name));
    }
}

pub fn unavailable(error: std::io::Error) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
