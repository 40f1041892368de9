//! Which versions of secrets tickets were issued with: so that a changed one takes its tickets back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sluice_core::ids::SecretName;
use sluice_store::{SecretRow, Store, StoreError};

use crate::oauth::ACCESS_KIND;

/// Version and whether it is revoked, by name.
type Known = BTreeMap<SecretName, (u64, bool)>;

/// What was last seen of the vault.
#[derive(Debug, Default)]
pub(super) struct Versions {
    seen: Mutex<(Option<u64>, Known)>,
}

impl Versions {
    /// Names of secrets that changed since this was last asked; nothing where nothing did.
    pub(super) async fn changed(&self, store: &Store) -> Result<Option<BTreeSet<SecretName>>, StoreError> {
        let generation = store.vault_changed().await?;
        if self.seen.lock().unwrap_or_else(PoisonError::into_inner).0 == Some(generation) {
            return Ok(None);
        }
        let rows = store.secrets().await?;
        // A token that is renewed all the time takes no ticket back: the one before ends by itself, at the service.
        let version = |row: &SecretRow| if row.kind == ACCESS_KIND { 0 } else { row.version };
        let standing = |row: SecretRow| (row.name.clone(), (version(&row), row.revoked.is_some()));
        let now: Known = rows.into_iter().map(standing).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, known) = &*seen;
        // At the first look there is nothing to compare with.
        let changed = match before {
            None => BTreeSet::new(),
            Some(_) => {
                now.iter().filter(|(name, is)| known.get(*name) != Some(is)).map(|(name, _)| name.clone()).collect()
            }
        };
        *seen = (Some(generation), now);
        Ok(Some(changed))
    }
    /// What was seen could not be passed on: it is new once more, compared with what is known.
    pub(super) fn once_more(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0 = seen.0.map(|_| u64::MAX);
    }
}
