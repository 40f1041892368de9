//! Migrations: numbered, forward only, each in one transaction, never edited once released.
//!
//! A database from a newer release is refused, not guessed at.

use crate::error::StoreError;

/// One step of the schema.
pub(crate) struct Migration {
    pub version: i64,
    pub sql: &'static str,
}

/// All steps, in order.
pub(crate) const ALL: &[Migration] = &[
    Migration { version: 1, sql: include_str!("../migrations/0001_first.sql") },
    Migration { version: 2, sql: include_str!("../migrations/0002_gateway.sql") },
    Migration { version: 3, sql: include_str!("../migrations/0003_proxies.sql") },
    Migration { version: 4, sql: include_str!("../migrations/0004_vault.sql") },
    Migration { version: 5, sql: include_str!("../migrations/0005_gate.sql") },
    Migration { version: 6, sql: include_str!("../migrations/0006_connections.sql") },
    Migration { version: 7, sql: include_str!("../migrations/0007_findings.sql") },
    Migration { version: 8, sql: include_str!("../migrations/0008_mounts.sql") },
    Migration { version: 9, sql: include_str!("../migrations/0009_cards.sql") },
    Migration { version: 10, sql: include_str!("../migrations/0010_activations.sql") },
    Migration { version: 11, sql: include_str!("../migrations/0011_brakes.sql") },
    Migration { version: 12, sql: include_str!("../migrations/0012_refused.sql") },
    Migration { version: 13, sql: include_str!("../migrations/0013_consent.sql") },
    Migration { version: 14, sql: include_str!("../migrations/0014_operations.sql") },
    Migration { version: 15, sql: include_str!("../migrations/0015_proxy_budgets.sql") },
    Migration { version: 16, sql: include_str!("../migrations/0016_nodes.sql") },
    Migration { version: 17, sql: include_str!("../migrations/0017_archive.sql") },
    Migration { version: 18, sql: include_str!("../migrations/0018_mount_grants.sql") },
    Migration { version: 19, sql: include_str!("../migrations/0019_dashboard.sql") },
];

/// The schema version that this release writes.
pub const CURRENT: i64 = {
    let mut newest = 0;
    let mut at = 0;
    while at < ALL.len() {
        #[expect(clippy::indexing_slicing, reason = "evaluated at compile time, bounded by the loop")]
        let version = ALL[at].version;
        assert!(version == newest + 1, "migrations are numbered without gaps");
        newest = version;
        at += 1;
    }
    newest
};

/// The steps that a database of this version still needs.
pub(crate) fn missing(found: i64) -> Result<impl Iterator<Item = &'static Migration>, StoreError> {
    if found > CURRENT {
        return Err(StoreError::NewerSchema { found, known: CURRENT });
    }
    Ok(ALL.iter().filter(move |step| step.version > found))
}
