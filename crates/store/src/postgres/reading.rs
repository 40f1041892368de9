//! The reading connections: questions that nothing is decided from.

use tokio::sync::{mpsc, oneshot};

use super::{Patience, PgTx, Server};
use crate::desk::Query;
use crate::error::StoreError;
use crate::lane::Line;

/// A query waiting for its turn on the reading connection.
pub(crate) trait Reading: Send {
    fn run<'a>(self: Box<Self>, tx: &'a mut PgTx) -> futures_util::future::LocalBoxFuture<'a, bool>;
}

/// A question on its way, with someone who waits for the answer.
struct PendingQuery<Q: Query> {
    query: Q,
    reply: oneshot::Sender<Result<Q::Out, StoreError>>,
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

impl Server {
    /// Asks over the connection kept for this.
    pub async fn read<Q: Query + Sync>(&self, line: Line, query: Q) -> Result<Q::Out, StoreError> {
        let stopped = || StoreError::Unavailable("the reader has stopped".into());
        let (reply, answer) = oneshot::channel();
        let reading = Box::new(PendingQuery { query, reply });
        let reads = match line {
            Line::Ordinary | Line::Stop => self.reads.first(),
            Line::Status => self.reads.last(),
        };
        reads.ok_or_else(stopped)?.send(reading).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

/// The reading connection's life. Nothing is decided from it.
pub(super) async fn read_on(url: String, patience: Patience, mut readings: mpsc::Receiver<Box<dyn Reading>>) {
    let mut connection: Option<PgTx> = None;
    while let Some(reading) = readings.recv().await {
        if connection.is_none() {
            connection = connect(&url, patience).await.ok();
        }
        // Without a connection the reading is dropped, and its caller is told the reader is gone.
        if let Some(tx) = &mut connection
            && reading.run(tx).await
        {
            connection = None;
        }
    }
}

async fn connect(url: &str, patience: Patience) -> Result<PgTx, StoreError> {
    let tx = PgTx::connect(url).await?;
    tx.wait_like(patience).await?;
    Ok(tx)
}
