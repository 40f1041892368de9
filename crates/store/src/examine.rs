//! A look at a database that changes nothing: whether it opens, is whole, and is one that this release can use.

use std::path::Path;

use crate::audit;
use crate::desk::Query as _;
use crate::error::StoreError;
use crate::migrate;
use crate::postgres::{self, ServerReplication};
use crate::sqlite::{self, at_once};

/// What a look at a database showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExaminedDatabase {
    /// The schema it has; a start of the gateway brings an older one up to date.
    pub schema: i64,
    /// Entries on record, where they were counted.
    pub entries: Option<u64>,
    /// The standbys of a server.
    pub replication: Option<ServerReplication>,
}

/// Looks at a database file, whoever else has it open. Every page is looked at.
///
/// # Errors
/// When there is none, it is damaged, foreign, or newer than this release.
pub fn examine_file(path: &Path) -> Result<ExaminedDatabase, StoreError> {
    let mut reader = sqlite::open_to_read(path)?;
    let schema = reader.examine()?;
    let logs = at_once(audit::Logs.run(&mut reader))?;
    Ok(ExaminedDatabase { schema, entries: Some(logs.iter().map(|(_, head)| head.size).sum()), replication: None })
}

/// Looks at a database on a server: whether it answers, keeps what it acknowledged, and has a schema that is known.
///
/// # Errors
/// When it does not answer, may lose acknowledged work, or is newer than this release.
pub async fn examine_server(url: &str) -> Result<ExaminedDatabase, StoreError> {
    let (schema, replication) = postgres::examine(url).await?;
    if schema > migrate::CURRENT {
        return Err(StoreError::NewerSchema { found: schema, known: migrate::CURRENT });
    }
    Ok(ExaminedDatabase { schema, entries: None, replication: Some(replication) })
}
