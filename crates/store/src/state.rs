//! The state of agents: values for a session, for one agent, or for all.
//!
//! Takes JSON texts with keys; gives them back in their newest or an older version. Promise: a write is identified by
//! its hold, so that running it twice changes nothing the second time and gives the same answer. A caller that states
//! the version it saw cannot overwrite a newer one. The audit log holds lengths and a hash of the key, never a key or a
//! value.

mod read;
mod snapshot;

pub use snapshot::{SNAPSHOTS_OF_AGENT, SnapshotContent, StateSnapshot};

use sluice_core::audit::AuditFact;
use sluice_core::ids::SessionId;
use sluice_core::{Actor, AgentName, Digest, HoldId, UtcMillis};

use crate::Store;
use crate::counters;
use crate::error::StoreError;
use crate::prefetch::PrefetchQuery;
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{UnitOfWork, UseCase};

/// The longest value, in bytes.
pub const LONGEST_VALUE: usize = 1 << 20;
/// Versions kept besides the newest, even if they cannot be seen: the answer for a write that is repeated late.
const KEPT_ANYWAY: u64 = 8;

macro_rules! select {
    ($table:literal, $rest:literal) => {
        concat!(
            "SELECT name, value, version, created_at, updated_at, agent, size, hold FROM ",
            $table,
            " WHERE shelf = ?1 AND owner = ?2 ",
            $rest
        )
    };
}
use select;

const NEWEST: &str = select!("state_items", "AND name = ?3");
const LOCKED: &str = select!("state_items", "AND name = ?3 /*lock*/");
const VERSION: &str = select!("state_versions", "AND name = ?3 AND version = ?4");
const WRITTEN_BY: &str = select!("state_versions", "AND name = ?3 AND hold = ?4");
const EVERYTHING: &str = select!("state_items", "AND value IS NOT NULL ORDER BY name /*lock*/");
const USED: &str = "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM state_items WHERE shelf = ?1 AND owner = ?2";
const FIRST: &str = "INSERT INTO state_items (shelf, owner, name, version, value, size, created_at, updated_at, agent, hold) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const NEXT: &str = "UPDATE state_items SET version = ?5, value = ?6, size = ?7, created_at = ?8, updated_at = ?9, \
     agent = ?10, hold = ?11 WHERE shelf = ?1 AND owner = ?2 AND name = ?3 AND version = ?4";
const PUT_BY: &str = "INSERT INTO state_versions (shelf, owner, name, version, value, size, created_at, updated_at, agent, hold) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const FORGET: &str = "DELETE FROM state_versions WHERE shelf = ?1 AND owner = ?2 AND name = ?3 AND version <= ?4";

/// Where a value is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateScope {
    /// For the rest of a session.
    Session(SessionId),
    /// For one agent, across sessions.
    Persistent(AgentName),
    /// For all agents.
    Shared,
}

impl StateScope {
    const fn word(&self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::Persistent(_) => "persistent",
            Self::Shared => "shared",
        }
    }

    fn owner(&self) -> Vec<u8> {
        match self {
            Self::Session(id) => id.bits().to_be_bytes().to_vec(),
            Self::Persistent(agent) => agent.as_str().into(),
            Self::Shared => Vec::new(),
        }
    }

    /// How many versions can be seen, including the newest.
    const fn kept(&self) -> u64 {
        match self {
            Self::Session(_) => 1,
            Self::Persistent(_) => 100,
            Self::Shared => 20,
        }
    }

    /// The row of a key.
    fn place(&self, key: &str) -> Vec<SqlValue> {
        params![self.word(), self.owner(), key.as_bytes()]
    }
}

/// A stored value.
#[derive(Clone, PartialEq, Eq)]
pub struct StateItem {
    /// Its key.
    pub key: String,
    /// The value, as JSON. Empty in lists.
    pub value: String,
    /// The number of this version.
    pub version: u64,
    /// When the key was first set.
    pub created_at: UtcMillis,
    /// When this version was written.
    pub updated_at: UtcMillis,
    /// The agent that wrote it.
    pub by: AgentName,
    /// Its size in bytes, including its key.
    pub size: u64,
}

impl std::fmt::Debug for StateItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("version", &self.version).field("size", &self.size).finish_non_exhaustive()
    }
}

/// A row: a value, or the mark of a deleted one.
struct StateRow {
    item: StateItem,
    is_there: bool,
    hold: HoldId,
}

impl StateRow {
    fn there(self) -> Option<StateItem> {
        self.is_there.then_some(self.item)
    }
}

/// Stores a value.
#[derive(Clone)]
pub struct SetState {
    /// The write that does it.
    pub hold: HoldId,
    /// Where to store it.
    pub shelf: StateScope,
    /// The key.
    pub key: String,
    /// The value, as JSON.
    pub value: String,
    /// The agent that writes it.
    pub by: AgentName,
    /// The version that the caller expects; 0 if the key must not exist.
    pub expected: Option<u64>,
    /// The most the shelf may hold, in bytes.
    pub quota: u64,
}

impl std::fmt::Debug for SetState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSet").field("hold", &self.hold).field("shelf", &self.shelf).finish_non_exhaustive()
    }
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChanged {
    /// The version it made.
    pub version: u64,
    /// The value before the change.
    pub previous: Option<StateItem>,
}

/// One key on its shelf, as a write finds it.
struct StateSlot<'a> {
    shelf: &'a StateScope,
    key: &'a str,
    hold: HoldId,
    now: Option<StateRow>,
}

impl<'a> StateSlot<'a> {
    /// Finds it, or the answer that this hold got before.
    async fn find<T: StoreTx>(
        unit: &mut UnitOfWork<'_, T>,
        shelf: &'a StateScope,
        key: &'a str,
        hold: HoldId,
    ) -> Result<Result<Self, StateChanged>, StoreError> {
        let now = unit.row(LOCKED, shelf.place(key)).await?.map(decode).transpose()?;
        let before = match &now {
            Some(row) if row.hold == hold => Some(row.item.version),
            Some(row) if row.item.version > 1 => {
                let row = unit.row(WRITTEN_BY, with(shelf.place(key), hold)).await?;
                row.map(decode).transpose()?.map(|row| row.item.version)
            }
            Some(_) | None => None,
        };
        let Some(version) = before else { return Ok(Ok(Self { shelf, key, hold, now })) };
        let row = unit.row(VERSION, with(shelf.place(key), version.saturating_sub(1))).await?;
        let previous = row.map(decode).transpose()?.and_then(StateRow::there);
        Ok(Err(StateChanged { version, previous }))
    }

    fn there(&self) -> Option<&StateItem> {
        self.now.as_ref().filter(|row| row.is_there).map(|row| &row.item)
    }

    /// Refuses to overwrite a version that the caller has not seen.
    fn demand(&self, expected: Option<u64>) -> Result<(), StoreError> {
        let current = self.there().map_or(0, |item| item.version);
        match expected {
            Some(expected) if expected != current => Err(StoreError::VersionConflict { current }),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes the next version: a value, or the mark of a deleted one.
    fn make<T: StoreTx>(
        self,
        unit: &mut UnitOfWork<'_, T>,
        value: Option<&str>,
        since: Option<UtcMillis>,
        by: &AgentName,
    ) -> StateChanged {
        let (now, place) = (unit.now, self.shelf.place(self.key));
        let size = value.map_or(0, |value| size_of(self.key, value));
        let since = since.or(self.there().map(|item| item.created_at)).unwrap_or(now);
        let version = match &self.now {
            None => {
                let mut row = place;
                row.extend(params![1_u64, value, size, since, now, by, self.hold]);
                unit.write(FIRST, row);
                1
            }
            Some(StateRow { item, is_there, hold }) => {
                let mut old = place.clone();
                let value_before = is_there.then_some(item.value.as_str());
                old.extend(params![item.version, value_before, item.size]);
                old.extend(params![item.created_at, item.updated_at, &item.by, *hold]);
                unit.write(PUT_BY, old);
                let mut row = with(place.clone(), item.version);
                row.extend(params![item.version + 1, value, size, since, now, by, self.hold]);
                unit.write_one(NEXT, row);
                let kept = self.shelf.kept().max(KEPT_ANYWAY);
                if let Some(oldest) = (item.version + 1).checked_sub(kept + 1).filter(|oldest| *oldest > 0) {
                    unit.write(FORGET, with(place, oldest));
                }
                item.version + 1
            }
        };
        StateChanged { version, previous: self.now.and_then(StateRow::there) }
    }
}

impl UseCase for SetState {
    type Out = StateChanged;

    fn turn(&self) -> Option<&AgentName> {
        Some(&self.by)
    }

    fn prefetch_queries(&self, _: UtcMillis) -> Vec<PrefetchQuery> {
        vec![counters::turn_ahead(&self.by)]
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<StateChanged, StoreError> {
        // Writes of an agent take turns, so that two nodes together do not exceed the quota of its shelf.
        let is_first = counters::take_turn(unit, &self.by).await?;
        let spot = match StateSlot::find(unit, &self.shelf, &self.key, self.hold).await? {
            Ok(spot) => spot,
            Err(before) => return Ok(before),
        };
        spot.demand(self.expected)?;
        let used = used(unit.tx(), &self.shelf).await?;
        let size = size_of(&self.key, &self.value);
        let freed = spot.there().map_or(0, |item| item.size);
        if self.value.len() > LONGEST_VALUE || used.saturating_sub(freed).saturating_add(size) > self.quota {
            return Err(StoreError::Quota);
        }
        let changed = spot.make(unit, Some(&self.value), None, &self.by);
        if is_first {
            counters::make_latch(unit, &self.by);
        }
        let by = Actor::Agent(self.by.clone());
        unit.record(fact("state.set", by, self.hold, (&self.shelf, &self.key), changed.version).with("bytes", size));
        Ok(changed)
    }
}

struct DeleteState {
    hold: HoldId,
    shelf: StateScope,
    key: String,
    by: AgentName,
    expected: Option<u64>,
}

impl UseCase for DeleteState {
    type Out = Option<StateItem>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Option<StateItem>, StoreError> {
        let spot = match StateSlot::find(unit, &self.shelf, &self.key, self.hold).await? {
            Ok(spot) => spot,
            Err(before) => return Ok(before.previous),
        };
        spot.demand(self.expected)?;
        if spot.there().is_none() {
            return Ok(None);
        }
        let changed = spot.make(unit, None, None, &self.by);
        let by = Actor::Agent(self.by.clone());
        unit.record(fact("state.deleted", by, self.hold, (&self.shelf, &self.key), changed.version));
        Ok(changed.previous)
    }
}

/// Restores the value from before another write, as a new version.
struct RestoreState {
    hold: HoldId,
    shelf: StateScope,
    key: String,
    item: Option<StateItem>,
    expected: Option<u64>,
}

impl UseCase for RestoreState {
    type Out = StateChanged;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<StateChanged, StoreError> {
        let spot = match StateSlot::find(unit, &self.shelf, &self.key, self.hold).await? {
            Ok(spot) => spot,
            Err(before) => return Ok(before),
        };
        spot.demand(Some(self.expected.unwrap_or(0)))?;
        let there = spot.there().map(|item| item.by.clone());
        let changed = match (&self.item, there) {
            (Some(item), _) => spot.make(unit, Some(&item.value), Some(item.created_at), &item.by),
            (None, Some(by)) => spot.make(unit, None, None, &by),
            (None, None) => return Ok(StateChanged { version: 0, previous: None }),
        };
        let by = unit.actor();
        unit.record(fact("state.put_back", by, self.hold, (&self.shelf, &self.key), changed.version));
        Ok(changed)
    }
}

/// Deletes all values of a session.
struct ClearSessionState {
    hold: HoldId,
    session: SessionId,
}

impl ClearSessionState {
    /// The key under which this deletion is remembered: no text begins with such a byte.
    fn mark(&self) -> Vec<u8> {
        [&[0xff], self.hold.bits().to_be_bytes().as_slice()].concat()
    }
}

impl UseCase for ClearSessionState {
    type Out = u32;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<u32, StoreError> {
        let shelf = StateScope::Session(self.session);
        let mark = params![shelf.word(), shelf.owner(), self.mark()];
        if let Some(row) = unit.row(MARK, mark.clone()).await? {
            return row.of("state_items").count();
        }
        let rows = unit.rows(EVERYTHING, params![shelf.word(), shelf.owner()]).await?;
        let items = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let cleared = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let by = owner(unit, self.session).await?;
        for row in items {
            let key = row.item.key.clone();
            let spot = StateSlot { shelf: &shelf, key: &key, hold: self.hold, now: Some(row) };
            spot.make(unit, None, None, &by);
        }
        let (mut row, now) = (mark, unit.now);
        row.extend(params![cleared, None::<&str>, 0_u64, now, now, &by, self.hold]);
        unit.write(FIRST, row);
        let mut fact =
            AuditFact::new("state.cleared", Actor::Agent(by)).with("session", self.session).with("items", cleared);
        fact.hold = Some(self.hold);
        unit.record(fact);
        Ok(cleared)
    }
}

const MARK: &str = "SELECT version FROM state_items WHERE shelf = ?1 AND owner = ?2 AND name = ?3";
const OWNER: &str = "SELECT agent FROM sessions WHERE id = ?1";

async fn owner<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, session: SessionId) -> Result<AgentName, StoreError> {
    let row = unit.row(OWNER, params![session]).await?;
    row.ok_or(StoreError::NotFound { what: "session" })?.of("sessions").parsed()
}

async fn used<T: StoreTx>(tx: &mut T, shelf: &StateScope) -> Result<u64, StoreError> {
    let row = tx.rows(USED, &params![shelf.word(), shelf.owner()]).await?.into_iter().next();
    row.ok_or(StoreError::NotFound { what: "shelf" })?.of("state_items").count()
}

fn with(mut params: Vec<SqlValue>, last: impl Into<SqlValue>) -> Vec<SqlValue> {
    params.push(last.into());
    params
}

fn size_of(key: &str, value: &str) -> u64 {
    key.len().saturating_add(value.len()).try_into().unwrap_or(u64::MAX)
}

/// The audit fact: the length and hash of the key, never the key.
fn fact(kind: &str, by: Actor, hold: HoldId, (shelf, key): (&StateScope, &str), version: u64) -> AuditFact {
    let name = [shelf.word().as_bytes(), &shelf.owner(), key.as_bytes()].join(&0);
    let fact = AuditFact::new(kind, by).with("shelf", shelf.word()).with("key_bytes", key.len());
    let mut fact = fact.with("key_hash", Digest::of(&name)).with("version", version);
    fact.hold = Some(hold);
    fact
}

fn decode(row: SqlRow) -> Result<StateRow, StoreError> {
    let mut row = row.of("state_items");
    let key = String::from_utf8(row.blob()?).map_err(|_| row.impossible("a name that is not text"))?;
    let value = row.maybe_text()?;
    let is_there = value.is_some();
    let item = StateItem {
        key,
        value: value.unwrap_or_default(),
        version: row.count()?,
        created_at: row.time()?,
        updated_at: row.time()?,
        by: row.parsed()?,
        size: row.count()?,
    };
    Ok(StateRow { item, is_there, hold: HoldId::from_bits(row.bits()?) })
}

impl Store {
    /// Stores a value.
    ///
    /// # Errors
    /// When the version is not the expected one, or there is no room.
    pub async fn state_set(&self, set: SetState) -> Result<StateChanged, StoreError> {
        self.submit(set).await
    }

    /// Deletes a value. Gives the deleted value.
    ///
    /// # Errors
    /// When the version is not the expected one.
    #[expect(clippy::too_many_arguments, reason = "what, where, by whom: none of them can stand for another")]
    pub async fn state_delete(
        &self,
        hold: HoldId,
        shelf: StateScope,
        key: String,
        by: AgentName,
        expected: Option<u64>,
    ) -> Result<Option<StateItem>, StoreError> {
        self.submit(DeleteState { hold, shelf, key, by, expected }).await
    }

    /// Deletes all values of a session. Returns how many there were.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn state_clear(&self, hold: HoldId, session: SessionId) -> Result<u32, StoreError> {
        self.submit(ClearSessionState { hold, session }).await
    }

    /// Undoes a change: the value from before it becomes the newest version again, or the key is deleted if there was
    /// none.
    ///
    /// # Errors
    /// When the current value is not the one that the change wrote (`None`: there must be no value).
    #[expect(clippy::too_many_arguments, reason = "what, where, by whom: none of them can stand for another")]
    pub async fn state_put_back(
        &self,
        hold: HoldId,
        shelf: StateScope,
        key: String,
        item: Option<StateItem>,
        expected_current: Option<u64>,
    ) -> Result<StateChanged, StoreError> {
        self.submit(RestoreState { hold, shelf, key, item, expected: expected_current }).await
    }
}
