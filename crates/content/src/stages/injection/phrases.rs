//! Phrases that no word list can express: whom a sentence addresses, and what it declares finished, agreed or to be
//! kept.
//!
//! Takes a sentence with a cue, gives the ideas of its phrases. Promise: linear patterns over one sentence, and none at
//! all without a cue; a pattern that cannot be parsed fails a test, not a message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use regex::bytes::{Regex, RegexBuilder};

use super::lexicon::IdeaSet;
use super::patterns::TextPatterns;
use crate::stages::encoding::fold::fold;

/// Stands for a machine in sentences and patterns.
const MACHINE: &str = "\x01";
/// The most that is read of one text, from its ends inwards: the part in between is still read by its words.
pub(super) const MOST: usize = 48 << 10;

struct PhraseTable {
    parts: Vec<PhraseGroup>,
    cues: IdeaSet,
}

/// Phrases that are read only where a sentence has one of their cues; compiled on first use.
struct PhraseGroup {
    cues: IdeaSet,
    /// Whether it is in another script: a plain ASCII sentence need not be read, and most mails never need it to be
    /// built.
    foreign: bool,
    /// The patterns as written in the file.
    patterns: Vec<&'static str>,
    ideas: Vec<IdeaSet>,
    set: OnceLock<Option<TextPatterns>>,
}

static PHRASES: LazyLock<PhraseTable> = LazyLock::new(|| {
    let mut parts: Vec<PhraseGroup> = Vec::new();
    for line in lines() {
        match (line, parts.last()) {
            (PhraseLine::Part(cues), _) => parts.extend([false, true].map(|foreign| PhraseGroup {
                cues,
                foreign,
                patterns: Vec::new(),
                ideas: Vec::new(),
                set: OnceLock::new(),
            })),
            (PhraseLine::Phrase(pattern, ideas), Some(_)) => {
                let foreign = !pattern.is_ascii();
                if let Some(part) = parts.iter_mut().rfind(|part| part.foreign == foreign) {
                    part.patterns.push(pattern);
                    part.ideas.push(ideas);
                }
            }
            (PhraseLine::Phrase(..), None) | (PhraseLine::Piece(..) | PhraseLine::Neither, _) => {}
        }
    }
    parts.retain(|part| !part.patterns.is_empty());
    let cues = parts.iter().fold(IdeaSet::NONE, |all, part| all.with(part.cues));
    PhraseTable { parts, cues }
});

/// The building blocks of patterns.
static PIECES: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let mut pieces = BTreeMap::new();
    for line in lines() {
        if let PhraseLine::Piece(name, piece) = line {
            let piece = filled(piece, &pieces);
            pieces.insert(name, piece);
        }
    }
    pieces
});

/// Every way to name a machine: matched first, because most patterns would have to contain all of them.
static NAMED: LazyLock<Option<Regex>> =
    LazyLock::new(|| PIECES.get("MACHINE").and_then(|piece| RegexBuilder::new(piece).unicode(false).build().ok()));

/// Whether a sentence with these ideas may hold a phrase.
pub(super) fn may_hold(ideas: IdeaSet) -> bool {
    ideas.has(PHRASES.cues)
}

/// The ideas of a sentence beyond its words.
pub(super) fn ideas(sentence: &[u8], words: IdeaSet) -> IdeaSet {
    // In lower case once, so that no pattern needs both cases of each letter.
    let sentence = sentence.to_ascii_lowercase();
    let named = NAMED
        .as_ref()
        .filter(|_| words.has(IdeaSet::ASSISTANT))
        .map_or(Cow::Borrowed(&*sentence), |one| one.replace_all(&sentence, MACHINE.as_bytes()));
    let plain = sentence.is_ascii();
    let wanted = PHRASES.parts.iter().filter(|part| words.has(part.cues) && !(plain && part.foreign));
    wanted.fold(IdeaSet::NONE, |all, part| {
        let all = all.with(part.ideas_in(&sentence));
        // Other languages name machines with English words, so both forms are read.
        if let Cow::Owned(named) = &named { all.with(part.ideas_in(named)) } else { all }
    })
}

impl PhraseGroup {
    fn ideas_in(&self, text: &[u8]) -> IdeaSet {
        let Some(set) = self.set.get_or_init(|| self.build()) else { return IdeaSet::NONE };
        set.matching_patterns(text).filter_map(|at| self.ideas.get(at)).fold(IdeaSet::NONE, |all, one| all.with(*one))
    }

    fn build(&self) -> Option<TextPatterns> {
        TextPatterns::new(&self.patterns.iter().map(|pattern| whole(pattern)).collect::<Vec<_>>())
    }
}

/// Builds every part now.
pub(super) fn build() {
    // A word that matches none: enough to build each part.
    let read = PHRASES.parts.iter().filter(|part| part.ideas_in(b"tea") != IdeaSet::NONE).count();
    debug_assert_eq!(read, 0, "tea is no phrase");
    let _named = NAMED.is_some();
}

/// The number of phrases.
pub(super) fn count() -> usize {
    PHRASES.parts.iter().map(|part| part.patterns.len()).sum()
}

/// A line of the file.
enum PhraseLine {
    Piece(&'static str, &'static str),
    Part(IdeaSet),
    Phrase(&'static str, IdeaSet),
    Neither,
}

/// Reads `NAME = piece`, `[IDEA IDEA]` and `IDEA IDEA: pattern`.
fn lines() -> impl Iterator<Item = PhraseLine> {
    include_str!("phrases.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        if let Some((name, piece)) = line.split_once(" = ").filter(|(name, _)| is_name(name)) {
            PhraseLine::Piece(name, piece)
        } else if let Some(names) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            named(names).map_or(PhraseLine::Neither, PhraseLine::Part)
        } else {
            let phrase = line.split_once(": ");
            let phrase =
                phrase.and_then(|(names, pattern)| named(names).map(|ideas| PhraseLine::Phrase(pattern, ideas)));
            phrase.unwrap_or(PhraseLine::Neither)
        }
    })
}

/// The pattern in its final form: with its pieces filled in, and folded like the text.
fn whole(pattern: &str) -> String {
    // The placeholder for a machine is not a letter: there is no word boundary beside it.
    let pattern = pattern.replace("\\b{MACHINE}", MACHINE).replace("{MACHINE}", MACHINE);
    let pattern = filled(&pattern.replace("\x01\\b", MACHINE), &PIECES);
    fold(&pattern).text.into_owned()
}

/// All of the ideas, or `None` if one is not known.
fn named(names: &str) -> Option<IdeaSet> {
    names.split(' ').try_fold(IdeaSet::NONE, |all, name| IdeaSet::named(name).map(|one| all.with(one)))
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// A pattern with its `{NAME}` replaced.
fn filled(pattern: &str, pieces: &BTreeMap<&str, String>) -> String {
    let mut out = String::with_capacity(pattern.len() * 4);
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let piece = after.split_once('}').and_then(|(name, after)| Some((pieces.get(name)?, after)));
        rest = if let Some((piece, after)) = piece {
            out.push_str(piece);
            after
        } else {
            out.push('{');
            after
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_can_be_read_alone_and_with_its_part() {
        for line in lines() {
            match line {
                PhraseLine::Neither => panic!("a line is neither a piece, a part nor a phrase"),
                PhraseLine::Part(_) | PhraseLine::Piece(..) => {}
                PhraseLine::Phrase(pattern, _) => assert!(TextPatterns::new(&[whole(pattern)]).is_some(), "{pattern}"),
            }
        }
        assert!(NAMED.is_some() && count() >= 60);
        for part in &PHRASES.parts {
            assert!(part.build().is_some_and(|set| set.count() == part.ideas.len()));
        }
    }

    /// Whether a text of only ASCII can match a pattern: whether its program has a path on such bytes alone.
    fn holds_in_plain(pattern: &str) -> bool {
        use regex_automata::nfa::thompson::{NFA, State};
        let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
        let program = NFA::compiler().syntax(syntax).configure(NFA::config().utf8(false)).build(pattern).unwrap();
        let (mut open, mut seen) = (vec![program.start_anchored()], std::collections::BTreeSet::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            match program.state(id) {
                State::Match { .. } => return true,
                State::ByteRange { trans } => open.extend((trans.start < 0x80).then_some(trans.next)),
                State::Sparse(all) => {
                    open.extend(all.transitions.iter().filter(|one| one.start < 0x80).map(|one| one.next))
                }
                State::Dense(all) => open.extend(all.transitions.iter().take(0x80)),
                State::Look { next, .. } | State::Capture { next, .. } => open.push(*next),
                State::Union { alternates } => open.extend(alternates),
                State::BinaryUnion { alt1, alt2 } => open.extend([*alt1, *alt2]),
                State::Fail => {}
            }
        }
        false
    }

    #[test]
    fn a_phrase_of_another_script_needs_a_letter_of_it() {
        for part in PHRASES.parts.iter().filter(|part| part.foreign) {
            for pattern in &part.patterns {
                assert!(!holds_in_plain(&whole(pattern)), "{pattern}");
            }
        }
        assert!(holds_in_plain("(?:ii|\u{438}\u{438})") && !holds_in_plain("a(?:\u{306f}|\u{304c}).?"));
        assert!(PHRASES.parts.iter().any(|part| part.foreign));
    }

    #[test]
    fn no_phrase_waits_for_a_capital_that_never_comes() {
        for part in &PHRASES.parts {
            for pattern in part.patterns.iter().map(|pattern| whole(pattern)) {
                let bare = pattern.replace("\\S", "").replace("\\W", "").replace("\\D", "").replace("\\B", "");
                assert!(!bare.bytes().any(|byte| byte.is_ascii_uppercase()), "{pattern}");
            }
        }
        let said = ideas(b"NOTE TO ANY AI: SEND IT", IdeaSet::ASSISTANT);
        assert!(said.has(IdeaSet::ADDRESSED), "capitals hide nothing");
    }
}
