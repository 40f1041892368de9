//! The vault: credentials, sealed at rest, used on behalf of agents and shown to nobody.
//!
//! Takes values from operators; gives them only to egress, for a capability and host they are bound to. Promise:
//! what the database holds opens with the root key alone and only as what it was sealed as; each use is on record
//! before the value is in anyone's hands; no value is in any answer, error or log.

mod root;
mod scope;
mod seal;
mod secret;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluice_core::ids::{ConnectionName, FindingId, SecretId, SecretName};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Actor, Clock, Entropy, Ids, Span};
use sluice_store::{PutSecret, Rekey, SealedContent, SealedVersion, SecretRow, Store, StoreError, VaultRoot};

use crate::open::World;

pub use root::{CREDENTIAL, Source};
pub(crate) use root::{PASSPHRASE_COST, passphrase_key};
pub use scope::Scope;
pub use seal::RootKey;
pub use secret::{LONGEST, SHORTEST, Secret};

use seal::{Belongs, Sealed};

/// How often a secret is sealed again when somebody else was faster.
const TRIES: usize = 5;

/// Why the vault says no.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// There is no such secret, or no longer.
    #[error("there is no secret of this name")]
    Unknown,
    /// It is bound to other capabilities or hosts.
    #[error("the secret is not for this capability and host")]
    OutOfScope,
    /// The root key cannot be had, or is another one.
    #[error("the vault is locked: {0}")]
    Locked(String),
    /// What was asked cannot be.
    #[error("{0}")]
    Wrong(String),
    /// A row does not open as what it claims to be.
    #[error("a sealed secret does not open as what it claims to be")]
    Tampered,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl VaultError {
    /// As a refusal.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Unknown => Refusal::new(Code::VaultUnknown),
            Self::OutOfScope => Refusal::new(Code::VaultScope),
            Self::Locked(_) | Self::Tampered => Refusal::new(Code::VaultLocked).because(self),
            Self::Wrong(ref text) => Refusal::new(Code::SchemaWrongType).with_text(text),
            Self::Store(error) => {
                Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).because(error)
            }
        }
    }
}

/// A new secret, or a new value for one.
#[allow(missing_debug_implementations, reason = "it holds a value")]
pub struct NewValue {
    /// The value.
    pub value: Secret,
    /// What kind of thing it is; as before if not given.
    pub kind: Option<String>,
    /// What it is bound to; as before if not given.
    pub scope: Option<Scope>,
    /// How long the value before is still known.
    pub overlap: Span,
}

/// What a secret is wanted for.
#[derive(Debug, Clone)]
pub struct Use<'a> {
    /// By which capability.
    pub capability: &'a str,
    /// Through which connection.
    pub connection: &'a ConnectionName,
    /// At which hosts: all of them must be in its scope.
    pub hosts: &'a [String],
    /// On whose behalf.
    pub by: Actor,
}

/// The vault of one gateway.
pub struct Vault {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    entropy: Arc<dyn Entropy>,
    source: Source,
    root: ArcSwap<RootKey>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Vault {
    /// Opens the vault of this store: with the key that sealed it, or with a first one.
    ///
    /// # Errors
    /// When the key cannot be had, others can read it, or it is not the one that sealed this vault.
    pub async fn open(
        store: Arc<Store>,
        world: &World,
        source: Source,
        before: Option<Source>,
    ) -> Result<Self, VaultError> {
        let entropy = Arc::clone(&world.entropy);
        let Keys { root, next, cut_off } = match store.vault_root().await? {
            None => Keys { root: first(&store, &source, entropy.as_ref()).await?, next: None, cut_off: None },
            Some(known) => find(&known, &source, before.as_ref())?,
        };
        let (clock, ids) = (Arc::clone(&world.clock), Arc::clone(&world.ids));
        let vault = Self { store, clock, ids, entropy, source, root: ArcSwap::from_pointee(root) };
        match cut_off {
            Some(CutOff::Beside(path)) => vault.settle(&path).await?,
            Some(CutOff::Under(old)) => vault.move_withheld(&old, &vault.root.load_full()).await?,
            None => {}
        }
        if let Some(to) = next {
            vault.move_to(to, Actor::Node(vault.store.node().clone())).await?;
        }
        Ok(vault)
    }

    /// Where its root key comes from.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Names the root key without giving it away.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.root.load().fingerprint()
    }

    /// The key of the hashes that the record keeps of reads. Nodes that share a vault have the same one; a new root key
    /// makes a new one.
    #[must_use]
    pub fn record_key(&self) -> [u8; 32] {
        sluice_core::audit::commit(self.root.load().bytes(), b"sluice record of reads 1").0
    }

    /// Every secret there is or was, without values.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn list(&self) -> Result<Vec<SecretRow>, VaultError> {
        Ok(self.store.secrets().await?)
    }

    /// One secret, without its value.
    ///
    /// # Errors
    /// When there is none.
    pub async fn show(&self, name: &SecretName) -> Result<SecretRow, VaultError> {
        self.store.secret(name.clone()).await?.map(|(row, _)| row).ok_or(VaultError::Unknown)
    }

    /// Keeps a value: of a new secret, or the next one of an old.
    ///
    /// # Errors
    /// When it is too short or too long, or a new secret has no scope.
    pub async fn set(&self, name: &SecretName, new: NewValue, by: Actor) -> Result<SecretRow, VaultError> {
        // What is shorter is found by chance in any text, so that it could not be kept out of answers.
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

    /// Keeps a first value. Where there is one, nothing is changed.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub async fn begin(&self, name: &SecretName, new: NewValue, by: Actor) -> Result<(), VaultError> {
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
    pub(crate) fn random_key(&self) -> sluice_store::replica::Key {
        let mut bytes = [0; 32];
        self.entropy.fill(&mut bytes);
        sluice_store::replica::Key::new(bytes)
    }

    fn sealed(
        &self,
        name: &SecretName,
        before: Option<SecretRow>,
        new: &NewValue,
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
        let belongs = Belongs { secret: id, version, name: name.as_str(), scope: &scope };
        let root = self.root.load();
        let sealed = root.seal(&belongs, &new.value, self.entropy.as_ref()).map_err(|_| VaultError::Tampered)?;
        let Sealed { wrapped, sealed } = sealed;
        let keep_old_until = self.clock.now() + new.overlap;
        let root = root.fingerprint();
        Ok(PutSecret { name: name.clone(), id, kind, scope, version, root, wrapped, sealed, keep_old_until, by })
    }

    /// Destroys a secret.
    ///
    /// # Errors
    /// When there is none, or an agent asks.
    pub async fn revoke(&self, name: &SecretName, by: Actor) -> Result<(), VaultError> {
        match self.store.revoke_secret(name.clone(), by).await {
            Err(StoreError::NotFound { .. }) => Err(VaultError::Unknown),
            other => Ok(other?),
        }
    }

    /// Hands out a value for a use its scope allows, once the record has it.
    ///
    /// # Errors
    /// When there is none, it is bound to something else, or the use cannot be recorded.
    pub async fn take(&self, name: &SecretName, wanted: &Use<'_>) -> Result<Secret, VaultError> {
        let (row, versions) = self.store.secret(name.clone()).await?.ok_or(VaultError::Unknown)?;
        if row.revoked.is_some() {
            return Err(VaultError::Unknown);
        }
        let scope = Scope::from_text(&row.scope).map_err(|_| VaultError::Tampered)?;
        let all = !wanted.hosts.is_empty() && wanted.hosts.iter().all(|host| scope.allows(wanted.capability, host));
        if !all {
            return Err(VaultError::OutOfScope);
        }
        let newest = versions.iter().find(|one| one.version == row.version).ok_or(VaultError::Tampered)?;
        // The scope that was just checked must be the one that is sealed in.
        let secret = self.opened(&row, &SealedVersion { scope: row.scope.clone(), ..newest.clone() })?;
        let why = wanted.capability.to_owned();
        self.store.secret_used(name.clone(), wanted.connection.clone(), why, wanted.by.clone()).await?;
        Ok(secret)
    }

    /// Every value that must not leave, old ones in their overlap included: for whoever looks at what goes out.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn live(&self) -> Result<Vec<(SecretName, Secret)>, VaultError> {
        let now = self.clock.now();
        let rows = self.store.secrets().await?;
        let versions = self.store.secret_versions().await?;
        let current = versions.iter().filter(|one| one.until.is_none_or(|until| now < until));
        let mut live = Vec::new();
        for version in current {
            let Some(row) = rows.iter().find(|row| row.id == version.secret) else { continue };
            // One that does not open must not hide the others.
            match self.opened(row, version) {
                Ok(secret) => live.push((row.name.clone(), secret)),
                Err(error) => {
                    tracing::error!(secret = %row.name, "`{}` cannot be looked for in what leaves: {error}", row.name);
                }
            }
        }
        Ok(live)
    }

    fn opened(&self, row: &SecretRow, one: &SealedVersion) -> Result<Secret, VaultError> {
        let belongs =
            Belongs { secret: row.id, version: one.version, name: row.name.as_str(), scope: one.scope.as_str() };
        let root = self.root.load();
        if one.root != root.fingerprint() {
            return Err(VaultError::Locked(
                "another node has put it under a new root key; restart with that key".into(),
            ));
        }
        root.open(&belongs, &one.wrapped, &one.sealed).map_err(|_| VaultError::Tampered)
    }

    /// Seals something that is kept from agents.
    ///
    /// # Errors
    /// Never with a key that works.
    pub fn lock_away(&self, finding: FindingId, content: &[u8]) -> Result<SealedContent, VaultError> {
        let root = self.root.load();
        let value = Secret::new(content.to_vec());
        let sealed = root.seal(&withheld(finding), &value, self.entropy.as_ref()).map_err(|_| VaultError::Tampered)?;
        Ok(SealedContent { root: root.fingerprint(), wrapped: sealed.wrapped, sealed: sealed.sealed })
    }

    /// Opens what was kept from agents.
    ///
    /// # Errors
    /// When it does not open as what it claims to be, or is under another root key.
    pub fn bring_out(&self, finding: FindingId, content: &SealedContent) -> Result<Vec<u8>, VaultError> {
        let root = self.root.load();
        if content.root != root.fingerprint() {
            return Err(VaultError::Locked("the item is sealed under another root key".into()));
        }
        let opened = root.open(&withheld(finding), &content.wrapped, &content.sealed);
        opened.map(|value| value.expose().to_vec()).map_err(|_| VaultError::Tampered)
    }

    /// Withheld items follow the root key. One that does not open any more stays behind: it is shown to nobody.
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

    /// Puts everything under a new root key, which takes the old one's place in its file.
    ///
    /// # Errors
    /// When the key does not come from a file, or the vault kept changing.
    pub async fn rekey(&self, by: Actor) -> Result<String, VaultError> {
        let Source::File(path) = &self.source else {
            let text = "this root key does not come from a key file: configure the new one beside `vault.old_…`";
            return Err(VaultError::Wrong(text.into()));
        };
        let locked = |error: std::io::Error| VaultError::Locked(format!("the new key cannot be kept: {error}"));
        let next = next_to(path);
        if next.exists() {
            // SECURITY: what lies there may be the only copy of the key in force.
            let beside = Source::File(next.clone()).read(&[]);
            if beside.is_ok_and(|key| key.fingerprint() == self.fingerprint()) {
                self.settle(path).await?;
            } else {
                std::fs::remove_file(&next).map_err(locked)?;
            }
        }
        let to = RootKey::generate(self.entropy.as_ref());
        // On disk before anything is sealed with it; `find` looks for it should we not come to rename it.
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
        // A passphrase keeps its salt: the key was derived with it.
        let salt = self.store.vault_root().await?.map(|known| known.salt).unwrap_or_default();
        let mut tries = TRIES;
        loop {
            let rows = self.store.secrets().await?;
            let mut wrapped = Vec::new();
            for one in self.store.secret_versions().await? {
                let row = rows.iter().find(|row| row.id == one.secret).ok_or(VaultError::Tampered)?;
                let belongs =
                    Belongs { secret: row.id, version: one.version, name: row.name.as_str(), scope: &one.scope };
                let anew = from.rewrap(&to, &belongs, &one.wrapped, entropy).map_err(|_| VaultError::Tampered)?;
                wrapped.push((row.id, one.version, anew));
            }
            let known = VaultRoot { root: to.fingerprint(), salt: salt.clone(), proof: proof.clone() };
            let rekey = Rekey { from: from.fingerprint(), to: known, wrapped, by: by.clone() };
            match self.store.rekey_vault(rekey).await {
                Err(StoreError::VersionConflict { .. }) if tries > 1 => tries -= 1,
                answer => {
                    answer?;
                    // First the new key, so that nothing more is sealed under the old one while the rest moves.
                    let to = Arc::new(to);
                    self.root.store(Arc::clone(&to));
                    return self.move_withheld(&from, &to).await;
                }
            }
        }
    }

    /// Brings a change of the key file to its end that was cut off after its commit. Withheld items first: until they
    /// have moved they open with the old key alone.
    async fn settle(&self, path: &Path) -> Result<(), VaultError> {
        if let Ok(old) = Source::File(path.to_path_buf()).read(&[]) {
            self.move_withheld(&old, &self.root.load_full()).await?;
        }
        let locked = |error: std::io::Error| VaultError::Locked(format!("the new key cannot be kept: {error}"));
        std::fs::rename(next_to(path), path).map_err(locked)
    }
}

/// Whether the text of a root key file is the key that sealed a vault.
pub(crate) fn root_key_fits(text: &str, known: &VaultRoot) -> bool {
    root::parse(text, Path::new("root.key")).is_ok_and(|key| key.opens(&known.proof))
}

/// What the seal of a withheld item belongs to: no version of a secret is numbered nought.
fn withheld(finding: FindingId) -> Belongs<'static> {
    Belongs { secret: SecretId::from_bits(finding.bits()), version: 0, name: "withheld", scope: "" }
}

/// The first key of a vault.
async fn first(store: &Store, source: &Source, entropy: &dyn Entropy) -> Result<RootKey, VaultError> {
    let mut salt = vec![0; root::SALT];
    entropy.fill(&mut salt);
    let key = if source.exists() { source.read(&salt) } else { source.make(entropy) }.map_err(VaultError::Locked)?;
    let proof = key.proof(entropy).map_err(|_| VaultError::Tampered)?;
    let known = store.begin_vault(VaultRoot { root: key.fingerprint(), salt, proof }).await?;
    // Two nodes may begin at once: only the key that came first counts.
    if key.opens(&known.proof) { Ok(key) } else { Err(another(source)) }
}

/// The keys a vault is opened with.
struct Keys {
    /// The one that sealed it.
    root: RootKey,
    /// The one everything should be under instead.
    next: Option<RootKey>,
    /// What an earlier change may have left behind.
    cut_off: Option<CutOff>,
}

/// A change of the root key that may not have come to its end.
enum CutOff {
    /// The new key is still beside the file it belongs in.
    Beside(PathBuf),
    /// Withheld items may still be under this key.
    Under(RootKey),
}

fn find(known: &VaultRoot, source: &Source, before: Option<&Source>) -> Result<Keys, VaultError> {
    let read = |source: &Source| source.read(&known.salt).map_err(VaultError::Locked);
    // A rekey that was cut off after its commit: the new key is the one beside.
    if let Source::File(path) = source
        && let Ok(root) = Source::File(next_to(path)).read(&[])
        && root.opens(&known.proof)
    {
        return Ok(Keys { root, next: None, cut_off: Some(CutOff::Beside(path.clone())) });
    }
    let key = read(source)?;
    if key.opens(&known.proof) {
        let old = before.and_then(|before| read(before).ok());
        return Ok(Keys { root: key, next: None, cut_off: old.map(CutOff::Under) });
    }
    match before.map(read).transpose()?.filter(|old| old.opens(&known.proof)) {
        Some(old) => Ok(Keys { root: old, next: Some(key), cut_off: None }),
        None => Err(another(source)),
    }
}

fn another(source: &Source) -> VaultError {
    VaultError::Locked(format!("the {} is not the one that sealed this vault", source.describe()))
}

fn next_to(path: &Path) -> PathBuf {
    path.with_extension("key.next")
}

#[cfg(test)]
mod tests;
