//! Examines a database without changing it: whether it opens, is undamaged, and can be used by this release.

use std::path::Path;

use crate::audit;
use crate::error::StoreError;
use crate::migrate;
use crate::postgres::{self, ServerReplication};
use crate::sqlite::{self, poll_now};
use crate::unit_of_work::StoreQuery as _;

/// The result of examining a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExaminedDatabase {
    /// Its schema version; the gateway migrates an older one at its start.
    pub schema: i64,
    /// Number of audit entries, where they were counted.
    pub entries: Option<u64>,
    /// The standbys of a server.
    pub replication: Option<ServerReplication>,
}

/// Examines a database file, even while others have it open. Reads every page.
///
/// # Errors
/// When there is none, it is damaged, not ours, or newer than this release.
pub fn examine_file(path: &Path) -> Result<ExaminedDatabase, StoreError> {
    let mut reader = sqlite::open_to_read(path)?;
    let schema = reader.examine()?;
    let logs = poll_now(audit::ListAuditLogs.run(&mut reader))?;
    Ok(ExaminedDatabase { schema, entries: Some(logs.iter().map(|(_, head)| head.size).sum()), replication: None })
}

/// Examines a database on a server: whether it answers, keeps acknowledged work, and has a known schema.
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
