//! The floor: the same mail in SQLite with FTS5 and nothing else.

use std::path::Path;

use anyhow::Context as _;
use rusqlite::{Connection, params};

use super::letters::GeneratedLetter;

const SCHEMA: &str = "
PRAGMA journal_mode = wal;
PRAGMA synchronous = 1;
CREATE TABLE messages (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, sender TEXT NOT NULL, subject TEXT NOT NULL,
    received INTEGER NOT NULL, body TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(sender, subject, body, content='');
";
const FOUND: &str = "SELECT m.id, m.sender, m.subject, m.received FROM words w CROSS JOIN messages m ON m.key = w.rowid \
    WHERE words MATCH ?1 AND w.rowid >= ?2 AND w.rowid < ?3 ORDER BY w.rowid DESC LIMIT 20";
const RANKED: &str = "SELECT m.id, m.sender, m.subject, m.received FROM words w CROSS JOIN messages m ON m.key = w.rowid \
    WHERE words MATCH ?1 ORDER BY rank LIMIT 20";
const NEWEST: &str = "SELECT id, sender, subject, received FROM messages ORDER BY key DESC LIMIT 20";
const ONE: &str = "SELECT id, sender, subject, received, body FROM messages WHERE id = ?1";

/// A message as the floor shows it.
pub type BareMessage = (String, String, String, i64);

pub struct BareMailIndex(Connection);

impl BareMailIndex {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "cache_size", "-8000")?;
        Ok(Self(connection))
    }

    pub fn fill(&mut self, letters: &[GeneratedLetter]) -> anyhow::Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut row = transaction.prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
            let mut words = transaction
                .prepare_cached("INSERT INTO words (rowid, sender, subject, body) VALUES (?1, ?2, ?3, ?4)")?;
            for letter in letters {
                let (head, body) = letter.raw.split_once("\r\n\r\n").context("a letter has a head and a body")?;
                let subject =
                    head.split("Subject: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap_or_default();
                row.execute(params![letter.received, letter.id, letter.sender, subject, letter.received, body])?;
                words.execute(params![letter.received, letter.sender, subject, body])?;
            }
        }
        Ok(transaction.commit()?)
    }

    pub fn settle(&self) -> anyhow::Result<()> {
        Ok(self.0.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?)
    }

    pub fn found(&self, words: &str, low: i64, high: i64) -> anyhow::Result<Vec<BareMessage>> {
        let mut statement = self.0.prepare_cached(FOUND)?;
        let rows = statement.query_map(params![words, low, high], shown)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub fn ranked(&self, words: &str) -> anyhow::Result<Vec<BareMessage>> {
        let mut statement = self.0.prepare_cached(RANKED)?;
        let rows = statement.query_map([words], shown)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub fn newest(&self) -> anyhow::Result<Vec<BareMessage>> {
        let mut statement = self.0.prepare_cached(NEWEST)?;
        let rows = statement.query_map([], shown)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub fn one(&self, id: &str) -> anyhow::Result<(BareMessage, String)> {
        let mut statement = self.0.prepare_cached(ONE)?;
        Ok(statement.query_row([id], |row| Ok((shown(row)?, row.get(4)?)))?)
    }
}

fn shown(row: &rusqlite::Row<'_>) -> rusqlite::Result<BareMessage> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}
