//! The record as rows: reading it back, page by page.

use sluice_core::NodeName;
use sluice_core::audit::{Hash, Head, Sealed};

use crate::desk::Query;
use crate::error::StoreError;
use crate::sql::{Row, Tx, params};

const LOGS: &str = "SELECT node, log_size, log_hash FROM nodes ORDER BY node";
const PAGE: &str = "SELECT seq, hash, body FROM audit_entries WHERE log = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3";

/// Every log there is, with its end.
pub(crate) struct Logs;

impl Query for Logs {
    type Out = Vec<(NodeName, Head)>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(LOGS, &[]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("nodes");
                let (log, size) = (row.parsed()?, row.count()?);
                let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
                Ok((log, Head { size, hash: Hash(hash) }))
            })
            .collect()
    }
}

/// Entries of a log from a place on.
pub(crate) struct Page {
    pub log: NodeName,
    pub from: u64,
    pub limit: u32,
}

impl Query for Page {
    type Out = Vec<Sealed>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(PAGE, &params![&self.log, self.from, self.limit]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: Row) -> Result<Sealed, StoreError> {
    let mut row = row.of("audit_entries");
    let seq = row.count()?;
    let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
    Ok(Sealed { seq, hash: Hash(hash), body: row.blob()? })
}
