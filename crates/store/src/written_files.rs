//! Contents of files that agents wrote: recognised by their hash, even if the files are renamed later.
//!
//! Takes the hash of a content before it is written; gives who wrote it first. Promise: the hash is durable before the
//! file exists, so no content of an agent is mistaken for one of the person.

use sluice_core::{AgentName, HoldId};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const NOTE: &str = "INSERT INTO written_files (sha256, path, agent, hold, written_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (sha256) DO NOTHING";
const BY_HASH: &str = "SELECT path, agent FROM written_files WHERE sha256 = ?1";

/// Files that a write is about to create.
#[derive(Debug, Clone)]
pub struct RecordWrittenFiles {
    /// The write.
    pub hold: HoldId,
    /// The agent that made it.
    pub agent: AgentName,
    /// The path and the SHA-256 of each, in hex.
    pub files: Vec<(String, String)>,
}

/// Who first wrote a content, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOrigin {
    /// The path it was first written to.
    pub path: String,
    /// The agent that wrote it.
    pub agent: AgentName,
}

impl UseCase for RecordWrittenFiles {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        for (path, sha256) in &self.files {
            unit.write(NOTE, params![sha256.as_str(), path.as_str(), &self.agent, self.hold, now]);
        }
        Ok(())
    }
}

struct FindFileOrigin(String);

impl StoreQuery for FindFileOrigin {
    type Out = Option<FileOrigin>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<FileOrigin>, StoreError> {
        let row = tx.rows(BY_HASH, &params![self.0.as_str()]).await?.into_iter().next();
        row.map_or(Ok(None), |row| {
            let mut row = row.of("written_files");
            Ok(Some(FileOrigin { path: row.text()?, agent: row.parsed()? }))
        })
    }
}

impl Store {
    /// Records contents that an agent is about to write.
    ///
    /// # Errors
    /// When it cannot be recorded: then they must not be written.
    pub async fn record_written_files(&self, written: RecordWrittenFiles) -> Result<(), StoreError> {
        self.submit(written).await
    }

    /// Who wrote a content, if an agent did.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn file_origin(&self, sha256: String) -> Result<Option<FileOrigin>, StoreError> {
        self.ask(FindFileOrigin(sha256)).await
    }
}
