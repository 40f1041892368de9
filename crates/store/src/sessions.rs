//! Sessions: what an agent is at, from its first knock until it leaves, and whether it has read something bad.
//!
//! Promise: the task is content and stays in its row; the record knows its length and who stated it. A task that
//! nobody but the agent itself stated is not read. A taint is never cleared by anything but a person.

use sluice_core::audit::Fact;
use sluice_core::ids::{KeyId, SessionId};
use sluice_core::{Actor, AgentName, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, params};

const ONE: &str =
    "SELECT id, agent, client, task, task_by, opened_at, ended_at, tainted_at FROM sessions WHERE id = ?1";
const LOCKED: &str =
    "SELECT id, agent, client, task, task_by, opened_at, ended_at, tainted_at FROM sessions WHERE id = ?1 /*lock*/";
const PAGE: &str = "SELECT id, agent, client, task, task_by, opened_at, ended_at, tainted_at FROM sessions \
     WHERE id < ?1 AND (?2 = 0 OR tainted_at IS NOT NULL) AND (?3 IS NULL OR agent = ?3) ORDER BY id DESC LIMIT ?4";
const OPEN: &str = "INSERT INTO sessions (id, agent, client, task, task_by, opened_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const END: &str = "UPDATE sessions SET ended_at = ?2 WHERE id = ?1";
const TAINT: &str = "UPDATE sessions SET tainted_at = ?2 WHERE id = ?1";
const STATE_TASK: &str = "UPDATE sessions SET task = ?2, task_by = ?3 WHERE id = ?1";

/// The most characters a task has, all prompts of its session together.
pub const LONGEST_TASK: usize = 20_000;

/// A session.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Whose.
    pub agent: AgentName,
    /// The program it came with, as that calls itself.
    pub client: Option<String>,
    /// What the user asked for, as stated with a task key or by an operator. Content.
    pub task: Option<String>,
    /// Since when.
    pub opened_at: Timestamp,
    /// Until when.
    pub ended_at: Option<Timestamp>,
    /// Since when it is known to have read something bad.
    pub tainted_at: Option<Timestamp>,
}

/// Who stated a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSource {
    /// A program that holds a task key for the agent.
    Key(KeyId),
    /// A person with an operator's credential.
    Operator(Actor),
}

impl TaskSource {
    /// As the row and the record name it.
    fn text(&self) -> String {
        match self {
            Self::Key(key) => format!("task:{key}"),
            Self::Operator(actor) => actor.to_string(),
        }
    }

    /// Who acted, as the record knows them: a task key acts for no person, so the node that took it stands there.
    fn actor<T: Tx>(&self, desk: &Desk<'_, T>) -> Actor {
        match self {
            Self::Key(_) => desk.actor(),
            Self::Operator(actor) => actor.clone(),
        }
    }

    // SECURITY: a task decides what counts as asked for. An agent must not write its own.
    fn refuse_agents(&self) -> Result<(), StoreError> {
        match self {
            Self::Operator(Actor::Agent(_)) => Err(StoreError::NotAPerson),
            Self::Operator(_) | Self::Key(_) => Ok(()),
        }
    }
}

/// A task and who stated it.
#[derive(Clone, PartialEq, Eq)]
pub struct StatedTask {
    /// What the user asked for. Content.
    pub text: String,
    /// Who says so.
    pub by: TaskSource,
}

impl std::fmt::Debug for StatedTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatedTask").field("by", &self.by).finish_non_exhaustive()
    }
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
    task: Option<StatedTask>,
}

impl UseCase for Open {
    type Out = Session;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Session, StoreError> {
        let Self { id, agent, client, task } = self;
        if let Some(task) = task {
            task.by.refuse_agents()?;
        }
        let now = desk.now;
        let text = task.as_ref().map(|task| task.text.as_str());
        let by = task.as_ref().map(|task| task.by.text());
        desk.write(OPEN, params![*id, agent, client.as_deref(), text, by.as_deref(), now]);
        let actor = task.as_ref().map_or_else(|| Actor::Agent(agent.clone()), |task| task.by.actor(desk));
        let fact = Fact::new("session.opened", actor).with("session", id);
        desk.record(match (text, by) {
            (Some(text), Some(by)) => fact.with("agent", agent).with("task_bytes", text.len()).with("task_by", by),
            _ => fact,
        });
        let (client, task) = (client.clone(), text.map(str::to_owned));
        Ok(Session { id: *id, agent: agent.clone(), client, task, opened_at: now, ended_at: None, tainted_at: None })
    }
}

/// A further prompt of the user, for a session that is open.
struct StateTask {
    id: SessionId,
    agent: Option<AgentName>,
    task: StatedTask,
}

impl UseCase for StateTask {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        self.task.by.refuse_agents()?;
        let missing = || StoreError::NotFound { what: "session" };
        let session = desk.row(LOCKED, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        // SECURITY: to a stranger the session does not exist, rather than being forbidden.
        let is_strange = self.agent.as_ref().is_some_and(|agent| *agent != session.agent);
        if is_strange || session.ended_at.is_some() {
            return Err(missing());
        }
        let (whole, by) = (joined(session.task.as_deref(), &self.task.text), self.task.by.text());
        desk.write(STATE_TASK, params![self.id, whole.as_str(), by.as_str()]);
        let actor = self.task.by.actor(desk);
        let fact = Fact::new("session.tasked", actor).with("session", self.id).with("agent", &session.agent);
        desk.record(fact.with("task_bytes", self.task.text.len()).with("task_by", by));
        Ok(())
    }
}

/// All prompts of a session so far. What would be too long is the newest prompt alone: cut in its middle, an older one
/// could name a target that nobody wrote.
fn joined(before: Option<&str>, new: &str) -> String {
    match before {
        Some(before) if before.chars().count() + new.chars().count() + 2 <= LONGEST_TASK => {
            format!("{before}\n\n{new}")
        }
        Some(_) | None => new.to_owned(),
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
    let (id, agent, client) = (SessionId::from_bits(row.bits()?), row.parsed()?, row.maybe_text()?);
    let (task, task_by) = (row.maybe_text()?, row.maybe_text()?);
    Ok(Session {
        id,
        agent,
        client,
        // SECURITY: earlier releases took tasks from agents themselves. Those name nobody who stated them.
        task: task.filter(|_| task_by.is_some()),
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
        task: Option<StatedTask>,
    ) -> Result<Session, StoreError> {
        self.submit(Open { id, agent, client, task }).await
    }

    /// Adds a prompt of the user to an open session; with an agent named, only to a session of that agent.
    ///
    /// # Errors
    /// When there is no such open session, or an agent states its own task.
    pub async fn state_task(
        &self,
        id: SessionId,
        agent: Option<AgentName>,
        task: StatedTask,
    ) -> Result<(), StoreError> {
        self.submit(StateTask { id, agent, task }).await
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
