//! Examines a server without changing it.

use super::{PgTx, fault};
use crate::error::StoreError;

const HAS_SCHEMA: &str = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'schema_version'";
const TABLES: &str = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
/// A slot in use belongs to a standby that is counted already.
const STANDBYS: &str = "SELECT (SELECT count(*) FROM pg_stat_replication) \
     + (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active)";
const NEWEST: &str = "SELECT COALESCE(MAX(version), 0) FROM schema_version";

/// Whether a server has standbys, and whether its commits wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerReplication {
    /// Whether a commit waits until a standby has it (`synchronous_standby_names`).
    pub is_synchronous: bool,
    /// Standbys that are connected now, and slots reserved for standbys that are not.
    pub standbys: u64,
}

/// Examines a server without changing anything. Gives the schema version of its database, 0 if it has none yet, and its
/// standbys.
pub(crate) async fn examine(url: &str) -> Result<(i64, ServerReplication), StoreError> {
    let tx = PgTx::connect(url).await?;
    tx.demand_durability().await?;
    let names = tx.client.query_one("SHOW synchronous_standby_names", &[]).await.map_err(fault)?;
    let names: String = names.try_get(0).map_err(fault)?;
    let standbys = tx.client.query_one(STANDBYS, &[]).await.map_err(fault)?;
    let standbys = u64::try_from(standbys.try_get::<_, i64>(0).map_err(fault)?).unwrap_or(0);
    let replication = ServerReplication { is_synchronous: !names.trim().is_empty(), standbys };
    let found = tx.client.query_one(HAS_SCHEMA, &[]).await.map_err(fault)?;
    if found.try_get::<_, i64>(0).map_err(fault)? == 0 {
        return Ok((0, replication));
    }
    let newest = tx.client.query_one(NEWEST, &[]).await.map_err(fault)?;
    Ok((newest.try_get(0).map_err(fault)?, replication))
}

/// Whether the database has any tables, ours or not.
pub(crate) async fn has_tables(url: &str) -> Result<bool, StoreError> {
    let tx = PgTx::connect(url).await?;
    let found = tx.client.query_one(TABLES, &[]).await.map_err(fault)?;
    Ok(found.try_get::<_, i64>(0).map_err(fault)? > 0)
}

/// Removes every table of the database.
pub(crate) async fn drop_tables(url: &str) -> Result<(), StoreError> {
    let tx = PgTx::connect(url).await?;
    tx.client.batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.map_err(fault)
}
