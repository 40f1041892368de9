//! The combinations of ideas that make an intent.
//!
//! Takes the ideas of a sentence and of the one before, gives the rules that match. Promise: the rules are data in
//! `rules.txt`; a rule that cannot be parsed fails a test, not a message.

use std::sync::LazyLock;

use super::lexicon::IdeaSet;
use super::weights::{RuleId, named, pairs};

/// A combination of ideas that gives a finding.
#[derive(Debug)]
struct IntentRule {
    id: RuleId,
    /// Each of these must occur in the sentence.
    needs: Vec<IdeaSet>,
    /// Each of these must occur in the sentence or the one before it.
    near: Vec<IdeaSet>,
    /// None of these may occur.
    not: IdeaSet,
}

static RULES: LazyLock<Vec<IntentRule>> =
    LazyLock::new(|| lines().filter(|line| !line.ends_with(ELSEWHERE)).filter_map(IntentRule::read).collect());

/// Two ideas in one sentence.
static PAIRS: LazyLock<Vec<(RuleId, IdeaSet)>> = LazyLock::new(|| {
    let both = |(id, one, other)| Some((id, IdeaSet::named(one)?.with(IdeaSet::named(other)?)));
    pairs().filter_map(both).collect()
});

/// The lines of rules, each with the points that it has before learning and its name.
pub(super) fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("rules.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// What is not a combination of ideas, but is found by its structure or by the topic of the text.
const ELSEWHERE: &str = "@";

/// The number of rules.
pub(super) fn count() -> usize {
    RULES.len() + PAIRS.len()
}

/// The rules that match.
pub(super) fn matching(here: IdeaSet, before: IdeaSet) -> impl Iterator<Item = RuleId> {
    let both = here.with(before);
    let matches = move |rule: &&IntentRule| {
        rule.needs.iter().all(|need| here.has(*need))
            && rule.near.iter().all(|need| both.has(*need))
            && !here.has(rule.not)
    };
    let pairs = PAIRS.iter().filter(move |(_, pair)| here.has_all(*pair)).map(|(id, _)| *id);
    RULES.iter().filter(matches).map(|rule| rule.id).chain(pairs)
}

impl IntentRule {
    /// Reads `points name IDEA|IDEA … [near IDEA …] [not IDEA …]`; the points are those before learning.
    fn read(line: &'static str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let id = named(words.nth(1)?)?;
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
        (!needs.is_empty()).then_some(Self { id, needs, near, not })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_read() {
        for line in lines().filter(|line| !line.ends_with(ELSEWHERE)) {
            assert!(IntentRule::read(line).is_some(), "{line}");
        }
        assert!(count() >= 30);
        assert_eq!(PAIRS.len(), pairs().count(), "a pair names an idea that is not there");
    }
}
