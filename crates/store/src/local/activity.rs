//! The activity of an agent in numbers: what it did and what waits for it.
//!
//! Takes an agent and a time; gives counts. Promise: an agent sees only its own numbers, and they hold no content.

use sluice_core::{AgentName, HoldId, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::StoreQuery;

const WRITES: &str = "SELECT state, CAST(COUNT(*) AS BIGINT) FROM holds WHERE id >= ?1 AND agent = ?2 \
     GROUP BY state ORDER BY state";
const QUESTIONS: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM approvals WHERE agent = ?1 AND state = 'pending'";

/// The numbers of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentActivity {
    /// How many of its writes since then are in each state.
    pub writes: Vec<(String, u64)>,
    /// How many approval requests are open because of it.
    pub questions: u64,
}

struct GetAgentActivity {
    agent: AgentName,
    since: UtcMillis,
}

impl StoreQuery for GetAgentActivity {
    type Out = AgentActivity;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<AgentActivity, StoreError> {
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
    /// What an agent did since then, and what waits for it, in numbers.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn activity_of(&self, agent: AgentName, since: UtcMillis) -> Result<AgentActivity, StoreError> {
        self.ask(GetAgentActivity { agent, since }).await
    }
}
