//! The files outside the database: the state file and the checkpoints file.
//!
//! Promise: a reader of the state file sees the old content or the new one, never a part, also after a power cut; and a
//! write that returned is on disk. The checkpoints file is only appended to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sluice_core::audit::kept::checkpoints_in;
use sluice_core::audit::note::SignedNote;
use sluice_core::recovery::{FORM, GatewayState, LoadedStateFile};

/// The longest state file that is read, in bytes.
const MOST: u64 = 4 << 20;
/// The number of bytes at the end of the checkpoints file that are read.
const TAIL: u64 = 256 << 10;

/// Reads the state file.
pub(crate) fn read(path: &Path) -> LoadedStateFile {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return LoadedStateFile::Nothing,
        Err(error) => return LoadedStateFile::Unreadable(error.to_string()),
        Ok(_) if bytes.len() as u64 > MOST => return LoadedStateFile::Unreadable("it is too long".into()),
        Ok(_) => {}
    }
    match serde_json::from_slice::<GatewayState>(&bytes) {
        Ok(state) if state.form == FORM => LoadedStateFile::State(Box::new(state)),
        Ok(_) => LoadedStateFile::Unreadable("it has an unknown format".into()),
        Err(_) => LoadedStateFile::Unreadable("it is not a state file".into()),
    }
}

/// Replaces the state file.
pub(crate) fn write(path: &Path, state: &GatewayState) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(state)?;
    text.push(b'\n');
    let fresh = beside(path, ".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_folder(path)
}

/// Keeps the current file under another name, as evidence.
pub(crate) fn set_aside(path: &Path, instance: &str) -> io::Result<PathBuf> {
    let aside = beside(path, &format!(".{instance}"));
    fs::rename(path, &aside)?;
    sync_folder(path)?;
    Ok(aside)
}

/// Creates the folder of a file, accessible to its owner only.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Appends a checkpoint; returns the new length of the file.
pub(crate) fn append_checkpoint(path: &Path, note: &str) -> io::Result<u64> {
    let is_new = !path.exists();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("{note}\n").as_bytes())?;
    file.sync_all()?;
    if is_new {
        sync_folder(path)?;
    }
    Ok(file.metadata()?.len())
}

/// The length of the checkpoints file, and the checkpoints at its end that begin at or after `from`.
pub(crate) fn checkpoints(path: &Path, from: u64) -> io::Result<(u64, Vec<SignedNote>)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, Vec::new())),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL)).min(length)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok((length, checkpoints_in(&String::from_utf8_lossy(&bytes))))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut beside = path.to_path_buf();
    beside.as_mut_os_string().push(end);
    beside
}

/// Syncs the folder, because a rename or a new name is durable only then.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
