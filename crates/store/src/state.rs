//! What agents remember: for a session, for themselves, for all.
//!
//! Takes JSON texts under names; gives them back at their newest or an older version. Promise: a write is
//! known by its hold, so that carrying it out twice changes nothing the second time and gives the same
//! answer; nobody writes over a version they have not seen, if they say which one they saw. The record
//! knows lengths and a hash of the name, never a name or a value.

mod read;
mod snapshot;

pub use snapshot::{SNAPSHOTS_OF_AGENT, Snapshot, SnapshotContent};

use sluice_core::audit::Fact;
use sluice_core::ids::SessionId;
use sluice_core::{Actor, AgentName, Digest, HoldId, Timestamp};

use crate::Store;
use crate::ahead::Ahead;
use crate::counters;
use crate::desk::{Desk, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, Val, params};

/// The longest value, in bytes.
pub const LONGEST_VALUE: usize = 1 << 20;
/// Versions kept besides the newest, whatever can be seen of them: what a write repeated late answers with.
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

/// Where something is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shelf {
    /// For the rest of a session.
    Session(SessionId),
    /// For one agent, across sessions.
    Persistent(AgentName),
    /// For all agents.
    Shared,
}

impl Shelf {
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

    /// How many versions can be seen, the newest included.
    const fn kept(&self) -> u64 {
        match self {
            Self::Session(_) => 1,
            Self::Persistent(_) => 100,
            Self::Shared => 20,
        }
    }

    /// The row of a name.
    fn place(&self, key: &str) -> Vec<Val> {
        params![self.word(), self.owner(), key.as_bytes()]
    }
}

/// Something remembered.
#[derive(Clone, PartialEq, Eq)]
pub struct Item {
    /// Under which name.
    pub key: String,
    /// What, as JSON. Empty in lists.
    pub value: String,
    /// Its how-manieth version this is.
    pub version: u64,
    /// Since when there is something under this name.
    pub created_at: Timestamp,
    /// Since when it is this.
    pub updated_at: Timestamp,
    /// Which agent wrote it.
    pub by: AgentName,
    /// Bytes it takes, its name included.
    pub size: u64,
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("version", &self.version).field("size", &self.size).finish_non_exhaustive()
    }
}

/// A row: something remembered, or the mark where it was.
struct Stored {
    item: Item,
    is_there: bool,
    hold: HoldId,
}

impl Stored {
    fn there(self) -> Option<Item> {
        self.is_there.then_some(self.item)
    }
}

/// Remembers something.
#[derive(Clone)]
pub struct StateSet {
    /// The write that does it.
    pub hold: HoldId,
    /// Where.
    pub shelf: Shelf,
    /// Under which name.
    pub key: String,
    /// What, as JSON.
    pub value: String,
    /// Which agent.
    pub by: AgentName,
    /// The version it follows; 0 where there must be none.
    pub expected: Option<u64>,
    /// The most the shelf may hold, in bytes.
    pub quota: u64,
}

impl std::fmt::Debug for StateSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSet").field("hold", &self.hold).field("shelf", &self.shelf).finish_non_exhaustive()
    }
}

/// What a change did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChanged {
    /// The version it made.
    pub version: u64,
    /// What was there before.
    pub previous: Option<Item>,
}

/// One name on its shelf, as a write finds it.
struct Spot<'a> {
    shelf: &'a Shelf,
    key: &'a str,
    hold: HoldId,
    now: Option<Stored>,
}

impl<'a> Spot<'a> {
    /// Finds it, or the answer this hold was given before.
    async fn find<T: Tx>(
        desk: &mut Desk<'_, T>,
        shelf: &'a Shelf,
        key: &'a str,
        hold: HoldId,
    ) -> Result<Result<Self, StateChanged>, StoreError> {
        let now = desk.row(LOCKED, shelf.place(key)).await?.map(decode).transpose()?;
        let before = match &now {
            Some(row) if row.hold == hold => Some(row.item.version),
            Some(row) if row.item.version > 1 => {
                let row = desk.row(WRITTEN_BY, with(shelf.place(key), hold)).await?;
                row.map(decode).transpose()?.map(|row| row.item.version)
            }
            Some(_) | None => None,
        };
        let Some(version) = before else { return Ok(Ok(Self { shelf, key, hold, now })) };
        let row = desk.row(VERSION, with(shelf.place(key), version.saturating_sub(1))).await?;
        let previous = row.map(decode).transpose()?.and_then(Stored::there);
        Ok(Err(StateChanged { version, previous }))
    }

    fn there(&self) -> Option<&Item> {
        self.now.as_ref().filter(|row| row.is_there).map(|row| &row.item)
    }

    /// Refuses to write over what the caller has not seen.
    fn demand(&self, expected: Option<u64>) -> Result<(), StoreError> {
        let current = self.there().map_or(0, |item| item.version);
        match expected {
            Some(expected) if expected != current => Err(StoreError::VersionConflict { current }),
            Some(_) | None => Ok(()),
        }
    }

    /// Makes the next version: a value, or the mark that there is none.
    fn make<T: Tx>(
        self,
        desk: &mut Desk<'_, T>,
        value: Option<&str>,
        since: Option<Timestamp>,
        by: &AgentName,
    ) -> StateChanged {
        let (now, place) = (desk.now, self.shelf.place(self.key));
        let size = value.map_or(0, |value| size_of(self.key, value));
        let since = since.or(self.there().map(|item| item.created_at)).unwrap_or(now);
        let version = match &self.now {
            None => {
                let mut row = place;
                row.extend(params![1_u64, value, size, since, now, by, self.hold]);
                desk.write(FIRST, row);
                1
            }
            Some(Stored { item, is_there, hold }) => {
                let mut old = place.clone();
                let value_before = is_there.then_some(item.value.as_str());
                old.extend(params![item.version, value_before, item.size]);
                old.extend(params![item.created_at, item.updated_at, &item.by, *hold]);
                desk.write(PUT_BY, old);
                let mut row = with(place.clone(), item.version);
                row.extend(params![item.version + 1, value, size, since, now, by, self.hold]);
                desk.write_one(NEXT, row);
                let kept = self.shelf.kept().max(KEPT_ANYWAY);
                if let Some(oldest) = (item.version + 1).checked_sub(kept + 1).filter(|oldest| *oldest > 0) {
                    desk.write(FORGET, with(place, oldest));
                }
                item.version + 1
            }
        };
        StateChanged { version, previous: self.now.and_then(Stored::there) }
    }
}

impl UseCase for StateSet {
    type Out = StateChanged;

    fn turn(&self) -> Option<&AgentName> {
        Some(&self.by)
    }

    fn foreseen(&self, _: Timestamp) -> Vec<Ahead> {
        vec![counters::turn_ahead(&self.by)]
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<StateChanged, StoreError> {
        // An agent's writes take turns, so that two nodes together do not fill its shelf over the brim.
        let is_first = counters::take_turn(desk, &self.by).await?;
        let spot = match Spot::find(desk, &self.shelf, &self.key, self.hold).await? {
            Ok(spot) => spot,
            Err(before) => return Ok(before),
        };
        spot.demand(self.expected)?;
        let used = used(desk.tx(), &self.shelf).await?;
        let size = size_of(&self.key, &self.value);
        let freed = spot.there().map_or(0, |item| item.size);
        if self.value.len() > LONGEST_VALUE || used.saturating_sub(freed).saturating_add(size) > self.quota {
            return Err(StoreError::Quota);
        }
        let changed = spot.make(desk, Some(&self.value), None, &self.by);
        if is_first {
            counters::make_latch(desk, &self.by);
        }
        let by = Actor::Agent(self.by.clone());
        desk.record(fact("state.set", by, self.hold, (&self.shelf, &self.key), changed.version).with("bytes", size));
        Ok(changed)
    }
}

struct Delete {
    hold: HoldId,
    shelf: Shelf,
    key: String,
    by: AgentName,
    expected: Option<u64>,
}

impl UseCase for Delete {
    type Out = Option<Item>;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Option<Item>, StoreError> {
        let spot = match Spot::find(desk, &self.shelf, &self.key, self.hold).await? {
            Ok(spot) => spot,
            Err(before) => return Ok(before.previous),
        };
        spot.demand(self.expected)?;
        if spot.there().is_none() {
            return Ok(None);
        }
        let changed = spot.make(desk, None, None, &self.by);
        let by = Actor::Agent(self.by.clone());
        desk.record(fact("state.deleted", by, self.hold, (&self.shelf, &self.key), changed.version));
        Ok(changed.previous)
    }
}

/// Puts back what was there before another write, as a new version.
struct PutBack {
    hold: HoldId,
    shelf: Shelf,
    key: String,
    item: Option<Item>,
    expected: Option<u64>,
}

impl UseCase for PutBack {
    type Out = StateChanged;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<StateChanged, StoreError> {
        let spot = match Spot::find(desk, &self.shelf, &self.key, self.hold).await? {
            Ok(spot) => spot,
            Err(before) => return Ok(before),
        };
        spot.demand(Some(self.expected.unwrap_or(0)))?;
        let there = spot.there().map(|item| item.by.clone());
        let changed = match (&self.item, there) {
            (Some(item), _) => spot.make(desk, Some(&item.value), Some(item.created_at), &item.by),
            (None, Some(by)) => spot.make(desk, None, None, &by),
            (None, None) => return Ok(StateChanged { version: 0, previous: None }),
        };
        let by = desk.actor();
        desk.record(fact("state.put_back", by, self.hold, (&self.shelf, &self.key), changed.version));
        Ok(changed)
    }
}

/// Forgets all of a session.
struct Clear {
    hold: HoldId,
    session: SessionId,
}

impl Clear {
    /// The name under which this clearing is remembered: no text begins with such a byte.
    fn mark(&self) -> Vec<u8> {
        [&[0xff], self.hold.bits().to_be_bytes().as_slice()].concat()
    }
}

impl UseCase for Clear {
    type Out = u32;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<u32, StoreError> {
        let shelf = Shelf::Session(self.session);
        let mark = params![shelf.word(), shelf.owner(), self.mark()];
        if let Some(row) = desk.row(MARK, mark.clone()).await? {
            return row.of("state_items").count();
        }
        let rows = desk.rows(EVERYTHING, params![shelf.word(), shelf.owner()]).await?;
        let items = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let cleared = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let by = owner(desk, self.session).await?;
        for row in items {
            let key = row.item.key.clone();
            let spot = Spot { shelf: &shelf, key: &key, hold: self.hold, now: Some(row) };
            spot.make(desk, None, None, &by);
        }
        let (mut row, now) = (mark, desk.now);
        row.extend(params![cleared, None::<&str>, 0_u64, now, now, &by, self.hold]);
        desk.write(FIRST, row);
        let mut fact =
            Fact::new("state.cleared", Actor::Agent(by)).with("session", self.session).with("items", cleared);
        fact.hold = Some(self.hold);
        desk.record(fact);
        Ok(cleared)
    }
}

const MARK: &str = "SELECT version FROM state_items WHERE shelf = ?1 AND owner = ?2 AND name = ?3";
const OWNER: &str = "SELECT agent FROM sessions WHERE id = ?1";

async fn owner<T: Tx>(desk: &mut Desk<'_, T>, session: SessionId) -> Result<AgentName, StoreError> {
    let row = desk.row(OWNER, params![session]).await?;
    row.ok_or(StoreError::NotFound { what: "session" })?.of("sessions").parsed()
}

async fn used<T: Tx>(tx: &mut T, shelf: &Shelf) -> Result<u64, StoreError> {
    let row = tx.rows(USED, &params![shelf.word(), shelf.owner()]).await?.into_iter().next();
    row.ok_or(StoreError::NotFound { what: "shelf" })?.of("state_items").count()
}

fn with(mut params: Vec<Val>, last: impl Into<Val>) -> Vec<Val> {
    params.push(last.into());
    params
}

fn size_of(key: &str, value: &str) -> u64 {
    key.len().saturating_add(value.len()).try_into().unwrap_or(u64::MAX)
}

/// What the record says: how long the name is and what it hashes to, never the name.
fn fact(kind: &str, by: Actor, hold: HoldId, (shelf, key): (&Shelf, &str), version: u64) -> Fact {
    let name = [shelf.word().as_bytes(), &shelf.owner(), key.as_bytes()].join(&0);
    let fact = Fact::new(kind, by).with("shelf", shelf.word()).with("key_bytes", key.len());
    let mut fact = fact.with("key_hash", Digest::of(&name)).with("version", version);
    fact.hold = Some(hold);
    fact
}

fn decode(row: Row) -> Result<Stored, StoreError> {
    let mut row = row.of("state_items");
    let key = String::from_utf8(row.blob()?).map_err(|_| row.impossible("a name that is not text"))?;
    let value = row.maybe_text()?;
    let is_there = value.is_some();
    let item = Item {
        key,
        value: value.unwrap_or_default(),
        version: row.count()?,
        created_at: row.time()?,
        updated_at: row.time()?,
        by: row.parsed()?,
        size: row.count()?,
    };
    Ok(Stored { item, is_there, hold: HoldId::from_bits(row.bits()?) })
}

impl Store {
    /// Remembers something.
    ///
    /// # Errors
    /// When it is not the version the caller expects, or there is no room.
    pub async fn state_set(&self, set: StateSet) -> Result<StateChanged, StoreError> {
        self.submit(set).await
    }

    /// Forgets something. Gives what it was.
    ///
    /// # Errors
    /// When it is not the version the caller expects.
    #[expect(clippy::too_many_arguments, reason = "what, where, by whom: none of them can stand for another")]
    pub async fn state_delete(
        &self,
        hold: HoldId,
        shelf: Shelf,
        key: String,
        by: AgentName,
        expected: Option<u64>,
    ) -> Result<Option<Item>, StoreError> {
        self.submit(Delete { hold, shelf, key, by, expected }).await
    }

    /// Forgets everything of a session. Gives how much that was.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn state_clear(&self, hold: HoldId, session: SessionId) -> Result<u32, StoreError> {
        self.submit(Clear { hold, session }).await
    }

    /// Takes a change back: what was there before becomes the newest version again, or nothing does.
    ///
    /// # Errors
    /// When what is there now is not what is to be taken back (none: there must be nothing).
    #[expect(clippy::too_many_arguments, reason = "what, where, by whom: none of them can stand for another")]
    pub async fn state_put_back(
        &self,
        hold: HoldId,
        shelf: Shelf,
        key: String,
        item: Option<Item>,
        expected_current: Option<u64>,
    ) -> Result<StateChanged, StoreError> {
        self.submit(PutBack { hold, shelf, key, item, expected: expected_current }).await
    }
}
