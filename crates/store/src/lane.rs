//! The stop lane: cancel, deny, freeze and their status do not queue behind anything else.
//!
//! On a file they have a queue of their own, which the writer empties first, and connections for reading
//! of their own. On a server they have connections of their own and an audit log of their own, because a
//! log has one end. How things stand is read over yet another connection: counting must not delay a stop.
//! Promise: stopping works while everything else waits, and when the disk is full.

use std::sync::{Arc, MutexGuard, PoisonError};

use sluice_core::hold::Hold;
use sluice_core::{Actor, HoldId, NodeName, Timestamp};

use crate::approvals::{Decided, Decision, Ruling};
use crate::desk::{Pending, Query, UseCase};
use crate::error::StoreError;
use crate::freezes::{self, Freeze, Scope};
use crate::holds;
use crate::people::{self, Cancelled};
use crate::sqlite::{SqliteTx, at_once};
use crate::{Engine, Grown, Store, audit};

/// Stopping things, past whatever else waits.
#[derive(Debug, Clone, Copy)]
pub struct StopLane<'a>(&'a Store);

/// Over which connection a store is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// The one of all ordinary work.
    Ordinary,
    /// The one kept for whoever wants to stop something: short questions about single things.
    Stop,
    /// The one kept for how things stand: counts and lists.
    Status,
}

/// Every ordinary connection for reading, taken. For tests.
pub struct Occupied<'a>(#[expect(dead_code, reason = "held, not used")] Vec<MutexGuard<'a, SqliteTx>>);

impl std::fmt::Debug for Occupied<'_> {
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
    pub async fn cancel(&self, hold: HoldId, by: Actor) -> Result<Cancelled, StoreError> {
        self.submit(people::Cancel { hold, by }).await
    }

    /// Decides a question. A no goes past whatever waits; a yes waits its turn.
    ///
    /// # Errors
    /// When the one who decides is no person, or the answer is not offered.
    pub async fn decide(&self, decision: Decision) -> Result<Decided, StoreError> {
        match decision.ruling {
            Ruling::Deny { .. } => self.submit(decision).await,
            Ruling::Allow { .. } | Ruling::Choose(_) | Ruling::Reword(_) => self.0.decide(decision).await,
        }
    }

    /// Freezes a scope. Answers with the writes that could no longer be stopped.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn freeze(&self, scope: Scope, by: Actor, reason: String) -> Result<Vec<HoldId>, StoreError> {
        // In force first, whoever is stuck half way to something. Then who was half way.
        self.submit(freezes::AtOnce(freezes::Place { scope: scope.clone(), by, reason })).await?;
        match self.submit(freezes::Stragglers(scope.clone())).await {
            Ok(in_flight) => Ok(in_flight),
            Err(_) => self.ask(freezes::InFlight(scope)).await,
        }
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

    pub(crate) async fn submit<U: UseCase + Sync>(&self, case: U) -> Result<U::Out, StoreError> {
        let answer = match self.0.engine.as_ref() {
            // On the calling thread there is no queue.
            Engine::Inline { .. } | Engine::ReadOnly(_) => return self.0.submit(case).await,
            Engine::File(file) => {
                let (errand, answer) = Pending::new(case);
                file.send_stop(errand).await?;
                answer
            }
            Engine::Server { stop, .. } => {
                let (errand, answer) = Pending::new(case);
                stop.send(errand).await?;
                answer
            }
        };
        answer.await.map_err(|_| StoreError::Unavailable("the writer stopped".into()))?
    }

    async fn ask<Q: Query + Sync>(&self, query: Q) -> Result<Q::Out, StoreError> {
        self.0.ask_over(Line::Stop, query).await
    }
}

impl Store {
    pub(crate) fn on(node: NodeName, engine: Engine, last_alive: Option<Timestamp>) -> Self {
        Self { node, engine: Arc::new(engine), line: Line::Ordinary, last_alive }
    }

    /// The same store, asked over the connection kept for whoever wants to stop something. What it is told to do
    /// still waits its turn; [`Store::stop_lane`] does not.
    #[must_use]
    pub fn asked_to_stop(&self) -> Self {
        self.over(Line::Stop)
    }

    /// The same store, asked over the connection kept for how things stand.
    #[must_use]
    pub fn asked_for_status(&self) -> Self {
        self.over(Line::Status)
    }

    /// Whether other nodes may use the same database and change it at any time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match self.engine.as_ref() {
            Engine::Server { .. } => true,
            Engine::Inline { .. } | Engine::File(_) | Engine::ReadOnly(_) => false,
        }
    }

    fn over(&self, line: Line) -> Self {
        Self { node: self.node.clone(), engine: Arc::clone(&self.engine), line, last_alive: self.last_alive }
    }

    pub(crate) async fn ask_over<Q: Query + Sync>(&self, line: Line, query: Q) -> Result<Q::Out, StoreError> {
        match self.engine.as_ref() {
            Engine::Inline { shared: tx, .. } => {
                at_once(query.run(&mut *tx.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            Engine::ReadOnly(tx) => at_once(query.run(&mut *tx.lock().unwrap_or_else(PoisonError::into_inner))),
            Engine::File(file) => file.read(line, |tx| at_once(query.run(tx))),
            Engine::Server { ordinary, stop, .. } => match line {
                Line::Ordinary => ordinary.read(line, query).await,
                Line::Stop | Line::Status => stop.read(line, query).await,
            },
        }
    }

    /// Takes every ordinary connection for reading of a file, until what this gives is dropped. For tests.
    #[must_use]
    pub fn occupied(&self) -> Occupied<'_> {
        Occupied(match self.engine.as_ref() {
            Engine::File(file) => file.occupied(),
            Engine::Inline { .. } | Engine::ReadOnly(_) | Engine::Server { .. } => Vec::new(),
        })
    }

    /// Where stopping things does not wait for anything else.
    #[must_use]
    pub fn stop_lane(&self) -> StopLane<'_> {
        StopLane(self)
    }

    /// The logs this node writes and signs: its own, and its stop lane's where that has one.
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
    pub async fn grown_log(&self, log: NodeName) -> Result<Grown, StoreError> {
        self.ask(audit::Grow { log, to: None }).await
    }

    /// The same log as it was when it had so many entries.
    ///
    /// # Errors
    /// As [`Store::grown_log`].
    pub async fn grown_log_to(&self, log: NodeName, size: u64) -> Result<Grown, StoreError> {
        self.ask(audit::Grow { log, to: Some(size) }).await
    }
}
