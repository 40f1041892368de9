//! Repeated calls: which call an agent's own key names.
//!
//! Takes the agent, its key and the arguments; gives the first call. Promise: a key names one call of one agent, byte
//! for byte, as long as it is remembered; anything else is a new call.

use sluice_core::{AgentName, CallId, Digest, HoldId, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::StoreQuery;

const NAMED: &str =
    "SELECT call, hold FROM idempotency WHERE agent = ?1 AND name = ?2 AND digest = ?3 AND expires_at > ?4";

struct FindCallByKey {
    agent: AgentName,
    key: String,
    digest: Digest,
    now: UtcMillis,
}

impl StoreQuery for FindCallByKey {
    type Out = Option<(CallId, HoldId)>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let params = params![&self.agent, self.key.as_str(), self.digest, self.now];
        let Some(row) = tx.rows(NAMED, &params).await?.into_iter().next() else { return Ok(None) };
        let mut row = row.of("idempotency");
        Ok(Some((CallId::from_bits(row.bits()?), HoldId::from_bits(row.bits()?))))
    }
}

impl Store {
    /// The call an agent made with this key, if its arguments were exactly these.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn find_call_by_key(
        &self,
        agent: AgentName,
        key: String,
        digest: Digest,
        now: UtcMillis,
    ) -> Result<Option<(CallId, HoldId)>, StoreError> {
        self.ask(FindCallByKey { agent, key, digest, now }).await
    }
}
