//! Secret versions: which versions tickets were issued with, so that a changed secret revokes its tickets.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use sluice_core::ids::SecretName;
use sluice_store::{SecretRow, Store, StoreError};

use crate::oauth::ACCESS_KIND;

/// The version and whether the secret is revoked, by name.
type SecretVersions = BTreeMap<SecretName, (u64, bool)>;

/// The vault's versions as last read.
#[derive(Debug, Default)]
pub(super) struct SecretVersionTracker {
    seen: Mutex<(Option<u64>, SecretVersions)>,
}

impl SecretVersionTracker {
    /// The names of secrets that changed since the last call; nothing if none changed.
    pub(super) async fn changed(&self, store: &Store) -> Result<Option<BTreeSet<SecretName>>, StoreError> {
        let generation = store.vault_generation().await?;
        if self.seen.lock().0 == Some(generation) {
            return Ok(None);
        }
        let rows = store.secrets().await?;
        // An access token that is renewed regularly revokes no ticket: the old token expires at the service.
        let version = |row: &SecretRow| if row.kind == ACCESS_KIND { 0 } else { row.version };
        let standing = |row: SecretRow| (row.name.clone(), (version(&row), row.revoked.is_some()));
        let now: SecretVersions = rows.into_iter().map(standing).collect();
        let mut seen = self.seen.lock();
        let (before, known) = &*seen;
        // The first read has nothing to compare with.
        let changed = match before {
            None => BTreeSet::new(),
            Some(_) => {
                now.iter().filter(|(name, is)| known.get(*name) != Some(is)).map(|(name, _)| name.clone()).collect()
            }
        };
        *seen = (Some(generation), now);
        Ok(Some(changed))
    }
    /// Notes that the secrets could not be passed on: the next call reads the vault again, even without a new change.
    pub(super) fn mark_unseen(&self) {
        let mut seen = self.seen.lock();
        seen.0 = seen.0.map(|_| u64::MAX);
    }
}
