//! Retention of writes, approval requests, sessions and proxy tasks that have ended: a bounded number at a time.
//!
//! Takes how long each kind is kept; reads one table after the other, oldest rows first, on a reading connection, and
//! deletes in one transaction the rows that have still ended then. Promise: a write that is open, that a person still
//! has to decide about or that can still be rolled back is never deleted, however old; nor is its approval request, an
//! open or tainted session, or a running task. The audit log is not shortened, and an idempotency key stays until its
//! own time is up.

use sluice_core::audit::AuditFact;
use sluice_core::{ApprovalId, HoldId, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// Ids are ordered by age, so no search is needed: all rows after the first that is too young are younger.
const WRITES: &str = "SELECT id, state, admitted_at, ended_at FROM holds WHERE id > ?1 ORDER BY id LIMIT ?2";
const QUESTIONS: &str = "SELECT id, state, asked_at, decided_at FROM approvals WHERE id > ?1 ORDER BY id LIMIT ?2";
const SESSIONS: &str = "SELECT id, CASE WHEN tainted_at IS NULL THEN 'clean' ELSE 'tainted' END, opened_at, ended_at \
     FROM sessions WHERE id > ?1 ORDER BY id LIMIT ?2";
const PROXY_TASKS: &str = "SELECT id, state, started_at, ended_at FROM proxy_tasks WHERE id > ?1 ORDER BY id LIMIT ?2";
/// A request of a client of the approval API. The client acts by itself, so its approval is never consumed.
const API_REQUEST: &str = "SELECT approval FROM requests WHERE approval = ?1";
/// A rollback point that can still be used. One that is only captured belongs to a write that ended without an effect,
/// and no write that has ended can use it.
const LIVE_POINT: &str = "SELECT id FROM rollback_points WHERE hold = ?1 AND state = 'sealed'";
const STILL_OVER: &str = "SELECT id FROM holds WHERE id = ?1 AND ended_at <= ?2";
/// An open write that depends on this approval request.
const OPEN_WRITE: &str = "SELECT h.id FROM approval_items i JOIN holds h ON h.id = i.hold \
     WHERE i.approval = ?1 AND h.ended_at IS NULL LIMIT 1";
/// Rows that belong to one write alone, by its id; the write itself last.
const OF_WRITE: [&str; 5] = [
    "DELETE FROM results WHERE hold = ?1",
    "DELETE FROM hold_failures WHERE hold = ?1",
    "DELETE FROM rollback_points WHERE hold = ?1",
    "DELETE FROM contents WHERE hold = ?1",
    "DELETE FROM holds WHERE id = ?1",
];
/// Rows that belong to one approval request alone; the request itself last.
const OF_QUESTION: [&str; 6] = [
    "DELETE FROM approval_items WHERE approval = ?1",
    "DELETE FROM deliveries WHERE approval = ?1",
    "DELETE FROM proposed_answers WHERE approval = ?1",
    "DELETE FROM votes WHERE approval = ?1",
    "DELETE FROM requests WHERE approval = ?1",
    "DELETE FROM approvals WHERE id = ?1 AND state <> 'pending'",
];
const OF_SESSION: [&str; 4] = [
    "DELETE FROM state_versions WHERE shelf = 'session' AND owner = ?1",
    "DELETE FROM state_items WHERE shelf = 'session' AND owner = ?1",
    "DELETE FROM observations WHERE session = ?1",
    "DELETE FROM sessions WHERE id = ?1",
];
const OF_PROXY_TASK: [&str; 1] = ["DELETE FROM proxy_tasks WHERE id = ?1"];
const CLEAN_AND_ENDED: &str = "SELECT id FROM sessions WHERE id = ?1 AND ended_at <= ?2 AND tainted_at IS NULL";
const TASK_ENDED: &str = "SELECT id FROM proxy_tasks WHERE id = ?1 AND ended_at <= ?2";
/// States without any way out.
const FINAL: [&str; 6] = ["done", "cancelled", "denied", "expired", "discarded", "blocked"];
/// States of an approval request that no write can use any more.
const ANSWERED: [&str; 7] = ["denied", "expired", "consumed", "lapsed", "revoked", "superseded", "withdrawn"];

/// How long ended rows are kept, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionPeriods {
    /// Writes, and the approval requests about them.
    pub writes: Millis,
    /// Sessions of agents, with their values.
    pub sessions: Millis,
    /// Tasks of security proxies, with their crash reports.
    pub proxy_tasks: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RetentionTable {
    #[default]
    Writes,
    Questions,
    Sessions,
    ProxyTasks,
}

impl RetentionTable {
    const fn next(self) -> Option<Self> {
        match self {
            Self::Writes => Some(Self::Questions),
            Self::Questions => Some(Self::Sessions),
            Self::Sessions => Some(Self::ProxyTasks),
            Self::ProxyTasks => None,
        }
    }

    const fn period(self, periods: &RetentionPeriods) -> Millis {
        match self {
            Self::Writes | Self::Questions => periods.writes,
            Self::Sessions => periods.sessions,
            Self::ProxyTasks => periods.proxy_tasks,
        }
    }

    /// The statement that reads rows by age, and the table's name.
    const fn rows(self) -> (&'static str, &'static str) {
        match self {
            Self::Writes => (WRITES, "holds"),
            Self::Questions => (QUESTIONS, "approvals"),
            Self::Sessions => (SESSIONS, "sessions"),
            Self::ProxyTasks => (PROXY_TASKS, "proxy_tasks"),
        }
    }

    /// The statements that delete one row with the rows that belong to it alone, and its name in the audit log.
    const fn deletes(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Writes => (&OF_WRITE, "writes"),
            Self::Questions => (&OF_QUESTION, "questions"),
            Self::Sessions => (&OF_SESSION, "sessions"),
            Self::ProxyTasks => (&OF_PROXY_TASK, "proxy_tasks"),
        }
    }
}

/// Where the next step continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionCursor {
    table: RetentionTable,
    after: u128,
}

/// The result of one step of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionProgress {
    /// How many rows were deleted, without the rows that belong to them.
    pub gone: u64,
    /// Where the next step continues; `None` when all rows that are old enough were read.
    pub next: Option<RetentionCursor>,
}

struct FindExpiredRows {
    place: RetentionCursor,
    before: UtcMillis,
    limit: u32,
}

impl StoreQuery for FindExpiredRows {
    /// The ids of the rows that may be deleted, and where to continue.
    type Out = (Vec<u128>, Option<RetentionCursor>);

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let RetentionCursor { table, after } = self.place;
        let (sql, name) = table.rows();
        let rows = tx.rows(sql, &params![HoldId::from_bits(after), self.limit]).await?;
        let mut more = rows.len() == self.limit as usize;
        let (mut old, mut last) = (Vec::new(), after);
        for row in rows {
            let mut row = row.of(name);
            let id = row.bits()?;
            let (state, begun, ended) = (row.text()?, row.time()?, row.maybe_time()?);
            if begun > self.before {
                more = false;
                break;
            }
            last = id;
            let has_ended = ended.is_some_and(|ended| ended <= self.before);
            let is_over = match table {
                RetentionTable::Writes => {
                    let over = has_ended && FINAL.contains(&state.as_str());
                    over && tx.rows(LIVE_POINT, &params![HoldId::from_bits(id)]).await?.is_empty()
                }
                RetentionTable::Questions if state == "approved" => {
                    has_ended && !tx.rows(API_REQUEST, &params![ApprovalId::from_bits(id)]).await?.is_empty()
                }
                RetentionTable::Questions => ANSWERED.contains(&state.as_str()) && (has_ended || ended.is_none()),
                RetentionTable::Sessions => has_ended && state == "clean",
                RetentionTable::ProxyTasks => has_ended,
            };
            if is_over {
                old.push(id);
            }
        }
        let next = match more {
            true => Some(RetentionCursor { table, after: last }),
            false => table.next().map(|table| RetentionCursor { table, after: 0 }),
        };
        Ok((old, next))
    }
}

struct DeleteExpiredRows {
    table: RetentionTable,
    kept: Millis,
    now: UtcMillis,
    old: Vec<u128>,
}

impl UseCase for DeleteExpiredRows {
    type Out = u64;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<u64, StoreError> {
        // A caller whose clock is ahead deletes nothing early.
        let before = self.now.min(unit.now) - self.kept;
        let is_early = before < self.now - self.kept;
        let mut going = Vec::new();
        for id in &self.old {
            let row = HoldId::from_bits(*id);
            let goes = match self.table {
                RetentionTable::Writes => unit.row(STILL_OVER, params![row, before]).await?.is_some(),
                RetentionTable::Questions => !is_early && unit.row(OPEN_WRITE, params![row]).await?.is_none(),
                RetentionTable::Sessions => unit.row(CLEAN_AND_ENDED, params![row, before]).await?.is_some(),
                RetentionTable::ProxyTasks => unit.row(TASK_ENDED, params![row, before]).await?.is_some(),
            };
            if goes {
                going.push(*id);
            }
        }
        let (statements, name) = self.table.deletes();
        for id in &going {
            statements.iter().for_each(|sql| unit.write(sql, params![HoldId::from_bits(*id)]));
        }
        let gone = going.len() as u64;
        if gone > 0 {
            let fact = AuditFact::new("store.pruned", unit.actor());
            unit.record(fact.with(name, gone));
        }
        Ok(gone)
    }
}

impl Store {
    /// Deletes writes, approval requests, sessions and proxy tasks that ended longer ago than their retention time,
    /// reading at most `limit` rows, starting at a position.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn delete_expired(
        &self,
        now: UtcMillis,
        periods: &RetentionPeriods,
        (place, limit): (RetentionCursor, u32),
    ) -> Result<RetentionProgress, StoreError> {
        let kept = place.table.period(periods);
        let (old, next) = self.ask(FindExpiredRows { place, before: now - kept, limit }).await?;
        let gone = match old.is_empty() {
            true => 0,
            false => self.submit(DeleteExpiredRows { table: place.table, kept, now, old }).await?,
        };
        Ok(RetentionProgress { gone, next })
    }
}
