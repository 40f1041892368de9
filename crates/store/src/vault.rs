//! Secrets as rows: encrypted elsewhere, stored here. Nothing in this crate can decrypt them.
//!
//! Takes and gives ciphertexts with their names and scopes. Promise: setting, rotating, revoking, rewrapping and using
//! a secret are recorded by name. A version that was revoked, or whose overlap has ended, is deleted, not only marked.
//! Every change increases a number that all nodes can watch.

use sluice_core::audit::AuditFact;
use sluice_core::ids::{ConnectionName, MessageId, SecretId, SecretName};
use sluice_core::{Actor, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// The public data of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// The name that people and agents use.
    pub name: SecretName,
    /// The id that its ciphertexts are bound to.
    pub id: SecretId,
    /// The kind of secret: `api_key`, `oauth_token`, …
    pub kind: String,
    /// Its permitted use, in the vault's format.
    pub scope: String,
    /// How many times it was set.
    pub version: u64,
    /// When it was first set.
    pub created_at: UtcMillis,
    /// Who first set it.
    pub created_by: Actor,
    /// When it was last set.
    pub updated_at: UtcMillis,
    /// Who last set it.
    pub updated_by: Actor,
    /// When it was revoked, and by whom.
    pub revoked: Option<(UtcMillis, Actor)>,
}

/// One encrypted version of a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecretVersion {
    /// The secret.
    pub secret: SecretId,
    /// The number of the version.
    pub version: u64,
    /// Fingerprint of the root key its data key is wrapped with.
    pub root: String,
    /// The scope it was sealed with.
    pub scope: String,
    /// Its data key, wrapped with the root key.
    pub wrapped: Vec<u8>,
    /// Its encrypted value.
    pub sealed: Vec<u8>,
    /// When it was set.
    pub created_at: UtcMillis,
    /// Until when it is kept, if a newer version has replaced it.
    pub until: Option<UtcMillis>,
}

impl std::fmt::Debug for SealedSecretVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedVersion")
            .field("secret", &self.secret)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The root key of the vault.
#[derive(Clone, PartialEq, Eq)]
pub struct VaultRoot {
    /// Its fingerprint.
    pub root: String,
    /// Salt of the passphrase, if it comes from one.
    pub salt: Vec<u8>,
    /// A text that only this key can decrypt.
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
    /// The name of the secret.
    pub name: SecretName,
    /// Its id; for an existing name, the present id.
    pub id: SecretId,
    /// The kind of secret.
    pub kind: String,
    /// Its permitted use.
    pub scope: String,
    /// The version to create: one more than the present version.
    pub version: u64,
    /// Fingerprint of the root key.
    pub root: String,
    /// Its data key, wrapped with the root key.
    pub wrapped: Vec<u8>,
    /// Its encrypted value.
    pub sealed: Vec<u8>,
    /// How long the previous version is kept.
    pub keep_old_until: UtcMillis,
    /// Who sets it.
    pub by: Actor,
}

impl std::fmt::Debug for PutSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PutSecret").field("name", &self.name).field("version", &self.version).finish_non_exhaustive()
    }
}

/// SECURITY: an agent that could set a secret or its scope could send a secret anywhere.
fn refuse_agents(by: &Actor) -> Result<(), StoreError> {
    match by {
        Actor::Agent(_) => Err(StoreError::NotAPerson),
        Actor::Person(_) | Actor::Operator(_) | Actor::Node(_) => Ok(()),
    }
}

const NO_SECRET: StoreError = StoreError::NotFound { what: "secret" };

impl UseCase for PutSecret {
    type Out = SecretRow;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<SecretRow, StoreError> {
        refuse_agents(&self.by)?;
        let before = unit.row(LOCKED, params![self.name.as_str()]).await?.map(decode).transpose()?;
        let root = unit.row(ROOT_LOCKED, params![]).await?.map(decode_root).transpose()?;
        // Encrypted with a root key that was replaced meanwhile: it must be encrypted again.
        if root.is_none_or(|root| root.root != self.root) {
            return Err(StoreError::VersionConflict { current: before.map_or(0, |row| row.version) });
        }
        let current = before.as_ref().map_or(0, |row| row.version);
        if current.saturating_add(1) != self.version || before.as_ref().is_some_and(|row| row.id != self.id) {
            return Err(StoreError::VersionConflict { current });
        }
        let now = unit.now;
        match &before {
            None => {
                let row =
                    params![self.name.as_str(), self.id.bits(), self.kind.as_str(), self.scope.as_str(), now, &self.by];
                unit.write(NEW, row);
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
                unit.write_one(NEXT, next);
                unit.write(LET_LAPSE, params![self.id.bits(), row.version, self.keep_old_until]);
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
        unit.write(SEAL, version);
        unit.write(LAPSED, params![now]);
        unit.write_one(MOVED, params![]);
        let kind = if before.is_some() { "secret.rotated" } else { "secret.set" };
        unit.record(fact(kind, &self.by, &self.name).with("version", self.version).with("kind", self.kind.as_str()));
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

fn fact(kind: &str, by: &Actor, name: &SecretName) -> AuditFact {
    AuditFact::new(kind, by.clone()).with("secret", name)
}

struct RevokeSecret {
    name: SecretName,
    by: Actor,
}

impl UseCase for RevokeSecret {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        refuse_agents(&self.by)?;
        let row = unit.row(LOCKED, params![self.name.as_str()]).await?.map(decode).transpose()?.ok_or(NO_SECRET)?;
        if row.revoked.is_none() {
            let now = unit.now;
            unit.write(REVOKE, params![self.name.as_str(), now, &self.by]);
            unit.write(DESTROY, params![row.id.bits()]);
            unit.write_one(MOVED, params![]);
            unit.record(fact("secret.revoked", &self.by, &self.name));
        }
        Ok(())
    }
}

/// Records that a secret is about to be used.
struct RecordSecretUse {
    name: SecretName,
    connection: ConnectionName,
    why: String,
    by: Actor,
}

impl UseCase for RecordSecretUse {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let fact = fact("secret.used", &self.by, &self.name);
        unit.record(fact.with("connection", &self.connection).with("for", self.why.as_str()));
        Ok(())
    }
}

/// Requests a new value: an agent does, or the gateway when it is due. Repeating the request changes nothing.
struct AskRotation {
    message: MessageId,
    name: SecretName,
    reason: String,
    by: Actor,
}

impl UseCase for AskRotation {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let row = unit.row(ONE, params![self.name.as_str()]).await?.map(decode).transpose()?.ok_or(NO_SECRET)?;
        if row.revoked.is_some() {
            return Err(NO_SECRET);
        }
        if outbox::is_put(unit, self.message).await? {
            return Ok(());
        }
        let severity = if self.reason == "compromised" { MessageSeverity::Critical } else { MessageSeverity::Warning };
        let mut body = serde_json::json!({"secret": self.name, "reason": self.reason});
        if let (Actor::Agent(agent), Some(body)) = (&self.by, body.as_object_mut()) {
            body.insert("agent".into(), agent.as_str().into());
        }
        let topic = "secret.rotation_asked".into();
        outbox::put(unit, &OutboxMessage { id: self.message, topic, severity, body });
        let fact = fact("secret.rotation_asked", &self.by, &self.name).with("message", self.message);
        unit.record(fact.with("reason", self.reason.as_str()));
        Ok(())
    }
}

/// Stores the first root key of a vault.
struct BeginVault {
    root: VaultRoot,
}

impl UseCase for BeginVault {
    type Out = VaultRoot;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<VaultRoot, StoreError> {
        if let Some(row) = unit.row(ROOT_LOCKED, params![]).await? {
            return decode_root(row);
        }
        let (VaultRoot { root, salt, proof }, now) = (&self.root, unit.now);
        unit.write(FIRST_ROOT, params![root.as_str(), salt.as_slice(), proof.as_slice(), now]);
        let by = unit.actor();
        unit.record(AuditFact::new("vault.began", by).with("root", root));
        Ok(self.root.clone())
    }
}

/// All data keys, wrapped with another root key.
#[derive(Debug, Clone)]
pub struct RekeyVault {
    /// The fingerprint of the present root key.
    pub from: String,
    /// The new root key.
    pub to: VaultRoot,
    /// Every existing version: secret, version, newly wrapped data key.
    pub wrapped: Vec<(SecretId, u64, Vec<u8>)>,
    /// Who changes the root key.
    pub by: Actor,
}

impl UseCase for RekeyVault {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        refuse_agents(&self.by)?;
        let root = unit.row(ROOT_LOCKED, params![]).await?.map(decode_root).transpose()?;
        let strangers: u64 = count(unit, STRANGERS, &self.from).await?;
        let all: u64 = match unit.row(COUNT, params![]).await? {
            Some(row) => row.of("secret_versions").count()?,
            None => 0,
        };
        let same = root.is_some_and(|root| root.root == self.from);
        // A secret was added or removed since they were read: the caller must read them again.
        if !same || strangers > 0 || all != self.wrapped.len() as u64 {
            return Err(StoreError::VersionConflict { current: all });
        }
        for (secret, version, wrapped) in &self.wrapped {
            let row = params![secret.bits(), *version, self.from.as_str(), self.to.root.as_str(), wrapped.as_slice()];
            unit.write_one(REWRAP, row);
        }
        let (VaultRoot { root, salt, proof }, now) = (&self.to, unit.now);
        unit.write_one(NEXT_ROOT, params![self.from.as_str(), root.as_str(), salt.as_slice(), proof.as_slice(), now]);
        unit.write_one(MOVED, params![]);
        let fact = AuditFact::new("vault.rekeyed", self.by.clone()).with("from", &self.from).with("root", root);
        unit.record(fact.with("versions", all));
        Ok(())
    }
}

async fn count<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, sql: &'static str, root: &str) -> Result<u64, StoreError> {
    let row = unit.row(sql, params![root]).await?;
    row.ok_or(NO_SECRET)?.of("secret_versions").count()
}

/// Deletes versions whose overlap is over.
struct SweepSecrets;

impl UseCase for SweepSecrets {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        unit.write(LAPSED, params![now]);
        Ok(())
    }
}

struct ListSecrets;

impl StoreQuery for ListSecrets {
    type Out = Vec<SecretRow>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<SecretRow>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

struct GetSecret {
    name: SecretName,
}

impl StoreQuery for GetSecret {
    type Out = Option<(SecretRow, Vec<SealedSecretVersion>)>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let row = tx.rows(ONE, &params![self.name.as_str()]).await?.into_iter().next();
        let Some(row) = row.map(decode).transpose()? else { return Ok(None) };
        let versions = tx.rows(VERSIONS_OF, &params![row.id.bits()]).await?;
        let versions = versions.into_iter().map(decode_version).collect::<Result<_, _>>()?;
        Ok(Some((row, versions)))
    }
}

struct ListSecretVersions;

impl StoreQuery for ListSecretVersions {
    type Out = Vec<SealedSecretVersion>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(VERSIONS, &[]).await?.into_iter().map(decode_version).collect()
    }
}

struct GetVaultRoot;

impl StoreQuery for GetVaultRoot {
    type Out = Option<VaultRoot>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(ROOT, &[]).await?.into_iter().next().map(decode_root).transpose()
    }
}

struct GetVaultGeneration;

impl StoreQuery for GetVaultGeneration {
    type Out = u64;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u64, StoreError> {
        let row = tx.rows(GENERATION, &[]).await?.into_iter().next();
        row.ok_or(StoreError::NotFound { what: "generation" })?.of("generations").count()
    }
}

fn decode(row: SqlRow) -> Result<SecretRow, StoreError> {
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

fn decode_version(row: SqlRow) -> Result<SealedSecretVersion, StoreError> {
    let mut row = row.of("secret_versions");
    let (secret, version, root) = (SecretId::from_bits(row.bits()?), row.count()?, row.text()?);
    let (scope, wrapped, sealed) = (row.text()?, row.blob()?, row.blob()?);
    let (created_at, until) = (row.time()?, row.maybe_time()?);
    Ok(SealedSecretVersion { secret, version, root, scope, wrapped, sealed, created_at, until })
}

fn decode_root(row: SqlRow) -> Result<VaultRoot, StoreError> {
    let mut row = row.of("vault_root");
    Ok(VaultRoot { root: row.text()?, salt: row.blob()?, proof: row.blob()? })
}

impl Store {
    /// Stores an encrypted secret: a new one, or the next version of one.
    ///
    /// # Errors
    /// When an agent asks, or its version or root key is no longer the right one.
    pub async fn put_secret(&self, put: PutSecret) -> Result<SecretRow, StoreError> {
        self.submit(put).await
    }

    /// Destroys every version of a secret. Doing it again changes nothing.
    ///
    /// # Errors
    /// When an agent asks, or there is no such secret.
    pub async fn revoke_secret(&self, name: SecretName, by: Actor) -> Result<(), StoreError> {
        self.submit(RevokeSecret { name, by }).await
    }

    /// Records that a secret is about to be used, and what for.
    ///
    /// # Errors
    /// When it cannot be recorded: then it must not be used.
    pub async fn record_secret_use(
        &self,
        name: SecretName,
        connection: ConnectionName,
        why: String,
        by: Actor,
    ) -> Result<(), StoreError> {
        self.submit(RecordSecretUse { name, connection, why, by }).await
    }

    /// Notifies people that an agent wants a secret replaced. The same message again is the same request.
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

    /// Stores the first root key of this vault; gives the existing one if another node was faster.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn begin_vault(&self, root: VaultRoot) -> Result<VaultRoot, StoreError> {
        self.submit(BeginVault { root }).await
    }

    /// Wraps every data key with another root key, all of them or none.
    ///
    /// # Errors
    /// When the vault changed since its versions were read.
    pub async fn rekey_vault(&self, rekey: RekeyVault) -> Result<(), StoreError> {
        self.submit(rekey).await
    }

    /// Deletes versions whose overlap is over.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn sweep_secrets(&self) -> Result<(), StoreError> {
        self.submit(SweepSecrets).await
    }

    /// All secrets, including revoked ones, by name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn secrets(&self) -> Result<Vec<SecretRow>, StoreError> {
        self.ask(ListSecrets).await
    }

    /// One secret with its sealed versions, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn secret(&self, name: SecretName) -> Result<Option<(SecretRow, Vec<SealedSecretVersion>)>, StoreError> {
        self.ask(GetSecret { name }).await
    }

    /// Every sealed version.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn secret_versions(&self) -> Result<Vec<SealedSecretVersion>, StoreError> {
        self.ask(ListSecretVersions).await
    }

    /// The root key of the vault, once it has one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn vault_root(&self) -> Result<Option<VaultRoot>, StoreError> {
        self.ask(GetVaultRoot).await
    }

    /// A number that increases with every change of the vault, on any node.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn vault_generation(&self) -> Result<u64, StoreError> {
        self.ask(GetVaultGeneration).await
    }
}
