//! The reading connections: for queries on whose answers no change is based.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{AcknowledgedState, LockWait, PgTx, PostgresStore};
use crate::error::StoreError;
use crate::lane::ReadLane;
use crate::unit_of_work::StoreQuery;

/// How often one query is tried over connections that break.
const TRIES: u32 = 2;

/// A query waiting for its turn on the reading connection.
pub(crate) trait QueuedQuery: Send {
    /// Runs the query. Returns whether the connection was lost meanwhile.
    fn run<'a>(&'a mut self, tx: &'a mut PgTx) -> futures_util::future::LocalBoxFuture<'a, bool>;
    /// Delivers the answer.
    fn deliver(self: Box<Self>);
}

/// A query on its way, with a caller who waits for the answer.
struct PendingQuery<Q: StoreQuery> {
    query: Q,
    answer: Option<Result<Q::Out, StoreError>>,
    reply: oneshot::Sender<Result<Q::Out, StoreError>>,
}

impl<Q: StoreQuery + Sync> QueuedQuery for PendingQuery<Q> {
    fn run<'a>(&'a mut self, tx: &'a mut PgTx) -> futures_util::future::LocalBoxFuture<'a, bool> {
        Box::pin(async move {
            let answer = self.query.run(tx).await;
            let lost = matches!(answer, Err(StoreError::Unavailable(_)));
            self.answer = Some(answer);
            lost
        })
    }

    fn deliver(self: Box<Self>) {
        let unanswered = || Err(StoreError::Unavailable("there is no connection for reading".into()));
        // The caller may be gone.
        drop(self.reply.send(self.answer.unwrap_or_else(unanswered)));
    }
}

impl PostgresStore {
    /// Queries over the connection reserved for this kind of read.
    pub async fn read<Q: StoreQuery + Sync>(&self, line: ReadLane, query: Q) -> Result<Q::Out, StoreError> {
        let stopped = || StoreError::Unavailable("the reader has stopped".into());
        let (reply, answer) = oneshot::channel();
        let reading = Box::new(PendingQuery { query, answer: None, reply });
        let reads = match line {
            ReadLane::Ordinary | ReadLane::Stop => self.reads.first(),
            ReadLane::Status => self.reads.last(),
        };
        reads.ok_or_else(stopped)?.send(reading).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

/// Where a reading connection connects to.
pub(super) struct ReaderConnectionConfig {
    pub url: String,
    pub patience: LockWait,
    pub acknowledged: Arc<AcknowledgedState>,
}

/// Runs a reading connection. No change is based on its answers.
pub(super) async fn read_on(to: &ReaderConnectionConfig, mut readings: mpsc::Receiver<Box<dyn QueuedQuery>>) {
    let mut connection: Option<PgTx> = None;
    while let Some(mut reading) = readings.recv().await {
        // Tried once more if the connection was lost: a query changes nothing.
        for _ in 0..TRIES {
            // While something is missing, no query is answered from what is left; the caller gets an error.
            if to.acknowledged.standing().is_lost {
                connection = None;
                break;
            }
            if connection.is_none() {
                connection = connect(to).await.ok();
            }
            let Some(tx) = &mut connection else { break };
            if !reading.run(tx).await {
                break;
            }
            connection = None;
        }
        reading.deliver();
    }
}

async fn connect(to: &ReaderConnectionConfig) -> Result<PgTx, StoreError> {
    let mut tx = PgTx::connect(&to.url).await?;
    tx.wait_like(to.patience).await?;
    to.acknowledged.verify(&mut tx).await?;
    Ok(tx)
}
