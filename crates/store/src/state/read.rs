//! Reading what agents remember: one item, lists, versions, how much it takes.
//!
//! A prefix is a range of bytes, so that no character of it means anything but itself.

use super::{Item, NEWEST, Shelf, Stored, VERSION, decode, select, used, with};
use crate::Store;
use crate::desk::Query;
use crate::error::StoreError;
use crate::sql::{Tx, params};

const LIST: &str = "SELECT name, '', version, created_at, updated_at, agent, size, hold FROM state_items \
     WHERE shelf = ?1 AND owner = ?2 AND name >= ?3 AND name < ?4 AND name > ?5 AND value IS NOT NULL \
     ORDER BY name LIMIT ?6";
const BELOW: &str =
    select!("state_items", "AND name >= ?3 AND name < ?4 AND name > ?5 AND value IS NOT NULL ORDER BY name LIMIT ?6");
const OLDER: &str = select!("state_versions", "AND name = ?3 AND version > ?4 ORDER BY version DESC LIMIT ?5");

struct Get {
    shelf: Shelf,
    key: String,
    version: Option<u64>,
}

impl Query for Get {
    type Out = Option<Item>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Item>, StoreError> {
        let place = self.shelf.place(&self.key);
        let newest = tx.rows(NEWEST, &place).await?.into_iter().next().map(decode).transpose()?;
        let Some(newest) = newest else { return Ok(None) };
        match self.version {
            None => Ok(newest.there()),
            Some(version) if version == newest.item.version => Ok(newest.there()),
            Some(version) if version.saturating_add(self.shelf.kept()) > newest.item.version => {
                let row = tx.rows(VERSION, &with(place, version)).await?.into_iter().next();
                Ok(row.map(decode).transpose()?.and_then(Stored::there))
            }
            Some(_) => Ok(None),
        }
    }
}

/// The end of the range of bytes that begin with these.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of UTF-8 is the greatest there is, so the next one exists.
        Some(last) => *last = last.saturating_add(1),
        None => end.push(0xff),
    }
    end
}

struct List {
    shelf: Shelf,
    prefix: String,
    after: Option<String>,
    limit: u32,
}

impl Query for List {
    type Out = Vec<Item>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Item>, StoreError> {
        let (from, to) = (self.prefix.as_bytes(), end_of(&self.prefix));
        let after = self.after.as_deref().unwrap_or_default().as_bytes();
        let params = params![self.shelf.word(), self.shelf.owner(), from, to, after, self.limit];
        tx.rows(LIST, &params).await?.into_iter().map(|row| decode(row).map(|row| row.item)).collect()
    }
}

struct Below {
    shelf: Shelf,
    prefix: String,
    after: Option<String>,
    limit: u32,
}

impl Query for Below {
    type Out = Vec<Item>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Item>, StoreError> {
        let (from, to) = (self.prefix.as_bytes(), end_of(&self.prefix));
        let after = self.after.as_deref().unwrap_or_default().as_bytes();
        let params = params![self.shelf.word(), self.shelf.owner(), from, to, after, self.limit];
        tx.rows(BELOW, &params).await?.into_iter().map(|row| decode(row).map(|row| row.item)).collect()
    }
}

struct History {
    shelf: Shelf,
    key: String,
    limit: u32,
}

impl Query for History {
    type Out = Vec<Item>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Item>, StoreError> {
        let place = self.shelf.place(&self.key);
        let newest = tx.rows(NEWEST, &place).await?.into_iter().next().map(decode).transpose()?;
        let Some(newest) = newest else { return Ok(Vec::new()) };
        let oldest = newest.item.version.saturating_sub(self.shelf.kept());
        let mut items: Vec<Item> = newest.there().into_iter().collect();
        let older = tx.rows(OLDER, &with(with(place, oldest), self.limit)).await?;
        for row in older {
            items.extend(decode(row)?.there());
        }
        items.truncate(self.limit.try_into().unwrap_or(usize::MAX));
        Ok(items)
    }
}

struct Usage(Shelf);

impl Query for Usage {
    type Out = u64;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u64, StoreError> {
        used(tx, &self.0).await
    }
}

impl Store {
    /// What is remembered under a name, at its newest or this version.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_get(&self, shelf: Shelf, key: String, version: Option<u64>) -> Result<Option<Item>, StoreError> {
        self.ask(Get { shelf, key, version }).await
    }

    /// What begins with a prefix, by name, without values.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_list(
        &self,
        shelf: Shelf,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<Item>, StoreError> {
        self.ask(List { shelf, prefix, after, limit }).await
    }

    /// What begins with a prefix, by name, with values.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_query(
        &self,
        shelf: Shelf,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<Item>, StoreError> {
        self.ask(Below { shelf, prefix, after, limit }).await
    }

    /// The versions of something, newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_history(&self, shelf: Shelf, key: String, limit: u32) -> Result<Vec<Item>, StoreError> {
        self.ask(History { shelf, key, limit }).await
    }

    /// How many bytes a shelf holds.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_usage(&self, shelf: Shelf) -> Result<u64, StoreError> {
        self.ask(Usage(shelf)).await
    }
}
