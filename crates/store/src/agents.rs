//! Agents: the names that may call the gateway, and which of them are paused.
//!
//! Takes a person's decision; gives the agents that exist. Promise: no agent creates, resumes or removes an agent. The
//! name of a removed agent is never used again, because its allowances must not pass to another.

use sluice_core::audit::AuditFact;
use sluice_core::{Actor, AgentName, HoldId, UtcMillis};

use crate::Store;
use crate::credentials;
use crate::error::StoreError;
use crate::hold_interventions::UnsentHolds;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT name, note, created_at, created_by, paused_at, paused_by, paused_for, removed_at, \
             observe_until, observe_leaving FROM agents ",
            $rest
        )
    };
}

const ALL: &str = select!("ORDER BY created_at, name");
const ONE: &str = select!("WHERE name = ?1 /*lock*/");
const ADD: &str = "INSERT INTO agents (name, note, created_at, created_by) VALUES (?1, ?2, ?3, ?4)";
const PAUSE: &str = "UPDATE agents SET paused_at = ?2, paused_by = ?3, paused_for = ?4 WHERE name = ?1";
const RESUME: &str = "UPDATE agents SET paused_at = NULL, paused_by = NULL, paused_for = NULL WHERE name = ?1";
const OBSERVE: &str = "UPDATE agents SET observe_until = ?2, observe_leaving = ?3 WHERE name = ?1";
const REMOVE: &str = "UPDATE agents SET removed_at = ?2 WHERE name = ?1";

/// An agent the operator knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub name: AgentName,
    /// What it is for, in the operator's words.
    pub note: String,
    /// When it was added.
    pub created_at: UtcMillis,
    /// Who added it.
    pub created_by: Actor,
    /// When it was paused.
    pub paused_at: Option<UtcMillis>,
    /// Who paused it.
    pub paused_by: Option<Actor>,
    /// Why it was paused, in that person's words.
    pub paused_for: Option<String>,
    /// When it was removed.
    pub removed_at: Option<UtcMillis>,
    /// Its observe mode, which may have ended.
    pub observing: Option<ObserveMode>,
}

/// Observe mode: calls are judged and recorded, but not stopped by the rules of the organisation or the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObserveMode {
    /// When it ends.
    pub until: UtcMillis,
    /// Names of included capabilities that send data outside.
    pub leaving: Vec<String>,
}

/// The agent with this name, if it exists and was not removed. Locked for the transaction.
pub(crate) async fn present<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, name: &AgentName) -> Result<Agent, StoreError> {
    let agent = unit.row(ONE, params![name]).await?.map(decode).transpose()?;
    agent.filter(|agent| agent.removed_at.is_none()).ok_or(StoreError::NotFound { what: "agent" })
}

/// A change to an agent.
enum AgentChange {
    Add { note: String },
    Pause { reason: String },
    Resume,
    Observe(ObserveMode),
    EndObserving,
    Remove,
}

struct ChangeAgent {
    name: AgentName,
    by: Actor,
    deed: AgentChange,
}

impl UseCase for ChangeAgent {
    /// The writes that were stopped.
    type Out = Vec<HoldId>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        // SECURITY: an agent that could create, resume or remove agents could give itself another agent's rights.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let (name, now) = (&self.name, unit.now);
        if let AgentChange::Add { note } = &self.deed {
            if unit.row(ONE, params![name]).await?.is_some() {
                return Err(StoreError::Exists { what: "agent" });
            }
            unit.write(ADD, params![name, note.as_str(), now, &self.by]);
            self.note(unit, "agent.added");
            return Ok(Vec::new());
        }
        let agent = present(unit, name).await?;
        let mut stopped = Vec::new();
        match &self.deed {
            AgentChange::Add { .. } => {}
            AgentChange::Pause { .. } if agent.paused_at.is_some() => {}
            AgentChange::Pause { reason } => {
                unit.write(PAUSE, params![name, now, &self.by, reason.as_str()]);
                self.note(unit, "agent.paused");
            }
            AgentChange::Resume if agent.paused_at.is_none() => {}
            AgentChange::Resume => {
                unit.write(RESUME, params![name]);
                self.note(unit, "agent.resumed");
            }
            AgentChange::Observe(observing) => {
                let leaving = observing.leaving.join(" ");
                unit.write(OBSERVE, params![name, observing.until, leaving.as_str()]);
                credentials::bump_key_generation(unit);
                let fact = AuditFact::new("agent.observe_started", self.by.clone()).with("agent", name);
                unit.record(fact.with("until", observing.until).with("leaving", &leaving));
            }
            AgentChange::EndObserving if agent.observing.is_none() => {}
            AgentChange::EndObserving => {
                unit.write(OBSERVE, params![name, None::<UtcMillis>, None::<&str>]);
                self.note(unit, "agent.observe_ended");
            }
            AgentChange::Remove => {
                // Its writes that have not left are stopped too: nobody is left to answer for them.
                let waiting = UnsentHolds::of(unit, name).await?;
                credentials::revoke_all_of(unit, name, &self.by).await?;
                stopped = waiting.stop(unit, &self.by, "agent.removed")?;
                crate::local::cancel_all_of(unit, name);
                unit.write(REMOVE, params![name, now]);
                self.note(unit, "agent.removed");
            }
        }
        Ok(stopped)
    }
}

impl ChangeAgent {
    fn note<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, kind: &str) {
        credentials::bump_key_generation(unit);
        unit.record(AuditFact::new(kind, self.by.clone()).with("agent", &self.name));
    }
}

struct ListAgents;

impl StoreQuery for ListAgents {
    type Out = Vec<Agent>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Agent>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: SqlRow) -> Result<Agent, StoreError> {
    let mut row = row.of("agents");
    let agent = Agent {
        name: row.parsed()?,
        note: row.text()?,
        created_at: row.time()?,
        created_by: row.parsed()?,
        paused_at: row.maybe_time()?,
        paused_by: row.maybe_parsed()?,
        paused_for: row.maybe_text()?,
        removed_at: row.maybe_time()?,
        observing: match (row.maybe_time()?, row.maybe_text()?) {
            (Some(until), leaving) => {
                let leaving = leaving.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
                Some(ObserveMode { until, leaving })
            }
            (None, _) => None,
        },
    };
    match (agent.paused_at, &agent.paused_by) {
        (Some(_), Some(_)) | (None, None) => Ok(agent),
        _ => Err(row.impossible("half a pause")),
    }
}

impl Store {
    /// Adds an agent.
    ///
    /// # Errors
    /// When an agent asks, or the name is or was in use.
    pub async fn add_agent(&self, name: AgentName, note: String, by: Actor) -> Result<(), StoreError> {
        self.submit(ChangeAgent { name, by, deed: AgentChange::Add { note } }).await.map(drop)
    }

    /// Pauses an agent. Pausing one that is paused changes nothing.
    ///
    /// # Errors
    /// When an agent asks, or there is no agent with that name.
    pub async fn pause_agent(&self, name: AgentName, by: Actor, reason: String) -> Result<(), StoreError> {
        self.submit(ChangeAgent { name, by, deed: AgentChange::Pause { reason } }).await.map(drop)
    }

    /// Resumes a paused agent.
    ///
    /// # Errors
    /// When an agent asks, or there is no agent with that name.
    pub async fn resume_agent(&self, name: AgentName, by: Actor) -> Result<(), StoreError> {
        self.submit(ChangeAgent { name, by, deed: AgentChange::Resume }).await.map(drop)
    }

    /// Starts observe mode for an agent, or replaces it.
    ///
    /// # Errors
    /// When an agent asks, or there is no agent with that name.
    pub async fn observe_agent(&self, name: AgentName, by: Actor, mode: ObserveMode) -> Result<(), StoreError> {
        self.submit(ChangeAgent { name, by, deed: AgentChange::Observe(mode) }).await.map(drop)
    }

    /// Ends observe mode.
    ///
    /// # Errors
    /// When an agent asks, or there is no agent with that name.
    pub async fn end_observing(&self, name: AgentName, by: Actor) -> Result<(), StoreError> {
        self.submit(ChangeAgent { name, by, deed: AgentChange::EndObserving }).await.map(drop)
    }

    /// Removes an agent, revokes all its keys and stops its writes that have not left. Gives the stopped writes; a
    /// write that is already being executed is completed.
    ///
    /// # Errors
    /// When an agent asks, or there is no agent with that name.
    pub async fn remove_agent(&self, name: AgentName, by: Actor) -> Result<Vec<HoldId>, StoreError> {
        self.submit(ChangeAgent { name, by, deed: AgentChange::Remove }).await
    }

    /// All agents, including removed ones, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn agents(&self) -> Result<Vec<Agent>, StoreError> {
        self.ask(ListAgents).await
    }
}
