//! Watching shared values: what changed since the last look.
//!
//! Takes a prefix; gives a subscription whose changes are fetched by number, found by comparing versions with those
//! of the last look. Promise: a subscription belongs to one agent, holds a bounded number of changes and says when
//! it dropped some; it tells names and versions, never values.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use sluice_core::AgentName;
use sluice_core::refusal::{Code, Refusal};
use sluice_store::Item;

/// Changes a subscription holds.
const HELD: usize = 256;
/// Subscriptions of one agent.
const PER_AGENT: usize = 16;

/// What happened to a shared value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct KeyChange {
    /// Counts the changes of the subscription, from one.
    pub number: u64,
    /// `set` or `delete`.
    pub kind: &'static str,
    /// Of which key.
    pub key: String,
    /// The version it has since; that of the last value where there is none any more.
    pub version: u64,
}

/// What a subscription saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct KeyChanges {
    /// In order.
    pub events: Vec<KeyChange>,
    /// Whether changes after the number asked for were dropped because there were too many, or too many keys to look at.
    pub overflow: bool,
    /// The number to go on after.
    pub last: u64,
}

/// How far a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the last key there is.
    All,
    /// To the last key that was looked at: what comes after it may be there or not.
    Part,
}

/// All subscriptions.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<BTreeMap<String, Subscription>>);

#[derive(Debug)]
struct Subscription {
    agent: AgentName,
    prefix: String,
    known: BTreeMap<String, u64>,
    changes: VecDeque<KeyChange>,
    last: u64,
    dropped: u64,
}

impl Subscriptions {
    /// Begins one, with the values as they are.
    pub fn begin(&self, agent: &AgentName, id: String, prefix: String, items: &[Item]) -> Result<(), Refusal> {
        let mut table = self.table();
        if table.values().filter(|subscription| subscription.agent == *agent).count() >= PER_AGENT {
            return Err(Refusal::new(Code::FilesTooManyWatches));
        }
        let known = versions(items);
        let (agent, changes) = (agent.clone(), VecDeque::new());
        table.insert(id, Subscription { agent, prefix, known, changes, last: 0, dropped: 0 });
        Ok(())
    }

    /// The prefix of one of this agent's.
    pub fn prefix(&self, agent: &AgentName, id: &str) -> Option<String> {
        self.table().get(id).filter(|subscription| subscription.agent == *agent).map(|found| found.prefix.clone())
    }

    /// Takes in how the values are now, and gives what changed after a number.
    pub fn look(&self, id: &str, (items, reach): (&[Item], Reach), after: u64) -> Option<KeyChanges> {
        let mut table = self.table();
        let subscription = table.get_mut(id)?;
        subscription.take(versions(items), reach);
        let events = subscription.changes.iter().filter(|change| change.number > after).cloned().collect();
        let overflow = subscription.dropped > after || reach == Reach::Part;
        Some(KeyChanges { events, overflow, last: subscription.last.max(after) })
    }

    /// Ends one of this agent's.
    pub fn end(&self, agent: &AgentName, id: &str) -> bool {
        self.prefix(agent, id).is_some() && self.table().remove(id).is_some()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Subscription>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    fn take(&mut self, mut now: BTreeMap<String, u64>, reach: Reach) {
        let before = std::mem::take(&mut self.known);
        if reach == Reach::Part {
            // What was not looked at has neither come nor gone.
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
        self.changes.push_back(KeyChange { number: self.last, kind, key: key.to_owned(), version });
        if self.changes.len() > HELD {
            self.dropped = self.changes.pop_front().map_or(self.dropped, |change| change.number);
        }
    }
}

fn versions(items: &[Item]) -> BTreeMap<String, u64> {
    items.iter().map(|item| (item.key.clone(), item.version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed(keys: &[(&str, u64)]) -> Subscription {
        let agent = AgentName::new("clerk").unwrap();
        let (prefix, changes) = (String::new(), VecDeque::new());
        Subscription { agent, prefix, known: known(keys), changes, last: 0, dropped: 0 }
    }

    fn known(keys: &[(&str, u64)]) -> BTreeMap<String, u64> {
        keys.iter().map(|(key, version)| ((*key).to_owned(), *version)).collect()
    }

    fn seen(subscription: &Subscription) -> Vec<(&str, &str)> {
        subscription.changes.iter().map(|change| (change.kind, change.key.as_str())).collect()
    }

    #[test]
    fn a_key_that_was_not_looked_at_is_not_called_deleted() {
        let mut subscription = subscribed(&[("a", 1), ("b", 1), ("c", 1)]);
        // Somebody sets a key before the others, and the look no longer reaches the last one.
        subscription.take(known(&[("a", 2), ("aa", 1), ("b", 1)]), Reach::Part);
        assert_eq!(seen(&subscription), [("set", "a"), ("set", "aa")]);
        subscription.take(known(&[("a", 2), ("b", 1), ("c", 1)]), Reach::All);
        assert_eq!(seen(&subscription)[2..], [("delete", "aa")], "once it is looked at again, it is as it was");
    }
}
