//! Folding: the text that remains once every escape is decoded and everything invisible is removed.
//!
//! Takes bytes; gives fewer bytes, and the position of each in the source. Percent signs, escapes of JSON and C,
//! quoted-printable and entities are decoded; blanks, control characters, invisible characters and accents are dropped;
//! lookalike letters become plain ones. Promise: one pass, never longer than its source except for Unicode
//! compatibility forms, and the same result for a secret and for a text that holds it.

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

use super::bytes::{at, cut};
use super::decoded::{entity, is_invisible, unhex};

/// Decoders that can be left out: their input may also be literal text (`token=de…` is not quoted-printable).
const PERCENT: u8 = 1;
const ESCAPES: u8 = 2;
const QUOTED: u8 = 4;
/// The sets of decoders that are left out, one after the other.
const LEFT_OUT: [u8; 5] = [0, QUOTED, PERCENT, QUOTED | PERCENT, ESCAPES];
/// How often a text is folded again: the number of nested encodings.
const ROUNDS: usize = 4;

/// A folded text. Each byte knows the start and end of its source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FoldedBytes {
    pub(super) bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
}

impl FoldedBytes {
    /// The position in the source of a stretch of the folded text.
    pub(super) fn source(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let (from, _) = self.places.get(start)?;
        let (_, to) = self.places.get(end.checked_sub(1)?)?;
        Some((usize::try_from(*from).ok()?, usize::try_from(*to).ok()?))
    }

    /// The text folded once more.
    fn again(&self, left_out: u8) -> Self {
        let mut next = mapped(&self.bytes, left_out);
        for place in &mut next.places {
            let source = |at: u32| self.places.get(usize::try_from(at).unwrap_or(usize::MAX)).copied();
            let (first, last) = (source(place.0), source(place.1.saturating_sub(1)));
            *place = (first.map_or(0, |(from, _)| from), last.map_or(0, |(_, to)| to));
        }
        next
    }
}

/// The useful ways of folding this text: a decoder that finds nothing need not be left out.
fn ways(text: &[u8]) -> impl Iterator<Item = u8> {
    let decodes = |sign: u8, bit: u8| {
        let mut places = memchr::memchr_iter(sign, text);
        if places.any(|place| decoded(cut(text, place, text.len()), 0).is_some()) { bit } else { 0 }
    };
    let present = decodes(b'%', PERCENT) | decodes(b'\\', ESCAPES) | decodes(b'=', QUOTED);
    LEFT_OUT.into_iter().filter(move |left_out| left_out & !present == 0)
}

/// Tries every folding of a text, in every way and to every depth, until one is `enough`.
pub(super) fn any_folding(text: &[u8], mut enough: impl FnMut(&[u8]) -> bool) -> bool {
    for left_out in ways(text) {
        let mut folded = fold(text, left_out);
        for _ in 0..ROUNDS {
            if enough(&folded) {
                return true;
            }
            let next = fold(&folded, left_out);
            if next == folded {
                break;
            }
            folded = next;
        }
    }
    false
}

/// The same, with positions.
pub(super) fn each_folding(text: &[u8], mut look: impl FnMut(&FoldedBytes)) {
    for left_out in ways(text) {
        let mut folded = mapped(text, left_out);
        for _ in 0..ROUNDS {
            look(&folded);
            let next = folded.again(left_out);
            if next.bytes == folded.bytes {
                break;
            }
            folded = next;
        }
    }
}

fn fold(text: &[u8], left_out: u8) -> Vec<u8> {
    let mut folded = Vec::with_capacity(text.len());
    walk(text, left_out, |byte, _, _| folded.push(byte));
    folded
}

fn mapped(text: &[u8], left_out: u8) -> FoldedBytes {
    let mut folded = FoldedBytes::default();
    let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    walk(text, left_out, |byte, from, to| {
        folded.bytes.push(byte);
        folded.places.push((place(from), place(to)));
    });
    folded
}

/// The meaning of one piece of a text.
enum FoldedUnit {
    Nothing,
    Byte(u8),
    Character(char),
}

fn walk(text: &[u8], left_out: u8, mut give: impl FnMut(u8, usize, usize)) {
    let mut from = 0;
    while from < text.len() {
        let (length, reads) = piece(cut(text, from, text.len()), left_out);
        let to = from + length.max(1);
        match reads {
            FoldedUnit::Nothing => {}
            FoldedUnit::Byte(byte) if byte <= b' ' || byte == 0x7F => {}
            FoldedUnit::Byte(byte) => give(byte, from, to),
            FoldedUnit::Character(character) if is_invisible(character) => {}
            FoldedUnit::Character(character) => decompose_compatible(plain(character), |part| {
                if !(is_combining_mark(part) || part.is_whitespace() || part.is_control() || is_invisible(part)) {
                    part.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| give(byte, from, to));
                }
            }),
        }
        from = to;
    }
}

/// Tag characters and dashes as the characters that they imitate.
fn plain(character: char) -> char {
    match character {
        '\u{E0020}'..='\u{E007E}' => char::from_u32(u32::from(character) - 0xE_0000).unwrap_or(character),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        other => other,
    }
}

/// The first piece of a text: its length and its meaning.
fn piece(rest: &[u8], left_out: u8) -> (usize, FoldedUnit) {
    decoded(rest, left_out).unwrap_or((1, FoldedUnit::Byte(at(rest, 0))))
}

/// The encoded character at the start of a text: its length and what it stands for.
fn decoded(rest: &[u8], left_out: u8) -> Option<(usize, FoldedUnit)> {
    match at(rest, 0) {
        b'%' if left_out & PERCENT == 0 => unhex(at(rest, 1), at(rest, 2)).map(|byte| (3, FoldedUnit::Byte(byte))),
        b'=' if left_out & QUOTED == 0 => match (at(rest, 1), at(rest, 2)) {
            (b'\n', _) => Some((2, FoldedUnit::Nothing)),
            (b'\r', b'\n') => Some((3, FoldedUnit::Nothing)),
            (high, low) => unhex(high, low).map(|byte| (3, FoldedUnit::Byte(byte))),
        },
        b'\\' if left_out & ESCAPES == 0 => escape(rest),
        b'&' => entity(rest)
            .map(|(length, character)| (length, character.map_or(FoldedUnit::Nothing, FoldedUnit::Character))),
        0x80.. => character(rest),
        _ => None,
    }
}

fn escape(rest: &[u8]) -> Option<(usize, FoldedUnit)> {
    let second = at(rest, 1);
    match second {
        b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'0' if !at(rest, 2).is_ascii_digit() => {
            Some((2, FoldedUnit::Nothing))
        }
        b'x' => unhex(at(rest, 2), at(rest, 3)).map(|byte| (4, FoldedUnit::Byte(byte))),
        b'u' if at(rest, 2) == b'{' => {
            let end = memchr::memchr(b'}', cut(rest, 0, 11))?;
            Some((end + 1, FoldedUnit::Character(char::from_u32(number(cut(rest, 3, end), 16)?)?)))
        }
        b'u' => {
            let unit = |from: usize| number(cut(rest, from, from + 4), 16).filter(|_| rest.len() >= from + 4);
            let (high, pair) = (unit(2)?, (at(rest, 6), at(rest, 7)));
            match (high, unit(8).filter(|_| pair == (b'\\', b'u'))) {
                (0xD800..0xDC00, Some(low @ 0xDC00..0xE000)) => {
                    let joined = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    Some((12, FoldedUnit::Character(char::from_u32(joined)?)))
                }
                _ => Some((6, FoldedUnit::Character(char::from_u32(high)?))),
            }
        }
        b'0'..=b'3' => Some((4, FoldedUnit::Byte(u8::try_from(number(cut(rest, 1, 4), 8)?).ok()?))),
        b'\n' => Some((2, FoldedUnit::Nothing)),
        punctuation if punctuation.is_ascii_punctuation() => Some((2, FoldedUnit::Byte(punctuation))),
        _ => None,
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, radix).ok()
}

/// One UTF-8 character.
fn character(rest: &[u8]) -> Option<(usize, FoldedUnit)> {
    let length = match at(rest, 0) {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return None,
    };
    let character = std::str::from_utf8(cut(rest, 0, length)).ok()?.chars().next()?;
    Some((length, FoldedUnit::Character(character)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_folds_to_what_it_stands_for_and_knows_its_place() {
        for hidden in [
            "key",
            "k e\ty",
            "k%65y",
            "k\\u0065y",
            "k\\u{65}y",
            "k\\x65y",
            "k\\145y",
            "k=65y",
            "k=\r\ney",
            "k&#101;y",
            "k&#x65;y",
            "k\u{200B}ey",
            "k\\u200bey",
            "ｋｅｙ",
            "k\u{301}e\u{336}y",
            "𝗄𝖾𝗒",
            "k&#37;65y",
            "k\\\\u0065y",
        ] {
            let text = format!("<{hidden}>");
            let mut found = None;
            each_folding(text.as_bytes(), |folded| {
                let at = folded.bytes.windows(3).position(|window| window == b"key");
                found = found.or(at.and_then(|at| folded.source(at, at + 3)));
            });
            assert_eq!(found, Some((1, 1 + hidden.len())), "{hidden}");
            assert!(any_folding(text.as_bytes(), |folded| folded == b"<key>"), "{hidden}");
        }
    }

    #[test]
    fn what_only_looks_like_an_escape_is_also_read_as_it_stands() {
        for text in ["token=deadbeef", "100%adequate", "C:\\new\\x41"] {
            let plain: Vec<u8> = text.bytes().collect();
            assert!(any_folding(text.as_bytes(), |folded| folded == plain), "{text}");
        }
    }
}
