//! How well each channel hears, and how well it sends: for the status page and for alerts, not for decisions.
//!
//! Takes what the listener or sender of a channel met; gives its condition and since when. Promise: a channel that does
//! not work says so with a reason without content, and people are told once, when it has lasted.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sluice_core::{Span, Timestamp};

/// How long a channel fails before people are told over another one.
pub const TOLD_AFTER: Span = Span::from_secs(30);

/// How a channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Why it is not heard; nothing while it is.
    pub reason: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Whether people were told about it.
    pub told: bool,
}

/// How all channels are.
#[derive(Debug, Default)]
pub struct Hearing(Mutex<BTreeMap<&'static str, Condition>>);

impl Hearing {
    /// People can be heard over this channel.
    pub fn well(&self, channel: &'static str, now: Timestamp) {
        self.set(channel, None, now);
    }

    /// They cannot. Says whether people have to be told now: once, when it has lasted.
    pub fn failing(&self, channel: &'static str, reason: String, now: Timestamp) -> bool {
        self.set(channel, Some(reason), now);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lasting = all.get_mut(channel).filter(|known| !known.told && now.since(known.since) >= TOLD_AFTER);
        lasting.map(|known| known.told = true).is_some()
    }

    /// Whether it has failed for so long that people are asked over another channel.
    #[must_use]
    pub fn is_down(&self, channel: &str, now: Timestamp) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(channel).is_some_and(|known| known.reason.is_some() && now.since(known.since) >= TOLD_AFTER)
    }

    fn set(&self, channel: &'static str, reason: Option<String>, now: Timestamp) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(channel).filter(|known| known.reason.is_some() == reason.is_some());
        let (since, told) = before.map_or((now, false), |known| (known.since, known.told));
        all.insert(channel, Condition { reason, since, told });
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
        assert_eq!(hearing.all(), [("email", Condition { reason: Some("refused".into()), since: at(1), told: false })]);
        hearing.well("email", at(3));
        hearing.well("email", at(4));
        assert_eq!(hearing.all(), [("email", Condition { reason: None, since: at(3), told: false })]);
        let late = i64::try_from(TOLD_AFTER.as_millis()).unwrap();
        let told = [5, 5 + late, 6 + late].map(|now| hearing.failing("email", "x".into(), at(now)));
        assert_eq!(told, [false, true, false], "once, when it has lasted");
    }
}
