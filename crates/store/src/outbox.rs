//! Messages to people: written in the transaction they report on, delivered at least once.

mod notices;

use serde_json::Value;
use sluice_core::UtcMillis;
use sluice_core::ids::MessageId;

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// The topic of notices: calls that people are notified of without being asked. They are delivered separately.
pub const NOTICE: &str = "call.notify";

/// How urgent a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageSeverity {
    /// For information.
    Info,
    /// A person is asked for something.
    Action,
    /// Something is wrong.
    Warning,
    /// Someone must act now.
    Critical,
}

impl MessageSeverity {
    pub(crate) const ALL: [Self; 4] = [Self::Info, Self::Action, Self::Warning, Self::Critical];

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == word)
    }

    /// The word in rows and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Action => "action",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A message to people. Ids and numbers only: channels render content themselves, from the action.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxMessage {
    /// Its id; a second delivery carries the same one.
    pub id: MessageId,
    /// What it is about: `approval.asked`, `hold.dead`.
    pub topic: String,
    /// How urgent it is.
    pub severity: MessageSeverity,
    /// Ids and numbers.
    pub body: Value,
}

/// A message that waits to be delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct UndeliveredMessage {
    /// The message.
    pub message: OutboxMessage,
    /// Deliveries that failed.
    pub attempts: u32,
    /// Since when it waits.
    pub created_at: UtcMillis,
}

const PUT: &str = "INSERT INTO outbox (id, topic, severity, body, created_at, due_at, attempts) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?5, 0) ON CONFLICT (id) DO NOTHING";
const DUE: &str = "SELECT id, topic, severity, body, attempts, created_at FROM outbox \
     WHERE sent_at IS NULL AND topic <> 'call.notify' AND due_at <= ?1 ORDER BY due_at, id LIMIT ?2";
const IS_PUT: &str = "SELECT id FROM outbox WHERE id = ?1";
const SENT: &str = "UPDATE outbox SET sent_at = ?2 WHERE id = ?1 AND sent_at IS NULL";
const LATER: &str = "UPDATE outbox SET due_at = ?2, attempts = attempts + 1 WHERE id = ?1 AND sent_at IS NULL";

pub(crate) fn put<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, message: &OutboxMessage) {
    put_row(unit, row(message));
}

/// The row of a message, without the time.
pub(crate) fn row(message: &OutboxMessage) -> Vec<SqlValue> {
    params![message.id, message.topic.as_str(), message.severity.as_str(), message.body.to_string()]
}

/// Adds a message to the unit of work, dated now.
pub(crate) fn put_row<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, mut row: Vec<SqlValue>) {
    row.push(unit.now.into());
    unit.write(PUT, row);
}

/// Whether a message with this id was written before.
pub(crate) async fn is_put<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, id: MessageId) -> Result<bool, StoreError> {
    Ok(unit.row(IS_PUT, params![id]).await?.is_some())
}

/// Messages that are due, without notices.
pub(crate) struct ListDueMessages {
    pub now: UtcMillis,
    pub limit: u32,
}

impl StoreQuery for ListDueMessages {
    type Out = Vec<UndeliveredMessage>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(DUE, &params![self.now, self.limit]).await?.into_iter().map(decode).collect()
    }
}

/// The result of a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MarkMessageDelivery {
    Sent(MessageId),
    Again { id: MessageId, at: UtcMillis },
}

impl UseCase for MarkMessageDelivery {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        match *self {
            Self::Sent(id) => unit.write(SENT, params![id, now]),
            Self::Again { id, at } => unit.write(LATER, params![id, at]),
        }
        Ok(())
    }
}

fn decode(row: SqlRow) -> Result<UndeliveredMessage, StoreError> {
    let mut row = row.of("outbox");
    let (id, topic, word, body) = (MessageId::from_bits(row.bits()?), row.text()?, row.text()?, row.text()?);
    let severity = MessageSeverity::from_word(&word).ok_or_else(|| row.impossible("an unknown severity"))?;
    let body = serde_json::from_str(&body).map_err(|_| row.impossible("a body that is not JSON"))?;
    let (attempts, created_at) = (row.count()?, row.time()?);
    Ok(UndeliveredMessage { message: OutboxMessage { id, topic, severity, body }, attempts, created_at })
}

impl Store {
    /// Messages that are due, without notices.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn due_messages(&self, now: UtcMillis, limit: u32) -> Result<Vec<UndeliveredMessage>, StoreError> {
        self.ask(ListDueMessages { now, limit }).await
    }

    /// Records that a message was delivered.
    ///
    /// # Errors
    /// When that cannot be recorded; the message will be delivered again.
    pub async fn mark_delivered(&self, id: MessageId) -> Result<(), StoreError> {
        self.submit(MarkMessageDelivery::Sent(id)).await
    }

    /// Postpones a failed delivery.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn deliver_later(&self, id: MessageId, at: UtcMillis) -> Result<(), StoreError> {
        self.submit(MarkMessageDelivery::Again { id, at }).await
    }
}
