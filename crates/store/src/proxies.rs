//! Tasks of security proxies: how each began and ended, and which proxies wait for a person.
//!
//! Promise: a task has exactly one end, and it stays visible; what the end means for the next task (wait,
//! quarantine) is written in the same transaction, with the freeze and the alert that go with it. What a task may use of
//! the day's budget is reserved when it begins and settled when it ends, in those transactions.

use sluice_core::audit::Fact;
use sluice_core::crash::{CrashReport, NextStep, Urgency};
use sluice_core::ids::{JobId, MessageId};
use sluice_core::proxy::{Amount, BudgetLimit, ProxyUsage, day_of};
use sluice_core::{Actor, AgentName, NodeName, ServiceName, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::freezes::{self, Scope};
use crate::outbox::{self, Message, Severity};
use crate::proxy_days::{self, Days};
use crate::sql::{Columns, Row, Tx, params};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, proxy, operation, agent, node, started_at, ended_at, state, requests, report, \
             day, held_requests, held_bytes, held_millis, held_cost FROM proxy_tasks ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE id = ?1 /*lock*/");
const PAGE: &str = select!("WHERE proxy = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3");
const CRASHES: &str = select!("WHERE proxy = ?1 AND id < ?2 AND report IS NOT NULL ORDER BY id DESC LIMIT ?3");
const LEFT: &str = select!("WHERE node = ?1 AND state = 'running' ORDER BY id /*lock*/");
const BEGIN: &str = "INSERT INTO proxy_tasks \
     (id, proxy, operation, agent, node, started_at, state, requests, day, held_requests, held_bytes, held_millis, held_cost) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', 0, ?7, ?8, ?9, ?10, ?11)";
const END: &str = "UPDATE proxy_tasks SET ended_at = ?2, state = ?3, requests = ?4, report = ?5, failed = ?6, refused = ?7, \
     answer_bytes = ?8, findings = ?9, proposals_refused = ?10 WHERE id = ?1";
const COUNT: &str = "UPDATE proxy_tasks SET requests = requests + 1 WHERE id = ?1 AND state = 'running'";
const STANDING: &str = "SELECT proxy, state, crash, reason, since FROM proxy_standing WHERE proxy = ?1 /*lock*/";
const STANDINGS: &str = "SELECT proxy, state, crash, reason, since FROM proxy_standing ORDER BY proxy";
const STAND: &str = "INSERT INTO proxy_standing (proxy, state, crash, reason, since) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (proxy) DO UPDATE SET state = excluded.state, crash = excluded.crash, reason = excluded.reason, \
     since = excluded.since WHERE proxy_standing.state <> 'quarantined'";
const CLEAR: &str = "DELETE FROM proxy_standing WHERE proxy = ?1";

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// At work.
    Running,
    /// It reported and ended.
    Clean,
    /// It died, or was found to do what it may not.
    Crashed,
    /// It took too long.
    CutOff,
}

impl TaskState {
    const ALL: [Self; 4] = [Self::Running, Self::Clean, Self::Crashed, Self::CutOff];

    /// The word in rows and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Clean => "clean",
            Self::Crashed => "crashed",
            Self::CutOff => "cut_off",
        }
    }
}

/// One task of one proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyTask {
    /// Its id.
    pub id: JobId,
    /// Whose.
    pub proxy: String,
    /// What it was to do.
    pub operation: String,
    /// For whom.
    pub agent: AgentName,
    /// On which node.
    pub node: NodeName,
    /// Since when.
    pub started_at: Timestamp,
    /// Until when.
    pub ended_at: Option<Timestamp>,
    /// How it stands.
    pub state: TaskState,
    /// Requests it made.
    pub requests: u64,
    /// How it died.
    pub report: Option<CrashReport>,
    /// The UTC day it is counted on, and what was reserved for it.
    pub reserved: Option<(i64, ProxyUsage)>,
}

/// A task that is to begin.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its id.
    pub id: JobId,
    /// The proxy it is one of.
    pub proxy: String,
    /// What it is to do.
    pub operation: String,
    /// For whom.
    pub agent: AgentName,
    /// The most it can use.
    pub estimate: ProxyUsage,
    /// What all tasks of a day may use.
    pub limits: ProxyUsage,
    /// The id of the message to people, if its refusal is one.
    pub message: MessageId,
}

/// Whether a task began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskBegun {
    /// It did, and what it may use is reserved.
    Begun,
    /// It did not: a person has to look first.
    Stands(Standing),
    /// It did not: the budget of the day does not hold another task.
    OverBudget(BudgetLimit),
}

/// What a task really used.
#[derive(Debug, Clone)]
pub struct TaskSpent {
    /// What it used; never less than what happened.
    pub used: ProxyUsage,
    /// What all tasks of a day may use, to tell people how much is left.
    pub limits: ProxyUsage,
    /// The id of the message to people, if there is to be one.
    pub message: MessageId,
}

/// What a review wants to know of a task.
#[derive(Debug, Clone, Default)]
pub struct TaskNotes {
    /// Why its caller was given nothing, as a code.
    pub failed: Option<String>,
    /// Why its request was refused on the way out, as a code.
    pub refused: Option<String>,
    /// How large the answer was, if there was one.
    pub answer_bytes: Option<u64>,
    /// What the stages found in the answer.
    pub findings: u64,
    /// What it proposed to keep and may not.
    pub proposals_refused: u64,
}

/// Why a proxy does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub proxy: String,
    /// Whether its remains were set aside, too.
    pub quarantined: bool,
    /// The crash that led to it.
    pub crash: Option<String>,
    /// In our words, or the operator's.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// How a task ended.
#[derive(Debug, Clone)]
pub struct TaskEnd {
    /// How.
    pub state: TaskState,
    /// Requests it made.
    pub requests: u64,
    /// The crash, what follows, and the id of the message to people if there is to be one.
    pub crash: Option<(CrashReport, NextStep, MessageId)>,
    /// What it used. Without it all that was reserved counts as used.
    pub spent: Option<TaskSpent>,
    /// What a review wants to know of it.
    pub notes: TaskNotes,
}

impl TaskEnd {
    /// An end without a crash, of which nothing else is known.
    #[must_use]
    pub fn of(state: TaskState, requests: u64) -> Self {
        Self { state, requests, crash: None, spent: None, notes: TaskNotes::default() }
    }
}

impl UseCase for NewTask {
    type Out = TaskBegun;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<TaskBegun, StoreError> {
        if let Some(row) = desk.row(STANDING, params![self.proxy.as_str()]).await? {
            return standing(row).map(TaskBegun::Stands);
        }
        // Each life of a task begins here, also that of one that is started again: none begins while it is frozen.
        if let Scope::Service(service) = scope(&self.proxy)? {
            freezes::refuse_if_frozen(desk, &self.agent, &service).await?;
        }
        let (now, node, day) = (desk.now, desk.node, day_of(desk.now));
        if let Some(limit) = proxy_days::reserve(desk, self).await? {
            return Ok(TaskBegun::OverBudget(limit));
        }
        let Self { id, proxy, operation, agent, estimate, .. } = self;
        let ProxyUsage { requests, bytes, millis, cost } = *estimate;
        let mut row = params![*id, proxy.as_str(), operation.as_str(), agent, node, now, day];
        row.extend(params![requests, bytes, millis, cost.as_micros()]);
        desk.write_one(BEGIN, row);
        let fact = Fact::new("proxy.started", Actor::Agent(agent.clone())).with("task", id);
        desk.record(fact.with("proxy", proxy).with("operation", operation));
        Ok(TaskBegun::Begun)
    }
}

struct Finish {
    id: JobId,
    end: TaskEnd,
}

impl UseCase for Finish {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let missing = || StoreError::NotFound { what: "task" };
        let task = desk.row(ONE, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        if task.state != TaskState::Running {
            return Err(StoreError::Conflict);
        }
        let mut days = Days::of(desk, std::slice::from_ref(&task)).await?;
        end(desk, &task, &self.end, &mut days)?;
        days.save(desk);
        Ok(())
    }
}

fn end<T: Tx>(desk: &mut Desk<'_, T>, task: &ProxyTask, end: &TaskEnd, days: &mut Days) -> Result<(), StoreError> {
    let (now, actor) = (desk.now, desk.actor());
    days.settle(desk, task, end.spent.as_ref());
    let report = end.crash.as_ref().map(|(report, ..)| serde_json::to_string(report));
    let report = report.transpose().map_err(|_| impossible("a report that cannot be written"))?;
    let notes = &end.notes;
    let mut row = params![task.id, now, end.state.as_str(), end.requests, report.as_deref()];
    row.extend(params![notes.failed.as_deref(), notes.refused.as_deref(), notes.answer_bytes]);
    row.extend(params![notes.findings, notes.proposals_refused]);
    desk.write_one(END, row);
    let mut fact = Fact::new("proxy.ended", actor.clone()).with("task", task.id).with("proxy", &task.proxy);
    fact = fact.with("state", end.state.as_str()).with("requests", end.requests);
    let Some((report, next, message)) = &end.crash else {
        desk.record(fact);
        return Ok(());
    };
    fact = fact.with("crash", report.crash_id()).with("adversarial", report.is_adversarial());
    desk.record(fact);
    let (alert, quarantined) = match next {
        NextStep::Respawn { .. } => return Ok(()),
        NextStep::WaitForPerson { alert } => (alert, false),
        NextStep::Quarantine { alert } => (alert, true),
    };
    let state = if quarantined { "quarantined" } else { "waiting" };
    desk.write(STAND, params![task.proxy.as_str(), state, report.crash_id(), alert.text.as_str(), now]);
    if quarantined {
        freezes::Place { scope: scope(&task.proxy)?, by: actor, reason: alert.text.clone() }.place(desk);
    }
    let severity = match alert.urgency {
        Urgency::AtOnce => Severity::Critical,
        Urgency::Ordinary => Severity::Warning,
    };
    let body = serde_json::json!({
        "proxy": task.proxy, "task": task.id, "crash": report.crash_id(), "state": state, "text": alert.text,
    });
    outbox::put(desk, &Message { id: *message, topic: "proxy.crashed".into(), severity, body });
    Ok(())
}

/// A request of a task is about to leave.
struct CountRequest(JobId);

impl UseCase for CountRequest {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        desk.write_one(COUNT, params![self.0]);
        Ok(())
    }
}

struct SetAside {
    proxy: String,
    by: Actor,
    reason: String,
}

impl UseCase for SetAside {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        let crash: Option<&str> = None;
        desk.write(STAND, params![self.proxy.as_str(), "quarantined", crash, self.reason.as_str(), now]);
        freezes::Place { scope: scope(&self.proxy)?, by: self.by.clone(), reason: self.reason.clone() }.place(desk);
        desk.record(Fact::new("proxy.quarantined", self.by.clone()).with("proxy", &self.proxy));
        Ok(())
    }
}

struct Clear {
    proxy: String,
    by: Actor,
}

impl UseCase for Clear {
    type Out = Standing;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Standing, StoreError> {
        // SECURITY: whoever caused the crash must not be the one who calls it settled.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let missing = || StoreError::NotFound { what: "proxy that waits" };
        let row = desk.row(STANDING, params![self.proxy.as_str()]).await?.ok_or_else(missing)?;
        let was = standing(row)?;
        let scope = scope(&self.proxy)?;
        let frozen = freezes::in_force(desk.tx()).await?.iter().any(|freeze| freeze.scope == scope);
        desk.write(CLEAR, params![self.proxy.as_str()]);
        if was.quarantined && frozen {
            freezes::Lift { scope, by: self.by.clone() }.lift(desk);
        }
        desk.record(Fact::new("proxy.cleared", self.by.clone()).with("proxy", &self.proxy));
        Ok(was)
    }
}

struct Note {
    proxy: String,
    what: &'static str,
    by: Actor,
}

impl UseCase for Note {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        desk.record(Fact::new(self.what, self.by.clone()).with("proxy", &self.proxy));
        Ok(())
    }
}

/// What a task wanted to keep and may not.
struct NotKept {
    proxy: String,
    task: JobId,
    code: &'static str,
    by: Actor,
}

impl UseCase for NotKept {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let fact = Fact::new("proxy.proposal_refused", self.by.clone()).with("proxy", &self.proxy);
        desk.record(fact.with("task", self.task).with("code", self.code));
        Ok(())
    }
}

/// Ends what this node left running when it died.
struct LeftOpen {
    end: Box<dyn Fn(&ProxyTask) -> TaskEnd + Send + Sync>,
}

impl UseCase for LeftOpen {
    type Out = Vec<ProxyTask>;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<ProxyTask>, StoreError> {
        let node = desk.node;
        let left: Vec<ProxyTask> =
            desk.rows(LEFT, params![node]).await?.into_iter().map(decode).collect::<Result<_, _>>()?;
        let mut days = Days::of(desk, &left).await?;
        for task in &left {
            end(desk, task, &(self.end)(task), &mut days)?;
        }
        days.save(desk);
        Ok(left)
    }
}

struct Page {
    proxy: String,
    after: Option<JobId>,
    crashed_only: bool,
    limit: u32,
}

impl Query for Page {
    type Out = Vec<ProxyTask>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<ProxyTask>, StoreError> {
        let before = self.after.map_or(u128::MAX, JobId::bits);
        let sql = if self.crashed_only { CRASHES } else { PAGE };
        let rows = tx.rows(sql, &params![self.proxy.as_str(), before, self.limit]).await?;
        rows.into_iter().map(decode).collect()
    }
}

struct Standings;

impl Query for Standings {
    type Out = Vec<Standing>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Standing>, StoreError> {
        tx.rows(STANDINGS, &[]).await?.into_iter().map(standing).collect()
    }
}

fn scope(proxy: &str) -> Result<Scope, StoreError> {
    let name = ServiceName::new(format!("proxy.{proxy}")).map_err(|_| impossible("a name that is none"))?;
    Ok(Scope::Service(name))
}

fn impossible(detail: &'static str) -> StoreError {
    StoreError::Impossible { table: "proxy_tasks", detail }
}

fn decode(row: Row) -> Result<ProxyTask, StoreError> {
    let mut row = row.of("proxy_tasks");
    let (id, proxy, operation) = (JobId::from_bits(row.bits()?), row.text()?, row.text()?);
    let (agent, node, started_at, ended_at) = (row.parsed()?, row.parsed()?, row.time()?, row.maybe_time()?);
    let word = row.text()?;
    let state = TaskState::ALL.into_iter().find(|state| state.as_str() == word);
    let state = state.ok_or_else(|| row.impossible("an unknown state"))?;
    let requests = row.count()?;
    let report = row.maybe_text()?.map(|text| serde_json::from_str(&text)).transpose();
    let report = report.map_err(|_| row.impossible("a report that is none"))?;
    let reserved = match row.maybe_int()? {
        Some(day) => Some((day, usage(&mut row)?)),
        None => None,
    };
    Ok(ProxyTask { id, proxy, operation, agent, node, started_at, ended_at, state, requests, report, reserved })
}

/// The next four columns: requests, bytes, milliseconds and cost.
pub(crate) fn usage(row: &mut Columns) -> Result<ProxyUsage, StoreError> {
    let (requests, bytes, millis) = (row.count()?, row.count()?, row.count()?);
    Ok(ProxyUsage { requests, bytes, millis, cost: Amount::from_micros(row.count()?) })
}

fn standing(row: Row) -> Result<Standing, StoreError> {
    let mut row = row.of("proxy_standing");
    let (proxy, word, crash) = (row.text()?, row.text()?, row.maybe_text()?);
    Ok(Standing { proxy, quarantined: word == "quarantined", crash, reason: row.text()?, since: row.time()? })
}

impl Store {
    /// Begins a task, and reserves what it may use of the day. Gives what stands against it, if anything does; then nothing
    /// began.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn begin_task(&self, task: NewTask) -> Result<TaskBegun, StoreError> {
        self.submit(task).await
    }

    /// Counts a request of a task, before it leaves.
    ///
    /// # Errors
    /// When it cannot be counted: then it must not leave.
    pub async fn count_task_request(&self, id: JobId) -> Result<(), StoreError> {
        self.submit(CountRequest(id)).await
    }

    /// Ends a task, with everything that follows from it.
    ///
    /// # Errors
    /// When there is none, or it has ended already.
    pub async fn end_task(&self, id: JobId, end: TaskEnd) -> Result<(), StoreError> {
        self.submit(Finish { id, end }).await
    }

    /// Ends what this node left running when it died. Gives those tasks.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn end_left_tasks(
        &self,
        end: impl Fn(&ProxyTask) -> TaskEnd + Send + Sync + 'static,
    ) -> Result<Vec<ProxyTask>, StoreError> {
        self.submit(LeftOpen { end: Box::new(end) }).await
    }

    /// Sets a proxy aside until a person has looked.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn quarantine_proxy(&self, proxy: &str, by: Actor, reason: String) -> Result<(), StoreError> {
        self.submit(SetAside { proxy: proxy.into(), by, reason }).await
    }

    /// Lets a proxy run again. Gives what stood against it.
    ///
    /// # Errors
    /// When nothing did, or the caller is no person.
    pub async fn clear_proxy(&self, proxy: &str, by: Actor) -> Result<Standing, StoreError> {
        self.submit(Clear { proxy: proxy.into(), by }).await
    }

    /// Records what was done to the workspace of a proxy.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn note_proxy(&self, proxy: &str, what: &'static str, by: Actor) -> Result<(), StoreError> {
        self.submit(Note { proxy: proxy.into(), what, by }).await
    }

    /// Records that something a task proposed to keep was refused, by its code alone.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn refuse_proposal(
        &self,
        proxy: &str,
        task: JobId,
        code: &'static str,
        by: Actor,
    ) -> Result<(), StoreError> {
        self.submit(NotKept { proxy: proxy.into(), task, code, by }).await
    }

    /// Which proxies do not run, and why.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn proxy_standings(&self) -> Result<Vec<Standing>, StoreError> {
        self.ask(Standings).await
    }

    /// Tasks of a proxy, newest first; only those that crashed if wanted.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn proxy_tasks(
        &self,
        proxy: &str,
        crashed_only: bool,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<ProxyTask>, StoreError> {
        self.ask(Page { proxy: proxy.into(), after, crashed_only, limit }).await
    }
}
