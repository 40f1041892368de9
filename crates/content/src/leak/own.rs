//! What the operator says must stay: identifiers of the owner, terms, patterns.
//!
//! Takes the lists of the configuration; gives places with the id of what matched. Promise: patterns run in
//! linear time and were compiled before anything is served; an identifier is found whatever its case.

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};

use super::Settings;
use super::bytes::{at, before, is_alnum, is_digit};
use super::marks::Place;

/// How large a compiled pattern may be.
const LARGEST: usize = 1 << 20;

/// The operator's lists, prepared.
#[derive(Debug)]
pub(super) struct Own {
    words: Option<AhoCorasick>,
    ids: Vec<&'static str>,
    numbers: Vec<Vec<u8>>,
    patterns: Vec<(String, Regex)>,
}

/// A pattern of the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern `{id}` cannot be used: {why}")]
pub struct BadPattern {
    /// Its id.
    pub id: String,
    /// Why not, in one line.
    pub why: String,
}

impl Own {
    pub(super) fn new(settings: &Settings) -> Result<Self, BadPattern> {
        let mut patterns = Vec::new();
        for (id, pattern) in &settings.patterns {
            patterns.push((id.clone(), compile(id, pattern)?));
        }
        let (mut words, mut ids) = (Vec::new(), Vec::new());
        for (id, list) in [("own.identifier", &settings.own), ("own.term", &settings.terms)] {
            for word in list.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
                words.push(word.to_owned());
                ids.push(id);
            }
        }
        let numbers = settings.own.iter().map(|word| digits(word.as_bytes())).filter(|number| number.len() >= 7);
        let search = AhoCorasick::builder().ascii_case_insensitive(true).build(&words).ok();
        let words = search.filter(|_| !words.is_empty());
        Ok(Self { words, ids, numbers: numbers.map(|number| last(&number)).collect(), patterns })
    }

    /// Whether digits are a number of the owner's, however it is written.
    pub(super) fn has_number(&self, text: &[u8]) -> bool {
        !self.numbers.is_empty() && {
            let number = last(&digits(text));
            self.numbers.contains(&number)
        }
    }

    pub(super) fn look<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = Place<'a>> {
        let words =
            self.words.iter().flat_map(move |search| search.find_overlapping_iter(text)).filter_map(move |hit| {
                let (start, end) = (hit.start(), hit.end());
                let joined = |inside: u8, outside: u8| is_alnum(inside) && is_alnum(outside);
                let whole = !joined(at(text, start), before(text, start)) && !joined(before(text, end), at(text, end));
                let id = self.ids.get(hit.pattern().as_usize())?;
                whole.then_some(Place { id, start, end })
            });
        let patterns = self.patterns.iter().filter_map(move |(id, pattern)| {
            pattern.find(text).map(|span| Place { id, start: span.start(), end: span.end() })
        });
        words.chain(patterns)
    }
}

/// Says whether a pattern can be used.
///
/// # Errors
/// When it is no pattern, too large, or would stop everything.
pub fn check_pattern(id: &str, pattern: &str) -> Result<(), BadPattern> {
    compile(id, pattern).map(drop)
}

fn compile(id: &str, pattern: &str) -> Result<Regex, BadPattern> {
    let bad = |why: &str| BadPattern { id: id.to_owned(), why: why.trim().to_owned() };
    let compiled = RegexBuilder::new(pattern).size_limit(LARGEST).build();
    let compiled = compiled.map_err(|error| bad(error.to_string().lines().last().unwrap_or_default()))?;
    if compiled.is_match(b"") {
        return Err(bad("it fits the empty text, so it would stop everything"));
    }
    Ok(compiled)
}

fn digits(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| is_digit(*byte)).collect()
}

/// The last nine digits: the same with and without the prefix of a country.
fn last(number: &[u8]) -> Vec<u8> {
    number.iter().rev().take(9).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(own: &[&str], terms: &[&str], patterns: &[(&str, &str)]) -> Result<Own, BadPattern> {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let patterns = patterns.iter().map(|(id, pattern)| ((*id).to_owned(), (*pattern).to_owned())).collect();
        Own::new(&Settings { own: list(own), terms: list(terms), patterns, ..Settings::default() })
    }

    #[test]
    fn words_are_found_whole_and_in_any_case() {
        let own = own(&["Ana Brandt"], &["Projekt Falke"], &[("ticket", r"FAL-\d+")]).unwrap();
        let ids = |text: &'static str| own.look(text.as_bytes()).map(|place| place.id.to_owned()).collect::<Vec<_>>();
        assert_eq!(ids("ask ANA BRANDT about projekt falke, FAL-12"), ["own.identifier", "own.term", "ticket"]);
        assert_eq!(ids("Johana Brandts book"), Vec::<String>::new());
    }

    #[test]
    fn a_number_of_the_owner_is_known_in_any_notation() {
        let own = own(&["+49 170 1234567"], &[], &[]).unwrap();
        assert!(own.has_number(b"0170-1234567") && !own.has_number(b"0170-1234568"));
    }

    #[test]
    fn a_pattern_that_is_broken_or_matches_everything_is_refused() {
        assert!(own(&[], &[], &[("open", "(")]).is_err());
        assert!(own(&[], &[], &[("all", ".*")]).is_err());
    }
}
