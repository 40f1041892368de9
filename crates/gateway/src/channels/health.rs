//! The condition of each channel, for receiving and for sending: for the status page and for alerts, not for decisions.
//!
//! Takes the results of the listener or sender of a channel; gives its condition and since when. Promise: a channel
//! that does not work says so with a reason without content, and people are notified once, when it has lasted.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sluice_core::{Millis, UtcMillis};

/// How long a channel fails before people are notified over another one.
pub const TOLD_AFTER: Millis = Millis::from_secs(30);

/// The condition of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelHealth {
    /// Why the channel does not work; `None` while it works.
    pub reason: Option<String>,
    /// When this condition began.
    pub since: UtcMillis,
    /// Whether people were notified about it.
    pub told: bool,
}

/// The conditions of all channels.
#[derive(Debug, Default)]
pub struct ChannelHealthRegistry(Mutex<BTreeMap<&'static str, ChannelHealth>>);

impl ChannelHealthRegistry {
    /// Records that the channel works.
    pub fn mark_healthy(&self, channel: &'static str, now: UtcMillis) {
        self.set(channel, None, now);
    }

    /// Records that the channel fails. Returns whether people must be notified now: once, when it has lasted.
    pub fn mark_failing(&self, channel: &'static str, reason: String, now: UtcMillis) -> bool {
        self.set(channel, Some(reason), now);
        let mut all = self.0.lock();
        let lasting = all.get_mut(channel).filter(|known| !known.told && now.since(known.since) >= TOLD_AFTER);
        lasting.map(|known| known.told = true).is_some()
    }

    /// Whether it has failed for so long that people are asked over another channel.
    #[must_use]
    pub fn is_down(&self, channel: &str, now: UtcMillis) -> bool {
        let all = self.0.lock();
        all.get(channel).is_some_and(|known| known.reason.is_some() && now.since(known.since) >= TOLD_AFTER)
    }

    fn set(&self, channel: &'static str, reason: Option<String>, now: UtcMillis) {
        let mut all = self.0.lock();
        let before = all.get(channel).filter(|known| known.reason.is_some() == reason.is_some());
        let (since, told) = before.map_or((now, false), |known| (known.since, known.told));
        all.insert(channel, ChannelHealth { reason, since, told });
    }

    /// The condition of every channel that was used.
    #[must_use]
    pub fn all(&self) -> Vec<(&'static str, ChannelHealth)> {
        let all = self.0.lock();
        all.iter().map(|(name, condition)| (*name, condition.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_beginning_until_it_changes() {
        let (hearing, at) = (ChannelHealthRegistry::default(), UtcMillis::from_millis);
        hearing.mark_failing("email", "not reached".into(), at(1));
        hearing.mark_failing("email", "refused".into(), at(2));
        assert_eq!(
            hearing.all(),
            [("email", ChannelHealth { reason: Some("refused".into()), since: at(1), told: false })]
        );
        hearing.mark_healthy("email", at(3));
        hearing.mark_healthy("email", at(4));
        assert_eq!(hearing.all(), [("email", ChannelHealth { reason: None, since: at(3), told: false })]);
        let late = i64::try_from(TOLD_AFTER.as_millis()).unwrap();
        let told = [5, 5 + late, 6 + late].map(|now| hearing.mark_failing("email", "x".into(), at(now)));
        assert_eq!(told, [false, true, false], "once, when it has lasted");
    }
}
