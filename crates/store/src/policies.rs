//! The rules that were in force: kept so that every decision can be explained by the text that made it.
//!
//! Takes each coming into force; gives texts by version, and the history. Promise: rules that come back are a new line
//! of the history, and the old one stays.

use sluice_core::audit::Fact;
use sluice_core::{Actor, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Tx, params};

const KEEP: &str = "INSERT INTO policies (version, sources, loaded_by, loaded_at) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (version) DO UPDATE SET loaded_by = excluded.loaded_by, loaded_at = excluded.loaded_at";
const BY_VERSION: &str = "SELECT version, sources, loaded_by, loaded_at FROM policies WHERE version = ?1";
const ACTIVATED: &str = "INSERT INTO policy_activations (node, number, version, loaded_by, loaded_at) VALUES (?1, \
     (SELECT COALESCE(MAX(number), 0) + 1 FROM policy_activations WHERE node = ?1), ?2, ?3, ?4)";
const HISTORY: &str = "SELECT a.version, p.sources, a.loaded_by, a.loaded_at FROM policy_activations a \
     JOIN policies p ON p.version = a.version ORDER BY a.loaded_at DESC, a.number DESC LIMIT ?1";

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
    pub at: Timestamp,
}

/// Writes down that these rules are in force from now on.
pub(crate) struct InForce {
    pub version: String,
    pub sources: String,
    pub by: Actor,
}

impl UseCase for InForce {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        desk.write(KEEP, params![self.version.as_str(), self.sources.as_str(), &self.by, now]);
        desk.write(ACTIVATED, params![desk.node, self.version.as_str(), &self.by, now]);
        let mut fact = Fact::new("policy.loaded", self.by.clone());
        fact.policy = Some(self.version.clone());
        desk.record(fact);
        Ok(())
    }
}

/// The rules of one version.
pub(crate) struct ByVersion(pub String);

impl Query for ByVersion {
    type Out = Option<PolicyRecord>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(BY_VERSION, &params![self.0.as_str()]).await?.into_iter().next().map(decode).transpose()
    }
}

/// Each time rules came into force, the latest first.
pub(crate) struct History {
    pub limit: u32,
}

impl Query for History {
    type Out = Vec<PolicyRecord>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(HISTORY, &params![self.limit]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: crate::sql::Row) -> Result<PolicyRecord, StoreError> {
    let mut row = row.of("policies");
    Ok(PolicyRecord { version: row.text()?, sources: row.text()?, by: row.parsed()?, at: row.time()? })
}

impl Store {
    /// Writes down the rules that are in force from now on.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn policy_loaded(&self, version: String, sources: String, by: Actor) -> Result<(), StoreError> {
        self.submit(InForce { version, sources, by }).await
    }

    /// The rules of one version.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn policy(&self, version: &str) -> Result<Option<PolicyRecord>, StoreError> {
        self.ask(ByVersion(version.to_owned())).await
    }

    /// Each time rules came into force, the latest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn policy_history(&self, limit: u32) -> Result<Vec<PolicyRecord>, StoreError> {
        self.ask(History { limit }).await
    }
}
