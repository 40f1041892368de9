//! Forgetting the content of a connection that ended: what was withheld, what was kept to go back, what reads gave.
//!
//! Takes the connection's names; gives how much of each kind went. Promise: ids, hashes and states stay, so that the
//! record still makes sense; nothing of the content does, neither in the rows nor in the pages they leave free.

use sluice_core::audit::Fact;
use sluice_core::{Actor, ServiceName};

use crate::desk::{Desk, UseCase};
use crate::error::StoreError;
use crate::sql::{Tx, params};
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
    /// Rollback points whose content was destroyed: these writes cannot be taken back any more.
    pub rollback_points: u64,
    /// Answers of calls that were still kept.
    pub results: u64,
}

struct Forget {
    connection: ServiceName,
    service: ServiceName,
    by: Actor,
}

impl UseCase for Forget {
    type Out = ForgottenContent;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<ForgottenContent, StoreError> {
        let findings = desk.rows(FINDINGS, params![&self.connection, &self.service]).await?;
        let points = desk.rows(POINTS, params![&self.service]).await?;
        let results = desk.rows(RESULTS, params![&self.service]).await?;
        let forgotten = ForgottenContent {
            findings: findings.len() as u64,
            rollback_points: points.len() as u64,
            results: results.len() as u64,
        };
        if forgotten == ForgottenContent::default() {
            return Ok(forgotten);
        }
        let (now, nothing) = (desk.now, Vec::<u8>::new());
        for row in findings {
            desk.write(EMPTY_FINDING, params![row.of("findings").bits()?, nothing.as_slice()]);
        }
        for row in points {
            let id = row.of("rollback_points").bits()?;
            desk.write(EMPTY_POINT, params![id, nothing.as_slice()]);
            desk.write(END_POINT, params![id, now]);
        }
        for row in results {
            desk.write(DROP_RESULT, params![row.of("results").bits()?]);
        }
        let fact = Fact::new("connection.content_removed", self.by.clone())
            .with("connection", &self.connection)
            .with("findings", forgotten.findings)
            .with("rollback_points", forgotten.rollback_points)
            .with("results", forgotten.results);
        desk.record(fact);
        Ok(forgotten)
    }
}

impl Store {
    /// Removes the content of a connection that ended. Doing it again removes what came since.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub async fn forget_content(
        &self,
        connection: ServiceName,
        service: ServiceName,
        by: Actor,
    ) -> Result<ForgottenContent, StoreError> {
        let forgotten = self.submit(Forget { connection, service, by }).await?;
        self.empty_log().await?;
        Ok(forgotten)
    }

    /// Moves the write-ahead log of a file into it and empties it: it holds pages as they were before.
    async fn empty_log(&self) -> Result<(), StoreError> {
        match self.engine.as_ref() {
            Engine::File(file) => file.empty_log(),
            Engine::Inline { .. } | Engine::ReadOnly(_) | Engine::Server { .. } => Ok(()),
        }
    }
}
