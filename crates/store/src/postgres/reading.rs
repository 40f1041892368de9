//! The reading connection: questions that nothing is decided from.

use tokio::sync::{mpsc, oneshot};

use super::PgTx;
use crate::desk::Query;
use crate::error::StoreError;

/// A query waiting for its turn on the reading connection.
pub(crate) trait Reading: Send {
    fn run<'a>(self: Box<Self>, tx: &'a mut PgTx) -> futures_util::future::LocalBoxFuture<'a, bool>;
}

/// A question on its way, with someone who waits for the answer.
pub(super) struct PendingQuery<Q: Query> {
    pub query: Q,
    pub reply: oneshot::Sender<Result<Q::Out, StoreError>>,
}

impl<Q: Query + Sync> Reading for PendingQuery<Q> {
    fn run<'a>(self: Box<Self>, tx: &'a mut PgTx) -> futures_util::future::LocalBoxFuture<'a, bool> {
        Box::pin(async move {
            let answer = self.query.run(tx).await;
            let lost = matches!(answer, Err(StoreError::Unavailable(_)));
            drop(self.reply.send(answer));
            lost
        })
    }
}

/// The reading connection's life. Nothing is decided from it.
pub(super) async fn read_on(url: String, mut readings: mpsc::Receiver<Box<dyn Reading>>) {
    let mut connection: Option<PgTx> = None;
    while let Some(reading) = readings.recv().await {
        if connection.is_none() {
            connection = PgTx::connect(&url).await.ok();
        }
        // Without a connection the reading is dropped, and its caller is told the reader is gone.
        if let Some(tx) = &mut connection
            && reading.run(tx).await
        {
            connection = None;
        }
    }
}
