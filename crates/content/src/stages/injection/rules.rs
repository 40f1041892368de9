//! Which ideas together make an intent, and how much it weighs.
//!
//! Takes the ideas of a sentence and of the one before, gives the rules that hold. Promise: the rules are data in
//! `rules.txt`, each with its weight; one that cannot be read fails a test, not a message.

use std::sync::LazyLock;

use super::lexicon::Set;

/// Ideas that together are worth a finding.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) points: f32,
    /// Each of these must be met by the sentence.
    needs: Vec<Set>,
    /// Each of these by the sentence or the one before it.
    near: Vec<Set>,
    /// None of these may be there.
    not: Set,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| lines().filter_map(Rule::read).collect());

fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("rules.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// How many there are.
pub(super) fn count() -> usize {
    RULES.len()
}

/// The rules that hold.
pub(super) fn matching(here: Set, before: Set) -> impl Iterator<Item = &'static Rule> {
    let both = here.with(before);
    RULES.iter().filter(move |rule| {
        rule.needs.iter().all(|need| here.has(*need))
            && rule.near.iter().all(|need| both.has(*need))
            && !here.has(rule.not)
    })
}

impl Rule {
    /// Reads `points name IDEA|IDEA … [near IDEA …] [not IDEA …]`.
    fn read(line: &'static str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let points = words.next()?.parse().ok()?;
        let name = words.next()?;
        let (mut needs, mut near, mut not) = (Vec::new(), Vec::new(), Set::NONE);
        let mut part = "needs";
        for word in words {
            if matches!(word, "near" | "not") {
                part = word;
                continue;
            }
            let mut set = Set::NONE;
            for idea in word.split('|') {
                set = set.with(Set::named(idea)?);
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
            assert!(Rule::read(line).is_some(), "{line}");
        }
        assert!(count() >= 30);
    }
}
