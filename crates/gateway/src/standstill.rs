//! Standstill: the freezes in force as this node last saw them.
//!
//! Takes a look at the store; gives a snapshot that can be asked without waiting, and wakes whoever depends on it. Promise:
//! a freeze placed on this node is in the snapshot before its caller hears that it is in force; one of another node follows
//! with the next look. What decides about calls reads the store instead (`rooms::freeze`).

use sluice_core::{AgentName, ServiceName};
use sluice_store::{Freeze, Scope, Store};
use tokio::sync::watch;

/// The freezes in force, as last seen.
#[derive(Debug, Default)]
pub struct Standstill {
    seen: watch::Sender<Vec<Freeze>>,
}

impl Standstill {
    /// Looks again. What cannot be read stays as it was seen last.
    pub(crate) async fn look(&self, store: &Store) {
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

    /// What a caller whose read goes on is told about the freeze that stops the rest, if one does.
    #[must_use]
    pub fn note(&self, agent: &AgentName, service: &ServiceName) -> Option<String> {
        self.of(|freeze| freeze.scope.covers(agent, service))
    }

    /// The freeze that stops a service for everyone, in words.
    #[must_use]
    pub fn of_service(&self, service: &ServiceName) -> Option<String> {
        self.of(|freeze| match &freeze.scope {
            Scope::All => true,
            Scope::Agent(_) => false,
            Scope::Service(name) => name == service,
        })
    }

    /// Whether a person froze exactly this service.
    pub(crate) fn names(&self, service: &ServiceName) -> bool {
        self.of(|freeze| freeze.scope == Scope::Service(service.clone())).is_some()
    }

    /// Waits until the freezes in force are as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        let mut seen = self.seen.subscribe();
        // The sender lives as long as we do.
        while !wanted(self) && seen.changed().await.is_ok() {}
    }

    /// As if a look had found these.
    #[cfg(test)]
    pub(crate) fn set_seen(&self, freezes: Vec<Freeze>) {
        self.seen.send_replace(freezes);
    }

    fn of(&self, covers: impl Fn(&Freeze) -> bool) -> Option<String> {
        let seen = self.seen.borrow();
        let freeze = seen.iter().find(|freeze| freeze.brake.is_none() && covers(freeze))?;
        let because = if freeze.reason.is_empty() { String::new() } else { format!(": {}", freeze.reason) };
        Some(format!("frozen ({}) since {}{because}", freeze.scope, freeze.at))
    }
}
