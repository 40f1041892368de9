//! Snapshots of what an agent keeps for itself.
//!
//! Takes an agent; gives its values under an id, and puts them back. Promise: putting back is one transaction, makes new
//! versions and forgets none, so that it can itself be taken back; an agent reaches its own snapshots only.

use std::collections::BTreeMap;

use sluice_core::audit::Fact;
use sluice_core::{Actor, AgentName, HoldId, Timestamp};

use super::{EVERYTHING, Shelf, Spot, decode};
use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, params};

/// Most snapshots of one agent.
pub const SNAPSHOTS_OF_AGENT: u32 = 10;
/// Largest snapshot, in bytes of its values and keys.
const LARGEST: u64 = 8 << 20;

/// Keys with their values, each as JSON text.
pub type SnapshotContent = BTreeMap<String, String>;

const ONE: &str = "SELECT id, created_at, items, size FROM state_snapshots WHERE agent = ?1 AND id = ?2";
const ALL: &str = "SELECT id, created_at, items, size FROM state_snapshots WHERE agent = ?1 ORDER BY id DESC";
const CONTENT: &str = "SELECT content FROM state_snapshots WHERE agent = ?1 AND id = ?2";
const COUNT: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM state_snapshots WHERE agent = ?1";
const ADD: &str = "INSERT INTO state_snapshots (id, agent, created_at, items, size, content) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const OLDEST: &str = "DELETE FROM state_snapshots WHERE agent = ?1 AND id = \
     (SELECT MIN(id) FROM state_snapshots WHERE agent = ?1)";

/// A snapshot, without what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its id: that of the write that made it.
    pub id: HoldId,
    /// When it was made.
    pub created_at: Timestamp,
    /// How many values it holds.
    pub items: u64,
    /// Their size in bytes.
    pub size: u64,
}

struct Make {
    hold: HoldId,
    agent: AgentName,
}

impl UseCase for Make {
    type Out = Snapshot;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Snapshot, StoreError> {
        if let Some(row) = desk.row(ONE, params![&self.agent, self.hold]).await? {
            return snapshot(row);
        }
        let content = present(desk, &self.agent).await?;
        let size: u64 = content.iter().map(|(key, value)| super::size_of(key, value)).sum();
        if size > LARGEST {
            return Err(StoreError::Quota);
        }
        let row = desk.row(COUNT, params![&self.agent]).await?;
        let kept: u32 = row.map_or(Ok(0), |row| row.of("state_snapshots").count())?;
        let (now, items) = (desk.now, content.len() as u64);
        let text = serde_json::to_string(&content).map_err(|_| StoreError::Quota)?;
        if kept >= SNAPSHOTS_OF_AGENT {
            desk.write(OLDEST, params![&self.agent]);
        }
        desk.write(ADD, params![self.hold, &self.agent, now, items, size, text]);
        let mut fact = Fact::new("state.snapshot_made", Actor::Agent(self.agent.clone())).with("items", items);
        fact.hold = Some(self.hold);
        desk.record(fact);
        Ok(Snapshot { id: self.hold, created_at: now, items, size })
    }
}

/// What an agent keeps now.
async fn present<T: Tx>(desk: &mut Desk<'_, T>, agent: &AgentName) -> Result<SnapshotContent, StoreError> {
    let shelf = Shelf::Persistent(agent.clone());
    let rows = desk.rows(EVERYTHING, params![shelf.word(), shelf.owner()]).await?;
    let items = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    Ok(items.into_iter().filter_map(super::Stored::there).map(|item| (item.key, item.value)).collect())
}

struct PutAll {
    hold: HoldId,
    agent: AgentName,
    content: SnapshotContent,
}

impl UseCase for PutAll {
    /// How many values became others.
    type Out = u64;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<u64, StoreError> {
        let shelf = Shelf::Persistent(self.agent.clone());
        let now = present(desk, &self.agent).await?;
        let gone = now.keys().filter(|key| !self.content.contains_key(*key)).map(|key| (key, None));
        let other = |(key, value): &(&String, &String)| now.get(*key) != Some(*value);
        let set = self.content.iter().filter(other).map(|(key, value)| (key, Some(value.as_str())));
        let changes: Vec<(&String, Option<&str>)> = gone.chain(set).collect();
        // Every row is read before the first one is written.
        let mut spots = Vec::with_capacity(changes.len());
        for (key, value) in &changes {
            if let Ok(spot) = Spot::find(desk, &shelf, key, self.hold).await? {
                spots.push((spot, *value));
            }
        }
        let changed = spots.len() as u64;
        for (spot, value) in spots {
            spot.make(desk, value, None, &self.agent);
        }
        let mut fact = Fact::new("state.snapshot_loaded", Actor::Agent(self.agent.clone())).with("changed", changed);
        fact.hold = Some(self.hold);
        desk.record(fact);
        Ok(changed)
    }
}

struct SnapshotsOf(AgentName);

impl Query for SnapshotsOf {
    type Out = Vec<Snapshot>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Snapshot>, StoreError> {
        tx.rows(ALL, &params![&self.0]).await?.into_iter().map(snapshot).collect()
    }
}

struct Content {
    agent: AgentName,
    id: HoldId,
}

impl Query for Content {
    type Out = Option<SnapshotContent>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<SnapshotContent>, StoreError> {
        let Some(row) = tx.rows(CONTENT, &params![&self.agent, self.id]).await?.into_iter().next() else {
            return Ok(None);
        };
        let mut row = row.of("state_snapshots");
        let text = row.text()?;
        serde_json::from_str(&text).map(Some).map_err(|_| row.impossible("content that is no object of texts"))
    }
}

struct Present(AgentName);

impl UseCase for Present {
    type Out = SnapshotContent;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<SnapshotContent, StoreError> {
        present(desk, &self.0).await
    }
}

fn snapshot(row: Row) -> Result<Snapshot, StoreError> {
    let mut row = row.of("state_snapshots");
    Ok(Snapshot {
        id: HoldId::from_bits(row.bits()?),
        created_at: row.time()?,
        items: row.count()?,
        size: row.count()?,
    })
}

impl Store {
    /// Keeps what an agent keeps now under the id of a write. Beyond the most there may be, the oldest one goes.
    ///
    /// # Errors
    /// When there is too much of it.
    pub async fn make_snapshot(&self, hold: HoldId, agent: AgentName) -> Result<Snapshot, StoreError> {
        self.submit(Make { hold, agent }).await
    }

    /// The snapshots of an agent, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn snapshots(&self, agent: AgentName) -> Result<Vec<Snapshot>, StoreError> {
        self.ask(SnapshotsOf(agent)).await
    }

    /// What is in a snapshot of an agent.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn snapshot_content(&self, agent: AgentName, id: HoldId) -> Result<Option<SnapshotContent>, StoreError> {
        self.ask(Content { agent, id }).await
    }

    /// What an agent keeps now, all of it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_content(&self, agent: AgentName) -> Result<SnapshotContent, StoreError> {
        self.submit(Present(agent)).await
    }

    /// Makes what an agent keeps exactly this. Gives how many values became others.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn put_state(&self, hold: HoldId, agent: AgentName, content: SnapshotContent) -> Result<u64, StoreError> {
        self.submit(PutAll { hold, agent, content }).await
    }
}
