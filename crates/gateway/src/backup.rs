//! Backups: a copy of everything a gateway needs, made while it runs. It opens with one key and is verified without
//! restoring it.
//!
//! Takes a configuration; gives one sealed file, and a second one with the keys ([`create`]). [`verify`] proves that a
//! backup is complete without restoring it, [`restore`] restores it frozen. Promise: a backup is the database at one
//! moment; an unfinished file does not open; a restored gateway sends nothing before an admin has decided, and its
//! audit log says that it was restored.

mod container;
mod create;
mod lock;
mod record;
mod restore;
mod unpack;
mod verify;

use std::io;

use sluice_store::StoreError;

pub use container::{ContainerHeader, ContainerKind, header};
pub use create::{CreateBackupParams, CreatedBackup, create};
pub use lock::{BackupKey, BackupLock, BackupLockParams, SHORTEST_PASSPHRASE, new_identity};
pub use record::VerifiedLog;
pub use restore::{RestoreBackupParams, RestoreTarget, RestoredBackup, restore};
pub use verify::{VerifiedBackup, VerifyBackupParams, verify};

/// Why a backup was not made, does not verify, or was not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A part of the backup is not what was written.
    #[error("the backup is damaged in {place}: {why}")]
    Damaged {
        /// The damaged part: a file of the backup, its header, or what follows a file.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The passphrase or identity does not fit.
    #[error("the passphrase or identity does not open this backup")]
    WrongKey,
    /// The passphrase or key cannot be used.
    #[error("{0}")]
    Key(String),
    /// The signature over the manifest does not hold.
    #[error("the manifest is not signed by this gateway's key: {0}")]
    Signature(String),
    /// The audit log in the backup is not consistent, or is not the one of the manifest.
    #[error("the audit log in the backup does not verify: {0}")]
    Record(String),
    /// The gateway has never been started.
    #[error("this gateway was never started: it has no key to sign a backup with")]
    NeverStarted,
    /// Another backup of the same gateway is being made or restored.
    #[error("another backup of this gateway is being made or restored")]
    Busy,
    /// A gateway runs on the data that is to be replaced.
    #[error("a gateway runs on this data folder")]
    Running,
    /// The target is not empty.
    #[error("{0} is not empty")]
    NotEmpty(String),
    /// A file of that name exists.
    #[error("`{0}` exists already")]
    Exists(String),
    /// The folder for a new file does not exist.
    #[error("there is no folder `{0}`")]
    NoFolder(String),
    /// A file cannot be read.
    #[error("{path} cannot be read: {error}")]
    Read {
        /// The path of the file.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("the files cannot be written: {0}")]
    Write(io::Error),
    /// The database failed.
    #[error("the database cannot be used: {}", with_source(.0))]
    Store(#[from] StoreError),
}

impl BackupError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => "backup.damaged",
            Self::WrongKey => "backup.wrong_key",
            Self::Key(_) => "backup.key",
            Self::Signature(_) => "backup.signature",
            Self::Record(_) => "backup.record",
            Self::NeverStarted => "backup.never_started",
            Self::Busy => "backup.busy",
            Self::Running => "backup.running",
            Self::NotEmpty(_) => "backup.not_empty",
            Self::Exists(_) => "backup.exists",
            Self::NoFolder(_) => "backup.no_folder",
            Self::Read { .. } => "backup.unreadable",
            Self::Write(_) => "backup.unwritable",
            Self::Store(error) => error.code(),
        }
    }

    fn damaged(place: &str, why: &str) -> Self {
        Self::Damaged { place: place.to_owned(), why: why.to_owned() }
    }

    fn read(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |error| Self::Read { path, error }
    }
}

/// The source of the error names a missing tool or an unreachable server.
fn with_source(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
