//! Calls that agents planned for later.
//!
//! Takes a plan; gives the plans that are due. Promise: for each due time exactly one node makes the call; a cancelled
//! plan is never due; the number of plans of an agent is bounded. The audit log holds the capability, never the
//! arguments.

use serde_json::{Map, Value};
use sluice_core::audit::AuditFact;
use sluice_core::{Actor, AgentName, CallId, CapabilityName, HoldId, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// Most active plans of one agent.
pub const SCHEDULES_OF_AGENT: u32 = 100;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, agent, capability, arguments, cron, description, state, reason, version, next_at, created_at, \
             runs, last_at, last_call, last_code FROM schedules ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE id = ?1");
const LOCKED: &str = select!("WHERE id = ?1 /*lock*/");
const OF_AGENT: &str = select!("WHERE agent = ?1 ORDER BY id DESC LIMIT 200");
const ACTIVE: &str = select!("WHERE state = 'active' ORDER BY id LIMIT 10000");
const DUE: &str = select!("WHERE state = 'active' AND next_at <= ?1 ORDER BY next_at, id LIMIT ?2");
const COUNT: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM schedules WHERE agent = ?1 AND state = 'active'";
const ADD: &str = "INSERT INTO schedules \
     (id, agent, capability, arguments, cron, description, state, version, next_at, created_at, runs) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'active', 1, ?7, ?8, 0)";
const MOVE: &str = "UPDATE schedules SET state = ?3, reason = ?4, next_at = ?5, version = version + 1 \
     WHERE id = ?1 AND version = ?2";
const RAN: &str = "UPDATE schedules SET last_at = ?2, last_call = ?3, last_code = ?4, runs = runs + 1 WHERE id = ?1";
const CANCEL_ALL: &str = "UPDATE schedules SET state = 'cancelled', reason = 'agent.removed', next_at = NULL, \
     version = version + 1 WHERE agent = ?1 AND state = 'active'";

/// The state of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleState {
    /// It will be due again.
    Active,
    /// Its one call was made.
    Done,
    /// A person, the agent or a freeze ended it.
    Cancelled,
    /// Its only time passed while no gateway was running.
    Missed,
}

impl ScheduleState {
    /// The word used in rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Missed => "missed",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Active, Self::Done, Self::Cancelled, Self::Missed].into_iter().find(|state| state.as_str() == word)
    }
}

/// A plan.
#[derive(Clone, PartialEq)]
pub struct Schedule {
    /// Its id: that of the write that made it.
    pub id: HoldId,
    /// The agent that owns it.
    pub agent: AgentName,
    /// The capability to call.
    pub capability: CapabilityName,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
    /// The times, as five fields of cron in UTC; `None` for a single call.
    pub cron: Option<String>,
    /// The purpose, in the agent's words.
    pub description: Option<String>,
    /// Its state.
    pub state: ScheduleState,
    /// Why it ended, as a code.
    pub reason: Option<String>,
    /// The version of the row.
    pub version: u64,
    /// When it is due next.
    pub next_at: Option<UtcMillis>,
    /// When it was made.
    pub created_at: UtcMillis,
    /// How many calls it has made.
    pub runs: u64,
    /// When it made the last call.
    pub last_at: Option<UtcMillis>,
    /// The last call.
    pub last_call: Option<CallId>,
    /// Why the last call was refused, as a code.
    pub last_code: Option<String>,
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("id", &self.id).field("state", &self.state).finish_non_exhaustive()
    }
}

/// A plan to be created.
#[derive(Clone)]
pub struct AddSchedule {
    /// The write that creates it.
    pub hold: HoldId,
    /// The agent that owns it.
    pub agent: AgentName,
    /// The capability to call.
    pub capability: CapabilityName,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
    /// The times, as cron; `None` for a single call.
    pub cron: Option<String>,
    /// The purpose, in the agent's words.
    pub description: Option<String>,
    /// When it is due first.
    pub next_at: UtcMillis,
}

impl std::fmt::Debug for AddSchedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSchedule").field("hold", &self.hold).field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// The next state of a plan that is due, or that is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveSchedule {
    /// The id of the plan.
    pub id: HoldId,
    /// The version at which it was read.
    pub version: u64,
    /// Its new state.
    pub state: ScheduleState,
    /// The reason, as a code.
    pub reason: Option<String>,
    /// When it is due next.
    pub next_at: Option<UtcMillis>,
    /// The kind of the audit entry: `schedule.due`, `schedule.late`, `schedule.missed`, `schedule.cancelled`.
    pub fact: &'static str,
    /// Who did it; `None` for the gateway itself.
    pub by: Option<Actor>,
}

impl UseCase for AddSchedule {
    type Out = Schedule;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Schedule, StoreError> {
        if let Some(row) = unit.row(ONE, params![self.hold]).await? {
            return decode(row);
        }
        let row = unit.row(COUNT, params![&self.agent]).await?;
        let active: u32 = row.map_or(Ok(0), |row| row.of("schedules").count())?;
        if active >= SCHEDULES_OF_AGENT {
            return Err(StoreError::Quota);
        }
        let now = unit.now;
        let arguments = Value::Object(self.arguments.clone()).to_string();
        let (cron, description) = (self.cron.as_deref(), self.description.as_deref());
        let mut row = params![self.hold, &self.agent, &self.capability, arguments, cron, description];
        row.extend(params![self.next_at, now]);
        unit.write(ADD, row);
        let fact = AuditFact::new("schedule.created", Actor::Agent(self.agent.clone()));
        let mut fact = fact.with("capability", &self.capability).with("next_at", self.next_at);
        fact.hold = Some(self.hold);
        unit.record(fact);
        let Self { hold, agent, capability, arguments, cron, description, next_at } = self.clone();
        Ok(Schedule {
            id: hold,
            agent,
            capability,
            arguments,
            cron,
            description,
            state: ScheduleState::Active,
            reason: None,
            version: 1,
            next_at: Some(next_at),
            created_at: now,
            runs: 0,
            last_at: None,
            last_call: None,
            last_code: None,
        })
    }
}

impl UseCase for MoveSchedule {
    /// Whether this call moved it: another node may have been faster.
    type Out = bool;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let Some(row) = unit.row(LOCKED, params![self.id]).await? else { return Ok(false) };
        let plan = decode(row)?;
        if plan.version != self.version {
            return Ok(false);
        }
        let reason = self.reason.as_deref();
        unit.write_one(MOVE, params![self.id, self.version, self.state.as_str(), reason, self.next_at]);
        let by = self.by.clone().unwrap_or_else(|| unit.actor());
        let mut fact = AuditFact::new(self.fact, by).with("agent", &plan.agent).with("capability", &plan.capability);
        if let Some(reason) = reason {
            fact = fact.with("reason", reason);
        }
        fact.hold = Some(self.id);
        unit.record(fact);
        Ok(true)
    }
}

struct RecordScheduleRun {
    id: HoldId,
    call: Option<CallId>,
    code: Option<String>,
}

impl UseCase for RecordScheduleRun {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        unit.write(RAN, params![self.id, now, self.call, self.code.as_deref()]);
        Ok(())
    }
}

enum ListSchedules {
    Of(AgentName),
    One(HoldId),
    Due(UtcMillis, u32),
    Active,
}

impl StoreQuery for ListSchedules {
    type Out = Vec<Schedule>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Schedule>, StoreError> {
        let rows = match self {
            Self::Of(agent) => tx.rows(OF_AGENT, &params![agent]).await?,
            Self::One(id) => tx.rows(ONE, &params![*id]).await?,
            Self::Due(now, limit) => tx.rows(DUE, &params![*now, *limit]).await?,
            Self::Active => tx.rows(ACTIVE, &[]).await?,
        };
        rows.into_iter().map(decode).collect()
    }
}

/// Cancels every plan of an agent that is being removed.
pub(crate) fn cancel_all_of<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, agent: &AgentName) {
    unit.write(CANCEL_ALL, params![agent]);
}

fn decode(row: SqlRow) -> Result<Schedule, StoreError> {
    let mut row = row.of("schedules");
    let (id, agent, capability, arguments) = (row.bits()?, row.parsed()?, row.parsed()?, row.text()?);
    let Ok(Value::Object(arguments)) = serde_json::from_str(&arguments) else {
        return Err(row.impossible("arguments that are not an object"));
    };
    let (cron, description, word, reason) = (row.maybe_text()?, row.maybe_text()?, row.text()?, row.maybe_text()?);
    let state = ScheduleState::from_word(&word).ok_or_else(|| row.impossible("an unknown state"))?;
    Ok(Schedule {
        id: HoldId::from_bits(id),
        agent,
        capability,
        arguments,
        cron,
        description,
        state,
        reason,
        version: row.count()?,
        next_at: row.maybe_time()?,
        created_at: row.time()?,
        runs: row.count()?,
        last_at: row.maybe_time()?,
        last_call: row.maybe_bits()?.map(CallId::from_bits),
        last_code: row.maybe_text()?,
    })
}

impl Store {
    /// Creates a plan. The same write creates it only once.
    ///
    /// # Errors
    /// When the agent has too many.
    pub async fn add_schedule(&self, plan: AddSchedule) -> Result<Schedule, StoreError> {
        self.submit(plan).await
    }

    /// The plans of an agent, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn schedules_of(&self, agent: AgentName) -> Result<Vec<Schedule>, StoreError> {
        self.ask(ListSchedules::Of(agent)).await
    }

    /// One plan.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn schedule(&self, id: HoldId) -> Result<Option<Schedule>, StoreError> {
        Ok(self.ask(ListSchedules::One(id)).await?.into_iter().next())
    }

    /// The plans that are due, the longest due first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn due_schedules(&self, now: UtcMillis, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        self.ask(ListSchedules::Due(now, limit)).await
    }

    /// Every plan that is active.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn active_schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        self.ask(ListSchedules::Active).await
    }

    /// Moves a plan, if it was not moved since it was read.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn move_schedule(&self, run: MoveSchedule) -> Result<bool, StoreError> {
        self.submit(run).await
    }

    /// Records the call that a plan made.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn record_schedule_run(
        &self,
        id: HoldId,
        call: Option<CallId>,
        code: Option<String>,
    ) -> Result<(), StoreError> {
        self.submit(RecordScheduleRun { id, call, code }).await
    }
}
