//! The reading copy: a text without the layout that separates or frames its words.
//!
//! Takes a folded text, gives a copy with one blank between words, without wraps, quote and comment marks, emphasis and line breaks
//! of markup, and the place of every byte of it in the original. Promise: linear; a text that has no such layout is not copied; what
//! separates sentences still separates them.

mod cells;
mod marks;

use std::borrow::Cow;

pub(super) use cells::columns;
use marks::LineBody;

use crate::finding::TextRange;

/// A text without layout, and where its parts stood.
#[derive(Debug)]
pub(super) struct FlatText<'a> {
    pub(super) text: Cow<'a, str>,
    /// The start of each copied stretch: in the copy, and in the original. Ordered by both.
    places: Vec<(u32, u32)>,
}

impl FlatText<'_> {
    /// The range of the original that a range of the copy stands for.
    pub(super) fn original(&self, range: TextRange) -> TextRange {
        let start = self.place(range.start);
        let end = if range.end > range.start { self.place(range.end - 1) + 1 } else { start };
        TextRange { start, end: end.max(start) }
    }

    fn place(&self, at: usize) -> usize {
        let after = self.places.partition_point(|(copied, _)| *copied as usize <= at);
        let Some((copied, original)) = after.checked_sub(1).and_then(|before| self.places.get(before)) else {
            return at;
        };
        *original as usize + (at - *copied as usize)
    }
}

/// The longest text that is copied; the places are counted in 32 bits.
const LONGEST: usize = u32::MAX as usize;
/// Lengths of a line that was wrapped, and the width below which its next word would have fitted.
const WRAPPED: std::ops::RangeInclusive<usize> = 40..=110;
const WIDTH: usize = 56;

/// Removes the layout of a text.
pub(super) fn flatten(text: &str) -> FlatText<'_> {
    if text.len() >= LONGEST || !has_layout(text.as_bytes()) {
        return FlatText { text: Cow::Borrowed(text), places: Vec::new() };
    }
    let mut copy = FlatCopy { source: text, out: String::with_capacity(text.len()), places: Vec::new() };
    let mut before: Option<LineBody> = None;
    let mut parted = false;
    for line in marks::bodies(text) {
        if line.is_empty() {
            parted |= !line.is_frame;
            continue;
        }
        if let Some(before) = &before {
            match seam(text, before, &line, parted) {
                LineSeam::Break => copy.put('\n', line.start),
                LineSeam::Blank => copy.put(' ', line.start),
                LineSeam::Hyphen => {
                    copy.out.pop();
                }
            }
        }
        copy.line(&line);
        parted = false;
        before = Some(line);
    }
    FlatText { text: Cow::Owned(copy.out), places: copy.places }
}

/// A text without the signs of the added lines of a diff, which decoders would take for letters.
pub(super) fn without_diff_signs(text: &str) -> Cow<'_, str> {
    let is_diff = memchr::memmem::find(text.as_bytes(), b"@@ ").is_some();
    if is_diff { Cow::Owned(text.replace("\n+", "\n")) } else { Cow::Borrowed(text) }
}

/// Whether there is anything to remove: one test for each byte.
fn has_layout(bytes: &[u8]) -> bool {
    let mut before = 0_u8;
    bytes.iter().any(|&byte| {
        let pair = (before, byte);
        before = byte;
        matches!(byte, b'\t' | b'\r' | b'*' | b'`' | b'~' | b'<' | b'_')
            || matches!(pair, (b' ' | b'\n', b' ') | (b' ', b'\n') | (b']', b'(') | (b',' | b';', b'"') | (b'"', b','))
            || (pair.0 == b'\n' && !byte.is_ascii_uppercase() && byte != b'\n')
            || (pair.1 == b'\n' && pair.0 != b'\n' && !matches!(pair.0, b'.' | b'!' | b'?' | b':'))
    }) || matches!(bytes.first(), Some(b'>' | b'/' | b'#' | b'-' | b';' | b'%' | b'+' | b'\'' | b'!' | b'[' | b'"'))
}

/// What stands between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineSeam {
    Break,
    Blank,
    /// A word was divided: its hyphen goes.
    Hyphen,
}

/// Decides whether a line continues the one before.
fn seam(text: &str, before: &LineBody, line: &LineBody, parted: bool) -> LineSeam {
    if line.is_caption && before.is_caption {
        return LineSeam::Blank;
    }
    if parted || line.opens {
        return LineSeam::Break;
    }
    let (said, next) = (body(text, before), body(text, line));
    let lower = next.starts_with(|c: char| c.is_ascii_lowercase() || (!c.is_ascii() && c.is_lowercase()));
    if lower && said.ends_with('-') && said.as_bytes().iter().rev().nth(1).is_some_and(u8::is_ascii_alphabetic) {
        return LineSeam::Hyphen;
    }
    if lower || (line.is_string && before.is_string) {
        return LineSeam::Blank;
    }
    let word = next.bytes().take_while(|byte| !byte.is_ascii_whitespace()).take(24).count();
    let wrapped = WRAPPED.contains(&said.len()) && said.len() + 1 + word > WIDTH && next.starts_with(opens_word);
    if wrapped && !said.ends_with(['|', '}', '{', ';', '>']) { LineSeam::Blank } else { LineSeam::Break }
}

/// Whether a word, a number or a quotation begins with this character.
fn opens_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '"' | '\'' | '(' | '[' | '@')
}

fn body<'a>(text: &'a str, line: &LineBody) -> &'a str {
    text.get(line.start..line.end).unwrap_or_default()
}

/// The copy in progress.
struct FlatCopy<'a> {
    source: &'a str,
    out: String,
    places: Vec<(u32, u32)>,
}

/// The bytes inside a line that may be layout.
const fn is_special(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'*' | b'_' | b'`' | b'~' | b'<' | b'(' | b'"')
}

impl FlatCopy<'_> {
    /// Writes a character that stands for layout at this place.
    fn put(&mut self, c: char, original: usize) {
        if (c == ' ' && self.out.ends_with([' ', '\n'])) || (c == '\n' && self.out.ends_with('\n')) {
            return;
        }
        self.mark(original);
        self.out.push(c);
    }

    fn mark(&mut self, original: usize) {
        let place = (self.out.len() as u64, original as u64);
        if let (Ok(copied), Ok(original)) = (u32::try_from(place.0), u32::try_from(place.1)) {
            self.places.push((copied, original));
        }
    }

    fn copy(&mut self, start: usize, end: usize) {
        if let Some(part) = self.source.get(start..end).filter(|part| !part.is_empty()) {
            self.mark(start);
            self.out.push_str(part);
        }
    }

    /// Copies the body of a line without the layout inside it.
    fn line(&mut self, line: &LineBody) {
        let bytes = self.source.as_bytes();
        let (mut from, mut at) = (line.start, line.start);
        // The quote that ends the title of a link.
        let mut title = None;
        while at < line.end {
            let Some(&byte) = bytes.get(at) else { break };
            if !is_special(byte) {
                at += 1;
                continue;
            }
            let rest = bytes.get(at..line.end).unwrap_or_default();
            let before = if at > line.start { bytes.get(at - 1).copied() } else { None };
            let (skip, stands) = match byte {
                b' ' | b'\t' => match rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count() {
                    1 if byte == b' ' => (0, None),
                    blanks => (blanks, Some(' ')),
                },
                b'<' => cells::tag(rest),
                b'(' if before == Some(b']') => {
                    let (skip, stands, end) = cells::link_title(rest);
                    title = end.map(|end| at + end);
                    // The address stays; what follows it is a sentence of its own.
                    self.copy(from, at + skip.0);
                    (from, at) = (at + skip.0, at + skip.0);
                    (skip.1, stands)
                }
                b'"' if title == Some(at) => (1, Some('\n')),
                b'"' => cells::quote(rest, before),
                b'(' => (0, None),
                _ => (marks::emphasis(rest, before), None),
            };
            if skip == 0 {
                at = (at + 1).min(line.end);
                continue;
            }
            self.copy(from, at);
            if let Some(c) = stands {
                let next = rest.get(skip..).and_then(|rest| rest.iter().find(|byte| **byte != b' '));
                // A line break of markup inside a sentence is a blank.
                let inside = c == '\r' && (next.is_some_and(u8::is_ascii_lowercase) || !self.ends_sentence());
                self.put(
                    if inside {
                        ' '
                    } else if c == '\r' {
                        '\n'
                    } else {
                        c
                    },
                    at,
                );
            }
            at += skip;
            from = at;
        }
        self.copy(from, line.end);
    }

    fn ends_sentence(&self) -> bool {
        self.out.trim_end().ends_with(['.', '!', '?', ':', '|'])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn reads(text: &str, flat: &str) {
        assert_eq!(flatten(text).text.as_ref(), flat, "{text:?}");
    }

    #[test]
    fn layout_goes_and_sentences_stay() {
        reads("one  two\tthree", "one two three");
        reads("ig**nor**e *all* `this` _now_ but snake_case", "ignore all this now but snake_case");
        reads("Hello<br>all<br/>of you.<br>Bye", "Hello all of you.\nBye");
        reads("> > one two\n> three\n>\n> Four", "one two three\nFour");
        reads("// one two\n// three", "one two three");
        reads("/**\n * one two\n * three\n */", "one two three");
        reads("# one two\n# three", "one two three");
        reads("-- one two\n-- three\n;; four\n% five", "one two three four five");
        reads("+one two\n+three", "one two three");
        reads("- One\n- Two", "- One\n- Two");
        reads("a: >-\n  one two\n  three", "a: >- one two three");
        reads("x = \"One two \" +\n    \"Three four\"", "x = \"One two Three four");
        reads("see [it](http://a.test \"One two\") there", "see [it](http://a.test\nOne two\n) there");
    }

    #[test]
    fn captions_and_chats_are_one_text() {
        reads(
            "1\n00:00:01,000 --> 00:00:04,000\nOne two\nThree\n\n2\n00:00:05,000 --> 00:00:09,000\nFour",
            "One two Three Four",
        );
        reads("[12:01] Ana: one two\n[12:02] Ana: three", "one two three");
        reads("2024-05-01 12:31 - Bob: one two\n2024-05-01 12:32 - Bob: three", "one two three");
    }

    #[test]
    fn a_wrapped_line_goes_on_and_a_short_one_does_not() {
        let wrapped = "This line was wrapped where the next word did not fit any\nAI helper knows it.";
        reads(wrapped, &wrapped.replace('\n', " "));
        reads("Short\nAnother", "Short\nAnother");
    }

    #[test]
    fn every_word_of_the_copy_is_found_in_the_original() {
        let text = "> one\ttwo\n> **th**ree\n\n\u{e9}t\u{e9}  four";
        let flat = flatten(text);
        for word in ["one", "two", "four", "\u{e9}t\u{e9}"] {
            let start = flat.text.find(word).unwrap();
            let place = flat.original(TextRange { start, end: start + word.len() });
            assert_eq!(text.get(place.start..place.end), Some(word));
        }
        let start = flat.text.find("three").unwrap();
        let place = flat.original(TextRange { start, end: start + 5 });
        assert_eq!(text.get(place.start..place.end), Some("th**ree"));
    }

    proptest! {
        #[test]
        fn no_letter_is_lost_or_changed(text in "[a-z]{0,9}([a-zA-Z0-9 \t\n*_`~<>br/#\"\\[\\](),;|é%+-]){0,90}") {
            let flat = flatten(&text);
            for (at, c) in flat.text.char_indices().filter(|(_, c)| c.is_alphanumeric()) {
                let place = flat.original(TextRange { start: at, end: at + c.len_utf8() });
                let letter = c.to_string();
                prop_assert_eq!(text.get(place.start..place.end), Some(letter.as_str()));
            }
        }
    }
}
