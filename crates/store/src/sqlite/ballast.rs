//! Ballast: space on the disk that is given up when stopping something finds the disk full.
//!
//! A file beside the database. Promise: it is made only where there is room for it, given up once, and
//! made again when there is space; where it could not be made, nothing else is different.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// How much is kept. A stop takes some dozens of kilobytes of the log.
const SIZE: usize = 1 << 20;

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In its file.
    Kept,
    /// Given up: what is left of the disk is for stops.
    Released,
    /// There never was room for it.
    Missing,
}

/// The file and what is known of it.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    place: Place,
}

impl Ballast {
    /// Beside a database, if there is room.
    pub fn beside(database: &Path) -> Self {
        let mut path = database.to_path_buf();
        path.as_mut_os_string().push(".ballast");
        let place = if is_whole(&path) || make(&path) { Place::Kept } else { Place::Missing };
        Self { path, place }
    }

    /// Gives it up. Says whether there was something to give.
    pub fn release(&mut self) -> bool {
        let freed = self.place == Place::Kept
            && File::options().write(true).open(&self.path).and_then(|file| file.set_len(0)).is_ok();
        if freed {
            self.place = Place::Released;
        }
        freed
    }

    /// Whether it was given up and not made again yet.
    pub fn is_away(&self) -> bool {
        self.place == Place::Released
    }

    /// Whether there is no stop that may still need the space: it was not given up, or is kept again.
    pub fn is_back(&mut self) -> bool {
        if self.place == Place::Released && make(&self.path) {
            self.place = Place::Kept;
        }
        self.place != Place::Released
    }
}

fn is_whole(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.len() == size())
}

fn size() -> u64 {
    SIZE.try_into().unwrap_or(u64::MAX)
}

/// Writes it, where as much again stays free.
fn make(path: &Path) -> bool {
    let Some(folder) = path.parent() else { return false };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let free = rustix::fs::statvfs(folder).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free < size().saturating_mul(2) {
        return false;
    }
    // Its owner's alone, like the database it lies beside.
    let own = || File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let made = own().and_then(|mut file| file.write_all(&noise()));
    if made.is_err() {
        drop(own());
    }
    made.is_ok()
}

/// Bytes that take as much space as they are many, on file systems that compress too.
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
        let mut ballast = Ballast::beside(&database);
        assert_eq!(length(), size());
        assert!(ballast.is_back());
        assert!(ballast.release());
        assert_eq!(length(), 0);
        assert!(!ballast.release(), "there is nothing more to give");
        assert!(ballast.is_back(), "there is space on this disk");
        assert_eq!(length(), size());
        assert!(ballast.release());
    }
}
