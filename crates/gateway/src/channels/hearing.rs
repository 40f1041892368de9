//! How well each channel hears: for the status page, not for decisions.
//!
//! Takes what the listener of a channel met; gives its condition and since when. Promise: a channel that is not heard
//! says so with a reason without content.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sluice_core::Timestamp;

/// How a channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Why it is not heard; nothing while it is.
    pub reason: Option<String>,
    /// Since when.
    pub since: Timestamp,
}

/// How all channels are.
#[derive(Debug, Default)]
pub struct Hearing(Mutex<BTreeMap<&'static str, Condition>>);

impl Hearing {
    /// People can be heard over this channel.
    pub fn well(&self, channel: &'static str, now: Timestamp) {
        self.set(channel, None, now);
    }

    /// They cannot.
    pub fn failing(&self, channel: &'static str, reason: String, now: Timestamp) {
        self.set(channel, Some(reason), now);
    }

    fn set(&self, channel: &'static str, reason: Option<String>, now: Timestamp) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(channel).filter(|known| known.reason.is_some() == reason.is_some());
        let since = before.map_or(now, |known| known.since);
        all.insert(channel, Condition { reason, since });
    }

    /// Every channel that has tried.
    #[must_use]
    pub fn all(&self) -> Vec<(&'static str, Condition)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, condition)| (*name, condition.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_beginning_until_it_changes() {
        let (hearing, at) = (Hearing::default(), Timestamp::from_millis);
        hearing.failing("email", "not reached".into(), at(1));
        hearing.failing("email", "refused".into(), at(2));
        assert_eq!(hearing.all(), [("email", Condition { reason: Some("refused".into()), since: at(1) })]);
        hearing.well("email", at(3));
        hearing.well("email", at(4));
        assert_eq!(hearing.all(), [("email", Condition { reason: None, since: at(3) })]);
    }
}
