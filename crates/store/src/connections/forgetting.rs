//! Forgetting the content of a connection that ended: withheld content, rollback points and results of reads.
//!
//! Takes the connection's names; gives how much of each kind was removed. Promise: ids, hashes and states stay, so that
//! the audit log still makes sense; no content stays, neither in the rows nor in the pages they free.

use sluice_core::audit::AuditFact;
use sluice_core::{Actor, ServiceName};

use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{UnitOfWork, UseCase};
use crate::{Engine, Store};

const FINDINGS: &str = "SELECT id FROM findings WHERE (service = ?1 OR service = ?2) AND root <> ''";
const EMPTY_FINDING: &str =
    "UPDATE findings SET root = '', wrapped = ?2, sealed = ?2, author = '', source = '' WHERE id = ?1";
const POINTS: &str = "SELECT r.id FROM rollback_points r JOIN holds h ON h.id = r.hold \
     WHERE h.service = ?1 AND (length(r.content) > 0 OR r.state = 'sealed')";
const EMPTY_POINT: &str = "UPDATE rollback_points SET content = ?2 WHERE id = ?1";
const END_POINT: &str = "UPDATE rollback_points SET state = 'expired', version = version + 1, after_print = NULL, \
     until = NULL, ended_at = ?2 WHERE id = ?1 AND state = 'sealed'";
const RESULTS: &str = "SELECT r.hold FROM results r JOIN holds h ON h.id = r.hold WHERE h.service = ?1";
const DROP_RESULT: &str = "DELETE FROM results WHERE hold = ?1";

/// How much content of a connection was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForgottenContent {
    /// Findings whose content was destroyed.
    pub findings: u64,
    /// Rollback points whose content was destroyed: these writes can no longer be rolled back.
    pub rollback_points: u64,
    /// Results of calls that were still kept.
    pub results: u64,
}

struct ForgetConnectionContent {
    connection: ServiceName,
    service: ServiceName,
    by: Actor,
}

impl UseCase for ForgetConnectionContent {
    type Out = ForgottenContent;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ForgottenContent, StoreError> {
        let findings = unit.rows(FINDINGS, params![&self.connection, &self.service]).await?;
        let points = unit.rows(POINTS, params![&self.service]).await?;
        let results = unit.rows(RESULTS, params![&self.service]).await?;
        let forgotten = ForgottenContent {
            findings: findings.len() as u64,
            rollback_points: points.len() as u64,
            results: results.len() as u64,
        };
        if forgotten == ForgottenContent::default() {
            return Ok(forgotten);
        }
        let (now, nothing) = (unit.now, Vec::<u8>::new());
        for row in findings {
            unit.write(EMPTY_FINDING, params![row.of("findings").bits()?, nothing.as_slice()]);
        }
        for row in points {
            let id = row.of("rollback_points").bits()?;
            unit.write(EMPTY_POINT, params![id, nothing.as_slice()]);
            unit.write(END_POINT, params![id, now]);
        }
        for row in results {
            unit.write(DROP_RESULT, params![row.of("results").bits()?]);
        }
        let fact = AuditFact::new("connection.content_removed", self.by.clone())
            .with("connection", &self.connection)
            .with("findings", forgotten.findings)
            .with("rollback_points", forgotten.rollback_points)
            .with("results", forgotten.results);
        unit.record(fact);
        Ok(forgotten)
    }
}

impl Store {
    /// Removes the content of a connection that ended. A second run removes what was added since.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub async fn forget_content(
        &self,
        connection: ServiceName,
        service: ServiceName,
        by: Actor,
    ) -> Result<ForgottenContent, StoreError> {
        let forgotten = self.submit(ForgetConnectionContent { connection, service, by }).await?;
        self.empty_log().await?;
        Ok(forgotten)
    }

    /// Moves the write-ahead log of a file into it and empties it: it holds older versions of pages.
    async fn empty_log(&self) -> Result<(), StoreError> {
        match self.engine.as_ref() {
            Engine::File(file) => file.empty_log(),
            Engine::Inline { .. } | Engine::ReadOnly(_) | Engine::Server { .. } => Ok(()),
        }
    }
}
