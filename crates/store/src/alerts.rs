//! Alerts: messages to people as people look at them, and who has seen to which.
//!
//! Promise: an agent can raise an alert, and can take back nobody's but its own.

use serde_json::Value;
use sluice_core::audit::Fact;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Row, Tx, params};

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, topic, severity, body, created_at, sent_by, acked_by, acked_at FROM outbox ", $rest)
    };
}

const ONE: &str = select!("WHERE id = ?1 /*lock*/");
const PAGE: &str = select!(
    "WHERE id < ?1 AND (acked_at IS NULL OR CAST(?2 AS BIGINT) = 0) AND ?3 LIKE '%,' || severity || ',%' \
     AND COALESCE(sent_by, '') = COALESCE(?4, sent_by, '') ORDER BY id DESC LIMIT ?5"
);
const SENT_BY: &str = "UPDATE outbox SET sent_by = ?2 WHERE id = ?1 AND sent_by IS NULL";
const ACKNOWLEDGE: &str = "UPDATE outbox SET acked_by = ?2, acked_at = ?3 WHERE id = ?1";

/// A message to people, with what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// The message.
    pub message: Message,
    /// Since when.
    pub created_at: Timestamp,
    /// Who sent it; nobody where a gateway did by itself.
    pub sent_by: Option<Actor>,
    /// Who has seen to it, and when.
    pub acknowledged: Option<(Actor, Timestamp)>,
}

/// Which alerts are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertFilter {
    /// Only those nobody has seen to.
    pub open_only: bool,
    /// Only those at least this loud.
    pub severity_at_least: Severity,
    /// Only those this agent sent.
    pub agent: Option<AgentName>,
}

impl Default for AlertFilter {
    /// All there are.
    fn default() -> Self {
        Self { open_only: false, severity_at_least: Severity::Info, agent: None }
    }
}

struct Raise {
    message: Message,
    by: Actor,
}

impl UseCase for Raise {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let Self { message, by } = self;
        if desk.row(ONE, params![message.id]).await?.is_some() {
            return Ok(());
        }
        outbox::put(desk, message);
        desk.write(SENT_BY, params![message.id, by]);
        let fact = Fact::new("alert.sent", by.clone()).with("message", message.id);
        desk.record(fact.with("severity", message.severity.as_str()));
        Ok(())
    }
}

struct Acknowledge {
    id: MessageId,
    by: Actor,
}

impl UseCase for Acknowledge {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let missing = || StoreError::NotFound { what: "alert" };
        let alert = desk.row(ONE, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        // SECURITY: what an agent did must not be hidden by the agent. To it, others' alerts do not exist.
        if matches!(self.by, Actor::Agent(_)) && alert.sent_by.as_ref() != Some(&self.by) {
            return Err(missing());
        }
        if alert.acknowledged.is_none() {
            let now = desk.now;
            desk.write(ACKNOWLEDGE, params![self.id, &self.by, now]);
            desk.record(Fact::new("alert.acknowledged", self.by.clone()).with("message", self.id));
        }
        Ok(())
    }
}

struct Page {
    filter: AlertFilter,
    after: Option<MessageId>,
    limit: u32,
}

impl Query for Page {
    type Out = Vec<Alert>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Alert>, StoreError> {
        let AlertFilter { open_only, severity_at_least, agent } = &self.filter;
        let before = self.after.map_or(u128::MAX, MessageId::bits);
        let loud = Severity::ALL.into_iter().skip_while(|severity| severity != severity_at_least);
        let words: String = loud.map(|severity| format!(",{},", severity.as_str())).collect();
        let sender = agent.clone().map(|name| Actor::Agent(name).to_string());
        let params = params![before, u32::from(*open_only), words, sender, self.limit];
        tx.rows(PAGE, &params).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: Row) -> Result<Alert, StoreError> {
    let mut row = row.of("outbox");
    let (id, topic, word, body) = (MessageId::from_bits(row.bits()?), row.text()?, row.text()?, row.text()?);
    let severity = Severity::from_word(&word).ok_or_else(|| row.impossible("an unknown severity"))?;
    let body: Value = serde_json::from_str(&body).map_err(|_| row.impossible("a body that is not JSON"))?;
    let (created_at, sent_by) = (row.time()?, row.maybe_parsed()?);
    let acknowledged = match (row.maybe_parsed()?, row.maybe_time()?) {
        (Some(by), Some(at)) => Some((by, at)),
        (None, None) => None,
        _ => return Err(row.impossible("half an acknowledgement")),
    };
    Ok(Alert { message: Message { id, topic, severity, body }, created_at, sent_by, acknowledged })
}

impl Store {
    /// Tells people something. The same message again is the same alert.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn alert(&self, message: Message, by: Actor) -> Result<(), StoreError> {
        self.submit(Raise { message, by }).await
    }

    /// Messages to people, newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn alerts(
        &self,
        filter: AlertFilter,
        after: Option<MessageId>,
        limit: u32,
    ) -> Result<Vec<Alert>, StoreError> {
        self.ask(Page { filter, after, limit }).await
    }

    /// Notes who has seen to an alert. The first one counts. An agent can do that with its own only.
    ///
    /// # Errors
    /// When there is no such alert for this caller.
    pub async fn acknowledge(&self, id: MessageId, by: Actor) -> Result<(), StoreError> {
        self.submit(Acknowledge { id, by }).await
    }
}
