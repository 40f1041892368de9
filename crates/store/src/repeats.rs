//! Calls made again: which call an agent's own key names.
//!
//! Takes the agent, its key and what is asked; gives the first call. Promise: a key names one call of one agent, to the
//! byte, as long as it is remembered; anything else is a new call.

use sluice_core::{AgentName, CallId, Digest, HoldId, Timestamp};

use crate::Store;
use crate::desk::Query;
use crate::error::StoreError;
use crate::sql::{Tx, params};

const NAMED: &str =
    "SELECT call, hold FROM idempotency WHERE agent = ?1 AND name = ?2 AND digest = ?3 AND expires_at > ?4";

struct Named {
    agent: AgentName,
    key: String,
    digest: Digest,
    now: Timestamp,
}

impl Query for Named {
    type Out = Option<(CallId, HoldId)>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let params = params![&self.agent, self.key.as_str(), self.digest, self.now];
        let Some(row) = tx.rows(NAMED, &params).await?.into_iter().next() else { return Ok(None) };
        let mut row = row.of("idempotency");
        Ok(Some((CallId::from_bits(row.bits()?), HoldId::from_bits(row.bits()?))))
    }
}

impl Store {
    /// The call an agent made under this key, if it asked for exactly this.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn call_named(
        &self,
        agent: AgentName,
        key: String,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(CallId, HoldId)>, StoreError> {
        self.ask(Named { agent, key, digest, now }).await
    }
}
