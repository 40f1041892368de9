//! How fast writes leave for one service: a rate, and the pacer that keeps it.
//!
//! Takes the time since boot, which no person can set; gives whether one more write may leave now. Promise: within any
//! period no more leaves than the rate allows for it plus one second's worth, and what piled up during a gap
//! leaves one by one, twice as fast every half minute.

use std::fmt;

use crate::clock::Millis;

/// How long each speed of a slow start lasts before it doubles.
const DOUBLES: Millis = Millis::from_secs(30);
/// A slow start is over once it would allow this many writes in a second.
const STARTED: u32 = 64;
/// The longest period whose writes may leave at once.
const BURST: Millis = Millis::from_secs(1);
const MICROS_PER_MILLI: u64 = 1_000;

/// A number of writes within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceRate {
    writes: u32,
    per: Millis,
}

impl PaceRate {
    /// The most writes a rate can name.
    pub const MOST: u32 = 1_000;

    /// A rate of one to a thousand writes per second, minute or hour.
    #[must_use]
    pub fn new(writes: u32, per: Millis) -> Option<Self> {
        let known = [Millis::from_secs(1), Millis::from_mins(1), Millis::from_hours(1)].contains(&per);
        (known && (1..=Self::MOST).contains(&writes)).then_some(Self { writes, per })
    }

    /// The rate as people write it: `50/s`, `30/m`, `200/h`.
    #[must_use]
    pub fn from_words(text: &str) -> Option<Self> {
        let (writes, per) = text.split_once('/')?;
        let per = match per.trim() {
            "s" => Millis::from_secs(1),
            "m" => Millis::from_mins(1),
            "h" => Millis::from_hours(1),
            _ => return None,
        };
        Self::new(writes.trim().parse().ok()?, per)
    }

    /// How long this many writes take at this rate.
    #[must_use]
    pub const fn time_for(self, writes: u64) -> Millis {
        Millis::from_millis(writes.saturating_mul(self.interval_micros()) / MICROS_PER_MILLI)
    }

    /// The time between two writes.
    const fn interval_micros(self) -> u64 {
        self.per.as_millis().saturating_mul(MICROS_PER_MILLI) / self.writes as u64
    }
}

impl fmt::Display for PaceRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.writes)
    }
}

/// Keeps the pace of one service.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pacer {
    /// When the next write is due at an even pace, in microseconds since boot.
    next: u64,
}

impl Pacer {
    /// Whether one more write may leave now. Without a rate and without a slow start, every write may.
    #[must_use]
    pub fn can_leave(&self, boot: Millis, rate: Option<PaceRate>, start: SlowStart) -> bool {
        let Some(interval) = interval(boot, rate, start) else { return true };
        let ahead = (BURST.as_millis() * MICROS_PER_MILLI).saturating_sub(interval);
        self.next <= micros(boot).saturating_add(ahead)
    }

    /// Notes that one more write leaves now.
    pub fn record_departure(&mut self, boot: Millis, rate: Option<PaceRate>, start: SlowStart) {
        if let Some(interval) = interval(boot, rate, start) {
            self.next = self.next.max(micros(boot)).saturating_add(interval);
        }
    }
}

fn micros(boot: Millis) -> u64 {
    boot.as_millis().saturating_mul(MICROS_PER_MILLI)
}

/// The time between two writes, if it is limited.
fn interval(boot: Millis, rate: Option<PaceRate>, start: SlowStart) -> Option<u64> {
    let slow = start.per_second(boot).map(|most| 1_000 * MICROS_PER_MILLI / u64::from(most));
    match (rate.map(PaceRate::interval_micros), slow) {
        (Some(rate), Some(slow)) => Some(rate.max(slow)),
        (one, other) => one.or(other),
    }
}

/// After a gap, what piled up leaves slowly at first, at every service, so that a service is not overloaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlowStart {
    since: Option<Millis>,
}

impl SlowStart {
    /// There was no gap.
    #[must_use]
    pub const fn none() -> Self {
        Self { since: None }
    }

    /// A slow start that begins now.
    #[must_use]
    pub const fn at(boot: Millis) -> Self {
        Self { since: Some(boot) }
    }

    /// Writes per second while it lasts: one at first, twice as many every half minute.
    #[must_use]
    pub fn per_second(self, boot: Millis) -> Option<u32> {
        let passed = boot.as_millis().saturating_sub(self.since?.as_millis()) / DOUBLES.as_millis();
        let most = 1_u32.checked_shl(u32::try_from(passed).unwrap_or(u32::MAX))?;
        (most < STARTED).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> PaceRate {
        PaceRate::from_words(text).unwrap()
    }

    fn leaves(pacer: &mut Pacer, boot: Millis, rate: Option<PaceRate>, start: SlowStart) -> bool {
        let can = pacer.can_leave(boot, rate, start);
        if can {
            pacer.record_departure(boot, rate, start);
        }
        can
    }

    fn sent(pacer: &mut Pacer, boot: Millis, rate: Option<PaceRate>, start: SlowStart) -> usize {
        (0..2000).filter(|_| leaves(pacer, boot, rate, start)).count()
    }

    #[test]
    fn after_a_gap_writes_leave_one_by_one_and_then_faster_also_where_no_pace_is_set() {
        for (pace, full) in [(Some(rate("50/s")), 50), (None, 2000)] {
            let (mut pacer, start) = (Pacer::default(), SlowStart::at(Millis::ZERO));
            let mut at = |second| sent(&mut pacer, Millis::from_secs(second), pace, start);
            assert_eq!((at(0), at(1), at(30), at(91), at(300)), (1, 1, 2, 8, full));
        }
    }

    #[test]
    fn a_rate_is_read_as_it_is_written_and_nothing_else_is_one() {
        for text in ["50/s", "30/m", "200/h", "1/h", "1000/s"] {
            assert_eq!(rate(text).to_string(), text);
        }
        for text in ["", "50", "0/s", "1001/s", "-1/s", "5/d", "5/", "/s", "fast"] {
            assert_eq!(PaceRate::from_words(text), None, "{text}");
        }
        assert_eq!(rate("50/s").time_for(30_000), Millis::from_mins(10));
        assert_eq!(rate("2/m").time_for(3), Millis::from_secs(90));
    }

    #[test]
    fn an_hourly_rate_does_not_leave_all_at_once() {
        let mut pacer = Pacer::default();
        let at = |pacer: &mut Pacer, secs| sent(pacer, Millis::from_secs(secs), Some(rate("60/h")), SlowStart::none());
        assert_eq!((at(&mut pacer, 0), at(&mut pacer, 30), at(&mut pacer, 60), at(&mut pacer, 180)), (1, 0, 1, 1));
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_than_its_worth_and_one_second(
            steps in proptest::collection::vec((0_u64..3_000, 0_usize..200), 1..60), writes in 1_u32..=1_000,
        ) {
            let rate = PaceRate::new(writes, Millis::from_secs(1)).unwrap();
            let (mut pacer, mut now, mut left) = (Pacer::default(), 0, Vec::new());
            for (pause, tries) in steps {
                now += pause;
                let boot = Millis::from_millis(now);
                let count = (0..tries).filter(|_| leaves(&mut pacer, boot, Some(rate), SlowStart::none())).count();
                left.push((now, count as u64));
            }
            for (n, (from, _)) in left.iter().enumerate() {
                let mut sum = 0;
                for (to, count) in &left[n..] {
                    sum += count;
                    let worth = (to - from + 1_000) * u64::from(writes) / 1_000 + 1;
                    prop_assert!(sum <= worth, "{sum} writes within {} ms at {rate}", to - from);
                }
            }
        }
    }
}
