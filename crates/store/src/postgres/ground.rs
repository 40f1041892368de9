//! The ground under a node: whether the server still has what this node knows to be durable.
//!
//! Takes the end of every log as it was last known; gives an error where a connection reaches a database that lacks any of
//! it, as after a failover to a standby that was behind. Promise: no connection that was opened again is used before it was
//! compared, and while something is missing nothing is read or done but the record of exactly that.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_core::NodeName;
use sluice_core::audit::Head;
use sluice_core::recovery::{Finding, FindingKind, LogFacts, LogMark, still_has};

use super::{PgTx, fault};
use crate::audit::Logs;
use crate::desk::Query as _;
use crate::error::StoreError;
use crate::instance::hash_at;

/// Which server answers, as far as it says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The number that a cluster gets when it is made; its standbys have the same.
    pub system: Option<String>,
    /// Which history of the cluster: each promotion of a standby begins a new one.
    pub timeline: Option<String>,
}

/// Another server answers than before, and nothing is missing there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerChange {
    /// The one before.
    pub before: ServerIdentity,
    /// The one that answers now.
    pub now: ServerIdentity,
}

/// What the connections of one node share.
#[derive(Debug, Default)]
pub(crate) struct AcknowledgedState(Mutex<AcknowledgedFacts>);

#[derive(Debug, Default)]
struct AcknowledgedFacts {
    /// The end of every log, as last known to be durable.
    logs: BTreeMap<NodeName, Head>,
    server: Option<ServerIdentity>,
    change: Option<ServerChange>,
    /// What is missing; nothing while the ground holds.
    missing: Vec<Finding>,
    /// How often a loss was put on record, after which everybody begins again from what is left.
    round: u64,
}

/// How the ground stands at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub is_lost: bool,
    pub round: u64,
}

impl AcknowledgedState {
    fn known(&self) -> MutexGuard<'_, AcknowledgedFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standing(&self) -> Standing {
        let known = self.known();
        Standing { is_lost: !known.missing.is_empty(), round: known.round }
    }

    /// What is missing, until it is on record.
    pub fn missing(&self) -> Option<Vec<Finding>> {
        let known = self.known();
        (!known.missing.is_empty()).then(|| known.missing.clone())
    }

    /// Another server that answers since this was last asked.
    pub fn take_change(&self) -> Option<ServerChange> {
        self.known().change.take()
    }

    /// A log is known to reach this far. A log never shrinks.
    pub fn reached(&self, log: &NodeName, head: Head) {
        let mut known = self.known();
        match known.logs.get_mut(log) {
            Some(before) if before.size >= head.size => {}
            Some(before) => *before = head,
            None => drop(known.logs.insert(log.clone(), head)),
        }
    }

    /// Something that was acknowledged is not there.
    pub(super) fn lose(&self, findings: Vec<Finding>) {
        let mut known = self.known();
        for finding in findings {
            if !known.missing.contains(&finding) {
                known.missing.push(finding);
            }
        }
    }

    /// The loss is on record: what is left counts from now on. Gives the round that begins.
    pub(super) fn settle(&self) -> u64 {
        let mut known = self.known();
        known.missing.clear();
        known.logs.clear();
        known.round += 1;
        known.round
    }

    /// Compares a connection with what is known, before it is used.
    pub(super) async fn verify(&self, tx: &mut PgTx) -> Result<(), StoreError> {
        // Before the database is asked: whatever is committed meanwhile only adds to it.
        let logs = self.known().logs.clone();
        let server = tx.identity().await?;
        let findings = differences(tx, &logs).await?;
        if !findings.is_empty() {
            self.lose(findings);
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

    /// What is missing on a connection whose own row is not the one that was committed last.
    pub(super) async fn examine(&self, tx: &mut PgTx, own: Finding) {
        let logs = self.known().logs.clone();
        let findings = differences(tx, &logs).await.unwrap_or_default();
        self.lose(if findings.is_empty() { vec![own] } else { findings });
    }
}

/// What the database lacks of these logs.
async fn differences(tx: &mut PgTx, known: &BTreeMap<NodeName, Head>) -> Result<Vec<Finding>, StoreError> {
    let there: BTreeMap<NodeName, Head> = Logs.run(tx).await?.into_iter().collect();
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
                Some(LogFacts { size: end.size, hash: end.hash, at_mark, at_checkpoint: None, damage: None })
            }
        };
        findings.extend(still_has(log, &mark, facts.as_ref()).err());
        if there.get(log).is_some_and(|end| end.size == head.size && end.hash != head.hash) {
            findings.push(Finding::new(FindingKind::LogForked, head.size, head.hash).of(log));
        }
    }
    Ok(findings)
}

/// Whether these are two servers. What one of them does not say proves nothing.
fn is_another(before: &ServerIdentity, now: &ServerIdentity) -> bool {
    let differs = |one: &Option<String>, other: &Option<String>| matches!((one, other), (Some(a), Some(b)) if a != b);
    differs(&before.system, &now.system) || differs(&before.timeline, &now.timeline)
}

impl PgTx {
    /// Which server this is. One that only follows another takes no writes and is not used.
    async fn identity(&self) -> Result<ServerIdentity, StoreError> {
        let standby = self.client.query_one("SELECT pg_is_in_recovery()", &[]).await.map_err(fault)?;
        if standby.try_get::<_, bool>(0).map_err(fault)? {
            return Err(StoreError::Unavailable("the server is a standby".into()));
        }
        // A server may refuse to tell either; then the comparison has to do without.
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
    use sluice_core::audit::Hash;

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
        let (ground, log) = (AcknowledgedState::default(), NodeName::new("gw-1").unwrap());
        let head = |size: u8| Head { size: u64::from(size), hash: Hash([size; 32]) };
        for size in [3, 2, 3] {
            ground.reached(&log, head(size));
        }
        assert_eq!(ground.known().logs.get(&log), Some(&head(3)));
        ground.lose(vec![Finding::new(FindingKind::LogBehind, 1, 3)]);
        assert!(ground.standing().is_lost);
        assert_eq!(ground.settle(), 1);
        assert_eq!(ground.standing(), Standing { is_lost: false, round: 1 });
        assert!(ground.known().logs.is_empty(), "what is left counts from now on");
    }
}
