//! Keys: who may knock as whom. Only hashes are kept; the record names keys and never shows a hash.
//!
//! Takes hashes of keys made elsewhere; gives every key there is. Promise: issuing, revoking and rotating
//! are on record; every change of keys or agents moves a number that all nodes can watch.

use sluice_core::audit::Fact;
use sluice_core::ids::KeyId;
use sluice_core::{Actor, AgentName, PersonName, Timestamp};

use crate::Store;
use crate::agents;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, params};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, kind, name, role, label, hash, created_at, created_by, expires_at, revoked_at, revoked_by ",
            "FROM keys ",
            $rest
        )
    };
}

const ALL: &str = select!("ORDER BY created_at, id");
const ONE: &str = select!("WHERE id = ?1 /*lock*/");
const LIVE_OF_AGENT: &str =
    select!("WHERE kind IN ('agent', 'task') AND name = ?1 AND revoked_at IS NULL ORDER BY id /*lock*/");
const ISSUE: &str = "INSERT INTO keys (id, kind, name, role, label, hash, created_at, created_by, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const REVOKE: &str = "UPDATE keys SET revoked_at = ?2, revoked_by = ?3 WHERE id = ?1";
const EXPIRE: &str = "UPDATE keys SET expires_at = ?2 WHERE id = ?1";
const MOVED: &str = "UPDATE generations SET number = number + 1 WHERE name = 'keys'";
const GENERATION: &str = "SELECT number FROM generations WHERE name = 'keys'";

/// What an operator's key may do. The order is the meaning: later may more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look.
    Viewer,
    /// Answer questions, and stop things.
    Approver,
    /// Everything.
    Admin,
}

impl Role {
    /// All roles, least first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Approver, Self::Admin];

    /// The word in rows and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

/// Who knocks with a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// An agent.
    Agent(AgentName),
    /// A person with an operator's role.
    Operator(PersonName, Role),
    /// A service that sends us its news, by the name of the inbox.
    Inbox(String),
    /// A program that states what the user of this agent asked for.
    Task(AgentName),
}

impl KeyKind {
    /// The word for the kind.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Operator(..) => "operator",
            Self::Inbox(_) => "inbox",
            Self::Task(_) => "task",
        }
    }

    /// The agent the key is bound to: the agent's own key, or a task key for it.
    #[must_use]
    pub const fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Agent(name) | Self::Task(name) => Some(name),
            Self::Operator(..) | Self::Inbox(_) => None,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Agent(name) | Self::Task(name) => name.as_str(),
            Self::Operator(name, _) => name.as_str(),
            Self::Inbox(name) => name,
        }
    }

    const fn role(&self) -> Option<Role> {
        match self {
            Self::Operator(_, role) => Some(*role),
            Self::Agent(_) | Self::Inbox(_) | Self::Task(_) => None,
        }
    }
}

/// A key as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Names it; opens nothing.
    pub id: KeyId,
    /// Who knocks with it.
    pub kind: KeyKind,
    /// What people call it.
    pub label: Option<String>,
    /// Hash of the key itself.
    pub hash: [u8; 32],
    /// Since when it is known.
    pub created_at: Timestamp,
    /// Who issued it.
    pub created_by: Actor,
    /// Until when it opens.
    pub expires_at: Option<Timestamp>,
    /// Since when it no longer opens.
    pub revoked_at: Option<Timestamp>,
    /// Who saw to that.
    pub revoked_by: Option<Actor>,
}

impl Key {
    /// Whether it opens at this moment.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A key that is to be issued.
#[derive(Clone)]
pub struct NewKey {
    /// Its id.
    pub id: KeyId,
    /// Who will knock with it.
    pub kind: KeyKind,
    /// What people call it.
    pub label: Option<String>,
    /// Hash of the key itself.
    pub hash: [u8; 32],
    /// Until when it opens.
    pub expires_at: Option<Timestamp>,
    /// Who issues it.
    pub by: Actor,
}

/// A key that takes another's place.
#[derive(Clone)]
pub struct RotateKey {
    /// The one that goes.
    pub old: KeyId,
    /// The one that comes.
    pub new: KeyId,
    /// Hash of the new key itself.
    pub hash: [u8; 32],
    /// How long the old one still opens.
    pub keep_old_until: Timestamp,
    /// Until when the new one opens.
    pub expires_at: Option<Timestamp>,
    /// Who does it.
    pub by: Actor,
}

macro_rules! without_the_hash {
    ($($type:ident: $id:ident;)*) => {$(
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type)).field(stringify!($id), &self.$id).finish_non_exhaustive()
            }
        }
    )*};
}

without_the_hash! {
    Key: id;
    NewKey: id;
    RotateKey: old;
}

/// Tells every node that keys or agents are no longer what they were.
pub(crate) fn changed<T: Tx>(desk: &mut Desk<'_, T>) {
    desk.write_one(MOVED, params![]);
}

/// Revokes every key of an agent that still could open something.
pub(crate) async fn revoke_all_of<T: Tx>(
    desk: &mut Desk<'_, T>,
    agent: &AgentName,
    by: &Actor,
) -> Result<(), StoreError> {
    for row in desk.rows(LIVE_OF_AGENT, params![agent]).await? {
        revoke(desk, &decode(row)?, by);
    }
    Ok(())
}

fn revoke<T: Tx>(desk: &mut Desk<'_, T>, key: &Key, by: &Actor) {
    let now = desk.now;
    desk.write(REVOKE, params![key.id, now, by]);
    desk.record(fact("key.revoked", by, key.id, &key.kind));
}

/// What the record says of a key: its id and whose it is, never its hash.
fn fact(what: &str, by: &Actor, id: KeyId, kind: &KeyKind) -> Fact {
    let fact = Fact::new(what, by.clone()).with("key", id).with("kind", kind.word()).with("name", kind.name());
    match kind.role() {
        Some(role) => fact.with("role", role.as_str()),
        None => fact,
    }
}

fn place<T: Tx>(desk: &mut Desk<'_, T>, key: &Key) {
    let params = params![
        key.id,
        key.kind.word(),
        key.kind.name(),
        key.kind.role().map(Role::as_str),
        key.label.as_deref(),
        key.hash.as_slice(),
        key.created_at,
        &key.created_by,
        key.expires_at,
    ];
    desk.write(ISSUE, params);
}

/// SECURITY: an agent that could issue or revoke keys could become, or silence, anyone.
fn refuse_agents(by: &Actor) -> Result<(), StoreError> {
    match by {
        Actor::Agent(_) => Err(StoreError::NotAPerson),
        Actor::Person(_) | Actor::Operator(_) | Actor::Node(_) => Ok(()),
    }
}

impl UseCase for NewKey {
    type Out = Key;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Key, StoreError> {
        refuse_agents(&self.by)?;
        if let Some(name) = self.kind.agent() {
            agents::present(desk, name).await?;
        }
        let key = Key {
            id: self.id,
            kind: self.kind.clone(),
            label: self.label.clone(),
            hash: self.hash,
            created_at: desk.now,
            created_by: self.by.clone(),
            expires_at: self.expires_at,
            revoked_at: None,
            revoked_by: None,
        };
        place(desk, &key);
        changed(desk);
        desk.record(fact("key.issued", &self.by, key.id, &key.kind));
        Ok(key)
    }
}

struct Revoke {
    id: KeyId,
    by: Actor,
}

impl UseCase for Revoke {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        refuse_agents(&self.by)?;
        let key = locked(desk, self.id).await?;
        if key.revoked_at.is_none() {
            revoke(desk, &key, &self.by);
            changed(desk);
        }
        Ok(())
    }
}

async fn locked<T: Tx>(desk: &mut Desk<'_, T>, id: KeyId) -> Result<Key, StoreError> {
    desk.row(ONE, params![id]).await?.map(decode).transpose()?.ok_or(StoreError::NotFound { what: "key" })
}

impl UseCase for RotateKey {
    type Out = Key;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Key, StoreError> {
        refuse_agents(&self.by)?;
        let old = locked(desk, self.old).await?;
        // A key that no longer opens has no successor: someone ended it on purpose.
        if !old.is_live(desk.now) {
            return Err(StoreError::NotFound { what: "key" });
        }
        if let Some(name) = old.kind.agent() {
            agents::present(desk, name).await?;
        }
        let key = Key {
            id: self.new,
            hash: self.hash,
            created_at: desk.now,
            created_by: self.by.clone(),
            expires_at: self.expires_at,
            ..old.clone()
        };
        // Rotating never makes the old key live longer than it would have.
        let end = old.expires_at.map_or(self.keep_old_until, |end| end.min(self.keep_old_until));
        desk.write(EXPIRE, params![old.id, end]);
        place(desk, &key);
        changed(desk);
        desk.record(fact("key.rotated", &self.by, key.id, &key.kind).with("old", old.id));
        Ok(key)
    }
}

struct All;

impl Query for All {
    type Out = Vec<Key>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Key>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

struct Generation;

impl Query for Generation {
    type Out = u64;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u64, StoreError> {
        let row = tx.rows(GENERATION, &[]).await?.into_iter().next();
        row.ok_or(StoreError::NotFound { what: "generation" })?.of("generations").count()
    }
}

fn decode(row: Row) -> Result<Key, StoreError> {
    let mut row = row.of("keys");
    let (id, word, name, role) = (KeyId::from_bits(row.bits()?), row.text()?, row.text()?, row.maybe_text()?);
    let role = match role {
        None => None,
        Some(word) => {
            let found = Role::ALL.into_iter().find(|role| role.as_str() == word);
            Some(found.ok_or_else(|| row.impossible("an unknown role"))?)
        }
    };
    let kind = match (word.as_str(), role) {
        ("agent", None) => name.parse().ok().map(KeyKind::Agent),
        ("operator", Some(role)) => name.parse().ok().map(|name| KeyKind::Operator(name, role)),
        ("inbox", None) => Some(KeyKind::Inbox(name)),
        ("task", None) => name.parse().ok().map(KeyKind::Task),
        _ => None,
    };
    let kind = kind.ok_or_else(|| row.impossible("an unknown kind of key"))?;
    let label = row.maybe_text()?;
    let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
    let (created_at, created_by, expires_at) = (row.time()?, row.parsed()?, row.maybe_time()?);
    let (revoked_at, revoked_by) = (row.maybe_time()?, row.maybe_parsed()?);
    if revoked_at.is_some() != revoked_by.is_some() {
        return Err(row.impossible("half a revocation"));
    }
    Ok(Key { id, kind, label, hash, created_at, created_by, expires_at, revoked_at, revoked_by })
}

impl Store {
    /// Issues a key.
    ///
    /// # Errors
    /// When an agent asks, or it is a key for an agent nobody knows.
    pub async fn issue_key(&self, key: NewKey) -> Result<Key, StoreError> {
        self.submit(key).await
    }

    /// Ends a key at once. Ending it again changes nothing.
    ///
    /// # Errors
    /// When an agent asks, or there is no such key.
    pub async fn revoke_key(&self, id: KeyId, by: Actor) -> Result<(), StoreError> {
        self.submit(Revoke { id, by }).await
    }

    /// Puts a new key in the place of an old one, which still opens for a while.
    ///
    /// # Errors
    /// When an agent asks, or the old key no longer opens.
    pub async fn rotate_key(&self, rotation: RotateKey) -> Result<Key, StoreError> {
        self.submit(rotation).await
    }

    /// Every key there is or was, newest last.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn keys(&self) -> Result<Vec<Key>, StoreError> {
        self.ask(All).await
    }

    /// A number that moves with every change of keys or agents, on whatever node.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn keys_changed(&self) -> Result<u64, StoreError> {
        self.ask(Generation).await
    }
}
