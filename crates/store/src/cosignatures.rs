//! Cosignatures of witnesses: the lines they answered with, and proofs that a log only grew.

use sluice_core::NodeName;
use sluice_core::audit::AuditHash;
use sluice_core::audit::tree;

use crate::Store;
use crate::audit::{NewTreeHashes, build_proof};
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const LAST: &str = "SELECT size, line FROM cosignatures WHERE log = ?1 AND witness = ?2 ORDER BY size DESC LIMIT 1";
const KEEP: &str = "INSERT INTO cosignatures (log, witness, size, line, received_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (log, witness, size) DO NOTHING";
const OVER: &str = "SELECT line FROM cosignatures WHERE log = ?1 AND size = ?2 ORDER BY witness";

/// The largest size of a log that a witness has cosigned.
struct GetCosignedSize {
    log: NodeName,
    witness: String,
}

impl StoreQuery for GetCosignedSize {
    type Out = Option<u64>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<u64>, StoreError> {
        let found = tx.rows(LAST, &params![&self.log, self.witness.as_str()]).await?.into_iter().next();
        found.map(|row| row.of("cosignatures").count()).transpose()
    }
}

/// Every cosignature of one checkpoint.
struct ListCosignatures {
    log: NodeName,
    size: u64,
}

impl StoreQuery for ListCosignatures {
    type Out = Vec<String>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<String>, StoreError> {
        let found = tx.rows(OVER, &params![&self.log, self.size]).await?;
        found.into_iter().map(|row| row.of("cosignatures").text()).collect()
    }
}

struct KeepCosignature {
    log: NodeName,
    witness: String,
    size: u64,
    line: String,
}

impl UseCase for KeepCosignature {
    type Out = ();
    /// Writes no audit entry: it is about the audit log, and would need a cosignature itself.
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        unit.write(KEEP, params![&self.log, self.witness.as_str(), self.size, self.line.as_str(), now]);
        Ok(())
    }
}

/// The proof that a log of the newer size begins with that of the older one. Both must be signed.
struct ProveConsistency {
    log: NodeName,
    older: u64,
    newer: u64,
}

impl StoreQuery for ProveConsistency {
    type Out = Vec<AuditHash>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<AuditHash>, StoreError> {
        let fresh = NewTreeHashes { from: 0, leaves: &[], inner: &[] };
        build_proof(tx, &self.log, &fresh, |nodes| tree::consistency_proof(nodes, self.older, self.newer)).await
    }
}

impl Store {
    /// The largest size of a log that a witness has cosigned.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn cosigned(&self, log: NodeName, witness: String) -> Result<Option<u64>, StoreError> {
        self.ask(GetCosignedSize { log, witness }).await
    }

    /// The cosignatures under one checkpoint, as lines of its note.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn cosignatures(&self, log: NodeName, size: u64) -> Result<Vec<String>, StoreError> {
        self.ask(ListCosignatures { log, size }).await
    }

    /// Keeps a cosignature that was checked.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn keep_cosignature(
        &self,
        log: NodeName,
        witness: String,
        size: u64,
        line: String,
    ) -> Result<(), StoreError> {
        self.submit(KeepCosignature { log, witness, size, line }).await
    }

    /// The RFC 6962 proof that a log of `newer` entries begins with its first `older` ones; `newer` must be signed.
    ///
    /// # Errors
    /// When the database cannot be read, or `older` is larger.
    pub async fn consistency(&self, log: NodeName, older: u64, newer: u64) -> Result<Vec<AuditHash>, StoreError> {
        self.ask(ProveConsistency { log, older, newer }).await
    }
}
