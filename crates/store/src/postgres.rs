//! PostgreSQL: for many gateways on one database.
//!
//! Each node has one writing connection, because each node has one audit log and a log has one end. Takes commands;
//! commits together all that are queued. Promise: a server that could lose acknowledged work is refused at the start.
//! When the connection breaks around COMMIT, the node's own row says whether the commit happened, before anything else
//! is done.

mod acknowledged;
mod batching;
mod durability;
mod examining;
mod keeper;
mod reading;
mod wire;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::{join, join3, try_join_all};
use parking_lot::Mutex;
use sluice_core::audit::ChainHead;
use sluice_core::{Clock, NodeName, UtcMillis};
use tokio::sync::mpsc;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, Statement};

use crate::error::StoreError;
use crate::migrate;
use crate::prefetch::{PrefetchCache, PrefetchQuery};
use crate::sql::{self, SqlRow, SqlValue, SqlWrite, StatementText, StoreTx, params};
use crate::unit_of_work::{CLOSE_GROUP, CommitGroup, NodeRow, OPEN_GROUP, StoreCommand};
use batching::AffectedRowsCache;
use keeper::ConnectionKeeper;
use reading::QueuedQuery;
use wire::{PreparedBatch, PreparedQuery, decode, fault, make_all};

pub(crate) use acknowledged::AcknowledgedState;
pub use acknowledged::{ServerChange, ServerIdentity};
pub use examining::ServerReplication;
pub(crate) use examining::{drop_tables, examine, has_tables};

/// Most commands that share one commit.
const GROUP: usize = 256;
/// Serialises migrations of nodes that start together.
const MIGRATION_LOCK: i64 = 0x536c_7569;

/// The clock that measures deadlines.
#[derive(Clone)]
pub(crate) enum DatabaseTimeSource {
    /// The database's: the only one all nodes share.
    Database,
    /// An injected one, for tests.
    Injected(Arc<dyn Clock>),
}

/// How long a connection waits for rows that others have locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// As long as a statement may take.
    Ordinary,
    /// A few seconds: someone wants to stop something.
    Short,
}

/// One connection and the statements prepared on it.
pub(crate) struct PgTx {
    client: Client,
    statements: HashMap<StatementText, Statement>,
    /// Prepared statements for many rows at once; `None` for statements without such a form.
    many: HashMap<StatementText, Option<Statement>>,
    touches: AffectedRowsCache,
    /// Changes not yet sent; they go out with the next query, in order, in one round trip.
    unsent: Vec<SqlWrite>,
    /// Changes made by the last group, to be freed later.
    spent: Vec<SqlWrite>,
    /// Queries of the group's use cases, sent early.
    foresight: PrefetchCache,
}

/// The store on a server: the queue to this node's writer.
pub(crate) struct PostgresStore {
    queue: Option<mpsc::Sender<Box<dyn StoreCommand<PgTx>>>>,
    reads: Vec<mpsc::Sender<Box<dyn QueuedQuery>>>,
    writer: Option<JoinHandle<()>>,
    backend: Arc<Mutex<Option<i32>>>,
}

impl PgTx {
    async fn connect(url: &str) -> Result<Self, StoreError> {
        let mut config: Config = url.parse().map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        config.application_name("sluice").connect_timeout(Duration::from_secs(5));
        config.tcp_user_timeout(Duration::from_secs(15));
        let (client, connection) = config.connect(NoTls).await.map_err(fault)?;
        // The connection task ends when the client is dropped; its error reaches every open call.
        #[expect(clippy::disallowed_methods, reason = "owned by the connection: it ends with the client")]
        drop(tokio::spawn(connection));
        // Every query of ours has an index. On tables that have just been filled, or whose rows change all the time,
        // the planner estimates wrongly and scans them completely.
        let settings = "SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '30s'; \
                        SET synchronous_commit = on; SET timezone = 'UTC'; \
                        SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off";
        client.batch_execute(settings).await.map_err(fault)?;
        Ok(Self {
            client,
            statements: HashMap::new(),
            many: HashMap::new(),
            touches: AffectedRowsCache::default(),
            unsent: Vec::new(),
            spent: Vec::new(),
            foresight: PrefetchCache::default(),
        })
    }

    async fn wait_like(&self, patience: LockWait) -> Result<(), StoreError> {
        match patience {
            LockWait::Ordinary => Ok(()),
            LockWait::Short => self.client.batch_execute("SET lock_timeout = '2s'").await.map_err(fault),
        }
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let run = |text: String| async move { self.client.batch_execute(&text).await.map_err(fault) };
        run(format!("SELECT pg_advisory_lock({MIGRATION_LOCK})")).await?;
        let outcome = self.migrate_alone().await;
        run(format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})")).await?;
        outcome
    }

    async fn migrate_alone(&self) -> Result<(), StoreError> {
        let table = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)";
        self.client.batch_execute(table).await.map_err(fault)?;
        let row = self.client.query_one("SELECT COALESCE(MAX(version), 0) FROM schema_version", &[]).await;
        let found: i64 = row.map_err(fault)?.try_get(0).map_err(fault)?;
        for step in migrate::missing(found)? {
            let text = format!(
                "BEGIN;\n{}\nINSERT INTO schema_version (version) VALUES ({});\nCOMMIT;",
                sql::schema_for_postgres(step.sql),
                step.version
            );
            if let Err(error) = self.client.batch_execute(&text).await {
                drop(self.client.batch_execute("ROLLBACK").await);
                return Err(fault(error));
            }
        }
        Ok(())
    }

    async fn prepared(&mut self, text: &'static str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements.get(&StatementText(text)) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql::for_postgres(text)).await.map_err(fault)?;
        self.statements.insert(StatementText(text), statement.clone());
        Ok(statement)
    }

    /// The same statement for many rows at once, if it has such a form.
    async fn prepared_many(
        &mut self,
        text: &'static str,
        form: impl FnOnce(&[Type]) -> Option<String>,
    ) -> Result<Option<Statement>, StoreError> {
        if let Some(statement) = self.many.get(&StatementText(text)) {
            return Ok(statement.clone());
        }
        let one = self.prepared(text).await?;
        let statement = match form(one.params()) {
            Some(many) => Some(self.client.prepare(&many).await.map_err(fault)?),
            None => None,
        };
        self.many.insert(StatementText(text), statement.clone());
        Ok(statement)
    }

    /// A query for one or many sets of parameters, ready to be sent.
    async fn prepare_query<'a>(
        &mut self,
        text: &'static str,
        each: Vec<&'a [SqlValue]>,
    ) -> Result<PreparedQuery<'a>, StoreError> {
        let one = self.prepared(text).await?;
        let many = match each.len() {
            0 | 1 => None,
            _ => self.prepared_many(text, |kinds| batching::question(text, kinds)).await?,
        };
        Ok(PreparedQuery { one, many, each })
    }

    /// Changes, grouped and ready to be sent.
    async fn prepare_changes<'a>(&mut self, writes: &'a [SqlWrite]) -> Result<Vec<PreparedBatch<'a>>, StoreError> {
        let batches = batching::batches(writes, &mut self.touches);
        let mut ready = Vec::with_capacity(batches.len());
        for batch in batches {
            let one = self.prepared(batch.sql).await?;
            let many = match batch.rows.len() {
                1 => None,
                _ => {
                    let verb = self.touches.of(batch.sql).verb;
                    self.prepared_many(batch.sql, |kinds| batching::change(batch.sql, verb, kinds)).await?
                }
            };
            ready.push(PreparedBatch { one, many, batch });
        }
        Ok(ready)
    }

    /// Sends the changes that were not sent yet and waits for them.
    async fn flush(&mut self) -> Result<(), StoreError> {
        let writes = std::mem::take(&mut self.unsent);
        let changes = self.prepare_changes(&writes).await?;
        make_all(&self.client, &changes).await?;
        self.spent.extend(writes);
        Ok(())
    }

    async fn commit_group(
        &mut self,
        GroupCommitTerms { node, time, epoch, last }: GroupCommitTerms<'_>,
        errands: &mut [Box<dyn StoreCommand<Self>>],
    ) -> Result<CommitPosition, GroupCommitError> {
        self.unsent.clear();
        self.spent.clear();
        self.foresight.clear();
        let open = self.prepared(OPEN_GROUP).await.map_err(GroupCommitError::Before)?;
        let ask = self.prepared(DATABASE_TIME).await.map_err(GroupCommitError::Before)?;
        let name = SqlValue::from(node);
        // In this order, in one round trip: the time is read once the node's row is locked.
        let asked = async {
            match time {
                DatabaseTimeSource::Injected(clock) => Ok(clock.now()),
                DatabaseTimeSource::Database => time_of(self.client.query(&ask, &[]).await),
            }
        };
        let (begun, row, now) =
            join3(self.client.batch_execute("BEGIN"), self.client.query(&open, &[&name]), asked).await;
        let row = match (begun, row) {
            (Ok(()), Ok(rows)) => rows.into_iter().next().ok_or(StoreError::WentBack),
            (Err(error), _) | (_, Err(error)) => Err(fault(error)),
        };
        let opened = match row.and_then(decode).and_then(NodeRow::read) {
            Ok(opened) if opened.epoch > epoch => return self.abandon(StoreError::NodeTaken).await,
            // The row is locked: only this node moves it, so it must be where the last commit left it.
            Ok(opened) if opened.epoch < epoch || last.is_some_and(|last| !last.fits(&opened)) => {
                return self.abandon(StoreError::WentBack).await;
            }
            Ok(opened) => opened,
            Err(error) => return self.abandon(error).await,
        };
        let now = match now {
            Ok(now) => now.max(opened.last_seen),
            Err(error) => return self.abandon(error).await,
        };
        let mut group = CommitGroup { now, log: node.clone(), life: epoch, head: opened.head };
        let foreseen = errands.iter().flat_map(|errand| errand.prefetch_queries(now)).collect();
        if let Err(error) = self.foresee(foreseen).await {
            return self.abandon(error).await;
        }
        for errand in errands {
            if let Err(error) = errand.run(self, &mut group).await {
                return self.abandon(error).await;
            }
        }
        let close = params![node, group.now, group.head.size, group.head.hash, epoch];
        self.unsent.push(SqlWrite { sql: CLOSE_GROUP, params: close, exactly_one: true });
        if let Err(error) = self.flush().await {
            return self.abandon(error).await;
        }
        let position = CommitPosition { commits: opened.commits + 1, head: group.head };
        match self.client.batch_execute("COMMIT").await {
            Ok(()) => Ok(position),
            Err(error) => Err(match fault(error) {
                // A server that shuts down may report that after it has committed.
                StoreError::Unavailable(_) => GroupCommitError::Around { position },
                refused => GroupCommitError::Before(refused),
            }),
        }
    }

    /// Sends a whole group's queries in one round trip. The server handles them in order, so a row that one query locks
    /// is locked before the next query reads.
    async fn foresee(&mut self, aheads: Vec<PrefetchQuery>) -> Result<(), StoreError> {
        let mut seen = HashSet::new();
        let mut texts: Vec<(&'static str, Vec<usize>)> = Vec::new();
        for (place, ahead) in
            aheads.iter().enumerate().filter(|(_, ahead)| seen.insert((StatementText(ahead.sql), &ahead.params)))
        {
            match texts.iter_mut().find(|(text, _)| *text == ahead.sql) {
                Some((_, same)) => same.push(place),
                None => texts.push((ahead.sql, vec![place])),
            }
        }
        let mut questions = Vec::with_capacity(texts.len());
        for (text, same) in &texts {
            let each = same.iter().filter_map(|place| aheads.get(*place)).map(|ahead| ahead.params.as_slice());
            questions.push(self.prepare_query(text, each.collect()).await?);
        }
        let answers = try_join_all(questions.iter().map(|question| question.ask(&self.client))).await?;
        let mut found: Vec<Option<Vec<SqlRow>>> = aheads.iter().map(|_| None).collect();
        for ((_, same), rows) in texts.iter().zip(answers) {
            for (place, rows) in same.iter().zip(rows) {
                if let Some(found) = found.get_mut(*place) {
                    *found = Some(rows);
                }
            }
        }
        for (ahead, rows) in aheads.into_iter().zip(found) {
            if let Some(rows) = rows {
                self.foresight.keep(ahead, rows);
            }
        }
        Ok(())
    }

    async fn abandon(&mut self, error: StoreError) -> Result<CommitPosition, GroupCommitError> {
        self.unsent.clear();
        self.foresight.clear();
        drop(self.client.batch_execute("ROLLBACK").await);
        Err(GroupCommitError::Before(error))
    }

    async fn now(&mut self, time: &DatabaseTimeSource) -> Result<UtcMillis, StoreError> {
        match time {
            DatabaseTimeSource::Injected(clock) => Ok(clock.now()),
            DatabaseTimeSource::Database => {
                let ask = self.prepared(DATABASE_TIME).await?;
                time_of(self.client.query(&ask, &[]).await)
            }
        }
    }
}

/// The server's time.
fn time_of(answer: Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>) -> Result<UtcMillis, StoreError> {
    let row = answer.map_err(fault)?.into_iter().next().ok_or(StoreError::NotFound { what: "time" })?;
    decode(row)?.of("clock").time()
}

const DATABASE_TIME: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// Why a group failed, as far as that can be known.
enum GroupCommitError {
    /// Before COMMIT: nothing happened.
    Before(StoreError),
    /// COMMIT was sent and no answer came: it happened if the node's row counts that many commits.
    Around { position: CommitPosition },
}

/// The progress of a node: the commits in its row and the end of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CommitPosition {
    commits: u64,
    head: ChainHead,
}

/// Where the next group must begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastCommit {
    /// Acknowledged by the server.
    known: CommitPosition,
    /// Sent to the server, without an answer.
    perhaps: Option<CommitPosition>,
}

impl LastCommit {
    /// Adds a commit whose outcome is unknown.
    fn or(self, perhaps: CommitPosition) -> Self {
        Self { perhaps: Some(perhaps), ..self }
    }

    fn fits(self, found: &NodeRow) -> bool {
        let found = CommitPosition { commits: found.commits, head: found.head };
        found == self.known || Some(found) == self.perhaps
    }
}

/// The conditions under which a group is committed.
struct GroupCommitTerms<'a> {
    node: &'a NodeName,
    time: &'a DatabaseTimeSource,
    epoch: u64,
    /// Where the last group ended; `None` before the first.
    last: Option<LastCommit>,
}

impl StoreTx for PgTx {
    const IS_SHARED: bool = true;

    async fn rows(&mut self, text: &'static str, params: &[SqlValue]) -> Result<Vec<SqlRow>, StoreError> {
        if let Some(rows) = self.foresight.answer(text, params) {
            return Ok(rows);
        }
        let mut found = self.rows_each(text, &[params.to_vec()]).await?;
        Ok(found.pop().unwrap_or_default())
    }

    async fn rows_each(&mut self, text: &'static str, each: &[Vec<SqlValue>]) -> Result<Vec<Vec<SqlRow>>, StoreError> {
        let question = self.prepare_query(text, each.iter().map(Vec::as_slice).collect()).await?;
        let writes = std::mem::take(&mut self.unsent);
        let changes = self.prepare_changes(&writes).await?;
        // All are sent before any is awaited, and the server handles them in order.
        let (made, found) = join(make_all(&self.client, &changes), question.ask(&self.client)).await;
        made?;
        self.spent.extend(writes);
        found
    }

    async fn apply_writes(&mut self, writes: Vec<SqlWrite>) -> Result<(), StoreError> {
        for write in &writes {
            self.foresight.touch(self.touches.of(write.sql), write.sql, &write.params);
        }
        self.unsent.extend(writes);
        Ok(())
    }
}

impl PostgresStore {
    /// Connects, checks the server, migrates the schema. `prepare` runs once, before the writer starts.
    pub fn open(
        url: &str,
        node: NodeName,
        time: DatabaseTimeSource,
        patience: LockWait,
        (register, acknowledged): (Box<dyn StoreCommand<PgTx> + Send>, Arc<AcknowledgedState>),
    ) -> Result<Self, StoreError> {
        let (queue, errands) = mpsc::channel(4 * GROUP);
        // Opened on first use: only the stop lane is queried for status.
        let (reads, readings) = (0..2).map(|_| mpsc::channel(4 * GROUP)).unzip();
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let backend = Arc::new(Mutex::new(None));
        let (url, backend_of) = (url.to_owned(), Arc::clone(&backend));
        let keeper = ConnectionKeeper {
            url,
            node,
            time,
            patience,
            backend: backend_of,
            acknowledged,
            epoch: 0,
            last: None,
            round: 0,
        };
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || keeper.run(register, errands, readings, ready))
            .map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        let this = Self { queue: Some(queue), reads, writer: Some(writer), backend };
        started.recv().unwrap_or_else(|_| Err(StoreError::Unavailable("the writer stopped".into())))?;
        Ok(this)
    }

    pub async fn send(&self, errand: Box<dyn StoreCommand<PgTx>>) -> Result<(), StoreError> {
        let stopped = || StoreError::Unavailable("the writer has stopped".into());
        self.queue.as_ref().ok_or_else(stopped)?.send(errand).await.map_err(|_| stopped())
    }

    /// The server's process id for the writing connection, for tests that cut it.
    pub fn backend(&self) -> Option<i32> {
        *self.backend.lock()
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.queue = None;
        self.reads.clear();
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}
