//! Tasks of security proxies: how each began and ended, and which proxies wait for a person.
//!
//! Promise: a task has exactly one end, which stays visible. What the end means for the next task (wait, quarantine) is
//! written in the same transaction, with the freeze and the alert that go with it. A task's share of the day's budget
//! is reserved when it begins and settled when it ends, in those transactions.

use sluice_core::audit::AuditFact;
use sluice_core::crash::{AlertUrgency, CrashFollowUp, CrashReport};
use sluice_core::ids::{JobId, MessageId};
use sluice_core::proxy::{BudgetLimit, MoneyAmount, ProxyUsage, day_of};
use sluice_core::{Actor, AgentName, NodeName, ServiceName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::freezes::{self, FreezeTarget};
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::proxy_days::{self, LockedDailyUsage};
use crate::sql::{RowReader, SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyTaskState {
    /// It is running.
    Running,
    /// It reported and ended.
    Clean,
    /// It crashed, or tried something that it may not do.
    Crashed,
    /// It took too long and was stopped.
    CutOff,
}

impl ProxyTaskState {
    const ALL: [Self; 4] = [Self::Running, Self::Clean, Self::Crashed, Self::CutOff];

    /// The word used in rows and answers.
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
    /// The proxy it belongs to.
    pub proxy: String,
    /// The operation it was started for.
    pub operation: String,
    /// The agent that asked for it.
    pub agent: AgentName,
    /// The node it runs on.
    pub node: NodeName,
    /// When it began.
    pub started_at: UtcMillis,
    /// When it ended.
    pub ended_at: Option<UtcMillis>,
    /// Its state.
    pub state: ProxyTaskState,
    /// Requests it made.
    pub requests: u64,
    /// How it crashed.
    pub report: Option<CrashReport>,
    /// The UTC day it is counted on, and what was reserved for it.
    pub reserved: Option<(i64, ProxyUsage)>,
}

/// A task to begin.
#[derive(Debug, Clone)]
pub struct BeginProxyTask {
    /// Its id.
    pub id: JobId,
    /// The proxy it belongs to.
    pub proxy: String,
    /// The operation to carry out.
    pub operation: String,
    /// The agent that asks for it.
    pub agent: AgentName,
    /// The most it can use.
    pub estimate: ProxyUsage,
    /// What all tasks of a day may use.
    pub limits: ProxyUsage,
    /// The id of the message to people, if a refusal causes one.
    pub message: MessageId,
}

/// The result of beginning a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyTaskStart {
    /// It began, and its budget is reserved.
    Begun,
    /// It did not begin: a person must act first.
    Stands(ProxySuspension),
    /// It did not begin: the budget of the day does not cover another task.
    OverBudget(BudgetLimit),
}

/// What a task really used.
#[derive(Debug, Clone)]
pub struct ProxyTaskUsage {
    /// What it used; never less than what happened.
    pub used: ProxyUsage,
    /// What all tasks of a day may use, to tell people how much is left.
    pub limits: ProxyUsage,
    /// The id of the message to people, if one is needed.
    pub message: MessageId,
}

/// Facts about a task for a later review.
#[derive(Debug, Clone, Default)]
pub struct ProxyTaskNotes {
    /// Why its caller got no answer, as a code.
    pub failed: Option<String>,
    /// Why its outgoing request was refused, as a code.
    pub refused: Option<String>,
    /// How large the answer was, if there was one.
    pub answer_bytes: Option<u64>,
    /// What the stages found in the answer.
    pub findings: u64,
    /// How many of its proposed notes were refused.
    pub proposals_refused: u64,
}

/// Why a proxy does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySuspension {
    /// The proxy.
    pub proxy: String,
    /// Whether its workspace was quarantined as well.
    pub quarantined: bool,
    /// The crash that led to it.
    pub crash: Option<String>,
    /// The reason, in our words or the operator's.
    pub reason: String,
    /// Since when it does not run.
    pub since: UtcMillis,
}

/// How a task ended.
#[derive(Debug, Clone)]
pub struct ProxyTaskEnd {
    /// The state in which it ended.
    pub state: ProxyTaskState,
    /// Requests it made.
    pub requests: u64,
    /// The crash, the next step, and the id of the message to people if one is needed.
    pub crash: Option<(CrashReport, CrashFollowUp, MessageId)>,
    /// What it used. Without it, everything that was reserved counts as used.
    pub spent: Option<ProxyTaskUsage>,
    /// Facts about it for a later review.
    pub notes: ProxyTaskNotes,
}

impl ProxyTaskEnd {
    /// An end without a crash, without any further facts.
    #[must_use]
    pub fn of(state: ProxyTaskState, requests: u64) -> Self {
        Self { state, requests, crash: None, spent: None, notes: ProxyTaskNotes::default() }
    }
}

impl UseCase for BeginProxyTask {
    type Out = ProxyTaskStart;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ProxyTaskStart, StoreError> {
        if let Some(row) = unit.row(STANDING, params![self.proxy.as_str()]).await? {
            return standing(row).map(ProxyTaskStart::Stands);
        }
        // Every start of a task goes through here, also a restart: no task begins while it is frozen.
        if let FreezeTarget::Service(service) = scope(&self.proxy)? {
            freezes::refuse_if_frozen(unit, &self.agent, &service).await?;
        }
        let (now, node, day) = (unit.now, unit.node, day_of(unit.now));
        if let Some(limit) = proxy_days::reserve(unit, self).await? {
            return Ok(ProxyTaskStart::OverBudget(limit));
        }
        let Self { id, proxy, operation, agent, estimate, .. } = self;
        let ProxyUsage { requests, bytes, millis, cost } = *estimate;
        let mut row = params![*id, proxy.as_str(), operation.as_str(), agent, node, now, day];
        row.extend(params![requests, bytes, millis, cost.as_micros()]);
        unit.write_one(BEGIN, row);
        let fact = AuditFact::new("proxy.started", Actor::Agent(agent.clone())).with("task", id);
        unit.record(fact.with("proxy", proxy).with("operation", operation));
        Ok(ProxyTaskStart::Begun)
    }
}

struct EndProxyTask {
    id: JobId,
    end: ProxyTaskEnd,
}

impl UseCase for EndProxyTask {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let missing = || StoreError::NotFound { what: "task" };
        let task = unit.row(ONE, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        if task.state != ProxyTaskState::Running {
            return Err(StoreError::Conflict);
        }
        let mut days = LockedDailyUsage::of(unit, std::slice::from_ref(&task)).await?;
        end(unit, &task, &self.end, &mut days)?;
        days.save(unit);
        Ok(())
    }
}

fn end<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    task: &ProxyTask,
    end: &ProxyTaskEnd,
    days: &mut LockedDailyUsage,
) -> Result<(), StoreError> {
    let (now, actor) = (unit.now, unit.actor());
    days.settle(unit, task, end.spent.as_ref());
    let report = end.crash.as_ref().map(|(report, ..)| serde_json::to_string(report));
    let report = report.transpose().map_err(|_| impossible("a report that cannot be written"))?;
    let notes = &end.notes;
    let mut row = params![task.id, now, end.state.as_str(), end.requests, report.as_deref()];
    row.extend(params![notes.failed.as_deref(), notes.refused.as_deref(), notes.answer_bytes]);
    row.extend(params![notes.findings, notes.proposals_refused]);
    unit.write_one(END, row);
    let mut fact = AuditFact::new("proxy.ended", actor.clone()).with("task", task.id).with("proxy", &task.proxy);
    fact = fact.with("state", end.state.as_str()).with("requests", end.requests);
    let Some((report, next, message)) = &end.crash else {
        unit.record(fact);
        return Ok(());
    };
    fact = fact.with("crash", report.crash_id()).with("adversarial", report.is_adversarial());
    unit.record(fact);
    let (alert, quarantined) = match next {
        CrashFollowUp::Respawn { .. } => return Ok(()),
        CrashFollowUp::WaitForPerson { alert } => (alert, false),
        CrashFollowUp::Quarantine { alert } => (alert, true),
    };
    let state = if quarantined { "quarantined" } else { "waiting" };
    unit.write(STAND, params![task.proxy.as_str(), state, report.crash_id(), alert.text.as_str(), now]);
    if quarantined {
        freezes::PlaceFreeze { scope: scope(&task.proxy)?, by: actor, reason: alert.text.clone() }.place(unit);
    }
    let severity = match alert.urgency {
        AlertUrgency::AtOnce => MessageSeverity::Critical,
        AlertUrgency::Ordinary => MessageSeverity::Warning,
    };
    let body = serde_json::json!({
        "proxy": task.proxy, "task": task.id, "crash": report.crash_id(), "state": state, "text": alert.text,
    });
    outbox::put(unit, &OutboxMessage { id: *message, topic: "proxy.crashed".into(), severity, body });
    Ok(())
}

/// Counts a request of a task that is about to leave.
struct CountProxyRequest(JobId);

impl UseCase for CountProxyRequest {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        unit.write_one(COUNT, params![self.0]);
        Ok(())
    }
}

struct QuarantineProxy {
    proxy: String,
    by: Actor,
    reason: String,
}

impl UseCase for QuarantineProxy {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        let crash: Option<&str> = None;
        unit.write(STAND, params![self.proxy.as_str(), "quarantined", crash, self.reason.as_str(), now]);
        freezes::PlaceFreeze { scope: scope(&self.proxy)?, by: self.by.clone(), reason: self.reason.clone() }
            .place(unit);
        unit.record(AuditFact::new("proxy.quarantined", self.by.clone()).with("proxy", &self.proxy));
        Ok(())
    }
}

struct ClearProxySuspension {
    proxy: String,
    by: Actor,
}

impl UseCase for ClearProxySuspension {
    type Out = ProxySuspension;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ProxySuspension, StoreError> {
        // SECURITY: an agent that caused the crash must not be able to clear it.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let missing = || StoreError::NotFound { what: "proxy that waits" };
        let row = unit.row(STANDING, params![self.proxy.as_str()]).await?.ok_or_else(missing)?;
        let was = standing(row)?;
        let scope = scope(&self.proxy)?;
        let frozen = freezes::in_force(unit.tx()).await?.iter().any(|freeze| freeze.scope == scope);
        unit.write(CLEAR, params![self.proxy.as_str()]);
        if was.quarantined && frozen {
            freezes::LiftFreeze { scope, by: self.by.clone() }.lift(unit);
        }
        unit.record(AuditFact::new("proxy.cleared", self.by.clone()).with("proxy", &self.proxy));
        Ok(was)
    }
}

struct RecordProxyEvent {
    proxy: String,
    what: &'static str,
    by: Actor,
}

impl UseCase for RecordProxyEvent {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        unit.record(AuditFact::new(self.what, self.by.clone()).with("proxy", &self.proxy));
        Ok(())
    }
}

/// Records a note that a task proposed and that may not be kept.
struct RecordRefusedProposal {
    proxy: String,
    task: JobId,
    code: &'static str,
    by: Actor,
}

impl UseCase for RecordRefusedProposal {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let fact = AuditFact::new("proxy.proposal_refused", self.by.clone()).with("proxy", &self.proxy);
        unit.record(fact.with("task", self.task).with("code", self.code));
        Ok(())
    }
}

/// Ends the tasks that this node left running when it crashed.
struct EndInterruptedTasks {
    end: Box<dyn Fn(&ProxyTask) -> ProxyTaskEnd + Send + Sync>,
}

impl UseCase for EndInterruptedTasks {
    type Out = Vec<ProxyTask>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<ProxyTask>, StoreError> {
        let node = unit.node;
        let left: Vec<ProxyTask> =
            unit.rows(LEFT, params![node]).await?.into_iter().map(decode).collect::<Result<_, _>>()?;
        let mut days = LockedDailyUsage::of(unit, &left).await?;
        for task in &left {
            end(unit, task, &(self.end)(task), &mut days)?;
        }
        days.save(unit);
        Ok(left)
    }
}

struct ListProxyTasks {
    proxy: String,
    after: Option<JobId>,
    crashed_only: bool,
    limit: u32,
}

impl StoreQuery for ListProxyTasks {
    type Out = Vec<ProxyTask>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ProxyTask>, StoreError> {
        let before = self.after.map_or(u128::MAX, JobId::bits);
        let sql = if self.crashed_only { CRASHES } else { PAGE };
        let rows = tx.rows(sql, &params![self.proxy.as_str(), before, self.limit]).await?;
        rows.into_iter().map(decode).collect()
    }
}

struct ListProxySuspensions;

impl StoreQuery for ListProxySuspensions {
    type Out = Vec<ProxySuspension>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ProxySuspension>, StoreError> {
        tx.rows(STANDINGS, &[]).await?.into_iter().map(standing).collect()
    }
}

fn scope(proxy: &str) -> Result<FreezeTarget, StoreError> {
    let name = ServiceName::new(format!("proxy.{proxy}")).map_err(|_| impossible("an invalid name"))?;
    Ok(FreezeTarget::Service(name))
}

fn impossible(detail: &'static str) -> StoreError {
    StoreError::Impossible { table: "proxy_tasks", detail }
}

fn decode(row: SqlRow) -> Result<ProxyTask, StoreError> {
    let mut row = row.of("proxy_tasks");
    let (id, proxy, operation) = (JobId::from_bits(row.bits()?), row.text()?, row.text()?);
    let (agent, node, started_at, ended_at) = (row.parsed()?, row.parsed()?, row.time()?, row.maybe_time()?);
    let word = row.text()?;
    let state = ProxyTaskState::ALL.into_iter().find(|state| state.as_str() == word);
    let state = state.ok_or_else(|| row.impossible("an unknown state"))?;
    let requests = row.count()?;
    let report = row.maybe_text()?.map(|text| serde_json::from_str(&text)).transpose();
    let report = report.map_err(|_| row.impossible("a report that cannot be read"))?;
    let reserved = match row.maybe_int()? {
        Some(day) => Some((day, usage(&mut row)?)),
        None => None,
    };
    Ok(ProxyTask { id, proxy, operation, agent, node, started_at, ended_at, state, requests, report, reserved })
}

/// The next four columns: requests, bytes, milliseconds and cost.
pub(crate) fn usage(row: &mut RowReader) -> Result<ProxyUsage, StoreError> {
    let (requests, bytes, millis) = (row.count()?, row.count()?, row.count()?);
    Ok(ProxyUsage { requests, bytes, millis, cost: MoneyAmount::from_micros(row.count()?) })
}

fn standing(row: SqlRow) -> Result<ProxySuspension, StoreError> {
    let mut row = row.of("proxy_standing");
    let (proxy, word, crash) = (row.text()?, row.text()?, row.maybe_text()?);
    Ok(ProxySuspension { proxy, quarantined: word == "quarantined", crash, reason: row.text()?, since: row.time()? })
}

impl Store {
    /// Begins a task, and reserves its share of the day's budget. If something prevents it, returns the reason and
    /// begins nothing.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn begin_task(&self, task: BeginProxyTask) -> Result<ProxyTaskStart, StoreError> {
        self.submit(task).await
    }

    /// Counts a request of a task, before it leaves.
    ///
    /// # Errors
    /// When it cannot be counted: then it must not leave.
    pub async fn count_task_request(&self, id: JobId) -> Result<(), StoreError> {
        self.submit(CountProxyRequest(id)).await
    }

    /// Ends a task, with all consequences.
    ///
    /// # Errors
    /// When there is none, or it has ended already.
    pub async fn end_task(&self, id: JobId, end: ProxyTaskEnd) -> Result<(), StoreError> {
        self.submit(EndProxyTask { id, end }).await
    }

    /// Ends the tasks that this node left running when it crashed. Gives those tasks.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn end_left_tasks(
        &self,
        end: impl Fn(&ProxyTask) -> ProxyTaskEnd + Send + Sync + 'static,
    ) -> Result<Vec<ProxyTask>, StoreError> {
        self.submit(EndInterruptedTasks { end: Box::new(end) }).await
    }

    /// Quarantines a proxy until a person has reviewed it.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn quarantine_proxy(&self, proxy: &str, by: Actor, reason: String) -> Result<(), StoreError> {
        self.submit(QuarantineProxy { proxy: proxy.into(), by, reason }).await
    }

    /// Lets a proxy run again. Gives the reason why it did not.
    ///
    /// # Errors
    /// When it was not stopped, or the caller is not a person.
    pub async fn clear_proxy(&self, proxy: &str, by: Actor) -> Result<ProxySuspension, StoreError> {
        self.submit(ClearProxySuspension { proxy: proxy.into(), by }).await
    }

    /// Records what was done with the workspace of a proxy.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn note_proxy(&self, proxy: &str, what: &'static str, by: Actor) -> Result<(), StoreError> {
        self.submit(RecordProxyEvent { proxy: proxy.into(), what, by }).await
    }

    /// Records that a note proposed by a task was refused, by its code alone.
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
        self.submit(RecordRefusedProposal { proxy: proxy.into(), task, code, by }).await
    }

    /// Which proxies do not run, and why.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn proxy_standings(&self) -> Result<Vec<ProxySuspension>, StoreError> {
        self.ask(ListProxySuspensions).await
    }

    /// Tasks of a proxy, newest first; on request only those that crashed.
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
        self.ask(ListProxyTasks { proxy: proxy.into(), after, crashed_only, limit }).await
    }
}
