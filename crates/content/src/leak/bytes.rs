//! Safe reads on hostile bytes, without a way to read beyond either end.
//!
//! Takes arbitrary positions; gives zero or nothing beyond the text. Promise: no position panics, so the scanner needs
//! no bounds checks of its own.

/// The class of each of the 256 bytes; see the constants below.
static CLASS: [u8; 256] = classes();

/// Letters and digits.
const ALNUM: u8 = 1;
/// Bytes that may be inside a token: letters, digits and `_-+/=.~`.
const TOKEN: u8 = 2;
/// Digits.
const DIGIT: u8 = 4;
/// Digits and `abcdef` in either case.
const HEX: u8 = 8;
/// Letters, digits and `_`: the inside of a name.
const WORD: u8 = 16;

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the loop ends at 256, checked at compile time"
)]
const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        let mut class = 0;
        if byte.is_ascii_alphanumeric() {
            class |= ALNUM | TOKEN | WORD;
        }
        if byte.is_ascii_digit() {
            class |= DIGIT;
        }
        if byte.is_ascii_hexdigit() {
            class |= HEX;
        }
        if matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~') {
            class |= TOKEN;
        }
        if byte == b'_' {
            class |= WORD;
        }
        table[at] = class;
        at += 1;
    }
    table
}

#[expect(clippy::indexing_slicing, reason = "256 entries, and a byte cannot be more")]
#[inline]
fn class(byte: u8) -> u8 {
    CLASS[byte as usize]
}

/// The byte at a position, or zero beyond the end.
#[inline]
pub(super) fn at(text: &[u8], position: usize) -> u8 {
    text.get(position).copied().unwrap_or(0)
}

/// The byte before a position, or zero at the start.
#[inline]
pub(super) fn before(text: &[u8], position: usize) -> u8 {
    position.checked_sub(1).map_or(0, |position| at(text, position))
}

/// The bytes between two positions, limited to those that exist.
#[inline]
pub(super) fn cut(text: &[u8], from: usize, to: usize) -> &[u8] {
    let to = to.min(text.len());
    text.get(from.min(to)..to).unwrap_or_default()
}

#[inline]
pub(super) fn is_alnum(byte: u8) -> bool {
    class(byte) & ALNUM != 0
}

#[inline]
pub(super) fn is_token(byte: u8) -> bool {
    class(byte) & TOKEN != 0
}

#[inline]
pub(super) fn is_digit(byte: u8) -> bool {
    class(byte) & DIGIT != 0
}

#[inline]
pub(super) fn is_hex(byte: u8) -> bool {
    class(byte) & HEX != 0
}

#[inline]
pub(super) fn is_word(byte: u8) -> bool {
    class(byte) & WORD != 0
}

/// Stretches of at least `least` token bytes, as start and end.
///
/// Checks every `least`th byte first: ordinary words are shorter, so most of the text is never read.
#[derive(Debug)]
pub(super) struct TokenRuns<'a> {
    text: &'a [u8],
    next: usize,
    least: usize,
}

impl<'a> TokenRuns<'a> {
    pub(super) fn new(text: &'a [u8], least: usize) -> Self {
        Self { text, next: 0, least: least.max(1) }
    }
}

impl Iterator for TokenRuns<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        // INVARIANT: no run that is long enough starts before `self.next`.
        while let Some(window) = self.text.get(self.next..self.next.checked_add(self.least)?) {
            match window.iter().rposition(|byte| !is_token(*byte)) {
                Some(stranger) => self.next += stranger + 1,
                None => {
                    let start = self.next;
                    let mut end = start + self.least;
                    while is_token(at(self.text, end)) {
                        end += 1;
                    }
                    self.next = end;
                    return Some((start, end));
                }
            }
        }
        None
    }
}

/// The start and end of the line around a position; long lines are cut to `reach` on each side.
pub(super) fn line(text: &[u8], position: usize, reach: usize) -> (usize, usize) {
    let from = position.saturating_sub(reach);
    let start = memchr::memrchr(b'\n', cut(text, from, position)).map_or(from, |n| from + n + 1);
    let to = position.saturating_add(reach).min(text.len());
    let end = memchr::memchr(b'\n', cut(text, position, to)).map_or(to, |n| position + n);
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_long_stretches_and_nothing_else() {
        let text = b"short words, then a_very-long.token+here= and end abcdefghijkl";
        let found: Vec<&[u8]> = TokenRuns::new(text, 12).map(|(a, b)| cut(text, a, b)).collect();
        assert_eq!(found, [b"a_very-long.token+here=".as_slice(), b"abcdefghijkl"]);
        assert_eq!(TokenRuns::new(b"", 12).count(), 0);
        assert_eq!(TokenRuns::new(b"abcdefghijk", 12).count(), 0);
    }

    #[test]
    fn no_position_falls_off_the_end() {
        assert_eq!((at(b"a", 9), before(b"a", 0), before(b"a", 1)), (0, 0, b'a'));
        assert_eq!(cut(b"abc", 2, 99), b"c");
        assert_eq!(cut(b"abc", 99, 2), b"");
        assert_eq!(line(b"one\ntwo\nthree", 5, 100), (4, 7));
    }
}
