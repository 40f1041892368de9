//! Snapshots of an agent's persistent values.
//!
//! Takes an agent; stores its values under an id, and restores them. Promise: restoring is one transaction, makes new
//! versions and deletes none, so that it can be undone as well. An agent can use only its own snapshots.

use std::collections::BTreeMap;

use sluice_core::audit::AuditFact;
use sluice_core::{Actor, AgentName, HoldId, UtcMillis};

use super::{EVERYTHING, StateScope, StateSlot, decode};
use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// A snapshot, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSnapshot {
    /// Its id: that of the write that made it.
    pub id: HoldId,
    /// When it was made.
    pub created_at: UtcMillis,
    /// How many values it holds.
    pub items: u64,
    /// Their size in bytes.
    pub size: u64,
}

struct MakeStateSnapshot {
    hold: HoldId,
    agent: AgentName,
}

impl UseCase for MakeStateSnapshot {
    type Out = StateSnapshot;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<StateSnapshot, StoreError> {
        if let Some(row) = unit.row(ONE, params![&self.agent, self.hold]).await? {
            return snapshot(row);
        }
        let content = present(unit, &self.agent).await?;
        let size: u64 = content.iter().map(|(key, value)| super::size_of(key, value)).sum();
        if size > LARGEST {
            return Err(StoreError::Quota);
        }
        let row = unit.row(COUNT, params![&self.agent]).await?;
        let kept: u32 = row.map_or(Ok(0), |row| row.of("state_snapshots").count())?;
        let (now, items) = (unit.now, content.len() as u64);
        let text = serde_json::to_string(&content).map_err(|_| StoreError::Quota)?;
        if kept >= SNAPSHOTS_OF_AGENT {
            unit.write(OLDEST, params![&self.agent]);
        }
        unit.write(ADD, params![self.hold, &self.agent, now, items, size, text]);
        let mut fact = AuditFact::new("state.snapshot_made", Actor::Agent(self.agent.clone())).with("items", items);
        fact.hold = Some(self.hold);
        unit.record(fact);
        Ok(StateSnapshot { id: self.hold, created_at: now, items, size })
    }
}

/// The present values of an agent.
async fn present<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, agent: &AgentName) -> Result<SnapshotContent, StoreError> {
    let shelf = StateScope::Persistent(agent.clone());
    let rows = unit.rows(EVERYTHING, params![shelf.word(), shelf.owner()]).await?;
    let items = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    Ok(items.into_iter().filter_map(super::StateRow::there).map(|item| (item.key, item.value)).collect())
}

struct ReplaceAgentState {
    hold: HoldId,
    agent: AgentName,
    content: SnapshotContent,
}

impl UseCase for ReplaceAgentState {
    /// How many values changed.
    type Out = u64;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<u64, StoreError> {
        let shelf = StateScope::Persistent(self.agent.clone());
        let now = present(unit, &self.agent).await?;
        let gone = now.keys().filter(|key| !self.content.contains_key(*key)).map(|key| (key, None));
        let other = |(key, value): &(&String, &String)| now.get(*key) != Some(*value);
        let set = self.content.iter().filter(other).map(|(key, value)| (key, Some(value.as_str())));
        let changes: Vec<(&String, Option<&str>)> = gone.chain(set).collect();
        // Every row is read before the first one is written.
        let mut spots = Vec::with_capacity(changes.len());
        for (key, value) in &changes {
            if let Ok(spot) = StateSlot::find(unit, &shelf, key, self.hold).await? {
                spots.push((spot, *value));
            }
        }
        let changed = spots.len() as u64;
        for (spot, value) in spots {
            spot.make(unit, value, None, &self.agent);
        }
        let mut fact =
            AuditFact::new("state.snapshot_loaded", Actor::Agent(self.agent.clone())).with("changed", changed);
        fact.hold = Some(self.hold);
        unit.record(fact);
        Ok(changed)
    }
}

struct ListStateSnapshots(AgentName);

impl StoreQuery for ListStateSnapshots {
    type Out = Vec<StateSnapshot>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<StateSnapshot>, StoreError> {
        tx.rows(ALL, &params![&self.0]).await?.into_iter().map(snapshot).collect()
    }
}

struct GetSnapshotContent {
    agent: AgentName,
    id: HoldId,
}

impl StoreQuery for GetSnapshotContent {
    type Out = Option<SnapshotContent>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<SnapshotContent>, StoreError> {
        let Some(row) = tx.rows(CONTENT, &params![&self.agent, self.id]).await?.into_iter().next() else {
            return Ok(None);
        };
        let mut row = row.of("state_snapshots");
        let text = row.text()?;
        serde_json::from_str(&text).map(Some).map_err(|_| row.impossible("content that is not an object of texts"))
    }
}

struct GetAgentState(AgentName);

impl UseCase for GetAgentState {
    type Out = SnapshotContent;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<SnapshotContent, StoreError> {
        present(unit, &self.0).await
    }
}

fn snapshot(row: SqlRow) -> Result<StateSnapshot, StoreError> {
    let mut row = row.of("state_snapshots");
    Ok(StateSnapshot {
        id: HoldId::from_bits(row.bits()?),
        created_at: row.time()?,
        items: row.count()?,
        size: row.count()?,
    })
}

impl Store {
    /// Stores the present values of an agent under the id of a write. Above the maximum number of snapshots, the oldest
    /// is deleted.
    ///
    /// # Errors
    /// When the values are too large.
    pub async fn make_snapshot(&self, hold: HoldId, agent: AgentName) -> Result<StateSnapshot, StoreError> {
        self.submit(MakeStateSnapshot { hold, agent }).await
    }

    /// The snapshots of an agent, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn snapshots(&self, agent: AgentName) -> Result<Vec<StateSnapshot>, StoreError> {
        self.ask(ListStateSnapshots(agent)).await
    }

    /// The content of a snapshot of an agent.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn snapshot_content(&self, agent: AgentName, id: HoldId) -> Result<Option<SnapshotContent>, StoreError> {
        self.ask(GetSnapshotContent { agent, id }).await
    }

    /// All present values of an agent.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn state_content(&self, agent: AgentName) -> Result<SnapshotContent, StoreError> {
        self.submit(GetAgentState(agent)).await
    }

    /// Replaces the values of an agent with exactly these. Returns how many values changed.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn put_state(&self, hold: HoldId, agent: AgentName, content: SnapshotContent) -> Result<u64, StoreError> {
        self.submit(ReplaceAgentState { hold, agent, content }).await
    }
}
