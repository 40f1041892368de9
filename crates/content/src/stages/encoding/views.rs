//! The decoded texts inside a text.
//!
//! Takes a folded text, gives the texts in it that are encoded as base64, hex, escapes, leet, spaced letters and
//! similar. For detectors only. Promise: at most three layers, and all of them together are no larger than the original
//! and 64 KB.

mod decode;
mod letters;

use super::DetectorSurface;
use crate::finding::Carrier;

/// Most layers that are decoded.
const DEPTH: usize = 3;
/// Room for decoded text, in addition to the size of the original.
const ROOM: usize = 64 << 10;
/// Most texts that are read, whatever their size.
const MOST: usize = 24;

/// Signs of each encoding, counted in one pass.
#[derive(Debug, Default)]
struct EncodingSigns {
    percent: usize,
    entity: usize,
    backslash: usize,
    equals: usize,
    /// The longest run of letters and digits without a break, as in base64 or hex.
    run: usize,
    /// Single letters between spaces or other separators.
    lone: usize,
    /// Digits or signs between letters.
    leet: usize,
    bits: usize,
    digits: usize,
    /// A lower bound for the hex digits that are together, including their separators.
    hex: usize,
}

/// The class of a byte for counting. It is looked up in a table: most of a text is letters, and each test of them would
/// cost more than the lookup.
mod kind {
    /// A letter or a digit.
    pub(super) const WORD: u8 = 1;
    /// The characters of base64 and hex.
    pub(super) const RUN: u8 = 2;
    pub(super) const BIT: u8 = 4;
    /// Characters that stand for a letter in leet.
    pub(super) const LEET: u8 = 8;
    pub(super) const LETTER: u8 = 16;

    pub(super) const OF: [u8; 256] = {
        let mut table = [0; 256];
        let mut byte = 0_u8;
        loop {
            let mut kind = 0;
            if byte.is_ascii_alphanumeric() {
                kind |= WORD;
            }
            if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_') {
                kind |= RUN;
            }
            if matches!(byte, b'0' | b'1') {
                kind |= BIT;
            }
            if matches!(byte, b'0' | b'1' | b'3' | b'4' | b'5' | b'7' | b'@' | b'$' | b'!' | b'|') {
                kind |= LEET;
            }
            if byte.is_ascii_alphabetic() {
                kind |= LETTER;
            }
            #[expect(
                clippy::indexing_slicing,
                reason = "a byte is always inside 256, and this runs when it is compiled"
            )]
            {
                table[byte as usize] = kind;
            }
            if byte == u8::MAX {
                break;
            }
            byte += 1;
        }
        table
    };
}

impl EncodingSigns {
    fn count(text: &str) -> Self {
        let mut signs = Self::default();
        let (mut run, mut before, mut last) = (0, 0, 0);
        let mut hex = 0;
        let mut rest = text.as_bytes();
        while let Some(&byte) = rest.first() {
            // Most of a text is words, of which only the number of letters matters.
            let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            if let Some((word, after)) = rest.split_at_checked(letters).filter(|_| letters > 0) {
                signs.leet += usize::from(last & kind::LEET != 0 && before & kind::LETTER != 0);
                run += letters;
                signs.run = signs.run.max(run);
                let ahead = word.iter().take_while(|byte| is_hexish(**byte)).count();
                signs.hex = signs.hex.max(hex + ahead);
                hex = if ahead == letters {
                    hex + ahead
                } else {
                    word.iter().rev().take_while(|byte| is_hexish(**byte)).count()
                };
                let kind = kind::WORD | kind::LETTER;
                (before, last) = (if letters > 1 { kind } else { last }, kind);
                rest = after;
                continue;
            }
            rest = rest.get(1..).unwrap_or_default();
            let kind = kind::OF.get(usize::from(byte)).copied().unwrap_or_default();
            match byte {
                b'%' => signs.percent += 1,
                b'&' => signs.entity += 1,
                b'\\' => signs.backslash += 1,
                b'=' => signs.equals += 1,
                _ => {}
            }
            run = if kind & kind::RUN != 0 { run + 1 } else { 0 };
            signs.run = signs.run.max(run);
            hex = match byte {
                b'0'..=b'9' => hex + 1,
                b' ' | b':' | b',' | b'-' | b'\n' | b'\\' => hex,
                _ => 0,
            };
            signs.hex = signs.hex.max(hex);
            signs.bits += usize::from(kind & kind::BIT != 0);
            signs.digits += usize::from(byte.is_ascii_digit());
            signs.lone += usize::from((before | kind) & kind::WORD == 0 && last & kind::WORD != 0);
            (before, last) = (last, kind);
        }
        signs
    }
}

/// Whether a letter occurs in dumps of bytes.
fn is_hexish(letter: u8) -> bool {
    matches!(letter | 0x20, b'a'..=b'f' | b'x')
}

/// Every text that can be decoded from a text, layer by layer.
pub(in crate::stages) fn views(text: &str) -> Vec<DetectorSurface> {
    let mut room = text.len().saturating_add(ROOM);
    let mut found: Vec<DetectorSurface> = Vec::new();
    for surface in layer(text) {
        keep(surface, &mut found, &mut room);
    }
    let mut from = 0;
    for _ in 1..DEPTH {
        let until = found.len();
        let inner: Vec<DetectorSurface> =
            found.iter().skip(from).take(until - from).flat_map(|outer| layer(&outer.text)).collect();
        for surface in inner {
            keep(surface, &mut found, &mut room);
        }
        from = until;
    }
    found
}

fn keep(surface: DetectorSurface, found: &mut Vec<DetectorSurface>, room: &mut usize) {
    if found.len() < MOST && surface.text.len() <= *room && found.iter().all(|known| known.text != surface.text) {
        *room -= surface.text.len();
        found.push(surface);
    }
}

/// Decodes one layer.
fn layer(text: &str) -> Vec<DetectorSurface> {
    let signs = EncodingSigns::count(text);
    let mut found = Vec::new();
    let mut add = |carrier, view: Option<String>| found.extend(view.map(|text| DetectorSurface::new(carrier, text)));
    if signs.run >= 16 {
        add(Carrier::Base64, decode::base64(text));
    }
    if signs.run >= decode::LEAST_BASE32 {
        add(Carrier::Base32, decode::base32(text));
    }
    if signs.hex >= decode::LEAST_HEX
        && (signs.run >= 16 || signs.backslash >= 4 || signs.lone >= 12 || text.len() > 24)
    {
        add(Carrier::Hex, decode::hex(text));
    }
    if signs.bits >= 64 {
        add(Carrier::Binary, decode::binary(text));
    }
    // At least two digits for each letter, and little else.
    if signs.digits >= 32 && signs.digits * 3 >= text.len() {
        add(Carrier::Numbers, decode::numbers(text));
    }
    if signs.percent >= 2 {
        add(Carrier::Percent, decode::percent(text));
    }
    if signs.entity >= 1 {
        add(Carrier::Entities, decode::entities(text));
    }
    if signs.backslash >= 1
        && let Some((carrier, text)) = decode::escapes(text)
    {
        add(carrier, Some(text));
    }
    if signs.equals >= 2 {
        add(Carrier::QuotedPrintable, decode::quoted_printable(text));
    }
    if signs.lone >= 8 {
        add(Carrier::Spaced, letters::unspaced(text));
        add(Carrier::Spaced, letters::stacked(text));
    }
    if signs.leet >= 3 {
        add(Carrier::Leet, letters::unleet(text, 'i'));
        add(Carrier::Leet, letters::unleet(text, 'l'));
    }
    add(Carrier::Misspelt, letters::respelt(text));
    found
}

pub(in crate::stages) use letters::{atbash, caesar, reversed, rot13};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, computed separately for every byte.
    fn plainly(text: &str) -> [usize; 9] {
        let bytes = text.as_bytes();
        let of = |at: usize| bytes.get(at).map_or(0, |byte| kind::OF[usize::from(*byte)]);
        let count = |wanted: u8| bytes.iter().filter(|byte| **byte == wanted).count();
        let in_runs = |at: &u8| kind::OF[usize::from(*at)] & kind::RUN != 0;
        let before = |at: usize, back: usize| at.checked_sub(back).map_or(0, of);
        let places = 0..bytes.len();
        [
            count(b'%'),
            count(b'&'),
            count(b'\\'),
            count(b'='),
            bytes.split(|byte| !in_runs(byte)).map(<[u8]>::len).max().unwrap_or(0),
            places
                .clone()
                .filter(|&at| (before(at, 2) | of(at)) & kind::WORD == 0 && before(at, 1) & kind::WORD != 0)
                .count(),
            places.filter(|&at| before(at, 1) & kind::LEET != 0 && before(at, 2) & of(at) & kind::LETTER != 0).count(),
            count(b'0') + count(b'1'),
            bytes.iter().filter(|byte| byte.is_ascii_digit()).count(),
        ]
    }

    proptest! {
        #[test]
        fn words_are_counted_as_their_letters_would_be(text in "[a-zA-Z0-9%&=\\\\+/_ @!\u{e9}-]{0,80}") {
            let signs = EncodingSigns::count(&text);
            let counted = [
                signs.percent, signs.entity, signs.backslash, signs.equals, signs.run, signs.lone, signs.leet,
                signs.bits, signs.digits,
            ];
            prop_assert_eq!(counted, plainly(&text));
        }

        #[test]
        fn no_dump_of_bytes_is_passed_over(text in "([0-9a-fA-FxX:, \n-]|\\\\x|0x|[gz.]){0,90}") {
            prop_assert!(decode::hex(&text).is_none() || EncodingSigns::count(&text).hex >= decode::LEAST_HEX);
        }

        #[test]
        fn a_text_dumped_as_bytes_is_read(text in "[a-z ]{20,40}", between in "[ :,-]?") {
            let dump: Vec<String> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            let dump = dump.join(&between);
            prop_assert!(EncodingSigns::count(&dump).hex >= decode::LEAST_HEX);
            prop_assert_eq!(decode::hex(&dump).map(|text| text.trim().to_owned()), Some(text.trim().to_owned()));
        }
    }
}
