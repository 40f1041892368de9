//! The only place with SQL: what must never be forgotten, on SQLite or PostgreSQL.
//!
//! [`Store`] speaks in use cases: admit a write, decide a question, claim what is due. Each is one
//! transaction that changes state, counts, remembers, leaves messages and appends to the audit log,
//! or does none of it. The same code runs on both engines. Promise: nothing is acknowledged before it
//! is durable, and nothing happens that the record does not say.
#![warn(missing_docs)]

mod admission;
mod agents;
mod ahead;
mod alerts;
mod allowances;
mod answers;
mod approvals;
mod audit;
pub mod backup;
mod calls;
mod client_writes;
mod clock;
mod connections;
mod cosignatures;
mod counters;
mod credentials;
mod deliveries;
mod desk;
mod egress;
mod error;
mod examine;
mod failures;
mod findings;
mod freezes;
mod holds;
mod instance;
mod lane;
mod links;
mod lists;
mod local;
mod migrate;
mod mounts;
mod nodes;
mod observed;
mod outbox;
mod packed;
mod people;
mod policies;
mod porter;
mod postgres;
mod proposals;
mod proxies;
mod proxy_days;
mod proxy_facts;
mod prune;
mod questions;
mod recent;
mod record_search;
mod recovery;
mod refusals;
mod release;
mod repeats;
pub mod replica;
mod requests;
mod results;
mod retention;
mod rollbacks;
mod seen;
mod sessions;
mod sql;
mod sqlite;
mod state;
mod stops;
mod targets;
mod touch;
mod vault;
mod written;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::approval::Approval;
use sluice_core::approval::allowance::{Allowance, Asker};
use sluice_core::audit::Head;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{AllowanceId, MessageId};
use sluice_core::{Actor, AgentName, ApprovalId, Clock, HoldId, NodeName, ServiceName, Timestamp};

pub use admission::{Admission, Admitted, BudgetUse, Rate};
pub use agents::{Agent, Observing};
pub use alerts::{Alert, AlertFilter};
pub use allowances::AllowanceUse;
pub use answers::{Amended, Amendment, Joint};
pub use approvals::{Card, Choice, Decided, Decision, Ruling};
pub use audit::{Grown, Signed};
pub use calls::{Closed, Ending};
pub use client_writes::{ClientWrite, ClientWriteState, KeepClientWrite, REPORTED_WITHIN};
pub use clock::ClockRepair;
pub use connections::{Connection, ConnectionMove, ForgottenContent, Moved, NewConnection};
pub use credentials::{Key, KeyKind, NewKey, Role, RotateKey};
pub use deliveries::{Delivery, Habit};
pub use egress::{EgressState, Heard, Take, Taken, Unused};
pub use error::StoreError;
pub use examine::{ExaminedDatabase, examine_file, examine_server};
pub use failures::AttemptFailure;
pub use findings::{Finding, SealedContent};
pub use freezes::{Brake, Freeze, Scope};
pub use instance::RememberedLog;
pub use lane::{Occupied, StopLane};
pub use links::Link;
pub use lists::{ApprovalFilter, HoldFilter};
pub use local::{AgentActivity, AgentMessage, MESSAGES_WAITING, MessagePriority, NewAgentMessage};
pub use local::{NewSchedule, SCHEDULES_OF_AGENT, Schedule, ScheduleRun, ScheduleState};
pub use migrate::CURRENT as SCHEMA;
pub use mounts::{Effects, MountsChange, PinnedTool, SeenTool, WaitsFor, definition_digest};
pub use observed::{FoundObserved, Observed, ObservedCall};
pub use outbox::{Message, NOTICE, Severity, Undelivered};
pub use people::{Cancelled, Ended, Settle, Timing, Word};
pub use policies::PolicyRecord;
pub use postgres::{ServerChange, ServerIdentity, ServerReplication};
pub use proposals::ProposedAnswer;
pub use proxies::{NewTask, ProxyTask, Standing, TaskBegun, TaskEnd, TaskNotes, TaskSpent, TaskState};
pub use proxy_days::ProxyDay;
pub use questions::WriteContents;
pub use record_search::{FoundEntries, RecordFilter, RecordPlace, SessionRead, SessionReads};
pub use recovery::{Abandoned, Doubt, Evidence, Late, Resolve};
pub use refusals::{FoundRefusals, Refusals, RefusedCall};
pub use release::{Arming, Before, ClaimItem, Claimed, Claims, DueWrite, Finish, Outcome, Recheck};
pub use requests::{Filed, NewRequest, Received, Request};
pub use retention::{Retained, RetentionPeriods, RetentionPlace};
pub use rollbacks::Point;
pub use sessions::{LONGEST_TASK, Session, SessionFilter, StatedTask, TaskSource};
pub use state::{Item, LONGEST_VALUE, SNAPSHOTS_OF_AGENT, Shelf, Snapshot, SnapshotContent, StateChanged, StateSet};
pub use targets::Observation;
pub use vault::{PutSecret, Rekey, SealedVersion, SecretRow, VaultRoot};
pub use written::{FileOrigin, WrittenFiles};

use crate::desk::{Errand, Group, Pending, Query, UseCase};
use crate::lane::Line;
use crate::postgres::{AcknowledgedState, Patience, Server, Time};
use crate::sqlite::{SqliteFile, SqliteTx, at_once};

/// The store of one node.
pub struct Store {
    node: NodeName,
    engine: Arc<Engine>,
    line: Line,
    last_alive: Option<Timestamp>,
}

enum Engine {
    /// In memory, on the calling thread: for simulations, where every step must repeat.
    Inline {
        shared: Arc<Mutex<SqliteTx>>,
        clock: Arc<dyn Clock>,
    },
    File(Box<SqliteFile>),
    /// A file somebody else may be writing: for export and inspection.
    ReadOnly(Mutex<SqliteTx>),
    /// A server: the connections of ordinary work, and those of the stop lane under a log of their own.
    Server {
        ordinary: Server,
        stop: Server,
        ground: Arc<AcknowledgedState>,
    },
}

/// A database in memory that several nodes of a simulation share.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<SqliteTx>>);

impl Memory {
    /// An empty one.
    ///
    /// # Errors
    /// When SQLite cannot be used.
    pub fn new() -> Result<Self, StoreError> {
        Ok(Self(Arc::new(Mutex::new(SqliteTx::in_memory()?))))
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens or creates a SQLite file.
    ///
    /// # Errors
    /// When the file is damaged, foreign, newer than this release, in use, or on a disk that cannot keep a promise.
    pub fn open_file(path: &Path, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let opened = SqliteFile::open(path)?;
        opened.0.look_through()?;
        Self::on_file(opened, node, clock)
    }

    /// As [`Store::open_file`], without a look at every page, which takes as long as the file is large. Whoever opens it
    /// like this has it looked through ([`Store::look_through`]) before anything relies on it.
    ///
    /// # Errors
    /// As [`Store::open_file`], except for damage that only shows in pages nobody has read yet.
    pub fn open_file_unread(path: &Path, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::on_file(SqliteFile::open(path)?, node, clock)
    }

    fn on_file(
        (mut file, mut tx): (SqliteFile, SqliteTx),
        node: NodeName,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let last_alive = register_on_sqlite(&mut tx, &node, clock.as_ref())?;
        tx.remember(clock.now())?;
        file.start(tx, node.clone(), clock)?;
        Ok(Self::on(node, Engine::File(Box::new(file)), last_alive))
    }

    /// Looks at every page of a SQLite file. A server looks after its own. It blocks.
    ///
    /// # Errors
    /// When the file is damaged or cannot be read.
    pub fn look_through(&self) -> Result<(), StoreError> {
        match self.engine.as_ref() {
            Engine::File(file) => file.look_through(),
            Engine::Inline { .. } | Engine::ReadOnly(_) | Engine::Server { .. } => Ok(()),
        }
    }

    /// Opens a SQLite file only to read it, whoever else has it open. Nothing can be changed through it.
    ///
    /// # Errors
    /// When there is no such file, or it is foreign, damaged or newer than this release.
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        let node = NodeName::new("reader").map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        let engine = Engine::ReadOnly(Mutex::new(sqlite::open_to_read(path)?));
        Ok(Self::on(node, engine, None))
    }

    /// A node of a simulation.
    ///
    /// # Errors
    /// When the node cannot be registered.
    pub fn in_memory(memory: &Memory, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let shared = Arc::clone(&memory.0);
        let mut tx = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let last_alive = register_on_sqlite(&mut tx, &node, clock.as_ref())?;
        drop(tx);
        Ok(Self::on(node, Engine::Inline { shared, clock }, last_alive))
    }

    /// Connects to PostgreSQL. Time is the server's, so that all nodes share one clock.
    ///
    /// # Errors
    /// When the server cannot be reached, may lose acknowledged work, or has a newer schema.
    pub fn open_server(url: &str, node: NodeName) -> Result<Self, StoreError> {
        Self::connect(url, node, Time::Database)
    }

    /// As [`Store::open_server`], with an injected clock. For tests.
    ///
    /// # Errors
    /// As [`Store::open_server`].
    pub fn open_server_with_clock(url: &str, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::connect(url, node, Time::Injected(clock))
    }

    fn connect(url: &str, node: NodeName, time: Time) -> Result<Self, StoreError> {
        let (register, mut answer) = Pending::new(recovery::Register { node: node.clone() });
        let ground = Arc::new(AcknowledgedState::default());
        let with = (register as Box<_>, Arc::clone(&ground));
        let ordinary = Server::open(url, node.clone(), time.clone(), Patience::Ordinary, with)?;
        let stopped = || StoreError::Unavailable("the writer stopped".into());
        let last_alive = answer.try_recv().map_err(|_| stopped())??;
        let log = lane::log_of(&node)?;
        let (register, _) = Pending::new(recovery::Register { node: log.clone() });
        let stop = Server::open(url, log, time, Patience::Short, (register, Arc::clone(&ground)))?;
        Ok(Self::on(node, Engine::Server { ordinary, stop, ground }, last_alive))
    }

    /// This node.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// When any node was last alive before this one started. The time since is how long nobody was here.
    #[must_use]
    pub fn last_alive(&self) -> Option<Timestamp> {
        self.last_alive
    }

    /// The server's number for the writing connection. For tests that cut it.
    #[must_use]
    pub fn backend(&self) -> Option<i32> {
        match self.engine.as_ref() {
            Engine::Server { ordinary, .. } => ordinary.backend(),
            Engine::Inline { .. } | Engine::File(_) | Engine::ReadOnly(_) => None,
        }
    }

    async fn submit<U: UseCase + Sync>(&self, case: U) -> Result<U::Out, StoreError> {
        let (errand, answer) = Pending::new(case);
        match self.engine.as_ref() {
            Engine::Inline { shared, clock } => {
                let mut group: [Box<dyn Errand<SqliteTx>>; 1] = [errand];
                let mut tx = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let fault = tx.commit_group(&self.node, clock.as_ref(), &mut group).err();
                let [errand] = group;
                errand.deliver(fault.as_ref());
            }
            Engine::File(file) => file.send(errand).await?,
            Engine::ReadOnly(_) => return Err(StoreError::ReadOnly),
            Engine::Server { ordinary, .. } => ordinary.send(errand).await?,
        }
        answer.await.map_err(|_| StoreError::Unavailable("the writer stopped".into()))?
    }

    async fn ask<Q: Query + Sync>(&self, query: Q) -> Result<Q::Out, StoreError> {
        self.ask_over(self.line, query).await
    }

    /// Records that this node has started.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub async fn started(&self, release: &'static str) -> Result<(), StoreError> {
        self.submit(recovery::Started { version: release }).await
    }

    /// Admits a judged write.
    ///
    /// # Errors
    /// When it is frozen, a duplicate, or cannot be recorded.
    pub async fn admit(&self, admission: Admission) -> Result<Admitted, StoreError> {
        self.submit(admission::Admit::new(admission)).await
    }

    /// Decides a question.
    ///
    /// # Errors
    /// When the one who decides is no person, or the answer is not offered.
    pub async fn decide(&self, decision: Decision) -> Result<Decided, StoreError> {
        self.submit(decision).await
    }

    /// Ends questions whose time is up.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn expire_approvals(&self, limit: u32) -> Result<Vec<ApprovalId>, StoreError> {
        self.submit(approvals::ExpireDue { limit }).await
    }

    /// Stops a write before anything leaves.
    ///
    /// # Errors
    /// When there is no such write for this caller.
    pub async fn cancel(&self, hold: HoldId, by: Actor) -> Result<Cancelled, StoreError> {
        self.submit(people::Cancel { hold, by }).await
    }

    /// Stops everything of a service that has not started, and sees to it that nothing of the rest is tried again.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn cancel_service(&self, service: ServiceName, by: Actor) -> Result<Ended, StoreError> {
        self.submit(people::CancelService { service, by, code: stops::CODE }).await
    }

    /// Holds a write longer, or lets it go now.
    ///
    /// # Errors
    /// When the write is not waiting.
    pub async fn retime(&self, hold: HoldId, by: Actor, timing: Timing) -> Result<Hold, StoreError> {
        self.submit(people::Retime { hold, by, timing }).await
    }

    /// Takes a person's word on a write that cannot go on without one.
    ///
    /// # Errors
    /// When it has moved on, or the word does not fit its state.
    pub async fn settle(&self, settle: Settle) -> Result<Hold, StoreError> {
        self.submit(settle).await
    }

    /// Writes that may be claimed now.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<Hold>, StoreError> {
        self.ask(release::Due { now, limit }).await
    }

    /// Writes that may be claimed now: the first `each` of every agent at every service, without those of services that
    /// have to wait.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn due_by_agent(
        &self,
        now: Timestamp,
        (each, limit): (u32, u32),
        except: Vec<ServiceName>,
    ) -> Result<Vec<DueWrite>, StoreError> {
        self.ask(release::DueByAgent { now, each, limit, except }).await
    }

    /// How many writes wait, due or not, by service and agent.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn waiting_writes(&self) -> Result<Vec<(ServiceName, AgentName, u64)>, StoreError> {
        self.ask(release::WaitingWrites).await
    }

    /// Every write in doubt, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn doubts(&self, limit: u32) -> Result<Vec<Doubt>, StoreError> {
        self.ask(recovery::Doubts { limit }).await
    }

    /// Claims due writes for this node.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn claim(&self, claims: Claims) -> Result<Vec<Claimed>, StoreError> {
        self.submit(claims).await
    }

    /// Arms a claimed write: the only source of permits.
    ///
    /// # Errors
    /// When the claim is no longer ours, something is frozen, or the bytes are not the approved ones.
    pub async fn arm(&self, arming: Arming) -> Result<Permit, StoreError> {
        self.submit(arming).await
    }

    /// Records how an attempt went.
    ///
    /// # Errors
    /// When the claim is no longer ours.
    pub async fn finish(&self, finish: Finish) -> Result<Hold, StoreError> {
        self.submit(finish).await
    }

    /// Takes up claims nobody works on any more.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn recover(&self, which: Abandoned, limit: u32, message: MessageId) -> Result<Vec<HoldId>, StoreError> {
        self.submit(recovery::Recover { which, limit, message }).await
    }

    /// Applies the grace rule to writes that came due while nobody was here.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn overdue(&self, limit: u32, message: MessageId) -> Result<Late, StoreError> {
        self.submit(recovery::Overdues { limit, message }).await
    }

    /// Leaves every open write to a person after a restore, a page at a time.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn after_restore(&self, after: HoldId, limit: u32) -> Result<Vec<HoldId>, StoreError> {
        self.submit(recovery::AfterRestore { after, limit }).await
    }

    /// Writes whose outcome is unclear and whose service has settled.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn doubtful(&self, now: Timestamp, limit: u32) -> Result<Vec<Hold>, StoreError> {
        self.ask(recovery::Doubtful { now, limit }).await
    }

    /// Records what a lookup showed.
    ///
    /// # Errors
    /// When the write has moved on.
    pub async fn resolve(&self, resolve: Resolve) -> Result<Hold, StoreError> {
        self.submit(resolve).await
    }

    /// Freezes a scope. Answers with the writes that could no longer be stopped.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn freeze(&self, scope: Scope, by: Actor, reason: String) -> Result<Vec<HoldId>, StoreError> {
        self.submit(freezes::Place { scope, by, reason }).await
    }

    /// Lifts a freeze.
    ///
    /// # Errors
    /// When there is none.
    pub async fn unfreeze(&self, scope: Scope, by: Actor) -> Result<(), StoreError> {
        self.submit(freezes::Lift { scope, by }).await
    }

    /// Every freeze in force.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
        self.ask(freezes::InForce).await
    }

    /// One held write.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn hold(&self, id: HoldId) -> Result<Option<Hold>, StoreError> {
        self.ask(holds::ById(id)).await
    }

    /// Held writes by id, a page at a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn holds(&self, after: Option<HoldId>, limit: u32) -> Result<Vec<Hold>, StoreError> {
        self.ask(people::Listed { after, limit }).await
    }

    /// One question with the writes it covers.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn approval(&self, id: ApprovalId) -> Result<Option<Card>, StoreError> {
        self.ask(approvals::ById(id)).await
    }

    /// Questions nobody has answered yet.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn open_approvals(&self, limit: u32) -> Result<Vec<Approval>, StoreError> {
        self.ask(approvals::Open { limit }).await
    }

    /// Every standing yes an asker has.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn allowances_of(&self, asker: Asker) -> Result<Vec<Allowance>, StoreError> {
        self.ask(allowances::OfAsker(asker)).await
    }

    /// Every standing yes there is or was.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn allowances(&self, limit: u32) -> Result<Vec<Allowance>, StoreError> {
        self.ask(allowances::All { limit }).await
    }

    /// Takes a standing yes back.
    ///
    /// # Errors
    /// When there is none that still counts.
    pub async fn revoke(&self, id: AllowanceId, by: Actor) -> Result<(), StoreError> {
        self.submit(allowances::Revoke { id, by }).await
    }
}

/// Registers a node on a connection that has no writer yet.
fn register_on_sqlite(tx: &mut SqliteTx, node: &NodeName, clock: &dyn Clock) -> Result<Option<Timestamp>, StoreError> {
    let mut group = Group { now: clock.now(), log: node.clone(), life: 0, head: Head::genesis(node) };
    tx.alone(|tx| at_once(desk::perform(&recovery::Register { node: node.clone() }, tx, &mut group)))?
}
