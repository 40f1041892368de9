//! Notices: messages about calls that needed no approval. They wait in the outbox, apart from urgent messages.
//!
//! Takes a time; gives the notices that wait. Promise: a notice is marked as delivered only when the caller says so.

use sluice_core::UtcMillis;
use sluice_core::ids::MessageId;

use super::{UndeliveredMessage, decode};
use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// Notices that were not delivered one by one yet. The topic is that of [`crate::NOTICE`].
const UNTOLD: &str = "SELECT id, topic, severity, body, attempts, created_at FROM outbox \
     WHERE sent_at IS NULL AND topic = 'call.notify' AND attempts = 0 AND due_at <= ?1 ORDER BY created_at, id LIMIT ?2";
const BEFORE: &str = "SELECT id, topic, severity, body, attempts, created_at FROM outbox \
     WHERE sent_at IS NULL AND topic = 'call.notify' AND created_at < ?1 ORDER BY created_at, id LIMIT ?2";
const PUT_OFF: &str = "UPDATE outbox SET due_at = ?2 WHERE id = ?1 AND sent_at IS NULL";
const SENT: &str = "UPDATE outbox SET sent_at = ?2 WHERE id = ?1 AND sent_at IS NULL";

struct ListUndeliveredNotices(&'static str, Vec<SqlValue>);

impl StoreQuery for ListUndeliveredNotices {
    type Out = Vec<UndeliveredMessage>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(self.0, &self.1).await?.into_iter().map(decode).collect()
    }
}

enum MarkNotices {
    Later(MessageId, UtcMillis),
    Delivered(Vec<MessageId>),
}

impl UseCase for MarkNotices {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        match self {
            Self::Later(id, at) => unit.write(PUT_OFF, params![*id, *at]),
            Self::Delivered(ids) => ids.iter().for_each(|id| unit.write(SENT, params![*id, now])),
        }
        Ok(())
    }
}

impl Store {
    /// Notices that were not delivered one by one yet, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn untold_notices(&self, now: UtcMillis, limit: u32) -> Result<Vec<UndeliveredMessage>, StoreError> {
        self.ask(ListUndeliveredNotices(UNTOLD, params![now, limit])).await
    }

    /// Notices older than a time that are not delivered, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn notices_before(&self, moment: UtcMillis, limit: u32) -> Result<Vec<UndeliveredMessage>, StoreError> {
        self.ask(ListUndeliveredNotices(BEFORE, params![moment, limit])).await
    }

    /// Postpones a notice, because the call it is about has not ended.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn put_off_notice(&self, id: MessageId, at: UtcMillis) -> Result<(), StoreError> {
        self.submit(MarkNotices::Later(id, at)).await
    }

    /// Records that notices were delivered to everyone who wants them.
    ///
    /// # Errors
    /// When that cannot be recorded; they will be delivered again.
    pub async fn mark_notices_delivered(&self, ids: Vec<MessageId>) -> Result<(), StoreError> {
        self.submit(MarkNotices::Delivered(ids)).await
    }
}
