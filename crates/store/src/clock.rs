//! The time a database has seen, set right by a person.
//!
//! No group has an earlier time than the one before it, so that a clock that is set back makes nothing early. A clock that was
//! ahead when the gateway wrote something leaves that time behind: everything waits until it is really over. Promise: only a
//! person's decision moves it back, and the record says from when to when.

use sluice_core::audit::Fact;
use sluice_core::{Actor, Span, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Tx, params};

const SEEN: &str = "SELECT MAX(last_seen) FROM nodes";
const AHEAD: &str = "SELECT count(*) FROM holds WHERE admitted_at > ?1 AND ended_at IS NULL";
const SET_BACK: &str = "UPDATE nodes SET last_seen = ?1 WHERE last_seen > ?1";

/// What a repair of the clock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRepair {
    /// The latest time that any node had seen.
    pub seen: Timestamp,
    /// The time from which it goes on.
    pub now: Timestamp,
    /// Open writes that were admitted by a clock that was ahead: their times are as that clock gave them.
    pub ahead: u64,
}

struct Repair {
    now: Timestamp,
    by: Actor,
}

impl UseCase for Repair {
    type Out = ClockRepair;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<ClockRepair, StoreError> {
        // SECURITY: an agent could make itself time by it.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let seen = LatestSeen.run(desk.tx()).await?.unwrap_or(self.now);
        let row = desk.row(AHEAD, params![self.now]).await?.ok_or(StoreError::NotFound { what: "count" })?;
        let ahead = row.of("holds").count()?;
        let fact = Fact::new("clock.repaired", self.by.clone());
        desk.record(fact.with("seen", seen).with("now", self.now).with("writes_ahead", ahead));
        desk.set_time(self.now);
        desk.write(SET_BACK, params![self.now]);
        Ok(ClockRepair { seen, now: self.now, ahead })
    }
}

/// The latest time that any node has seen.
struct LatestSeen;

impl Query for LatestSeen {
    type Out = Option<Timestamp>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        match tx.rows(SEEN, &[]).await?.into_iter().next() {
            Some(row) => row.of("nodes").maybe_time(),
            None => Ok(None),
        }
    }
}

impl Store {
    /// How far the database is ahead of this time; nothing where it is not.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn ahead_of(&self, now: Timestamp) -> Result<Option<Span>, StoreError> {
        let seen = self.ask(LatestSeen).await?;
        Ok(seen.filter(|seen| *seen > now).map(|seen| seen.since(now)))
    }

    /// Goes on from this time, on record, whatever time was seen before.
    ///
    /// # Errors
    /// When the one who decides is no person, or it cannot be recorded.
    pub async fn repair_clock(&self, now: Timestamp, by: Actor) -> Result<ClockRepair, StoreError> {
        self.submit(Repair { now, by }).await
    }
}
