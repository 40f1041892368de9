//! Sentences and what they request.
//!
//! Takes a folded text, gives the rules that its sentences match, with their positions. Promise: one pass over the
//! text, a bounded amount of work for each sentence; the points of near sentences add up, those of distant ones do not.

use std::collections::HashSet;

use super::TextEvidence;
use super::lexicon::{IdeaSet, LEXICON};
use super::phrases;
use super::rules;
use super::weights::{self, PointTally, RuleId};
use crate::finding::TextRange;

/// A rule that matched in a sentence.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleMatch {
    pub(super) rule: RuleId,
    pub(super) span: TextRange,
    /// The number of the sentence.
    pub(super) sentence: usize,
    /// The share of the weight that counts, in hundredths.
    pub(super) share: i64,
}

/// The result of reading one text.
#[derive(Debug, Default)]
pub(super) struct TextReading {
    /// The matches of sentences in their order, as far as they are kept.
    pub(super) hits: Vec<RuleMatch>,
    /// The sentences with several ideas, and the share of their weight, as far as they are kept.
    ideas: Vec<(usize, IdeaSet, i64)>,
    /// Matches for the text as a whole.
    pub(super) places: Vec<RuleMatch>,
    /// Whether it is in rot13 or reversed, as far as its most common words show.
    pub(super) turned: bool,
    pub(super) backwards: bool,
    /// The same for letters shifted by three and for mirrored letters.
    pub(super) moved: bool,
    pub(super) mirrored: bool,
    /// Whether signs of code were seen.
    pub(super) shaped: bool,
    pub(super) sentences: Vec<Sentence>,
    /// The sentences that have ideas, by their letters.
    said: Vec<u64>,
    /// How much of the text is about attacks, from 0 to 3.
    about: usize,
}

/// A stretch of text, with the ideas in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sentence {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) ideas: IdeaSet,
}

/// The longest stretch that counts as one sentence.
const LONGEST: usize = 320;

/// Reads a folded text.
pub(super) fn read(text: &str) -> TextReading {
    let mut reading = TextReading::default();
    let mut bounds = SentenceBounds::new(text);
    let mut current = bounds.next(0);
    let (mut rot, mut rev, mut english, mut about) = (0_usize, 0_usize, 0_usize, 0_usize);
    let (mut moved, mut mirrored) = (0_usize, 0_usize);
    LEXICON.scan(text, |found| {
        while found.start >= current.end && current.end < text.len() {
            reading.sentences.push(current);
            current = bounds.next(current.end);
        }
        rot += usize::from(found.ideas.has(IdeaSet::ROT));
        rev += usize::from(found.ideas.has(IdeaSet::REV));
        moved += usize::from(found.ideas.has(IdeaSet::CAESAR));
        mirrored += usize::from(found.ideas.has(IdeaSet::ATBASH));
        english += usize::from(found.ideas.has(IdeaSet::COMMON));
        about += usize::from(found.ideas.has(IdeaSet::ABOUT));
        reading.shaped |= found.ideas.has(IdeaSet::SHAPE);
        current.ideas = current.ideas.with(found.ideas);
        if found.ideas.has(IdeaSet::ACTIONS)
            && (opens(text, current.start, found.start) || closes(text, found.start, found.end, current.end))
        {
            current.ideas = current.ideas.with(IdeaSet::IMPERATIVE);
        }
    });
    reading.sentences.push(current);
    phrase(text, &mut reading.sentences);
    reading.turned = rot >= 3 && rot > english;
    reading.backwards = rev >= 3 && rev > english;
    reading.moved = moved >= 3 && moved > english;
    reading.mirrored = mirrored >= 3 && mirrored > english;
    // A text that mentions attacks again and again is more often about attacks than one itself.
    let density = (about * 1000).checked_div(text.len().max(400)).unwrap_or(0);
    reading.about = match density {
        0 => 0,
        1..=2 => 1,
        3..=4 => 2,
        _ => 3,
    };
    reading
}

/// Adds the ideas of phrases, first for the sentences at both ends, until the limit is reached.
fn phrase(text: &str, sentences: &mut [Sentence]) {
    let wanted: Vec<usize> =
        (0..sentences.len()).filter(|&at| sentences.get(at).is_some_and(|one| phrases::may_hold(one.ideas))).collect();
    let mut room = phrases::MOST;
    let (mut ahead, mut behind) = (wanted.iter(), wanted.iter().rev());
    for turn in 0..wanted.len() {
        let next = if turn % 2 == 0 { ahead.next() } else { behind.next() };
        let Some(sentence) = next.and_then(|&at| sentences.get_mut(at)) else { return };
        let Some(said) = text.as_bytes().get(sentence.start..sentence.end) else { continue };
        let Some(left) = room.checked_sub(said.len()) else { return };
        room = left;
        sentence.ideas = sentence.ideas.with(phrases::ideas(said, sentence.ideas));
    }
}

/// Whether only a polite or listing word is before the verb.
fn opens(text: &str, start: usize, verb: usize) -> bool {
    const BEFORE: [&str; 40] = [
        "please",
        "now",
        "then",
        "first",
        "next",
        "also",
        "and",
        "kindly",
        "just",
        "finally",
        "always",
        "immediately",
        "so",
        "instead",
        "you",
        "must",
        "should",
        "to",
        "need",
        "bitte",
        "important",
        "never",
        "in",
        "your",
        "response",
        "answer",
        "reply",
        "at",
        "the",
        "end",
        "of",
        "with",
        "this",
        "data",
        "todo",
        "do",
        "additionally",
        // What stands after the marker of a turn.
        "system",
        "assistant",
        "user",
    ];
    let Some(lead) = text.get(start..verb) else { return false };
    if lead.len() > LEAD {
        return false;
    }
    // `Note for the reader: send …` opens a new sentence after its colon.
    let colon = lead.as_bytes().windows(2).rposition(|pair| pair == b": ");
    let lead = colon.and_then(|at| lead.get(at + 2..)).unwrap_or(lead);
    let lead = after_greeting(lead);
    // `To override the default, pass …` states a purpose, and requests nothing.
    let mut words = lead.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let purpose = words.next().is_some_and(|word| word.eq_ignore_ascii_case("to"));
    !purpose
        && lead
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty() && !word.bytes().all(|byte| byte.is_ascii_digit()))
            .all(|word| BEFORE.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

/// The longest text before a verb that opens its sentence.
const LEAD: usize = 48;

/// What follows a greeting or a name: `Hi Ana, send …`, `Ana, send …`, `Dear team - please send …`.
fn after_greeting(lead: &str) -> &str {
    const GREETINGS: [&str; 20] = [
        "hi",
        "hello",
        "hey",
        "dear",
        "ok",
        "okay",
        "thanks",
        "thank",
        "good",
        "morning",
        "yo",
        "hallo",
        "liebe",
        "lieber",
        "bonjour",
        "cher",
        "hola",
        "ciao",
        "attention",
        "great",
    ];
    let cut = lead.rfind(", ").map(|at| at + 2).or_else(|| lead.rfind("- ").map(|at| at + 2));
    let Some((greeting, rest)) = cut.and_then(|at| lead.split_at_checked(at)) else { return lead };
    let mut words = greeting.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return rest };
    let greets = GREETINGS.iter().any(|known| known.eq_ignore_ascii_case(first));
    let named = |word: &str| word.starts_with(char::is_uppercase);
    let short = words.clone().count() <= 3;
    if short && (greets || (named(first) && words.all(named))) { rest } else { lead }
}

/// Whether a verb of a language that puts it last ends the sentence.
fn closes(text: &str, start: usize, end: usize, sentence: usize) -> bool {
    let Some(verb) = text.get(start..end) else { return false };
    let foreign = verb.bytes().any(|byte| byte >= 0xc3);
    foreign && sentence.saturating_sub(end) <= 24
}

/// How many sentences a rule is remembered, and the share of its weight, in hundredths, that it has when it matched before.
const NEARBY: usize = 6;
const REPEATED: i64 = 10;
/// The most matches that are kept as findings.
const KEPT: usize = 4096;

/// The sentences of a text that have ideas, by their letters and digits alone.
#[derive(Debug, Default)]
pub(super) struct SaidSentences(HashSet<u64>);

impl SaidSentences {
    pub(super) fn has(&self, sentence: &str) -> bool {
        self.0.contains(&letters_of(sentence))
    }
}

/// A number for the letters and digits of a sentence, whatever stands between them.
fn letters_of(sentence: &str) -> u64 {
    let letters = sentence.bytes().filter(|byte| byte.is_ascii_alphanumeric() || *byte >= 0x80);
    // FNV: a collision costs a third of a weight.
    letters.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x100_0000_01b3)
    })
}

impl TextReading {
    /// What was said in the sentences that have ideas.
    pub(super) fn said(&self) -> SaidSentences {
        SaidSentences(self.said.iter().copied().collect())
    }

    /// The points of the places, in thousandths.
    pub(super) fn place_points(&self) -> i64 {
        self.places.iter().map(|hit| weights::of(hit.rule)).sum()
    }

    /// The matches, for learning.
    pub(super) fn evidence(&self) -> TextEvidence {
        let hits = self.hits.iter().map(|hit| (hit.sentence, weights::index(hit.rule), hit.share)).collect();
        let ideas = self.ideas.iter().map(|(sentence, ideas, share)| (*sentence, ideas.bits(), *share)).collect();
        TextEvidence { hits, ideas, places: self.places.iter().map(|hit| weights::index(hit.rule)).collect() }
    }

    /// Finds the rules that the sentences match. `carried` gives the share of a sentence's weight, in hundredths.
    pub(super) fn weigh(&mut self, text: &str, carried: impl Fn(&str) -> i64) -> PointTally {
        let mut tally = PointTally::default();
        // The same rule again nearby adds little.
        let mut last: Vec<Option<usize>> = vec![None; weights::count()];
        let mut before = IdeaSet::NONE;
        for (at, sentence) in self.sentences.iter().copied().enumerate() {
            let near = std::mem::replace(&mut before, sentence.ideas);
            if sentence.ideas.is_empty() {
                continue;
            }
            let span = TextRange { start: sentence.start, end: sentence.end };
            let said = text.get(sentence.start..sentence.end).unwrap_or_default();
            self.said.push(letters_of(said));
            let mut factor = None;
            let mut points = 0;
            for rule in rules::matching(sentence.ideas, near) {
                let seen = last.get_mut(weights::index(rule)).and_then(|seen| seen.replace(at));
                let repeated = seen.is_some_and(|place| at - place <= NEARBY);
                let whole = if repeated { REPEATED } else { 100 };
                let share = whole * *factor.get_or_insert_with(|| carried(said)) / 100;
                points += weights::of(rule) * share / 100;
                if self.hits.len() < KEPT {
                    self.hits.push(RuleMatch { rule, span, sentence: at, share });
                }
            }
            let several = sentence.ideas.bits().count_ones() >= 2;
            if several && self.ideas.len() < KEPT {
                self.ideas.push((at, sentence.ideas, factor.unwrap_or_else(|| carried(said))));
            }
            if factor.is_none() && !several {
                continue;
            }
            for rule in calm(self.about, sentence.ideas, near, said) {
                points += weights::of(rule);
                if self.hits.len() < KEPT {
                    self.hits.push(RuleMatch { rule, span, sentence: at, share: 100 });
                }
            }
            tally.add(at, points);
        }
        tally
    }
}

/// The reasons why a sentence counts for less: the text is about attacks, and the sentence does not address its reader.
fn calm(about: usize, here: IdeaSet, before: IdeaSet, said: &str) -> impl Iterator<Item = RuleId> {
    let quoted = said.contains('"') || here.has(IdeaSet::QUOTE);
    // An example in quotes speaks to nobody, where everything around it is about attacks.
    let named = here.has(IdeaSet::ADDRESSED.with(IdeaSet::HAILED).with(IdeaSet::DUTY)) && !(quoted && about == 3);
    let addressed = named || (!quoted && here.has(IdeaSet::YOU) && here.has(IdeaSet::IMPERATIVE));
    let level = match (addressed, about) {
        (true, _) | (false, 0) => None,
        (false, 1) => Some("calm.about_some"),
        (false, 2) => Some("calm.about_much"),
        (false, _) => Some("calm.about_all"),
    };
    let near = (!addressed && here.with(before).has(IdeaSet::ABOUT)).then_some("calm.about_here");
    let quoted = (!addressed && about > 0 && quoted).then_some("calm.quoted");
    [level, near, quoted].into_iter().flatten().filter_map(weights::named)
}

/// Where sentences end.
struct SentenceBounds<'a> {
    text: &'a str,
}

impl<'a> SentenceBounds<'a> {
    fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// The sentence that begins here.
    fn next(&mut self, start: usize) -> Sentence {
        let bytes = self.text.as_bytes();
        let rest = bytes.get(start..).unwrap_or_default();
        let mut end = rest.len().min(LONGEST);
        // Blanks before a sentence belong to it: a sentence of only blanks would separate what belongs together.
        let lead = rest.iter().take(LONGEST).take_while(|byte| byte.is_ascii_whitespace()).count();
        for (at, &byte) in rest.iter().enumerate().take(LONGEST) {
            let next = rest.get(at + 1).copied().unwrap_or(b' ');
            let ends = match byte {
                b'.' | b'!' | b'?' => next.is_ascii_whitespace() || matches!(next, b'"' | b'\'' | b')' | b'<' | b'*'),
                // A wrapped line continues in lower case; anything else begins a new sentence.
                b'\n' => at > lead && !next.is_ascii_lowercase(),
                b'\\' => next == b'n',
                b'|' => true,
                // A string after its key begins a new sentence, as a line does.
                b'"' => at > lead && opens_prose(rest, at),
                // The full stops of Chinese and Japanese end with these bytes.
                0x82 => at >= 2 && rest.get(at - 2..at) == Some([0xe3, 0x80].as_slice()),
                0x81 | 0x9f => at >= 2 && rest.get(at - 2..at) == Some([0xef, 0xbc].as_slice()),
                _ => false,
            };
            if ends {
                end = at + 1;
                break;
            }
        }
        Sentence { start: start + lead.min(end), end: start + end, ideas: IdeaSet::NONE }
    }
}

/// Whether a quote opens the value of a key, and that value is prose.
fn opens_prose(text: &[u8], quote: usize) -> bool {
    let (before, after) = (text.get(..quote).unwrap_or_default(), text.get(quote + 1..).unwrap_or_default());
    before.iter().rev().find(|byte| **byte != b' ') == Some(&b':')
        && after.iter().take(64).take_while(|byte| **byte != b'"').filter(|byte| **byte == b' ').count() >= 3
}
