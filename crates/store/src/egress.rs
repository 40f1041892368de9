//! How often each way out was used, and its breaker: counted durably, for all nodes together.
//!
//! Takes the limits of a connection; gives leave for requests, or why not. Promise: what was granted was
//! counted first, and a restart forgets nothing; opening, burning out and resetting are on record.

use serde_json::json;
use sluice_core::audit::Fact;
use sluice_core::ids::{ConnectionName, MessageId};
use sluice_core::throttle::{Breaker, BreakerConfig, Limits, ServiceReply, Stop, Used, fits};
use sluice_core::{Actor, Span, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Row, Tx, params};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT connection, version, burned, told, refusals, opened, open_until, probe_until FROM egress_states ",
            $rest
        )
    };
}

const ALL: &str = select!("ORDER BY connection");
const LOCKED: &str = select!("WHERE connection = ?1 /*lock*/");
const USED: &str = "SELECT CAST(COALESCE(SUM(CASE WHEN slot >= ?2 THEN used ELSE 0 END), 0) AS BIGINT), \
     CAST(COALESCE(SUM(used), 0) AS BIGINT), CAST(COALESCE(MIN(CASE WHEN slot >= ?2 THEN slot END), 0) AS BIGINT), \
     CAST(COALESCE(MIN(slot), 0) AS BIGINT) FROM egress_counters WHERE connection = ?1 AND slot >= ?3";
const BUMP: &str = "INSERT INTO egress_counters (connection, slot, used) VALUES (?1, ?2, ?3) \
     ON CONFLICT (connection, slot) DO UPDATE SET used = egress_counters.used + excluded.used";
const SLOT: &str = "SELECT used FROM egress_counters WHERE connection = ?1 AND slot = ?2 /*lock*/";
const GIVE_BACK: &str =
    "UPDATE egress_counters SET used = used - ?3 WHERE connection = ?1 AND slot = ?2 AND used >= ?3";
const FORGET: &str = "DELETE FROM egress_counters WHERE connection = ?1 AND slot < ?2";
const FIRST: &str = "INSERT INTO egress_states (connection, version, burned, told, refusals, opened, open_until, \
     probe_until) VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, ?7)";
const NEXT: &str = "UPDATE egress_states SET version = version + 1, burned = ?3, told = ?4, refusals = ?5, opened = ?6, \
     open_until = ?7, probe_until = ?8 WHERE connection = ?1 AND version = ?2";

/// Windows in seconds, each with the second that has begun.
const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

/// How a way out stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressState {
    /// Which.
    pub connection: ConnectionName,
    /// What was counted.
    pub used: Used,
    /// Its breaker.
    pub breaker: Breaker,
}

/// Asks for leave to make requests.
#[derive(Debug, Clone)]
pub struct Take {
    /// Through which connection.
    pub connection: ConnectionName,
    /// What it may.
    pub limits: Limits,
    /// How many at most; while the breaker is not closed, one.
    pub wanted: u32,
    /// When its breaker opens, and for how long.
    pub breaker: BreakerConfig,
    /// Leave that was taken ahead and not used: it was no request and is not counted.
    pub unused: Option<Unused>,
    /// Names the message to people, should there be one.
    pub message: MessageId,
}

/// Leave that was taken ahead and lapsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unused {
    /// When it was taken, as [`Taken::Granted`] said.
    pub taken_at: i64,
    /// How many requests it was for.
    pub many: u32,
}

/// Leave, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// So many may go, at least one.
    Granted {
        /// How many.
        many: u32,
        /// The breaker as they left it.
        breaker: Breaker,
        /// The second they are counted in.
        taken_at: i64,
    },
    /// None may.
    Refused {
        /// Why.
        stop: Stop,
        /// When it makes sense to ask again; nothing where a person must look first.
        again: Option<Timestamp>,
    },
}

struct Line {
    version: Option<u64>,
    burned: u64,
    told: bool,
    breaker: Breaker,
}

impl Line {
    async fn find<T: Tx>(desk: &mut Desk<'_, T>, connection: &ConnectionName) -> Result<Self, StoreError> {
        match desk.row(LOCKED, params![connection.as_str()]).await? {
            Some(row) => decode(row).map(|(_, line)| line),
            None => Ok(Self { version: None, burned: 0, told: false, breaker: Breaker::default() }),
        }
    }

    fn keep<T: Tx>(&self, desk: &mut Desk<'_, T>, connection: &ConnectionName) {
        let Breaker { refusals, opened, open_until, probe_until } = self.breaker;
        let told = u32::from(self.told);
        match self.version {
            None => {
                let row = params![connection.as_str(), self.burned, told, refusals, opened, open_until, probe_until];
                desk.write(FIRST, row);
            }
            Some(version) => {
                let row =
                    params![connection.as_str(), version, self.burned, told, refusals, opened, open_until, probe_until];
                desk.write_one(NEXT, row);
            }
        }
    }
}

struct Counted {
    used: Used,
    first_in_minute: i64,
    first_in_hour: i64,
}

async fn counted<T: Tx>(
    tx: &mut T,
    connection: &ConnectionName,
    now: Timestamp,
    burned: u64,
) -> Result<Counted, StoreError> {
    let second = now.as_seconds();
    let row = tx.rows(USED, &params![connection.as_str(), second - MINUTE, second - HOUR]).await?.into_iter().next();
    let mut row = row.ok_or(StoreError::NotFound { what: "counter" })?.of("egress_counters");
    let used = Used { minute: row.count()?, hour: row.count()?, burned };
    Ok(Counted { used, first_in_minute: row.int()?, first_in_hour: row.int()? })
}

impl UseCase for Take {
    type Out = Taken;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Taken, StoreError> {
        let (now, connection) = (desk.now, &self.connection);
        let mut line = Line::find(desk, connection).await?;
        let given_back = self.give_back(desk).await?;
        line.burned = line.burned.saturating_sub(given_back);
        let breaker = match line.breaker.pass(&self.breaker, now) {
            Ok(breaker) => breaker,
            Err(stop) => {
                if given_back > 0 {
                    line.keep(desk, connection);
                }
                return Ok(Taken::Refused { stop, again: again(stop, None) });
            }
        };
        let mut counted = counted(desk.tx(), connection, now, line.burned).await?;
        counted.without(self.unused.map_or(0, |unused| unused.taken_at), given_back, now);
        let wanted = if breaker.is_closed() { self.wanted } else { 1 };
        let many = match fits(&self.limits, &counted.used, wanted) {
            Ok(many) => many,
            Err(stop) => {
                let tells = stop == Stop::Burn && !line.told;
                line.told |= tells;
                if tells || given_back > 0 {
                    line.keep(desk, connection);
                }
                if tells {
                    tell(desk, self.message, "egress.burned", Severity::Critical, connection);
                }
                return Ok(Taken::Refused { stop, again: again(stop, Some(&counted)) });
            }
        };
        line.burned = line.burned.saturating_add(u64::from(many));
        line.breaker = breaker;
        line.keep(desk, connection);
        let second = now.as_seconds();
        desk.write(BUMP, params![connection.as_str(), second, many]);
        desk.write(FORGET, params![connection.as_str(), second - HOUR]);
        Ok(Taken::Granted { many, breaker, taken_at: second })
    }
}

impl Take {
    /// Takes leave that was not used out of what was counted. Gives how much that was.
    ///
    /// What a person has reset, or is too old to count, is not there any more: then nothing is taken out, so that never
    /// fewer requests are counted than were made.
    async fn give_back<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<u64, StoreError> {
        let Some(Unused { taken_at, many }) = self.unused.filter(|unused| unused.many > 0) else { return Ok(0) };
        let slot = params![self.connection.as_str(), taken_at];
        let Some(row) = desk.row(SLOT, slot).await? else { return Ok(0) };
        let used: u64 = row.of("egress_counters").count()?;
        if used < u64::from(many) {
            return Ok(0);
        }
        desk.write(GIVE_BACK, params![self.connection.as_str(), taken_at, many]);
        Ok(u64::from(many))
    }
}

impl Counted {
    /// The same without leave that is being given back in this transaction.
    fn without(&mut self, taken_at: i64, many: u64, now: Timestamp) {
        let age = now.as_seconds().saturating_sub(taken_at);
        if age <= HOUR {
            self.used.hour = self.used.hour.saturating_sub(many);
        }
        if age <= MINUTE {
            self.used.minute = self.used.minute.saturating_sub(many);
        }
    }
}

fn again(stop: Stop, counted: Option<&Counted>) -> Option<Timestamp> {
    let after = |first: i64, window: i64| Timestamp::from_millis((first + window + 1).saturating_mul(1000));
    match (stop, counted) {
        (Stop::Minute, Some(counted)) => Some(after(counted.first_in_minute, MINUTE)),
        (Stop::Hour, Some(counted)) => Some(after(counted.first_in_hour, HOUR)),
        (Stop::Open { until } | Stop::Probing { until }, _) => Some(until),
        (Stop::Minute | Stop::Hour | Stop::Burn, _) => None,
    }
}

fn tell<T: Tx>(desk: &mut Desk<'_, T>, id: MessageId, topic: &str, severity: Severity, connection: &ConnectionName) {
    let body = json!({"connection": connection});
    outbox::put(desk, &Message { id, topic: topic.into(), severity, body });
    let by = desk.actor();
    desk.record(Fact::new(topic, by).with("connection", connection).with("message", id));
}

/// What the service said.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Through which connection.
    pub connection: ConnectionName,
    /// The status; nothing if there was no answer.
    pub status: Option<u16>,
    /// How long it wants to be left alone.
    pub retry_after: Option<Span>,
    /// Random.
    pub jitter: u64,
    /// When the breaker opens, and for how long.
    pub breaker: BreakerConfig,
    /// Names the message to people, should there be one.
    pub message: MessageId,
}

impl UseCase for Heard {
    type Out = Breaker;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Breaker, StoreError> {
        let (now, connection) = (desk.now, &self.connection);
        let mut line = Line::find(desk, connection).await?;
        let before = line.breaker;
        line.breaker = match self.status {
            Some(status) => {
                let reply = ServiceReply { status, retry_after: self.retry_after, jitter: self.jitter };
                before.answered(&self.breaker, &reply, now)
            }
            None => before.unanswered(),
        };
        if line.breaker == before {
            return Ok(before);
        }
        line.keep(desk, connection);
        if line.breaker.opened > before.opened {
            tell(desk, self.message, "egress.opened", Severity::Warning, connection);
        } else if before.opened > 0 && line.breaker.is_closed() {
            let by = desk.actor();
            desk.record(Fact::new("egress.closed", by).with("connection", connection));
        }
        Ok(line.breaker)
    }
}

struct Reset {
    connection: ConnectionName,
    by: Actor,
}

impl UseCase for Reset {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let line = Line::find(desk, &self.connection).await?;
        let fresh = Line { version: line.version, burned: 0, told: false, breaker: Breaker::default() };
        fresh.keep(desk, &self.connection);
        desk.write(FORGET, params![self.connection.as_str(), i64::MAX]);
        desk.record(Fact::new("egress.reset", self.by.clone()).with("connection", &self.connection));
        Ok(())
    }
}

struct States {
    now: Timestamp,
}

impl Query for States {
    type Out = Vec<EgressState>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(ALL, &[]).await?.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let mut states = Vec::with_capacity(rows.len());
        for (connection, line) in rows {
            let counted = counted(tx, &connection, self.now, line.burned).await?;
            states.push(EgressState { connection, used: counted.used, breaker: line.breaker });
        }
        Ok(states)
    }
}

fn decode(row: Row) -> Result<(ConnectionName, Line), StoreError> {
    let mut row = row.of("egress_states");
    let (connection, version, burned) = (row.parsed()?, row.count()?, row.count()?);
    let told = match row.int()? {
        0 => false,
        1 => true,
        _ => return Err(row.impossible("neither yes nor no")),
    };
    let (refusals, opened) = (row.count()?, row.count()?);
    let breaker = Breaker { refusals, opened, open_until: row.maybe_time()?, probe_until: row.maybe_time()? };
    Ok((connection, Line { version: Some(version), burned, told, breaker }))
}

impl Store {
    /// Asks for leave to make requests through a connection, and counts them.
    ///
    /// # Errors
    /// When they cannot be counted: then none may go.
    pub async fn egress_take(&self, take: Take) -> Result<Taken, StoreError> {
        self.submit(take).await
    }

    /// Notes what the service said, as far as the breaker is concerned.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn egress_heard(&self, heard: Heard) -> Result<Breaker, StoreError> {
        self.submit(heard).await
    }

    /// Forgets what was counted and closes the breaker.
    ///
    /// # Errors
    /// When an agent asks, or it cannot be recorded.
    pub async fn egress_reset(&self, connection: ConnectionName, by: Actor) -> Result<(), StoreError> {
        self.submit(Reset { connection, by }).await
    }

    /// How every connection that was ever used stands.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn egress_states(&self, now: Timestamp) -> Result<Vec<EgressState>, StoreError> {
        self.ask(States { now }).await
    }
}
