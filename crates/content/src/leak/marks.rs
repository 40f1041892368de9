//! Marks: the positions in a text where a format may start, found in one pass.
//!
//! Takes bytes; gives positions of secrets whose shape and proof match. Promise: the work grows with the length of the
//! text and the number of marks in it, not with the number of formats; each shape reads a bounded window.

use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::Regex;

use super::bytes::{TokenRuns, at, before, cut, is_alnum, line};
use super::formats::{self, FormatProof, SecretFormat};
use super::plausibility::{is_placeholder, is_random};
use super::{checksums, spoken_passwords};

/// Shorter tokens are not tested unless a loud mark is near them.
pub(super) const SHORTEST: usize = 16;
/// How far before a long token its mark may be (`Bearer …`, `facebook key: …`).
const REACH: usize = 56;
/// How much of the text a shape can read, starting at its mark.
const WINDOW: usize = 2048;
/// How far around a match a required word is searched.
const NEAR: usize = 240;
/// More findings than this add nothing.
const ENOUGH: usize = 64;

/// The position of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeakMatch<'a> {
    pub(super) id: &'a str,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The marks of all formats.
#[derive(Debug)]
pub(super) struct FormatMarks {
    quiet: AhoCorasick,
    quiet_of: Vec<Vec<FormatRule>>,
    loud: AhoCorasick,
    loud_of: Vec<Vec<FormatRule>>,
}

/// A format with its shape, compiled when it is first needed. A test compiles all of them.
#[derive(Debug, Clone)]
struct FormatRule {
    format: &'static SecretFormat,
    shape: Arc<OnceLock<Option<Regex>>>,
}

/// The positions of login words, collected during the search.
pub(super) type LoginKeywords = Vec<usize>;

/// Stems of words near which a login may be, in the spellings that occur.
const LOGINS: [&str; 8] = ["pass", "Pass", "PASS", "pwd", "Pwd", "PWD", "ecret", "ECRET"];
/// The text after the scheme of an address.
const ADDRESS: &str = "://";

impl FormatMarks {
    /// Prepares the search. Gives `None` if the table of formats is broken, which a test excludes.
    pub(super) fn new() -> Option<Self> {
        let build = |marks: &[&str], kind| {
            AhoCorasick::builder().match_kind(MatchKind::Standard).kind(Some(kind)).build(marks).ok()
        };
        let (quiet_marks, quiet_of) = grouped(formats::all().filter(|format| !format.loud));
        let (mut loud_marks, loud_of) = grouped(formats::all().filter(|format| format.loud));
        loud_marks.extend(LOGINS);
        loud_marks.extend(spoken_passwords::WORDS);
        loud_marks.push(ADDRESS);
        Some(Self {
            quiet: build(&quiet_marks, AhoCorasickKind::ContiguousNFA)?,
            quiet_of,
            loud: build(&loud_marks, AhoCorasickKind::DFA)?,
            loud_of,
        })
    }

    /// Finds every position where a format matches near a long token; each token is also passed to `token`.
    pub(super) fn tokens(&self, text: &[u8], found: &mut Vec<LeakMatch<'static>>, mut token: impl FnMut(usize, usize)) {
        let mut done = 0;
        for (start, end) in TokenRuns::new(text, SHORTEST) {
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

    /// Finds every position where a loud format matches, and collects the positions of login words and addresses.
    /// Passwords after words of other languages are reported at once.
    pub(super) fn words(&self, text: &[u8], found: &mut Vec<LeakMatch<'static>>) -> (LoginKeywords, LoginKeywords) {
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
                None if pattern < stems + spoken_passwords::WORDS.len() => {
                    let place = spoken_passwords::password(text, hit.start(), hit.end());
                    found.extend(place.filter(|_| found.len() < ENOUGH));
                }
                None => addresses.push(hit.start()),
            }
        }
        (logins, addresses)
    }
}

/// Each mark once, with all formats that use it.
fn grouped(formats: impl Iterator<Item = &'static SecretFormat>) -> (Vec<&'static str>, Vec<Vec<FormatRule>>) {
    let (mut marks, mut of): (Vec<&'static str>, Vec<Vec<FormatRule>>) = Default::default();
    for format in formats {
        let rule = FormatRule { format, shape: Arc::default() };
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

impl FormatRule {
    /// Tests whether a format matches around a mark, and where.
    fn fit(&self, text: &[u8], mark: std::ops::Range<usize>) -> Option<LeakMatch<'static>> {
        let format = self.format;
        let bytes = cut(text, mark.start, mark.end);
        // A mark without punctuation also occurs inside words and other tokens: it counts only at their start.
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
            FormatProof::None => true,
            FormatProof::Real => !is_placeholder(body),
            FormatProof::Random => is_random(body),
            FormatProof::Sum(prefix) => checksums::crc_base62(whole, prefix) || is_random(body),
            FormatProof::Apart(words) => {
                let side = cut(text, start.saturating_sub(24), start).to_ascii_lowercase();
                !words.iter().any(|word| side.ends_with(word.as_bytes())) && !is_placeholder(body)
            }
            FormatProof::Pair => checksums::base64(body).is_some_and(|pair| pair.is_ascii() && pair.contains(&b':')),
            FormatProof::Token => checksums::is_jwt(whole),
            FormatProof::Near(words) => {
                let (from, to) = (start.saturating_sub(NEAR), end + NEAR);
                let around = cut(text, from, to).to_ascii_lowercase();
                words.iter().any(|word| memchr::memmem::find(&around, word.as_bytes()).is_some())
                    && !is_placeholder(body)
            }
        };
        holds.then_some(LeakMatch { id: format.id, start, end })
    }
}

/// Keys that are meant to be public: `pk_live_…`, `pk_test_…`.
pub(super) fn is_publishable(value: &[u8]) -> bool {
    value.starts_with(b"pk_live_") || value.starts_with(b"pk_test_")
}

/// The line around a position, in lower case, cut to a limit on both sides.
pub(super) fn around(text: &[u8], start: usize, end: usize, reach: usize) -> Vec<u8> {
    let (from, _) = line(text, start, reach);
    let (_, to) = line(text, end, reach);
    cut(text, from, to).to_ascii_lowercase()
}
