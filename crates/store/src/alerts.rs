//! Alerts: messages to people as people see them, and who acknowledged which.
//!
//! Promise: an agent can raise an alert, and can acknowledge only its own.

use serde_json::Value;
use sluice_core::audit::AuditFact;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// A message to people, with its state.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAlert {
    /// The message.
    pub message: OutboxMessage,
    /// When it was sent.
    pub created_at: UtcMillis,
    /// Who sent it; `None` for the gateway itself.
    pub sent_by: Option<Actor>,
    /// Who acknowledged it, and when.
    pub acknowledged: Option<(Actor, UtcMillis)>,
}

/// Which alerts to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertFilter {
    /// Only those that nobody has acknowledged.
    pub open_only: bool,
    /// Only those with at least this severity.
    pub severity_at_least: MessageSeverity,
    /// Only those this agent sent.
    pub agent: Option<AgentName>,
}

impl Default for AlertFilter {
    /// All alerts.
    fn default() -> Self {
        Self { open_only: false, severity_at_least: MessageSeverity::Info, agent: None }
    }
}

struct RaiseAlert {
    message: OutboxMessage,
    by: Actor,
}

impl UseCase for RaiseAlert {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let Self { message, by } = self;
        if unit.row(ONE, params![message.id]).await?.is_some() {
            return Ok(());
        }
        outbox::put(unit, message);
        unit.write(SENT_BY, params![message.id, by]);
        let fact = AuditFact::new("alert.sent", by.clone()).with("message", message.id);
        unit.record(fact.with("severity", message.severity.as_str()));
        Ok(())
    }
}

struct AcknowledgeAlert {
    id: MessageId,
    by: Actor,
}

impl UseCase for AcknowledgeAlert {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let missing = || StoreError::NotFound { what: "alert" };
        let alert = unit.row(ONE, params![self.id]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        // SECURITY: an agent must not hide what it did. For it, the alerts of others do not exist.
        if matches!(self.by, Actor::Agent(_)) && alert.sent_by.as_ref() != Some(&self.by) {
            return Err(missing());
        }
        if alert.acknowledged.is_none() {
            let now = unit.now;
            unit.write(ACKNOWLEDGE, params![self.id, &self.by, now]);
            unit.record(AuditFact::new("alert.acknowledged", self.by.clone()).with("message", self.id));
        }
        Ok(())
    }
}

struct ListAlerts {
    filter: AlertFilter,
    after: Option<MessageId>,
    limit: u32,
}

impl StoreQuery for ListAlerts {
    type Out = Vec<StoredAlert>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<StoredAlert>, StoreError> {
        let AlertFilter { open_only, severity_at_least, agent } = &self.filter;
        let before = self.after.map_or(u128::MAX, MessageId::bits);
        let loud = MessageSeverity::ALL.into_iter().skip_while(|severity| severity != severity_at_least);
        let words: String = loud.map(|severity| format!(",{},", severity.as_str())).collect();
        let sender = agent.clone().map(|name| Actor::Agent(name).to_string());
        let params = params![before, u32::from(*open_only), words, sender, self.limit];
        tx.rows(PAGE, &params).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: SqlRow) -> Result<StoredAlert, StoreError> {
    let mut row = row.of("outbox");
    let (id, topic, word, body) = (MessageId::from_bits(row.bits()?), row.text()?, row.text()?, row.text()?);
    let severity = MessageSeverity::from_word(&word).ok_or_else(|| row.impossible("an unknown severity"))?;
    let body: Value = serde_json::from_str(&body).map_err(|_| row.impossible("a body that is not JSON"))?;
    let (created_at, sent_by) = (row.time()?, row.maybe_parsed()?);
    let acknowledged = match (row.maybe_parsed()?, row.maybe_time()?) {
        (Some(by), Some(at)) => Some((by, at)),
        (None, None) => None,
        _ => return Err(row.impossible("half an acknowledgement")),
    };
    Ok(StoredAlert { message: OutboxMessage { id, topic, severity, body }, created_at, sent_by, acknowledged })
}

impl Store {
    /// Sends an alert to people. The same message again is the same alert.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn alert(&self, message: OutboxMessage, by: Actor) -> Result<(), StoreError> {
        self.submit(RaiseAlert { message, by }).await
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
    ) -> Result<Vec<StoredAlert>, StoreError> {
        self.ask(ListAlerts { filter, after, limit }).await
    }

    /// Records who acknowledged an alert. The first acknowledgement counts. An agent can acknowledge only its own
    /// alerts.
    ///
    /// # Errors
    /// When there is no such alert for this caller.
    pub async fn acknowledge(&self, id: MessageId, by: Actor) -> Result<(), StoreError> {
        self.submit(AcknowledgeAlert { id, by }).await
    }
}
