//! Text that is meant for an interpreter: script, query, shell, template, path.
//!
//! Takes a folded text, adds what it finds to the reading. Promise: linear patterns, run only where their
//! signs are, over a bounded stretch.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use super::sentences::{Hit, Reading};
use crate::finding::Span;

struct Shape {
    name: &'static str,
    points: f32,
    pattern: Regex,
}

/// Lines of `points name pattern`.
static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let lines = include_str!("shapes.txt").lines().filter(|line| !line.starts_with('#'));
    let shape = |line: &'static str| {
        let mut parts = line.splitn(3, ' ');
        let points = parts.next()?.parse().ok()?;
        let name = parts.next()?;
        let pattern =
            RegexBuilder::new(parts.next()?).case_insensitive(true).unicode(false).multi_line(false).build().ok()?;
        Some(Shape { name, points, pattern })
    };
    lines.filter_map(shape).collect()
});

/// Longer texts are documents, in which a line of code is an example and not a payload.
const PAYLOAD: usize = 600;

/// Adds points for code that would run where it does not belong.
pub(super) fn weigh(text: &str, reading: &mut Reading) {
    if !reading.shaped || text.len() > 8 * PAYLOAD {
        return;
    }
    let share = if text.len() <= PAYLOAD { 1.0 } else { 0.4 };
    let mut most = 0.0_f32;
    for shape in SHAPES.iter() {
        if let Some(found) = shape.pattern.find(text.as_bytes()) {
            let points = shape.points * share;
            most = if most > 0.0 { most.max(points) + 1.0 } else { points };
            let span = Span { start: found.start(), end: found.end() };
            reading.hits.push(Hit { rule: shape.name, span, points });
        }
    }
    reading.whole += most;
}

/// How many shapes there are.
pub(super) fn count() -> usize {
    SHAPES.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_compiles() {
        let lines = include_str!("shapes.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(SHAPES.len(), lines);
    }
}
