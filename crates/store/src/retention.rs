//! Retention of writes, approval requests, sessions and proxy tasks that have ended: a bounded number at a time.
//!
//! Takes how long each kind is kept; looks through one table after the other from the oldest row on, on a reading connection,
//! and deletes in one transaction the rows that have still ended then. Promise: a write that is open, that a person still has to
//! decide about or that can still be taken back is never deleted, however old, nor the approval request it rests on, nor an open
//! or tainted session, nor a running task. The audit log is not shortened, and an idempotency key stays until its own time is up.

use sluice_core::audit::Fact;
use sluice_core::{ApprovalId, HoldId, Span, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Tx, params};

/// Ids are in order of age, so that nothing has to be searched: what is behind the first that is too young is younger.
const WRITES: &str = "SELECT id, state, admitted_at, ended_at FROM holds WHERE id > ?1 ORDER BY id LIMIT ?2";
const QUESTIONS: &str = "SELECT id, state, asked_at, decided_at FROM approvals WHERE id > ?1 ORDER BY id LIMIT ?2";
const SESSIONS: &str = "SELECT id, CASE WHEN tainted_at IS NULL THEN 'clean' ELSE 'tainted' END, opened_at, ended_at \
     FROM sessions WHERE id > ?1 ORDER BY id LIMIT ?2";
const PROXY_TASKS: &str = "SELECT id, state, started_at, ended_at FROM proxy_tasks WHERE id > ?1 ORDER BY id LIMIT ?2";
/// What a client of the approval API asked for. The client acts by itself, so that an approval of it is never used up.
const API_REQUEST: &str = "SELECT approval FROM requests WHERE approval = ?1";
/// Points that can still be gone back to, or whose content is not removed yet.
const LIVE_POINT: &str = "SELECT id FROM rollback_points WHERE hold = ?1 AND (state = 'captured' OR state = 'sealed')";
const STILL_OVER: &str = "SELECT id FROM holds WHERE id = ?1 AND ended_at <= ?2";
/// A write that is not over and rests on this question.
const OPEN_WRITE: &str = "SELECT h.id FROM approval_items i JOIN holds h ON h.id = i.hold \
     WHERE i.approval = ?1 AND h.ended_at IS NULL LIMIT 1";
/// What belongs to one write alone, by its id; the write itself last.
const OF_WRITE: [&str; 5] = [
    "DELETE FROM results WHERE hold = ?1",
    "DELETE FROM hold_failures WHERE hold = ?1",
    "DELETE FROM rollback_points WHERE hold = ?1",
    "DELETE FROM contents WHERE hold = ?1",
    "DELETE FROM holds WHERE id = ?1",
];
/// What belongs to one approval request alone; the request itself last.
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
/// States that nothing leads out of.
const FINAL: [&str; 6] = ["done", "cancelled", "denied", "expired", "discarded", "blocked"];
/// States of a question that no write can still use.
const ANSWERED: [&str; 7] = ["denied", "expired", "consumed", "lapsed", "revoked", "superseded", "withdrawn"];

/// How long what has ended stays, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionPeriods {
    /// Writes, and the approval requests about them.
    pub writes: Span,
    /// Sessions of agents, with what they remembered.
    pub sessions: Span,
    /// Tasks of security proxies, with their crash reports.
    pub proxy_tasks: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Table {
    #[default]
    Writes,
    Questions,
    Sessions,
    ProxyTasks,
}

impl Table {
    const fn next(self) -> Option<Self> {
        match self {
            Self::Writes => Some(Self::Questions),
            Self::Questions => Some(Self::Sessions),
            Self::Sessions => Some(Self::ProxyTasks),
            Self::ProxyTasks => None,
        }
    }

    const fn period(self, periods: &RetentionPeriods) -> Span {
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

    /// The statements that delete one row with what belongs to it alone, and what the audit log calls it.
    const fn deletes(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Writes => (&OF_WRITE, "writes"),
            Self::Questions => (&OF_QUESTION, "questions"),
            Self::Sessions => (&OF_SESSION, "sessions"),
            Self::ProxyTasks => (&OF_PROXY_TASK, "proxy_tasks"),
        }
    }
}

/// Where a look through old rows goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionPlace {
    table: Table,
    after: u128,
}

/// What one step of retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    /// How many rows were deleted, without those that belong to them.
    pub gone: u64,
    /// Where the next step goes on; nothing when everything that is old enough was looked at.
    pub next: Option<RetentionPlace>,
}

struct Old {
    place: RetentionPlace,
    before: Timestamp,
    limit: u32,
}

impl Query for Old {
    /// The ids of the rows that may be deleted, and where to go on.
    type Out = (Vec<u128>, Option<RetentionPlace>);

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let RetentionPlace { table, after } = self.place;
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
                Table::Writes => {
                    let over = has_ended && FINAL.contains(&state.as_str());
                    over && tx.rows(LIVE_POINT, &params![HoldId::from_bits(id)]).await?.is_empty()
                }
                Table::Questions if state == "approved" => {
                    has_ended && !tx.rows(API_REQUEST, &params![ApprovalId::from_bits(id)]).await?.is_empty()
                }
                Table::Questions => ANSWERED.contains(&state.as_str()) && (has_ended || ended.is_none()),
                Table::Sessions => has_ended && state == "clean",
                Table::ProxyTasks => has_ended,
            };
            if is_over {
                old.push(id);
            }
        }
        let next = match more {
            true => Some(RetentionPlace { table, after: last }),
            false => table.next().map(|table| RetentionPlace { table, after: 0 }),
        };
        Ok((old, next))
    }
}

struct Delete {
    table: Table,
    kept: Span,
    now: Timestamp,
    old: Vec<u128>,
}

impl UseCase for Delete {
    type Out = u64;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<u64, StoreError> {
        // A caller with a clock that is ahead deletes nothing early.
        let before = self.now.min(desk.now) - self.kept;
        let is_early = before < self.now - self.kept;
        let mut going = Vec::new();
        for id in &self.old {
            let row = HoldId::from_bits(*id);
            let goes = match self.table {
                Table::Writes => desk.row(STILL_OVER, params![row, before]).await?.is_some(),
                Table::Questions => !is_early && desk.row(OPEN_WRITE, params![row]).await?.is_none(),
                Table::Sessions => desk.row(CLEAN_AND_ENDED, params![row, before]).await?.is_some(),
                Table::ProxyTasks => desk.row(TASK_ENDED, params![row, before]).await?.is_some(),
            };
            if goes {
                going.push(*id);
            }
        }
        let (statements, name) = self.table.deletes();
        for id in &going {
            statements.iter().for_each(|sql| desk.write(sql, params![HoldId::from_bits(*id)]));
        }
        let gone = going.len() as u64;
        if gone > 0 {
            let fact = Fact::new("store.pruned", desk.actor());
            desk.record(fact.with(name, gone));
        }
        Ok(gone)
    }
}

impl Store {
    /// Deletes writes, approval requests, sessions and proxy tasks that ended longer ago than they are kept, looking at no
    /// more than `limit` rows, from a place on.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn retain(
        &self,
        now: Timestamp,
        periods: &RetentionPeriods,
        (place, limit): (RetentionPlace, u32),
    ) -> Result<Retained, StoreError> {
        let kept = place.table.period(periods);
        let (old, next) = self.ask(Old { place, before: now - kept, limit }).await?;
        let gone = match old.is_empty() {
            true => 0,
            false => self.submit(Delete { table: place.table, kept, now, old }).await?,
        };
        Ok(Retained { gone, next })
    }
}
