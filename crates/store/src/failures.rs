//! Failures: why the last attempt of a write failed, stored in the transaction that records the failure.
//!
//! Takes our code and the service's message, screened and short; gives both to people who ask why a write retries or is
//! dead. Promise: each write has at most one failure, the newest; a write that was carried out has none.

use sluice_core::hold::Hold;
use sluice_core::{HoldId, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork};

const KEEP: &str = "INSERT INTO hold_failures (hold, attempt, code, service_words, failed_at) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (hold) DO UPDATE SET attempt = excluded.attempt, code = excluded.code, \
     service_words = excluded.service_words, failed_at = excluded.failed_at";
const FORGET: &str = "DELETE FROM hold_failures WHERE hold = ?1";
const OF_HOLD: &str = "SELECT attempt, code, service_words, failed_at FROM hold_failures WHERE hold = ?1";

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The reason, as a stable code.
    pub code: String,
    /// The service's message, screened and short. For people only.
    pub service_words: Option<String>,
    /// When it failed.
    pub failed_at: UtcMillis,
}

/// Stores that an attempt of a write failed.
pub(crate) fn keep<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: &Hold, code: &str, service_words: Option<&str>) {
    let now = unit.now;
    unit.write(KEEP, params![hold.id, hold.attempts, code, service_words, now]);
}

/// Deletes the failure of earlier attempts: the write was carried out.
pub(crate) fn forget<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: &Hold) {
    // Attempts start again at 1 when a person revives a write; the claim counter never does.
    if hold.epoch > 1 {
        unit.write(FORGET, params![hold.id]);
    }
}

struct ListAttemptFailures(Vec<HoldId>);

impl StoreQuery for ListAttemptFailures {
    type Out = Vec<Option<AttemptFailure>>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let questions: Vec<_> = self.0.iter().map(|hold| params![*hold]).collect();
        let mut found = Vec::with_capacity(self.0.len());
        for rows in tx.rows_each(OF_HOLD, &questions).await? {
            found.push(match rows.into_iter().next() {
                None => None,
                Some(row) => {
                    let mut row = row.of("hold_failures");
                    let (attempt, code, service_words) = (row.count()?, row.text()?, row.maybe_text()?);
                    Some(AttemptFailure { attempt, code, service_words, failed_at: row.time()? })
                }
            });
        }
        Ok(found)
    }
}

impl Store {
    /// Why the last attempt of each of these writes failed, in the same order; `None` where none failed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn attempt_failures(&self, holds: Vec<HoldId>) -> Result<Vec<Option<AttemptFailure>>, StoreError> {
        if holds.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(ListAttemptFailures(holds)).await
    }
}
