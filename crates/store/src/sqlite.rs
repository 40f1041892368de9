//! SQLite: one file, one connection that writes and checkpoints, one thread that owns it.
//!
//! Takes errands; commits whatever has queued up together with one sync to disk (group commit).
//! Promise: settings that durability rests on are read back, an answer leaves after its commit, and
//! after a failed sync nothing more is written, because the page cache can no longer be believed.

mod ballast;
mod footing;
mod writer;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt as _;
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use sluice_core::{Clock, Digest, HoldId, NodeName, Timestamp};
use tokio::sync::mpsc;

use crate::desk::{APPEND, CLOSE_GROUP, Errand, Group, NodeRow, OPEN_GROUP};
use crate::error::StoreError;
use crate::holds;
use crate::lane::Line;
use crate::migrate;
use crate::porter::Porter;
use crate::recent::{DUPLICATE_SPAN, Recent};
use crate::sql::{Row, Tx, Val, Write, params};
use ballast::Ballast;
use footing::OpenedFiles;
use writer::{GROUP, Writer};

/// First release without the WAL-reset race.
const OLDEST: i32 = 3_051_003;
/// Marks a file as ours: "Slui".
pub(crate) const APPLICATION_ID: i64 = 0x536c_7569;
/// Connections for reading.
const READERS: usize = 4;
/// File systems whose locks and syncs cannot be relied on: NFS, 9p, FUSE, SMB, CIFS.
const REMOTE: [i64; 5] = [0x6969, 0x0102_1997, 0x6573_5546, 0xff53_4d42, 0xfe53_4d42];

/// Before a line of the schema that is for databases with several nodes.
const SHARED: &str = "/*shared*/";
const LATELY: &str = "SELECT digest, admitted_at, id FROM holds WHERE admitted_at > ?1";
/// Pages in the log before they are moved into the file.
const LOG_PAGES: u32 = 4000;
/// As many bytes of log as that many pages take.
const LOG_ROOM: u64 = LOG_PAGES as u64 * (4096 + 24) + 32;

/// Entries in one statement.
const TOGETHER: usize = 8;
static APPEND_MANY: LazyLock<String> = LazyLock::new(|| {
    let (columns, _) = APPEND.split_once(" VALUES ").unwrap_or((APPEND, ""));
    format!("{columns} VALUES {}", ["(?, ?, ?, ?)"; TOGETHER].join(", "))
});

type Queue = mpsc::Sender<Box<dyn Errand<SqliteTx>>>;

/// The one connection that writes.
#[derive(Debug)]
pub(crate) struct SqliteTx {
    connection: Connection,
    /// What a file's writer remembers; a database in memory has several nodes, and an index.
    recent: Option<Recent>,
    /// Audit entries of the group, appended together at its end: nothing in a group reads them.
    entries: Vec<Write>,
    /// Changes made by the last group, for whoever has the time to free them.
    spent: Vec<Write>,
}

/// A file-backed store: the queue to its writer, and connections for reading.
pub(crate) struct SqliteFile {
    path: PathBuf,
    queue: Option<Queue>,
    stops: Option<Queue>,
    writer: Option<JoinHandle<()>>,
    readers: Vec<Mutex<SqliteTx>>,
    /// For the stop lane alone.
    stop_reader: Option<Mutex<SqliteTx>>,
    /// For how things stand alone.
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
        this.settle_in(false)?;
        this.migrate()?;
        Ok(this)
    }

    /// The connection itself, for a copy of the whole database.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    fn settle_in(&mut self, on_disk: bool) -> Result<(), StoreError> {
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
            // What is deleted is overwritten: content of a connection that ended must not stay in free pages.
            setting(connection, "secure_delete", "1")?;
        }
        keep_plans(connection)?;
        setting(connection, "foreign_keys", "1")?;
        setting(connection, "trusted_schema", "0")?;
        setting(connection, "cell_size_check", "1")
    }

    /// After how many pages the log is moved into the file; nothing moves it at zero.
    fn move_log_at(&self, pages: u32) -> Result<(), StoreError> {
        setting(&self.connection, "wal_autocheckpoint", &pages.to_string())
    }

    fn number(&self, pragma: &str) -> Result<i64, StoreError> {
        self.connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0)).map_err(fault)
    }

    /// Looks at every page. Gives the schema.
    pub fn examine(&self) -> Result<i64, StoreError> {
        let verdict: String =
            self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fault)?;
        if verdict != "ok" {
            return Err(StoreError::Damaged { detail: "the page structure is not sound".into() });
        }
        self.number("user_version")
    }

    /// Whether this is ours, and of a release we know. Changes nothing, so that a foreign file stays as it is.
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

    /// Reads again what was admitted lately. No later group has an earlier time than this one.
    pub fn remember(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let mut recent = Recent::starting(now);
        for row in self.query(LATELY, &params![now - DUPLICATE_SPAN])? {
            let mut row = row.of("holds");
            recent.read(&row.blob()?, row.time()?, row.bits()?);
        }
        self.recent = Some(recent);
        Ok(())
    }

    /// Runs errands in one transaction. On an error nothing of them happened.
    pub fn commit_group(
        &mut self,
        node: &NodeName,
        clock: &dyn Clock,
        errands: &mut [Box<dyn Errand<Self>>],
    ) -> Result<(), StoreError> {
        self.spent.clear();
        self.alone(|tx| tx.in_group(node, clock, errands))
    }

    /// What the last group has used up.
    pub fn take_spent(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.spent)
    }

    fn in_group(
        &mut self,
        node: &NodeName,
        clock: &dyn Clock,
        errands: &mut [Box<dyn Errand<Self>>],
    ) -> Result<(), StoreError> {
        let row = self.query(OPEN_GROUP, &params![node])?.into_iter().next();
        let row = NodeRow::read(row.ok_or(StoreError::NotFound { what: "node" })?)?;
        let mut group =
            Group { now: clock.now().max(row.last_seen), log: node.clone(), life: row.epoch, head: row.head };
        for errand in errands {
            at_once(errand.run(self, &mut group))?;
        }
        let close = params![node, group.now, group.head.size, group.head.hash, row.epoch];
        self.make_now(&Write { sql: CLOSE_GROUP, params: close, exactly_one: true })
    }

    /// Appends the entries of the group, in order, as many as go into one statement.
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

    /// Does one thing in a transaction of its own, outside any group.
    pub fn alone<Out>(&mut self, work: impl FnOnce(&mut Self) -> Result<Out, StoreError>) -> Result<Out, StoreError> {
        // Those of a transaction that did not happen.
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

    pub fn query(&mut self, sql: &'static str, params: &[Val]) -> Result<Vec<Row>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(fault)?;
        let width = statement.column_count();
        let mut found = statement.query(rusqlite::params_from_iter(params)).map_err(fault)?;
        let mut rows = Vec::new();
        while let Some(row) = found.next().map_err(fault)? {
            let values = (0..width).map(|at| row.get_ref(at).map_err(fault).and_then(value_of));
            rows.push(Row(values.collect::<Result<_, _>>()?));
        }
        Ok(rows)
    }

    fn make_now(&mut self, write: &Write) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(write.sql).map_err(fault)?;
        let hit = statement.execute(rusqlite::params_from_iter(&write.params)).map_err(fault)?;
        if write.exactly_one && hit != 1 {
            return Err(StoreError::Conflict);
        }
        if let (Some(recent), Some((digest, at, hold))) = (&mut self.recent, holds::inserted(write)) {
            recent.note(digest, at, hold);
        }
        Ok(())
    }
}

impl Tx for SqliteTx {
    const IS_SHARED: bool = false;

    fn recent_like(&self, digest: Digest) -> Option<Vec<HoldId>> {
        self.recent.as_ref().map(|recent| recent.like(digest))
    }

    async fn rows(&mut self, sql: &'static str, params: &[Val]) -> Result<Vec<Row>, StoreError> {
        self.query(sql, params)
    }

    async fn make(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
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
    /// Opens or creates the file. Whether all of its pages are sound is looked at separately: [`Self::look_through`].
    pub fn open(path: &Path) -> Result<(Self, SqliteTx), StoreError> {
        let lock = take_lock(path)?;
        refuse_vanished(path, &lock)?;
        // SECURITY: made before SQLite opens it, which would let everybody read; its log files follow its mode.
        own().open(path).map_err(unavailable)?;
        let connection = Connection::open(path).map_err(fault)?;
        let mut tx = SqliteTx { connection, recent: Some(Recent::default()), entries: Vec::new(), spent: Vec::new() };
        tx.recognise()?;
        tx.settle_in(true)?;
        tx.migrate()?;
        make_room(path);
        lock.set_len(1).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        let readers = (0..READERS).map(|_| open_reader(path).map(Mutex::new)).collect::<Result<_, _>>()?;
        let stop_reader = Some(Mutex::new(open_reader(path)?));
        let status_reader = Some(Mutex::new(open_reader(path)?));
        let (path, queue, stops, writer) = (path.to_path_buf(), None, None, None);
        Ok((Self { path, queue, stops, writer, readers, stop_reader, status_reader, _lock: lock }, tx))
    }

    /// Looks at every page, over a connection of its own.
    pub fn look_through(&self) -> Result<(), StoreError> {
        open_reader(&self.path)?.examine().map(drop)
    }

    /// Moves the log into the file and cuts it to nothing: it holds pages as they were before they changed.
    pub fn empty_log(&self) -> Result<(), StoreError> {
        let connection = Connection::open(&self.path).map_err(fault)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
        // Where a reader is in the way for longer than that, the next checkpoint of the writer overwrites the log.
        let _busy: i64 =
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(fault)?;
        Ok(())
    }

    /// Hands the writing connection to its thread.
    pub fn start(&mut self, tx: SqliteTx, node: NodeName, clock: Arc<dyn Clock>) -> Result<(), StoreError> {
        let (queue, ordinary) = mpsc::channel(4 * GROUP);
        let (stop_queue, stops) = mpsc::channel(GROUP);
        let ballast = Ballast::beside(&self.path);
        let porter = Porter::new();
        let footing = OpenedFiles::of(&self.path);
        let writer = Writer { tx, ordinary, stops, node, clock, ballast, footing, porter, broken: None };
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.live())
            .map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        self.queue = Some(queue);
        self.stops = Some(stop_queue);
        self.writer = Some(writer);
        Ok(())
    }

    pub async fn send(&self, errand: Box<dyn Errand<SqliteTx>>) -> Result<(), StoreError> {
        let stopped = || StoreError::Unavailable("the writer has stopped".into());
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(errand).await.map_err(|_| stopped())
    }

    /// Past everything that waits in the ordinary queue.
    pub async fn send_stop(&self, errand: Box<dyn Errand<SqliteTx>>) -> Result<(), StoreError> {
        let stopped = || StoreError::Unavailable("the writer has stopped".into());
        let queue = self.stops.as_ref().ok_or_else(stopped)?;
        queue.send(errand).await.map_err(|_| stopped())
    }

    /// Reads on the calling thread: on whichever ordinary connection is free, or on the one kept for this.
    pub fn read<Out>(
        &self,
        line: Line,
        ask: impl FnOnce(&mut SqliteTx) -> Result<Out, StoreError>,
    ) -> Result<Out, StoreError> {
        let free = || self.readers.iter().find_map(|reader| reader.try_lock().ok());
        let reader = match line {
            Line::Ordinary => free().or_else(|| self.readers.first().map(held)),
            Line::Stop => self.stop_reader.as_ref().map(held),
            Line::Status => self.status_reader.as_ref().map(held),
        };
        ask(&mut *reader.ok_or_else(|| StoreError::Unavailable("no connection for reading".into()))?)
    }

    /// Every ordinary connection for reading, taken. For tests.
    pub fn occupied(&self) -> Vec<MutexGuard<'_, SqliteTx>> {
        self.readers.iter().map(held).collect()
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        // Readers first: only the last connection to close moves what is in the log into the file, and
        // only the writer can. Who copies the file of a stopped gateway must find everything in it.
        self.readers.clear();
        self.stop_reader = None;
        self.status_reader = None;
        // The writer looks at stops first, so that their queue must not close last.
        self.stops = None;
        // Closing the queue lets the writer finish what it has and leave; the file lock goes after it.
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}

fn held(reader: &Mutex<SqliteTx>) -> MutexGuard<'_, SqliteTx> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A use case on SQLite never waits; if it would, that is a fault of ours, not a reason to hang.
pub(crate) fn at_once<Out>(work: impl Future<Output = Result<Out, StoreError>>) -> Result<Out, StoreError> {
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

/// Opens a copy of a database for reading only, whoever else has it: for export and inspection.
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

/// One process per file: two writers would each believe they own the audit head.
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

/// A file of ours, made if it is missing; nobody else may read or write a new one.
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

/// Makes the log as long as it will become, once: a sync need not write down a new length then, only what is in it.
/// What stands there is no frame, so that nobody reads it. Where there is no room, the log grows as it goes.
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

/// The lock file has a byte once there has been a database. An empty one beside it is not a new one.
fn refuse_vanished(path: &Path, lock: &File) -> Result<(), StoreError> {
    let size = |data: std::io::Result<std::fs::Metadata>| data.map_or(0, |data| data.len());
    if size(lock.metadata()) > 0 && size(std::fs::metadata(path)) == 0 {
        return Err(StoreError::Damaged { detail: "the file is empty, and it was not before".into() });
    }
    Ok(())
}

/// A statement is planned once. Otherwise SQLite plans it anew whenever a value is bound that could make a partial
/// index usable: that is every time, and costs more than running it.
fn keep_plans(connection: &Connection) -> Result<(), StoreError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop).map_err(fault)
}

/// Sets a pragma and believes only what is read back.
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

fn value_of(value: ValueRef<'_>) -> Result<Val, StoreError> {
    Ok(match value {
        ValueRef::Null => Val::Null,
        ValueRef::Integer(number) => Val::Int(number),
        ValueRef::Text(text) => Val::Text(
            String::from_utf8(text.to_vec())
                .map_err(|_| StoreError::Damaged { detail: "a text is not UTF-8".into() })?,
        ),
        ValueRef::Blob(bytes) => Val::Blob(bytes.to_vec()),
        ValueRef::Real(_) => return Err(StoreError::Damaged { detail: "a number is not whole".into() }),
    })
}

impl rusqlite::ToSql for Val {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Folds the library's errors into ours. Texts of the engine may quote values, so they stay inside.
pub(crate) fn fault(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::DiskFull,
        Some(ErrorCode::ReadOnly) => StoreError::ReadOnly,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse,
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { detail: "SQLite calls it malformed".into() },
        Some(ErrorCode::NotADatabase) => StoreError::Damaged { detail: "this is not a database file".into() },
        Some(ErrorCode::SystemIoFailure) => StoreError::Damaged { detail: "reading or syncing the file failed".into() },
        Some(ErrorCode::ConstraintViolation) => StoreError::Conflict,
        Some(ErrorCode::CannotOpen) => StoreError::Unavailable(Box::new(error)),
        _ => StoreError::Engine(Box::new(error)),
    }
}
