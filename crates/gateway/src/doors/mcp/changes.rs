//! Whether what agents can do has changed: rules, freezes, keys, what stands behind the gate.
//!
//! Takes a look at all four; gives a number that grows when one of them is another. Promise: whoever holds a
//! receiver is woken after a change and never for anything else, so a thousand idle clients cost nothing.

use std::sync::{Mutex, PoisonError};

use sluice_store::StoreError;
use tokio::sync::watch;

use crate::Gateway;

/// What was seen last, and who wants to know.
#[derive(Debug, Default)]
pub struct Changes {
    version: watch::Sender<u64>,
    seen: Mutex<Option<Stamp>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    policy: String,
    freezes: Vec<String>,
    keys: u64,
    offered: u64,
}

impl Changes {
    /// Woken after each change.
    #[must_use]
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Looks once, if anyone wants to know.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn look(&self, gw: &Gateway) -> Result<(), StoreError> {
        if self.version.receiver_count() == 0 {
            // Whoever comes next starts from the present.
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(());
        }
        let freezes = gw.store.freezes().await?.iter().map(|freeze| freeze.scope.to_string()).collect();
        let now = Stamp {
            policy: gw.policy.get().version().to_owned(),
            freezes,
            keys: gw.keyring.version(),
            offered: gw.catalogue.version(),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref() != Some(&now) {
            *seen = Some(now);
            drop(seen);
            self.version.send_modify(|version| *version += 1);
        }
        Ok(())
    }

    /// The gateway stops: everyone wakes and sees so.
    pub fn end(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}
