//! The files of an open database: checks that their names still lead to the opened files.
//!
//! Promise: a commit into a file or a log that someone removed or replaced is not acknowledged. SQLite itself continues
//! to write into it, and everything is lost when the process ends.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// A file's identity in the file system: device and inode.
type FileIdentity = (u64, u64);

/// The files of an open database.
#[derive(Debug)]
pub(super) struct OpenedFiles {
    files: Vec<(PathBuf, FileIdentity)>,
}

impl OpenedFiles {
    /// The files of a database that was just opened: the database and, if there is one, its log.
    pub fn of(path: &Path) -> Self {
        let mut log = path.to_path_buf();
        log.as_mut_os_string().push("-wal");
        let known = |path: PathBuf| identity(&path).map(|identity| (path, identity));
        Self { files: [path.to_path_buf(), log].into_iter().filter_map(known).collect() }
    }

    /// Whether every name still leads to its file.
    pub fn check(&self) -> Result<(), StoreError> {
        let holds = self.files.iter().all(|(path, opened)| identity(path) == Some(*opened));
        if holds { Ok(()) } else { Err(StoreError::Removed) }
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_or_replaced_file_or_log_is_noticed_and_a_growing_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (file, log) = (folder.path().join("a.db"), folder.path().join("a.db-wal"));
        for broken in [&file, &log] {
            for path in [&file, &log] {
                std::fs::write(path, "x").unwrap();
            }
            let footing = OpenedFiles::of(&file);
            std::fs::write(&file, "longer").unwrap();
            footing.check().unwrap();
            std::fs::rename(broken, folder.path().join("kept")).unwrap();
            assert_eq!(footing.check().unwrap_err().code(), "store.damaged");
            std::fs::write(broken, "another").unwrap();
            assert_eq!(footing.check().unwrap_err().code(), "store.damaged", "another file of that name");
            std::fs::rename(folder.path().join("kept"), broken).unwrap();
            footing.check().unwrap();
        }
    }
}
