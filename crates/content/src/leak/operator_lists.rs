//! The operator's own protected data: identifiers of the owner, terms, patterns.
//!
//! Takes the lists of the configuration; gives positions with the id of the match. Promise: patterns run in linear time
//! and were compiled before the gateway serves; an identifier is found whatever its case, its accents and the blanks
//! between its words; a number is found however its digits are grouped.

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};
use unicode_normalization::char::decompose_canonical;

use super::bytes::is_digit;
use super::marks::LeakMatch;
use super::{ENOUGH, LeakConfig};

/// The largest size of a compiled pattern.
const LARGEST: usize = 1 << 20;
/// The length of a telephone number: its last nine digits are the same with and without the country prefix, and only
/// these are compared.
const TELEPHONE: std::ops::RangeInclusive<usize> = 9..=15;
const LAST: usize = 9;
/// Shorter numbers are not normalized.
const SHORTEST: usize = 7;
/// Most digits of one number.
const DIGITS: usize = 32;
/// Most signs between two groups of digits.
const GAP: usize = 3;

/// The operator's lists, prepared for search.
#[derive(Debug)]
pub(super) struct OperatorLists {
    words: Option<AhoCorasick>,
    ids: Vec<&'static str>,
    /// The digits of the owner's numbers; for telephone numbers only the last ones.
    numbers: Vec<Vec<u8>>,
    patterns: Vec<(String, Regex)>,
}

/// A pattern of the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern `{id}` cannot be used: {why}")]
pub struct LeakPatternError {
    /// The id of the pattern.
    pub id: String,
    /// Why it cannot be used, in one line.
    pub why: String,
}

impl OperatorLists {
    pub(super) fn new(settings: &LeakConfig) -> Result<Self, LeakPatternError> {
        let mut patterns = Vec::new();
        for (id, pattern) in &settings.patterns {
            patterns.push((id.clone(), compile(id, pattern)?));
        }
        let (mut words, mut ids) = (Vec::new(), Vec::new());
        for (id, list) in [("own.identifier", &settings.own), ("own.term", &settings.terms)] {
            for word in list.iter().map(|word| normalise(word).trim().to_owned()).filter(|word| !word.is_empty()) {
                words.push(word);
                ids.push(id);
            }
        }
        let numbers = settings.own.iter().filter(|word| !word.contains(char::is_alphabetic)).filter_map(|word| {
            let digits: Vec<u8> = word.bytes().filter(|byte| is_digit(*byte)).collect();
            let from = if TELEPHONE.contains(&digits.len()) { digits.len() - LAST } else { 0 };
            (digits.len() >= SHORTEST).then(|| digits.get(from..).unwrap_or_default().to_vec())
        });
        let numbers = numbers.collect();
        let search = AhoCorasick::new(&words).ok();
        Ok(Self { words: search.filter(|_| !words.is_empty()), ids, numbers, patterns })
    }

    /// Finds the operator's protected data in a text, the first few of each kind.
    pub(super) fn look<'a>(&'a self, text: &'a [u8]) -> Vec<LeakMatch<'a>> {
        let mut found = Vec::new();
        if let Some(search) = &self.words {
            self.words(search, &normalise(&String::from_utf8_lossy(text)), &mut found);
        }
        if !self.numbers.is_empty() {
            self.numbers(text, &mut found);
        }
        found.extend(self.patterns.iter().filter_map(|(id, pattern)| {
            pattern.find(text).map(|span| LeakMatch { id, start: span.start(), end: span.end() })
        }));
        found
    }

    fn words(&self, search: &AhoCorasick, text: &str, found: &mut Vec<LeakMatch<'_>>) {
        for hit in search.find_overlapping_iter(text) {
            let (start, end) = (hit.start(), hit.end());
            let sides =
                |at: usize| text.split_at_checked(at).map(|(one, two)| (one.chars().next_back(), two.chars().next()));
            let cut_through = |at: usize| {
                sides(at).is_some_and(|(one, two)| one.is_some_and(is_lettered) && two.is_some_and(is_lettered))
            };
            let id = self.ids.get(hit.pattern().as_usize()).filter(|_| !cut_through(start) && !cut_through(end));
            found.extend(id.map(|id| LeakMatch { id, start, end }));
            if found.len() >= ENOUGH {
                return;
            }
        }
    }

    /// Searches for the owner's numbers among groups of digits with a few signs between them.
    fn numbers(&self, text: &[u8], found: &mut Vec<LeakMatch<'_>>) {
        let mut place = 0;
        while let Some(offset) = text.get(place..).and_then(|rest| rest.iter().position(|byte| is_digit(*byte))) {
            let start = place + offset;
            let (mut digits, mut groups) = (Vec::with_capacity(DIGITS), Vec::new());
            place = start;
            loop {
                groups.push(digits.len());
                while let Some(digit) = text.get(place).filter(|byte| is_digit(**byte)) {
                    // A longer row of digits is not a personal number: its start is dropped.
                    if digits.len() >= DIGITS {
                        digits.clear();
                        groups.clear();
                    }
                    digits.push(*digit);
                    place += 1;
                }
                if self.numbers.iter().any(|number| is_whole(number, &digits, &groups)) && found.len() < ENOUGH {
                    found.push(LeakMatch { id: "own.identifier", start, end: place });
                }
                let gap = text.get(place..).unwrap_or_default().iter().take(GAP + 1).take_while(|byte| is_sign(**byte));
                let gap = gap.count();
                if gap == 0 || gap > GAP || !text.get(place + gap).is_some_and(|byte| is_digit(*byte)) {
                    break;
                }
                place += gap;
            }
        }
    }
}

/// Whether digits end with a number: with the last digits of a telephone number, or with another complete number that
/// begins a group.
fn is_whole(number: &[u8], digits: &[u8], groups: &[usize]) -> bool {
    digits.ends_with(number) && (number.len() == LAST || groups.contains(&(digits.len() - number.len())))
}

/// Bytes that people put between the digits of a number, including those of wide blanks and dashes.
fn is_sign(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'-' | b'.' | b'(' | b')' | b'/' | b'\t' | b'\n' | b'\r' | 0xC2 | 0xA0 | 0xE2 | 0x80 | 0x8B
            ..=0x93 | 0xAF
    )
}

/// Letters and digits of scripts that separate words.
fn is_lettered(c: char) -> bool {
    c.is_alphanumeric() && !matches!(c, '\u{e00}'..='\u{eff}' | '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// The normalized text: in lower case, without accents, with one blank between words.
fn normalise(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut push = |c: char| match c {
        _ if c.is_whitespace() || matches!(c, '-' | '_' | '\u{2010}'..='\u{2015}') => {
            if !out.ends_with(' ') {
                out.push(' ');
            }
        }
        '\u{300}'..='\u{36f}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => {}
        'ß' | 'ẞ' => out.push_str("ss"),
        'A'..='Z' => out.push(c.to_ascii_lowercase()),
        _ if c.is_ascii() => out.push(c),
        _ => out.extend(c.to_lowercase().filter(|c| !matches!(c, '\u{300}'..='\u{36f}'))),
    };
    for c in text.chars() {
        if c.is_ascii() {
            push(c);
        } else {
            decompose_canonical(c, &mut push);
        }
    }
    out
}

/// Checks whether a pattern can be used.
///
/// # Errors
/// When it is not a valid pattern, is too large, or would match everything.
pub fn check_pattern(id: &str, pattern: &str) -> Result<(), LeakPatternError> {
    compile(id, pattern).map(drop)
}

fn compile(id: &str, pattern: &str) -> Result<Regex, LeakPatternError> {
    let bad = |why: &str| LeakPatternError { id: id.to_owned(), why: why.trim().to_owned() };
    let compiled = RegexBuilder::new(pattern).size_limit(LARGEST).build();
    let compiled = compiled.map_err(|error| bad(error.to_string().lines().last().unwrap_or_default()))?;
    if compiled.is_match(b"") {
        return Err(bad("it matches the empty text, so it would block everything"));
    }
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(own: &[&str], terms: &[&str], patterns: &[(&str, &str)]) -> Result<OperatorLists, LeakPatternError> {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let patterns = patterns.iter().map(|(id, pattern)| ((*id).to_owned(), (*pattern).to_owned())).collect();
        OperatorLists::new(&LeakConfig { own: list(own), terms: list(terms), patterns, ..LeakConfig::default() })
    }

    fn ids(own: &OperatorLists, text: &str) -> Vec<String> {
        own.look(text.as_bytes()).iter().map(|place| place.id.to_owned()).collect()
    }

    #[test]
    fn words_are_found_whole_and_in_any_case() {
        let own = own(&["Ana Brandt"], &["Projekt Falke"], &[("ticket", r"FAL-\d+")]).unwrap();
        let found = ids(&own, "ask ANA BRANDT about projekt falke, FAL-12");
        assert_eq!(found, ["own.identifier", "own.term", "ticket"]);
        assert_eq!(ids(&own, "Johana Brandts book"), Vec::<String>::new());
    }

    #[test]
    fn whatever_parts_two_words_they_are_found() {
        let own = own(&["Ana Brandt"], &["projekt falke"], &[]).unwrap();
        for text in ["Ana\nBrandt", "ana  brandt", "ANA\u{a0}BRANDT", "> Ana\r\n\tBrandt,", "Ana-Brandt"] {
            assert_eq!(ids(&own, text), ["own.identifier"], "{text:?}");
        }
        assert_eq!(ids(&own, "das Projekt\nFalke geht los"), ["own.term"]);
        assert_eq!(ids(&own, "Ana, Brandt"), Vec::<String>::new());
    }

    #[test]
    fn letters_beyond_ascii_have_cases_too() {
        let own = own(&["Jörg Großmann", "Žofie Čapková"], &["Überflieger", "小明"], &[]).unwrap();
        for text in ["JÖRG GROSSMANN", "jo\u{308}rg großmann", "jorg grossmann", "ŽOFIE ČAPKOVÁ"] {
            assert_eq!(ids(&own, text), ["own.identifier"], "{text}");
        }
        assert_eq!(ids(&own, "der ÜBERFLIEGER"), ["own.term"]);
        assert_eq!(ids(&own, "我是小明的朋友"), ["own.term"]);
        assert_eq!(ids(&own, "Überfliegerin"), Vec::<String>::new());
    }

    #[test]
    fn a_number_of_the_owner_is_known_in_any_notation() {
        let own = own(&["+49 170 1234567", "Musterweg 12, 12345 Ort"], &[], &[]).unwrap();
        for text in [
            "0170 1234567",
            "0170/1234567",
            "0049 170 1234567",
            "0049 (0)170 12 34 567",
            "+49 (0) 170 - 123 45 67",
            "0170.1234567, ask at 9",
            "01701234567",
            "0170\u{a0}1234567",
            "+491701234567 12",
        ] {
            assert_eq!(ids(&own, text), ["own.identifier"], "{text}");
        }
        for text in ["0170-1234568", "01701234567890", "on 12.12.345", "1212345"] {
            assert_eq!(ids(&own, text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_pattern_that_is_broken_or_matches_everything_is_refused() {
        assert!(own(&[], &[], &[("open", "(")]).is_err());
        assert!(own(&[], &[], &[("all", ".*")]).is_err());
    }
}
