//! Reads the state of agents: one value, lists, versions, and the size.
//!
//! A prefix is a range of bytes, so that no character of it has a special meaning.

use super::{NEWEST, StateItem, StateRow, StateScope, VERSION, decode, select, used, with};
use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::StoreQuery;

const LIST: &str = "SELECT name, '', version, created_at, updated_at, agent, size, hold FROM state_items \
     WHERE shelf = ?1 AND owner = ?2 AND name >= ?3 AND name < ?4 AND name > ?5 AND value IS NOT NULL \
     ORDER BY name LIMIT ?6";
const BELOW: &str =
    select!("state_items", "AND name >= ?3 AND name < ?4 AND name > ?5 AND value IS NOT NULL ORDER BY name LIMIT ?6");
const OLDER: &str = select!("state_versions", "AND name = ?3 AND version > ?4 ORDER BY version DESC LIMIT ?5");

struct GetState {
    shelf: StateScope,
    key: String,
    version: Option<u64>,
}

impl StoreQuery for GetState {
    type Out = Option<StateItem>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<StateItem>, StoreError> {
        let place = self.shelf.place(&self.key);
        let newest = tx.rows(NEWEST, &place).await?.into_iter().next().map(decode).transpose()?;
        let Some(newest) = newest else { return Ok(None) };
        match self.version {
            None => Ok(newest.there()),
            Some(version) if version == newest.item.version => Ok(newest.there()),
            Some(version) if version.saturating_add(self.shelf.kept()) > newest.item.version => {
                let row = tx.rows(VERSION, &with(place, version)).await?.into_iter().next();
                Ok(row.map(decode).transpose()?.and_then(StateRow::there))
            }
            Some(_) => Ok(None),
        }
    }
}

/// The end of the range of byte strings with this prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of UTF-8 is the largest possible one, so the next one exists.
        Some(last) => *last = last.saturating_add(1),
        None => end.push(0xff),
    }
    end
}

struct ListStateNames {
    shelf: StateScope,
    prefix: String,
    after: Option<String>,
    limit: u32,
}

impl StoreQuery for ListStateNames {
    type Out = Vec<StateItem>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<StateItem>, StoreError> {
        let (from, to) = (self.prefix.as_bytes(), end_of(&self.prefix));
        let after = self.after.as_deref().unwrap_or_default().as_bytes();
        let params = params![self.shelf.word(), self.shelf.owner(), from, to, after, self.limit];
        tx.rows(LIST, &params).await?.into_iter().map(|row| decode(row).map(|row| row.item)).collect()
    }
}

struct ListStateValues {
    shelf: StateScope,
    prefix: String,
    after: Option<String>,
    limit: u32,
}

impl StoreQuery for ListStateValues {
    type Out = Vec<StateItem>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<StateItem>, StoreError> {
        let (from, to) = (self.prefix.as_bytes(), end_of(&self.prefix));
        let after = self.after.as_deref().unwrap_or_default().as_bytes();
        let params = params![self.shelf.word(), self.shelf.owner(), from, to, after, self.limit];
        tx.rows(BELOW, &params).await?.into_iter().map(|row| decode(row).map(|row| row.item)).collect()
    }
}

struct ListStateVersions {
    shelf: StateScope,
    key: String,
    limit: u32,
}

impl StoreQuery for ListStateVersions {
    type Out = Vec<StateItem>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<StateItem>, StoreError> {
        let place = self.shelf.place(&self.key);
        let newest = tx.rows(NEWEST, &place).await?.into_iter().next().map(decode).transpose()?;
        let Some(newest) = newest else { return Ok(Vec::new()) };
        let oldest = newest.item.version.saturating_sub(self.shelf.kept());
        let mut items: Vec<StateItem> = newest.there().into_iter().collect();
        let older = tx.rows(OLDER, &with(with(place, oldest), self.limit)).await?;
        for row in older {
            items.extend(decode(row)?.there());
        }
        items.truncate(self.limit.try_into().unwrap_or(usize::MAX));
        Ok(items)
    }
}

struct GetStateUsage(StateScope);

impl StoreQuery for GetStateUsage {
    type Out = u64;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u64, StoreError> {
        used(tx, &self.0).await
    }
}

impl Store {
    /// The value of a key, in its newest or this version.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_get(
        &self,
        shelf: StateScope,
        key: String,
        version: Option<u64>,
    ) -> Result<Option<StateItem>, StoreError> {
        self.ask(GetState { shelf, key, version }).await
    }

    /// The keys with a prefix, sorted, without values.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_list(
        &self,
        shelf: StateScope,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<StateItem>, StoreError> {
        self.ask(ListStateNames { shelf, prefix, after, limit }).await
    }

    /// The keys with a prefix, sorted, with values.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_query(
        &self,
        shelf: StateScope,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<StateItem>, StoreError> {
        self.ask(ListStateValues { shelf, prefix, after, limit }).await
    }

    /// The versions of a value, newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_history(
        &self,
        shelf: StateScope,
        key: String,
        limit: u32,
    ) -> Result<Vec<StateItem>, StoreError> {
        self.ask(ListStateVersions { shelf, key, limit }).await
    }

    /// How many bytes a shelf holds.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_usage(&self, shelf: StateScope) -> Result<u64, StoreError> {
        self.ask(GetStateUsage(shelf)).await
    }
}
