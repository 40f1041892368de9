//! Schedules in the five fields of cron, in UTC.
//!
//! Takes minute, hour, day of the month, month and day of the week; gives the next time after a given one. Promise: a
//! field that is not understood is refused, and so is a schedule that never occurs.

use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::clock::UtcMillis;

/// How far ahead a time is looked for, in days: a leap day comes within eight years.
const AHEAD: i32 = 8 * 366;

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the day of the month is open, so that the day of the week alone decides; and the other way round.
    any_day: bool,
    any_weekday: bool,
}

/// Why a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Not five fields.
    #[error("a schedule has five fields: minute, hour, day of the month, month, day of the week")]
    Fields,
    /// A field that cannot be read.
    #[error("`{0}` is no {1}: write `*`, `5`, `1-5`, `*/15` or `1,15`")]
    Field(String, &'static str),
    /// A day that no month has.
    #[error("no day of any year fits this schedule")]
    Never,
}

impl Cron {
    /// Reads `0 7 * * 1-5`.
    ///
    /// # Errors
    /// When it is not understood, or never occurs.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else { return Err(CronError::Fields) };
        let mut weekdays = field(weekday, (0, 7), "day of the week")?;
        // Sunday is 0 and 7.
        if weekdays >> 7 & 1 == 1 {
            weekdays = weekdays & 0x7f | 1;
        }
        let cron = Self {
            minutes: field(minute, (0, 59), "minute")?,
            hours: field(hour, (0, 23), "hour")?,
            days: field(day, (1, 31), "day of the month")?,
            months: field(month, (1, 12), "month")?,
            weekdays,
            any_day: day.starts_with('*'),
            any_weekday: weekday.starts_with('*'),
        };
        cron.next_after(UtcMillis::from_millis(0)).map(|_| cron).ok_or(CronError::Never)
    }

    /// The first time after this one.
    #[must_use]
    pub fn next_after(&self, after: UtcMillis) -> Option<UtcMillis> {
        let next_minute = after.as_millis().div_euclid(60_000).checked_add(1)?.checked_mul(60_000)?;
        let from = jiff::Timestamp::from_millisecond(next_minute).ok()?.to_zoned(TimeZone::UTC).datetime();
        let mut date = from.date();
        let mut least = (from.hour(), from.minute());
        for _ in 0..AHEAD {
            if self.has_day(date)
                && let Some((hour, minute)) = self.time_from(least)
            {
                let found = date.at(hour, minute, 0, 0).to_zoned(TimeZone::UTC).ok()?;
                return Some(UtcMillis::from_millis(found.timestamp().as_millisecond()));
            }
            (date, least) = (date.tomorrow().ok()?, (0, 0));
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        // As in every cron: where both days are named, either is enough.
        let fits = match (self.any_day, self.any_weekday) {
            (false, false) => day || weekday,
            _ => day && weekday,
        };
        fits && has(self.months, date.month())
    }

    /// The first time of a day that is not before this one.
    fn time_from(&self, (hour, minute): (i8, i8)) -> Option<(i8, i8)> {
        let minutes = |from: i8| (from..60).find(|minute| has(self.minutes, *minute));
        (hour..24).filter(|now| has(self.hours, *now)).find_map(|now| {
            let from = if now == hour { minute } else { 0 };
            minutes(from).map(|minute| (now, minute))
        })
    }
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set.checked_shr(number).unwrap_or(0) & 1 == 1)
}

/// One field as a set of numbers.
fn field(text: &str, (least, most): (u32, u32), what: &'static str) -> Result<u64, CronError> {
    let bad = || CronError::Field(text.chars().filter(|c| !c.is_control()).take(40).collect(), what);
    let number = |text: &str| {
        let digits = !text.is_empty() && text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        let number: u32 = text.parse().ok().filter(|_| digits).ok_or_else(bad)?;
        if (least..=most).contains(&number) { Ok(number) } else { Err(bad()) }
    };
    let mut set = 0_u64;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                (range, step.parse::<u32>().ok().filter(|step| (1..=most).contains(step)).ok_or_else(bad)?)
            }
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            // A step after a single number goes to the end.
            None if part.contains('/') => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if from > to {
            return Err(bad());
        }
        let mut at = from;
        while at <= to {
            set |= 1_u64.checked_shl(at).unwrap_or(0);
            at += step;
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> UtcMillis {
        UtcMillis::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn the_next_time_is_the_first_one_after() {
        for (cron, after, next) in [
            ("0 7 * * 1-5", "2026-11-17T06:59:59Z", "2026-11-17T07:00:00Z"),
            ("0 7 * * 1-5", "2026-11-17T07:00:00Z", "2026-11-18T07:00:00Z"),
            ("0 7 * * 1-5", "2026-11-20T07:00:00Z", "2026-11-23T07:00:00Z"),
            ("*/15 * * * *", "2026-11-17T07:01:00Z", "2026-11-17T07:15:00Z"),
            ("59 23 31 12 *", "2026-11-17T07:01:00Z", "2026-12-31T23:59:00Z"),
            ("0 0 29 2 *", "2026-11-17T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 13 * 5", "2026-11-17T00:00:00Z", "2026-11-20T00:00:00Z"),
            ("5/20 8,20 * * 7", "2026-11-17T00:00:00Z", "2026-11-22T08:05:00Z"),
        ] {
            assert_eq!(Cron::parse(cron).unwrap().next_after(at(after)), Some(at(next)), "{cron} after {after}");
        }
    }

    #[test]
    fn what_is_not_understood_or_never_comes_is_refused() {
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "a * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "+5 * * * *",
            "1,,2 * * * *",
            "@daily",
            "* * * * * *",
            "*/99 * * * *",
        ] {
            assert!(Cron::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Cron::parse("0 0 31 2 *"), Err(CronError::Never));
    }
}
