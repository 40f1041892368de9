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
    digits: usize,
}

/// What a byte is to those who count. Looked up, because a text is mostly letters and every question asked of each of
/// them costs more than the answer.
mod kind {
    /// A letter or a digit.
    pub(super) const WORD: u8 = 1;
    /// What base64 and hex are made of.
    pub(super) const RUN: u8 = 2;
    pub(super) const BIT: u8 = 4;
    /// What stands for a letter in leet.
    pub(super) const LEET: u8 = 8;
    pub(super) const LETTER: u8 = 16;
    /// One of the four signs that are counted by themselves.
    pub(super) const SIGN: u8 = 32;
    pub(super) const DIGIT: u8 = 64;

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
            if byte.is_ascii_digit() {
                kind |= DIGIT;
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
            if matches!(byte, b'%' | b'&' | b'\\' | b'=') {
                kind |= SIGN;
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

impl Signs {
    fn count(text: &str) -> Self {
        let mut signs = Self::default();
        let (mut run, mut before, mut last) = (0, 0, 0);
        for &byte in text.as_bytes() {
            let kind = kind::OF.get(usize::from(byte)).copied().unwrap_or_default();
            if kind & kind::SIGN != 0 {
                match byte {
                    b'%' => signs.percent += 1,
                    b'&' => signs.entity += 1,
                    b'\\' => signs.backslash += 1,
                    _ => signs.equals += 1,
                }
            }
            run = if kind & kind::RUN != 0 { run + 1 } else { 0 };
            signs.run = signs.run.max(run);
            signs.bits += usize::from(kind & kind::BIT != 0);
            signs.digits += usize::from(kind & kind::DIGIT != 0);
            signs.lone += usize::from((before | kind) & kind::WORD == 0 && last & kind::WORD != 0);
            signs.leet += usize::from(last & kind::LEET != 0 && before & kind & kind::LETTER != 0);
            (before, last) = (last, kind);
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
    // Two digits a letter at least, and little else.
    if signs.digits >= 32 && signs.digits * 3 >= text.len() {
        add(Carrier::Numbers, decode::numbers(text));
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
