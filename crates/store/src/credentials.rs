//! Keys: who may call the gateway as whom. Only hashes are stored; the audit log names keys and never shows a hash.
//!
//! Takes hashes of keys made elsewhere; gives all keys. Promise: issuing, revoking and rotating are recorded; every
//! change of keys or agents increases a number that all nodes can watch.

use sluice_core::audit::AuditFact;
use sluice_core::ids::KeyId;
use sluice_core::{Actor, AgentName, PersonName, UtcMillis};

use crate::Store;
use crate::agents;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// What an operator's key may do. The order matters: later roles may do more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatorRole {
    /// May read.
    Viewer,
    /// May also decide approval requests, and stop things.
    Approver,
    /// May do everything.
    Admin,
}

impl OperatorRole {
    /// All roles, least first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Approver, Self::Admin];

    /// The word used in rows and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

/// Who uses a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AccessKeyKind {
    /// An agent.
    Agent(AgentName),
    /// A person with an operator's role.
    Operator(PersonName, OperatorRole),
    /// A service that sends events to the gateway, by the name of the inbox.
    Inbox(String),
    /// A program that states what the user of this agent asked for.
    Task(AgentName),
}

impl AccessKeyKind {
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

    const fn role(&self) -> Option<OperatorRole> {
        match self {
            Self::Operator(_, role) => Some(*role),
            Self::Agent(_) | Self::Inbox(_) | Self::Task(_) => None,
        }
    }
}

/// A key as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The id: names the key and gives no access.
    pub id: KeyId,
    /// Who uses it.
    pub kind: AccessKeyKind,
    /// The label that people gave it.
    pub label: Option<String>,
    /// Hash of the key itself.
    pub hash: [u8; 32],
    /// When it was issued.
    pub created_at: UtcMillis,
    /// Who issued it.
    pub created_by: Actor,
    /// Until when it is valid.
    pub expires_at: Option<UtcMillis>,
    /// When it was revoked.
    pub revoked_at: Option<UtcMillis>,
    /// Who revoked it.
    pub revoked_by: Option<Actor>,
}

impl AccessKey {
    /// Whether it is valid at this moment.
    #[must_use]
    pub fn is_live(&self, now: UtcMillis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A key to be issued.
#[derive(Clone)]
pub struct IssueKey {
    /// Its id.
    pub id: KeyId,
    /// Who will use it.
    pub kind: AccessKeyKind,
    /// The label that people give it.
    pub label: Option<String>,
    /// Hash of the key itself.
    pub hash: [u8; 32],
    /// Until when it is valid.
    pub expires_at: Option<UtcMillis>,
    /// Who issues it.
    pub by: Actor,
}

/// A key that replaces another.
#[derive(Clone)]
pub struct RotateKey {
    /// The id of the replaced key.
    pub old: KeyId,
    /// The id of the new key.
    pub new: KeyId,
    /// Hash of the new key itself.
    pub hash: [u8; 32],
    /// How long the old key stays valid.
    pub keep_old_until: UtcMillis,
    /// Until when the new key is valid.
    pub expires_at: Option<UtcMillis>,
    /// Who rotates it.
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
    AccessKey: id;
    IssueKey: id;
    RotateKey: old;
}

/// Signals to every node that keys or agents have changed.
pub(crate) fn bump_key_generation<T: StoreTx>(unit: &mut UnitOfWork<'_, T>) {
    unit.write_one(MOVED, params![]);
}

/// Revokes every key of an agent that is still valid.
pub(crate) async fn revoke_all_of<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    agent: &AgentName,
    by: &Actor,
) -> Result<(), StoreError> {
    for row in unit.rows(LIVE_OF_AGENT, params![agent]).await? {
        revoke(unit, &decode(row)?, by);
    }
    Ok(())
}

fn revoke<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, key: &AccessKey, by: &Actor) {
    let now = unit.now;
    unit.write(REVOKE, params![key.id, now, by]);
    unit.record(fact("key.revoked", by, key.id, &key.kind));
}

/// The audit fact about a key: its id and its owner, never its hash.
fn fact(what: &str, by: &Actor, id: KeyId, kind: &AccessKeyKind) -> AuditFact {
    let fact = AuditFact::new(what, by.clone()).with("key", id).with("kind", kind.word()).with("name", kind.name());
    match kind.role() {
        Some(role) => fact.with("role", role.as_str()),
        None => fact,
    }
}

fn place<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, key: &AccessKey) {
    let params = params![
        key.id,
        key.kind.word(),
        key.kind.name(),
        key.kind.role().map(OperatorRole::as_str),
        key.label.as_deref(),
        key.hash.as_slice(),
        key.created_at,
        &key.created_by,
        key.expires_at,
    ];
    unit.write(ISSUE, params);
}

/// SECURITY: an agent that could issue or revoke keys could become, or silence, anyone.
fn refuse_agents(by: &Actor) -> Result<(), StoreError> {
    match by {
        Actor::Agent(_) => Err(StoreError::NotAPerson),
        Actor::Person(_) | Actor::Operator(_) | Actor::Node(_) => Ok(()),
    }
}

impl UseCase for IssueKey {
    type Out = AccessKey;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<AccessKey, StoreError> {
        refuse_agents(&self.by)?;
        if let Some(name) = self.kind.agent() {
            agents::present(unit, name).await?;
        }
        let key = AccessKey {
            id: self.id,
            kind: self.kind.clone(),
            label: self.label.clone(),
            hash: self.hash,
            created_at: unit.now,
            created_by: self.by.clone(),
            expires_at: self.expires_at,
            revoked_at: None,
            revoked_by: None,
        };
        place(unit, &key);
        bump_key_generation(unit);
        unit.record(fact("key.issued", &self.by, key.id, &key.kind));
        Ok(key)
    }
}

struct RevokeKey {
    id: KeyId,
    by: Actor,
}

impl UseCase for RevokeKey {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        refuse_agents(&self.by)?;
        let key = locked(unit, self.id).await?;
        if key.revoked_at.is_none() {
            revoke(unit, &key, &self.by);
            bump_key_generation(unit);
        }
        Ok(())
    }
}

async fn locked<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, id: KeyId) -> Result<AccessKey, StoreError> {
    unit.row(ONE, params![id]).await?.map(decode).transpose()?.ok_or(StoreError::NotFound { what: "key" })
}

impl UseCase for RotateKey {
    type Out = AccessKey;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<AccessKey, StoreError> {
        refuse_agents(&self.by)?;
        let old = locked(unit, self.old).await?;
        // A key that is no longer valid has no successor: someone ended it on purpose.
        if !old.is_live(unit.now) {
            return Err(StoreError::NotFound { what: "key" });
        }
        if let Some(name) = old.kind.agent() {
            agents::present(unit, name).await?;
        }
        let key = AccessKey {
            id: self.new,
            hash: self.hash,
            created_at: unit.now,
            created_by: self.by.clone(),
            expires_at: self.expires_at,
            ..old.clone()
        };
        // Rotating never makes the old key valid for longer than before.
        let end = old.expires_at.map_or(self.keep_old_until, |end| end.min(self.keep_old_until));
        unit.write(EXPIRE, params![old.id, end]);
        place(unit, &key);
        bump_key_generation(unit);
        unit.record(fact("key.rotated", &self.by, key.id, &key.kind).with("old", old.id));
        Ok(key)
    }
}

struct ListKeys;

impl StoreQuery for ListKeys {
    type Out = Vec<AccessKey>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<AccessKey>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

struct GetKeyGeneration;

impl StoreQuery for GetKeyGeneration {
    type Out = u64;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u64, StoreError> {
        let row = tx.rows(GENERATION, &[]).await?.into_iter().next();
        row.ok_or(StoreError::NotFound { what: "generation" })?.of("generations").count()
    }
}

fn decode(row: SqlRow) -> Result<AccessKey, StoreError> {
    let mut row = row.of("keys");
    let (id, word, name, role) = (KeyId::from_bits(row.bits()?), row.text()?, row.text()?, row.maybe_text()?);
    let role = match role {
        None => None,
        Some(word) => {
            let found = OperatorRole::ALL.into_iter().find(|role| role.as_str() == word);
            Some(found.ok_or_else(|| row.impossible("an unknown role"))?)
        }
    };
    let kind = match (word.as_str(), role) {
        ("agent", None) => name.parse().ok().map(AccessKeyKind::Agent),
        ("operator", Some(role)) => name.parse().ok().map(|name| AccessKeyKind::Operator(name, role)),
        ("inbox", None) => Some(AccessKeyKind::Inbox(name)),
        ("task", None) => name.parse().ok().map(AccessKeyKind::Task),
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
    Ok(AccessKey { id, kind, label, hash, created_at, created_by, expires_at, revoked_at, revoked_by })
}

impl Store {
    /// Issues a key.
    ///
    /// # Errors
    /// When an agent asks, or it is a key for an unknown agent.
    pub async fn issue_key(&self, key: IssueKey) -> Result<AccessKey, StoreError> {
        self.submit(key).await
    }

    /// Revokes a key at once. Revoking it again changes nothing.
    ///
    /// # Errors
    /// When an agent asks, or there is no such key.
    pub async fn revoke_key(&self, id: KeyId, by: Actor) -> Result<(), StoreError> {
        self.submit(RevokeKey { id, by }).await
    }

    /// Replaces an old key with a new one; the old one stays valid for a while.
    ///
    /// # Errors
    /// When an agent asks, or the old key is no longer valid.
    pub async fn rotate_key(&self, rotation: RotateKey) -> Result<AccessKey, StoreError> {
        self.submit(rotation).await
    }

    /// All keys, including ended ones, newest last.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn keys(&self) -> Result<Vec<AccessKey>, StoreError> {
        self.ask(ListKeys).await
    }

    /// A number that increases with every change of keys or agents, on any node.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn key_generation(&self) -> Result<u64, StoreError> {
        self.ask(GetKeyGeneration).await
    }
}
