//! Durations and moments as people type them: `30s`, `+10m`, `2h`, `7d`, or a date.

use sluice_core::{Span, Timestamp};

/// A duration. Takes a plus before it: "ten minutes more".
pub(crate) fn span(text: &str) -> Result<Span, String> {
    let plain = text.strip_prefix('+').unwrap_or(text);
    Span::from_words(plain).ok_or_else(|| "expected a duration such as `30s`, `10m`, `2h` or `7d`".into())
}

/// A moment: how long ago, or a date and time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Since {
    Ago(Span),
    At(Timestamp),
}

impl Since {
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(span) => now - span,
            Self::At(at) => at,
        }
    }
}

/// Reads a moment.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    let date = || moment(text).map(Since::At);
    span(text)
        .ok()
        .map(Since::Ago)
        .or_else(date)
        .ok_or_else(|| "expected how long ago, such as `2h` or `7d`, or a moment such as `2026-11-16T09:00:00Z`".into())
}

/// A moment of the API.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp::from_millis(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        assert_eq!(span("90d"), Ok(Span::from_hours(90 * 24)));
        assert_eq!(span("+10m"), Ok(Span::from_mins(10)));
        for bad in ["", "+", "10", "m", "-1s", "1.5h", "1w", "++1s", "99999999999999999999d"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_moment_is_relative_or_a_date() {
        let now = Timestamp::from_millis(10_000_000);
        assert_eq!(since("2h").unwrap().at(now), now - Span::from_hours(2));
        assert_eq!(since("1970-01-01T00:00:05Z").unwrap().at(now), Timestamp::from_millis(5000));
        assert!(since("yesterday").is_err());
    }
}
