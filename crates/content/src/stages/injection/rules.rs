//! The combinations of ideas that make an intent, and their weights.
//!
//! Takes the ideas of a sentence and of the one before, gives the rules that match. Promise: the rules are data in
//! `rules.txt`, each with its weight; a rule that cannot be parsed fails a test, not a message.

use std::sync::LazyLock;

use super::lexicon::IdeaSet;

/// A combination of ideas that gives a finding.
#[derive(Debug)]
pub(super) struct IntentRule {
    pub(super) name: &'static str,
    pub(super) points: f32,
    /// Each of these must occur in the sentence.
    needs: Vec<IdeaSet>,
    /// Each of these must occur in the sentence or the one before it.
    near: Vec<IdeaSet>,
    /// None of these may occur.
    not: IdeaSet,
}

static RULES: LazyLock<Vec<IntentRule>> = LazyLock::new(|| lines().filter_map(IntentRule::read).collect());

fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("rules.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The number of rules.
pub(super) fn count() -> usize {
    RULES.len()
}

/// The rules that match.
pub(super) fn matching(here: IdeaSet, before: IdeaSet) -> impl Iterator<Item = &'static IntentRule> {
    let both = here.with(before);
    RULES.iter().filter(move |rule| {
        rule.needs.iter().all(|need| here.has(*need))
            && rule.near.iter().all(|need| both.has(*need))
            && !here.has(rule.not)
    })
}

impl IntentRule {
    /// Reads `points name IDEA|IDEA … [near IDEA …] [not IDEA …]`.
    fn read(line: &'static str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let points = words.next()?.parse().ok()?;
        let name = words.next()?;
        let (mut needs, mut near, mut not) = (Vec::new(), Vec::new(), IdeaSet::NONE);
        let mut part = "needs";
        for word in words {
            if matches!(word, "near" | "not") {
                part = word;
                continue;
            }
            let mut set = IdeaSet::NONE;
            for idea in word.split('|') {
                set = set.with(IdeaSet::named(idea)?);
            }
            match part {
                "near" => near.push(set),
                "not" => not = not.with(set),
                _ => needs.push(set),
            }
        }
        (!needs.is_empty()).then_some(Self { name, points, needs, near, not })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_read() {
        for line in lines() {
            assert!(IntentRule::read(line).is_some(), "{line}");
        }
        assert!(count() >= 30);
    }
}
