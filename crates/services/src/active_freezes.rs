//! Standstill: the freezes in force as this node last read them.
//!
//! Reads the store; gives a snapshot that can be checked without waiting, and wakes the tasks that depend on it.
//! Promise: a freeze placed on this node is in the snapshot before its caller is told that it is in force; a freeze of
//! another node follows with the next read. Decisions about calls read the store instead (`rooms::freeze`).

use sluice_core::{AgentName, ServiceName};
use sluice_store::{Freeze, FreezeTarget, Store};
use tokio::sync::watch;

/// The freezes in force, as last read.
#[derive(Debug, Default)]
pub struct ActiveFreezes {
    seen: watch::Sender<Vec<Freeze>>,
}

impl ActiveFreezes {
    /// Reads the freezes again. After an error the last snapshot stays.
    pub async fn look(&self, store: &Store) {
        match store.stop_lane().freezes().await {
            Ok(now) => {
                self.seen.send_if_modified(|seen| {
                    let other = *seen != now;
                    if other {
                        *seen = now;
                    }
                    other
                });
            }
            Err(error) => tracing::warn!(code = error.code(), "the freezes in force could not be read"),
        }
    }

    /// A note about the freeze that stops everything except this caller's read, if there is one.
    #[must_use]
    pub fn note(&self, agent: &AgentName, service: &ServiceName) -> Option<String> {
        self.of(|freeze| freeze.scope.covers(agent, service))
    }

    /// The freeze that stops a service for everyone, as text.
    #[must_use]
    pub fn of_service(&self, service: &ServiceName) -> Option<String> {
        self.of(|freeze| match &freeze.scope {
            FreezeTarget::All => true,
            FreezeTarget::Agent(_) => false,
            FreezeTarget::Service(name) => name == service,
        })
    }

    /// Whether a person froze exactly this service.
    pub fn is_service_frozen(&self, service: &ServiceName) -> bool {
        self.of(|freeze| freeze.scope == FreezeTarget::Service(service.clone())).is_some()
    }

    /// Waits until the freezes in force are as wanted.
    pub async fn wait_until(&self, wanted: impl Fn(&Self) -> bool) {
        let mut seen = self.seen.subscribe();
        // The sender lives as long as `self`.
        while !wanted(self) && seen.changed().await.is_ok() {}
    }

    /// Sets the snapshot as if these freezes had been read.
    #[cfg(test)]
    pub fn set_seen(&self, freezes: Vec<Freeze>) {
        self.seen.send_replace(freezes);
    }

    fn of(&self, covers: impl Fn(&Freeze) -> bool) -> Option<String> {
        let seen = self.seen.borrow();
        let freeze = seen.iter().find(|freeze| freeze.brake.is_none() && covers(freeze))?;
        let because = if freeze.reason.is_empty() { String::new() } else { format!(": {}", freeze.reason) };
        Some(format!("frozen ({}) since {}{because}", freeze.scope, freeze.at))
    }
}
