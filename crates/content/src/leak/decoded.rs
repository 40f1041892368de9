//! Views: the text that a decoder makes of a text.
//!
//! Takes bytes; gives what percent signs, JSON escapes, quoted-printable, entities, invisible characters, base64, hex
//! or UTF-16 hide. Promise: each view costs one pass and is no longer than four times its source; callers that decode
//! views again stop at a fixed depth.

use super::bytes::{at, cut, is_alnum, is_hex};
use super::checksums;

/// A decoded text and the name of its decoder.
pub(super) type DecodedText = (&'static str, Vec<u8>);

/// All views of a whole text that differ from it.
pub(super) fn of_text(text: &[u8]) -> Vec<DecodedText> {
    let mut views = Vec::new();
    let mut keep = |name, view: Option<Vec<u8>>| {
        if let Some(view) = view {
            views.push((name, view));
        }
    };
    if memchr::memchr(b'%', text).is_some() {
        keep("percent", percent(text));
    }
    if memchr::memchr(b'\\', text).is_some() {
        keep("escapes", escapes(text));
    }
    if memchr::memchr(b'=', text).is_some() {
        keep("quoted-printable", quoted_printable(text));
    }
    if memchr::memchr(b'&', text).is_some() {
        keep("entities", entities(text));
    }
    if !text.is_ascii() || memchr::memchr(0, text).is_some() {
        keep("visible", visible(text));
    }
    views
}

/// The content of a token that is base64 or hex of readable text.
pub(super) fn of_token(token: &[u8]) -> Option<DecodedText> {
    if token.len() >= 32 && token.len().is_multiple_of(2) && token.iter().all(|byte| is_hex(*byte)) {
        let bytes = token.chunks(2).map(|pair| unhex(at(pair, 0), at(pair, 1))).collect::<Option<Vec<u8>>>()?;
        return readable(bytes).map(|text| ("hex", text));
    }
    if token.len() < 24 {
        return None;
    }
    // A name or an address in front of the base64 (`key=…`, `Basic …`) is cut off first.
    let body = token.iter().rposition(|byte| *byte != b'=').map_or(0, |end| end + 1);
    let start = memchr::memrchr(b'=', cut(token, 0, body)).map_or(0, |end| end + 1);
    let token = cut(token, start, token.len());
    if token.len() < 24 || token.iter().any(|byte| matches!(byte, b'.' | b'~')) {
        return None;
    }
    // Most base64 is not text: its first bytes show this.
    readable(checksums::base64(cut(token, 0, 24))?)?;
    readable(checksums::base64(token)?).map(|text| ("base64", text))
}

/// Wrapped lines of base64, joined: start and end of the block, and its bytes.
pub(super) fn wrapped(text: &[u8], start: usize, end: usize) -> Option<(usize, Vec<u8>)> {
    let width = end - start;
    let is_base64 = |byte: &u8| is_alnum(*byte) || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
    if !(40..=100).contains(&width) || !cut(text, start, end).iter().all(is_base64) {
        return None;
    }
    let mut joined = cut(text, start, end).to_vec();
    let mut place = end;
    loop {
        let mut next = place;
        while matches!(at(text, next), b'\r' | b'\n' | b' ' | b'\t' | b'>') && next < place + 6 {
            next += 1;
        }
        if next == place {
            break;
        }
        let line = cut(text, next, next + width);
        let length = line.iter().position(|byte| !is_base64(byte)).unwrap_or(line.len());
        if length == 0 || (length == width && is_base64(&at(text, next + width))) {
            break;
        }
        joined.extend_from_slice(cut(line, 0, length));
        place = next + length;
        if length < width {
            break;
        }
    }
    (place > end).then_some((place, joined))
}

/// Bytes that are readable text in UTF-8 or UTF-16; `None` otherwise.
pub(super) fn readable(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    if zeros * 3 > bytes.len() {
        let narrow: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0 && *byte != 0xFE && *byte != 0xFF).collect();
        return readable(narrow);
    }
    let strange =
        bytes.iter().filter(|byte| !(0x20..0x7F).contains(*byte) && !matches!(byte, b'\n' | b'\r' | b'\t')).count();
    (bytes.len() >= 8 && strange * 8 <= bytes.len()).then_some(bytes)
}

pub(super) fn unhex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

fn percent(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b'%', |rest| Some((3, vec![unhex(at(rest, 1), at(rest, 2))?])))
}

fn quoted_printable(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b'=', |rest| match (at(rest, 1), at(rest, 2)) {
        (b'\n', _) => Some((2, Vec::new())),
        (b'\r', b'\n') => Some((3, Vec::new())),
        // Lower case is not quoted-printable, and `key=deadbeef` is a value.
        (high, low) if !high.is_ascii_lowercase() && !low.is_ascii_lowercase() => Some((3, vec![unhex(high, low)?])),
        _ => None,
    })
}

fn escapes(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b'\\', |rest| {
        let plain = match at(rest, 1) {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            byte @ (b'"' | b'\'' | b'\\' | b'/' | b'=' | b'&' | b'-' | b'_' | b'+' | b'.') => byte,
            b'x' => return Some((4, vec![unhex(at(rest, 2), at(rest, 3))?])),
            b'u' => {
                let digits = std::str::from_utf8(cut(rest, 2, 6)).ok()?;
                let character = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
                return Some((6, character.to_string().into_bytes()));
            }
            _ => return None,
        };
        Some((2, vec![plain]))
    })
}

fn entities(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b'&', |rest| {
        let (length, character) = entity(rest)?;
        Some((length, character.map(|character| character.to_string().into_bytes()).unwrap_or_default()))
    })
}

/// The entity at the start of a text: its length and its character, if that is visible.
pub(super) fn entity(rest: &[u8]) -> Option<(usize, Option<char>)> {
    let end = memchr::memchr(b';', cut(rest, 0, 12))?;
    let name = cut(rest, 1, end);
    let character = match name {
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        b"nbsp" => ' ',
        b"colon" => ':',
        b"equals" => '=',
        b"lowbar" => '_',
        b"hyphen" | b"dash" => '-',
        b"period" => '.',
        b"sol" => '/',
        b"plus" => '+',
        b"commat" => '@',
        b"shy" | b"zwj" | b"zwnj" => return Some((end + 1, None)),
        _ => {
            let number = std::str::from_utf8(name.strip_prefix(b"#")?).ok()?;
            let number = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(number)?
        }
    };
    Some((end + 1, Some(character)))
}

/// Whether a character is invisible.
pub(super) const fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\0'
            | '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{180E}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206F}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{E0100}'..='\u{E01EF}'
    )
}

/// A text without invisible characters, with full-width letters as plain ones.
fn visible(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut changed = false;
    let mut out = Vec::with_capacity(text.len());
    for character in text.chars() {
        match character {
            invisible if is_invisible(invisible) => {
                changed = true;
            }
            '\u{FF01}'..='\u{FF5E}' => {
                changed = true;
                // The block mirrors ASCII, 0xFEE0 higher.
                out.extend(u8::try_from(u32::from(character) - 0xFEE0));
            }
            '\u{E0020}'..='\u{E007E}' => {
                changed = true;
                out.extend(u8::try_from(u32::from(character) - 0xE_0000));
            }
            '\u{2010}'..='\u{2015}' | '\u{2212}' => {
                changed = true;
                out.push(b'-');
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    changed.then_some(out)
}

/// Copies a text with each escape replaced; `None` if there is none.
fn replaced(text: &[u8], sign: u8, decode: impl Fn(&[u8]) -> Option<(usize, Vec<u8>)>) -> Option<Vec<u8>> {
    let (mut out, mut copied, mut from) = (Vec::new(), 0, 0);
    while let Some(found) = memchr::memchr(sign, cut(text, from, text.len())) {
        let place = from + found;
        from = place + 1;
        if let Some((length, bytes)) = decode(cut(text, place, text.len())) {
            out.extend_from_slice(cut(text, copied, place));
            out.extend_from_slice(&bytes);
            copied = place + length;
            from = copied;
        }
    }
    (copied > 0).then(|| {
        out.extend_from_slice(cut(text, copied, text.len()));
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Option<String> {
        of_text(text.as_bytes()).into_iter().next().map(|(_, view)| String::from_utf8_lossy(&view).into_owned())
    }

    #[test]
    fn every_whole_text_decoder_gives_the_plain_text() {
        for (hidden, plain) in [
            ("a%5Fb%2d", "a_b-"),
            ("line\\nnext \\u0041\\x42 \\\"q\\\"", "line\nnext AB \"q\""),
            ("soft=\r\nbreak =3D", "softbreak ="),
            ("a&amp;b&#95;&#x5f;", "a&b__"),
            ("s\u{200B}e\u{AD}c", "sec"),
            ("\u{FF53}\u{FF4B}", "sk"),
        ] {
            assert_eq!(first(hidden).as_deref(), Some(plain), "{hidden}");
        }
        assert_eq!(first("100 % sure, a=b & c"), None);
    }

    #[test]
    fn tokens_are_opened_only_if_text_is_inside() {
        assert_eq!(of_token(b"aGVsbG8gd29ybGQsIGhlbGxvIHlvdQ==").map(|(name, _)| name), Some("base64"));
        assert_eq!(of_token(b"68656c6c6f20776f726c642c2068656c6c6f").map(|(name, _)| name), Some("hex"));
        assert_eq!(of_token(b"9f86d081884c7d659a2feaa0c55ad0159f86d081884c7d65"), None);
        assert_eq!(of_token(b"/usr/share/doc/packages/something/long"), None);
    }

    #[test]
    fn wrapped_lines_are_joined() {
        let line = "QUFB".repeat(15);
        let text = format!("{line}\r\n{line}\r\nQUFB\r\nend of it");
        let (end, joined) = wrapped(text.as_bytes(), 0, 60).unwrap();
        assert_eq!((end, joined.len()), (text.len() - 11, 124));
    }

    #[test]
    fn sixteen_bit_text_is_read() {
        let wide: Vec<u8> = "password".bytes().flat_map(|byte| [byte, 0]).collect();
        assert_eq!(readable(wide).as_deref(), Some(b"password".as_slice()));
    }
}
