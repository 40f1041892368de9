//! Writes into a replica: rows, words and cursor in one transaction.
//!
//! Promise: a batch is applied completely or not at all; applying it twice has the same result as once; labels change
//! without touching the word index.

use std::fmt::Write as _;

use rusqlite::{Connection, OptionalExtension as _, params};
use sluice_core::mail::{Mail, SenderAuthentication, words};

use super::attachments;
use super::packing::{self, BodyPacker, BodyUnpacker};
use super::replica_file::{
    self, AMBIGUOUS, ATTACHMENT, CUT, HIDDEN, ReplicaFile, ReplicaWriter, UNREAD, VERDICTS, WITHHELD,
};
use super::{ReplicaBatch, ReplicaChange, ReplicaReader};
use crate::error::StoreError;
use crate::sqlite::fault;

/// Marks a word of this part of a message. Nobody types these characters; they are removed from texts first.
pub const FROM: char = '\u{e001}';
pub const TO: char = '\u{e002}';
pub const SUBJECT: char = '\u{e003}';

/// Messages within one second that keep their exact order.
const PER_SECOND: i64 = 16;
/// Latest second that has a key: the year 10000.
const LAST_SECOND: i64 = 253_402_300_800;
/// Number of messages after which a dictionary is trained.
const ENOUGH_TO_LEARN: i64 = 2_000;
/// Longest preview shown in lists, in characters.
const PREVIEW: usize = 100;
/// Flags that are derived from labels, and change with them.
const LABEL_FLAGS: i64 = UNREAD | HIDDEN;
/// How many seconds are remembered with their next free key.
const REMEMBERED: usize = 100_000;

/// The smallest key of a time.
pub fn key_at(millis: i64) -> i64 {
    millis.div_euclid(1000).clamp(0, LAST_SECOND) * PER_SECOND
}

/// Applies a batch.
pub fn batch(copy: &ReplicaFile, batch: &ReplicaBatch) -> Result<(), StoreError> {
    let mut writer = copy.writer();
    let writer = &mut *writer;
    writer.connection.execute_batch("BEGIN IMMEDIATE").map_err(fault)?;
    let done = changes(writer, batch).and_then(|()| writer.connection.execute_batch("COMMIT").map_err(fault));
    if let Err(error) = done {
        drop(writer.connection.execute_batch("ROLLBACK"));
        // A key that was given to a row that no longer exists must not be skipped forever.
        writer.next_key.clear();
        return Err(error);
    }
    copy.refresh(&writer.connection)
}

/// Makes a withheld message visible to agents.
pub fn release(copy: &ReplicaFile, id: &str) -> Result<(), StoreError> {
    let found = copy.with_reader(|opened| replica_file::get(opened, id, ReplicaReader::Person))?;
    let mut mail = found.ok_or(StoreError::NotFound { what: "message" })?;
    mail.withheld.clear();
    let mut writer = copy.writer();
    let writer = &mut *writer;
    writer.connection.execute_batch("BEGIN IMMEDIATE").map_err(fault)?;
    let done = put(writer, &mail).and_then(|()| writer.connection.execute_batch("COMMIT").map_err(fault));
    if done.is_err() {
        drop(writer.connection.execute_batch("ROLLBACK"));
    }
    done
}

fn changes(writer: &mut ReplicaWriter, batch: &ReplicaBatch) -> Result<(), StoreError> {
    learn(writer)?;
    for change in &batch.changes {
        match change {
            ReplicaChange::Put(mail) => put(writer, mail)?,
            ReplicaChange::File { sha256, bytes } => attachments::keep(&writer.connection, sha256, bytes)?,
            ReplicaChange::Aside(mail) => {
                put(writer, mail)?;
                let sql = "INSERT OR IGNORE INTO aside (id) VALUES (?1)";
                let mut statement = writer.connection.prepare_cached(sql).map_err(fault)?;
                statement.execute([&mail.id]).map_err(fault)?;
            }
            ReplicaChange::Labels { id, labels } => relabel(&writer.connection, id, labels)?,
            ReplicaChange::Gone { id } => {
                let held = remove(&writer.connection, id)?;
                attachments::sweep(&writer.connection, &held)?;
            }
            ReplicaChange::LabelNames(names) => name_labels(&writer.connection, names)?,
        }
    }
    let (done, total) = batch.progress.map_or((None, None), |(done, total)| (Some(done), total));
    let number = |value: Option<u64>| value.and_then(|n| i64::try_from(n).ok());
    let synced = batch.synced_at.map(sluice_core::UtcMillis::as_millis);
    // The first time the replica matches the service makes it complete, permanently.
    let sql = "UPDATE sync SET cursor = ?1, synced_at = coalesce(?2, synced_at), complete = complete OR ?2 IS NOT NULL, \
        done = coalesce(?3, done), total = coalesce(?4, total)";
    let mut statement = writer.connection.prepare_cached(sql).map_err(fault)?;
    statement.execute(params![batch.cursor, synced, number(done), number(total)]).map_err(fault)?;
    Ok(())
}

/// Trains a dictionary once there are enough messages.
fn learn(writer: &mut ReplicaWriter) -> Result<(), StoreError> {
    if writer.packer.is_none() {
        let sql = "SELECT n, bytes FROM dictionaries ORDER BY n DESC LIMIT 1";
        let known: Option<(i64, Vec<u8>)> =
            writer.connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(fault)?;
        if let Some((n, bytes)) = known {
            writer.packer = Some(BodyPacker::new(n, &bytes)?);
            return Ok(());
        }
        let count: i64 =
            writer.connection.query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).map_err(fault)?;
        if count < ENOUGH_TO_LEARN {
            return Ok(());
        }
        let (mut samples, mut unpacker) = (Vec::new(), BodyUnpacker::default());
        let sql = "SELECT dictionary, length, packed FROM messages WHERE length < 16384 ORDER BY key DESC LIMIT ?1";
        let mut statement = writer.connection.prepare(sql).map_err(fault)?;
        let mut rows = statement.query([ENOUGH_TO_LEARN]).map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            let packed: Vec<u8> = row.get(2).map_err(fault)?;
            let about = (row.get(0).map_err(fault)?, row.get(1).map_err(fault)?, packed.as_slice());
            samples.push(replica_file::body(&writer.connection, &mut unpacker, about)?.to_vec());
        }
        let learnt = packing::dictionary(&samples).unwrap_or_default();
        let sql = "INSERT INTO dictionaries (n, bytes) VALUES (1, ?1)";
        writer.connection.execute(sql, [&learnt]).map_err(fault)?;
        writer.packer = Some(BodyPacker::new(1, &learnt)?);
    }
    Ok(())
}

fn put(writer: &mut ReplicaWriter, mail: &Mail) -> Result<(), StoreError> {
    let connection = &writer.connection;
    let sql = "SELECT key, received, size, subject, flags FROM messages WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(fault)?;
    let known = statement
        .query_row([&mail.id], |row| {
            let same = row.get::<_, i64>(1)? == mail.received
                && row.get::<_, i64>(2)? == signed(mail.size)
                && row.get_ref(3)?.as_str().is_ok_and(|subject| subject == mail.subject_line())
                && (row.get::<_, i64>(4)? & !LABEL_FLAGS) == (flags(mail) & !LABEL_FLAGS);
            Ok(same)
        })
        .optional()
        .map_err(fault)?;
    drop(statement);
    let held = match known {
        // A message never changes at the service; only its labels do.
        Some(true) => return relabel(connection, &mail.id, &mail.labels),
        Some(false) => remove(connection, &mail.id)?,
        None => Vec::new(),
    };
    let key = free_key(writer, mail.received)?;
    let plain = packing::plain(mail)?;
    let packed = match &mut writer.packer {
        Some(packer) => packer.pack(&plain)?,
        None => BodyPacker::new(0, &[])?.pack(&plain)?,
    };
    let connection = &writer.connection;
    let sql = "INSERT INTO messages (key, id, thread, received, sender, subject, preview, labels, flags, size, dictionary, \
        length, packed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let (sender, subject) = (mail.sender_line(), mail.subject_line());
    let row = params![
        key,
        mail.id,
        mail.thread,
        mail.received,
        sender,
        subject,
        preview(&mail.text),
        mail.labels.join(" "),
        flags(mail),
        signed(mail.size),
        packed.dictionary,
        packed.length,
        packed.bytes
    ];
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(row)).map_err(fault)?;
    set_labels(connection, key, &mail.labels)?;
    attachments::link_attachments(connection, key, mail)?;
    // Only now: in most cases the message still holds what it held before.
    attachments::sweep(connection, &held)?;
    let sql = "INSERT INTO words (rowid, text) VALUES (?1, ?2)";
    let text = indexed(mail, &sender);
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params![key, text])).map_err(fault)?;
    Ok(())
}

fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn flags(mail: &Mail) -> i64 {
    let of = |holds: bool, flag: i64| if holds { flag } else { 0 };
    of(!mail.attachments.is_empty(), ATTACHMENT)
        | of(!mail.withheld.is_empty(), WITHHELD)
        | of(mail.cut, CUT)
        | of(mail.ambiguous.is_some(), AMBIGUOUS)
        | i64::from(mail.authentication.map_or(0, SenderAuthentication::to_bits)) << VERDICTS.0
        | label_flags(&mail.labels)
}

fn label_flags(labels: &[String]) -> i64 {
    let has = |name: &str| labels.iter().any(|label| label == name);
    (if has("UNREAD") { UNREAD } else { 0 }) | (if has("TRASH") || has("SPAM") { HIDDEN } else { 0 })
}

/// The next free key of a second.
fn free_key(writer: &mut ReplicaWriter, received: i64) -> Result<i64, StoreError> {
    let base = key_at(received);
    if writer.next_key.len() > REMEMBERED {
        writer.next_key.clear();
    }
    let mut key = writer.next_key.get(&base).copied().unwrap_or(base);
    let mut statement = writer.connection.prepare_cached("SELECT 1 FROM messages WHERE key = ?1").map_err(fault)?;
    while statement.exists([key]).map_err(fault)? {
        key += 1;
    }
    writer.next_key.insert(base, key + 1);
    Ok(key)
}

fn key_of(connection: &Connection, id: &str) -> Result<Option<(i64, i64)>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT key, flags FROM messages WHERE id = ?1").map_err(fault)?;
    statement.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(fault)
}

fn relabel(connection: &Connection, id: &str, labels: &[String]) -> Result<(), StoreError> {
    // A message that is not here yet will bring its labels with it.
    let Some((key, flags)) = key_of(connection, id)? else { return Ok(()) };
    let flags = (flags & !LABEL_FLAGS) | label_flags(labels);
    let sql = "UPDATE messages SET labels = ?2, flags = ?3 WHERE key = ?1 AND (labels <> ?2 OR flags <> ?3)";
    let changed = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute(params![key, labels.join(" "), flags]))
        .map_err(fault)?;
    if changed > 0 {
        forget_labels(connection, key)?;
        set_labels(connection, key, labels)?;
    }
    Ok(())
}

fn forget_labels(connection: &Connection, key: i64) -> Result<(), StoreError> {
    // There are few labels, so one lookup for each is faster than an index by message.
    let sql = "DELETE FROM labelled WHERE key = ?1 AND label IN (SELECT n FROM labels)";
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([key])).map_err(fault)?;
    Ok(())
}

fn set_labels(connection: &Connection, key: i64, labels: &[String]) -> Result<(), StoreError> {
    for label in labels {
        let sql = "INSERT INTO labels (id, name) VALUES (?1, ?1) ON CONFLICT (id) DO NOTHING";
        connection.prepare_cached(sql).and_then(|mut statement| statement.execute([label])).map_err(fault)?;
        let sql = "INSERT OR IGNORE INTO labelled (label, key) SELECT n, ?2 FROM labels WHERE id = ?1";
        connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params![label, key]))
            .map_err(fault)?;
    }
    Ok(())
}

/// Removes a message. Gives the hashes of the attachments it held: the caller sweeps.
fn remove(connection: &Connection, id: &str) -> Result<Vec<String>, StoreError> {
    let Some((key, _)) = key_of(connection, id)? else { return Ok(Vec::new()) };
    forget_labels(connection, key)?;
    let held = attachments::unlink_attachments(connection, key)?;
    for sql in ["DELETE FROM words WHERE rowid = ?1", "DELETE FROM messages WHERE key = ?1"] {
        connection.prepare_cached(sql).and_then(|mut statement| statement.execute([key])).map_err(fault)?;
    }
    let sql = "DELETE FROM aside WHERE id = ?1";
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([id])).map_err(fault)?;
    Ok(held)
}

fn name_labels(connection: &Connection, names: &[(String, String)]) -> Result<(), StoreError> {
    let sql = "INSERT INTO labels (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = excluded.name";
    for (id, name) in names {
        connection.prepare_cached(sql).and_then(|mut statement| statement.execute([id, name])).map_err(fault)?;
    }
    Ok(())
}

/// The beginning of a text, on one line.
pub fn preview(text: &str) -> String {
    let mut out = String::with_capacity(PREVIEW + 4);
    let mut count = 0;
    for word in text.split_whitespace() {
        if count > 0 {
            out.push(' ');
        }
        let room = PREVIEW.saturating_sub(count);
        out.extend(word.chars().take(room));
        count += word.chars().count() + 1;
        if count >= PREVIEW {
            break;
        }
    }
    out
}

/// All words of a message, each once; words of its header are marked as well.
fn indexed(mail: &Mail, sender: &str) -> String {
    let mut all: Vec<String> = Vec::with_capacity(256);
    let mut marked = |text: &str, mark: char| {
        words::each(text, |word, _, _| {
            all.push(word.to_owned());
            let mut with = String::with_capacity(word.len() + 3);
            with.push(mark);
            with.push_str(word);
            all.push(with);
        });
    };
    marked(sender, FROM);
    marked(&mail.subject_line(), SUBJECT);
    for person in mail.to.iter().chain(&mail.cc) {
        marked(&person.to_string(), TO);
    }
    for attachment in &mail.attachments {
        words::each(attachment.name.as_deref().unwrap_or_default(), |word, _, _| all.push(word.to_owned()));
    }
    words::each(&mail.text, |word, _, _| all.push(word.to_owned()));
    all.sort_unstable();
    all.dedup();
    let mut text = String::with_capacity(all.len() * 8);
    for word in &all {
        let _never_fails = write!(text, "{word} ");
    }
    text
}
