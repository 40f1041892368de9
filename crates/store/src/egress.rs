//! Use of each egress connection, and its circuit breaker: counted durably, for all nodes together.
//!
//! Takes the limits of a connection; grants requests, or says why not. Promise: requests are counted before they are
//! granted, and a restart forgets nothing. Opening the breaker, exhausting a budget and resetting are recorded.

use serde_json::json;
use sluice_core::audit::AuditFact;
use sluice_core::ids::{ConnectionName, MessageId};
use sluice_core::throttle::{
    Breaker, BreakerConfig, ConnectionLimits, ConnectionUsage, ServiceReply, ThrottleReason, check_limits,
};
use sluice_core::{Actor, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// Windows in seconds, including the second that has begun.
const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

/// The state of an egress connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressState {
    /// The connection.
    pub connection: ConnectionName,
    /// How many requests were counted.
    pub used: ConnectionUsage,
    /// Its breaker.
    pub breaker: Breaker,
}

/// Asks for permission to make requests.
#[derive(Debug, Clone)]
pub struct TakeEgressQuota {
    /// The connection to use.
    pub connection: ConnectionName,
    /// The limits of the connection.
    pub limits: ConnectionLimits,
    /// Most requests wanted; while the breaker is not closed, only one.
    pub wanted: u32,
    /// When its breaker opens, and for how long.
    pub breaker: BreakerConfig,
    /// Requests that were granted earlier and not made: they are not counted.
    pub unused: Option<UnusedEgressQuota>,
    /// The id of the message to people, if one is needed.
    pub message: MessageId,
}

/// Requests that were granted earlier and not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnusedEgressQuota {
    /// When they were granted, from [`EgressQuotaOutcome::Granted`].
    pub taken_at: i64,
    /// How many requests it was for.
    pub many: u32,
}

/// The granted requests, or why there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressQuotaOutcome {
    /// This many requests may be made, at least one.
    Granted {
        /// How many.
        many: u32,
        /// The breaker after this.
        breaker: Breaker,
        /// The second in which they are counted.
        taken_at: i64,
    },
    /// No request may be made.
    Refused {
        /// The reason.
        stop: ThrottleReason,
        /// When to ask again; `None` where a person must act first.
        again: Option<UtcMillis>,
    },
}

struct EgressStateRow {
    version: Option<u64>,
    burned: u64,
    told: bool,
    breaker: Breaker,
}

impl EgressStateRow {
    async fn find<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, connection: &ConnectionName) -> Result<Self, StoreError> {
        match unit.row(LOCKED, params![connection.as_str()]).await? {
            Some(row) => decode(row).map(|(_, line)| line),
            None => Ok(Self { version: None, burned: 0, told: false, breaker: Breaker::default() }),
        }
    }

    fn keep<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, connection: &ConnectionName) {
        let Breaker { refusals, opened, open_until, probe_until } = self.breaker;
        let told = u32::from(self.told);
        match self.version {
            None => {
                let row = params![connection.as_str(), self.burned, told, refusals, opened, open_until, probe_until];
                unit.write(FIRST, row);
            }
            Some(version) => {
                let row =
                    params![connection.as_str(), version, self.burned, told, refusals, opened, open_until, probe_until];
                unit.write_one(NEXT, row);
            }
        }
    }
}

struct EgressUse {
    used: ConnectionUsage,
    first_in_minute: i64,
    first_in_hour: i64,
}

async fn counted<T: StoreTx>(
    tx: &mut T,
    connection: &ConnectionName,
    now: UtcMillis,
    burned: u64,
) -> Result<EgressUse, StoreError> {
    let second = now.as_seconds();
    let row = tx.rows(USED, &params![connection.as_str(), second - MINUTE, second - HOUR]).await?.into_iter().next();
    let mut row = row.ok_or(StoreError::NotFound { what: "counter" })?.of("egress_counters");
    let used = ConnectionUsage { minute: row.count()?, hour: row.count()?, burned };
    Ok(EgressUse { used, first_in_minute: row.int()?, first_in_hour: row.int()? })
}

impl UseCase for TakeEgressQuota {
    type Out = EgressQuotaOutcome;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<EgressQuotaOutcome, StoreError> {
        let (now, connection) = (unit.now, &self.connection);
        let mut line = EgressStateRow::find(unit, connection).await?;
        let given_back = self.give_back(unit).await?;
        line.burned = line.burned.saturating_sub(given_back);
        let breaker = match line.breaker.pass(&self.breaker, now) {
            Ok(breaker) => breaker,
            Err(stop) => {
                if given_back > 0 {
                    line.keep(unit, connection);
                }
                return Ok(EgressQuotaOutcome::Refused { stop, again: again(stop, None) });
            }
        };
        let mut counted = counted(unit.tx(), connection, now, line.burned).await?;
        counted.without(self.unused.map_or(0, |unused| unused.taken_at), given_back, now);
        let wanted = if breaker.is_closed() { self.wanted } else { 1 };
        let many = match check_limits(&self.limits, &counted.used, wanted) {
            Ok(many) => many,
            Err(stop) => {
                let tells = stop == ThrottleReason::Burn && !line.told;
                line.told |= tells;
                if tells || given_back > 0 {
                    line.keep(unit, connection);
                }
                if tells {
                    tell(unit, self.message, "egress.burned", MessageSeverity::Critical, connection);
                }
                return Ok(EgressQuotaOutcome::Refused { stop, again: again(stop, Some(&counted)) });
            }
        };
        line.burned = line.burned.saturating_add(u64::from(many));
        line.breaker = breaker;
        line.keep(unit, connection);
        let second = now.as_seconds();
        unit.write(BUMP, params![connection.as_str(), second, many]);
        unit.write(FORGET, params![connection.as_str(), second - HOUR]);
        Ok(EgressQuotaOutcome::Granted { many, breaker, taken_at: second })
    }
}

impl TakeEgressQuota {
    /// Subtracts unused requests from what was counted. Returns how many.
    ///
    /// Counts that a person has reset, or that are too old, no longer exist: then nothing is subtracted, so that never
    /// fewer requests are counted than were made.
    async fn give_back<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<u64, StoreError> {
        let Some(UnusedEgressQuota { taken_at, many }) = self.unused.filter(|unused| unused.many > 0) else {
            return Ok(0);
        };
        let slot = params![self.connection.as_str(), taken_at];
        let Some(row) = unit.row(SLOT, slot).await? else { return Ok(0) };
        let used: u64 = row.of("egress_counters").count()?;
        if used < u64::from(many) {
            return Ok(0);
        }
        unit.write(GIVE_BACK, params![self.connection.as_str(), taken_at, many]);
        Ok(u64::from(many))
    }
}

impl EgressUse {
    /// Subtracts requests that are given back in this transaction.
    fn without(&mut self, taken_at: i64, many: u64, now: UtcMillis) {
        let age = now.as_seconds().saturating_sub(taken_at);
        if age <= HOUR {
            self.used.hour = self.used.hour.saturating_sub(many);
        }
        if age <= MINUTE {
            self.used.minute = self.used.minute.saturating_sub(many);
        }
    }
}

fn again(stop: ThrottleReason, counted: Option<&EgressUse>) -> Option<UtcMillis> {
    let after = |first: i64, window: i64| UtcMillis::from_millis((first + window + 1).saturating_mul(1000));
    match (stop, counted) {
        (ThrottleReason::Minute, Some(counted)) => Some(after(counted.first_in_minute, MINUTE)),
        (ThrottleReason::Hour, Some(counted)) => Some(after(counted.first_in_hour, HOUR)),
        (ThrottleReason::Open { until } | ThrottleReason::Probing { until }, _) => Some(until),
        (ThrottleReason::Minute | ThrottleReason::Hour | ThrottleReason::Burn, _) => None,
    }
}

fn tell<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    id: MessageId,
    topic: &str,
    severity: MessageSeverity,
    connection: &ConnectionName,
) {
    let body = json!({"connection": connection});
    outbox::put(unit, &OutboxMessage { id, topic: topic.into(), severity, body });
    let by = unit.actor();
    unit.record(AuditFact::new(topic, by).with("connection", connection).with("message", id));
}

/// The response of the service.
#[derive(Debug, Clone)]
pub struct RecordServiceReply {
    /// The connection that was used.
    pub connection: ConnectionName,
    /// The status; `None` if there was no response.
    pub status: Option<u16>,
    /// How long the service asks callers to wait.
    pub retry_after: Option<Millis>,
    /// A random number, to spread retries.
    pub jitter: u64,
    /// When the breaker opens, and for how long.
    pub breaker: BreakerConfig,
    /// The id of the message to people, if one is needed.
    pub message: MessageId,
}

impl UseCase for RecordServiceReply {
    type Out = Breaker;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Breaker, StoreError> {
        let (now, connection) = (unit.now, &self.connection);
        let mut line = EgressStateRow::find(unit, connection).await?;
        let before = line.breaker;
        line.breaker = match self.status {
            Some(status) => {
                let reply = ServiceReply { status, retry_after: self.retry_after, jitter: self.jitter };
                before.after_answer(&self.breaker, &reply, now)
            }
            None => before.after_no_answer(),
        };
        if line.breaker == before {
            return Ok(before);
        }
        line.keep(unit, connection);
        if line.breaker.opened > before.opened {
            tell(unit, self.message, "egress.opened", MessageSeverity::Warning, connection);
        } else if before.opened > 0 && line.breaker.is_closed() {
            let by = unit.actor();
            unit.record(AuditFact::new("egress.closed", by).with("connection", connection));
        }
        Ok(line.breaker)
    }
}

struct ResetEgress {
    connection: ConnectionName,
    by: Actor,
}

impl UseCase for ResetEgress {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let line = EgressStateRow::find(unit, &self.connection).await?;
        let fresh = EgressStateRow { version: line.version, burned: 0, told: false, breaker: Breaker::default() };
        fresh.keep(unit, &self.connection);
        unit.write(FORGET, params![self.connection.as_str(), i64::MAX]);
        unit.record(AuditFact::new("egress.reset", self.by.clone()).with("connection", &self.connection));
        Ok(())
    }
}

struct ListEgressStates {
    now: UtcMillis,
}

impl StoreQuery for ListEgressStates {
    type Out = Vec<EgressState>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(ALL, &[]).await?.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let mut states = Vec::with_capacity(rows.len());
        for (connection, line) in rows {
            let counted = counted(tx, &connection, self.now, line.burned).await?;
            states.push(EgressState { connection, used: counted.used, breaker: line.breaker });
        }
        Ok(states)
    }
}

fn decode(row: SqlRow) -> Result<(ConnectionName, EgressStateRow), StoreError> {
    let mut row = row.of("egress_states");
    let (connection, version, burned) = (row.parsed()?, row.count()?, row.count()?);
    let told = match row.int()? {
        0 => false,
        1 => true,
        _ => return Err(row.impossible("a flag that is neither 0 nor 1")),
    };
    let (refusals, opened) = (row.count()?, row.count()?);
    let breaker = Breaker { refusals, opened, open_until: row.maybe_time()?, probe_until: row.maybe_time()? };
    Ok((connection, EgressStateRow { version: Some(version), burned, told, breaker }))
}

impl Store {
    /// Asks for permission to make requests through a connection, and counts them.
    ///
    /// # Errors
    /// When they cannot be counted: then no request may be made.
    pub async fn take_egress_quota(&self, take: TakeEgressQuota) -> Result<EgressQuotaOutcome, StoreError> {
        self.submit(take).await
    }

    /// Updates the breaker with the response of the service.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn record_service_reply(&self, heard: RecordServiceReply) -> Result<Breaker, StoreError> {
        self.submit(heard).await
    }

    /// Clears the counts and closes the breaker.
    ///
    /// # Errors
    /// When an agent asks, or it cannot be recorded.
    pub async fn egress_reset(&self, connection: ConnectionName, by: Actor) -> Result<(), StoreError> {
        self.submit(ResetEgress { connection, by }).await
    }

    /// The state of every connection that was ever used.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn egress_states(&self, now: UtcMillis) -> Result<Vec<EgressState>, StoreError> {
        self.ask(ListEgressStates { now }).await
    }
}
