//! Results: what an agent is told of a write that happened, kept in the transaction that says so.

use sluice_core::{HoldId, Span};

use crate::Store;
use crate::desk::{Desk, Query};
use crate::error::StoreError;
use crate::sql::{Tx, params};

/// How long a result can be asked for.
const KEPT: Span = Span::from_hours(7 * 24);

const KEEP: &str = "INSERT INTO results (hold, body, until) VALUES (?1, ?2, ?3)";
const OF_HOLD: &str = "SELECT body FROM results WHERE hold = ?1";

/// Keeps what the agent is told, if it is told anything.
pub(crate) fn keep<T: Tx>(desk: &mut Desk<'_, T>, hold: HoldId, result: Option<&str>) {
    let until = desk.now + KEPT;
    if let Some(body) = result {
        desk.write(KEEP, params![hold, body, until]);
    }
}

struct OfHold(HoldId);

impl Query for OfHold {
    type Out = Option<String>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        tx.rows(OF_HOLD, &params![self.0]).await?.into_iter().next().map(|row| row.of("results").text()).transpose()
    }
}

impl Store {
    /// What the agent is told of a write that happened, as JSON, for seven days.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn result(&self, hold: HoldId) -> Result<Option<String>, StoreError> {
        self.ask(OfHold(hold)).await
    }
}
