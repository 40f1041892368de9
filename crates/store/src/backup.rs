//! Copies of databases that are in use: consistent, complete, and readable without the gateway that made them.
//!
//! Takes a database file that another process may be writing, or the URL of a server; gives a file. Promise: a copy is
//! the database at one moment, even if it is written meanwhile, and writers do not wait for it. Copying the files of a
//! live database one after the other (`cp -r`) keeps neither promise.

mod server;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;
use crate::sqlite::{self, fault};

pub use server::{RestoredServer, dump_server, empty_server, read_dump, restore_server, server_tool};

/// Copies a database file as it is at one moment, even while others have it open. `to` must not exist yet.
///
/// # Errors
/// When there is no such file, it is not ours, it is newer than this release, or the copy cannot be written.
pub fn copy_file(from: &Path, to: &Path) -> Result<(), StoreError> {
    let source = sqlite::open_to_read(from)?;
    create(to)?;
    let mut target = Connection::open(to).map_err(fault)?;
    copy_pages(source.connection(), &mut target)?;
    detach_journal(&target)?;
    drop(target);
    sync(to)
}

/// Copies every page of one database into another, in one read transaction of the source and one write transaction of
/// the target: the target is complete or empty.
pub(crate) fn copy_pages(source: &Connection, target: &mut Connection) -> Result<(), StoreError> {
    let backup = Backup::new(source, target).map_err(fault)?;
    match backup.step(-1).map_err(fault)? {
        StepResult::Done => Ok(()),
        _ => Err(StoreError::InUse),
    }
}

/// Makes the copy self-contained: without a log beside it, it can be opened on a read-only medium.
pub(crate) fn detach_journal(copy: &Connection) -> Result<(), StoreError> {
    let mode: String = copy.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).map_err(fault)?;
    if mode == "delete" { Ok(()) } else { Err(StoreError::InUse) }
}

/// Checks every page of an unencrypted database file, no matter what it holds. Nothing is changed.
///
/// # Errors
/// When it is not a database, or it is damaged.
pub fn check_pages(path: &Path) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fault)?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(StoreError::Damaged { detail: "the page structure is broken".into() })
}

/// The exclusive right to open a database file: a running gateway holds it.
#[derive(Debug)]
pub struct DatabaseLock(File);

impl DatabaseLock {
    /// Takes the lock of a database file, whether that file exists or not.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when a gateway runs on it.
    pub fn take(database: &Path) -> Result<Self, StoreError> {
        sqlite::take_lock(database).map(Self)
    }

    /// From now on, a missing database file means that it was lost, not that the gateway is new.
    ///
    /// # Errors
    /// When the lock file cannot be written.
    pub fn expect_database(&self) -> Result<(), StoreError> {
        self.0.set_len(1).map_err(|error| StoreError::Unavailable(Box::new(error)))
    }
}

/// Creates a file that no other user can read.
pub(crate) fn create(path: &Path) -> Result<(), StoreError> {
    let mut options = File::options();
    options.create_new(true).write(true).mode(0o600);
    options.open(path).map(drop).map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::Unavailable(Box::new(error)),
    })
}

pub(crate) fn sync(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| StoreError::Unavailable(Box::new(error)))
}

/// The version of SQLite that makes the copies.
#[must_use]
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}
