//! SQLite: one file, one connection that writes and checkpoints, one thread that owns it.
//!
//! Takes commands; commits together all that are queued, with one sync to disk (group commit). Promise: settings that
//! durability depends on are read back; an answer leaves after its commit; after a failed sync nothing more is written,
//! because the page cache can no longer be trusted.

mod ballast;
mod opened_files;
mod writer;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use sluice_core::{Clock, Digest, HoldId, NodeName, UtcMillis};
use tokio::sync::mpsc;

use crate::error::StoreError;
use crate::holds;
use crate::lane::ReadLane;
use crate::migrate;
use crate::recent_writes::{DUPLICATE_SPAN, RecentWrites};
use crate::reply_dispatcher::ReplyDispatcher;
use crate::sql::{SqlRow, SqlValue, SqlWrite, StoreTx, params};
use crate::unit_of_work::{APPEND, CLOSE_GROUP, CommitGroup, NodeRow, OPEN_GROUP, StoreCommand};
use ballast::BallastFile;
use opened_files::OpenedFiles;
use writer::{GROUP, SqliteWriter};

/// First release without the WAL-reset race.
const OLDEST: i32 = 3_051_003;
/// Marks a file as ours: "Slui".
pub(crate) const APPLICATION_ID: i64 = 0x536c_7569;
/// Connections for reading.
const READERS: usize = 4;
/// File systems whose locks and syncs cannot be relied on: NFS, 9p, FUSE, SMB, CIFS.
const REMOTE: [i64; 5] = [0x6969, 0x0102_1997, 0x6573_5546, 0xff53_4d42, 0xfe53_4d42];

/// Marks a line of the schema that is only for databases with several nodes.
const SHARED: &str = "/*shared*/";
const LATELY: &str = "SELECT digest, admitted_at, id FROM holds WHERE admitted_at > ?1";
/// Pages in the log before they are moved into the file.
const LOG_PAGES: u32 = 4000;
/// The size of the log with that many pages, in bytes.
const LOG_ROOM: u64 = LOG_PAGES as u64 * (4096 + 24) + 32;

/// Entries in one statement.
const TOGETHER: usize = 8;
static APPEND_MANY: LazyLock<String> = LazyLock::new(|| {
    let (columns, _) = APPEND.split_once(" VALUES ").unwrap_or((APPEND, ""));
    format!("{columns} VALUES {}", ["(?, ?, ?, ?)"; TOGETHER].join(", "))
});

type SqliteCommandSender = mpsc::Sender<Box<dyn StoreCommand<SqliteTx>>>;

/// The one connection that writes.
#[derive(Debug)]
pub(crate) struct SqliteTx {
    connection: Connection,
    /// The writer's cache of recent writes; a database in memory has several nodes, and uses an index.
    recent: Option<RecentWrites>,
    /// Audit entries of the group, appended together at its end: nothing in a group reads them.
    entries: Vec<SqlWrite>,
    /// Changes made by the last group, to be freed later.
    spent: Vec<SqlWrite>,
}

/// A file-backed store: the queue to its writer, and connections for reading.
pub(crate) struct SqliteFile {
    path: PathBuf,
    queue: Option<SqliteCommandSender>,
    stops: Option<SqliteCommandSender>,
    writer: Option<JoinHandle<()>>,
    readers: Vec<Mutex<SqliteTx>>,
    /// Reserved for the stop lane.
    stop_reader: Option<Mutex<SqliteTx>>,
    /// Reserved for status.
    status_reader: Option<Mutex<SqliteTx>>,
    _lock: File,
}

impl SqliteTx {
    /// A database that lives as long as this value. For simulations and tests.
    pub fn in_memory() -> Result<Self, StoreError> {
        let mut this = Self {
            connection: Connection::open_in_memory().map_err(fault)?,
            recent: None,
            entries: Vec::new(),
            spent: Vec::new(),
        };
        this.configure(false)?;
        this.migrate()?;
        Ok(this)
    }

    /// The connection itself, for a copy of the whole database.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    fn configure(&mut self, on_disk: bool) -> Result<(), StoreError> {
        if rusqlite::version_number() < OLDEST {
            return Err(StoreError::OldSqlite { found: rusqlite::version().to_owned() });
        }
        let connection = &self.connection;
        connection.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
        connection.set_prepared_statement_cache_capacity(128);
        if on_disk {
            setting(connection, "journal_mode", "wal")?;
            setting(connection, "synchronous", "2")?;
            setting(connection, "wal_autocheckpoint", &LOG_PAGES.to_string())?;
            setting(connection, "mmap_size", "0")?;
            // Deleted data is overwritten: content of a connection that ended must not stay in free pages.
            setting(connection, "secure_delete", "1")?;
        }
        keep_plans(connection)?;
        setting(connection, "foreign_keys", "1")?;
        setting(connection, "trusted_schema", "0")?;
        setting(connection, "cell_size_check", "1")
    }

    /// After how many pages the log is moved into the file; at zero it is never moved.
    fn move_log_at(&self, pages: u32) -> Result<(), StoreError> {
        setting(&self.connection, "wal_autocheckpoint", &pages.to_string())
    }

    fn number(&self, pragma: &str) -> Result<i64, StoreError> {
        self.connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0)).map_err(fault)
    }

    /// Checks every page. Returns the schema version.
    pub fn examine(&self) -> Result<i64, StoreError> {
        let verdict: String =
            self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fault)?;
        if verdict != "ok" {
            return Err(StoreError::Damaged { detail: "the page structure is broken".into() });
        }
        self.number("user_version")
    }

    /// Whether this file is ours, and of a known release. Changes nothing, so that a foreign file stays as it is.
    fn recognise(&self) -> Result<i64, StoreError> {
        let found = self.number("user_version")?;
        if self.number("application_id")? != APPLICATION_ID {
            let tables: i64 =
                self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fault)?;
            if tables > 0 || found != 0 {
                return Err(StoreError::Foreign);
            }
        }
        migrate::missing(found).map(|_| found)
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        let found = self.recognise()?;
        for step in migrate::missing(found)? {
            let schema = match &self.recent {
                Some(_) => step.sql.lines().filter(|line| !line.starts_with(SHARED)).collect::<Vec<_>>().join("\n"),
                None => step.sql.to_owned(),
            };
            let text = format!(
                "BEGIN IMMEDIATE;\n{}\nPRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {};\nCOMMIT;",
                schema, step.version
            );
            if let Err(error) = self.connection.execute_batch(&text) {
                drop(self.connection.execute_batch("ROLLBACK"));
                return Err(fault(error));
            }
        }
        Ok(())
    }

    /// Loads the recent writes again. No later group has an earlier time than this one.
    pub fn remember(&mut self, now: UtcMillis) -> Result<(), StoreError> {
        let mut recent = RecentWrites::starting(now);
        for row in self.query(LATELY, &params![now - DUPLICATE_SPAN])? {
            let mut row = row.of("holds");
            recent.read(&row.blob()?, row.time()?, row.bits()?);
        }
        self.recent = Some(recent);
        Ok(())
    }

    /// Runs commands in one transaction. On an error it is rolled back completely.
    pub fn commit_group(
        &mut self,
        node: &NodeName,
        clock: &dyn Clock,
        errands: &mut [Box<dyn StoreCommand<Self>>],
    ) -> Result<(), StoreError> {
        self.spent.clear();
        self.run_in_transaction(|tx| tx.in_group(node, clock, errands))
    }

    /// The changes of the last group, to be freed.
    pub fn take_spent(&mut self) -> Vec<SqlWrite> {
        std::mem::take(&mut self.spent)
    }

    fn in_group(
        &mut self,
        node: &NodeName,
        clock: &dyn Clock,
        errands: &mut [Box<dyn StoreCommand<Self>>],
    ) -> Result<(), StoreError> {
        let row = self.query(OPEN_GROUP, &params![node])?.into_iter().next();
        let row = NodeRow::read(row.ok_or(StoreError::NotFound { what: "node" })?)?;
        let mut group =
            CommitGroup { now: clock.now().max(row.last_seen), log: node.clone(), life: row.epoch, head: row.head };
        for errand in errands {
            poll_now(errand.run(self, &mut group))?;
        }
        let close = params![node, group.now, group.head.size, group.head.hash, row.epoch];
        self.make_now(&SqlWrite { sql: CLOSE_GROUP, params: close, exactly_one: true })
    }

    /// Appends the entries of the group, in order, as many as fit into one statement.
    fn append(&mut self) -> Result<(), StoreError> {
        let entries = std::mem::take(&mut self.entries);
        let (many, rest) = entries.as_chunks::<TOGETHER>();
        for chunk in many {
            let mut statement = self.connection.prepare_cached(&APPEND_MANY).map_err(fault)?;
            let values = chunk.iter().flat_map(|entry| &entry.params);
            statement.execute(rusqlite::params_from_iter(values)).map_err(fault)?;
        }
        rest.iter().try_for_each(|entry| self.make_now(entry))?;
        self.spent.extend(entries);
        Ok(())
    }

    /// Runs some work in its own transaction, outside any group.
    pub fn run_in_transaction<Out>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<Out, StoreError>,
    ) -> Result<Out, StoreError> {
        // Entries of a transaction that was rolled back.
        self.entries.clear();
        self.exec("BEGIN IMMEDIATE")?;
        let done = work(self).and_then(|out| {
            self.append()?;
            self.exec("COMMIT").map(|()| out)
        });
        if done.is_err() && !self.connection.is_autocommit() {
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        done
    }

    fn exec(&mut self, sql: &'static str) -> Result<(), StoreError> {
        self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(fault)?;
        Ok(())
    }

    pub fn query(&mut self, sql: &'static str, params: &[SqlValue]) -> Result<Vec<SqlRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(fault)?;
        let width = statement.column_count();
        let mut found = statement.query(rusqlite::params_from_iter(params)).map_err(fault)?;
        let mut rows = Vec::new();
        while let Some(row) = found.next().map_err(fault)? {
            let values = (0..width).map(|at| row.get_ref(at).map_err(fault).and_then(value_of));
            rows.push(SqlRow(values.collect::<Result<_, _>>()?));
        }
        Ok(rows)
    }

    fn make_now(&mut self, write: &SqlWrite) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(write.sql).map_err(fault)?;
        let hit = statement.execute(rusqlite::params_from_iter(&write.params)).map_err(fault)?;
        if write.exactly_one && hit != 1 {
            return Err(StoreError::Conflict);
        }
        if let (Some(recent), Some((digest, at, hold))) = (&mut self.recent, holds::new_hold_of(write)) {
            recent.note(digest, at, hold);
        }
        Ok(())
    }
}

impl StoreTx for SqliteTx {
    const IS_SHARED: bool = false;

    fn recent_like(&self, digest: Digest) -> Option<Vec<HoldId>> {
        self.recent.as_ref().map(|recent| recent.like(digest))
    }

    async fn rows(&mut self, sql: &'static str, params: &[SqlValue]) -> Result<Vec<SqlRow>, StoreError> {
        self.query(sql, params)
    }

    async fn apply_writes(&mut self, writes: Vec<SqlWrite>) -> Result<(), StoreError> {
        for write in writes {
            if write.sql == APPEND {
                self.entries.push(write);
                continue;
            }
            self.make_now(&write)?;
            self.spent.push(write);
        }
        Ok(())
    }
}

impl SqliteFile {
    /// Opens or creates the file. [`Self::look_through`] checks the pages separately.
    pub fn open(path: &Path) -> Result<(Self, SqliteTx), StoreError> {
        let lock = take_lock(path)?;
        refuse_vanished(path, &lock)?;
        // SECURITY: created before SQLite opens it, which would make it readable for everyone; its log files take over
        // its mode.
        own().open(path).map_err(unavailable)?;
        let connection = Connection::open(path).map_err(fault)?;
        let mut tx =
            SqliteTx { connection, recent: Some(RecentWrites::default()), entries: Vec::new(), spent: Vec::new() };
        tx.recognise()?;
        tx.configure(true)?;
        tx.migrate()?;
        make_room(path);
        lock.set_len(1).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        let readers = (0..READERS).map(|_| open_reader(path).map(Mutex::new)).collect::<Result<_, _>>()?;
        let stop_reader = Some(Mutex::new(open_reader(path)?));
        let status_reader = Some(Mutex::new(open_reader(path)?));
        let (path, queue, stops, writer) = (path.to_path_buf(), None, None, None);
        Ok((Self { path, queue, stops, writer, readers, stop_reader, status_reader, _lock: lock }, tx))
    }

    /// Checks every page, over its own connection.
    pub fn check_pages(&self) -> Result<(), StoreError> {
        open_reader(&self.path)?.examine().map(drop)
    }

    /// Moves the log into the file and truncates it to nothing: it holds older versions of pages.
    pub fn empty_log(&self) -> Result<(), StoreError> {
        let connection = Connection::open(&self.path).map_err(fault)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
        // If a reader blocks this for longer, the writer's next checkpoint overwrites the log.
        let _busy: i64 =
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(fault)?;
        Ok(())
    }

    /// Passes the writing connection to its thread.
    pub fn start(&mut self, tx: SqliteTx, node: NodeName, clock: Arc<dyn Clock>) -> Result<(), StoreError> {
        let (queue, ordinary) = mpsc::channel(4 * GROUP);
        let (stop_queue, stops) = mpsc::channel(GROUP);
        let ballast = BallastFile::beside(&self.path);
        let porter = ReplyDispatcher::new();
        let footing = OpenedFiles::of(&self.path);
        let writer = SqliteWriter { tx, ordinary, stops, node, clock, ballast, footing, porter, broken: None };
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run())
            .map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        self.queue = Some(queue);
        self.stops = Some(stop_queue);
        self.writer = Some(writer);
        Ok(())
    }

    pub async fn send(&self, errand: Box<dyn StoreCommand<SqliteTx>>) -> Result<(), StoreError> {
        let stopped = || StoreError::Unavailable("the writer has stopped".into());
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(errand).await.map_err(|_| stopped())
    }

    /// Sends a command past everything in the ordinary queue.
    pub async fn send_stop(&self, errand: Box<dyn StoreCommand<SqliteTx>>) -> Result<(), StoreError> {
        let stopped = || StoreError::Unavailable("the writer has stopped".into());
        let queue = self.stops.as_ref().ok_or_else(stopped)?;
        queue.send(errand).await.map_err(|_| stopped())
    }

    /// Reads on the calling thread: on any free ordinary connection, or on the reserved one.
    pub fn read<Out>(
        &self,
        line: ReadLane,
        ask: impl FnOnce(&mut SqliteTx) -> Result<Out, StoreError>,
    ) -> Result<Out, StoreError> {
        let free = || self.readers.iter().find_map(Mutex::try_lock);
        let reader = match line {
            ReadLane::Ordinary => free().or_else(|| self.readers.first().map(Mutex::lock)),
            ReadLane::Stop => self.stop_reader.as_ref().map(Mutex::lock),
            ReadLane::Status => self.status_reader.as_ref().map(Mutex::lock),
        };
        ask(&mut *reader.ok_or_else(|| StoreError::Unavailable("no connection for reading".into()))?)
    }

    /// Holds every ordinary connection for reading. For tests.
    pub fn occupy_readers(&self) -> Vec<MutexGuard<'_, SqliteTx>> {
        self.readers.iter().map(Mutex::lock).collect()
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        // Readers first: only the last connection to close moves the log into the file, and only the writer can do
        // that. A copy of a stopped gateway's file must contain everything.
        self.readers.clear();
        self.stop_reader = None;
        self.status_reader = None;
        // The writer reads the stop queue first, so that queue must not close last.
        self.stops = None;
        // Closing the queue lets the writer finish its work and end; the file lock is released after that.
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}

/// A use case on SQLite never waits; if it would, that is a bug of ours, not a reason to hang.
pub(crate) fn poll_now<Out>(work: impl Future<Output = Result<Out, StoreError>>) -> Result<Out, StoreError> {
    work.now_or_never().unwrap_or_else(|| Err(StoreError::Unavailable("a local read tried to wait".into())))
}

fn open_reader(path: &Path) -> Result<SqliteTx, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
    keep_plans(&connection)?;
    setting(&connection, "query_only", "1")?;
    Ok(SqliteTx { connection, recent: None, entries: Vec::new(), spent: Vec::new() })
}

/// Opens a database read-only, even while others have it open: for export and inspection.
pub(crate) fn open_to_read(path: &Path) -> Result<SqliteTx, StoreError> {
    if !path.is_file() {
        return Err(StoreError::NotFound { what: "database file" });
    }
    let reader = open_reader(path)?;
    if reader.number("application_id")? != APPLICATION_ID {
        return Err(StoreError::Foreign);
    }
    let found = reader.number("user_version")?;
    if found > migrate::CURRENT {
        return Err(StoreError::NewerSchema { found, known: migrate::CURRENT });
    }
    Ok(reader)
}

/// One process per file: two writers would each believe that they own the end of the audit log.
pub(crate) fn take_lock(path: &Path) -> Result<File, StoreError> {
    let mut beside: PathBuf = path.to_path_buf();
    beside.as_mut_os_string().push(".lock");
    let lock = own().open(&beside).map_err(unavailable)?;
    let kind = rustix::fs::fstatfs(&lock).map_err(|error| unavailable(error.into()))?.f_type;
    if REMOTE.contains(&kind) {
        return Err(StoreError::DurabilityOff { setting: "file system", found: format!("{kind:#x}") });
    }
    lock.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => StoreError::InUse,
        std::fs::TryLockError::Error(error) => unavailable(error),
    })?;
    Ok(lock)
}

/// Options for a file of ours, created if missing; no other user may read or write a new one.
fn own() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600);
    options
}

fn unavailable(error: std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => StoreError::ReadOnly,
        std::io::ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::Unavailable(Box::new(error)),
    }
}

/// Gives the log its full length once: a sync then does not have to store a new length, only the content. The filler is
/// not a valid frame, so SQLite ignores it. Without enough space, the log grows as needed.
fn make_room(path: &Path) {
    let mut beside: PathBuf = path.to_path_buf();
    beside.as_mut_os_string().push("-wal");
    let Ok(log) = File::options().write(true).open(&beside) else { return };
    let Ok(length) = log.metadata().map(|data| data.len()) else { return };
    let missing = usize::try_from(LOG_ROOM.saturating_sub(length)).unwrap_or(0);
    if log.write_all_at(&vec![0; missing], length).and_then(|()| log.sync_all()).is_err() {
        drop(log.set_len(length));
    }
}

/// The lock file has a byte once there has been a database. An empty database beside it is not a new one.
fn refuse_vanished(path: &Path, lock: &File) -> Result<(), StoreError> {
    let size = |data: std::io::Result<std::fs::Metadata>| data.map_or(0, |data| data.len());
    if size(lock.metadata()) > 0 && size(std::fs::metadata(path)) == 0 {
        return Err(StoreError::Damaged { detail: "the file is empty, but it held a database before".into() });
    }
    Ok(())
}

/// A statement is planned only once. Otherwise SQLite plans it again whenever a bound value could make a partial index
/// usable: that is every time, and costs more than running it.
fn keep_plans(connection: &Connection) -> Result<(), StoreError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop).map_err(fault)
}

/// Sets a pragma and reads it back, because only the value read back counts.
fn setting(connection: &Connection, name: &'static str, value: &str) -> Result<(), StoreError> {
    connection.pragma_update(None, name, value).map_err(fault)?;
    let found: rusqlite::types::Value =
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).map_err(fault)?;
    let found = match found {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    };
    if found != value {
        return Err(StoreError::DurabilityOff { setting: name, found });
    }
    Ok(())
}

fn value_of(value: ValueRef<'_>) -> Result<SqlValue, StoreError> {
    Ok(match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Int(number),
        ValueRef::Text(text) => SqlValue::Text(
            String::from_utf8(text.to_vec())
                .map_err(|_| StoreError::Damaged { detail: "a text that is not UTF-8".into() })?,
        ),
        ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
        ValueRef::Real(_) => return Err(StoreError::Damaged { detail: "a number that is not an integer".into() }),
    })
}

impl rusqlite::ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Converts the library's errors into ours. Engine texts may quote values, so they stay internal.
pub(crate) fn fault(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::DiskFull,
        Some(ErrorCode::ReadOnly) => StoreError::ReadOnly,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse,
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { detail: "SQLite reports corruption".into() },
        Some(ErrorCode::NotADatabase) => StoreError::Damaged { detail: "this is not a database file".into() },
        Some(ErrorCode::SystemIoFailure) => StoreError::Damaged { detail: "reading or syncing the file failed".into() },
        Some(ErrorCode::ConstraintViolation) => StoreError::Conflict,
        Some(ErrorCode::CannotOpen) => StoreError::Unavailable(Box::new(error)),
        _ => StoreError::Engine(Box::new(error)),
    }
}
