//! Backups: a copy of everything a gateway needs, made while it runs, that opens with one key and is checked without it.
//!
//! Takes a configuration; gives one sealed file, and a second one with the keys ([`create`]). [`verify`] proves a backup
//! whole without putting it back, [`restore`] puts it back frozen. Promise: a backup is the database at one moment; a file
//! that was not finished opens for nobody; a restored gateway sends nothing before an admin has decided, and its record says
//! that it was restored.

mod container;
mod create;
mod lock;
mod record;
mod restore;
mod unpack;
mod verify;

use std::io;

use sluice_store::StoreError;

pub use container::{ContainerKind, Header, header};
pub use create::{CreateParams, Created, create};
pub use lock::{BackupKey, BackupLock, LockParams, SHORTEST_PASSPHRASE, new_identity};
pub use record::VerifiedLog;
pub use restore::{RestoreParams, RestoreTarget, Restored, restore};
pub use verify::{Verified, VerifyParams, verify};

/// Why a backup was not made, does not verify, or was not put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something of it is not what was written.
    #[error("the backup is damaged in {place}: {why}")]
    Damaged {
        /// Where: a file of the backup, its header, or what follows a file.
        place: String,
        /// What is wrong there.
        why: String,
    },
    /// The passphrase or identity is another one.
    #[error("the passphrase or identity does not open this backup")]
    WrongKey,
    /// A passphrase or key that cannot be used.
    #[error("{0}")]
    Key(String),
    /// The signature over the manifest does not hold.
    #[error("the manifest is not signed by this gateway's key: {0}")]
    Signature(String),
    /// The record in the copy does not hold together, or is not the one of the manifest.
    #[error("the record in the backup does not verify: {0}")]
    Record(String),
    /// The gateway has never been started.
    #[error("this gateway was never started: it has no key to sign a backup with")]
    NeverStarted,
    /// Another backup of the same gateway is being made or put back.
    #[error("another backup of this gateway is being made or put back")]
    Busy,
    /// A gateway runs on what is to be replaced.
    #[error("a gateway runs on this data folder")]
    Running,
    /// There is something in the way.
    #[error("{0} is not empty")]
    NotEmpty(String),
    /// There is a file of that name.
    #[error("`{0}` exists already")]
    Exists(String),
    /// The folder that a file is to be written to is not there.
    #[error("there is no folder `{0}`")]
    NoFolder(String),
    /// A file cannot be read.
    #[error("{path} cannot be read: {error}")]
    Read {
        /// Which.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("the files cannot be written: {0}")]
    Write(io::Error),
    /// The database.
    #[error("the database cannot be used: {}", with_source(.0))]
    Store(#[from] StoreError),
}

impl BackupError {
    /// Stable code.
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

/// A missing tool or an unreachable server is said by what lies below.
fn with_source(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
