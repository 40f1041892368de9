//! Deletes rows that nobody needs any more: a bounded number of rows of each kind at a time.
//!
//! Ended rows are found on a reading connection and deleted in one transaction, if they are still ended then. Promise:
//! nothing that still counts is deleted, and the audit log says how many rows were.

use sluice_core::audit::AuditFact;
use sluice_core::{Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// How long delivered messages, deleted values and refused calls are kept.
const KEPT: Millis = Millis::from_hours(30 * 24);
const NONE: Millis = Millis::from_millis(0);

/// One kind of row that can end: how ended rows are found, and how one is deleted if it is still ended.
struct PrunableRowKind {
    name: &'static str,
    /// The keys of rows that had ended at `?1`.
    find: &'static str,
    /// Deletes by key and, as last parameter, the same time.
    forget: &'static [&'static str],
    /// How long after its end a row is kept.
    kept: Millis,
}

const KINDS: [PrunableRowKind; 17] = [
    PrunableRowKind {
        name: "results",
        find: "SELECT hold FROM results WHERE until <= ?1 LIMIT ?2",
        forget: &["DELETE FROM results WHERE hold = ?1 AND until <= ?2"],
        kept: NONE,
    },
    PrunableRowKind {
        name: "idempotency",
        find: "SELECT agent, name FROM idempotency WHERE expires_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM idempotency WHERE agent = ?1 AND name = ?2 AND expires_at <= ?3"],
        kept: NONE,
    },
    PrunableRowKind {
        name: "counters",
        find: "SELECT kind, agent, name, slot FROM counters WHERE until <= ?1 LIMIT ?2",
        forget: &["DELETE FROM counters WHERE kind = ?1 AND agent = ?2 AND name = ?3 AND slot = ?4 AND until <= ?5"],
        kept: NONE,
    },
    PrunableRowKind {
        name: "proxy_days",
        find: "SELECT proxy, day FROM proxy_days WHERE until <= ?1 LIMIT ?2",
        forget: &["DELETE FROM proxy_days WHERE proxy = ?1 AND day = ?2 AND until <= ?3"],
        kept: NONE,
    },
    PrunableRowKind {
        name: "outbox",
        find: "SELECT id FROM outbox WHERE sent_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM outbox WHERE id = ?1 AND sent_at <= ?2"],
        kept: KEPT,
    },
    PrunableRowKind {
        name: "links",
        find: "SELECT token FROM links WHERE made_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM links WHERE token = ?1 AND made_at <= ?2"],
        kept: KEPT,
    },
    PrunableRowKind {
        name: "dashboard_links",
        find: "SELECT hash FROM dashboard_links WHERE expires_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM dashboard_links WHERE hash = ?1 AND expires_at <= ?2"],
        kept: KEPT,
    },
    PrunableRowKind {
        name: "dashboard_sessions",
        find: "SELECT id FROM dashboard_sessions WHERE expires_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM dashboard_sessions WHERE id = ?1 AND expires_at <= ?2"],
        kept: KEPT,
    },
    PrunableRowKind {
        name: "channel_news",
        find: "SELECT channel, news FROM channel_news WHERE heard_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM channel_news WHERE channel = ?1 AND news = ?2 AND heard_at <= ?3"],
        kept: crate::deliveries::REMEMBERED,
    },
    PrunableRowKind {
        name: "refused_actions",
        find: "SELECT digest FROM refused_actions WHERE kept_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM refused_actions WHERE digest = ?1 AND kept_at <= ?2"],
        kept: KEPT,
    },
    PrunableRowKind {
        name: "findings",
        find: "SELECT id FROM findings WHERE until <= ?1 LIMIT ?2",
        forget: &["DELETE FROM findings WHERE id = ?1 AND until <= ?2"],
        kept: NONE,
    },
    PrunableRowKind {
        name: "hold_failures",
        find: "SELECT hold FROM hold_failures WHERE failed_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM hold_failures WHERE hold = ?1 AND failed_at <= ?2"],
        kept: KEPT,
    },
    PrunableRowKind {
        name: "observations",
        find: "SELECT session, id FROM observations WHERE seen_at <= ?1 LIMIT ?2",
        forget: &["DELETE FROM observations WHERE session = ?1 AND id = ?2 AND seen_at <= ?3"],
        kept: crate::targets::REMEMBERED,
    },
    PrunableRowKind {
        name: "agent_messages",
        find: "SELECT recipient, id FROM agent_messages WHERE until <= ?1 LIMIT ?2",
        forget: &["DELETE FROM agent_messages WHERE recipient = ?1 AND id = ?2 AND until <= ?3"],
        kept: NONE,
    },
    PrunableRowKind {
        name: "schedules",
        find: "SELECT id FROM schedules WHERE state <> 'active' AND COALESCE(last_at, created_at) <= ?1 LIMIT ?2",
        forget: &["DELETE FROM schedules WHERE id = ?1 AND state <> 'active' AND COALESCE(last_at, created_at) <= ?2"],
        kept: KEPT,
    },
    // The values of a session end with it; a session never begins again.
    PrunableRowKind {
        name: "session_state",
        find: "SELECT i.owner, i.name FROM state_items i JOIN sessions s ON i.owner = s.id \
             WHERE i.shelf = 'session' AND s.ended_at <= ?1 AND i.updated_at <= ?1 LIMIT ?2",
        forget: &[
            "DELETE FROM state_versions WHERE shelf = 'session' AND owner = ?1 AND name = ?2 AND updated_at <= ?3",
            "DELETE FROM state_items WHERE shelf = 'session' AND owner = ?1 AND name = ?2 AND updated_at <= ?3",
        ],
        kept: NONE,
    },
    PrunableRowKind {
        name: "deleted_state",
        find: "SELECT shelf, owner, name FROM state_items WHERE value IS NULL AND updated_at <= ?1 LIMIT ?2",
        forget: &[
            "DELETE FROM state_versions WHERE shelf = ?1 AND owner = ?2 AND name = ?3 AND updated_at <= ?4",
            "DELETE FROM state_items WHERE shelf = ?1 AND owner = ?2 AND name = ?3 AND value IS NULL AND updated_at <= ?4",
        ],
        kept: KEPT,
    },
];

struct FindPrunableRows {
    now: UtcMillis,
    limit: u32,
}

impl StoreQuery for FindPrunableRows {
    /// The keys of ended rows, for each kind.
    type Out = Vec<Vec<SqlRow>>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let mut over = Vec::with_capacity(KINDS.len());
        for kind in &KINDS {
            over.push(tx.rows(kind.find, &params![self.now - kind.kept, self.limit]).await?);
        }
        Ok(over)
    }
}

struct PruneRows {
    now: UtcMillis,
    limit: u32,
    over: Vec<Vec<SqlRow>>,
}

impl UseCase for PruneRows {
    type Out = u64;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<u64, StoreError> {
        // A caller whose clock is ahead must not cause early deletion: ended rows are then queried again.
        let now = self.now.min(unit.now);
        let again = match self.now > now {
            true => Some(FindPrunableRows { now, limit: self.limit }.run(unit.tx()).await?),
            false => None,
        };
        let over = again.as_ref().unwrap_or(&self.over);
        let mut fact = AuditFact::new("store.pruned", unit.actor());
        let mut gone = 0;
        for (kind, rows) in KINDS.iter().zip(over).filter(|(_, rows)| !rows.is_empty()) {
            for row in rows {
                let mut key = row.0.clone();
                key.push(SqlValue::from(now - kind.kept));
                kind.forget.iter().for_each(|sql| unit.write(sql, key.clone()));
                gone += 1;
            }
            fact = fact.with(kind.name, rows.len());
        }
        if gone > 0 {
            unit.record(fact);
        }
        Ok(gone)
    }
}

impl Store {
    /// Deletes rows that nobody needs any more, at most this many of each kind. Returns how many were deleted.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn prune(&self, now: UtcMillis, limit: u32) -> Result<u64, StoreError> {
        let over = self.ask(FindPrunableRows { now, limit }).await?;
        if over.iter().all(Vec::is_empty) {
            return Ok(0);
        }
        self.submit(PruneRows { now, limit, over }).await
    }
}
