//! Decodes encoded words of a header (RFC 2047), by one strict reading of our own.
//!
//! Takes a value on one line, gives its text; `None` where readers are known to differ.

use mail_parser::decoders::base64::base64_decode;
use mail_parser::decoders::charsets::map::charset_decoder;

/// The text of a value. `None` if an encoded word in it is broken or is in a place where some readers do not decode it.
pub fn decode(value: &str) -> Option<String> {
    let (mut out, mut rest, mut after_word) = (String::new(), value, false);
    while let Some(at) = rest.find("=?") {
        let (before, word) = (rest.get(..at)?, rest.get(at..)?);
        let (text, length) = encoded_word(word)?;
        let blank = before.trim().is_empty();
        // Blanks between two encoded words belong to neither.
        if !(blank && after_word) {
            out.push_str(before);
        }
        // A word inside a word is text for some readers.
        if !blank && !before.ends_with([' ', '\t']) || blank && before.is_empty() && !out.is_empty() {
            return None;
        }
        out.push_str(&text);
        rest = word.get(length..)?;
        if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
            return None;
        }
        after_word = true;
    }
    out.push_str(rest);
    Some(out)
}

/// The encoded word at the beginning of a text, and its length.
fn encoded_word(text: &str) -> Option<(String, usize)> {
    let mut fields = text.get(2..)?.splitn(3, '?');
    let (charset, encoding, rest) = (fields.next()?, fields.next()?, fields.next()?);
    let content = rest.get(..rest.find("?=")?)?;
    let length = 2 + charset.len() + 1 + encoding.len() + 1 + content.len() + 2;
    if content.contains(|c: char| c.is_whitespace() || c == '?' || !c.is_ascii_graphic()) {
        return None;
    }
    let bytes = match encoding {
        "b" | "B" if content.len() % 4 == 0 => base64_decode(content.as_bytes())?,
        "q" | "Q" => quoted(content)?,
        _ => return None,
    };
    let name = charset.split('*').next()?;
    let text = charset_decoder(name.as_bytes()).map(|decode| decode(&bytes)).or_else(|| {
        let is_utf8 = name.eq_ignore_ascii_case("utf-8") || name.eq_ignore_ascii_case("utf8");
        is_utf8.then(|| String::from_utf8(bytes).ok())?
    })?;
    (!text.contains(char::is_control) && !text.contains(char::REPLACEMENT_CHARACTER)).then_some((text, length))
}

fn quoted(content: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(content.len());
    let mut bytes = content.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'_' => b' ',
            b'=' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit()? << 4 | digit()?
            }
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded_and_blanks_between_them_dropped() {
        for (value, expected) in [
            ("Hello", "Hello"),
            ("=?utf-8?q?Gr=C3=BC=C3=9Fe_aus?= =?UTF-8?B?S8O2bG4=?=", "Grüße ausKöln"),
            ("Re: =?iso-8859-1?Q?caf=E9?= at 4", "Re: café at 4"),
            ("=?utf-8*en?q?x?=", "x"),
        ] {
            assert_eq!(decode(value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn what_readers_take_differently_is_not_decoded() {
        for value in [
            "a=?utf-8?q?b?=",
            "=?utf-8?q?b?=c",
            "=?utf-8?q?a b?=",
            "=?x-nobody?q?a?=",
            "=?utf-8?b?a?=",
            "=?utf-8?q?=zz?=",
            "=?utf-8?x?a?=",
            "=?",
            "=?utf-8?q?=0A?=",
        ] {
            assert_eq!(decode(value), None, "{value}");
        }
    }
}
