//! The vault: credentials, sealed at rest, used for agents and never shown.
//!
//! Takes values from operators; gives them only to egress, for a capability and host they are bound to. Promise: sealed
//! data opens only with the root key and only as what it was sealed as; each use is recorded before the value is handed
//! out; no value is in any answer, error or log.

mod root;
mod scope;
mod seal;
mod secret;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluice_core::ids::{ConnectionName, FindingId, SecretId, SecretName};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Actor, Clock, Entropy, GatewayDeps, Ids, Millis};
use sluice_store::{
    PutSecret, RekeyVault, SealedContent, SealedSecretVersion, SecretRow, Store, StoreError, VaultRoot,
};

pub use root::{CREDENTIAL, RootKeySource};
pub use root::{PASSPHRASE_COST, passphrase_key};
pub use scope::SecretScope;
pub use seal::RootKey;
pub use secret::{LONGEST, SHORTEST, SecretValue};

use seal::{SealContext, SealedSecret};

/// How often sealing a secret is retried when another writer was faster.
const TRIES: usize = 5;

/// Why the vault refuses.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The secret does not exist, or was revoked.
    #[error("there is no secret of this name")]
    Unknown,
    /// The secret is bound to other capabilities or hosts.
    #[error("the secret is not for this capability and host")]
    OutOfScope,
    /// The root key cannot be read, or is not the one of this vault.
    #[error("the vault is locked: {0}")]
    Locked(String),
    /// The request is not possible.
    #[error("{0}")]
    Wrong(String),
    /// A row does not open as what it claims to be.
    #[error("a sealed secret does not open as what it claims to be")]
    Tampered,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl VaultError {
    /// The error as a refusal.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Unknown => Refusal::new(Code::VaultUnknown),
            Self::OutOfScope => Refusal::new(Code::VaultScope),
            Self::Locked(_) | Self::Tampered => Refusal::new(Code::VaultLocked).with_source(self),
            Self::Wrong(ref text) => Refusal::new(Code::SchemaWrongType).with_text(text),
            Self::Store(error) => {
                Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).with_source(error)
            }
        }
    }
}

/// A new secret, or a new value for one.
#[allow(missing_debug_implementations, reason = "it holds a value")]
pub struct NewSecretValue {
    /// The value.
    pub value: SecretValue,
    /// The kind of the secret; unchanged if not given.
    pub kind: Option<String>,
    /// The scope of the secret; unchanged if not given.
    pub scope: Option<SecretScope>,
    /// How long the leak scan still looks for the previous value.
    pub overlap: Millis,
}

/// The use that a secret is requested for.
#[derive(Debug, Clone)]
pub struct SecretUse<'a> {
    /// The capability.
    pub capability: &'a str,
    /// The egress connection.
    pub connection: &'a ConnectionName,
    /// The hosts: all of them must be in the secret's scope.
    pub hosts: &'a [String],
    /// The actor on whose behalf it is used.
    pub by: Actor,
}

/// The vault of one gateway.
pub struct Vault {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    entropy: Arc<dyn Entropy>,
    source: RootKeySource,
    root: ArcSwap<RootKey>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Vault {
    /// Opens the vault of this store: with the key that sealed it, or with a new key if it has none.
    ///
    /// # Errors
    /// When the key cannot be read, others can read it, or it is not the one that sealed this vault.
    pub async fn open(
        store: Arc<Store>,
        world: &GatewayDeps,
        source: RootKeySource,
        before: Option<RootKeySource>,
    ) -> Result<Self, VaultError> {
        let entropy = Arc::clone(&world.entropy);
        let VaultRootKeys { root, next, cut_off } = match store.vault_root().await? {
            None => VaultRootKeys { root: first(&store, &source, entropy.as_ref()).await?, next: None, cut_off: None },
            Some(known) => find(&known, &source, before.as_ref())?,
        };
        let (clock, ids) = (Arc::clone(&world.clock), Arc::clone(&world.ids));
        let vault = Self { store, clock, ids, entropy, source, root: ArcSwap::from_pointee(root) };
        match cut_off {
            Some(InterruptedRekey::Beside(path)) => vault.settle(&path).await?,
            Some(InterruptedRekey::Under(old)) => vault.move_withheld(&old, &vault.root.load_full()).await?,
            None => {}
        }
        if let Some(to) = next {
            vault.move_to(to, Actor::Node(vault.store.node().clone())).await?;
        }
        Ok(vault)
    }

    /// The source of its root key.
    #[must_use]
    pub fn source(&self) -> &RootKeySource {
        &self.source
    }

    /// A fingerprint of the root key, which reveals nothing about the key.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.root.load().fingerprint()
    }

    /// The key of the hashes that the audit log keeps of reads. Nodes that share a vault have the same key; a new root
    /// key changes it.
    #[must_use]
    pub fn record_key(&self) -> [u8; 32] {
        sluice_core::audit::commit(self.root.load().bytes(), b"sluice record of reads 1").0
    }

    /// Every current and former secret, without values.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn list(&self) -> Result<Vec<SecretRow>, VaultError> {
        Ok(self.store.secrets().await?)
    }

    /// One secret, without its value.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn show(&self, name: &SecretName) -> Result<SecretRow, VaultError> {
        self.store.secret(name.clone()).await?.map(|(row, _)| row).ok_or(VaultError::Unknown)
    }

    /// Stores a value: of a new secret, or the next value of an existing one.
    ///
    /// # Errors
    /// When it is too short or too long, or a new secret has no scope.
    pub async fn set(&self, name: &SecretName, new: NewSecretValue, by: Actor) -> Result<SecretRow, VaultError> {
        // A shorter value occurs by chance in many texts, so it could not be kept out of answers.
        if !(SHORTEST..=LONGEST).contains(&new.value.len()) {
            return Err(VaultError::Wrong(format!("a secret has {SHORTEST} to {LONGEST} bytes")));
        }
        let mut tries = TRIES;
        loop {
            let before = self.store.secret(name.clone()).await?.map(|(row, _)| row);
            let put = self.sealed(name, before, &new, by.clone())?;
            match self.store.put_secret(put).await {
                Err(StoreError::VersionConflict { .. }) if tries > 1 => tries -= 1,
                answer => return Ok(answer?),
            }
        }
    }

    /// Stores a first value. An existing value is not changed.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub async fn begin(&self, name: &SecretName, new: NewSecretValue, by: Actor) -> Result<(), VaultError> {
        let mut tries = TRIES;
        loop {
            let before = self.store.secret(name.clone()).await?.map(|(row, _)| row);
            if before.as_ref().is_some_and(|row| row.revoked.is_none()) {
                return Ok(());
            }
            let put = self.sealed(name, before, &new, by.clone())?;
            match self.store.put_secret(put).await {
                Err(StoreError::VersionConflict { .. }) if tries > 1 => tries -= 1,
                answer => return answer.map(drop).map_err(Into::into),
            }
        }
    }

    /// A key of 32 random bytes.
    pub fn random_key(&self) -> sluice_store::replica::SealKey {
        let mut bytes = [0; 32];
        self.entropy.fill(&mut bytes);
        sluice_store::replica::SealKey::new(bytes)
    }

    fn sealed(
        &self,
        name: &SecretName,
        before: Option<SecretRow>,
        new: &NewSecretValue,
        by: Actor,
    ) -> Result<PutSecret, VaultError> {
        let scope = match (&new.scope, &before) {
            (Some(scope), _) => scope.text(),
            (None, Some(row)) => row.scope.clone(),
            (None, None) => return Err(VaultError::Wrong("a new secret needs capabilities and hosts".into())),
        };
        let kind = new.kind.clone().or_else(|| before.as_ref().map(|row| row.kind.clone()));
        let kind = kind.unwrap_or_else(|| "api_key".into());
        let (id, version) = match before {
            Some(row) => (row.id, row.version + 1),
            None => (SecretId::mint(self.ids.as_ref()), 1),
        };
        let belongs = SealContext { secret: id, version, name: name.as_str(), scope: &scope };
        let root = self.root.load();
        let sealed = root.seal(&belongs, &new.value, self.entropy.as_ref()).map_err(|_| VaultError::Tampered)?;
        let SealedSecret { wrapped, sealed } = sealed;
        let keep_old_until = self.clock.now() + new.overlap;
        let root = root.fingerprint();
        Ok(PutSecret { name: name.clone(), id, kind, scope, version, root, wrapped, sealed, keep_old_until, by })
    }

    /// Destroys a secret.
    ///
    /// # Errors
    /// When it does not exist, or an agent asks.
    pub async fn revoke(&self, name: &SecretName, by: Actor) -> Result<(), VaultError> {
        match self.store.revoke_secret(name.clone(), by).await {
            Err(StoreError::NotFound { .. }) => Err(VaultError::Unknown),
            other => Ok(other?),
        }
    }

    /// Hands out a value for a use that its scope allows, after the use was recorded.
    ///
    /// # Errors
    /// When it does not exist, is bound to something else, or the use cannot be recorded.
    pub async fn take(&self, name: &SecretName, wanted: &SecretUse<'_>) -> Result<SecretValue, VaultError> {
        let (row, versions) = self.store.secret(name.clone()).await?.ok_or(VaultError::Unknown)?;
        if row.revoked.is_some() {
            return Err(VaultError::Unknown);
        }
        let scope = SecretScope::from_text(&row.scope).map_err(|_| VaultError::Tampered)?;
        let all = !wanted.hosts.is_empty() && wanted.hosts.iter().all(|host| scope.allows(wanted.capability, host));
        if !all {
            return Err(VaultError::OutOfScope);
        }
        let newest = versions.iter().find(|one| one.version == row.version).ok_or(VaultError::Tampered)?;
        // The scope that was just checked must be the sealed scope.
        let secret = self.opened(&row, &SealedSecretVersion { scope: row.scope.clone(), ..newest.clone() })?;
        let why = wanted.capability.to_owned();
        self.store.record_secret_use(name.clone(), wanted.connection.clone(), why, wanted.by.clone()).await?;
        Ok(secret)
    }

    /// Every value that must not leave, including old values in their overlap: for the leak scan.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn live(&self) -> Result<Vec<(SecretName, SecretValue)>, VaultError> {
        let now = self.clock.now();
        let rows = self.store.secrets().await?;
        let versions = self.store.secret_versions().await?;
        let current = versions.iter().filter(|one| one.until.is_none_or(|until| now < until));
        let mut live = Vec::new();
        for version in current {
            let Some(row) = rows.iter().find(|row| row.id == version.secret) else { continue };
            // A value that does not open must not hide the others.
            match self.opened(row, version) {
                Ok(secret) => live.push((row.name.clone(), secret)),
                Err(error) => {
                    tracing::error!(secret = %row.name, "the leak scan cannot look for `{}`: {error}", row.name);
                }
            }
        }
        Ok(live)
    }

    fn opened(&self, row: &SecretRow, one: &SealedSecretVersion) -> Result<SecretValue, VaultError> {
        let belongs =
            SealContext { secret: row.id, version: one.version, name: row.name.as_str(), scope: one.scope.as_str() };
        let root = self.root.load();
        if one.root != root.fingerprint() {
            return Err(VaultError::Locked("another node has changed the root key; restart with the new key".into()));
        }
        root.open(&belongs, &one.wrapped, &one.sealed).map_err(|_| VaultError::Tampered)
    }

    /// Seals content that is withheld from agents.
    ///
    /// # Errors
    /// Never with a valid key.
    pub fn seal_withheld(&self, finding: FindingId, content: &[u8]) -> Result<SealedContent, VaultError> {
        let root = self.root.load();
        let value = SecretValue::new(content.to_vec());
        let sealed = root.seal(&withheld(finding), &value, self.entropy.as_ref()).map_err(|_| VaultError::Tampered)?;
        Ok(SealedContent { root: root.fingerprint(), wrapped: sealed.wrapped, sealed: sealed.sealed })
    }

    /// Opens content that was withheld from agents.
    ///
    /// # Errors
    /// When it does not open as what it claims to be, or is sealed under another root key.
    pub fn open_withheld(&self, finding: FindingId, content: &SealedContent) -> Result<Vec<u8>, VaultError> {
        let root = self.root.load();
        if content.root != root.fingerprint() {
            return Err(VaultError::Locked("the item is sealed under another root key".into()));
        }
        let opened = root.open(&withheld(finding), &content.wrapped, &content.sealed);
        opened.map(|value| value.expose().to_vec()).map_err(|_| VaultError::Tampered)
    }

    /// Moves withheld items to a new root key. An item that does not open stays as it is and is shown to nobody.
    async fn move_withheld(&self, from: &RootKey, to: &RootKey) -> Result<(), VaultError> {
        loop {
            let some = self.store.findings_under(from.fingerprint()).await?;
            let mut wrapped = Vec::new();
            for one in &some {
                let anew = from.rewrap(to, &withheld(one.id), &one.content.wrapped, self.entropy.as_ref());
                wrapped.extend(anew.ok().map(|anew| (one.id, anew)));
            }
            if wrapped.is_empty() {
                return Ok(());
            }
            self.store.rewrap_findings(from.fingerprint(), to.fingerprint(), wrapped).await?;
        }
    }

    /// Seals everything under a new root key, which replaces the old one in its file.
    ///
    /// # Errors
    /// When the key does not come from a file, or the vault changed too often meanwhile.
    pub async fn rekey(&self, by: Actor) -> Result<String, VaultError> {
        let RootKeySource::File(path) = &self.source else {
            let text = "this root key does not come from a key file: configure the new one beside `vault.old_…`";
            return Err(VaultError::Wrong(text.into()));
        };
        let locked = |error: std::io::Error| VaultError::Locked(format!("the new key cannot be saved: {error}"));
        let next = next_to(path);
        if next.exists() {
            // SECURITY: the file there may be the only copy of the key in force.
            let beside = RootKeySource::File(next.clone()).read(&[]);
            if beside.is_ok_and(|key| key.fingerprint() == self.fingerprint()) {
                self.settle(path).await?;
            } else {
                std::fs::remove_file(&next).map_err(locked)?;
            }
        }
        let to = RootKey::generate(self.entropy.as_ref());
        // On disk before anything is sealed with it; `find` looks for it if the rename never happens.
        root::write(&next, &to).map_err(locked)?;
        let name = to.fingerprint();
        self.move_to(to, by).await?;
        std::fs::rename(&next, path).map_err(locked)?;
        Ok(name)
    }

    async fn move_to(&self, to: RootKey, by: Actor) -> Result<(), VaultError> {
        let from = self.root.load_full();
        let entropy = self.entropy.as_ref();
        let proof = to.proof(entropy).map_err(|_| VaultError::Tampered)?;
        // A passphrase keeps its salt, because the key was derived with it.
        let salt = self.store.vault_root().await?.map(|known| known.salt).unwrap_or_default();
        let mut tries = TRIES;
        loop {
            let rows = self.store.secrets().await?;
            let mut wrapped = Vec::new();
            for one in self.store.secret_versions().await? {
                let row = rows.iter().find(|row| row.id == one.secret).ok_or(VaultError::Tampered)?;
                let belongs =
                    SealContext { secret: row.id, version: one.version, name: row.name.as_str(), scope: &one.scope };
                let anew = from.rewrap(&to, &belongs, &one.wrapped, entropy).map_err(|_| VaultError::Tampered)?;
                wrapped.push((row.id, one.version, anew));
            }
            let known = VaultRoot { root: to.fingerprint(), salt: salt.clone(), proof: proof.clone() };
            let rekey = RekeyVault { from: from.fingerprint(), to: known, wrapped, by: by.clone() };
            match self.store.rekey_vault(rekey).await {
                Err(StoreError::VersionConflict { .. }) if tries > 1 => tries -= 1,
                answer => {
                    answer?;
                    // The new key first, so that nothing more is sealed under the old one while the rest moves.
                    let to = Arc::new(to);
                    self.root.store(Arc::clone(&to));
                    return self.move_withheld(&from, &to).await;
                }
            }
        }
    }

    /// Completes a change of the key file that was interrupted after its commit. Withheld items move first: until then
    /// only the old key opens them.
    async fn settle(&self, path: &Path) -> Result<(), VaultError> {
        if let Ok(old) = RootKeySource::File(path.to_path_buf()).read(&[]) {
            self.move_withheld(&old, &self.root.load_full()).await?;
        }
        let locked = |error: std::io::Error| VaultError::Locked(format!("the new key cannot be saved: {error}"));
        std::fs::rename(next_to(path), path).map_err(locked)
    }
}

/// Whether the text of a root key file holds the key that sealed a vault.
pub fn root_key_fits(text: &str, known: &VaultRoot) -> bool {
    root::parse(text, Path::new("root.key")).is_ok_and(|key| key.opens(&known.proof))
}

/// What the seal of a withheld item belongs to: no secret has a version zero.
fn withheld(finding: FindingId) -> SealContext<'static> {
    SealContext { secret: SecretId::from_bits(finding.bits()), version: 0, name: "withheld", scope: "" }
}

/// Makes the first key of a vault.
async fn first(store: &Store, source: &RootKeySource, entropy: &dyn Entropy) -> Result<RootKey, VaultError> {
    let mut salt = vec![0; root::SALT];
    entropy.fill(&mut salt);
    let key = if source.exists() { source.read(&salt) } else { source.make(entropy) }.map_err(VaultError::Locked)?;
    let proof = key.proof(entropy).map_err(|_| VaultError::Tampered)?;
    let known = store.begin_vault(VaultRoot { root: key.fingerprint(), salt, proof }).await?;
    // Two nodes may start at once: only the first stored key counts.
    if key.opens(&known.proof) { Ok(key) } else { Err(another(source)) }
}

/// The keys that a vault is opened with.
struct VaultRootKeys {
    /// The key that sealed it.
    root: RootKey,
    /// The key that should seal everything instead.
    next: Option<RootKey>,
    /// The remains of an interrupted key change.
    cut_off: Option<InterruptedRekey>,
}

/// A change of the root key that may be incomplete.
enum InterruptedRekey {
    /// The new key is still next to its final file.
    Beside(PathBuf),
    /// Withheld items may still be sealed under this key.
    Under(RootKey),
}

fn find(
    known: &VaultRoot,
    source: &RootKeySource,
    before: Option<&RootKeySource>,
) -> Result<VaultRootKeys, VaultError> {
    let read = |source: &RootKeySource| source.read(&known.salt).map_err(VaultError::Locked);
    // A rekey was interrupted after its commit: the new key is in the file next to it.
    if let RootKeySource::File(path) = source
        && let Ok(root) = RootKeySource::File(next_to(path)).read(&[])
        && root.opens(&known.proof)
    {
        return Ok(VaultRootKeys { root, next: None, cut_off: Some(InterruptedRekey::Beside(path.clone())) });
    }
    let key = read(source)?;
    if key.opens(&known.proof) {
        let old = before.and_then(|before| read(before).ok());
        return Ok(VaultRootKeys { root: key, next: None, cut_off: old.map(InterruptedRekey::Under) });
    }
    match before.map(read).transpose()?.filter(|old| old.opens(&known.proof)) {
        Some(old) => Ok(VaultRootKeys { root: old, next: Some(key), cut_off: None }),
        None => Err(another(source)),
    }
}

fn another(source: &RootKeySource) -> VaultError {
    VaultError::Locked(format!("the {} is not the one that sealed this vault", source.describe()))
}

fn next_to(path: &Path) -> PathBuf {
    path.with_extension("key.next")
}

#[cfg(test)]
mod tests;
