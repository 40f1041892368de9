//! Contents of files that agents wrote: known again by their hash, whatever the files are called later.
//!
//! Takes the hash of a content before it is written; gives who wrote it first. Promise: it is durable before the file is
//! there, so no content of an agent is taken for one of the person's.

use sluice_core::{AgentName, HoldId};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Tx, params};

const NOTE: &str = "INSERT INTO written_files (sha256, path, agent, hold, written_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (sha256) DO NOTHING";
const BY_HASH: &str = "SELECT path, agent FROM written_files WHERE sha256 = ?1";

/// Files that a write is about to leave.
#[derive(Debug, Clone)]
pub struct WrittenFiles {
    /// The write.
    pub hold: HoldId,
    /// The agent that made it.
    pub agent: AgentName,
    /// The path and the SHA-256 of each, in hex.
    pub files: Vec<(String, String)>,
}

/// Who wrote a content, and where it was first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOrigin {
    /// The path it was first written to.
    pub path: String,
    /// The agent that wrote it.
    pub agent: AgentName,
}

impl UseCase for WrittenFiles {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        for (path, sha256) in &self.files {
            desk.write(NOTE, params![sha256.as_str(), path.as_str(), &self.agent, self.hold, now]);
        }
        Ok(())
    }
}

struct ByHash(String);

impl Query for ByHash {
    type Out = Option<FileOrigin>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<FileOrigin>, StoreError> {
        let row = tx.rows(BY_HASH, &params![self.0.as_str()]).await?.into_iter().next();
        row.map_or(Ok(None), |row| {
            let mut row = row.of("written_files");
            Ok(Some(FileOrigin { path: row.text()?, agent: row.parsed()? }))
        })
    }
}

impl Store {
    /// Notes contents that an agent is about to write.
    ///
    /// # Errors
    /// When it cannot be recorded: then they must not be written.
    pub async fn note_written(&self, written: WrittenFiles) -> Result<(), StoreError> {
        self.submit(written).await
    }

    /// Who wrote a content, if an agent did.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn file_origin(&self, sha256: String) -> Result<Option<FileOrigin>, StoreError> {
        self.ask(ByHash(sha256)).await
    }
}
