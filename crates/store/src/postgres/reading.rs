//! The reading connections: questions that nothing is decided from.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{AcknowledgedState, Patience, PgTx, Server};
use crate::desk::Query;
use crate::error::StoreError;
use crate::lane::Line;

/// How often one question is asked over connections that break.
const TRIES: u32 = 2;

/// A query waiting for its turn on the reading connection.
pub(crate) trait Reading: Send {
    /// Asks. Says whether the connection was lost meanwhile.
    fn run<'a>(&'a mut self, tx: &'a mut PgTx) -> futures_util::future::LocalBoxFuture<'a, bool>;
    /// Hands out the answer.
    fn deliver(self: Box<Self>);
}

/// A question on its way, with someone who waits for the answer.
struct PendingQuery<Q: Query> {
    query: Q,
    answer: Option<Result<Q::Out, StoreError>>,
    reply: oneshot::Sender<Result<Q::Out, StoreError>>,
}

impl<Q: Query + Sync> Reading for PendingQuery<Q> {
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
        // The caller may have gone away.
        drop(self.reply.send(self.answer.unwrap_or_else(unanswered)));
    }
}

impl Server {
    /// Asks over the connection kept for this.
    pub async fn read<Q: Query + Sync>(&self, line: Line, query: Q) -> Result<Q::Out, StoreError> {
        let stopped = || StoreError::Unavailable("the reader has stopped".into());
        let (reply, answer) = oneshot::channel();
        let reading = Box::new(PendingQuery { query, answer: None, reply });
        let reads = match line {
            Line::Ordinary | Line::Stop => self.reads.first(),
            Line::Status => self.reads.last(),
        };
        reads.ok_or_else(stopped)?.send(reading).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

/// Where a reading connection goes.
pub(super) struct ServerReach {
    pub url: String,
    pub patience: Patience,
    pub ground: Arc<AcknowledgedState>,
}

/// The reading connection's life. Nothing is decided from it.
pub(super) async fn read_on(to: &ServerReach, mut readings: mpsc::Receiver<Box<dyn Reading>>) {
    let mut connection: Option<PgTx> = None;
    while let Some(mut reading) = readings.recv().await {
        // Asked once more where the connection was lost: a question changes nothing.
        for _ in 0..TRIES {
            // What is missing is not answered from what is left; whoever asked is told that there is no answer.
            if to.ground.standing().is_lost {
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

async fn connect(to: &ServerReach) -> Result<PgTx, StoreError> {
    let mut tx = PgTx::connect(&to.url).await?;
    tx.wait_like(to.patience).await?;
    to.ground.verify(&mut tx).await?;
    Ok(tx)
}
