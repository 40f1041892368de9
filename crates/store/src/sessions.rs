//! Sessions: what an agent works on, from its first call until it leaves, and whether it has read suspicious content.
//!
//! Promise: the task is content and stays in its row; the audit log holds its length and who stated it. A task stated
//! by the agent itself is not read. Only a person clears a taint.

use sluice_core::audit::AuditFact;
use sluice_core::ids::{KeyId, SessionId};
use sluice_core::{Actor, AgentName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// The most characters of a task, over all prompts of its session.
pub const LONGEST_TASK: usize = 20_000;

/// A session.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The agent it belongs to.
    pub agent: AgentName,
    /// The client program, by the name it gives itself.
    pub client: Option<String>,
    /// What the user asked for, as stated with a task key or by an operator. Content.
    pub task: Option<String>,
    /// When it began.
    pub opened_at: UtcMillis,
    /// When it ended.
    pub ended_at: Option<UtcMillis>,
    /// When it was first known to have read suspicious content.
    pub tainted_at: Option<UtcMillis>,
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
    /// The form used in the row and the audit log.
    fn text(&self) -> String {
        match self {
            Self::Key(key) => format!("task:{key}"),
            Self::Operator(actor) => actor.to_string(),
        }
    }

    /// The actor for the audit log: a task key acts for no person, so the node that accepted it is named.
    fn actor<T: StoreTx>(&self, unit: &UnitOfWork<'_, T>) -> Actor {
        match self {
            Self::Key(_) => unit.actor(),
            Self::Operator(actor) => actor.clone(),
        }
    }

    // SECURITY: a task decides what counts as requested. An agent must not write its own.
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
    /// Who stated it.
    pub by: TaskSource,
}

impl std::fmt::Debug for StatedTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatedTask").field("by", &self.by).finish_non_exhaustive()
    }
}

/// Which sessions to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionFilter {
    /// Only those that have read suspicious content.
    pub tainted: bool,
    /// Only sessions of this agent.
    pub agent: Option<AgentName>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("agent", &self.agent).finish_non_exhaustive()
    }
}

struct OpenSession {
    id: SessionId,
    agent: AgentName,
    client: Option<String>,
    task: Option<StatedTask>,
}

impl UseCase for OpenSession {
    type Out = Session;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Session, StoreError> {
        let Self { id, agent, client, task } = self;
        if let Some(task) = task {
            task.by.refuse_agents()?;
        }
        let now = unit.now;
        let text = task.as_ref().map(|task| task.text.as_str());
        let by = task.as_ref().map(|task| task.by.text());
        unit.write(OPEN, params![*id, agent, client.as_deref(), text, by.as_deref(), now]);
        let actor = task.as_ref().map_or_else(|| Actor::Agent(agent.clone()), |task| task.by.actor(unit));
        let fact = AuditFact::new("session.opened", actor).with("session", id);
        unit.record(match (text, by) {
            (Some(text), Some(by)) => fact.with("agent", agent).with("task_bytes", text.len()).with("task_by", by),
            _ => fact,
        });
        let (client, task) = (client.clone(), text.map(str::to_owned));
        Ok(Session { id: *id, agent: agent.clone(), client, task, opened_at: now, ended_at: None, tainted_at: None })
    }
}

/// Adds a prompt of the user to an open session.
struct StateSessionTask {
    id: SessionId,
    agent: Option<AgentName>,
    task: StatedTask,
}

impl UseCase for StateSessionTask {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        self.task.by.refuse_agents()?;
        let missing = || StoreError::NotFound { what: "session" };
        let session = unit.row(LOCKED, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        // SECURITY: another agent is told that the session does not exist, not that it is forbidden.
        let is_strange = self.agent.as_ref().is_some_and(|agent| *agent != session.agent);
        if is_strange || session.ended_at.is_some() {
            return Err(missing());
        }
        let (whole, by) = (joined(session.task.as_deref(), &self.task.text), self.task.by.text());
        unit.write(STATE_TASK, params![self.id, whole.as_str(), by.as_str()]);
        let actor = self.task.by.actor(unit);
        let fact = AuditFact::new("session.tasked", actor).with("session", self.id).with("agent", &session.agent);
        unit.record(fact.with("task_bytes", self.task.text.len()).with("task_by", by));
        Ok(())
    }
}

/// All prompts of a session so far. If that is too long, only the newest prompt is kept: an older one cut in its middle
/// could name a target that nobody wrote.
fn joined(before: Option<&str>, new: &str) -> String {
    match before {
        Some(before) if before.chars().count() + new.chars().count() + 2 <= LONGEST_TASK => {
            format!("{before}\n\n{new}")
        }
        Some(_) | None => new.to_owned(),
    }
}

/// A change to a session.
enum SessionChangeKind {
    End { by: Actor },
    Taint { code: String },
    Clear { by: Actor },
}

struct ChangeSession {
    id: SessionId,
    deed: SessionChangeKind,
}

impl UseCase for ChangeSession {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        // SECURITY: an agent must not clear its own taint.
        if let SessionChangeKind::Clear { by: Actor::Agent(_) | Actor::Node(_) } = &self.deed {
            return Err(StoreError::NotAPerson);
        }
        let missing = || StoreError::NotFound { what: "session" };
        let session = unit.row(LOCKED, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        let now = unit.now;
        let fact = match &self.deed {
            // SECURITY: another agent is told that the session does not exist, not that it is forbidden.
            SessionChangeKind::End { by: Actor::Agent(name) } if *name != session.agent => return Err(missing()),
            SessionChangeKind::End { by } if session.ended_at.is_none() => {
                unit.write(END, params![self.id, now]);
                AuditFact::new("session.ended", by.clone())
            }
            SessionChangeKind::Taint { code } if session.tainted_at.is_none() => {
                unit.write(TAINT, params![self.id, now]);
                let mut fact = AuditFact::new("session.tainted", unit.actor()).with("agent", &session.agent);
                fact.code = Some(code.clone());
                fact
            }
            SessionChangeKind::Clear { by } if session.tainted_at.is_some() => {
                unit.write(TAINT, params![self.id, None::<UtcMillis>]);
                AuditFact::new("session.cleared", by.clone()).with("agent", &session.agent)
            }
            SessionChangeKind::End { .. } | SessionChangeKind::Taint { .. } | SessionChangeKind::Clear { .. } => {
                return Ok(());
            }
        };
        unit.record(fact.with("session", self.id));
        Ok(())
    }
}

struct GetSession(SessionId);

impl StoreQuery for GetSession {
    type Out = Option<Session>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<Session>, StoreError> {
        tx.rows(ONE, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

struct ListSessions {
    wanted: SessionFilter,
    before: Option<SessionId>,
    limit: u32,
}

impl StoreQuery for ListSessions {
    type Out = Vec<Session>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Session>, StoreError> {
        let before = self.before.map_or(u128::MAX, SessionId::bits);
        let SessionFilter { tainted, agent } = &self.wanted;
        let rows = tx.rows(PAGE, &params![before, i64::from(*tainted), agent.as_ref(), self.limit]).await?;
        rows.into_iter().map(decode).collect()
    }
}

fn decode(row: SqlRow) -> Result<Session, StoreError> {
    let mut row = row.of("sessions");
    let (id, agent, client) = (SessionId::from_bits(row.bits()?), row.parsed()?, row.maybe_text()?);
    let (task, task_by) = (row.maybe_text()?, row.maybe_text()?);
    Ok(Session {
        id,
        agent,
        client,
        // SECURITY: earlier releases accepted tasks from agents themselves. Those rows do not say who stated them.
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
        self.submit(OpenSession { id, agent, client, task }).await
    }

    /// Adds a prompt of the user to an open session; if an agent is named, only to a session of that agent.
    ///
    /// # Errors
    /// When there is no such open session, or an agent states its own task.
    pub async fn state_task(
        &self,
        id: SessionId,
        agent: Option<AgentName>,
        task: StatedTask,
    ) -> Result<(), StoreError> {
        self.submit(StateSessionTask { id, agent, task }).await
    }

    /// One session.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.ask(GetSession(id)).await
    }

    /// Sessions, newest id first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn sessions(
        &self,
        wanted: SessionFilter,
        before: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Session>, StoreError> {
        self.ask(ListSessions { wanted, before, limit }).await
    }

    /// Ends a session. An agent can end only its own. Ending it again changes nothing.
    ///
    /// # Errors
    /// When there is no such session for this caller.
    pub async fn end_session(&self, id: SessionId, by: Actor) -> Result<(), StoreError> {
        self.submit(ChangeSession { id, deed: SessionChangeKind::End { by } }).await
    }

    /// Records that a session has read suspicious content.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn taint_session(&self, id: SessionId, code: String) -> Result<(), StoreError> {
        self.submit(ChangeSession { id, deed: SessionChangeKind::Taint { code } }).await
    }

    /// Clears the taint of a session by a person's decision.
    ///
    /// # Errors
    /// When the caller is not a person, or there is no such session.
    pub async fn clear_taint(&self, id: SessionId, by: Actor) -> Result<(), StoreError> {
        self.submit(ChangeSession { id, deed: SessionChangeKind::Clear { by } }).await
    }
}
