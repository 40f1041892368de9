//! What a text says once it is decoded.
//!
//! Takes a folded text, gives the texts that stand in it as base64, hex, escapes, leet, spaced letters and the
//! like. For detectors only. Promise: at most three layers, and all of them together are no larger than the
//! original and 64 KB.

mod decode;
mod letters;

use super::Surface;
use crate::finding::Carrier;

/// Layers that are taken off.
const DEPTH: usize = 3;
/// Room for what is decoded, beside the size of the original.
const ROOM: usize = 64 << 10;
/// Texts that are looked at, whatever their size.
const MOST: usize = 24;

/// Signs of each encoding, counted in one pass.
#[derive(Debug, Default)]
struct Signs {
    percent: usize,
    entity: usize,
    backslash: usize,
    equals: usize,
    /// The longest run of letters and digits without a break, as in base64 or hex.
    run: usize,
    /// Letters that stand alone, between spaces or other separators.
    lone: usize,
    /// Digits or signs between letters.
    leet: usize,
    bits: usize,
}

impl Signs {
    fn count(text: &str) -> Self {
        let mut signs = Self::default();
        let (mut run, mut before, mut last) = (0, b' ', b' ');
        for &byte in text.as_bytes() {
            match byte {
                b'%' => signs.percent += 1,
                b'&' => signs.entity += 1,
                b'\\' => signs.backslash += 1,
                b'=' => signs.equals += 1,
                _ => {}
            }
            let word = byte.is_ascii_alphanumeric();
            if word || matches!(byte, b'+' | b'/' | b'-' | b'_') {
                run += 1;
                signs.run = signs.run.max(run);
            } else {
                run = 0;
            }
            signs.bits += usize::from(matches!(byte, b'0' | b'1'));
            signs.lone += usize::from(!word && last.is_ascii_alphanumeric() && !before.is_ascii_alphanumeric());
            let digit = matches!(last, b'0' | b'1' | b'3' | b'4' | b'5' | b'7' | b'@' | b'$' | b'!' | b'|');
            signs.leet += usize::from(digit && byte.is_ascii_alphabetic() && before.is_ascii_alphabetic());
            (before, last) = (last, byte);
        }
        signs
    }
}

/// Everything that can be read out of a text, layer by layer.
pub(in crate::stages) fn views(text: &str) -> Vec<Surface> {
    let mut room = text.len().saturating_add(ROOM);
    let mut found: Vec<Surface> = Vec::new();
    for surface in layer(text) {
        keep(surface, &mut found, &mut room);
    }
    let mut from = 0;
    for _ in 1..DEPTH {
        let until = found.len();
        let inner: Vec<Surface> =
            found.iter().skip(from).take(until - from).flat_map(|outer| layer(&outer.text)).collect();
        for surface in inner {
            keep(surface, &mut found, &mut room);
        }
        from = until;
    }
    found
}

fn keep(surface: Surface, found: &mut Vec<Surface>, room: &mut usize) {
    if found.len() < MOST && surface.text.len() <= *room && found.iter().all(|known| known.text != surface.text) {
        *room -= surface.text.len();
        found.push(surface);
    }
}

/// One layer off.
fn layer(text: &str) -> Vec<Surface> {
    let signs = Signs::count(text);
    let mut found = Vec::new();
    let mut add = |carrier, view: Option<String>| found.extend(view.map(|text| Surface::new(carrier, text)));
    if signs.run >= 16 {
        add(Carrier::Base64, decode::base64(text));
        add(Carrier::Base32, decode::base32(text));
    }
    if signs.run >= 16 || signs.backslash >= 4 || signs.lone >= 12 || text.len() > 24 {
        add(Carrier::Hex, decode::hex(text));
    }
    if signs.bits >= 64 {
        add(Carrier::Binary, decode::binary(text));
    }
    if signs.percent >= 4 {
        add(Carrier::Percent, decode::percent(text));
    }
    if signs.entity >= 3 {
        add(Carrier::Entities, decode::entities(text));
    }
    if signs.backslash >= 4 {
        add(Carrier::Escapes, decode::escapes(text));
    }
    if signs.equals >= 4 {
        add(Carrier::QuotedPrintable, decode::quoted_printable(text));
    }
    if signs.lone >= 8 {
        add(Carrier::Spaced, letters::unspaced(text));
    }
    if signs.leet >= 3 {
        add(Carrier::Leet, letters::unleet(text, 'i'));
        add(Carrier::Leet, letters::unleet(text, 'l'));
    }
    found
}

pub(in crate::stages) use letters::{reversed, rot13};
