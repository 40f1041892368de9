//! Time as data: instants and spans in milliseconds, and the clock that is passed in.
//!
//! Nothing in this crate asks what time it is. Wall time is UTC; zones exist only in rules people write.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A moment: UTC milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct UtcMillis(i64);

/// A span of milliseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Millis(u64);

/// The time as two clocks see it.
pub trait Clock: Send + Sync {
    /// Wall time. May jump in either direction.
    fn now(&self) -> UtcMillis;
    /// Time since boot, suspend included. Never runs backwards.
    fn since_boot(&self) -> Millis;
    /// Why the wall clock is not followed, if it is not.
    fn ignored_jump(&self) -> Option<ClockJump> {
        None
    }
    /// Follows the wall clock again, from its present time: a person has checked it. Gives that time.
    fn trust_again(&self) -> UtcMillis {
        self.now()
    }
}

/// A jump of the wall clock that is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockJump {
    /// How far the wall clock is from the time that passed.
    pub by: Millis,
    /// Whether it is ahead.
    pub forward: bool,
    /// What the wall clock says.
    pub wall: UtcMillis,
}

impl UtcMillis {
    /// From milliseconds since 1970.
    #[must_use]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }
    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
    /// Whole seconds since 1970, rounded down (the approval API speaks seconds).
    #[must_use]
    pub const fn as_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        let gap = self.0.saturating_sub(earlier.0);
        Millis(if gap > 0 { gap as u64 } else { 0 })
    }
}

impl Millis {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// As people write it: a whole number and `ms`, `s`, `m`, `h` or `d`.
    #[must_use]
    pub fn from_words(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let (digits, unit) = text.split_at_checked(end)?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(millis).map(Self)
    }

    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }
    /// From seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1000))
    }
    /// From minutes.
    #[must_use]
    pub const fn from_mins(m: u64) -> Self {
        Self::from_secs(m.saturating_mul(60))
    }
    /// From hours.
    #[must_use]
    pub const fn from_hours(h: u64) -> Self {
        Self::from_mins(h.saturating_mul(60))
    }
    /// In milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
    /// In whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }
    /// For standard-library timers.
    #[must_use]
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl Add<Millis> for UtcMillis {
    type Output = Self;
    fn add(self, span: Millis) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }
}

impl Sub<Millis> for UtcMillis {
    type Output = Self;
    fn sub(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }
}

impl Add for Millis {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for UtcMillis {
    /// RFC 3339 in UTC with milliseconds; raw milliseconds when outside the calendar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for UtcMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ms) = (self.0 / 1000, self.0 % 1000);
        match (s / 3600, s / 60 % 60, s % 60) {
            (0, 0, 0) => write!(f, "{ms} ms"),
            (0, 0, s) if ms == 0 => write!(f, "{s} s"),
            (0, 0, s) => write!(f, "{s}.{ms:03} s"),
            (0, m, 0) => write!(f, "{m} min"),
            (0, m, s) => write!(f, "{m} min {s} s"),
            (h, 0, _) => write!(f, "{h} h"),
            (h, m, _) => write!(f, "{h} h {m} min"),
        }
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_prints_for_people() {
        assert_eq!(UtcMillis::from_millis(1_730_000_000_000).to_string(), "2024-10-27T03:33:20.000Z");
        assert_eq!(Millis::from_secs(90).to_string(), "1 min 30 s");
        assert_eq!(Millis::from_hours(72).to_string(), "72 h");
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let end = UtcMillis::from_millis(i64::MAX);
        assert_eq!(end + Millis::from_millis(u64::MAX), end);
        assert_eq!(UtcMillis::from_millis(5).since(end), Millis::ZERO);
    }
}
