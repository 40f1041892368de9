//! Results: what an agent is told about a write that was done, stored in the transaction that records it.

use sluice_core::{HoldId, Millis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork};

/// How long a result is available.
const KEPT: Millis = Millis::from_hours(7 * 24);

const KEEP: &str = "INSERT INTO results (hold, body, until) VALUES (?1, ?2, ?3)";
const OF_HOLD: &str = "SELECT body FROM results WHERE hold = ?1";

/// Stores the result for the agent, if there is one.
pub(crate) fn keep<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: HoldId, result: Option<&str>) {
    let until = unit.now + KEPT;
    if let Some(body) = result {
        unit.write(KEEP, params![hold, body, until]);
    }
}

struct GetHoldResult(HoldId);

impl StoreQuery for GetHoldResult {
    type Out = Option<String>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        tx.rows(OF_HOLD, &params![self.0]).await?.into_iter().next().map(|row| row.of("results").text()).transpose()
    }
}

impl Store {
    /// The result of a write for its agent, as JSON, for seven days.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn hold_result(&self, hold: HoldId) -> Result<Option<String>, StoreError> {
        self.ask(GetHoldResult(hold)).await
    }
}
