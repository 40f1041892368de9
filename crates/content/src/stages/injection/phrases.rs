//! Turns of speech that no list of words can hold: whom a sentence speaks to, and what it says is over, agreed or to be kept.
//!
//! Takes a sentence that holds a cue, gives the ideas its phrases stand for. Promise: linear patterns over one sentence, and
//! none at all where no cue was seen; a pattern that cannot be read fails a test, not a message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::lexicon::Set;
use crate::stages::encoding::fold::fold;

/// Stands for a machine in sentences and patterns.
const MACHINE: &str = "\x01";
/// The most that is read of one text, from its ends inwards: what lies between is still read by its words.
pub(super) const MOST: usize = 48 << 10;

struct Phrases {
    /// Every way to name a machine: found first, because most patterns would have to hold all of them.
    machine: Option<Regex>,
    parts: Vec<Part>,
    cues: Set,
}

/// Phrases that are read only where a sentence holds one of their cues; compiled when that first happens.
struct Part {
    cues: Set,
    patterns: Vec<String>,
    ideas: Vec<Set>,
    set: OnceLock<Option<RegexSet>>,
}

static PHRASES: LazyLock<Phrases> = LazyLock::new(|| {
    let (pieces, lines) = read();
    let mut parts: Vec<Part> = Vec::new();
    for line in lines {
        match (line, parts.last_mut()) {
            (Line::Part(cues), _) => {
                parts.push(Part { cues, patterns: Vec::new(), ideas: Vec::new(), set: OnceLock::new() });
            }
            (Line::Phrase(pattern, ideas), Some(part)) => {
                part.patterns.push(pattern);
                part.ideas.push(ideas);
            }
            (Line::Phrase(..), None) | (Line::Neither, _) => {}
        }
    }
    let machine = pieces
        .get("MACHINE")
        .and_then(|piece| RegexBuilder::new(piece).case_insensitive(true).unicode(false).build().ok());
    let cues = parts.iter().fold(Set::NONE, |all, part| all.with(part.cues));
    Phrases { machine, parts, cues }
});

/// Whether a sentence with these ideas may hold a phrase.
pub(super) fn may_hold(ideas: Set) -> bool {
    ideas.has(PHRASES.cues)
}

/// What a sentence says beyond its words.
pub(super) fn ideas(sentence: &[u8], words: Set) -> Set {
    let named = if words.has(Set::ASSISTANT) {
        PHRASES.machine.as_ref().map_or(Cow::Borrowed(sentence), |one| one.replace_all(sentence, MACHINE.as_bytes()))
    } else {
        Cow::Borrowed(sentence)
    };
    let wanted = PHRASES.parts.iter().filter(|part| words.has(part.cues));
    wanted.fold(Set::NONE, |all, part| {
        let all = all.with(part.said(sentence));
        // Other languages name machines with words of ours in them, so that both forms are read.
        if let Cow::Owned(named) = &named { all.with(part.said(named)) } else { all }
    })
}

impl Part {
    fn said(&self, text: &[u8]) -> Set {
        let set = self.set.get_or_init(|| build(&self.patterns)).as_ref();
        let found = set.map(|set| set.matches(text));
        found.iter().flatten().filter_map(|at| self.ideas.get(at)).fold(Set::NONE, |all, one| all.with(*one))
    }
}

/// How many phrases there are.
pub(super) fn count() -> usize {
    PHRASES.parts.iter().map(|part| part.patterns.len()).sum()
}

fn build(patterns: &[String]) -> Option<RegexSet> {
    // Bytes and ASCII classes keep the programs small; the text is folded, so that other scripts are in lower case already.
    RegexSetBuilder::new(patterns)
        .case_insensitive(true)
        .unicode(false)
        .size_limit(64 << 20)
        .dfa_size_limit(16 << 20)
        .build()
        .ok()
}

/// A line of the file.
enum Line {
    Part(Set),
    Phrase(String, Set),
    Neither,
}

/// Reads `NAME = piece`, `[IDEA IDEA]` and `IDEA IDEA: pattern`.
fn read() -> (BTreeMap<&'static str, String>, Vec<Line>) {
    let mut pieces: BTreeMap<&str, String> = BTreeMap::new();
    let mut found = Vec::new();
    for line in include_str!("phrases.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((name, piece)) = line.split_once(" = ").filter(|(name, _)| is_name(name)) {
            let piece = filled(piece, &pieces);
            pieces.insert(name, piece);
        } else if let Some(names) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            found.push(named(names).map_or(Line::Neither, Line::Part));
        } else {
            let phrase = line.split_once(": ").and_then(|(names, pattern)| {
                // What stands for a machine is no letter: there is no edge of a word beside it.
                let pattern = pattern.replace("\\b{MACHINE}", MACHINE).replace("{MACHINE}", MACHINE);
                let pattern = filled(&pattern.replace("\x01\\b", MACHINE), &pieces);
                Some(Line::Phrase(fold(&pattern).text.into_owned(), named(names)?))
            });
            found.push(phrase.unwrap_or(Line::Neither));
        }
    }
    (pieces, found)
}

/// All of the ideas, or nothing if one is not known.
fn named(names: &str) -> Option<Set> {
    names.split(' ').try_fold(Set::NONE, |all, name| Set::named(name).map(|one| all.with(one)))
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// A pattern with its `{NAME}` replaced.
fn filled(pattern: &str, pieces: &BTreeMap<&str, String>) -> String {
    pieces.iter().fold(pattern.to_owned(), |text, (name, piece)| text.replace(&format!("{{{name}}}"), piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_can_be_read_alone_and_with_its_part() {
        for line in read().1 {
            match line {
                Line::Neither => panic!("a line is neither a piece, a part nor a phrase"),
                Line::Part(_) => {}
                Line::Phrase(pattern, _) => assert!(build(std::slice::from_ref(&pattern)).is_some(), "{pattern}"),
            }
        }
        assert!(PHRASES.machine.is_some() && count() >= 60);
        for part in &PHRASES.parts {
            assert!(build(&part.patterns).is_some_and(|set| set.len() == part.ideas.len()));
        }
    }
}
