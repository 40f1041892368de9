//! Ballast: disk space that is released when stopping something finds the disk full.
//!
//! A file beside the database. Promise: it is created only if there is enough space, released once, and created again
//! when there is space. If it could not be created, nothing else changes.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// How much space is reserved. A stop needs some dozens of kilobytes of the log.
const SIZE: usize = 1 << 20;

/// The state of the reserved space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BallastState {
    /// Reserved in its file.
    Kept,
    /// Released: the remaining disk space is for stops.
    Released,
    /// There was never enough space for it.
    Missing,
}

/// The file and its state.
#[derive(Debug)]
pub(super) struct BallastFile {
    path: PathBuf,
    place: BallastState,
}

impl BallastFile {
    /// Creates it beside a database, if there is enough space.
    pub fn beside(database: &Path) -> Self {
        let mut path = database.to_path_buf();
        path.as_mut_os_string().push(".ballast");
        let place = if is_whole(&path) || make(&path) { BallastState::Kept } else { BallastState::Missing };
        Self { path, place }
    }

    /// Releases it. Returns whether there was anything to release.
    pub fn release(&mut self) -> bool {
        let freed = self.place == BallastState::Kept
            && File::options().write(true).open(&self.path).and_then(|file| file.set_len(0)).is_ok();
        if freed {
            self.place = BallastState::Released;
        }
        freed
    }

    /// Whether it was released and not created again yet.
    pub fn is_away(&self) -> bool {
        self.place == BallastState::Released
    }

    /// Whether no stop may still need the space: it was not released, or is reserved again.
    pub fn restore(&mut self) -> bool {
        if self.place == BallastState::Released && make(&self.path) {
            self.place = BallastState::Kept;
        }
        self.place != BallastState::Released
    }
}

fn is_whole(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.len() == size())
}

fn size() -> u64 {
    SIZE.try_into().unwrap_or(u64::MAX)
}

/// Creates it, if the same amount of space stays free.
fn make(path: &Path) -> bool {
    let Some(folder) = path.parent() else { return false };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let free = rustix::fs::statvfs(folder).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free < size().saturating_mul(2) {
        return false;
    }
    // Readable only by its owner, like the database beside it.
    let own = || File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let made = own().and_then(|mut file| file.write_all(&noise()));
    if made.is_err() {
        drop(own());
    }
    made.is_ok()
}

/// Random-looking bytes, which take their full size also on file systems that compress.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    next.flatten().take(SIZE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballast_is_given_up_once_and_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("sluice.db");
        let length = || std::fs::metadata(folder.path().join("sluice.db.ballast")).unwrap().len();
        let mut ballast = BallastFile::beside(&database);
        assert_eq!(length(), size());
        assert!(ballast.restore());
        assert!(ballast.release());
        assert_eq!(length(), 0);
        assert!(!ballast.release(), "there is nothing more to give");
        assert!(ballast.restore(), "there is space on this disk");
        assert_eq!(length(), size());
        assert!(ballast.release());
    }
}
