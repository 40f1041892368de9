//! Messages to people: written in the transaction of what they tell, delivered at least once.

mod notices;

use serde_json::Value;
use sluice_core::Timestamp;
use sluice_core::ids::MessageId;

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, Val, params};

/// The topic of notices: calls that people are told about and not asked. They are delivered apart from the rest.
pub const NOTICE: &str = "call.notify";

/// How loudly a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Someone is asked something.
    Action,
    /// Something is wrong.
    Warning,
    /// Someone must act now.
    Critical,
}

impl Severity {
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
pub struct Message {
    /// Its id; a second delivery carries the same one.
    pub id: MessageId,
    /// What it is about: `approval.asked`, `hold.dead`.
    pub topic: String,
    /// How loudly.
    pub severity: Severity,
    /// Ids and numbers.
    pub body: Value,
}

/// A message that waits to be delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Undelivered {
    /// The message.
    pub message: Message,
    /// Deliveries that failed.
    pub attempts: u32,
    /// Since when it waits.
    pub created_at: Timestamp,
}

const PUT: &str = "INSERT INTO outbox (id, topic, severity, body, created_at, due_at, attempts) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?5, 0) ON CONFLICT (id) DO NOTHING";
const DUE: &str = "SELECT id, topic, severity, body, attempts, created_at FROM outbox \
     WHERE sent_at IS NULL AND topic <> 'call.notify' AND due_at <= ?1 ORDER BY due_at, id LIMIT ?2";
const IS_PUT: &str = "SELECT id FROM outbox WHERE id = ?1";
const SENT: &str = "UPDATE outbox SET sent_at = ?2 WHERE id = ?1 AND sent_at IS NULL";
const LATER: &str = "UPDATE outbox SET due_at = ?2, attempts = attempts + 1 WHERE id = ?1 AND sent_at IS NULL";

pub(crate) fn put<T: Tx>(desk: &mut Desk<'_, T>, message: &Message) {
    put_row(desk, row(message));
}

/// A message as its row, but for the time.
pub(crate) fn row(message: &Message) -> Vec<Val> {
    params![message.id, message.topic.as_str(), message.severity.as_str(), message.body.to_string()]
}

/// Leaves a message on the desk, dated now.
pub(crate) fn put_row<T: Tx>(desk: &mut Desk<'_, T>, mut row: Vec<Val>) {
    row.push(desk.now.into());
    desk.write(PUT, row);
}

/// Whether a message of this id was written before.
pub(crate) async fn is_put<T: Tx>(desk: &mut Desk<'_, T>, id: MessageId) -> Result<bool, StoreError> {
    Ok(desk.row(IS_PUT, params![id]).await?.is_some())
}

/// Messages whose time has come, notices left out.
pub(crate) struct Due {
    pub now: Timestamp,
    pub limit: u32,
}

impl Query for Due {
    type Out = Vec<Undelivered>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(DUE, &params![self.now, self.limit]).await?.into_iter().map(decode).collect()
    }
}

/// How a delivery went.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delivery {
    Sent(MessageId),
    Again { id: MessageId, at: Timestamp },
}

impl UseCase for Delivery {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        match *self {
            Self::Sent(id) => desk.write(SENT, params![id, now]),
            Self::Again { id, at } => desk.write(LATER, params![id, at]),
        }
        Ok(())
    }
}

fn decode(row: Row) -> Result<Undelivered, StoreError> {
    let mut row = row.of("outbox");
    let (id, topic, word, body) = (MessageId::from_bits(row.bits()?), row.text()?, row.text()?, row.text()?);
    let severity = Severity::from_word(&word).ok_or_else(|| row.impossible("an unknown severity"))?;
    let body = serde_json::from_str(&body).map_err(|_| row.impossible("a body that is not JSON"))?;
    let (attempts, created_at) = (row.count()?, row.time()?);
    Ok(Undelivered { message: Message { id, topic, severity, body }, attempts, created_at })
}

impl Store {
    /// Messages whose time has come, notices left out.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn outbox(&self, now: Timestamp, limit: u32) -> Result<Vec<Undelivered>, StoreError> {
        self.ask(Due { now, limit }).await
    }

    /// Records that a message was delivered.
    ///
    /// # Errors
    /// When that cannot be recorded; the message will be delivered again.
    pub async fn delivered(&self, id: MessageId) -> Result<(), StoreError> {
        self.submit(Delivery::Sent(id)).await
    }

    /// Puts a failed delivery off.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn deliver_later(&self, id: MessageId, at: Timestamp) -> Result<(), StoreError> {
        self.submit(Delivery::Again { id, at }).await
    }
}
