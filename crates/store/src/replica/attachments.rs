//! Contents of attachments, by their hash.
//!
//! Takes bytes once, however many messages hold them; gives them back. Promise: a content that only messages withheld
//! from agents hold does not exist for agents; a content that no message holds any more is not kept.

use rusqlite::{Connection, OptionalExtension as _, params};
use sluice_core::mail::Mail;

use super::replica_file::{self, ReplicaConnection, WITHHELD};
use super::{HeldAttachment, ReplicaReader};
use crate::error::StoreError;
use crate::sqlite::fault;

/// The compression level.
const LEVEL: i32 = 3;
/// Largest content that is unpacked, in bytes. Larger ones were never kept.
const LARGEST: usize = 32 << 20;

/// Stores a content that a message holds. Other contents are not kept.
pub fn keep(connection: &Connection, sha256: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let sql = "SELECT 1 FROM holders WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM files WHERE files.hash = ?1)";
    if !connection.prepare_cached(sql).and_then(|mut wanted| wanted.exists([sha256])).map_err(fault)? {
        return Ok(());
    }
    let packed = zstd::bulk::compress(bytes, LEVEL).map_err(|error| StoreError::Engine(Box::new(error)))?;
    let smaller = packed.len() < bytes.len();
    let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let sql = "INSERT INTO files (hash, size, is_packed, bytes) VALUES (?1, ?2, ?3, ?4)";
    let row = params![sha256, size, smaller, if smaller { packed.as_slice() } else { bytes }];
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(row)).map_err(fault)?;
    Ok(())
}

/// Records which contents a message holds.
pub fn link_attachments(connection: &Connection, key: i64, mail: &Mail) -> Result<(), StoreError> {
    let sql = "INSERT OR IGNORE INTO holders (hash, key) VALUES (?1, ?2)";
    for file in &mail.attachments {
        let mut statement = connection.prepare_cached(sql).map_err(fault)?;
        statement.execute(params![file.sha256, key]).map_err(fault)?;
    }
    Ok(())
}

/// Removes the links of a deleted message: gives the hashes it held, for [`sweep`].
pub fn unlink_attachments(connection: &Connection, key: i64) -> Result<Vec<String>, StoreError> {
    let mut statement =
        connection.prepare_cached("DELETE FROM holders WHERE key = ?1 RETURNING hash").map_err(fault)?;
    let hashes: Result<Vec<String>, _> = statement.query_map([key], |row| row.get(0)).map_err(fault)?.collect();
    hashes.map_err(fault)
}

/// Deletes those of them that no message holds any more.
pub fn sweep(connection: &Connection, hashes: &[String]) -> Result<(), StoreError> {
    let sql = "DELETE FROM files WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM holders WHERE holders.hash = ?1)";
    for hash in hashes {
        connection.prepare_cached(sql).and_then(|mut statement| statement.execute([hash])).map_err(fault)?;
    }
    Ok(())
}

/// The newest message that holds it and that the reader may see.
pub fn held(
    opened: &mut ReplicaConnection,
    sha256: &str,
    reader: ReplicaReader,
) -> Result<Option<HeldAttachment>, StoreError> {
    let hidden = if reader == ReplicaReader::Agent { WITHHELD } else { 0 };
    let sql = "SELECT m.id FROM holders h JOIN messages m ON m.key = h.key \
        WHERE h.hash = ?1 AND m.flags & ?2 = 0 ORDER BY h.key DESC LIMIT 1";
    let mut statement = opened.connection.prepare_cached(sql).map_err(fault)?;
    let id: Option<String> =
        statement.query_row(params![sha256, hidden], |row| row.get(0)).optional().map_err(fault)?;
    drop(statement);
    let Some(id) = id else { return Ok(None) };
    let Some(mail) = replica_file::get(opened, &id, reader)? else { return Ok(None) };
    let sender = mail.from.as_ref().map(ToString::to_string).unwrap_or_default();
    let about = mail.attachments.into_iter().find(|file| file.sha256 == sha256);
    Ok(about.map(|about| HeldAttachment { message: id, sender, about }))
}

/// The content.
pub fn content(opened: &mut ReplicaConnection, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT size, is_packed, bytes FROM files WHERE hash = ?1";
    let mut statement = opened.connection.prepare_cached(sql).map_err(fault)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: Option<(i64, bool, Vec<u8>)> = statement.query_row([sha256], read).optional().map_err(fault)?;
    let Some((size, is_packed, bytes)) = found else { return Ok(None) };
    if !is_packed {
        return Ok(Some(bytes));
    }
    let size = usize::try_from(size).ok().filter(|size| *size <= LARGEST).ok_or_else(damaged)?;
    zstd::bulk::decompress(&bytes, size).map(Some).map_err(|_| damaged())
}

/// Messages that were set aside.
pub fn aside(opened: &mut ReplicaConnection) -> Result<Vec<String>, StoreError> {
    let mut statement = opened.connection.prepare_cached("SELECT id FROM aside ORDER BY id").map_err(fault)?;
    let ids: Result<Vec<String>, _> = statement.query_map([], |row| row.get(0)).map_err(fault)?.collect();
    ids.map_err(fault)
}

fn damaged() -> StoreError {
    StoreError::Impossible { table: "files", detail: "a content that cannot be opened" }
}
