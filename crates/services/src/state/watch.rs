//! Subscriptions to shared values: the changes since the last check.
//!
//! Takes a prefix; gives a subscription whose changes are fetched by number, found by comparing versions with those of
//! the last check. Promise: a subscription belongs to one agent, holds a limited number of changes and says when it
//! dropped some; it reports names and versions, never values.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use sluice_core::AgentName;
use sluice_core::refusal::{Code, Refusal};
use sluice_store::StateItem;

/// The most changes that a subscription holds.
const HELD: usize = 256;
/// The most subscriptions of one agent.
const PER_AGENT: usize = 16;

/// A change of a shared value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct StateKeyChange {
    /// The number of the change in its subscription, from one.
    pub number: u64,
    /// `set` or `delete`.
    pub kind: &'static str,
    /// The key that changed.
    pub key: String,
    /// The version since then; for a deleted value, the version of its last value.
    pub version: u64,
}

/// The changes of a subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct StateKeyChanges {
    /// The changes in order.
    pub events: Vec<StateKeyChange>,
    /// Whether changes after the requested number were dropped because there were too many, or too many keys to check.
    pub overflow: bool,
    /// The number to continue after.
    pub last: u64,
}

/// How far a check reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyListCoverage {
    /// To the last existing key.
    All,
    /// To the last key that was checked: later keys may exist or not.
    Part,
}

/// All subscriptions.
#[derive(Debug, Default)]
pub(super) struct StateSubscriptionTable(Mutex<BTreeMap<String, StateSubscription>>);

#[derive(Debug)]
struct StateSubscription {
    agent: AgentName,
    prefix: String,
    known: BTreeMap<String, u64>,
    changes: VecDeque<StateKeyChange>,
    last: u64,
    dropped: u64,
}

impl StateSubscriptionTable {
    /// Starts a subscription, with the current values.
    pub fn begin(&self, agent: &AgentName, id: String, prefix: String, items: &[StateItem]) -> Result<(), Refusal> {
        let mut table = self.table();
        if table.values().filter(|subscription| subscription.agent == *agent).count() >= PER_AGENT {
            return Err(Refusal::new(Code::FilesTooManyWatches));
        }
        let known = versions(items);
        let (agent, changes) = (agent.clone(), VecDeque::new());
        table.insert(id, StateSubscription { agent, prefix, known, changes, last: 0, dropped: 0 });
        Ok(())
    }

    /// The prefix of this agent's subscription.
    pub fn prefix(&self, agent: &AgentName, id: &str) -> Option<String> {
        self.table().get(id).filter(|subscription| subscription.agent == *agent).map(|found| found.prefix.clone())
    }

    /// Takes the current values, and returns what changed after a number.
    pub fn look(
        &self,
        id: &str,
        (items, reach): (&[StateItem], KeyListCoverage),
        after: u64,
    ) -> Option<StateKeyChanges> {
        let mut table = self.table();
        let subscription = table.get_mut(id)?;
        subscription.take(versions(items), reach);
        let events = subscription.changes.iter().filter(|change| change.number > after).cloned().collect();
        let overflow = subscription.dropped > after || reach == KeyListCoverage::Part;
        Some(StateKeyChanges { events, overflow, last: subscription.last.max(after) })
    }

    /// Ends a subscription of this agent.
    pub fn end(&self, agent: &AgentName, id: &str) -> bool {
        self.prefix(agent, id).is_some() && self.table().remove(id).is_some()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, StateSubscription>> {
        self.0.lock()
    }
}

impl StateSubscription {
    fn take(&mut self, mut now: BTreeMap<String, u64>, reach: KeyListCoverage) {
        let before = std::mem::take(&mut self.known);
        if reach == KeyListCoverage::Part {
            // A key that was not checked has neither appeared nor disappeared.
            let last = now.last_key_value().map(|(key, _)| key.clone());
            let unseen = before.iter().filter(|(key, _)| Some(*key) > last.as_ref());
            now.extend(unseen.map(|(key, version)| (key.clone(), *version)));
        }
        for (key, version) in &now {
            if before.get(key) != Some(version) {
                self.push("set", key, *version);
            }
        }
        for (key, version) in before.iter().filter(|(key, _)| !now.contains_key(*key)) {
            self.push("delete", key, *version);
        }
        self.known = now;
    }

    fn push(&mut self, kind: &'static str, key: &str, version: u64) {
        self.last += 1;
        self.changes.push_back(StateKeyChange { number: self.last, kind, key: key.to_owned(), version });
        if self.changes.len() > HELD {
            self.dropped = self.changes.pop_front().map_or(self.dropped, |change| change.number);
        }
    }
}

fn versions(items: &[StateItem]) -> BTreeMap<String, u64> {
    items.iter().map(|item| (item.key.clone(), item.version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed(keys: &[(&str, u64)]) -> StateSubscription {
        let agent = AgentName::new("clerk").unwrap();
        let (prefix, changes) = (String::new(), VecDeque::new());
        StateSubscription { agent, prefix, known: known(keys), changes, last: 0, dropped: 0 }
    }

    fn known(keys: &[(&str, u64)]) -> BTreeMap<String, u64> {
        keys.iter().map(|(key, version)| ((*key).to_owned(), *version)).collect()
    }

    fn seen(subscription: &StateSubscription) -> Vec<(&str, &str)> {
        subscription.changes.iter().map(|change| (change.kind, change.key.as_str())).collect()
    }

    #[test]
    fn a_key_that_was_not_looked_at_is_not_called_deleted() {
        let mut subscription = subscribed(&[("a", 1), ("b", 1), ("c", 1)]);
        // A new key comes before the others, and the check no longer reaches the last one.
        subscription.take(known(&[("a", 2), ("aa", 1), ("b", 1)]), KeyListCoverage::Part);
        assert_eq!(seen(&subscription), [("set", "a"), ("set", "aa")]);
        subscription.take(known(&[("a", 2), ("b", 1), ("c", 1)]), KeyListCoverage::All);
        assert_eq!(seen(&subscription)[2..], [("delete", "aa")], "once it is looked at again, it is as it was");
    }
}
