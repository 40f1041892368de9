//! Notices when what agents can do has changed: rules, freezes, keys, services behind the gate.
//!
//! Takes the state of all four; gives a number that grows when one of them changes. Promise: the holder of a
//! receiver is woken after a change and never for anything else, so a thousand idle clients cost nothing.

use parking_lot::Mutex;
use sluice_store::StoreError;
use tokio::sync::watch;

use crate::Gateway;

/// What was seen last, and who listens.
#[derive(Debug, Default)]
pub struct ToolListChanges {
    version: watch::Sender<u64>,
    seen: Mutex<Option<ToolListStamp>>,
}

#[derive(Debug, PartialEq, Eq)]
struct ToolListStamp {
    policy: String,
    freezes: Vec<String>,
    keys: u64,
    offered: u64,
}

impl ToolListChanges {
    /// A receiver that is woken after each change.
    #[must_use]
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Checks once, if anyone listens.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn look(&self, gw: &Gateway) -> Result<(), StoreError> {
        if self.version.receiver_count() == 0 {
            // The next listener starts from the present.
            *self.seen.lock() = None;
            return Ok(());
        }
        let freezes = gw.store.freezes().await?.iter().map(|freeze| freeze.scope.to_string()).collect();
        let now = ToolListStamp {
            policy: gw.policy.get().version().to_owned(),
            freezes,
            keys: gw.keyring.version(),
            offered: gw.catalogue.version(),
        };
        let mut seen = self.seen.lock();
        if seen.as_ref() != Some(&now) {
            *seen = Some(now);
            drop(seen);
            self.version.send_modify(|version| *version += 1);
        }
        Ok(())
    }

    /// Wakes everyone because an agent's own list has grown: it found tools that it did not have.
    pub fn notify_found(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Wakes everyone when the gateway stops.
    pub fn end(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}
