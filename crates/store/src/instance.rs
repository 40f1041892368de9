//! The gateway instance a database belongs to, how often it was started, and whether it is trusted.
//!
//! Takes what a state file outside the database remembers; gives what the database says about the same positions.
//! Promise: the node that suspects this database freezes everything in the transaction that records why. Only a
//! person's recorded decision lifts that freeze.

use std::collections::BTreeMap;

use sluice_core::audit::checkpoint::Checkpoint;
use sluice_core::audit::{AuditFact, AuditHash, ChainHead, leaf};
use sluice_core::ids::MessageId;
use sluice_core::recovery::{DatabaseFacts, DatabaseSuspicion, LogFacts, RecoveryFinding};
use sluice_core::{Actor, NodeName};

use crate::archive;
use crate::audit::{GetLastCheckpoint, ListAuditEntries, ListAuditLogs};
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::postgres::{AcknowledgedState, ServerChange};
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};
use crate::{Engine, Store};

const INSTANCE: &str = "SELECT id FROM instances WHERE one = 1";
const FOUND: &str = "INSERT INTO instances (one, id, founded_at) VALUES (1, ?1, ?2) ON CONFLICT (one) DO NOTHING";
const NODE: &str = "SELECT epoch, suspected_at, findings, investigating FROM recovery_nodes WHERE node = ?1";
const BEGIN: &str = "INSERT INTO recovery_nodes (node, epoch, findings, investigating) VALUES (?1, ?2, '[]', 0) \
     ON CONFLICT (node) DO UPDATE SET epoch = excluded.epoch";
const SUSPECT: &str = "INSERT INTO recovery_nodes (node, epoch, suspected_at, findings, investigating) \
     VALUES (?1, 0, ?2, ?3, 0) \
     ON CONFLICT (node) DO UPDATE SET suspected_at = excluded.suspected_at, findings = excluded.findings";
const INVESTIGATE: &str = "UPDATE recovery_nodes SET investigating = 1 WHERE node = ?1 AND suspected_at IS NOT NULL";
const ACCEPT: &str = "UPDATE recovery_nodes SET suspected_at = NULL, findings = '[]', investigating = 0 \
     WHERE node = ?1 OR node = ?2";
const SUSPECTING: &str = "SELECT node FROM recovery_nodes WHERE suspected_at IS NOT NULL ORDER BY node";
const HASH_AT: &str = "SELECT hash FROM audit_entries WHERE log = ?1 AND seq = ?2";
const NOTE_AT: &str = "SELECT note FROM checkpoints WHERE log = ?1 AND size = ?2";
/// How many entries are checked at once.
const TAIL_PAGE: u32 = 1_000;

/// Positions of a log that are remembered outside the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RememberedLog {
    /// The number of entries.
    pub size: u64,
    /// How many entries the last signed checkpoint covers.
    pub checkpoint: Option<u64>,
}

/// What the database says about remembered positions.
struct GetDatabaseFacts {
    node: NodeName,
    logs: BTreeMap<NodeName, RememberedLog>,
}

impl StoreQuery for GetDatabaseFacts {
    type Out = DatabaseFacts;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<DatabaseFacts, StoreError> {
        let instance = match tx.rows(INSTANCE, &[]).await?.into_iter().next() {
            Some(row) => Some(row.of("instances").text()?),
            None => None,
        };
        let (mut epoch, mut suspicion) = (None, None);
        if let Some(row) = tx.rows(NODE, &params![&self.node]).await?.into_iter().next() {
            let mut row = row.of("recovery_nodes");
            epoch = Some(row.count()?).filter(|epoch| *epoch > 0);
            let (at, findings) = (row.maybe_time()?, row.text()?);
            let findings: Vec<RecoveryFinding> =
                serde_json::from_str(&findings).map_err(|_| row.impossible("findings that cannot be read"))?;
            let investigating = row.count::<u64>()? > 0;
            suspicion = at.map(|at| DatabaseSuspicion { at, findings, investigating });
        }
        let mut logs = BTreeMap::new();
        for (log, ChainHead { size, hash }) in ListAuditLogs.run(tx).await? {
            let remembered = self.logs.get(&log);
            let at_mark = match remembered.and_then(|remembered| remembered.size.checked_sub(1)) {
                Some(seq) => hash_at(tx, &log, seq).await?,
                None => None,
            };
            let at_checkpoint = match remembered.and_then(|remembered| remembered.checkpoint) {
                Some(size) => match tx.rows(NOTE_AT, &params![&log, size]).await?.into_iter().next() {
                    Some(row) => Some(row.of("checkpoints").text()?),
                    None => None,
                },
                None => None,
            };
            let pruned_to = archive::first_kept(tx, &log).await?;
            logs.insert(log, LogFacts { size, hash, at_mark, at_checkpoint, damage: None, pruned_to });
        }
        Ok(DatabaseFacts { instance, epoch, suspicion, logs })
    }
}

pub(crate) async fn hash_at<T: StoreTx>(tx: &mut T, log: &NodeName, seq: u64) -> Result<Option<AuditHash>, StoreError> {
    let Some(row) = tx.rows(HASH_AT, &params![log, seq]).await?.into_iter().next() else { return Ok(None) };
    let mut row = row.of("audit_entries");
    let bytes = row.blob()?;
    bytes.try_into().map(|bytes| Some(AuditHash(bytes))).map_err(|_| row.impossible("a hash does not have 32 bytes"))
}

/// Whether exactly this checkpoint is stored, or may be in the archive.
struct HasCheckpoint {
    log: NodeName,
    size: u64,
    note: String,
}

impl StoreQuery for HasCheckpoint {
    type Out = bool;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        // Checkpoints of archived entries are in the archive.
        if self.size < archive::first_kept(tx, &self.log).await? {
            return Ok(true);
        }
        let found = tx.rows(NOTE_AT, &params![&self.log, self.size]).await?.into_iter().next();
        found.map_or(Ok(false), |row| Ok(row.of("checkpoints").text()? == self.note))
    }
}

/// Damage between the last checkpoint of a log and its end.
struct FindTailDamage(NodeName);

impl StoreQuery for FindTailDamage {
    type Out = Option<String>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        let log = &self.0;
        let Some((_, head)) = ListAuditLogs.run(tx).await?.into_iter().find(|(name, _)| name == log) else {
            return Ok(None);
        };
        let mut reached = match GetLastCheckpoint(log.clone()).run(tx).await? {
            None => ChainHead::genesis(log),
            Some(last) => match Checkpoint::parse(last.note.text_unverified()) {
                Ok(signed) if signed.tree.size == last.size => ChainHead { size: last.size, hash: signed.head },
                Ok(_) | Err(_) => return Ok(Some("the last checkpoint is malformed".into())),
            },
        };
        if reached.size > head.size {
            let text = format!("the log has {} entries and {} are signed", head.size, reached.size);
            return Ok(Some(text));
        }
        while reached.size < head.size {
            let page = ListAuditEntries { log: log.clone(), from: reached.size, limit: TAIL_PAGE }.run(tx).await?;
            if page.is_empty() {
                return Ok(Some(format!("entry {} is missing", reached.size)));
            }
            for entry in page.into_iter().filter(|entry| entry.seq < head.size) {
                if entry.seq != reached.size {
                    return Ok(Some(format!("entry {} is missing", reached.size)));
                }
                let hash = leaf(&reached.hash, &entry.body);
                if hash != entry.hash {
                    return Ok(Some(format!("entry {} does not follow the one before it", entry.seq)));
                }
                reached = ChainHead { size: entry.seq + 1, hash };
            }
        }
        Ok((reached != head).then(|| format!("the end of the log is not entry {}", head.size.saturating_sub(1))))
    }
}

/// Counts a start of this node; creates the instance if there is none.
struct BeginEpoch {
    instance: String,
    epoch: u64,
    /// The kind of the audit entry, if this is more than an ordinary start.
    note: Option<&'static str>,
}

impl UseCase for BeginEpoch {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let (node, now) = (unit.node.clone(), unit.now);
        unit.write(FOUND, params![self.instance.as_str(), now]);
        unit.write(BEGIN, params![&node, self.epoch]);
        if let Some(kind) = self.note {
            let fact = AuditFact::new(kind, unit.actor()).with("instance", &self.instance).with("epoch", self.epoch);
            unit.record(fact);
        }
        Ok(())
    }
}

/// Freezes everything, because this may not be the database that this node wrote to last.
struct SuspectDatabase {
    findings: Vec<RecoveryFinding>,
    message: MessageId,
}

impl UseCase for SuspectDatabase {
    type Out = bool;

    fn is_about_loss(&self) -> bool {
        true
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let (node, now) = (unit.node.clone(), unit.now);
        let known = GetDatabaseFacts { node: node.clone(), logs: BTreeMap::new() }.run(unit.tx()).await?.suspicion;
        if known.is_some_and(|known| known.findings == self.findings) {
            return Ok(false);
        }
        let findings = serde_json::to_string(&self.findings).map_err(|_| StoreError::Impossible {
            table: "recovery_nodes",
            detail: "findings that cannot be written",
        })?;
        unit.write(SUSPECT, params![&node, now, findings]);
        let mut fact = AuditFact::new("recovery.suspected", unit.actor());
        fact.code = self.findings.first().map(|finding| finding.kind.code().to_owned());
        for (n, finding) in self.findings.iter().enumerate() {
            fact = fact.with(&format!("finding_{}", n + 1), finding);
        }
        unit.record(fact);
        let why: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
        let body = serde_json::json!({
            "text": format!("The database was restored from a copy or changed: {}. Everything is frozen until an admin \
                runs `sluice recover`.", why.join("; ")),
            "findings": self.findings,
            "node": node,
        });
        let topic = "recovery.suspected".into();
        outbox::put(unit, &OutboxMessage { id: self.message, topic, severity: MessageSeverity::Critical, body });
        Ok(true)
    }
}

/// A person's decision about a suspected database.
struct DecideDatabaseTrust {
    by: Actor,
    /// The node that wrote the state file, if this node had another name then.
    formerly: NodeName,
    /// The start number from which it counts, and the new instance; `None` while it is being investigated.
    accepted: Option<(u64, String)>,
    findings: Vec<RecoveryFinding>,
}

impl UseCase for DecideDatabaseTrust {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        // SECURITY: an agent may be the reason why the database was changed.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let (node, now) = (unit.node.clone(), unit.now);
        let mut fact = match &self.accepted {
            Some((epoch, instance)) => {
                unit.write(FOUND, params![instance.as_str(), now]);
                unit.write(ACCEPT, params![&node, &self.formerly]);
                unit.write(BEGIN, params![&node, *epoch]);
                let fact = AuditFact::new("recovery.accepted", self.by.clone());
                fact.with("as", "restored_from_backup").with("epoch", epoch).with("instance", instance)
            }
            None => {
                unit.write(INVESTIGATE, params![&node]);
                AuditFact::new("recovery.investigating", self.by.clone())
            }
        };
        for (n, finding) in self.findings.iter().enumerate() {
            fact = fact.with(&format!("finding_{}", n + 1), finding);
        }
        unit.record(fact);
        Ok(())
    }
}

/// Nodes that do not trust this database.
struct ListSuspectingNodes;

impl StoreQuery for ListSuspectingNodes {
    type Out = Vec<NodeName>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<NodeName>, StoreError> {
        tx.rows(SUSPECTING, &[]).await?.into_iter().map(|row| row.of("recovery_nodes").parsed()).collect()
    }
}

/// Whether any node does not trust this database.
pub(crate) async fn is_suspected<T: StoreTx>(tx: &mut T) -> Result<bool, StoreError> {
    Ok(!tx.rows(SUSPECTING, &[]).await?.is_empty())
}

impl Store {
    /// What the database says about positions that `node` remembers. Does not look for damage.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn recovery_facts(
        &self,
        node: NodeName,
        logs: BTreeMap<NodeName, RememberedLog>,
    ) -> Result<DatabaseFacts, StoreError> {
        let facts = self.ask(GetDatabaseFacts { node, logs }).await?;
        if let Some(acknowledged) = self.acknowledged() {
            facts
                .logs
                .iter()
                .for_each(|(log, end)| acknowledged.record_log_head(log, ChainHead { size: end.size, hash: end.hash }));
        }
        Ok(facts)
    }

    /// The acknowledged work that a server has lost, until [`Store::suspect`] has recorded it. Until then nothing else
    /// is done and nothing is read.
    #[must_use]
    pub fn missing_acknowledged(&self) -> Option<Vec<RecoveryFinding>> {
        self.acknowledged()?.missing()
    }

    /// Another server that has answered since the last call of this, and has lost nothing.
    #[must_use]
    pub fn take_server_change(&self) -> Option<ServerChange> {
        self.acknowledged()?.take_change()
    }

    fn acknowledged(&self) -> Option<&AcknowledgedState> {
        match self.engine.as_ref() {
            Engine::Server { acknowledged, .. } => Some(acknowledged),
            Engine::Inline { .. } | Engine::File(_) | Engine::ReadOnly(_) => None,
        }
    }

    /// Damage between the last checkpoint of a log and its end, in words.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn tail_damage(&self, log: NodeName) -> Result<Option<String>, StoreError> {
        match self.ask(FindTailDamage(log)).await {
            Err(error @ (StoreError::Impossible { .. } | StoreError::Damaged { .. })) => Ok(Some(error.to_string())),
            other => other,
        }
    }

    /// Whether exactly this checkpoint is stored.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn has_checkpoint(&self, log: NodeName, size: u64, note: String) -> Result<bool, StoreError> {
        self.ask(HasCheckpoint { log, size, note }).await
    }

    /// Counts a start of this node. A `note` is recorded as an entry of that kind.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn begin_epoch(
        &self,
        instance: String,
        epoch: u64,
        note: Option<&'static str>,
    ) -> Result<(), StoreError> {
        self.submit(BeginEpoch { instance, epoch, note }).await
    }

    /// Freezes everything and notifies people, because this database is not trusted. Returns whether that is new.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn suspect(&self, findings: Vec<RecoveryFinding>, message: MessageId) -> Result<bool, StoreError> {
        self.submit(SuspectDatabase { findings, message }).await
    }

    /// Records that an admin investigates a suspected database. It stays frozen.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn investigate(&self, by: Actor, findings: Vec<RecoveryFinding>) -> Result<(), StoreError> {
        let formerly = self.node().clone();
        self.submit(DecideDatabaseTrust { by, formerly, accepted: None, findings }).await
    }

    /// Records that an admin accepts a suspected database as restored from a backup, and lifts this node's freeze.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn accept_restored(
        &self,
        by: Actor,
        formerly: NodeName,
        accepted: (u64, String),
        findings: Vec<RecoveryFinding>,
    ) -> Result<(), StoreError> {
        self.submit(DecideDatabaseTrust { by, formerly, accepted: Some(accepted), findings }).await
    }

    /// Nodes that do not trust this database.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn suspecting_nodes(&self) -> Result<Vec<NodeName>, StoreError> {
        self.ask(ListSuspectingNodes).await
    }
}
