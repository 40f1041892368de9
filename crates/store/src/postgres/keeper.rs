//! The thread that keeps a node's connections open and commits over them.
//!
//! Takes commands and queries; commits together all that are queued. Promise: a reopened connection is compared with
//! what this node knows before it is used, each group begins where the last one ended, and a loss is recorded before
//! anything else is done.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use sluice_core::NodeName;
use sluice_core::audit::ChainHead;
use sluice_core::recovery::{RecoveryFinding, RecoveryFindingKind};
use tokio::sync::mpsc;

use super::acknowledged::AcknowledgedState;
use super::reading::{QueuedQuery, ReaderConnectionConfig, read_on};
use super::wire::fault;
use super::{
    CommitPosition, DatabaseTimeSource, GROUP, GroupCommitError, GroupCommitTerms, LastCommit, LockWait, PgTx,
};
use crate::error::StoreError;
use crate::recovery::RegisterNode;
use crate::reply_dispatcher::ReplyDispatcher;
use crate::sql::{SqlWrite, StoreTx as _, params};
use crate::unit_of_work::{CommitGroup, NodeRow, OPEN_GROUP, PendingCommand, StoreCommand};

/// How often a group is retried after a conflict with another node.
const TRIES: u32 = 5;
/// How often a lost connection is reopened before the caller gets an error.
const RECONNECTS: u32 = 20;

const COMMITS: &str = "SELECT epoch, commits FROM nodes WHERE node = ?1 /*lock*/";
const BACKEND: &str = "SELECT CAST(pg_backend_pid() AS BIGINT)";
const RESUME: &str = "UPDATE nodes SET epoch = ?2 WHERE node = ?1";

/// The thread that keeps a node's connections.
pub(super) struct ConnectionKeeper {
    pub url: String,
    pub node: NodeName,
    pub time: DatabaseTimeSource,
    pub patience: LockWait,
    pub backend: Arc<Mutex<Option<i32>>>,
    pub acknowledged: Arc<AcknowledgedState>,
    pub epoch: u64,
    /// Where this node's log ended after the last commit.
    pub last: Option<LastCommit>,
    /// How many losses were recorded when this node's name was last registered.
    pub round: u64,
}

impl ConnectionKeeper {
    pub fn run(
        mut self,
        register: Box<dyn StoreCommand<PgTx> + Send>,
        errands: mpsc::Receiver<Box<dyn StoreCommand<PgTx>>>,
        readings: Vec<mpsc::Receiver<Box<dyn QueuedQuery>>>,
        ready: std::sync::mpsc::SyncSender<Result<(), StoreError>>,
    ) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(StoreError::Unavailable(Box::new(error))))),
        };
        runtime.block_on(async move {
            let tx = match self.start(register).await {
                Ok(tx) => tx,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(Ok(())));
            let to = ReaderConnectionConfig {
                url: self.url.clone(),
                patience: self.patience,
                acknowledged: Arc::clone(&self.acknowledged),
            };
            let reading = join_all(readings.into_iter().map(|readings| read_on(&to, readings)));
            join(self.write_on(tx, errands), reading).await;
        });
    }

    /// First connection: checks, migrations, and this node's row with a new epoch.
    async fn start(&mut self, register: Box<dyn StoreCommand<PgTx> + Send>) -> Result<PgTx, StoreError> {
        let mut tx = PgTx::connect(&self.url).await?;
        tx.demand_durability().await?;
        tx.wait_like(self.patience).await?;
        tx.migrate().await?;
        self.register(&mut tx, register).await?;
        self.epoch = self.read_epoch(&mut tx).await?;
        self.acknowledged.verify(&mut tx).await?;
        self.begin_at(&mut tx).await?;
        self.note_backend(&mut tx).await?;
        Ok(tx)
    }

    /// Registers this node's name. The row may not exist yet, so this one command runs outside a group.
    async fn register(
        &self,
        tx: &mut PgTx,
        mut register: Box<dyn StoreCommand<PgTx> + Send>,
    ) -> Result<(), StoreError> {
        let now = tx.now(&self.time).await?;
        tx.client.batch_execute("BEGIN").await.map_err(fault)?;
        let mut group = CommitGroup { now, log: self.node.clone(), life: 0, head: ChainHead::genesis(&self.node) };
        let ran = async {
            register.run(tx, &mut group).await?;
            tx.flush().await
        };
        if let Err(error) = ran.await {
            drop(tx.client.batch_execute("ROLLBACK").await);
            return Err(error);
        }
        tx.client.batch_execute("COMMIT").await.map_err(fault)?;
        register.deliver(None);
        Ok(())
    }

    async fn read_epoch(&self, tx: &mut PgTx) -> Result<u64, StoreError> {
        let rows = tx.rows("SELECT epoch FROM nodes WHERE node = ?1", &params![&self.node]).await?;
        rows.into_iter().next().ok_or(StoreError::NotFound { what: "node" })?.of("nodes").count()
    }

    async fn note_backend(&self, tx: &mut PgTx) -> Result<(), StoreError> {
        let row = tx.rows(BACKEND, &[]).await?.into_iter().next();
        let pid = row.ok_or(StoreError::NotFound { what: "backend" })?.of("backend").count().ok();
        *self.backend.lock() = pid;
        Ok(())
    }

    async fn write_on(&mut self, mut tx: PgTx, mut errands: mpsc::Receiver<Box<dyn StoreCommand<PgTx>>>) {
        let porter = ReplyDispatcher::new();
        while let Some(first) = errands.recv().await {
            let mut group = vec![first];
            while group.len() < GROUP
                && let Ok(next) = errands.try_recv()
            {
                group.push(next);
            }
            group.sort_by(|one, other| one.turn().cmp(&other.turn()));
            match self.commit(&mut tx, &mut group).await {
                Ok(()) => porter.dispatch(group, std::mem::take(&mut tx.spent)),
                Err(fault) if group.len() == 1 || matches!(fault, StoreError::UnknownOutcome) => {
                    group.into_iter().for_each(|errand| errand.deliver(Some(&fault)));
                }
                // The server is gone: trying each command alone would only make the last one wait for all.
                Err(fault) if tx.client.is_closed() => {
                    group.into_iter().for_each(|errand| errand.deliver(Some(&fault)));
                }
                // One of them fails; the others must not fail with it.
                Err(_) => {
                    for errand in group {
                        let mut alone = [errand];
                        let fault = self.commit(&mut tx, &mut alone).await.err();
                        let [errand] = alone;
                        errand.deliver(fault.as_ref());
                    }
                }
            }
        }
    }

    /// Commits a group, despite lost connections and other nodes' locks.
    async fn commit(&mut self, tx: &mut PgTx, group: &mut [Box<dyn StoreCommand<PgTx>>]) -> Result<(), StoreError> {
        let about_loss = group.iter().all(|errand| errand.is_about_loss());
        let mut tries = 0;
        loop {
            tries += 1;
            match self.attempt(tx, group, about_loss).await {
                Ok(position) => {
                    self.record_position(position);
                    return Ok(());
                }
                Err(GroupCommitError::Around { position }) => {
                    self.last = self.last.take().map(|last| last.or(position));
                    self.reconnect(tx).await.map_err(|_| StoreError::UnknownOutcome)?;
                    match self.commits(tx).await {
                        Ok(counted) if counted == position.commits => {
                            self.record_position(position);
                            return Ok(());
                        }
                        Ok(counted) if counted + 1 == position.commits => {}
                        Ok(_) => return Err(self.examine_loss(tx).await),
                        Err(_) => return Err(StoreError::UnknownOutcome),
                    }
                }
                Err(GroupCommitError::Before(StoreError::Unavailable(_))) => match self.reconnect(tx).await {
                    // The command that records the loss uses this same connection.
                    Err(StoreError::WentBack) if about_loss => {}
                    other => other?,
                },
                Err(GroupCommitError::Before(StoreError::WentBack)) if !self.acknowledged.standing().is_lost => {
                    return Err(self.examine_loss(tx).await);
                }
                Err(GroupCommitError::Before(StoreError::Conflict)) if group.len() == 1 && tries < TRIES => {}
                Err(GroupCommitError::Before(error)) => return Err(error),
            }
            if tries >= RECONNECTS {
                return Err(StoreError::Unavailable("the connection keeps breaking".into()));
            }
        }
    }

    /// One attempt. While something is missing, only the command that records it continues, from what is left.
    async fn attempt(
        &mut self,
        tx: &mut PgTx,
        group: &mut [Box<dyn StoreCommand<PgTx>>],
        about_loss: bool,
    ) -> Result<CommitPosition, GroupCommitError> {
        let standing = self.acknowledged.standing();
        if standing.is_lost && !about_loss {
            return Err(GroupCommitError::Before(StoreError::WentBack));
        }
        if standing.is_lost || standing.round != self.round {
            self.register_again(tx).await.map_err(GroupCommitError::Before)?;
            self.round = standing.round;
        }
        let terms = GroupCommitTerms { node: &self.node, time: &self.time, epoch: self.epoch, last: self.last };
        let position = tx.commit_group(terms, group).await?;
        if standing.is_lost {
            self.round = self.acknowledged.clear_missing();
        }
        Ok(position)
    }

    /// Notes how far the server has acknowledged; later connections are compared with it.
    fn record_position(&mut self, position: CommitPosition) {
        self.last = Some(LastCommit { known: position, perhaps: None });
        self.acknowledged.record_log_head(&self.node, position.head);
    }

    /// Finds out what is missing. It stays noted until it is recorded.
    async fn examine_loss(&self, tx: &mut PgTx) -> StoreError {
        let own = match tx.rows(OPEN_GROUP, &params![&self.node]).await.map(|rows| rows.into_iter().next()) {
            Ok(Some(row)) => NodeRow::read(row).ok(),
            Ok(None) | Err(_) => None,
        };
        let (epoch, size) = own.map_or((0, 0), |row| (row.epoch, row.head.size));
        let finding = match self.last {
            Some(LastCommit { known, .. }) if epoch == self.epoch && size < known.head.size => {
                RecoveryFinding::new(RecoveryFindingKind::LogBehind, size, known.head.size)
            }
            Some(LastCommit { known, .. }) if epoch == self.epoch => {
                RecoveryFinding::new(RecoveryFindingKind::LogForked, size, known.head.hash)
            }
            Some(_) | None => RecoveryFinding::new(RecoveryFindingKind::StartsBehind, epoch, self.epoch),
        };
        self.acknowledged.examine(tx, finding.of(&self.node)).await;
        StoreError::WentBack
    }

    /// Registers this node's name again in a database that lost work, under a start number that was never used.
    async fn register_again(&mut self, tx: &mut PgTx) -> Result<(), StoreError> {
        let (register, _) = PendingCommand::new(RegisterNode { node: self.node.clone() });
        self.register(tx, register).await?;
        let found = self.read_epoch(tx).await?;
        if found <= self.epoch {
            tx.apply_writes(vec![SqlWrite {
                sql: RESUME,
                params: params![&self.node, self.epoch + 1],
                exactly_one: true,
            }])
            .await?;
            tx.flush().await?;
        }
        self.epoch = found.max(self.epoch + 1);
        self.begin_at(tx).await
    }

    /// Continues from the position in the node's row.
    async fn begin_at(&mut self, tx: &mut PgTx) -> Result<(), StoreError> {
        let row = tx.rows(OPEN_GROUP, &params![&self.node]).await?.into_iter().next();
        let row = NodeRow::read(row.ok_or(StoreError::NotFound { what: "node" })?)?;
        self.record_position(CommitPosition { commits: row.commits, head: row.head });
        Ok(())
    }

    /// How many commits the server counts for this node. Waits for the old connection's transaction to end, because
    /// that transaction holds the lock on the row.
    async fn commits(&self, tx: &mut PgTx) -> Result<u64, StoreError> {
        let rows = tx.rows(COMMITS, &params![&self.node]).await?;
        let mut row = rows.into_iter().next().ok_or(StoreError::NotFound { what: "node" })?.of("nodes");
        // Another gateway with the same node name counts its commits in the same row.
        if row.count::<u64>()? != self.epoch {
            return Err(StoreError::UnknownOutcome);
        }
        row.count()
    }

    /// Reopens the connection and compares it with what is known, before anything is done over it.
    async fn reconnect(&self, tx: &mut PgTx) -> Result<(), StoreError> {
        let mut last = StoreError::Unavailable("not tried".into());
        for attempt in 0..RECONNECTS {
            match self.fresh().await {
                Ok(mut fresh) => match self.acknowledged.verify(&mut fresh).await {
                    verdict @ (Ok(()) | Err(StoreError::WentBack)) => {
                        *tx = fresh;
                        self.note_backend(tx).await?;
                        return verdict;
                    }
                    Err(error @ StoreError::Unavailable(_)) => last = error,
                    Err(error) => return Err(error),
                },
                Err(error @ StoreError::DurabilityOff { .. }) => return Err(error),
                Err(error) => last = error,
            }
            let pause = Duration::from_millis(50 << attempt.min(5));
            #[expect(clippy::disallowed_methods, reason = "the pause between two tries to reach a server")]
            tokio::time::sleep(pause).await;
        }
        Err(last)
    }

    async fn fresh(&self) -> Result<PgTx, StoreError> {
        let tx = PgTx::connect(&self.url).await?;
        tx.demand_durability().await?;
        tx.wait_like(self.patience).await?;
        Ok(tx)
    }
}
