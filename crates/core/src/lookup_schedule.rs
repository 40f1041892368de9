//! When a write with an uncertain outcome is looked up, and when a person is asked about it.
//!
//! Takes how long an outcome has been uncertain and how many lookups proved nothing; gives when the next one is due.
//! Promise: a person is asked only after the last planned lookup was made and proved nothing. A lookup that did not
//! reach the service does not count.

use crate::capability::EffectClass;
use crate::clock::{Millis, UtcMillis};

/// The times of the lookups, each counted from the moment the service has settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupSchedule(Vec<Millis>);

/// How long the gateway waits before it tries an unreachable service again, at first and at most.
const UNREACHED_FIRST: Millis = Millis::from_secs(5);
const UNREACHED_MOST: Millis = Millis::from_mins(2);

impl LookupSchedule {
    /// Most lookups of one write.
    pub const MOST: usize = 20;
    /// The last moment for a lookup.
    pub const LATEST: Millis = Millis::from_hours(7 * 24);

    /// At least one lookup, each later than the one before it.
    #[must_use]
    pub fn new(times: Vec<Millis>) -> Option<Self> {
        let grows = times.windows(2).all(|pair| matches!(pair, [one, next] if one < next));
        let fits = (1..=Self::MOST).contains(&times.len()) && times.iter().all(|time| *time <= Self::LATEST);
        (grows && fits).then_some(Self(times))
    }

    /// When each lookup is made.
    #[must_use]
    pub fn times(&self) -> &[Millis] {
        &self.0
    }

    /// How many lookups there are.
    #[must_use]
    pub fn lookups(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// How long after the outcome became uncertain the next lookup is due, after this many lookups that proved nothing.
    #[must_use]
    pub fn wait(&self, class: EffectClass, rounds: u32) -> Millis {
        let at = usize::try_from(rounds).unwrap_or(usize::MAX);
        let planned = self.0.get(at).or(self.0.last()).copied().unwrap_or(Millis::ZERO);
        class.settle() + planned
    }

    /// When the next lookup is due, if the outcome is uncertain since `since`.
    #[must_use]
    pub fn due(&self, since: UtcMillis, class: EffectClass, rounds: u32) -> UtcMillis {
        since + self.wait(class, rounds)
    }
}

impl Default for LookupSchedule {
    /// Seven lookups over half an hour.
    fn default() -> Self {
        let minutes = [2, 5, 10, 20, 30].map(Millis::from_mins);
        Self([Millis::ZERO, Millis::from_secs(30)].into_iter().chain(minutes).collect())
    }
}

/// How long to wait for a service that could not be reached this many times in a row.
#[must_use]
pub fn unreached_pause(times: u32) -> Millis {
    let doubled = 1_u64.checked_shl(times.saturating_sub(1)).unwrap_or(u64::MAX);
    Millis::from_millis(UNREACHED_FIRST.as_millis().saturating_mul(doubled)).min(UNREACHED_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_lookups_go_over_half_an_hour_after_the_service_has_settled() {
        let schedule = LookupSchedule::default();
        let at = |round| schedule.wait(EffectClass::Findable, round).as_secs();
        let expected = [120, 150, 240, 420, 720, 1320, 1920];
        assert_eq!((0..7).map(at).collect::<Vec<_>>(), expected);
        assert_eq!(schedule.lookups(), 7);
        assert_eq!(at(99), 1920);
        let since = UtcMillis::from_millis(1_000);
        assert_eq!(schedule.due(since, EffectClass::Absolute, 1), UtcMillis::from_millis(31_000));
    }

    #[test]
    fn a_schedule_grows_and_ends() {
        let secs = |list: &[u64]| LookupSchedule::new(list.iter().map(|s| Millis::from_secs(*s)).collect());
        assert!(secs(&[0]).is_some() && secs(&[5, 10]).is_some());
        for bad in [&[][..], &[5, 5], &[10, 5], &[8 * 24 * 3600]] {
            assert_eq!(secs(bad), None, "{bad:?}");
        }
        assert_eq!(LookupSchedule::new((0..21).map(Millis::from_secs).collect()), None);
    }

    #[test]
    fn an_unreachable_service_is_left_alone_ever_longer_up_to_two_minutes() {
        let pauses: Vec<u64> = (1..=7).map(|times| unreached_pause(times).as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 120, 120]);
        assert_eq!(unreached_pause(u32::MAX), UNREACHED_MOST);
    }
}
