//! Sentences and what they request.
//!
//! Takes a folded text, gives the rules that its sentences match, with their positions. Promise: one pass over the
//! text, a bounded amount of work for each sentence; the points of near sentences add up, those of distant ones do not.

use super::lexicon::{IdeaSet, LEXICON};
use super::phrases;
use super::rules::{self, IntentRule};
use crate::finding::TextRange;

/// A rule that matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleMatch {
    pub(super) rule: &'static str,
    pub(super) span: TextRange,
    pub(super) points: f32,
}

/// The result of reading one text.
#[derive(Debug, Default)]
pub(super) struct TextReading {
    pub(super) hits: Vec<RuleMatch>,
    /// Points for the text as a whole: structure, code.
    pub(super) whole: f32,
    /// The highest sum over sentences that are close together.
    pub(super) peak: f32,
    /// Whether it is in rot13 or reversed, as far as its most common words show.
    pub(super) turned: bool,
    pub(super) backwards: bool,
    /// The same for letters shifted by three and for mirrored letters.
    pub(super) moved: bool,
    pub(super) mirrored: bool,
    /// Whether signs of code were seen.
    pub(super) shaped: bool,
    pub(super) sentences: Vec<Sentence>,
    /// Points subtracted because the text is about attacks.
    pub(super) about: f32,
}

impl TextReading {
    pub(super) fn points(&self) -> f32 {
        (self.peak * self.about + self.whole).max(0.0)
    }
}

/// A stretch of text, with the ideas in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sentence {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) ideas: IdeaSet,
}

/// The share of the sum that remains after each further sentence.
const FADE: f32 = 0.84;
/// The longest stretch that counts as one sentence.
const LONGEST: usize = 320;

/// Reads a folded text.
pub(super) fn read(text: &str) -> TextReading {
    let mut reading = TextReading { about: 1.0, ..TextReading::default() };
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
        if found.ideas.has(IdeaSet::ACTIONS) && opens(text, current.start, found.start) {
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
        0 => 1.0,
        1..=2 => 0.8,
        3..=4 => 0.6,
        _ => 0.45,
    };
    score(&mut reading);
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
    const BEFORE: [&str; 37] = [
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
    ];
    let Some(lead) = text.get(start..verb) else { return false };
    // `Note for the reader: send …` opens a new sentence after its colon.
    let colon = lead.as_bytes().windows(2).rposition(|pair| pair == b": ");
    let lead = colon.and_then(|at| lead.get(at + 2..)).unwrap_or(lead);
    // `To override the default, pass …` states a purpose, and requests nothing.
    let purpose = lead.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("to"));
    lead.len() <= 48
        && !purpose
        && lead
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty() && !word.bytes().all(|byte| byte.is_ascii_digit()))
            .all(|word| BEFORE.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

fn score(reading: &mut TextReading) {
    let mut sum = 0.0_f32;
    // The same rule again nearby adds little.
    let mut recent: Vec<(&'static str, usize)> = Vec::new();
    for (at, sentence) in reading.sentences.iter().enumerate() {
        sum *= FADE;
        if sentence.ideas.is_empty() {
            continue;
        }
        let before =
            at.checked_sub(1).and_then(|at| reading.sentences.get(at)).map_or(IdeaSet::NONE, |other| other.ideas);
        for IntentRule { name, points, .. } in rules::matching(sentence.ideas, before) {
            let repeated = recent.iter().any(|(known, place)| known == name && at - place <= 6);
            let points = if repeated { points * 0.25 } else { *points };
            recent.retain(|(_, place)| at - place <= 6);
            recent.push((name, at));
            sum += points;
            if reading.hits.len() < 256 && points != 0.0 {
                let span = TextRange { start: sentence.start, end: sentence.end };
                reading.hits.push(RuleMatch { rule: name, span, points });
            }
        }
        sum = sum.max(0.0);
        reading.peak = reading.peak.max(sum);
    }
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
