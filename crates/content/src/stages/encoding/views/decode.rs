//! Machine encodings: base64, base32, hex, bits, numbers, percent, entities, escapes, quoted-printable.
//!
//! Takes a text, gives the part of it that is in this encoding, decoded, if the result is text. Promise: linear, no
//! panic, never longer than the text.

use base64::Engine as _;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

use super::super::hidden_characters::is_fine;
use crate::finding::Carrier;
use crate::stages::html::entities::decode as decode_entity;

/// From this many base32 letters or hex digits, a run may be a text.
pub(super) const LEAST_BASE32: usize = 24;
pub(super) const LEAST_HEX: usize = 20;
/// From this many numbers in a row, a run may be a text.
const LEAST_NUMBERS: usize = 12;

/// Accepts text with letters in it, not an image or a hash.
fn readable(bytes: Vec<u8>) -> Option<String> {
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(broken) => {
            let good = broken.utf8_error().valid_up_to();
            let bytes = broken.into_bytes();
            // The last character may be incomplete.
            if good + 4 < bytes.len() {
                return wide(&bytes);
            }
            String::from_utf8(bytes.into_iter().take(good).collect()).ok()?
        }
    };
    if text.as_bytes().iter().skip(1).step_by(2).take(8).filter(|&&byte| byte == 0).count() >= 4 {
        return wide(text.as_bytes());
    }
    let count = text.chars().count();
    let letters = text.chars().filter(|c| c.is_alphabetic() || *c == ' ').count();
    let odd = text.chars().filter(|c| c.is_control() && !c.is_whitespace()).count();
    (count >= 6 && letters * 10 >= count * 6 && odd * 20 <= count).then_some(text)
}

fn wide(bytes: &[u8]) -> Option<String> {
    let low = bytes.iter().step_by(2).copied();
    let high_is_nought = bytes.iter().skip(1).step_by(2).all(|&byte| byte == 0);
    (high_is_nought && bytes.len() >= 16).then(|| low.map(char::from).collect())
}

/// Runs that could be base64, with wrapped lines joined.
pub(super) fn base64(text: &str) -> Option<String> {
    const LOOSE: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    const ENGINE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LOOSE);
    let mut out = String::new();
    for run in runs(text, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'), 16) {
        let mut standard: Vec<u8> = run
            .iter()
            .map(|&byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => other,
            })
            .collect();
        if standard.len() % 4 == 1 {
            standard.pop();
        }
        let text = ENGINE.decode(&standard).ok().and_then(readable);
        append(&mut out, text);
    }
    (!out.is_empty()).then_some(out)
}

/// Runs of the base32 alphabet.
pub(super) fn base32(text: &str) -> Option<String> {
    let mut out = String::new();
    for run in runs(text, |byte| byte.is_ascii_uppercase() || matches!(byte, b'2'..=b'7'), LEAST_BASE32) {
        let (mut bytes, mut bits, mut value) = (Vec::with_capacity(run.len()), 0_u32, 0_u32);
        for byte in run {
            let digit = if byte.is_ascii_uppercase() { byte - b'A' } else { byte - b'2' + 26 };
            value = ((value << 5) | u32::from(digit)) & 0xffff;
            bits += 5;
            if bits >= 8 {
                bits -= 8;
                bytes.push(u8::try_from((value >> bits) & 0xff).unwrap_or_default());
            }
        }
        append(&mut out, readable(bytes));
    }
    (!out.is_empty()).then_some(out)
}

fn append(out: &mut String, text: Option<String>) {
    if let Some(text) = text {
        out.push_str(&text);
        out.push('\n');
    }
}

/// Runs of one alphabet; a line break inside a run of full lines does not end it.
fn runs(text: &str, belongs: impl Fn(u8) -> bool, least: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut run: Vec<u8> = Vec::new();
    let mut line = 0;
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if belongs(byte) {
            run.push(byte);
            line += 1;
            continue;
        }
        let wraps = matches!(byte, b'\r' | b'\n') && line >= 40;
        if wraps {
            while bytes.peek().is_some_and(|next| matches!(next, b'\r' | b'\n')) {
                bytes.next();
            }
            line = 0;
            continue;
        }
        line = 0;
        if run.len() >= least {
            found.push(std::mem::take(&mut run));
        }
        run.clear();
    }
    if run.len() >= least {
        found.push(run);
    }
    found
}

/// Pairs of hex digits, bare or with the separators and prefixes of dumps.
pub(super) fn hex(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut digits: Vec<u8> = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        let (skip, digit) = match rest {
            [] => break,
            [b'\\' | b'0', b'x' | b'X', ..] => (2, None),
            [byte, ..] => match char::from(*byte).to_digit(16) {
                Some(digit) => (1, u8::try_from(digit).ok()),
                None if digits.len().is_multiple_of(2) && matches!(byte, b' ' | b':' | b',' | b'-' | b'\n') => {
                    (1, None)
                }
                None => {
                    flush_hex(&mut digits, &mut out);
                    (1, None)
                }
            },
        };
        digits.extend(digit);
        rest = rest.get(skip..).unwrap_or_default();
    }
    flush_hex(&mut digits, &mut out);
    (!out.is_empty()).then_some(out)
}

fn flush_hex(digits: &mut Vec<u8>, out: &mut String) {
    if digits.len() >= LEAST_HEX {
        let bytes =
            digits.chunks_exact(2).map(|pair| pair.iter().fold(0_u8, |value, digit| (value << 4) | digit)).collect();
        append(out, readable(bytes));
    }
    // The buffer is reused: nearly every word of a plain text has a letter that is a hex digit.
    digits.clear();
}

/// Groups of eight bits.
pub(super) fn binary(text: &str) -> Option<String> {
    let (mut out, mut bytes) = (String::new(), Vec::new());
    let (mut value, mut count) = (0_u8, 0);
    for byte in text.bytes() {
        match byte {
            b'0' | b'1' => {
                value = (value << 1) | (byte & 1);
                count += 1;
                if count == 8 {
                    bytes.push(value);
                    count = 0;
                }
            }
            b' ' | b'\n' | b',' if count == 0 => {}
            _ => {
                count = 0;
                append(&mut out, readable(std::mem::take(&mut bytes)));
            }
        }
    }
    append(&mut out, readable(bytes));
    (!out.is_empty()).then_some(out)
}

/// Bytes as numbers with separators: `105, 103, 110`, `151 147 156`, `\\151\\147`.
pub(super) fn numbers(text: &str) -> Option<String> {
    let (mut out, mut run) = (String::new(), Vec::new());
    for word in text.split([' ', ',', ';', '\n', '\r', '\t', '\\', '[', ']', '(', ')', '{', '}', '|']) {
        if word.is_empty() {
            continue;
        }
        let number = (word.len() <= 3 && word.bytes().all(|byte| byte.is_ascii_digit())).then_some(word);
        match number {
            Some(number) => run.push(number),
            None => flush_numbers(&mut run, &mut out),
        }
    }
    flush_numbers(&mut run, &mut out);
    (!out.is_empty()).then_some(out)
}

/// Decodes decimal numbers if they give text, else octal numbers.
fn flush_numbers(run: &mut Vec<&str>, out: &mut String) {
    if run.len() >= LEAST_NUMBERS {
        let bytes =
            |radix| run.iter().map(|number| u8::from_str_radix(number, radix).ok()).collect::<Option<Vec<u8>>>();
        append(out, bytes(10).and_then(readable).or_else(|| bytes(8).and_then(readable)));
    }
    run.clear();
}

fn pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some((digit(high)? << 4) | digit(low)?)
}

/// The whole text with `%20` and similar decoded.
pub(super) fn percent(text: &str) -> Option<String> {
    replaced(text, 3, |rest| match rest {
        [b'%', high, low, ..] => pair(*high, *low).map(|byte| (3, byte)),
        _ => None,
    })
}

/// The whole text with `=3D` and soft line ends decoded.
pub(super) fn quoted_printable(text: &str) -> Option<String> {
    replaced(text, 4, |rest| match rest {
        [b'=', high, low, ..] => pair(*high, *low).map(|byte| (3, byte)),
        _ => None,
    })
    .map(|text| text.replace("=\n", "").replace("=\r\n", ""))
}

fn replaced(text: &str, least: usize, find: impl Fn(&[u8]) -> Option<(usize, u8)>) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let (mut rest, mut count, mut telling) = (text.as_bytes(), 0, false);
    while let Some(&byte) = rest.first() {
        let (skip, value) = find(rest).map_or((1, byte), |found| {
            count += 1;
            telling |= found.1.is_ascii_alphabetic() || !found.1.is_ascii();
            found
        });
        out.push(value);
        rest = rest.get(skip..).unwrap_or_default();
    }
    (count >= least || telling).then(|| String::from_utf8_lossy(&out).into_owned())
}

/// Whether one such character changes the meaning of a text: a letter, or an invisible character.
fn is_telling(c: char) -> bool {
    c.is_alphabetic() || (!c.is_ascii() && !is_fine(c.encode_utf8(&mut [0; 4])))
}

/// The whole text with `&#105;` and `&lt;` decoded.
pub(super) fn entities(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut count, mut telling) = (text, 0, false);
    while let Some(at) = rest.find('&') {
        let (before, from) = rest.split_at_checked(at)?;
        out.push_str(before);
        if let Some((c, length)) = decode_entity(from) {
            out.push(c);
            count += 1;
            telling |= is_telling(c);
            rest = from.get(length..).unwrap_or_default();
        } else {
            out.push('&');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    (count >= 3 || telling).then_some(out)
}

/// The whole text with `\u0069`, `\x69`, `\u{69}` and `\n` decoded. One or two of them are normal output of an encoder,
/// more of them hide a text.
pub(super) fn escapes(text: &str) -> Option<(Carrier, String)> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut count, mut telling) = (text, 0, false);
    while let Some(at) = rest.find('\\') {
        let (before, from) = rest.split_at_checked(at)?;
        out.push_str(before);
        let (skip, c) = escape(from);
        match c {
            Some(c) => {
                count += usize::from(skip > 2);
                telling |= skip > 2 && is_telling(c);
                out.push(c);
            }
            None => out.push('\\'),
        }
        rest = from.get(skip..).unwrap_or_default();
    }
    out.push_str(rest);
    match count {
        3.. => Some((Carrier::Escapes, out)),
        _ => telling.then_some((Carrier::Json, out)),
    }
}

fn escape(from: &str) -> (usize, Option<char>) {
    let code =
        |digits: Option<&str>| digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
    match from.as_bytes() {
        [b'\\', b'n' | b'r' | b't', ..] => (2, Some('\n')),
        [b'\\', b'x', ..] => code(from.get(2..4)).map_or((1, None), |c| (4, Some(c))),
        [b'\\', b'u', b'{', ..] => {
            // At most six digits, so that an open brace never causes a read to the end.
            let end = from.bytes().skip(3).take(7).position(|byte| byte == b'}');
            let digits = end.and_then(|end| from.get(3..3 + end));
            code(digits).map_or((1, None), |c| (4 + digits.map_or(0, str::len), Some(c)))
        }
        [b'\\', b'u' | b'U', ..] => {
            let unit = |at: usize| from.get(at..at + 4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            match (unit(2), unit(8).filter(|_| matches!(from.get(6..8), Some("\\u" | "\\U")))) {
                (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                    (12, char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)))
                }
                _ => code(from.get(2..6)).map_or((1, None), |c| (6, Some(c))),
            }
        }
        _ => (1, None),
    }
}
