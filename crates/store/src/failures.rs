//! Failures: why the last attempt of a write failed, kept in the transaction that says that it did.
//!
//! Takes our code and what the service said, screened and short; gives it to people who ask why a write retries or is
//! dead. Promise: there is at most one for each write, the newest, and none for a write that happened.

use sluice_core::hold::Hold;
use sluice_core::{HoldId, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query};
use crate::error::StoreError;
use crate::sql::{Tx, params};

const KEEP: &str = "INSERT INTO hold_failures (hold, attempt, code, service_words, failed_at) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (hold) DO UPDATE SET attempt = excluded.attempt, code = excluded.code, \
     service_words = excluded.service_words, failed_at = excluded.failed_at";
const FORGET: &str = "DELETE FROM hold_failures WHERE hold = ?1";
const OF_HOLD: &str = "SELECT attempt, code, service_words, failed_at FROM hold_failures WHERE hold = ?1";

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// Which attempt, from 1 on.
    pub attempt: u32,
    /// Why, as a stable code.
    pub code: String,
    /// What the service said, screened and short. For people only.
    pub service_words: Option<String>,
    /// When it failed.
    pub failed_at: Timestamp,
}

/// Notes that an attempt of a write failed.
pub(crate) fn keep<T: Tx>(desk: &mut Desk<'_, T>, hold: &Hold, code: &str, service_words: Option<&str>) {
    let now = desk.now;
    desk.write(KEEP, params![hold.id, hold.attempts, code, service_words, now]);
}

/// Forgets why earlier attempts of a write failed: it happened.
pub(crate) fn forget<T: Tx>(desk: &mut Desk<'_, T>, hold: &Hold) {
    // Attempts begin anew when a person revives a write; claims are counted for ever.
    if hold.epoch > 1 {
        desk.write(FORGET, params![hold.id]);
    }
}

struct OfHolds(Vec<HoldId>);

impl Query for OfHolds {
    type Out = Vec<Option<AttemptFailure>>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
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
    /// Why the last attempt of each of these writes failed, in the same order; nothing where none did.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn attempt_failures(&self, holds: Vec<HoldId>) -> Result<Vec<Option<AttemptFailure>>, StoreError> {
        if holds.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(OfHolds(holds)).await
    }
}
