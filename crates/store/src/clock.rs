//! The latest time a database has seen, and its correction by a person.
//!
//! No group has an earlier time than the one before it, so a clock that is set back makes nothing happen early. A clock
//! that was ahead when the gateway wrote something leaves that time behind: everything waits until it has really
//! passed. Promise: only a person's decision moves the time back, and the audit log holds both times.

use sluice_core::audit::AuditFact;
use sluice_core::{Actor, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const SEEN: &str = "SELECT MAX(last_seen) FROM nodes";
const AHEAD: &str = "SELECT count(*) FROM holds WHERE admitted_at > ?1 AND ended_at IS NULL";
const SET_BACK: &str = "UPDATE nodes SET last_seen = ?1 WHERE last_seen > ?1";

/// What a repair of the clock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRepair {
    /// The latest time that any node had seen.
    pub seen: UtcMillis,
    /// The time from which the gateway continues.
    pub now: UtcMillis,
    /// Open writes that were admitted while a clock was ahead: their times come from that clock.
    pub ahead: u64,
}

struct RepairClock {
    now: UtcMillis,
    by: Actor,
}

impl UseCase for RepairClock {
    type Out = ClockRepair;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ClockRepair, StoreError> {
        // SECURITY: an agent could use it to end waiting times early.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let seen = GetLatestSeenTime.run(unit.tx()).await?.unwrap_or(self.now);
        let row = unit.row(AHEAD, params![self.now]).await?.ok_or(StoreError::NotFound { what: "count" })?;
        let ahead = row.of("holds").count()?;
        let fact = AuditFact::new("clock.repaired", self.by.clone());
        unit.record(fact.with("seen", seen).with("now", self.now).with("writes_ahead", ahead));
        unit.set_time(self.now);
        unit.write(SET_BACK, params![self.now]);
        Ok(ClockRepair { seen, now: self.now, ahead })
    }
}

/// The latest time that any node has seen.
struct GetLatestSeenTime;

impl StoreQuery for GetLatestSeenTime {
    type Out = Option<UtcMillis>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        match tx.rows(SEEN, &[]).await?.into_iter().next() {
            Some(row) => row.of("nodes").maybe_time(),
            None => Ok(None),
        }
    }
}

impl Store {
    /// How far the database is ahead of this time; `None` where it is not.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn time_ahead_of(&self, now: UtcMillis) -> Result<Option<Millis>, StoreError> {
        let seen = self.ask(GetLatestSeenTime).await?;
        Ok(seen.filter(|seen| *seen > now).map(|seen| seen.since(now)))
    }

    /// Continues from this time, and records that, no matter which time was seen before.
    ///
    /// # Errors
    /// When the caller is not a person, or it cannot be recorded.
    pub async fn repair_clock(&self, now: UtcMillis, by: Actor) -> Result<ClockRepair, StoreError> {
        self.submit(RepairClock { now, by }).await
    }
}
