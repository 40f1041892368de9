//! What an agent did and what waits for it, in numbers.
//!
//! Takes an agent and a time; gives counts. Promise: an agent's numbers are its own, and hold nothing of what it did.

use sluice_core::{AgentName, HoldId, Timestamp};

use crate::Store;
use crate::desk::Query;
use crate::error::StoreError;
use crate::sql::{Tx, params};

const WRITES: &str = "SELECT state, CAST(COUNT(*) AS BIGINT) FROM holds WHERE id >= ?1 AND agent = ?2 \
     GROUP BY state ORDER BY state";
const QUESTIONS: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM approvals WHERE agent = ?1 AND state = 'pending'";

/// The numbers of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentActivity {
    /// How many of its writes since then are in which state.
    pub writes: Vec<(String, u64)>,
    /// How many questions to people are open because of it.
    pub questions: u64,
}

struct Activity {
    agent: AgentName,
    since: Timestamp,
}

impl Query for Activity {
    type Out = AgentActivity;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<AgentActivity, StoreError> {
        // Ids begin with their time in milliseconds.
        let millis = u128::try_from(self.since.as_millis()).unwrap_or(0);
        let least = HoldId::from_bits(millis << 80);
        let mut activity = AgentActivity::default();
        for row in tx.rows(WRITES, &params![least, &self.agent]).await? {
            let mut row = row.of("holds");
            activity.writes.push((row.text()?, row.count()?));
        }
        let questions = tx.rows(QUESTIONS, &params![&self.agent]).await?.into_iter().next();
        activity.questions = questions.map_or(Ok(0), |row| row.of("approvals").count())?;
        Ok(activity)
    }
}

impl Store {
    /// What an agent did since then, and what it waits for, in numbers.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn activity_of(&self, agent: AgentName, since: Timestamp) -> Result<AgentActivity, StoreError> {
        self.ask(Activity { agent, since }).await
    }
}
