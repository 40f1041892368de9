//! The floor on SQLite: one thread, one connection, one table, group commit.
//!
//! The same engine settings, the same kind of queue and the same maximum of rows in a commit as ours.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::Context as _;
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use super::FloorRow;

/// Most jobs that share one commit, as in our store.
const GROUP: usize = 256;

const SETTINGS: &str = "PRAGMA journal_mode = wal; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000; \
     PRAGMA mmap_size = 0";
const TABLE: &str = "CREATE TABLE jobs (id BLOB NOT NULL PRIMARY KEY, state INTEGER NOT NULL, body BLOB NOT NULL) \
     STRICT, WITHOUT ROWID; CREATE INDEX waiting ON jobs (id) WHERE state = 0";
const PLAIN: &str = "CREATE TABLE jobs (id BLOB NOT NULL PRIMARY KEY, state INTEGER NOT NULL, body BLOB NOT NULL) STRICT, WITHOUT ROWID";

enum FloorJob {
    Insert(FloorRow, oneshot::Sender<()>),
    Claim(u32, oneshot::Sender<Vec<[u8; 16]>>),
    Complete(Vec<[u8; 16]>, oneshot::Sender<()>),
}

/// Answers that wait for the commit.
enum PendingFloorReply {
    Done(oneshot::Sender<()>),
    Claimed(oneshot::Sender<Vec<[u8; 16]>>, Vec<[u8; 16]>),
}

/// The file and its writer.
pub struct SqliteFloor {
    queue: Option<mpsc::Sender<FloorJob>>,
    writer: Option<JoinHandle<anyhow::Result<()>>>,
}

impl SqliteFloor {
    /// A table of rows and nothing else.
    pub fn rows(path: &Path) -> anyhow::Result<Self> {
        Self::open(path, PLAIN)
    }

    /// The same with an index to find waiting jobs by.
    pub fn queue(path: &Path) -> anyhow::Result<Self> {
        Self::open(path, TABLE)
    }

    fn open(path: &Path, table: &str) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SETTINGS)?;
        connection.execute_batch(table)?;
        let (queue, jobs) = mpsc::channel(4 * GROUP);
        let writer = std::thread::spawn(move || work(&connection, jobs));
        Ok(Self { queue: Some(queue), writer: Some(writer) })
    }

    /// A handle for a caller.
    pub fn door(&self) -> anyhow::Result<SqliteFloorHandle> {
        Ok(SqliteFloorHandle(self.queue.clone().context("the floor is closed")?))
    }

    /// A handle that keeps the floor open for the lifetime of the process.
    pub fn forever(mut self) -> anyhow::Result<SqliteFloorHandle> {
        self.writer = None;
        Ok(SqliteFloorHandle(self.queue.take().context("the floor is closed")?))
    }

    /// Ends the writer and reports its error, if there was one.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.queue = None;
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            _ => anyhow::bail!("the floor's writer died"),
        }
    }
}

/// A caller's handle.
#[derive(Clone)]
pub struct SqliteFloorHandle(mpsc::Sender<FloorJob>);

impl SqliteFloorHandle {
    /// Inserts one row; returns when it is durable.
    pub async fn insert(&self, row: FloorRow) -> anyhow::Result<()> {
        let (done, answer) = oneshot::channel();
        self.send(FloorJob::Insert(row, done)).await?;
        answer.await.context("the floor's writer died")
    }

    /// Claims at most this many waiting jobs.
    pub async fn claim(&self, limit: u32) -> anyhow::Result<Vec<[u8; 16]>> {
        let (done, answer) = oneshot::channel();
        self.send(FloorJob::Claim(limit, done)).await?;
        answer.await.context("the floor's writer died")
    }

    /// Completes claimed jobs.
    pub async fn complete(&self, jobs: Vec<[u8; 16]>) -> anyhow::Result<()> {
        let (done, answer) = oneshot::channel();
        self.send(FloorJob::Complete(jobs, done)).await?;
        answer.await.context("the floor's writer died")
    }

    async fn send(&self, job: FloorJob) -> anyhow::Result<()> {
        self.0.send(job).await.ok().context("the floor's writer died")
    }
}

fn work(connection: &Connection, mut jobs: mpsc::Receiver<FloorJob>) -> anyhow::Result<()> {
    let mut insert = connection.prepare("INSERT INTO jobs (id, state, body) VALUES (?1, 0, ?2)")?;
    let mut waiting = connection.prepare("SELECT id FROM jobs WHERE state = 0 ORDER BY id LIMIT ?1")?;
    let mut answers = Vec::with_capacity(GROUP);
    while let Some(first) = jobs.blocking_recv() {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut next = Some(first);
        while let Some(job) = next {
            answers.push(match job {
                FloorJob::Insert(row, done) => {
                    insert.execute(params![row.id, row.body])?;
                    PendingFloorReply::Done(done)
                }
                FloorJob::Claim(limit, done) => {
                    let found = waiting.query_map([limit], |row| row.get(0))?.collect::<Result<Vec<[u8; 16]>, _>>()?;
                    step(connection, 1, &found)?;
                    PendingFloorReply::Claimed(done, found)
                }
                FloorJob::Complete(ids, done) => {
                    step(connection, 2, &ids)?;
                    PendingFloorReply::Done(done)
                }
            });
            next = if answers.len() < GROUP { jobs.try_recv().ok() } else { None };
        }
        connection.execute_batch("COMMIT")?;
        for answer in answers.drain(..) {
            match answer {
                PendingFloorReply::Done(done) => drop(done.send(())),
                PendingFloorReply::Claimed(done, found) => drop(done.send(found)),
            }
        }
    }
    Ok(())
}

/// Moves many jobs with one statement.
fn step(connection: &Connection, state: u8, ids: &[[u8; 16]]) -> anyhow::Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let places: Vec<String> = (1..=ids.len()).map(|place| format!("?{place}")).collect();
    let text = format!("UPDATE jobs SET state = {state} WHERE id IN ({})", places.join(", "));
    let hit = connection.prepare_cached(&text)?.execute(rusqlite::params_from_iter(ids))?;
    anyhow::ensure!(hit == ids.len(), "{hit} of {} jobs moved", ids.len());
    Ok(())
}
