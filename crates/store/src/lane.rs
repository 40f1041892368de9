//! The stop lane: cancel, deny, freeze and their status do not queue behind anything else.
//!
//! On a file they have their own queue, which the writer empties first, and their own connections for reading. On a
//! server they have their own connections and their own audit log, because a log has one end. Status is read over yet
//! another connection: counting must not delay a stop. Promise: stopping works while everything else waits, and when
//! the disk is full.

use std::sync::Arc;

use parking_lot::MutexGuard;
use sluice_core::hold::Hold;
use sluice_core::{Actor, HoldId, NodeName, UtcMillis};

use crate::approvals::{ApprovalRuling, DecideApproval, DecisionOutcome};
use crate::error::StoreError;
use crate::freezes::{self, Freeze, FreezeTarget};
use crate::hold_interventions::{self, CancelHoldOutcome};
use crate::holds;
use crate::sqlite::{SqliteTx, poll_now};
use crate::unit_of_work::{PendingCommand, StoreQuery, UseCase};
use crate::{Engine, Store, UnsignedCheckpoint, audit};

/// Stops things without waiting behind other work.
#[derive(Debug, Clone, Copy)]
pub struct StopLane<'a>(&'a Store);

/// The connection over which a store is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadLane {
    /// The connection for all ordinary work.
    Ordinary,
    /// The connection reserved for stopping: short queries about single things.
    Stop,
    /// The connection reserved for status: counts and lists.
    Status,
}

/// Holds every ordinary connection for reading. For tests.
pub struct OccupiedReaders<'a>(#[expect(dead_code, reason = "held, not used")] Vec<MutexGuard<'a, SqliteTx>>);

impl std::fmt::Debug for OccupiedReaders<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Occupied")
    }
}

/// The log of a node's stop lane.
pub(crate) fn log_of(node: &NodeName) -> Result<NodeName, StoreError> {
    NodeName::new(format!("{node}/stop")).map_err(|error| StoreError::Unavailable(Box::new(error)))
}

impl StopLane<'_> {
    /// Stops a write before anything leaves.
    ///
    /// # Errors
    /// When there is no such write for this caller.
    pub async fn cancel(&self, hold: HoldId, by: Actor) -> Result<CancelHoldOutcome, StoreError> {
        self.submit(hold_interventions::CancelHold { hold, by }).await
    }

    /// Decides an approval request. A denial does not wait behind other work; an approval waits its turn.
    ///
    /// # Errors
    /// When the caller is not a person, or the answer is not offered.
    pub async fn decide(&self, decision: DecideApproval) -> Result<DecisionOutcome, StoreError> {
        match decision.ruling {
            ApprovalRuling::Deny { .. } => self.submit(decision).await,
            ApprovalRuling::Allow { .. } | ApprovalRuling::Choose(_) | ApprovalRuling::Reword(_) => {
                self.0.decide(decision).await
            }
        }
    }

    /// Freezes a scope. Gives the writes that could no longer be stopped.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn freeze(&self, scope: FreezeTarget, by: Actor, reason: String) -> Result<Vec<HoldId>, StoreError> {
        // The freeze takes effect first, without waiting for groups in progress. Then those are queried.
        self.submit(freezes::PlaceFreezeNow(freezes::PlaceFreeze { scope: scope.clone(), by, reason })).await?;
        match self.submit(freezes::ListUnstoppableWrites(scope.clone())).await {
            Ok(in_flight) => Ok(in_flight),
            Err(_) => self.ask(freezes::ListInFlightWrites(scope)).await,
        }
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

    pub(crate) async fn submit<U: UseCase + Sync>(&self, case: U) -> Result<U::Out, StoreError> {
        let answer = match self.0.engine.as_ref() {
            // On the calling thread there is no queue.
            Engine::Inline { .. } | Engine::ReadOnly(_) => return self.0.submit(case).await,
            Engine::File(file) => {
                let (errand, answer) = PendingCommand::new(case);
                file.send_stop(errand).await?;
                answer
            }
            Engine::Server { stop, .. } => {
                let (errand, answer) = PendingCommand::new(case);
                stop.send(errand).await?;
                answer
            }
        };
        answer.await.map_err(|_| StoreError::Unavailable("the writer stopped".into()))?
    }

    async fn ask<Q: StoreQuery + Sync>(&self, query: Q) -> Result<Q::Out, StoreError> {
        self.0.ask_over(ReadLane::Stop, query).await
    }
}

impl Store {
    pub(crate) fn with_engine(node: NodeName, engine: Engine, last_alive: Option<UtcMillis>) -> Self {
        Self { node, engine: Arc::new(engine), line: ReadLane::Ordinary, last_alive }
    }

    /// The same store, queried over the connection reserved for stopping. Its commands still wait their turn; those of
    /// [`Store::stop_lane`] do not.
    #[must_use]
    pub fn with_stop_reads(&self) -> Self {
        self.with_read_lane(ReadLane::Stop)
    }

    /// The same store, queried over the connection reserved for status.
    #[must_use]
    pub fn with_status_reads(&self) -> Self {
        self.with_read_lane(ReadLane::Status)
    }

    /// Whether other nodes may use the same database and change it at any time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match self.engine.as_ref() {
            Engine::Server { .. } => true,
            Engine::Inline { .. } | Engine::File(_) | Engine::ReadOnly(_) => false,
        }
    }

    fn with_read_lane(&self, line: ReadLane) -> Self {
        Self { node: self.node.clone(), engine: Arc::clone(&self.engine), line, last_alive: self.last_alive }
    }

    pub(crate) async fn ask_over<Q: StoreQuery + Sync>(&self, line: ReadLane, query: Q) -> Result<Q::Out, StoreError> {
        match self.engine.as_ref() {
            Engine::Inline { shared: tx, .. } => poll_now(query.run(&mut *tx.lock())),
            Engine::ReadOnly(tx) => poll_now(query.run(&mut *tx.lock())),
            Engine::File(file) => file.read(line, |tx| poll_now(query.run(tx))),
            Engine::Server { ordinary, stop, .. } => match line {
                ReadLane::Ordinary => ordinary.read(line, query).await,
                ReadLane::Stop | ReadLane::Status => stop.read(line, query).await,
            },
        }
    }

    /// Holds every ordinary connection of a file for reading, until the result is dropped. For tests.
    #[must_use]
    pub fn occupy_readers(&self) -> OccupiedReaders<'_> {
        OccupiedReaders(match self.engine.as_ref() {
            Engine::File(file) => file.occupy_readers(),
            Engine::Inline { .. } | Engine::ReadOnly(_) | Engine::Server { .. } => Vec::new(),
        })
    }

    /// The lane on which stopping does not wait for anything else.
    #[must_use]
    pub fn stop_lane(&self) -> StopLane<'_> {
        StopLane(self)
    }

    /// The logs this node writes and signs: its own, and its stop lane's if it has one.
    #[must_use]
    pub fn own_logs(&self) -> Vec<NodeName> {
        let stop = match self.engine.as_ref() {
            Engine::Server { .. } => log_of(&self.node).ok(),
            Engine::Inline { .. } | Engine::File(_) | Engine::ReadOnly(_) => None,
        };
        std::iter::once(self.node.clone()).chain(stop).collect()
    }

    /// A log of this node as it is now, with proof that it only grew since its last checkpoint.
    ///
    /// # Errors
    /// When the log is damaged or cannot be read.
    pub async fn prepare_log_checkpoint(&self, log: NodeName) -> Result<UnsignedCheckpoint, StoreError> {
        self.ask(audit::PrepareCheckpoint { log, to: None }).await
    }

    /// The same log as it was when it had this many entries.
    ///
    /// # Errors
    /// As [`Store::prepare_log_checkpoint`].
    pub async fn prepare_log_checkpoint_at(&self, log: NodeName, size: u64) -> Result<UnsignedCheckpoint, StoreError> {
        self.ask(audit::PrepareCheckpoint { log, to: Some(size) }).await
    }
}
