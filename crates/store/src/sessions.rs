//! Sessions: what an agent is at, from its first knock until it leaves, and whether it has read something bad.
//!
//! Promise: the task is content and stays in its row; the record knows its length. A taint is never
//! cleared by anything but a person.

use sluice_core::audit::Fact;
use sluice_core::ids::SessionId;
use sluice_core::{Actor, AgentName, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, params};

const ONE: &str = "SELECT id, agent, client, task, opened_at, ended_at, tainted_at FROM sessions WHERE id = ?1";
const LOCKED: &str =
    "SELECT id, agent, client, task, opened_at, ended_at, tainted_at FROM sessions WHERE id = ?1 /*lock*/";
const PAGE: &str = "SELECT id, agent, client, task, opened_at, ended_at, tainted_at FROM sessions \
     WHERE id < ?1 AND (?2 = 0 OR tainted_at IS NOT NULL) AND (?3 IS NULL OR agent = ?3) ORDER BY id DESC LIMIT ?4";
const OPEN: &str = "INSERT INTO sessions (id, agent, client, task, opened_at) VALUES (?1, ?2, ?3, ?4, ?5)";
const END: &str = "UPDATE sessions SET ended_at = ?2 WHERE id = ?1";
const TAINT: &str = "UPDATE sessions SET tainted_at = ?2 WHERE id = ?1";

/// A session.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Whose.
    pub agent: AgentName,
    /// The program it came with, as that calls itself.
    pub client: Option<String>,
    /// What the agent says it is at. Content.
    pub task: Option<String>,
    /// Since when.
    pub opened_at: Timestamp,
    /// Until when.
    pub ended_at: Option<Timestamp>,
    /// Since when it is known to have read something bad.
    pub tainted_at: Option<Timestamp>,
}

/// Which sessions are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionFilter {
    /// Only those that have read something bad.
    pub tainted: bool,
    /// Only those of this agent.
    pub agent: Option<AgentName>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("agent", &self.agent).finish_non_exhaustive()
    }
}

struct Open {
    id: SessionId,
    agent: AgentName,
    client: Option<String>,
    task: Option<String>,
}

impl UseCase for Open {
    type Out = Session;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Session, StoreError> {
        let Self { id, agent, client, task } = self;
        let now = desk.now;
        desk.write(OPEN, params![*id, agent, client.as_deref(), task.as_deref(), now]);
        let fact = Fact::new("session.opened", Actor::Agent(agent.clone())).with("session", id);
        desk.record(match task {
            Some(task) => fact.with("task_bytes", task.len()),
            None => fact,
        });
        let (client, task) = (client.clone(), task.clone());
        Ok(Session { id: *id, agent: agent.clone(), client, task, opened_at: now, ended_at: None, tainted_at: None })
    }
}

/// What is done to a session.
enum Deed {
    End { by: Actor },
    Taint { code: String },
    Clear { by: Actor },
}

struct Change {
    id: SessionId,
    deed: Deed,
}

impl UseCase for Change {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        // SECURITY: what taints an agent must not be able to say that it did not.
        if let Deed::Clear { by: Actor::Agent(_) | Actor::Node(_) } = &self.deed {
            return Err(StoreError::NotAPerson);
        }
        let missing = || StoreError::NotFound { what: "session" };
        let session = desk.row(LOCKED, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        let now = desk.now;
        let fact = match &self.deed {
            // SECURITY: to a stranger the session does not exist, rather than being forbidden.
            Deed::End { by: Actor::Agent(name) } if *name != session.agent => return Err(missing()),
            Deed::End { by } if session.ended_at.is_none() => {
                desk.write(END, params![self.id, now]);
                Fact::new("session.ended", by.clone())
            }
            Deed::Taint { code } if session.tainted_at.is_none() => {
                desk.write(TAINT, params![self.id, now]);
                let mut fact = Fact::new("session.tainted", desk.actor()).with("agent", &session.agent);
                fact.code = Some(code.clone());
                fact
            }
            Deed::Clear { by } if session.tainted_at.is_some() => {
                desk.write(TAINT, params![self.id, None::<Timestamp>]);
                Fact::new("session.cleared", by.clone()).with("agent", &session.agent)
            }
            Deed::End { .. } | Deed::Taint { .. } | Deed::Clear { .. } => return Ok(()),
        };
        desk.record(fact.with("session", self.id));
        Ok(())
    }
}

struct ById(SessionId);

impl Query for ById {
    type Out = Option<Session>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Session>, StoreError> {
        tx.rows(ONE, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

struct List {
    wanted: SessionFilter,
    before: Option<SessionId>,
    limit: u32,
}

impl Query for List {
    type Out = Vec<Session>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Session>, StoreError> {
        let before = self.before.map_or(u128::MAX, SessionId::bits);
        let SessionFilter { tainted, agent } = &self.wanted;
        let rows = tx.rows(PAGE, &params![before, i64::from(*tainted), agent.as_ref(), self.limit]).await?;
        rows.into_iter().map(decode).collect()
    }
}

fn decode(row: Row) -> Result<Session, StoreError> {
    let mut row = row.of("sessions");
    Ok(Session {
        id: SessionId::from_bits(row.bits()?),
        agent: row.parsed()?,
        client: row.maybe_text()?,
        task: row.maybe_text()?,
        opened_at: row.time()?,
        ended_at: row.maybe_time()?,
        tainted_at: row.maybe_time()?,
    })
}

impl Store {
    /// Opens a session.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn open_session(
        &self,
        id: SessionId,
        agent: AgentName,
        client: Option<String>,
        task: Option<String>,
    ) -> Result<Session, StoreError> {
        self.submit(Open { id, agent, client, task }).await
    }

    /// One session.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.ask(ById(id)).await
    }

    /// Sessions, by falling id.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn sessions(
        &self,
        wanted: SessionFilter,
        before: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Session>, StoreError> {
        self.ask(List { wanted, before, limit }).await
    }

    /// Ends a session. An agent ends its own only. Ending it again changes nothing.
    ///
    /// # Errors
    /// When there is no such session for this caller.
    pub async fn end_session(&self, id: SessionId, by: Actor) -> Result<(), StoreError> {
        self.submit(Change { id, deed: Deed::End { by } }).await
    }

    /// Notes that a session has read something bad.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn taint_session(&self, id: SessionId, code: String) -> Result<(), StoreError> {
        self.submit(Change { id, deed: Deed::Taint { code } }).await
    }

    /// Takes a person's word that a session is sound.
    ///
    /// # Errors
    /// When the one who says so is no person, or there is no such session.
    pub async fn clear_taint(&self, id: SessionId, by: Actor) -> Result<(), StoreError> {
        self.submit(Change { id, deed: Deed::Clear { by } }).await
    }
}
