//! The only place with SQL: everything that must never be lost, on SQLite or PostgreSQL.
//!
//! [`Store`] offers use cases: admit a write, decide an approval request, claim due writes. Each is one transaction
//! that changes state, counts, remembers, leaves messages and appends to the audit log, or does none of it. The same
//! code runs on both engines. Promise: nothing is acknowledged before it is durable, and nothing happens without an
//! audit entry.
#![warn(missing_docs)]

mod action_cache;
mod admission;
mod affected_rows;
mod agents;
mod alerts;
mod allowances;
mod answers;
mod approval_contents;
mod approvals;
mod archive;
mod audit;
pub mod backup;
mod calls;
mod client_requests;
mod client_writes;
mod clock;
mod connections;
mod cosignatures;
mod counters;
mod credentials;
mod dashboard_access;
mod deliveries;
mod egress;
mod error;
mod examine;
mod failures;
mod findings;
mod freezes;
mod hold_interventions;
mod holds;
mod idempotency;
mod instance;
mod lane;
mod links;
mod lists;
mod local;
mod migrate;
mod mount_grants;
mod mounts;
mod nodes;
mod observed;
mod outbox;
mod packed;
mod policies;
mod postgres;
mod prefetch;
mod proposals;
mod proxies;
mod proxy_days;
mod proxy_facts;
mod prune;
mod recent_writes;
mod record_search;
mod recovery;
mod refusals;
mod release;
pub mod replica;
mod reply_dispatcher;
mod results;
mod retention;
mod rollbacks;
mod sessions;
mod sql;
mod sqlite;
mod state;
mod stop_orders;
mod targets;
mod unit_of_work;
mod vault;
mod written_files;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use sluice_core::approval::Approval;
use sluice_core::approval::allowance::{Allowance, ApprovalRequester};
use sluice_core::audit::ChainHead;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Clock, HoldId, NodeName, ServiceName, UtcMillis};

pub use admission::{Admission, AdmissionOutcome, BudgetUse, RateLimitCounter};
pub use agents::{Agent, ObserveMode};
pub use alerts::{AlertFilter, StoredAlert};
pub use allowances::AllowanceUse;
pub use answers::{AmendApproval, AmendmentOutcome, JointDecisionOutcome};
pub use approval_contents::WriteContents;
pub use approvals::{ApprovalCard, ApprovalRuling, BatchChoice, DecideApproval, DecisionOutcome};
pub use archive::{LogSegment, PrunedLog, SegmentBounds};
pub use audit::{SignedCheckpoint, UnsignedCheckpoint};
pub use calls::{CallEnding, CloseCall};
pub use client_requests::{ClientApprovalRequest, ClientRequestOutcome, FiledClientRequest, SubmitClientRequest};
pub use client_writes::{ClientWrite, ClientWriteState, KeepClientWrite, REPORTED_WITHIN};
pub use clock::ClockRepair;
pub use connections::{BeginConnection, ForgottenContent, MoveConnection, MovedConnection, ServiceConnection};
pub use credentials::{AccessKey, AccessKeyKind, IssueKey, OperatorRole, RotateKey};
pub use dashboard_access::{DASHBOARD_SESSION_LIFETIME, DashboardSession, OpenDashboardSession, SignInProof};
pub use deliveries::{ApprovalDelivery, DecisionHabit};
pub use egress::{EgressQuotaOutcome, EgressState, RecordServiceReply, TakeEgressQuota, UnusedEgressQuota};
pub use error::StoreError;
pub use examine::{ExaminedDatabase, examine_file, examine_server};
pub use failures::AttemptFailure;
pub use findings::{SealedContent, WithheldFinding};
pub use freezes::{Freeze, FreezeTarget, StoppedConnection};
pub use hold_interventions::{CancelHoldOutcome, HoldSettlement, HoldTiming, ServiceHoldsCancelled, SettleHold};
pub use instance::RememberedLog;
pub use lane::{OccupiedReaders, StopLane};
pub use links::ApprovalLink;
pub use lists::{ApprovalFilter, ApprovalSummary, HoldFilter, HourlyWriteCount};
pub use local::{AddSchedule, MoveSchedule, SCHEDULES_OF_AGENT, Schedule, ScheduleState};
pub use local::{AgentActivity, AgentMessage, MESSAGES_WAITING, MessagePriority, SendAgentMessage};
pub use migrate::CURRENT as SCHEMA;
pub use mount_grants::MountGrant;
pub use mounts::{MountsChange, PinnedTool, SeenTool, ToolEffectClaim, ToolReviewReason, definition_digest};
pub use observed::{ListObservedCalls, ObservedCall, ObservedCallEntry};
pub use outbox::{MessageSeverity, NOTICE, OutboxMessage, UndeliveredMessage};
pub use policies::PolicyRecord;
pub use postgres::{ServerChange, ServerIdentity, ServerReplication};
pub use proposals::ProposedAnswer;
pub use proxies::{
    BeginProxyTask, ProxySuspension, ProxyTask, ProxyTaskEnd, ProxyTaskNotes, ProxyTaskStart, ProxyTaskState,
    ProxyTaskUsage,
};
pub use proxy_days::ProxyDailyUsage;
pub use record_search::{AuditEntryFilter, AuditSearchCursor, FoundAuditEntries, ListSessionReads, SessionRead};
pub use recovery::{AbandonedClaims, HoldInDoubt, LookupEvidence, OverdueHolds, ResolveDoubt};
pub use refusals::{ListRefusedCalls, RefusedCall, RefusedCallsPage};
pub use release::{
    ArmWrite, AttemptOutcome, ClaimDueWrites, ClaimItem, DueWrite, FinishAttempt, PolicyRecheck, StateBeforeWrite,
    WriteClaimOutcome,
};
pub use retention::{RetentionCursor, RetentionPeriods, RetentionProgress};
pub use rollbacks::RollbackPoint;
pub use sessions::{LONGEST_TASK, Session, SessionFilter, StatedTask, TaskSource};
pub use state::{
    LONGEST_VALUE, SNAPSHOTS_OF_AGENT, SetState, SnapshotContent, StateChanged, StateItem, StateScope, StateSnapshot,
};
pub use targets::SessionObservation;
pub use vault::{PutSecret, RekeyVault, SealedSecretVersion, SecretRow, VaultRoot};
pub use written_files::{FileOrigin, RecordWrittenFiles};

use crate::lane::ReadLane;
use crate::postgres::{AcknowledgedState, DatabaseTimeSource, LockWait, PostgresStore};
use crate::sqlite::{SqliteFile, SqliteTx, poll_now};
use crate::unit_of_work::{CommitGroup, PendingCommand, StoreCommand, StoreQuery, UseCase};

/// The store of one node.
pub struct Store {
    node: NodeName,
    engine: Arc<Engine>,
    line: ReadLane,
    last_alive: Option<UtcMillis>,
}

enum Engine {
    /// In memory, on the calling thread: for simulations, where every step must repeat.
    Inline {
        shared: Arc<Mutex<SqliteTx>>,
        clock: Arc<dyn Clock>,
    },
    File(Box<SqliteFile>),
    /// A file that another process may be writing: for export and inspection.
    ReadOnly(Mutex<SqliteTx>),
    /// A server: the connections of ordinary work, and those of the stop lane with a log of their own.
    Server {
        ordinary: PostgresStore,
        stop: PostgresStore,
        acknowledged: Arc<AcknowledgedState>,
    },
}

/// A database in memory that several nodes of a simulation share.
#[derive(Clone)]
pub struct MemoryDatabase(Arc<Mutex<SqliteTx>>);

impl MemoryDatabase {
    /// Creates an empty one.
    ///
    /// # Errors
    /// When SQLite cannot be used.
    pub fn new() -> Result<Self, StoreError> {
        Ok(Self(Arc::new(Mutex::new(SqliteTx::in_memory()?))))
    }
}

impl std::fmt::Debug for MemoryDatabase {
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
    /// When the file is damaged, not ours, newer than this release, in use, or on a disk that does not store data
    /// durably.
    pub fn open_file(path: &Path, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let opened = SqliteFile::open(path)?;
        opened.0.check_pages()?;
        Self::start_on_file(opened, node, clock)
    }

    /// Like [`Store::open_file`], without reading every page, which takes longer the larger the file is. The caller
    /// must check the pages ([`Store::check_pages`]) before anything relies on them.
    ///
    /// # Errors
    /// As [`Store::open_file`], except for damage in pages that were not read yet.
    pub fn open_file_unread(path: &Path, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::start_on_file(SqliteFile::open(path)?, node, clock)
    }

    fn start_on_file(
        (mut file, mut tx): (SqliteFile, SqliteTx),
        node: NodeName,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let last_alive = register_on_sqlite(&mut tx, &node, clock.as_ref())?;
        tx.remember(clock.now())?;
        file.start(tx, node.clone(), clock)?;
        Ok(Self::with_engine(node, Engine::File(Box::new(file)), last_alive))
    }

    /// Checks every page of a SQLite file. A server checks its own. This blocks.
    ///
    /// # Errors
    /// When the file is damaged or cannot be read.
    pub fn check_pages(&self) -> Result<(), StoreError> {
        match self.engine.as_ref() {
            Engine::File(file) => file.check_pages(),
            Engine::Inline { .. } | Engine::ReadOnly(_) | Engine::Server { .. } => Ok(()),
        }
    }

    /// Opens a SQLite file read-only, even while others have it open. Nothing can be changed through it.
    ///
    /// # Errors
    /// When there is no such file, or it is not ours, damaged or newer than this release.
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        let node = NodeName::new("reader").map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        let engine = Engine::ReadOnly(Mutex::new(sqlite::open_to_read(path)?));
        Ok(Self::with_engine(node, engine, None))
    }

    /// A node of a simulation.
    ///
    /// # Errors
    /// When the node cannot be registered.
    pub fn in_memory(memory: &MemoryDatabase, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let shared = Arc::clone(&memory.0);
        let mut tx = shared.lock();
        let last_alive = register_on_sqlite(&mut tx, &node, clock.as_ref())?;
        drop(tx);
        Ok(Self::with_engine(node, Engine::Inline { shared, clock }, last_alive))
    }

    /// Connects to PostgreSQL. The time comes from the server, so that all nodes share one clock.
    ///
    /// # Errors
    /// When the server cannot be reached, may lose acknowledged work, or has a newer schema.
    pub fn open_server(url: &str, node: NodeName) -> Result<Self, StoreError> {
        Self::connect(url, node, DatabaseTimeSource::Database)
    }

    /// Like [`Store::open_server`], with an injected clock. For tests.
    ///
    /// # Errors
    /// As [`Store::open_server`].
    pub fn open_server_with_clock(url: &str, node: NodeName, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::connect(url, node, DatabaseTimeSource::Injected(clock))
    }

    fn connect(url: &str, node: NodeName, time: DatabaseTimeSource) -> Result<Self, StoreError> {
        let (register, mut answer) = PendingCommand::new(recovery::RegisterNode { node: node.clone() });
        let acknowledged = Arc::new(AcknowledgedState::default());
        let with = (register as Box<_>, Arc::clone(&acknowledged));
        let ordinary = PostgresStore::open(url, node.clone(), time.clone(), LockWait::Ordinary, with)?;
        let stopped = || StoreError::Unavailable("the writer stopped".into());
        let last_alive = answer.try_recv().map_err(|_| stopped())??;
        let log = lane::log_of(&node)?;
        let (register, _) = PendingCommand::new(recovery::RegisterNode { node: log.clone() });
        let stop = PostgresStore::open(url, log, time, LockWait::Short, (register, Arc::clone(&acknowledged)))?;
        Ok(Self::with_engine(node, Engine::Server { ordinary, stop, acknowledged }, last_alive))
    }

    /// The name of this node.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// When any node was last alive before this one started: no node was running since then.
    #[must_use]
    pub fn last_alive(&self) -> Option<UtcMillis> {
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
        let (errand, answer) = PendingCommand::new(case);
        match self.engine.as_ref() {
            Engine::Inline { shared, clock } => {
                let mut group: [Box<dyn StoreCommand<SqliteTx>>; 1] = [errand];
                let mut tx = shared.lock();
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

    async fn ask<Q: StoreQuery + Sync>(&self, query: Q) -> Result<Q::Out, StoreError> {
        self.ask_over(self.line, query).await
    }

    /// Records that this node has started.
    ///
    /// # Errors
    /// When the entry cannot be written.
    pub async fn record_start(&self, release: &'static str) -> Result<(), StoreError> {
        self.submit(recovery::RecordNodeStart { version: release }).await
    }

    /// Admits a judged write.
    ///
    /// # Errors
    /// When it is frozen, a duplicate, or cannot be recorded.
    pub async fn admit(&self, admission: Admission) -> Result<AdmissionOutcome, StoreError> {
        self.submit(admission::AdmitWrite::new(admission)).await
    }

    /// Decides an approval request.
    ///
    /// # Errors
    /// When the caller is not a person, or the answer is not offered.
    pub async fn decide(&self, decision: DecideApproval) -> Result<DecisionOutcome, StoreError> {
        self.submit(decision).await
    }

    /// Expires approval requests whose time is up.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn expire_approvals(&self, limit: u32) -> Result<Vec<ApprovalId>, StoreError> {
        self.submit(approvals::ExpireDueApprovals { limit }).await
    }

    /// Stops a write before anything leaves.
    ///
    /// # Errors
    /// When there is no such write for this caller.
    pub async fn cancel(&self, hold: HoldId, by: Actor) -> Result<CancelHoldOutcome, StoreError> {
        self.submit(hold_interventions::CancelHold { hold, by }).await
    }

    /// Stops all writes of a service that have not started, and prevents retries of the rest.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn cancel_service(&self, service: ServiceName, by: Actor) -> Result<ServiceHoldsCancelled, StoreError> {
        self.submit(hold_interventions::CancelServiceHolds { service, by, code: stop_orders::CODE }).await
    }

    /// Holds a write longer, or releases it now.
    ///
    /// # Errors
    /// When the write is not waiting.
    pub async fn retime(&self, hold: HoldId, by: Actor, timing: HoldTiming) -> Result<Hold, StoreError> {
        self.submit(hold_interventions::ChangeHoldTiming { hold, by, timing }).await
    }

    /// Applies a person's decision to a write that cannot continue without one.
    ///
    /// # Errors
    /// When it has changed meanwhile, or the decision does not fit its state.
    pub async fn settle(&self, settle: SettleHold) -> Result<Hold, StoreError> {
        self.submit(settle).await
    }

    /// Writes that may be claimed now.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn due_holds(&self, now: UtcMillis, limit: u32) -> Result<Vec<Hold>, StoreError> {
        self.ask(release::ListDueWrites { now, limit }).await
    }

    /// Writes that may be claimed now: the first `each` of every agent at every service, except services that have to
    /// wait.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn due_by_agent(
        &self,
        now: UtcMillis,
        (each, limit): (u32, u32),
        except: Vec<ServiceName>,
    ) -> Result<Vec<DueWrite>, StoreError> {
        self.ask(release::ListDueWritesByAgent { now, each, limit, except }).await
    }

    /// How many writes wait, due or not, by service and agent.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn waiting_writes(&self) -> Result<Vec<(ServiceName, AgentName, u64)>, StoreError> {
        self.ask(release::CountWaitingWrites).await
    }

    /// Every write with an uncertain outcome, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn doubts(&self, limit: u32) -> Result<Vec<HoldInDoubt>, StoreError> {
        self.ask(recovery::ListHoldsInDoubt { limit }).await
    }

    /// Claims due writes for this node.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn claim(&self, claims: ClaimDueWrites) -> Result<Vec<WriteClaimOutcome>, StoreError> {
        self.submit(claims).await
    }

    /// Arms a claimed write: the only source of permits.
    ///
    /// # Errors
    /// When the claim is no longer ours, something is frozen, or the bytes are not the approved ones.
    pub async fn arm(&self, arming: ArmWrite) -> Result<Permit, StoreError> {
        self.submit(arming).await
    }

    /// Records the outcome of an attempt.
    ///
    /// # Errors
    /// When the claim is no longer ours.
    pub async fn finish(&self, finish: FinishAttempt) -> Result<Hold, StoreError> {
        self.submit(finish).await
    }

    /// Takes over claims whose worker is gone.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn recover(
        &self,
        which: AbandonedClaims,
        limit: u32,
        message: MessageId,
    ) -> Result<Vec<HoldId>, StoreError> {
        self.submit(recovery::RecoverClaims { which, limit, message }).await
    }

    /// Applies the grace rule to writes that became due while no node was running.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn apply_grace_rule(&self, limit: u32, message: MessageId) -> Result<OverdueHolds, StoreError> {
        self.submit(recovery::ApplyGraceRule { limit, message }).await
    }

    /// Leaves every open write to a person after a restore, a page at a time.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn require_person_after_restore(&self, after: HoldId, limit: u32) -> Result<Vec<HoldId>, StoreError> {
        self.submit(recovery::SetAsideAfterRestore { after, limit }).await
    }

    /// Writes with an uncertain outcome whose service has had time to settle.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn doubtful_holds(&self, now: UtcMillis, limit: u32) -> Result<Vec<Hold>, StoreError> {
        self.ask(recovery::ListDueLookups { now, limit }).await
    }

    /// Records the result of a lookup.
    ///
    /// # Errors
    /// When the write has changed meanwhile.
    pub async fn resolve(&self, resolve: ResolveDoubt) -> Result<Hold, StoreError> {
        self.submit(resolve).await
    }

    /// Freezes a scope. Gives the writes that could no longer be stopped.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn freeze(&self, scope: FreezeTarget, by: Actor, reason: String) -> Result<Vec<HoldId>, StoreError> {
        self.submit(freezes::PlaceFreeze { scope, by, reason }).await
    }

    /// Lifts a freeze.
    ///
    /// # Errors
    /// When there is none.
    pub async fn unfreeze(&self, scope: FreezeTarget, by: Actor) -> Result<(), StoreError> {
        self.submit(freezes::LiftFreeze { scope, by }).await
    }

    /// Every freeze in force.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
        self.ask(freezes::ListFreezes).await
    }

    /// One held write.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn hold(&self, id: HoldId) -> Result<Option<Hold>, StoreError> {
        self.ask(holds::GetHold(id)).await
    }

    /// Held writes by id, a page at a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn holds(&self, after: Option<HoldId>, limit: u32) -> Result<Vec<Hold>, StoreError> {
        self.ask(hold_interventions::ListHoldsAfter { after, limit }).await
    }

    /// One approval request with the writes it covers.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalCard>, StoreError> {
        self.ask(approvals::GetApproval(id)).await
    }

    /// Open approval requests.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn open_approvals(&self, limit: u32) -> Result<Vec<Approval>, StoreError> {
        self.ask(approvals::ListOpenApprovals { limit }).await
    }

    /// Every standing approval of an asker.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn allowances_of(&self, asker: ApprovalRequester) -> Result<Vec<Allowance>, StoreError> {
        self.ask(allowances::ListAskerAllowances(asker)).await
    }

    /// Every standing approval, including ended ones.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn allowances(&self, limit: u32) -> Result<Vec<Allowance>, StoreError> {
        self.ask(allowances::ListAllowances { limit }).await
    }
}

/// Registers a node on a connection that has no writer yet.
fn register_on_sqlite(tx: &mut SqliteTx, node: &NodeName, clock: &dyn Clock) -> Result<Option<UtcMillis>, StoreError> {
    let mut group = CommitGroup { now: clock.now(), log: node.clone(), life: 0, head: ChainHead::genesis(node) };
    tx.run_in_transaction(|tx| {
        poll_now(unit_of_work::perform(&recovery::RegisterNode { node: node.clone() }, tx, &mut group))
    })?
}
