//! The weight of each rule, and the sum over a text.
//!
//! Takes the matches of the sentences in their order, gives points. Promise: integers only, so that every machine gives the same
//! answer; a further match of a rule never lowers the sum, unless the rule says that a text is about attacks (`calm.…`).

use std::sync::LazyLock;

use super::rules;

/// The number of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RuleId(u16);

/// One line of `rules.txt`, with its learnt weight.
#[derive(Debug)]
struct RuleEntry {
    name: &'static str,
    /// Points in thousandths: before learning, and learnt.
    prior: i64,
    /// Whether learning may only raise it.
    fixed: bool,
    weight: i64,
}

/// Points of a rule as thousandths, and the share of the sum that remains after each further sentence, in hundredths.
const POINT: i64 = 1000;
const FADE: i64 = 70;
/// A place counts at most this many times as much as what is asked for there.
const PLACES: i64 = 3;
/// After this many sentences nothing is left.
const FADED: usize = 64;

static ENTRIES: LazyLock<Vec<RuleEntry>> = LazyLock::new(|| {
    let learnt: Vec<(&str, i64)> = table().collect();
    let mut entries: Vec<RuleEntry> = Vec::new();
    for line in rules::lines() {
        let mut words = line.split_whitespace();
        let points = words.next().unwrap_or_default();
        let fixed = points.ends_with(LEAST);
        let prior = points.trim_end_matches(LEAST).parse::<i64>().unwrap_or_default() * POINT;
        let Some(name) = words.next() else { continue };
        let weight = learnt.iter().find(|(known, _)| *known == name).map_or(prior, |(_, weight)| *weight);
        if entries.iter().all(|known| known.name != name) {
            entries.push(RuleEntry { name, prior, fixed, weight });
        }
    }
    entries.extend(learnt.iter().filter(|(name, _)| name.starts_with(PAIR)).map(|&(name, weight)| RuleEntry {
        name,
        prior: 0,
        fixed: false,
        weight,
    }));
    entries
});

/// Marks points in `rules.txt` that learning may only raise.
const LEAST: char = '!';

/// The start of the name of a rule that is two ideas in one sentence: `pair.SEND+SECRET`.
const PAIR: &str = "pair.";

/// The rules that are two ideas in one sentence, which learning found beside the written ones.
pub(super) fn pairs() -> impl Iterator<Item = (RuleId, &'static str, &'static str)> {
    table().filter_map(|(name, _)| {
        let (one, other) = name.strip_prefix(PAIR)?.split_once('+')?;
        Some((named(name)?, one, other))
    })
}

/// Lines of `thousandths name`, written by `cargo xtask train`.
fn table() -> impl Iterator<Item = (&'static str, i64)> {
    include_str!("weights.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (weight, name) = line.split_once(' ')?;
        Some((name, weight.trim().parse().ok()?))
    })
}

/// The rule of this name.
pub(super) fn named(name: &str) -> Option<RuleId> {
    let at = ENTRIES.iter().position(|entry| entry.name == name)?;
    u16::try_from(at).ok().map(RuleId)
}

/// The name of a rule.
pub(super) fn name(rule: RuleId) -> &'static str {
    ENTRIES.get(usize::from(rule.0)).map_or("unknown", |entry| entry.name)
}

/// The weight of a rule, in thousandths of a point.
pub(super) fn of(rule: RuleId) -> i64 {
    ENTRIES.get(usize::from(rule.0)).map_or(0, |entry| entry.weight)
}

/// Every written rule: its name, its points before learning in thousandths, and whether learning may only raise them.
pub(super) fn all() -> impl Iterator<Item = (&'static str, i64, bool)> {
    ENTRIES.iter().filter(|entry| !entry.name.starts_with(PAIR)).map(|entry| (entry.name, entry.prior, entry.fixed))
}

/// The number of rules.
pub(super) fn count() -> usize {
    ENTRIES.len()
}

/// The index of a rule in [`all`].
pub(super) fn index(rule: RuleId) -> usize {
    usize::from(rule.0)
}

/// The points of a text so far: the highest sum over sentences that are close together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PointTally {
    sum: i64,
    peak: i64,
    at: usize,
}

impl PointTally {
    /// Adds the points of a sentence; those of the ones before fade. What calms a sentence takes nothing from others.
    pub(super) fn add(&mut self, sentence: usize, points: i64) {
        for _ in 0..sentence.saturating_sub(self.at).min(FADED) {
            self.sum = self.sum * FADE / 100;
        }
        self.at = sentence;
        self.sum += points.max(0);
        self.peak = self.peak.max(self.sum);
    }

    /// The points, with those of places: a place is never the only evidence.
    pub(super) fn points(self, places: i64) -> f32 {
        in_points(self.peak + places.clamp(0, self.peak * PLACES))
    }
}

/// Thousandths as points.
#[expect(clippy::cast_precision_loss, reason = "points are small")]
pub(super) fn in_points(thousandths: i64) -> f32 {
    thousandths as f32 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_weight_and_every_weight_a_rule() {
        for (name, weight) in table() {
            let rule = named(name).unwrap_or_else(|| panic!("`{name}` is no rule"));
            assert_eq!(weight < 0, name.starts_with("calm.") && weight != 0, "{name}");
            assert_eq!(of(rule), weight);
        }
        for entry in ENTRIES.iter().filter(|entry| entry.fixed) {
            assert!(entry.weight >= entry.prior, "{}", entry.name);
        }
        for (name, ..) in all() {
            assert!(table().any(|(known, _)| known == name), "`{name}` has no weight: run `cargo xtask train`");
        }
    }

    #[test]
    fn near_sentences_add_up_and_a_place_alone_is_nothing() {
        let mut tally = PointTally::default();
        tally.add(3, 5000);
        tally.add(4, 5000);
        assert!((tally.points(0) - 8.5).abs() < 0.001);
        tally.add(90, -4000);
        tally.add(91, 1000);
        assert!((tally.points(0) - 8.5).abs() < 0.001);
        assert!(PointTally::default().points(30_000) <= 0.0);
    }
}
