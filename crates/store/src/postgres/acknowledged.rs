//! Acknowledged state: checks whether the server still has what this node knows to be durable.
//!
//! Takes the end of every log as it was last known; gives an error where a connection reaches a database that lacks any
//! of it, as after a failover to a standby that was behind. Promise: no reopened connection is used before it was
//! compared. While something is missing, nothing is read or done except recording exactly that.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::NodeName;
use sluice_core::audit::ChainHead;
use sluice_core::recovery::{LogFacts, LogMark, RecoveryFinding, RecoveryFindingKind, check_log_unchanged};

use super::{PgTx, fault};
use crate::archive::first_kept;
use crate::audit::ListAuditLogs;
use crate::error::StoreError;
use crate::instance::hash_at;
use crate::unit_of_work::StoreQuery as _;

/// The server that answers, as far as it identifies itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The id that a cluster gets when it is created; its standbys have the same.
    pub system: Option<String>,
    /// The timeline of the cluster: each promotion of a standby begins a new one.
    pub timeline: Option<String>,
}

/// A different server answers than before, and nothing is missing there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerChange {
    /// The previous server.
    pub before: ServerIdentity,
    /// The server that answers now.
    pub now: ServerIdentity,
}

/// The state that all connections of one node share.
#[derive(Debug, Default)]
pub(crate) struct AcknowledgedState(Mutex<AcknowledgedFacts>);

#[derive(Debug, Default)]
struct AcknowledgedFacts {
    /// The end of every log, as last known to be durable.
    logs: BTreeMap<NodeName, ChainHead>,
    server: Option<ServerIdentity>,
    change: Option<ServerChange>,
    /// What is missing; empty while nothing was lost.
    missing: Vec<RecoveryFinding>,
    /// How many losses were recorded. After each, all connections start again from what is left.
    round: u64,
}

/// The state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AcknowledgedLossState {
    pub is_lost: bool,
    pub round: u64,
}

impl AcknowledgedState {
    fn known(&self) -> MutexGuard<'_, AcknowledgedFacts> {
        self.0.lock()
    }

    pub(super) fn standing(&self) -> AcknowledgedLossState {
        let known = self.known();
        AcknowledgedLossState { is_lost: !known.missing.is_empty(), round: known.round }
    }

    /// What is missing, until it is recorded.
    pub fn missing(&self) -> Option<Vec<RecoveryFinding>> {
        let known = self.known();
        (!known.missing.is_empty()).then(|| known.missing.clone())
    }

    /// The change of server since the last call of this, if there was one.
    pub fn take_change(&self) -> Option<ServerChange> {
        self.known().change.take()
    }

    /// Notes that a log is known to reach this far. A log never shrinks.
    pub fn record_log_head(&self, log: &NodeName, head: ChainHead) {
        let mut known = self.known();
        match known.logs.get_mut(log) {
            Some(before) if before.size >= head.size => {}
            Some(before) => *before = head,
            None => drop(known.logs.insert(log.clone(), head)),
        }
    }

    /// Notes that acknowledged work is missing.
    pub(super) fn record_missing(&self, findings: Vec<RecoveryFinding>) {
        let mut known = self.known();
        for finding in findings {
            if !known.missing.contains(&finding) {
                known.missing.push(finding);
            }
        }
    }

    /// The loss is recorded: what is left counts from now on. Returns the new round.
    pub(super) fn clear_missing(&self) -> u64 {
        let mut known = self.known();
        known.missing.clear();
        known.logs.clear();
        known.round += 1;
        known.round
    }

    /// Compares a connection with the known state, before it is used.
    pub(super) async fn verify(&self, tx: &mut PgTx) -> Result<(), StoreError> {
        // Read before the database is queried: commits made meanwhile only add to it.
        let logs = self.known().logs.clone();
        let server = tx.identity().await?;
        let findings = differences(tx, &logs).await?;
        if !findings.is_empty() {
            self.record_missing(findings);
            return Err(StoreError::WentBack);
        }
        let mut known = self.known();
        if !known.missing.is_empty() {
            return Err(StoreError::WentBack);
        }
        if let Some(before) = known.server.replace(server.clone())
            && is_another(&before, &server)
        {
            known.change = Some(ServerChange { before, now: server });
        }
        Ok(())
    }

    /// Looks for everything that is missing, on a connection whose own row is not the one that was committed last.
    pub(super) async fn examine(&self, tx: &mut PgTx, own: RecoveryFinding) {
        let logs = self.known().logs.clone();
        let findings = differences(tx, &logs).await.unwrap_or_default();
        self.record_missing(if findings.is_empty() { vec![own] } else { findings });
    }
}

/// What the database lacks of these logs.
async fn differences(tx: &mut PgTx, known: &BTreeMap<NodeName, ChainHead>) -> Result<Vec<RecoveryFinding>, StoreError> {
    let there: BTreeMap<NodeName, ChainHead> = ListAuditLogs.run(tx).await?.into_iter().collect();
    let mut findings = Vec::new();
    for (log, head) in known {
        let mark = LogMark { size: head.size, hash: head.hash, reserved: None, checkpoint: None };
        let facts = match there.get(log) {
            None => None,
            Some(end) => {
                let at_mark = match head.size.checked_sub(1) {
                    Some(seq) if end.size >= head.size => hash_at(tx, log, seq).await?,
                    Some(_) | None => None,
                };
                let pruned_to = first_kept(tx, log).await?;
                let (at_checkpoint, damage) = (None, None);
                Some(LogFacts { size: end.size, hash: end.hash, at_mark, at_checkpoint, damage, pruned_to })
            }
        };
        findings.extend(check_log_unchanged(log, &mark, facts.as_ref()).err());
        if there.get(log).is_some_and(|end| end.size == head.size && end.hash != head.hash) {
            findings.push(RecoveryFinding::new(RecoveryFindingKind::LogForked, head.size, head.hash).of(log));
        }
    }
    Ok(findings)
}

/// Whether these are two different servers. Missing information proves nothing.
fn is_another(before: &ServerIdentity, now: &ServerIdentity) -> bool {
    let differs = |one: &Option<String>, other: &Option<String>| matches!((one, other), (Some(a), Some(b)) if a != b);
    differs(&before.system, &now.system) || differs(&before.timeline, &now.timeline)
}

impl PgTx {
    /// The identity of this server. A standby accepts no writes and is not used.
    async fn identity(&self) -> Result<ServerIdentity, StoreError> {
        let standby = self.client.query_one("SELECT pg_is_in_recovery()", &[]).await.map_err(fault)?;
        if standby.try_get::<_, bool>(0).map_err(fault)? {
            return Err(StoreError::Unavailable("the server is a standby".into()));
        }
        // A server may refuse to give either value; then the comparison works without it.
        let told = |question: &'static str| async move {
            let row = self.client.query_one(question, &[]).await.ok()?;
            row.try_get::<_, String>(0).ok()
        };
        let system = told("SELECT CAST(system_identifier AS TEXT) FROM pg_control_system()").await;
        let timeline = told("SELECT SUBSTR(pg_walfile_name(pg_current_wal_lsn()), 1, 8)").await;
        Ok(ServerIdentity { system, timeline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::audit::AuditHash;

    fn identity(system: Option<&str>, timeline: Option<&str>) -> ServerIdentity {
        ServerIdentity { system: system.map(Into::into), timeline: timeline.map(Into::into) }
    }

    #[test]
    fn another_system_or_timeline_is_another_server_and_silence_proves_nothing() {
        let before = identity(Some("7"), Some("00000001"));
        assert!(!is_another(&before, &before));
        assert!(is_another(&before, &identity(Some("8"), Some("00000001"))));
        assert!(is_another(&before, &identity(Some("7"), Some("00000002"))));
        assert!(is_another(&before, &identity(None, Some("00000002"))));
        assert!(!is_another(&before, &identity(None, None)));
        assert!(!is_another(&identity(None, None), &before));
    }

    #[test]
    fn what_is_known_of_a_log_never_shrinks() {
        let (acknowledged, log) = (AcknowledgedState::default(), NodeName::new("gw-1").unwrap());
        let head = |size: u8| ChainHead { size: u64::from(size), hash: AuditHash([size; 32]) };
        for size in [3, 2, 3] {
            acknowledged.record_log_head(&log, head(size));
        }
        assert_eq!(acknowledged.known().logs.get(&log), Some(&head(3)));
        acknowledged.record_missing(vec![RecoveryFinding::new(RecoveryFindingKind::LogBehind, 1, 3)]);
        assert!(acknowledged.standing().is_lost);
        assert_eq!(acknowledged.clear_missing(), 1);
        assert_eq!(acknowledged.standing(), AcknowledgedLossState { is_lost: false, round: 1 });
        assert!(acknowledged.known().logs.is_empty(), "what is left counts from now on");
    }
}
