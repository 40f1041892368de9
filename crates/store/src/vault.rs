//! Secrets as rows: sealed elsewhere, kept here. Nothing in this crate can open them.
//!
//! Takes and gives ciphertexts with the names and scopes they belong to. Promise: setting, rotating, revoking,
//! rewrapping and using a secret are on record by name; a version that was revoked or has outlived its overlap
//! is deleted, not marked; every change moves a number that all nodes can watch.

use sluice_core::audit::Fact;
use sluice_core::ids::{ConnectionName, MessageId, SecretId, SecretName};
use sluice_core::{Actor, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Row, Tx, params};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT name, id, kind, scope, version, created_at, created_by, updated_at, updated_by, revoked_at, ",
            "revoked_by FROM secrets ",
            $rest
        )
    };
}

const ALL: &str = select!("ORDER BY name");
const ONE: &str = select!("WHERE name = ?1");
const LOCKED: &str = select!("WHERE name = ?1 /*lock*/");
const VERSIONS: &str = "SELECT secret, version, root, scope, wrapped, sealed, created_at, until FROM secret_versions ORDER BY secret, version";
const VERSIONS_OF: &str = "SELECT secret, version, root, scope, wrapped, sealed, created_at, until FROM secret_versions \
     WHERE secret = ?1 ORDER BY version";
const NEW: &str = "INSERT INTO secrets (name, id, kind, scope, version, created_at, created_by, updated_at, updated_by) \
     VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?5, ?6)";
const NEXT: &str = "UPDATE secrets SET kind = ?3, scope = ?4, version = ?5, updated_at = ?6, updated_by = ?7, \
     revoked_at = NULL, revoked_by = NULL WHERE name = ?1 AND version = ?2";
const SEAL: &str = "INSERT INTO secret_versions (secret, version, root, scope, wrapped, sealed, created_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const LET_LAPSE: &str = "UPDATE secret_versions SET until = ?3 WHERE secret = ?1 AND version = ?2";
const LAPSED: &str = "DELETE FROM secret_versions WHERE until IS NOT NULL AND until <= ?1";
const REVOKE: &str = "UPDATE secrets SET revoked_at = ?2, revoked_by = ?3 WHERE name = ?1";
const DESTROY: &str = "DELETE FROM secret_versions WHERE secret = ?1";
const REWRAP: &str =
    "UPDATE secret_versions SET root = ?4, wrapped = ?5 WHERE secret = ?1 AND version = ?2 AND root = ?3";
const STRANGERS: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM secret_versions WHERE root <> ?1";
const COUNT: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM secret_versions";
const ROOT: &str = "SELECT root, salt, proof, since FROM vault_root WHERE one = 1";
const ROOT_LOCKED: &str = "SELECT root, salt, proof, since FROM vault_root WHERE one = 1 /*lock*/";
const FIRST_ROOT: &str = "INSERT INTO vault_root (one, root, salt, proof, since) VALUES (1, ?1, ?2, ?3, ?4)";
const NEXT_ROOT: &str =
    "UPDATE vault_root SET root = ?2, salt = ?3, proof = ?4, since = ?5 WHERE one = 1 AND root = ?1";
const MOVED: &str = "UPDATE generations SET number = number + 1 WHERE name = 'vault'";
const GENERATION: &str = "SELECT number FROM generations WHERE name = 'vault'";

/// A secret as everyone may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// What people and agents call it.
    pub name: SecretName,
    /// What its ciphertexts are bound to.
    pub id: SecretId,
    /// What kind of thing it is: `api_key`, `oauth_token`, …
    pub kind: String,
    /// What it may be used for, as the vault wrote it.
    pub scope: String,
    /// How often it was set.
    pub version: u64,
    /// Since when.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When it was last set.
    pub updated_at: Timestamp,
    /// By whom.
    pub updated_by: Actor,
    /// Since when it is gone, and who saw to that.
    pub revoked: Option<(Timestamp, Actor)>,
}

/// One version of a secret, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedVersion {
    /// Of which secret.
    pub secret: SecretId,
    /// Which.
    pub version: u64,
    /// Fingerprint of the root key its data key is wrapped with.
    pub root: String,
    /// The scope it was sealed with.
    pub scope: String,
    /// Its data key, wrapped.
    pub wrapped: Vec<u8>,
    /// Its value, sealed.
    pub sealed: Vec<u8>,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when it is kept, if a newer one has taken its place.
    pub until: Option<Timestamp>,
}

impl std::fmt::Debug for SealedVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedVersion")
            .field("secret", &self.secret)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Which root key the vault is sealed with.
#[derive(Clone, PartialEq, Eq)]
pub struct VaultRoot {
    /// Its fingerprint.
    pub root: String,
    /// Salt of the passphrase, if it comes from one.
    pub salt: Vec<u8>,
    /// A text only that key opens.
    pub proof: Vec<u8>,
}

impl std::fmt::Debug for VaultRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VaultRoot").field("root", &self.root).finish_non_exhaustive()
    }
}

/// Sets a secret: the first version, or the next one.
#[derive(Clone)]
pub struct PutSecret {
    /// Under which name.
    pub name: SecretName,
    /// Its id; of a name that exists, the one it has.
    pub id: SecretId,
    /// What kind of thing it is.
    pub kind: String,
    /// What it may be used for.
    pub scope: String,
    /// The version this makes: one more than there is.
    pub version: u64,
    /// Fingerprint of the root key.
    pub root: String,
    /// Its data key, wrapped.
    pub wrapped: Vec<u8>,
    /// Its value, sealed.
    pub sealed: Vec<u8>,
    /// How long the version before is kept.
    pub keep_old_until: Timestamp,
    /// Who does it.
    pub by: Actor,
}

impl std::fmt::Debug for PutSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PutSecret").field("name", &self.name).field("version", &self.version).finish_non_exhaustive()
    }
}

/// SECURITY: an agent that could set a secret or its scope could send one wherever it likes.
fn refuse_agents(by: &Actor) -> Result<(), StoreError> {
    match by {
        Actor::Agent(_) => Err(StoreError::NotAPerson),
        Actor::Person(_) | Actor::Operator(_) | Actor::Node(_) => Ok(()),
    }
}

const NO_SECRET: StoreError = StoreError::NotFound { what: "secret" };

impl UseCase for PutSecret {
    type Out = SecretRow;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<SecretRow, StoreError> {
        refuse_agents(&self.by)?;
        let before = desk.row(LOCKED, params![self.name.as_str()]).await?.map(decode).transpose()?;
        let root = desk.row(ROOT_LOCKED, params![]).await?.map(decode_root).transpose()?;
        // Sealed with a root key that was replaced meanwhile: it must be sealed again.
        if root.is_none_or(|root| root.root != self.root) {
            return Err(StoreError::VersionConflict { current: before.map_or(0, |row| row.version) });
        }
        let current = before.as_ref().map_or(0, |row| row.version);
        if current.saturating_add(1) != self.version || before.as_ref().is_some_and(|row| row.id != self.id) {
            return Err(StoreError::VersionConflict { current });
        }
        let now = desk.now;
        match &before {
            None => {
                let row =
                    params![self.name.as_str(), self.id.bits(), self.kind.as_str(), self.scope.as_str(), now, &self.by];
                desk.write(NEW, row);
            }
            Some(row) => {
                let next = params![
                    self.name.as_str(),
                    row.version,
                    self.kind.as_str(),
                    self.scope.as_str(),
                    self.version,
                    now,
                    &self.by
                ];
                desk.write_one(NEXT, next);
                desk.write(LET_LAPSE, params![self.id.bits(), row.version, self.keep_old_until]);
            }
        }
        let version = params![
            self.id.bits(),
            self.version,
            self.root.as_str(),
            self.scope.as_str(),
            self.wrapped.as_slice(),
            self.sealed.as_slice(),
            now
        ];
        desk.write(SEAL, version);
        desk.write(LAPSED, params![now]);
        desk.write_one(MOVED, params![]);
        let kind = if before.is_some() { "secret.rotated" } else { "secret.set" };
        desk.record(fact(kind, &self.by, &self.name).with("version", self.version).with("kind", self.kind.as_str()));
        Ok(SecretRow {
            name: self.name.clone(),
            id: self.id,
            kind: self.kind.clone(),
            scope: self.scope.clone(),
            version: self.version,
            created_at: before.as_ref().map_or(now, |row| row.created_at),
            created_by: before.map_or_else(|| self.by.clone(), |row| row.created_by),
            updated_at: now,
            updated_by: self.by.clone(),
            revoked: None,
        })
    }
}

fn fact(kind: &str, by: &Actor, name: &SecretName) -> Fact {
    Fact::new(kind, by.clone()).with("secret", name)
}

struct Revoke {
    name: SecretName,
    by: Actor,
}

impl UseCase for Revoke {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        refuse_agents(&self.by)?;
        let row = desk.row(LOCKED, params![self.name.as_str()]).await?.map(decode).transpose()?.ok_or(NO_SECRET)?;
        if row.revoked.is_none() {
            let now = desk.now;
            desk.write(REVOKE, params![self.name.as_str(), now, &self.by]);
            desk.write(DESTROY, params![row.id.bits()]);
            desk.write_one(MOVED, params![]);
            desk.record(fact("secret.revoked", &self.by, &self.name));
        }
        Ok(())
    }
}

/// Somebody is about to use a secret.
struct Uses {
    name: SecretName,
    connection: ConnectionName,
    why: String,
    by: Actor,
}

impl UseCase for Uses {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let fact = fact("secret.used", &self.by, &self.name);
        desk.record(fact.with("connection", &self.connection).with("for", self.why.as_str()));
        Ok(())
    }
}

/// Somebody asks for a new value: an agent, or the gateway when it is time. Asking again is asking once.
struct AskRotation {
    message: MessageId,
    name: SecretName,
    reason: String,
    by: Actor,
}

impl UseCase for AskRotation {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let row = desk.row(ONE, params![self.name.as_str()]).await?.map(decode).transpose()?.ok_or(NO_SECRET)?;
        if row.revoked.is_some() {
            return Err(NO_SECRET);
        }
        if outbox::is_put(desk, self.message).await? {
            return Ok(());
        }
        let severity = if self.reason == "compromised" { Severity::Critical } else { Severity::Warning };
        let mut body = serde_json::json!({"secret": self.name, "reason": self.reason});
        if let (Actor::Agent(agent), Some(body)) = (&self.by, body.as_object_mut()) {
            body.insert("agent".into(), agent.as_str().into());
        }
        let topic = "secret.rotation_asked".into();
        outbox::put(desk, &Message { id: self.message, topic, severity, body });
        let fact = fact("secret.rotation_asked", &self.by, &self.name).with("message", self.message);
        desk.record(fact.with("reason", self.reason.as_str()));
        Ok(())
    }
}

/// The first root key of a vault.
struct Begin {
    root: VaultRoot,
}

impl UseCase for Begin {
    type Out = VaultRoot;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<VaultRoot, StoreError> {
        if let Some(row) = desk.row(ROOT_LOCKED, params![]).await? {
            return decode_root(row);
        }
        let (VaultRoot { root, salt, proof }, now) = (&self.root, desk.now);
        desk.write(FIRST_ROOT, params![root.as_str(), salt.as_slice(), proof.as_slice(), now]);
        let by = desk.actor();
        desk.record(Fact::new("vault.began", by).with("root", root));
        Ok(self.root.clone())
    }
}

/// All data keys, wrapped with another root key.
#[derive(Debug, Clone)]
pub struct Rekey {
    /// The root key's fingerprint so far.
    pub from: String,
    /// The new root key.
    pub to: VaultRoot,
    /// Every version there is: secret, version, data key wrapped anew.
    pub wrapped: Vec<(SecretId, u64, Vec<u8>)>,
    /// Who does it.
    pub by: Actor,
}

impl UseCase for Rekey {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        refuse_agents(&self.by)?;
        let root = desk.row(ROOT_LOCKED, params![]).await?.map(decode_root).transpose()?;
        let strangers: u64 = count(desk, STRANGERS, &self.from).await?;
        let all: u64 = match desk.row(COUNT, params![]).await? {
            Some(row) => row.of("secret_versions").count()?,
            None => 0,
        };
        let same = root.is_some_and(|root| root.root == self.from);
        // A secret came or went since they were read: read them again.
        if !same || strangers > 0 || all != self.wrapped.len() as u64 {
            return Err(StoreError::VersionConflict { current: all });
        }
        for (secret, version, wrapped) in &self.wrapped {
            let row = params![secret.bits(), *version, self.from.as_str(), self.to.root.as_str(), wrapped.as_slice()];
            desk.write_one(REWRAP, row);
        }
        let (VaultRoot { root, salt, proof }, now) = (&self.to, desk.now);
        desk.write_one(NEXT_ROOT, params![self.from.as_str(), root.as_str(), salt.as_slice(), proof.as_slice(), now]);
        desk.write_one(MOVED, params![]);
        let fact = Fact::new("vault.rekeyed", self.by.clone()).with("from", &self.from).with("root", root);
        desk.record(fact.with("versions", all));
        Ok(())
    }
}

async fn count<T: Tx>(desk: &mut Desk<'_, T>, sql: &'static str, root: &str) -> Result<u64, StoreError> {
    let row = desk.row(sql, params![root]).await?;
    row.ok_or(NO_SECRET)?.of("secret_versions").count()
}

/// Deletes versions whose overlap is over.
struct Sweep;

impl UseCase for Sweep {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        desk.write(LAPSED, params![now]);
        Ok(())
    }
}

struct All;

impl Query for All {
    type Out = Vec<SecretRow>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<SecretRow>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

struct One {
    name: SecretName,
}

impl Query for One {
    type Out = Option<(SecretRow, Vec<SealedVersion>)>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let row = tx.rows(ONE, &params![self.name.as_str()]).await?.into_iter().next();
        let Some(row) = row.map(decode).transpose()? else { return Ok(None) };
        let versions = tx.rows(VERSIONS_OF, &params![row.id.bits()]).await?;
        let versions = versions.into_iter().map(decode_version).collect::<Result<_, _>>()?;
        Ok(Some((row, versions)))
    }
}

struct Versions;

impl Query for Versions {
    type Out = Vec<SealedVersion>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(VERSIONS, &[]).await?.into_iter().map(decode_version).collect()
    }
}

struct Root;

impl Query for Root {
    type Out = Option<VaultRoot>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(ROOT, &[]).await?.into_iter().next().map(decode_root).transpose()
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

fn decode(row: Row) -> Result<SecretRow, StoreError> {
    let mut row = row.of("secrets");
    let (name, id, kind, scope) = (row.parsed()?, SecretId::from_bits(row.bits()?), row.text()?, row.text()?);
    let (version, created_at, created_by) = (row.count()?, row.time()?, row.parsed()?);
    let (updated_at, updated_by) = (row.time()?, row.parsed()?);
    let revoked = match (row.maybe_time()?, row.maybe_parsed()?) {
        (Some(at), Some(by)) => Some((at, by)),
        (None, None) => None,
        _ => return Err(row.impossible("half a revocation")),
    };
    Ok(SecretRow { name, id, kind, scope, version, created_at, created_by, updated_at, updated_by, revoked })
}

fn decode_version(row: Row) -> Result<SealedVersion, StoreError> {
    let mut row = row.of("secret_versions");
    let (secret, version, root) = (SecretId::from_bits(row.bits()?), row.count()?, row.text()?);
    let (scope, wrapped, sealed) = (row.text()?, row.blob()?, row.blob()?);
    let (created_at, until) = (row.time()?, row.maybe_time()?);
    Ok(SealedVersion { secret, version, root, scope, wrapped, sealed, created_at, until })
}

fn decode_root(row: Row) -> Result<VaultRoot, StoreError> {
    let mut row = row.of("vault_root");
    Ok(VaultRoot { root: row.text()?, salt: row.blob()?, proof: row.blob()? })
}

impl Store {
    /// Keeps a sealed secret: a new one, or the next version of one.
    ///
    /// # Errors
    /// When an agent asks, or it was sealed for another version or root key than there is.
    pub async fn put_secret(&self, put: PutSecret) -> Result<SecretRow, StoreError> {
        self.submit(put).await
    }

    /// Destroys every version of a secret. Doing it again changes nothing.
    ///
    /// # Errors
    /// When an agent asks, or there is no such secret.
    pub async fn revoke_secret(&self, name: SecretName, by: Actor) -> Result<(), StoreError> {
        self.submit(Revoke { name, by }).await
    }

    /// Records that a secret is about to be used, and what for.
    ///
    /// # Errors
    /// When it cannot be recorded: then it must not be used.
    pub async fn secret_used(
        &self,
        name: SecretName,
        connection: ConnectionName,
        why: String,
        by: Actor,
    ) -> Result<(), StoreError> {
        self.submit(Uses { name, connection, why, by }).await
    }

    /// Tells people that an agent wants a secret replaced. The same message again is the same request.
    ///
    /// # Errors
    /// When there is no such secret.
    pub async fn ask_rotation(
        &self,
        message: MessageId,
        name: SecretName,
        reason: String,
        by: Actor,
    ) -> Result<(), StoreError> {
        self.submit(AskRotation { message, name, reason, by }).await
    }

    /// The first root key of this vault; gives the one it has if somebody was faster.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn begin_vault(&self, root: VaultRoot) -> Result<VaultRoot, StoreError> {
        self.submit(Begin { root }).await
    }

    /// Puts every data key under another root key, all of them or none.
    ///
    /// # Errors
    /// When the vault changed since its versions were read.
    pub async fn rekey_vault(&self, rekey: Rekey) -> Result<(), StoreError> {
        self.submit(rekey).await
    }

    /// Deletes versions whose overlap is over.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn sweep_secrets(&self) -> Result<(), StoreError> {
        self.submit(Sweep).await
    }

    /// Every secret there is or was, by name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn secrets(&self) -> Result<Vec<SecretRow>, StoreError> {
        self.ask(All).await
    }

    /// One secret with its sealed versions, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn secret(&self, name: SecretName) -> Result<Option<(SecretRow, Vec<SealedVersion>)>, StoreError> {
        self.ask(One { name }).await
    }

    /// Every sealed version.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn secret_versions(&self) -> Result<Vec<SealedVersion>, StoreError> {
        self.ask(Versions).await
    }

    /// Which root key the vault is sealed with, once it has one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn vault_root(&self) -> Result<Option<VaultRoot>, StoreError> {
        self.ask(Root).await
    }

    /// A number that moves with every change of the vault, on whatever node.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn vault_changed(&self) -> Result<u64, StoreError> {
        self.ask(Generation).await
    }
}
