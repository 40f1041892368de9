//! Which gateway a database belongs to, how often it was started, and whether it is trusted.
//!
//! Takes what a state file outside the database remembers; gives what the database says about the same positions.
//! Promise: whoever suspects this database freezes everything in the transaction that records why, and only a person's
//! decision, on record, lifts that.

use std::collections::BTreeMap;

use sluice_core::audit::checkpoint::Checkpoint;
use sluice_core::audit::{Fact, Hash, Head, leaf};
use sluice_core::ids::MessageId;
use sluice_core::recovery::{DatabaseFacts, Finding, LogFacts, Suspicion};
use sluice_core::{Actor, NodeName};

use crate::audit::{LastCheckpoint, Logs, Page};
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::postgres::{AcknowledgedState, ServerChange};
use crate::sql::{Tx, params};
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
/// Entries that are checked at once.
const TAIL_PAGE: u32 = 1_000;

/// Positions of a log that somebody outside remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RememberedLog {
    /// How many entries.
    pub size: u64,
    /// How many entries the last signed checkpoint covers.
    pub checkpoint: Option<u64>,
}

/// What the database says about remembered positions.
struct Facts {
    node: NodeName,
    logs: BTreeMap<NodeName, RememberedLog>,
}

impl Query for Facts {
    type Out = DatabaseFacts;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<DatabaseFacts, StoreError> {
        let instance = match tx.rows(INSTANCE, &[]).await?.into_iter().next() {
            Some(row) => Some(row.of("instances").text()?),
            None => None,
        };
        let (mut epoch, mut suspicion) = (None, None);
        if let Some(row) = tx.rows(NODE, &params![&self.node]).await?.into_iter().next() {
            let mut row = row.of("recovery_nodes");
            epoch = Some(row.count()?).filter(|epoch| *epoch > 0);
            let (at, findings) = (row.maybe_time()?, row.text()?);
            let findings: Vec<Finding> =
                serde_json::from_str(&findings).map_err(|_| row.impossible("findings that are none"))?;
            let investigating = row.count::<u64>()? > 0;
            suspicion = at.map(|at| Suspicion { at, findings, investigating });
        }
        let mut logs = BTreeMap::new();
        for (log, Head { size, hash }) in Logs.run(tx).await? {
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
            logs.insert(log, LogFacts { size, hash, at_mark, at_checkpoint, damage: None });
        }
        Ok(DatabaseFacts { instance, epoch, suspicion, logs })
    }
}

pub(crate) async fn hash_at<T: Tx>(tx: &mut T, log: &NodeName, seq: u64) -> Result<Option<Hash>, StoreError> {
    let Some(row) = tx.rows(HASH_AT, &params![log, seq]).await?.into_iter().next() else { return Ok(None) };
    let mut row = row.of("audit_entries");
    let bytes = row.blob()?;
    bytes.try_into().map(|bytes| Some(Hash(bytes))).map_err(|_| row.impossible("a hash does not have 32 bytes"))
}

/// Whether a checkpoint is kept, to the letter.
struct HasCheckpoint {
    log: NodeName,
    size: u64,
    note: String,
}

impl Query for HasCheckpoint {
    type Out = bool;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        let found = tx.rows(NOTE_AT, &params![&self.log, self.size]).await?.into_iter().next();
        found.map_or(Ok(false), |row| Ok(row.of("checkpoints").text()? == self.note))
    }
}

/// What does not fit together between the last checkpoint of a log and its end.
struct TailDamage(NodeName);

impl Query for TailDamage {
    type Out = Option<String>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        let log = &self.0;
        let Some((_, head)) = Logs.run(tx).await?.into_iter().find(|(name, _)| name == log) else { return Ok(None) };
        let mut reached = match LastCheckpoint(log.clone()).run(tx).await? {
            None => Head::genesis(log),
            Some(last) => match Checkpoint::parse(last.note.text_unverified()) {
                Ok(signed) if signed.tree.size == last.size => Head { size: last.size, hash: signed.head },
                Ok(_) | Err(_) => return Ok(Some("the last checkpoint is not in its form".into())),
            },
        };
        if reached.size > head.size {
            let text = format!("the log has {} entries and {} are signed", head.size, reached.size);
            return Ok(Some(text));
        }
        while reached.size < head.size {
            let page = Page { log: log.clone(), from: reached.size, limit: TAIL_PAGE }.run(tx).await?;
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
                reached = Head { size: entry.seq + 1, hash };
            }
        }
        Ok((reached != head).then(|| format!("the end of the log is not entry {}", head.size.saturating_sub(1))))
    }
}

/// Counts a start of this node; founds the instance if there is none.
struct Begin {
    instance: String,
    epoch: u64,
    /// What the record says about it, where it is more than an ordinary start.
    note: Option<&'static str>,
}

impl UseCase for Begin {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let (node, now) = (desk.node.clone(), desk.now);
        desk.write(FOUND, params![self.instance.as_str(), now]);
        desk.write(BEGIN, params![&node, self.epoch]);
        if let Some(kind) = self.note {
            let fact = Fact::new(kind, desk.actor()).with("instance", &self.instance).with("epoch", self.epoch);
            desk.record(fact);
        }
        Ok(())
    }
}

/// Freezes everything, because this database may not be the one this node wrote to last.
struct Suspect {
    findings: Vec<Finding>,
    message: MessageId,
}

impl UseCase for Suspect {
    type Out = bool;

    fn is_about_loss(&self) -> bool {
        true
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<bool, StoreError> {
        let (node, now) = (desk.node.clone(), desk.now);
        let known = Facts { node: node.clone(), logs: BTreeMap::new() }.run(desk.tx()).await?.suspicion;
        if known.is_some_and(|known| known.findings == self.findings) {
            return Ok(false);
        }
        let findings = serde_json::to_string(&self.findings).map_err(|_| StoreError::Impossible {
            table: "recovery_nodes",
            detail: "findings that cannot be written",
        })?;
        desk.write(SUSPECT, params![&node, now, findings]);
        let mut fact = Fact::new("recovery.suspected", desk.actor());
        fact.code = self.findings.first().map(|finding| finding.kind.code().to_owned());
        for (n, finding) in self.findings.iter().enumerate() {
            fact = fact.with(&format!("finding_{}", n + 1), finding);
        }
        desk.record(fact);
        let why: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
        let body = serde_json::json!({
            "text": format!("The database was restored from a copy or changed: {}. Everything is frozen until an admin \
                runs `sluice recover`.", why.join("; ")),
            "findings": self.findings,
            "node": node,
        });
        let topic = "recovery.suspected".into();
        outbox::put(desk, &Message { id: self.message, topic, severity: Severity::Critical, body });
        Ok(true)
    }
}

/// A person's decision about a suspected database.
struct Decide {
    by: Actor,
    /// The node the state file was written by, if it is another name of this one.
    formerly: NodeName,
    /// The start from which it counts; nothing while it is investigated.
    accepted: Option<(u64, String)>,
    findings: Vec<Finding>,
}

impl UseCase for Decide {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        // SECURITY: an agent may be the very reason why the database was changed.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let (node, now) = (desk.node.clone(), desk.now);
        let mut fact = match &self.accepted {
            Some((epoch, instance)) => {
                desk.write(FOUND, params![instance.as_str(), now]);
                desk.write(ACCEPT, params![&node, &self.formerly]);
                desk.write(BEGIN, params![&node, *epoch]);
                let fact = Fact::new("recovery.accepted", self.by.clone());
                fact.with("as", "restored_from_backup").with("epoch", epoch).with("instance", instance)
            }
            None => {
                desk.write(INVESTIGATE, params![&node]);
                Fact::new("recovery.investigating", self.by.clone())
            }
        };
        for (n, finding) in self.findings.iter().enumerate() {
            fact = fact.with(&format!("finding_{}", n + 1), finding);
        }
        desk.record(fact);
        Ok(())
    }
}

/// Nodes that do not trust this database.
struct Suspecting;

impl Query for Suspecting {
    type Out = Vec<NodeName>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<NodeName>, StoreError> {
        tx.rows(SUSPECTING, &[]).await?.into_iter().map(|row| row.of("recovery_nodes").parsed()).collect()
    }
}

/// Whether any node does not trust this database.
pub(crate) async fn is_suspected<T: Tx>(tx: &mut T) -> Result<bool, StoreError> {
    Ok(!tx.rows(SUSPECTING, &[]).await?.is_empty())
}

impl Store {
    /// What the database says about positions that `node` remembers. Damage is not looked for.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn recovery_facts(
        &self,
        node: NodeName,
        logs: BTreeMap<NodeName, RememberedLog>,
    ) -> Result<DatabaseFacts, StoreError> {
        let facts = self.ask(Facts { node, logs }).await?;
        if let Some(ground) = self.ground() {
            facts.logs.iter().for_each(|(log, end)| ground.reached(log, Head { size: end.size, hash: end.hash }));
        }
        Ok(facts)
    }

    /// What a server lacks that it had acknowledged, until [`Store::suspect`] has put it on record. Meanwhile nothing else is
    /// done and nothing is read.
    #[must_use]
    pub fn missing_ground(&self) -> Option<Vec<Finding>> {
        self.ground()?.missing()
    }

    /// Another server that answers since this was last asked, and lacks nothing.
    #[must_use]
    pub fn take_server_change(&self) -> Option<ServerChange> {
        self.ground()?.take_change()
    }

    fn ground(&self) -> Option<&AcknowledgedState> {
        match self.engine.as_ref() {
            Engine::Server { ground, .. } => Some(ground),
            Engine::Inline { .. } | Engine::File(_) | Engine::ReadOnly(_) => None,
        }
    }

    /// What does not fit together between the last checkpoint of a log and its end, in words.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn tail_damage(&self, log: NodeName) -> Result<Option<String>, StoreError> {
        match self.ask(TailDamage(log)).await {
            Err(error @ (StoreError::Impossible { .. } | StoreError::Damaged { .. })) => Ok(Some(error.to_string())),
            other => other,
        }
    }

    /// Whether this very checkpoint is kept.
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
        self.submit(Begin { instance, epoch, note }).await
    }

    /// Freezes everything and tells people, because this database is not trusted. Says whether that is news.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn suspect(&self, findings: Vec<Finding>, message: MessageId) -> Result<bool, StoreError> {
        self.submit(Suspect { findings, message }).await
    }

    /// Records that an admin investigates a suspected database. It stays frozen.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn investigate(&self, by: Actor, findings: Vec<Finding>) -> Result<(), StoreError> {
        let formerly = self.node().clone();
        self.submit(Decide { by, formerly, accepted: None, findings }).await
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
        findings: Vec<Finding>,
    ) -> Result<(), StoreError> {
        self.submit(Decide { by, formerly, accepted: Some(accepted), findings }).await
    }

    /// Nodes that do not trust this database.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn suspecting(&self) -> Result<Vec<NodeName>, StoreError> {
        self.ask(Suspecting).await
    }
}
