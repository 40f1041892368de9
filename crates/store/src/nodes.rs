//! Nodes: what each reports about itself, and whether people were notified that nodes differ.
//!
//! Takes the report of a node when it changes; gives all reports, with the time each node was last seen. Promise: no
//! matter which node notices that nodes differ, people are notified once, and once more when it is over.

use std::collections::BTreeSet;

use sluice_core::UtcMillis;
use sluice_core::audit::AuditFact;
use sluice_core::nodes::{DIFFERS_AFTER, KnownNode, NodeDifferenceKind, NodePhase, NodeReport};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const REPORT: &str = "INSERT INTO node_reports (node, release, phase, policy_version, services, log_keys, reported_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (node) DO UPDATE SET release = excluded.release, \
     phase = excluded.phase, policy_version = excluded.policy_version, services = excluded.services, \
     log_keys = excluded.log_keys, reported_at = excluded.reported_at";
const ALL: &str = "SELECT r.node, r.release, r.phase, r.policy_version, r.services, r.log_keys, n.started_at, \
     n.alive_at, q.suspected_at FROM node_reports r JOIN nodes n ON n.node = r.node \
     LEFT JOIN recovery_nodes q ON q.node = r.node ORDER BY r.node";
const TOLD: &str = "SELECT kinds, ended_at FROM node_divergence WHERE one = 1 /*lock*/";
const IS_OPEN: &str = "SELECT ended_at FROM node_divergence WHERE one = 1";
const BEGUN: &str = "UPDATE node_divergence SET kinds = ?1, since = ?2, ended_at = NULL WHERE one = 1";
const MORE: &str = "UPDATE node_divergence SET kinds = ?1 WHERE one = 1";
const OVER: &str = "UPDATE node_divergence SET ended_at = ?1 WHERE one = 1";

struct ReportNode(NodeReport);

impl UseCase for ReportNode {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let impossible = |_| StoreError::Impossible { table: "node_reports", detail: "a report that is not JSON" };
        let services = serde_json::to_string(&self.0.services).map_err(impossible)?;
        let keys = serde_json::to_string(&self.0.log_keys).map_err(impossible)?;
        let (node, now) = (unit.node.clone(), unit.now);
        let (release, phase) = (self.0.release.as_str(), self.0.phase.as_str());
        unit.write(REPORT, params![&node, release, phase, self.0.policy_version.as_str(), services, keys, now]);
        Ok(())
    }
}

struct ListKnownNodes;

impl StoreQuery for ListKnownNodes {
    type Out = Vec<KnownNode>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<KnownNode>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: SqlRow) -> Result<KnownNode, StoreError> {
    let mut row = row.of("node_reports");
    let (name, release, phase) = (row.parsed()?, row.text()?, row.text()?);
    // A newer release may have unknown phases: one node that cannot be read must not hide all of them.
    let phase = NodePhase::ALL.into_iter().find(|known| known.as_str() == phase).unwrap_or(NodePhase::Unknown);
    let (policy_version, services, keys) = (row.text()?, row.text()?, row.text()?);
    let services = serde_json::from_str(&services).map_err(|_| row.impossible("services that are not JSON"))?;
    let log_keys = serde_json::from_str(&keys).map_err(|_| row.impossible("keys that are not JSON"))?;
    let report = NodeReport { release, phase, policy_version, services, log_keys };
    Ok(KnownNode { name, report, started_at: row.time()?, alive_at: row.time()?, suspected_at: row.maybe_time()? })
}

/// The differences in the last notification to people, and when they were told that they are over.
async fn told_last<T: StoreTx>(unit: &mut UnitOfWork<'_, T>) -> Result<(String, Option<UtcMillis>), StoreError> {
    let row = unit.row(TOLD, params![]).await?.ok_or(StoreError::NotFound { what: "divergence" })?;
    let mut row = row.of("node_divergence");
    Ok((row.text()?, row.maybe_time()?))
}

/// Notifies people that nodes have differed in these respects for a while.
struct TellDivergence {
    kinds: BTreeSet<NodeDifferenceKind>,
    message: OutboxMessage,
}

impl UseCase for TellDivergence {
    type Out = bool;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let now = unit.now;
        let (told, ended_at) = told_last(unit).await?;
        let mut told: BTreeSet<&str> = told.split_whitespace().collect();
        match ended_at {
            // Another node saw the end of it moments ago, and this one will see it soon.
            Some(ended) if now < ended + DIFFERS_AFTER => return Ok(false),
            Some(_) => told.clear(),
            None if self.kinds.iter().all(|kind| told.contains(kind.as_str())) => return Ok(false),
            None => {}
        }
        told.extend(self.kinds.iter().map(|kind| kind.as_str()));
        let words = told.into_iter().collect::<Vec<_>>().join(" ");
        match ended_at {
            Some(_) => unit.write(BEGUN, params![words.as_str(), now]),
            None => unit.write(MORE, params![words.as_str()]),
        }
        outbox::put(unit, &self.message);
        unit.record(AuditFact::new("nodes.diverge", unit.actor()).with("in", &words));
        Ok(true)
    }
}

/// Notifies people that nodes no longer differ.
struct TellAgreement {
    message: OutboxMessage,
}

impl UseCase for TellAgreement {
    type Out = bool;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let now = unit.now;
        let (told, ended_at) = told_last(unit).await?;
        if ended_at.is_some() {
            return Ok(false);
        }
        unit.write(OVER, params![now]);
        outbox::put(unit, &self.message);
        unit.record(AuditFact::new("nodes.agree", unit.actor()).with("in", &told));
        Ok(true)
    }
}

/// Whether people were notified that nodes differ and not yet that it is over.
struct IsDivergenceOpen;

impl StoreQuery for IsDivergenceOpen {
    type Out = bool;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        let row = tx.rows(IS_OPEN, &[]).await?.into_iter().next();
        row.map_or(Ok(false), |row| Ok(row.of("node_divergence").maybe_time()?.is_none()))
    }
}

impl Store {
    /// Stores the report of this node, for other nodes and for people. Called when the report changes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn report_node(&self, report: NodeReport) -> Result<(), StoreError> {
        self.submit(ReportNode(report)).await
    }

    /// Every node that ever reported, by name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn known_nodes(&self) -> Result<Vec<KnownNode>, StoreError> {
        self.ask(ListKnownNodes).await
    }

    /// Notifies people that nodes differ, unless they know all of it. Returns whether they are notified now.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn announce_divergence(
        &self,
        kinds: BTreeSet<NodeDifferenceKind>,
        message: OutboxMessage,
    ) -> Result<bool, StoreError> {
        self.submit(TellDivergence { kinds, message }).await
    }

    /// Notifies people that nodes no longer differ, if they were notified that they do. Returns whether they are
    /// notified now.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn announce_agreement(&self, message: OutboxMessage) -> Result<bool, StoreError> {
        self.submit(TellAgreement { message }).await
    }

    /// Whether people were notified that nodes differ and not yet that it is over.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn is_divergence_open(&self) -> Result<bool, StoreError> {
        self.ask(IsDivergenceOpen).await
    }
}
