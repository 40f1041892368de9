//! Marks: where in a text a format may start, found in one pass.
//!
//! Takes bytes; gives places of secrets whose shape and proof hold. Promise: work grows with the length of
//! the text and the number of marks in it, not with the number of formats; each shape looks at a bounded window.

use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::Regex;

use super::bytes::{Runs, at, before, cut, is_alnum, line};
use super::doubt::{is_placeholder, is_random};
use super::formats::{self, Format, Proof};
use super::{spoken, sums};

/// Tokens shorter than this are not looked at unless a loud mark stands by them.
pub(super) const SHORTEST: usize = 16;
/// How far before a long token its mark may stand (`Bearer …`, `facebook key: …`).
const REACH: usize = 56;
/// How much of the text a shape sees from its mark on.
const WINDOW: usize = 2048;
/// How far around a match a word that must be near is looked for.
const NEAR: usize = 240;
/// More findings than this say nothing new.
const ENOUGH: usize = 64;

/// Where something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) id: &'a str,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// All marks of all formats.
#[derive(Debug)]
pub(super) struct Marks {
    quiet: AhoCorasick,
    quiet_of: Vec<Vec<Rule>>,
    loud: AhoCorasick,
    loud_of: Vec<Vec<Rule>>,
}

/// A format with its shape, compiled when it is first needed. A test compiles all of them.
#[derive(Debug, Clone)]
struct Rule {
    format: &'static Format,
    shape: Arc<OnceLock<Option<Regex>>>,
}

/// The places where words of logins stand, found on the way.
pub(super) type Keywords = Vec<usize>;

/// Stems of words whose neighbours may be a login, as they are written.
const LOGINS: [&str; 8] = ["pass", "Pass", "PASS", "pwd", "Pwd", "PWD", "ecret", "ECRET"];
/// What an address starts with after its scheme.
const ADDRESS: &str = "://";

impl Marks {
    /// Prepares the search. Gives nothing if the table of formats cannot be used, which a test rules out.
    pub(super) fn new() -> Option<Self> {
        let build = |marks: &[&str], kind| {
            AhoCorasick::builder().match_kind(MatchKind::Standard).kind(Some(kind)).build(marks).ok()
        };
        let (quiet_marks, quiet_of) = grouped(formats::all().filter(|format| !format.loud));
        let (mut loud_marks, loud_of) = grouped(formats::all().filter(|format| format.loud));
        loud_marks.extend(LOGINS);
        loud_marks.extend(spoken::WORDS);
        loud_marks.push(ADDRESS);
        Some(Self {
            quiet: build(&quiet_marks, AhoCorasickKind::ContiguousNFA)?,
            quiet_of,
            loud: build(&loud_marks, AhoCorasickKind::DFA)?,
            loud_of,
        })
    }

    /// Every place where a format fits, near a long token; each token is also handed to `token`.
    pub(super) fn tokens(&self, text: &[u8], found: &mut Vec<Place<'static>>, mut token: impl FnMut(usize, usize)) {
        let mut done = 0;
        for (start, end) in Runs::new(text, SHORTEST) {
            let from = start.saturating_sub(REACH).max(done);
            done = end;
            for hit in self.quiet.find_overlapping_iter(cut(text, from, end)) {
                for rule in self.quiet_of.get(hit.pattern().as_usize()).into_iter().flatten() {
                    let mark = from + hit.start()..from + hit.end();
                    if let Some(place) = rule.fit(text, mark).filter(|_| found.len() < ENOUGH) {
                        found.push(place);
                    }
                }
            }
            token(start, end);
        }
    }

    /// Every place where a loud format fits; and where words of logins and addresses stand. What words of other languages
    /// guard is found at once.
    pub(super) fn words(&self, text: &[u8], found: &mut Vec<Place<'static>>) -> (Keywords, Keywords) {
        let (mut logins, mut addresses) = (Vec::new(), Vec::new());
        let (formats, stems) = (self.loud_of.len(), self.loud_of.len() + LOGINS.len());
        for hit in self.loud.find_overlapping_iter(text) {
            let pattern = hit.pattern().as_usize();
            match self.loud_of.get(pattern) {
                Some(rules) => {
                    for rule in rules {
                        if let Some(place) = rule.fit(text, hit.start()..hit.end()).filter(|_| found.len() < ENOUGH) {
                            found.push(place);
                        }
                    }
                }
                None if (formats..stems).contains(&pattern) => logins.push(hit.end()),
                None if pattern < stems + spoken::WORDS.len() => {
                    let place = spoken::password(text, hit.start(), hit.end());
                    found.extend(place.filter(|_| found.len() < ENOUGH));
                }
                None => addresses.push(hit.start()),
            }
        }
        (logins, addresses)
    }
}

/// Each mark once, with all formats it stands for.
fn grouped(formats: impl Iterator<Item = &'static Format>) -> (Vec<&'static str>, Vec<Vec<Rule>>) {
    let (mut marks, mut of): (Vec<&'static str>, Vec<Vec<Rule>>) = Default::default();
    for format in formats {
        let rule = Rule { format, shape: Arc::default() };
        for mark in format.marks {
            match marks.iter().position(|known| known == mark).and_then(|at| of.get_mut(at)) {
                Some(known) => known.push(rule.clone()),
                None => {
                    marks.push(mark);
                    of.push(vec![rule.clone()]);
                }
            }
        }
    }
    (marks, of)
}

impl Rule {
    /// Whether a format fits around a mark, and where.
    fn fit(&self, text: &[u8], mark: std::ops::Range<usize>) -> Option<Place<'static>> {
        let format = self.format;
        let bytes = cut(text, mark.start, mark.end);
        // A mark without punctuation also stands inside words and other tokens: only its start counts.
        let plain = bytes.iter().all(|byte| is_alnum(*byte));
        if format.back == 0 && (plain || bytes.len() < 4) && is_alnum(before(text, mark.start)) {
            return None;
        }
        let shape = self.shape.get_or_init(|| format.compile()).as_ref()?;
        let from = mark.start.saturating_sub(format.back);
        let window = cut(text, from, mark.start + WINDOW);
        let span = shape.find_iter(window).find(|span| from + span.end() > mark.start)?;
        let (start, end) = (from + span.start(), from + span.end());
        let joined = |inside: u8, outside: u8| is_alnum(inside) && is_alnum(outside);
        let open_start = format.back > 0 && joined(at(text, start), before(text, start));
        if start > mark.start || open_start || joined(before(text, end), at(text, end)) {
            return None;
        }
        let whole = cut(text, start, end);
        if is_publishable(cut(text, start.saturating_sub(3), end)) || is_publishable(whole) {
            return None;
        }
        let body = if start == mark.start { cut(text, mark.end, end) } else { whole };
        let holds = match format.proof {
            Proof::None => true,
            Proof::Real => !is_placeholder(body),
            Proof::Random => is_random(body),
            Proof::Sum(prefix) => sums::crc_base62(whole, prefix) || is_random(body),
            Proof::Apart(words) => {
                let side = cut(text, start.saturating_sub(24), start).to_ascii_lowercase();
                !words.iter().any(|word| side.ends_with(word.as_bytes())) && !is_placeholder(body)
            }
            Proof::Pair => sums::base64(body).is_some_and(|pair| pair.is_ascii() && pair.contains(&b':')),
            Proof::Token => sums::is_jwt(whole),
            Proof::Near(words) => {
                let (from, to) = (start.saturating_sub(NEAR), end + NEAR);
                let around = cut(text, from, to).to_ascii_lowercase();
                words.iter().any(|word| memchr::memmem::find(&around, word.as_bytes()).is_some())
                    && !is_placeholder(body)
            }
        };
        holds.then_some(Place { id: format.id, start, end })
    }
}

/// Keys that are meant to stand in every page: `pk_live_…`, `pk_test_…`.
pub(super) fn is_publishable(value: &[u8]) -> bool {
    value.starts_with(b"pk_live_") || value.starts_with(b"pk_test_")
}

/// The line around a place, in lower case, cut to a reach on both sides.
pub(super) fn around(text: &[u8], start: usize, end: usize, reach: usize) -> Vec<u8> {
    let (from, _) = line(text, start, reach);
    let (_, to) = line(text, end, reach);
    cut(text, from, to).to_ascii_lowercase()
}
