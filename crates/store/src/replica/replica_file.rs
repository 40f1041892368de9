//! One file of a replica: its writer, its readers, and what is cached in memory about it.
//!
//! Promise: a reader works on the calling thread with a connection nobody else uses meanwhile; readers never wait for
//! the writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use sluice_core::UtcMillis;
use sluice_core::mail::Mail;
use sluice_seal::Seal;

use super::packing::{self, BodyUnpacker};
use super::{MOST_HITS, ReplicaFreshness, ReplicaReader};
use crate::error::StoreError;
use crate::sqlite::fault;

/// Marks a file as a replica of ours: "Slur".
const APPLICATION_ID: i64 = 0x536c_7572;
/// Increased when the format changes; an older replica is rebuilt.
const FORM: i64 = 4;
const SCHEMA: &str = include_str!("schema.sql");
/// Idle connections that are kept for the next reader.
const KEPT: usize = 16;

pub const UNREAD: i64 = 1;
pub const ATTACHMENT: i64 = 2;
/// In the trash or spam folder: not found unless asked for.
pub const HIDDEN: i64 = 4;
pub const WITHHELD: i64 = 8;
pub const CUT: i64 = 16;
/// Parsers read it in two ways.
pub const AMBIGUOUS: i64 = 32;
/// The first bit of the receiving server's verdicts about the sender, and how many values they have.
pub const VERDICTS: (u32, i64) = (8, 512);

const GET: &str = "SELECT id, thread, received, labels, subject, size, flags, dictionary, length, packed FROM messages \
    WHERE id = ?1";
const THREAD: &str = "SELECT id, thread, received, labels, subject, size, flags, dictionary, length, packed FROM messages \
    WHERE thread = ?1 ORDER BY key LIMIT ?2";
/// Bytes of a page: a smaller page is left half empty by few rows, and a larger one costs more to read than a row is
/// worth.
const PAGE: i64 = 8192;

/// A label of the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxLabel {
    pub n: i64,
    pub id: String,
    pub name: String,
}

/// One file of a replica.
#[derive(Debug)]
pub struct ReplicaFile {
    pub path: PathBuf,
    pub generation: u64,
    writer: Mutex<ReplicaWriter>,
    idle: Mutex<Vec<ReplicaConnection>>,
    labels: RwLock<Arc<Vec<MailboxLabel>>>,
    freshness: Mutex<ReplicaFreshness>,
    /// The encryption of the file, if it is encrypted. Last, so that connections close before it is dropped.
    pub seal: Option<Arc<Seal>>,
}

/// The one connection that writes.
#[derive(Debug)]
pub struct ReplicaWriter {
    pub connection: Connection,
    pub packer: Option<packing::BodyPacker>,
    /// The next free key after a second that was used before.
    pub next_key: std::collections::HashMap<i64, i64>,
}

/// A connection for reading, with what it needs to open bodies.
#[derive(Debug)]
pub struct ReplicaConnection {
    pub connection: Connection,
    pub unpacker: BodyUnpacker,
}

impl ReplicaFile {
    /// Opens a file, or creates one.
    pub fn open(path: &Path, generation: u64, seal: Option<Arc<Seal>>) -> Result<Self, StoreError> {
        begin(path)?;
        let connection = connect(path, seal.as_deref(), OpenFlags::default())?;
        // Data lost in a power failure comes again with the next sync: rows and cursor go together.
        connection.pragma_update(None, "page_size", PAGE).map_err(fault)?;
        for (name, value) in [("journal_mode", "wal"), ("synchronous", "1"), ("wal_autocheckpoint", "2000")] {
            connection.pragma_update(None, name, value).map_err(fault)?;
        }
        let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        match (number("application_id").map_err(fault)?, number("user_version").map_err(fault)?) {
            (APPLICATION_ID, FORM) => {}
            (0, 0) => {
                let text = format!(
                    "BEGIN IMMEDIATE;\n{SCHEMA}\nPRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {FORM};\nCOMMIT;"
                );
                connection.execute_batch(&text).map_err(fault)?;
            }
            (APPLICATION_ID, _) => return Err(StoreError::Damaged { detail: "a replica of another release".into() }),
            _ => return Err(StoreError::Foreign),
        }
        let writer = ReplicaWriter { connection, packer: None, next_key: std::collections::HashMap::new() };
        let copy = Self {
            path: path.to_path_buf(),
            generation,
            writer: Mutex::new(writer),
            idle: Mutex::new(Vec::new()),
            labels: RwLock::new(Arc::new(Vec::new())),
            freshness: Mutex::new(ReplicaFreshness::default()),
            seal,
        };
        let writer = copy.writer();
        copy.refresh(&writer.connection)?;
        drop(writer);
        Ok(copy)
    }

    /// Locks the writer for one batch.
    pub fn writer(&self) -> MutexGuard<'_, ReplicaWriter> {
        self.writer.lock()
    }

    /// Reads labels and freshness again.
    pub fn refresh(&self, connection: &Connection) -> Result<(), StoreError> {
        let mut statement = connection.prepare_cached("SELECT n, id, name FROM labels ORDER BY n").map_err(fault)?;
        let rows =
            statement.query_map([], |row| Ok(MailboxLabel { n: row.get(0)?, id: row.get(1)?, name: row.get(2)? }));
        let labels: Result<Vec<MailboxLabel>, _> = rows.map_err(fault)?.collect();
        *self.labels.write() = Arc::new(labels.map_err(fault)?);
        let read = |row: &Row<'_>| {
            let count = |value: Option<i64>| value.and_then(|n| u64::try_from(n).ok());
            Ok(ReplicaFreshness {
                synced_at: row.get::<_, Option<i64>>(0)?.map(UtcMillis::from_millis),
                complete: row.get::<_, i64>(1)? != 0,
                done: count(row.get(2)?).unwrap_or(0),
                total: count(row.get(3)?),
            })
        };
        let found =
            connection.query_row("SELECT synced_at, complete, done, total FROM sync", [], read).map_err(fault)?;
        *self.freshness.lock() = found;
        Ok(())
    }

    pub fn labels(&self) -> Arc<Vec<MailboxLabel>> {
        Arc::clone(&self.labels.read())
    }

    pub fn freshness(&self) -> ReplicaFreshness {
        *self.freshness.lock()
    }

    pub fn cursor(&self) -> Result<Option<String>, StoreError> {
        let writer = self.writer();
        writer.connection.query_row("SELECT cursor FROM sync", [], |row| row.get(0)).map_err(fault)
    }

    pub fn count(&self) -> Result<u64, StoreError> {
        self.with_reader(|opened| {
            let count: i64 =
                opened.connection.query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).map_err(fault)?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
    }

    pub fn withheld_count(&self) -> Result<u64, StoreError> {
        self.with_reader(|opened| {
            let sql = "SELECT count(*) FROM messages WHERE (flags & ?1) <> 0";
            let count: i64 = opened.connection.query_row(sql, [WITHHELD], |row| row.get(0)).map_err(fault)?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
    }

    /// Moves everything into the file itself and makes it durable.
    pub fn settle(&self) -> Result<(), StoreError> {
        let writer = self.writer();
        writer.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(fault)?;
        let file = std::fs::File::open(&self.path).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        file.sync_all().map_err(|error| StoreError::Unavailable(Box::new(error)))
    }

    /// Reads on the calling thread.
    pub fn with_reader<Out>(
        &self,
        read: impl FnOnce(&mut ReplicaConnection) -> Result<Out, StoreError>,
    ) -> Result<Out, StoreError> {
        let kept = self.idle.lock().pop();
        let mut opened = match kept {
            Some(opened) => opened,
            None => self.connect()?,
        };
        let answer = read(&mut opened);
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(opened);
        }
        answer
    }

    fn connect(&self) -> Result<ReplicaConnection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(&self.path, self.seal.as_deref(), flags)?;
        Ok(ReplicaConnection { connection, unpacker: BodyUnpacker::default() })
    }
}

/// Creates a file that only we can read, if there is none.
pub fn begin(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options.open(path).map(drop).map_err(|error| StoreError::Unavailable(Box::new(error)))
}

/// A connection to a file, through its encryption if it has one.
pub fn connect(path: &Path, seal: Option<&Seal>, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = match seal {
        Some(seal) => Connection::open_with_flags_and_vfs(path, flags, seal.vfs()),
        None => Connection::open_with_flags(path, flags),
    };
    let connection = connection.map_err(fault)?;
    settings(&connection)?;
    if seal.is_some() {
        // Temporary and sorted data stays in memory. In a file it would be encrypted as well, and cost time.
        connection.pragma_update(None, "temp_store", "memory").map_err(fault)?;
    }
    Ok(connection)
}

fn settings(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    for (name, value) in [("trusted_schema", "0"), ("cell_size_check", "1"), ("cache_size", "-8000")] {
        connection.pragma_update(None, name, value).map_err(fault)?;
    }
    Ok(())
}

/// Unpacks a body, loading its dictionary first if that is new.
pub fn body<'u>(
    connection: &Connection,
    unpacker: &'u mut BodyUnpacker,
    (dictionary, length, packed): (i64, i64, &[u8]),
) -> Result<&'u [u8], StoreError> {
    if !unpacker.knows(dictionary) {
        let bytes: Option<Vec<u8>> = connection
            .query_row("SELECT bytes FROM dictionaries WHERE n = ?1", [dictionary], |row| row.get(0))
            .optional()
            .map_err(fault)?;
        unpacker.learn(dictionary, bytes.as_deref().unwrap_or_default())?;
    }
    unpacker.open(dictionary, length, packed)
}

/// Unpacks the body whose dictionary, length and bytes are in a row from this column on.
pub fn body_in<'u>(
    connection: &Connection,
    unpacker: &'u mut BodyUnpacker,
    row: &Row<'_>,
    at: usize,
) -> Result<&'u [u8], StoreError> {
    let packed = row.get_ref(at + 2).map_err(fault)?.as_blob().map_err(|_| impossible())?;
    let about = (row.get(at).map_err(fault)?, row.get(at + 1).map_err(fault)?, packed);
    body(connection, unpacker, about)
}

/// One message.
pub fn get(opened: &mut ReplicaConnection, id: &str, reader: ReplicaReader) -> Result<Option<Mail>, StoreError> {
    let ReplicaConnection { connection, unpacker } = opened;
    let mut statement = connection.prepare_cached(GET).map_err(fault)?;
    let mut rows = statement.query(params![id]).map_err(fault)?;
    match rows.next().map_err(fault)? {
        Some(row) => read(connection, unpacker, row, reader).map(Some),
        None => Ok(None),
    }
}

/// A thread.
pub fn thread(opened: &mut ReplicaConnection, thread: &str, reader: ReplicaReader) -> Result<Vec<Mail>, StoreError> {
    let ReplicaConnection { connection, unpacker } = opened;
    let mut statement = connection.prepare_cached(THREAD).map_err(fault)?;
    let most = i64::try_from(MOST_HITS).unwrap_or(100);
    let mut rows = statement.query(params![thread, most]).map_err(fault)?;
    let mut mails = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        mails.push(read(connection, unpacker, row, reader)?);
    }
    Ok(mails)
}

fn read(
    connection: &Connection,
    unpacker: &mut BodyUnpacker,
    row: &Row<'_>,
    reader: ReplicaReader,
) -> Result<Mail, StoreError> {
    let flags: i64 = row.get(6).map_err(fault)?;
    let labels = row.get_ref(3).map_err(fault)?.as_str().map_err(|_| impossible())?;
    let mut mail = Mail {
        id: row.get(0).map_err(fault)?,
        thread: row.get(1).map_err(fault)?,
        received: row.get(2).map_err(fault)?,
        labels: labels.split_whitespace().map(str::to_owned).collect(),
        subject: row.get(4).map_err(fault)?,
        size: u64::try_from(row.get::<_, i64>(5).map_err(fault)?).unwrap_or(0),
        cut: flags & CUT != 0,
        ..Mail::default()
    };
    packing::fill(&mut mail, body_in(connection, unpacker, row, 7)?)?;
    // The row holds the subject that people are shown. An agent gets no subject that parsers read in two ways.
    if mail.ambiguous.as_ref().is_some_and(|doubt| !doubt.subjects.is_empty()) {
        mail.subject.clear();
    }
    // SECURITY: the only place where a complete message leaves the replica. A withheld message leaves as a stub.
    if reader == ReplicaReader::Agent && flags & WITHHELD != 0 {
        let withheld = std::mem::take(&mut mail.withheld);
        let Mail { id, thread, received, labels, size, .. } = mail;
        mail = Mail { id, thread, received, labels, size, withheld, ..Mail::default() };
    }
    Ok(mail)
}

fn impossible() -> StoreError {
    StoreError::Impossible { table: "messages", detail: "a value of the wrong type" }
}
