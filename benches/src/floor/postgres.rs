//! The floor on PostgreSQL: one table, single-row inserts that commit themselves, many connections.

use anyhow::Context as _;
use futures_util::future::try_join_all;
use sluice_testkit::postgres::TestDatabase;
use std::sync::Arc;
use tokio_postgres::{Client, NoTls, Statement};

use super::FloorRow;

const TABLE: &str = "CREATE TABLE jobs (id BYTEA NOT NULL PRIMARY KEY, state BIGINT NOT NULL, body BYTEA NOT NULL)";
const WAITING: &str = "CREATE INDEX waiting ON jobs (id) WHERE state = 0";
const INSERT: &str = "INSERT INTO jobs (id, state, body) VALUES ($1, 0, $2)";
const CLAIM: &str = "UPDATE jobs SET state = 1 WHERE id IN \
     (SELECT id FROM jobs WHERE state = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id";
const COMPLETE: &str = "UPDATE jobs SET state = 2 WHERE id = ANY($1)";

/// A database and its connections.
pub struct PostgresFloor {
    inserters: Vec<Arc<FloorInserter>>,
    worker: Client,
    _database: Option<TestDatabase>,
}

/// One connection that inserts.
pub struct FloorInserter {
    client: Client,
    insert: Statement,
}

impl PostgresFloor {
    /// A table of rows and nothing else, with this many connections.
    pub async fn rows(connections: usize) -> anyhow::Result<Option<Self>> {
        Self::open(connections, &[TABLE]).await
    }

    /// The same with an index to find waiting jobs by.
    pub async fn queue(connections: usize) -> anyhow::Result<Option<Self>> {
        Self::open(connections, &[TABLE, WAITING]).await
    }

    async fn open(connections: usize, schema: &[&str]) -> anyhow::Result<Option<Self>> {
        let Some(database) = TestDatabase::fresh() else { return Ok(None) };
        let floor = Self::connected(database.url(), connections, schema).await?;
        Ok(Some(Self { _database: Some(database), ..floor }))
    }

    /// The same in an existing database.
    pub async fn at(url: &str, connections: usize) -> anyhow::Result<Self> {
        Self::connected(url, connections, &[TABLE]).await
    }

    async fn connected(url: &str, connections: usize, schema: &[&str]) -> anyhow::Result<Self> {
        let worker = connect(url).await?;
        for text in schema {
            worker.batch_execute(text).await?;
        }
        let inserters = try_join_all((0..connections).map(|_| async {
            let client = connect(url).await?;
            let insert = client.prepare(INSERT).await?;
            anyhow::Ok(Arc::new(FloorInserter { client, insert }))
        }));
        Ok(Self { inserters: inserters.await?, worker, _database: None })
    }

    /// The connection of one caller.
    pub fn inserter(&self, caller: usize) -> anyhow::Result<Arc<FloorInserter>> {
        self.inserters.get(caller % self.inserters.len().max(1)).cloned().context("a floor without connections")
    }

    /// Claims at most this many waiting jobs.
    pub async fn claim(&self, claim: &Statement, limit: i64) -> anyhow::Result<Vec<Vec<u8>>> {
        let rows = self.worker.query(claim, &[&limit]).await?;
        rows.into_iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Completes claimed jobs.
    pub async fn complete(&self, complete: &Statement, jobs: &[Vec<u8>]) -> anyhow::Result<()> {
        let hit = self.worker.execute(complete, &[&jobs]).await?;
        anyhow::ensure!(usize::try_from(hit).is_ok_and(|hit| hit == jobs.len()), "{hit} of {} jobs moved", jobs.len());
        Ok(())
    }

    /// The statements of the loop that processes the queue.
    pub async fn steps(&self) -> anyhow::Result<(Statement, Statement)> {
        Ok((self.worker.prepare(CLAIM).await?, self.worker.prepare(COMPLETE).await?))
    }
}

impl FloorInserter {
    /// Inserts one row; returns when it is durable.
    pub async fn insert(&self, row: FloorRow) -> anyhow::Result<()> {
        self.client.execute(&self.insert, &[&row.id.as_slice(), &row.body]).await?;
        Ok(())
    }
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection); // ends with its client
    Ok(client)
}
