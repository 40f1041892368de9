//! The budget of a proxy: what its tasks may use within one UTC day, and what one task is expected to use.
//!
//! Takes the declared limits and what was used; gives the limit that a further task would exceed, and the share of the
//! day that is used. Promise: whole numbers only, amounts of money in millionths of a unit; nothing wraps and nothing is
//! rounded in favour of the task.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Proxy;
use crate::clock::{Millis, UtcMillis};

/// Millionths in one unit of an amount.
const MICROS: u64 = 1_000_000;
/// Digits after the point.
const PLACES: usize = 6;
/// The largest limit that may be declared: far below what a column of the database holds.
pub(super) const LARGEST: u64 = 1 << 52;
/// A price per request above this causes a warning: such a proxy does too much for one task.
pub(super) const DEAR: MoneyAmount = MoneyAmount(100_000);
/// Milliseconds in a UTC day.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// An amount of money without a currency, exact to a millionth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoneyAmount(u64);

/// Why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an amount is a decimal number without sign and currency, with at most 6 digits after the point: \"0.05\"")]
pub struct MoneyParseError;

impl MoneyAmount {
    /// An amount of this many millionths.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The amount in millionths.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The price of this many requests.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl FromStr for MoneyAmount {
    type Err = MoneyParseError;

    fn from_str(text: &str) -> Result<Self, MoneyParseError> {
        let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(rest) || rest.len() > PLACES {
            return Err(MoneyParseError);
        }
        let whole: u64 = whole.parse().map_err(|_| MoneyParseError)?;
        let rest: u64 = format!("{rest:0<PLACES$}").parse().map_err(|_| MoneyParseError)?;
        let micros = whole.checked_mul(MICROS).and_then(|micros| micros.checked_add(rest)).ok_or(MoneyParseError)?;
        if micros > LARGEST { Err(MoneyParseError) } else { Ok(Self(micros)) }
    }
}

impl fmt::Display for MoneyAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / MICROS, self.0 % MICROS);
        let rest = format!("{rest:0PLACES$}");
        let rest = rest.trim_end_matches('0');
        if rest.is_empty() { f.pad(&whole.to_string()) } else { f.pad(&format!("{whole}.{rest}")) }
    }
}

impl Serialize for MoneyAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MoneyAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Decimal;
        impl Visitor<'_> for Decimal {
            type Value = MoneyAmount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{MoneyParseError}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<MoneyAmount, E> {
                text.parse().map_err(E::custom)
            }
        }
        // The text of the file: a number would have become a float.
        deserializer.deserialize_str(Decimal)
    }
}

/// The declared budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyBudget {
    /// Most requests within a UTC day.
    pub requests_per_day: u64,
    /// Most bytes of answers within a UTC day.
    pub bytes_per_day: u64,
    /// Most time of tasks within a UTC day, in seconds.
    pub seconds_per_day: u64,
    /// What one request costs: decimal text without a currency.
    pub price_per_request: MoneyAmount,
    /// Most that all requests of a UTC day may cost, in the same unit.
    pub cost_per_day: MoneyAmount,
}

impl Default for ProxyBudget {
    fn default() -> Self {
        Self {
            requests_per_day: 2_000,
            bytes_per_day: 1 << 30,
            seconds_per_day: 36_000,
            price_per_request: MoneyAmount(0),
            cost_per_day: MoneyAmount(10 * MICROS),
        }
    }
}

/// What tasks use: one task, or all tasks of a day together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyUsage {
    /// Requests that left.
    pub requests: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// Time of tasks, in milliseconds.
    pub millis: u64,
    /// What the requests cost.
    pub cost: MoneyAmount,
}

/// The kinds of use that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetLimit {
    /// `requests_per_day`.
    Requests,
    /// `bytes_per_day`.
    Bytes,
    /// `seconds_per_day`.
    Seconds,
    /// `cost_per_day`.
    Cost,
}

impl BudgetLimit {
    /// All kinds, in the order in which they are checked.
    pub const ALL: [Self; 4] = [Self::Requests, Self::Bytes, Self::Seconds, Self::Cost];

    /// The name of the field that declares it.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_day",
            Self::Bytes => "bytes_per_day",
            Self::Seconds => "seconds_per_day",
            Self::Cost => "cost_per_day",
        }
    }
}

impl ProxyUsage {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
            millis: self.millis.saturating_add(other.millis),
            cost: MoneyAmount(self.cost.0.saturating_add(other.cost.0)),
        }
    }

    /// The remainder after subtracting the other one; zero where the other is larger.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            bytes: self.bytes.saturating_sub(other.bytes),
            millis: self.millis.saturating_sub(other.millis),
            cost: MoneyAmount(self.cost.0.saturating_sub(other.cost.0)),
        }
    }

    /// The use of one kind, in the unit in which it is counted.
    #[must_use]
    pub const fn of(self, limit: BudgetLimit) -> u64 {
        match limit {
            BudgetLimit::Requests => self.requests,
            BudgetLimit::Bytes => self.bytes,
            BudgetLimit::Seconds => self.millis,
            BudgetLimit::Cost => self.cost.0,
        }
    }

    /// The first limit that this use exceeds.
    #[must_use]
    pub fn exceeded(self, limits: Self) -> Option<BudgetLimit> {
        BudgetLimit::ALL.into_iter().find(|limit| self.of(*limit) > limits.of(*limit))
    }

    /// The largest share of a limit that this use takes, in percent, rounded down.
    #[must_use]
    pub fn percent(self, limits: Self) -> u64 {
        let share = |limit: BudgetLimit| match (self.of(limit), limits.of(limit)) {
            (0, _) => 0,
            (_, 0) => 100,
            (used, most) => u64::try_from(u128::from(used) * 100 / u128::from(most)).unwrap_or(u64::MAX),
        };
        BudgetLimit::ALL.into_iter().map(share).max().unwrap_or(0)
    }
}

/// Shares of a day, in percent, of which people are notified. Each once a day.
pub const TOLD_AT: [u64; 2] = [80, 100];

/// The share of which people must be notified, where `told` was notified before.
#[must_use]
pub fn share_to_announce(percent: u64, told: u64) -> Option<u64> {
    TOLD_AT.into_iter().rev().find(|share| percent >= *share).filter(|share| *share > told)
}

/// The UTC day of a moment, counted from 1970.
#[must_use]
pub const fn day_of(at: UtcMillis) -> i64 {
    at.as_millis().div_euclid(DAY_MS)
}

/// When a UTC day begins.
#[must_use]
pub const fn start_of(day: i64) -> UtcMillis {
    UtcMillis::from_millis(day.saturating_mul(DAY_MS))
}

/// How long it is until the next UTC day.
#[must_use]
pub const fn until_next_day(now: UtcMillis) -> Millis {
    start_of(day_of(now) + 1).since(now)
}

impl ProxyBudget {
    /// The limits of a day.
    #[must_use]
    pub const fn limits(&self) -> ProxyUsage {
        ProxyUsage {
            requests: self.requests_per_day,
            bytes: self.bytes_per_day,
            millis: self.seconds_per_day.saturating_mul(1000),
            cost: self.cost_per_day,
        }
    }
}

impl Proxy {
    /// The most that one task can use: one request, the largest answer, all of its time. `wall` is the time
    /// that the task gets.
    #[must_use]
    pub fn estimate(&self, wall: Millis) -> ProxyUsage {
        ProxyUsage {
            requests: 1,
            bytes: u64::from(self.limits().answer_kb) << 10,
            millis: wall.as_millis(),
            cost: self.budget.price_per_request,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::moltbook;
    use super::*;

    fn amount(text: &str) -> MoneyAmount {
        text.parse().unwrap()
    }

    #[test]
    fn an_amount_is_read_and_written_exactly() {
        for text in ["0", "0.1", "0.05", "12.000001", "7"] {
            assert_eq!(amount(text).to_string(), text);
        }
        assert_eq!(amount("0.10"), DEAR);
        assert_eq!(amount("1.50").to_string(), "1.5");
        let bad = [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,5",
            " 1",
            "0.0000001",
            "€1",
            "99999999999999999999",
            "NaN",
            "1.2.3",
        ];
        for bad in bad {
            assert!(bad.parse::<MoneyAmount>().is_err(), "{bad}");
        }
        // Three times 0.1 is 0.3, which is not true in binary fractions.
        assert_eq!(amount("0.1").times(3), amount("0.3"));
    }

    #[test]
    fn a_budget_is_read_from_its_file_without_floats() {
        let declare =
            |budget: &str| Proxy::from_yaml(&format!("{}\nbudget: {budget}\n", super::super::tests::MOLTBOOK));
        let quoted =
            declare("{price_per_request: \"0.07\", cost_per_day: \"2.5\", requests_per_day: 9}").unwrap().budget;
        assert_eq!((quoted.price_per_request, quoted.cost_per_day), (amount("0.07"), amount("2.5")));
        assert_eq!((quoted.requests_per_day, quoted.bytes_per_day), (9, 1 << 30));
        assert_eq!(declare("{price_per_request: 0.07}").unwrap().budget.price_per_request, amount("0.07"));
        for bad in
            ["{price_per_request: -1}", "{price_per_request: \"1 EUR\"}", "{price: \"1\"}", "{requests_per_day: -1}"]
        {
            assert!(declare(bad).is_err(), "{bad}");
        }
        assert_eq!(moltbook().budget, ProxyBudget::default());
    }

    #[test]
    fn exactly_the_limit_fits_and_one_more_does_not() {
        let limits = ProxyUsage { requests: 10, bytes: 100, millis: 1_000, cost: amount("1") };
        assert_eq!(limits.exceeded(limits), None);
        let more = |usage: ProxyUsage| limits.plus(usage).exceeded(limits);
        assert_eq!(more(ProxyUsage { requests: 1, ..ProxyUsage::default() }), Some(BudgetLimit::Requests));
        assert_eq!(more(ProxyUsage { bytes: 1, ..ProxyUsage::default() }), Some(BudgetLimit::Bytes));
        assert_eq!(more(ProxyUsage { millis: 1, ..ProxyUsage::default() }), Some(BudgetLimit::Seconds));
        let micro = ProxyUsage { cost: MoneyAmount(1), ..ProxyUsage::default() };
        assert_eq!(more(micro), Some(BudgetLimit::Cost));
        let endless = ProxyUsage { requests: u64::MAX, ..limits };
        assert_eq!(endless.plus(endless).exceeded(limits), Some(BudgetLimit::Requests), "counts do not wrap");
    }

    #[test]
    fn people_are_told_once_at_each_share() {
        assert_eq!(
            (share_to_announce(79, 0), share_to_announce(80, 0), share_to_announce(99, 80)),
            (None, Some(80), None)
        );
        assert_eq!(
            (share_to_announce(100, 80), share_to_announce(250, 0), share_to_announce(100, 100)),
            (Some(100), Some(100), None)
        );
        let limits = ProxyUsage { requests: 10, bytes: 100, millis: 1_000, cost: MoneyAmount(0) };
        let used = ProxyUsage { requests: 1, bytes: 80, millis: 0, cost: MoneyAmount(0) };
        assert_eq!((used.percent(limits), ProxyUsage::default().percent(limits)), (80, 0));
        assert_eq!(
            ProxyUsage { cost: MoneyAmount(1), ..used }.percent(limits),
            100,
            "a limit of nothing is used up at once"
        );
    }

    #[test]
    fn a_day_begins_at_midnight_utc_before_and_after_1970() {
        let at = UtcMillis::from_millis;
        assert_eq!((day_of(at(0)), day_of(at(DAY_MS - 1)), day_of(at(DAY_MS)), day_of(at(-1))), (0, 0, 1, -1));
        assert_eq!(until_next_day(at(DAY_MS - 1)), Millis::from_millis(1));
        assert_eq!(until_next_day(at(DAY_MS)), Millis::from_hours(24));
        assert_eq!(start_of(1), at(DAY_MS));
    }

    #[test]
    fn one_task_is_expected_to_use_all_it_may() {
        let mut proxy = moltbook();
        proxy.budget.price_per_request = amount("0.02");
        let wall = proxy.limits().wall();
        let expected = ProxyUsage { requests: 1, bytes: 512 << 10, millis: 300_000, cost: amount("0.02") };
        assert_eq!(proxy.estimate(wall), expected);
        assert_eq!(proxy.estimate(Millis::from_mins(1)).millis, 60_000);
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read_again(micros in 0..LARGEST) {
            let amount = MoneyAmount(micros);
            prop_assert_eq!(amount.to_string().parse::<MoneyAmount>().unwrap(), amount);
        }

        #[test]
        fn settling_takes_back_exactly_what_was_reserved(a in 0..LARGEST, b in 0..LARGEST) {
            let one = ProxyUsage { requests: a, bytes: b, millis: a, cost: MoneyAmount(b) };
            let other = ProxyUsage { requests: b, bytes: a, millis: b, cost: MoneyAmount(a) };
            prop_assert_eq!(one.plus(other).minus(other), one);
        }
    }
}
