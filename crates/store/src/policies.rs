//! The policies that were in force: kept so that every decision can be explained by the text that made it.
//!
//! Takes each activation; gives texts by version, and the history. Promise: a policy that comes back is a new line of
//! the history, and the old line stays. A text is stored once, until it was out of force for its retention time, and
//! never deleted while a node uses it.

use sluice_core::audit::AuditFact;
use sluice_core::{Actor, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const KEEP: &str = "INSERT INTO policies (version, sources, loaded_by, loaded_at) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (version) DO UPDATE SET loaded_by = excluded.loaded_by, loaded_at = excluded.loaded_at";
const BY_VERSION: &str = "SELECT version, sources, loaded_by, loaded_at FROM policies WHERE version = ?1";
const ACTIVATED: &str = "INSERT INTO policy_activations (node, number, version, loaded_by, loaded_at) VALUES (?1, \
     (SELECT COALESCE(MAX(number), 0) + 1 FROM policy_activations WHERE node = ?1), ?2, ?3, ?4)";
const HISTORY: &str = "SELECT a.version, p.sources, a.loaded_by, a.loaded_at FROM policy_activations a \
     JOIN policies p ON p.version = a.version ORDER BY a.loaded_at DESC, a.number DESC LIMIT ?1";

/// Lines of the history that another line of the same node replaced before `?1`: out of force since then.
const REPLACED: &str = "SELECT a.node, a.number FROM policy_activations a \
     JOIN policy_activations b ON b.node = a.node AND b.number = a.number + 1 \
     WHERE b.loaded_at <= ?1 ORDER BY a.node, a.number LIMIT ?2";
const FORGET_LINE: &str = "DELETE FROM policy_activations WHERE node = ?1 AND number = ?2";
/// Texts without any line of the history.
const UNUSED: &str = "SELECT p.version FROM policies p LEFT JOIN policy_activations a ON a.version = p.version \
     WHERE a.version IS NULL AND p.loaded_at <= ?1 LIMIT ?2";
/// A text that came back meanwhile has a later load time and stays.
const FORGET_TEXT: &str = "DELETE FROM policies WHERE version = ?1 AND loaded_at <= ?2";

/// One set of policy files as it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRecord {
    /// Its version: a hash of its sources.
    pub version: String,
    /// The files, as JSON: name to text.
    pub sources: String,
    /// Who loaded it.
    pub by: Actor,
    /// When it was loaded.
    pub at: UtcMillis,
}

/// Records that this policy is in force from now on.
pub(crate) struct RecordPolicyLoaded {
    pub version: String,
    pub sources: String,
    pub by: Actor,
}

impl UseCase for RecordPolicyLoaded {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        unit.write(KEEP, params![self.version.as_str(), self.sources.as_str(), &self.by, now]);
        unit.write(ACTIVATED, params![unit.node, self.version.as_str(), &self.by, now]);
        let mut fact = AuditFact::new("policy.loaded", self.by.clone());
        fact.policy = Some(self.version.clone());
        unit.record(fact);
        Ok(())
    }
}

/// Lines of the history and texts that can be deleted.
struct FindOutdatedPolicies {
    before: UtcMillis,
    limit: u32,
}

impl StoreQuery for FindOutdatedPolicies {
    type Out = (Vec<SqlRow>, Vec<SqlRow>);
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let lines = tx.rows(REPLACED, &params![self.before, self.limit]).await?;
        Ok((lines, tx.rows(UNUSED, &params![self.before, self.limit]).await?))
    }
}

/// Deletes what has been out of force for longer than its retention time.
struct ForgetOutdatedPolicies {
    now: UtcMillis,
    kept: Millis,
    limit: u32,
}

impl UseCase for ForgetOutdatedPolicies {
    type Out = u64;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<u64, StoreError> {
        // A caller whose clock is ahead deletes nothing early.
        let before = self.now.min(unit.now) - self.kept;
        let (lines, texts) = FindOutdatedPolicies { before, limit: self.limit }.run(unit.tx()).await?;
        let (lines_gone, texts_gone) = (lines.len(), texts.len());
        for line in lines {
            unit.write(FORGET_LINE, line.0);
        }
        for text in texts {
            let mut key = text.0;
            key.push(SqlValue::from(before));
            unit.write(FORGET_TEXT, key);
        }
        let gone = lines_gone.saturating_add(texts_gone) as u64;
        if gone > 0 {
            let fact = AuditFact::new("store.pruned", unit.actor());
            unit.record(fact.with("policy_activations", lines_gone).with("policies", texts_gone));
        }
        Ok(gone)
    }
}

/// The policy of one version.
pub(crate) struct GetPolicyByVersion(pub String);

impl StoreQuery for GetPolicyByVersion {
    type Out = Option<PolicyRecord>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(BY_VERSION, &params![self.0.as_str()]).await?.into_iter().next().map(decode).transpose()
    }
}

/// All activations, the latest first.
pub(crate) struct ListPolicyHistory {
    pub limit: u32,
}

impl StoreQuery for ListPolicyHistory {
    type Out = Vec<PolicyRecord>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(HISTORY, &params![self.limit]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: crate::sql::SqlRow) -> Result<PolicyRecord, StoreError> {
    let mut row = row.of("policies");
    Ok(PolicyRecord { version: row.text()?, sources: row.text()?, by: row.parsed()?, at: row.time()? })
}

impl Store {
    /// Records the policy that is in force from now on.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn record_policy_loaded(&self, version: String, sources: String, by: Actor) -> Result<(), StoreError> {
        self.submit(RecordPolicyLoaded { version, sources, by }).await
    }

    /// Deletes policies that were out of force on every node for longer than `kept`, with their lines of the history:
    /// at most `limit` of each. Returns how many rows were deleted.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn forget_policies(&self, now: UtcMillis, kept: Millis, limit: u32) -> Result<u64, StoreError> {
        let (lines, texts) = self.ask(FindOutdatedPolicies { before: now - kept, limit }).await?;
        if lines.is_empty() && texts.is_empty() {
            return Ok(0);
        }
        self.submit(ForgetOutdatedPolicies { now, kept, limit }).await
    }

    /// The policy of one version.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn policy(&self, version: &str) -> Result<Option<PolicyRecord>, StoreError> {
        self.ask(GetPolicyByVersion(version.to_owned())).await
    }

    /// All activations, the latest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn policy_history(&self, limit: u32) -> Result<Vec<PolicyRecord>, StoreError> {
        self.ask(ListPolicyHistory { limit }).await
    }
}
