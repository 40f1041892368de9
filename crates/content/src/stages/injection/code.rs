//! Text for an interpreter: script, query, shell, template, path.
//!
//! Takes a folded text, adds what it finds to the reading. Promise: linear patterns, run only where their signs occur,
//! over a bounded stretch.

use std::sync::{LazyLock, OnceLock};

use regex::bytes::{Regex, RegexBuilder};

use super::patterns::TextPatterns;
use super::sentences::{RuleMatch, TextReading};
use crate::finding::TextRange;

struct CodePattern {
    name: &'static str,
    points: f32,
    pattern: &'static str,
    /// Tells whether it occurs at all, which is enough for most texts.
    there: OnceLock<Option<TextPatterns>>,
    /// Finds where it occurs.
    place: OnceLock<Option<Regex>>,
}

/// Lines of `points name pattern`.
static SHAPES: LazyLock<Vec<CodePattern>> = LazyLock::new(|| {
    let shape = |line: &'static str| {
        let mut parts = line.splitn(3, ' ');
        let points = parts.next()?.parse().ok()?;
        let (name, pattern) = (parts.next()?, parts.next()?);
        Some(CodePattern { name, points, pattern, there: OnceLock::new(), place: OnceLock::new() })
    };
    lines().filter_map(shape).collect()
});

fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("shapes.txt").lines().filter(|line| !line.starts_with('#'))
}

impl CodePattern {
    fn there(&self) -> Option<&TextPatterns> {
        self.there.get_or_init(|| TextPatterns::new(&[lowered(self.pattern)])).as_ref()
    }

    fn place(&self) -> Option<&Regex> {
        let build = || RegexBuilder::new(self.pattern).case_insensitive(true).unicode(false).build().ok();
        self.place.get_or_init(build).as_ref()
    }

    /// The first match in a text, which is also given in lower case.
    fn find(&self, text: &str, lower: &[u8]) -> Option<TextRange> {
        self.there()?.matching_patterns(lower).next()?;
        let found = self.place()?.find(text.as_bytes())?;
        Some(TextRange { start: found.start(), end: found.end() })
    }
}

/// A pattern in lower case, except for classes with capital names.
fn lowered(pattern: &str) -> String {
    let mut escaped = false;
    let lower = |c: char| {
        let kept = escaped;
        escaped = c == '\\' && !kept;
        if kept { c } else { c.to_ascii_lowercase() }
    };
    pattern.chars().map(lower).collect()
}

/// Builds every shape now.
pub(super) fn build() {
    for shape in SHAPES.iter() {
        let _held = shape.there().map(|there| there.matching_patterns(b"tea").count());
        let _found = shape.place().is_some();
    }
}

/// Longer texts are documents, in which a line of code is an example and not a payload.
const PAYLOAD: usize = 600;

/// Adds points for executable code in the wrong place.
pub(super) fn weigh(text: &str, reading: &mut TextReading) {
    if !reading.shaped || text.len() > 8 * PAYLOAD {
        return;
    }
    let share = if text.len() <= PAYLOAD { 1.0 } else { 0.4 };
    let mut most = 0.0_f32;
    let lower = text.to_ascii_lowercase();
    for shape in SHAPES.iter() {
        if let Some(span) = shape.find(text, lower.as_bytes()) {
            let points = shape.points * share;
            most = if most > 0.0 { most.max(points) + 1.0 } else { points };
            reading.hits.push(RuleMatch { rule: shape.name, span, points });
        }
    }
    reading.whole += most;
}

/// The number of shapes.
pub(super) fn count() -> usize {
    SHAPES.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_can_be_read_for_whether_and_for_where() {
        assert_eq!(SHAPES.len(), lines().count());
        for shape in SHAPES.iter() {
            assert!(shape.there().is_some() && shape.place().is_some(), "{}", shape.name);
        }
    }

    #[test]
    fn capitals_hide_no_shape() {
        assert_eq!(lowered(r"[\S\\S]\WEPDw"), r"[\S\\s]\Wepdw");
        for text in ["<SCRIPT>", "q=/wEPDwUK", "<script>"] {
            let found = SHAPES.iter().find_map(|shape| shape.find(text, text.to_ascii_lowercase().as_bytes()));
            assert!(found.is_some(), "{text}");
        }
    }
}
