//! Notices: what people are told about calls that needed no approval. They wait in the outbox, apart from what is urgent.
//!
//! Takes a moment; gives the notices that wait. Promise: a notice is marked as delivered only after somebody says so.

use sluice_core::Timestamp;
use sluice_core::ids::MessageId;

use super::{Undelivered, decode};
use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Tx, Val, params};

/// Notices nobody has been told yet, one by one. The topic is that of [`crate::NOTICE`].
const UNTOLD: &str = "SELECT id, topic, severity, body, attempts, created_at FROM outbox \
     WHERE sent_at IS NULL AND topic = 'call.notify' AND attempts = 0 AND due_at <= ?1 ORDER BY created_at, id LIMIT ?2";
const BEFORE: &str = "SELECT id, topic, severity, body, attempts, created_at FROM outbox \
     WHERE sent_at IS NULL AND topic = 'call.notify' AND created_at < ?1 ORDER BY created_at, id LIMIT ?2";
const PUT_OFF: &str = "UPDATE outbox SET due_at = ?2 WHERE id = ?1 AND sent_at IS NULL";
const SENT: &str = "UPDATE outbox SET sent_at = ?2 WHERE id = ?1 AND sent_at IS NULL";

struct Waiting(&'static str, Vec<Val>);

impl Query for Waiting {
    type Out = Vec<Undelivered>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(self.0, &self.1).await?.into_iter().map(decode).collect()
    }
}

enum Mark {
    Later(MessageId, Timestamp),
    Delivered(Vec<MessageId>),
}

impl UseCase for Mark {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        match self {
            Self::Later(id, at) => desk.write(PUT_OFF, params![*id, *at]),
            Self::Delivered(ids) => ids.iter().for_each(|id| desk.write(SENT, params![*id, now])),
        }
        Ok(())
    }
}

impl Store {
    /// Notices that were told to nobody one by one, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn untold_notices(&self, now: Timestamp, limit: u32) -> Result<Vec<Undelivered>, StoreError> {
        self.ask(Waiting(UNTOLD, params![now, limit])).await
    }

    /// Notices older than a moment that are not delivered, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn notices_before(&self, moment: Timestamp, limit: u32) -> Result<Vec<Undelivered>, StoreError> {
        self.ask(Waiting(BEFORE, params![moment, limit])).await
    }

    /// Looks at a notice again later, because what it tells about is not over.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn put_off_notice(&self, id: MessageId, at: Timestamp) -> Result<(), StoreError> {
        self.submit(Mark::Later(id, at)).await
    }

    /// Records that notices were delivered to everyone who wants them.
    ///
    /// # Errors
    /// When that cannot be recorded; they will be delivered again.
    pub async fn notices_delivered(&self, ids: Vec<MessageId>) -> Result<(), StoreError> {
        self.submit(Mark::Delivered(ids)).await
    }
}
