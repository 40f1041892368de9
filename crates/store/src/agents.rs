//! Agents: the names that may knock, and which of them are paused.
//!
//! Takes a person's word; gives the agents there are. Promise: no agent makes, wakes or removes one; a
//! name that was removed is never given again, because what was allowed under it must not pass on.

use sluice_core::audit::Fact;
use sluice_core::{Actor, AgentName, HoldId, Timestamp};

use crate::Store;
use crate::credentials;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::people::Waiting;
use crate::sql::{Row, Tx, params};

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
    /// Since when it is known.
    pub created_at: Timestamp,
    /// Who made it known.
    pub created_by: Actor,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// By whom.
    pub paused_by: Option<Actor>,
    /// Why, in their words.
    pub paused_for: Option<String>,
    /// Since when it is no more.
    pub removed_at: Option<Timestamp>,
    /// Its observe mode, which may have ended.
    pub observing: Option<Observing>,
}

/// Observe mode: calls are judged and recorded, and not stopped for what the rules of the organisation or the agent say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observing {
    /// When it ends.
    pub until: Timestamp,
    /// Capabilities that leave the house and are included, by name.
    pub leaving: Vec<String>,
}

/// The agent of this name, if there is one that was not removed. Locked for the transaction.
pub(crate) async fn present<T: Tx>(desk: &mut Desk<'_, T>, name: &AgentName) -> Result<Agent, StoreError> {
    let agent = desk.row(ONE, params![name]).await?.map(decode).transpose()?;
    agent.filter(|agent| agent.removed_at.is_none()).ok_or(StoreError::NotFound { what: "agent" })
}

/// What is done to an agent.
enum Deed {
    Add { note: String },
    Pause { reason: String },
    Resume,
    Observe(Observing),
    EndObserving,
    Remove,
}

struct Change {
    name: AgentName,
    by: Actor,
    deed: Deed,
}

impl UseCase for Change {
    /// The writes it stopped.
    type Out = Vec<HoldId>;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        // SECURITY: an agent that could make, wake or remove agents could give itself another's rights.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let (name, now) = (&self.name, desk.now);
        if let Deed::Add { note } = &self.deed {
            if desk.row(ONE, params![name]).await?.is_some() {
                return Err(StoreError::Exists { what: "agent" });
            }
            desk.write(ADD, params![name, note.as_str(), now, &self.by]);
            self.note(desk, "agent.added");
            return Ok(Vec::new());
        }
        let agent = present(desk, name).await?;
        let mut stopped = Vec::new();
        match &self.deed {
            Deed::Add { .. } => {}
            Deed::Pause { .. } if agent.paused_at.is_some() => {}
            Deed::Pause { reason } => {
                desk.write(PAUSE, params![name, now, &self.by, reason.as_str()]);
                self.note(desk, "agent.paused");
            }
            Deed::Resume if agent.paused_at.is_none() => {}
            Deed::Resume => {
                desk.write(RESUME, params![name]);
                self.note(desk, "agent.resumed");
            }
            Deed::Observe(observing) => {
                let leaving = observing.leaving.join(" ");
                desk.write(OBSERVE, params![name, observing.until, leaving.as_str()]);
                credentials::changed(desk);
                let fact = Fact::new("agent.observe_started", self.by.clone()).with("agent", name);
                desk.record(fact.with("until", observing.until).with("leaving", &leaving));
            }
            Deed::EndObserving if agent.observing.is_none() => {}
            Deed::EndObserving => {
                desk.write(OBSERVE, params![name, None::<Timestamp>, None::<&str>]);
                self.note(desk, "agent.observe_ended");
            }
            Deed::Remove => {
                // What it asked for and has not left goes with it: nobody is left to answer for it.
                let waiting = Waiting::of(desk, name).await?;
                credentials::revoke_all_of(desk, name, &self.by).await?;
                stopped = waiting.stop(desk, &self.by, "agent.removed")?;
                crate::local::cancel_all_of(desk, name);
                desk.write(REMOVE, params![name, now]);
                self.note(desk, "agent.removed");
            }
        }
        Ok(stopped)
    }
}

impl Change {
    fn note<T: Tx>(&self, desk: &mut Desk<'_, T>, kind: &str) {
        credentials::changed(desk);
        desk.record(Fact::new(kind, self.by.clone()).with("agent", &self.name));
    }
}

struct All;

impl Query for All {
    type Out = Vec<Agent>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Agent>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: Row) -> Result<Agent, StoreError> {
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
                Some(Observing { until, leaving })
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
    /// Makes an agent known.
    ///
    /// # Errors
    /// When an agent asks, or the name was ever given before.
    pub async fn add_agent(&self, name: AgentName, note: String, by: Actor) -> Result<(), StoreError> {
        self.submit(Change { name, by, deed: Deed::Add { note } }).await.map(drop)
    }

    /// Pauses an agent. Pausing one that is paused changes nothing.
    ///
    /// # Errors
    /// When an agent asks, or there is none of that name.
    pub async fn pause_agent(&self, name: AgentName, by: Actor, reason: String) -> Result<(), StoreError> {
        self.submit(Change { name, by, deed: Deed::Pause { reason } }).await.map(drop)
    }

    /// Lets a paused agent go on.
    ///
    /// # Errors
    /// When an agent asks, or there is none of that name.
    pub async fn resume_agent(&self, name: AgentName, by: Actor) -> Result<(), StoreError> {
        self.submit(Change { name, by, deed: Deed::Resume }).await.map(drop)
    }

    /// Starts observe mode for an agent, or replaces it.
    ///
    /// # Errors
    /// When an agent asks, or there is none of that name.
    pub async fn observe_agent(&self, name: AgentName, by: Actor, mode: Observing) -> Result<(), StoreError> {
        self.submit(Change { name, by, deed: Deed::Observe(mode) }).await.map(drop)
    }

    /// Ends observe mode.
    ///
    /// # Errors
    /// When an agent asks, or there is none of that name.
    pub async fn end_observing(&self, name: AgentName, by: Actor) -> Result<(), StoreError> {
        self.submit(Change { name, by, deed: Deed::EndObserving }).await.map(drop)
    }

    /// Removes an agent, revokes all its keys and stops what it asked for and has not left. Gives the writes that
    /// were stopped; what is already being carried out is carried out.
    ///
    /// # Errors
    /// When an agent asks, or there is none of that name.
    pub async fn remove_agent(&self, name: AgentName, by: Actor) -> Result<Vec<HoldId>, StoreError> {
        self.submit(Change { name, by, deed: Deed::Remove }).await
    }

    /// Every agent there is or was, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn agents(&self) -> Result<Vec<Agent>, StoreError> {
        self.ask(All).await
    }
}
