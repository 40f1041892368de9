//! Durations and points in time as people type them: `30s`, `+10m`, `2h`, `7d`, or a date.

use sluice_core::{Millis, UtcMillis};

/// Parses a duration, with an optional plus sign.
pub(crate) fn span(text: &str) -> Result<Millis, String> {
    let plain = text.strip_prefix('+').unwrap_or(text);
    Millis::from_words(plain).ok_or_else(|| "expected a duration such as `30s`, `10m`, `2h` or `7d`".into())
}

/// A point in time: a duration before now, or a date and time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MomentArg {
    Ago(Millis),
    At(UtcMillis),
}

impl MomentArg {
    pub(crate) fn at(self, now: UtcMillis) -> UtcMillis {
        match self {
            Self::Ago(span) => now - span,
            Self::At(at) => at,
        }
    }
}

/// Parses a point in time.
pub(crate) fn since(text: &str) -> Result<MomentArg, String> {
    let date = || moment(text).map(MomentArg::At);
    span(text)
        .ok()
        .map(MomentArg::Ago)
        .or_else(date)
        .ok_or_else(|| "expected a duration such as `2h` or `7d`, or a time such as `2026-11-16T09:00:00Z`".into())
}

/// Parses a time of the API.
pub(crate) fn moment(text: &str) -> Option<UtcMillis> {
    text.parse::<jiff::Timestamp>().ok().map(|at| UtcMillis::from_millis(at.as_millisecond()))
}

/// How long ago a time is, or in how long it comes, in words; a date if it is far away.
pub(crate) fn age(at: UtcMillis, now: UtcMillis) -> String {
    let (span, past) = if at <= now { (now.since(at), true) } else { (at.since(now), false) };
    let seconds = span.as_millis() / 1000;
    let words = match seconds {
        0 => return "now".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        172_800..1_209_600 => format!("{} d", seconds / 86_400),
        _ => return at.to_string().chars().take(10).collect(),
    };
    if past { format!("{words} ago") } else { format!("in {words}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        assert_eq!(span("90d"), Ok(Millis::from_hours(90 * 24)));
        assert_eq!(span("+10m"), Ok(Millis::from_mins(10)));
        for bad in ["", "+", "10", "m", "-1s", "1.5h", "1w", "++1s", "99999999999999999999d"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_age_is_one_number_and_its_unit() {
        let now = UtcMillis::from_millis(1_763_589_600_000);
        for (span, words) in [
            (Millis::from_millis(900), "now"),
            (Millis::from_secs(59), "59 s ago"),
            (Millis::from_mins(3), "3 min ago"),
            (Millis::from_hours(47), "47 h ago"),
            (Millis::from_hours(72), "3 d ago"),
            (Millis::from_hours(24 * 30), "2025-10-20"),
        ] {
            assert_eq!(age(now - span, now), words);
        }
        assert_eq!(age(now + Millis::from_secs(27), now), "in 27 s");
        assert_eq!(age(now + Millis::from_mins(61), now), "in 1 h");
    }

    #[test]
    fn a_moment_is_relative_or_a_date() {
        let now = UtcMillis::from_millis(10_000_000);
        assert_eq!(since("2h").unwrap().at(now), now - Millis::from_hours(2));
        assert_eq!(since("1970-01-01T00:00:05Z").unwrap().at(now), UtcMillis::from_millis(5000));
        assert!(since("yesterday").is_err());
    }
}
