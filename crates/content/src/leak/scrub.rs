//! Scrubbing: removes live secrets from incoming content.
//!
//! Takes untrusted bytes or JSON; gives the same without any live secret, raw, encoded, folded ([`super::fold`]) or
//! inside base64 or hex. Promise: the result holds none of them in any form that the scan knows; where a secret cannot
//! be cut out, the whole text is removed.

use serde_json::Value;

use super::bytes::{TokenRuns, at, cut};
use super::fold::{any_folding, each_folding};
use super::live_secrets::{LiveSecrets, SHORT};
use super::{checksums, decoded};

/// The text that replaces a secret.
pub const REMOVED: &str = "[credential removed]";
/// How many layers of base64 or hex are decoded.
const DEPTH: usize = 3;
/// How often the result is checked again.
const AGAIN: usize = 4;
/// Shorter stretches are not decoded.
const LEAST: usize = 24;
/// Deeper JSON is not parsed but treated as text.
const DEEPEST: usize = 128;

impl LiveSecrets {
    /// The bytes without any live secret. `None` if they hold none.
    #[must_use]
    pub fn scrub(&self, text: &[u8]) -> Option<Vec<u8>> {
        if self.is_empty() || !self.is_in(text, DEPTH) {
            return None;
        }
        let mut clean = text.to_vec();
        for _ in 0..AGAIN {
            clean = without(&clean, self.places(&clean));
            if !self.is_in(&clean, DEPTH) {
                return Some(clean);
            }
        }
        Some(REMOVED.as_bytes().to_vec())
    }

    /// The text without any live secret. `None` if it holds none.
    #[must_use]
    pub fn scrub_text(&self, text: &str) -> Option<String> {
        self.scrub(text.as_bytes()).map(|clean| String::from_utf8_lossy(&clean).into_owned())
    }

    /// The value without any live secret in its texts, keys and numbers. `None` if it holds none.
    #[must_use]
    pub fn scrub_json(&self, value: &Value) -> Option<Value> {
        if self.is_empty() { None } else { self.scrub_below(value, DEEPEST) }
    }

    fn scrub_below(&self, value: &Value, depth: usize) -> Option<Value> {
        match value {
            Value::Null | Value::Bool(_) => None,
            Value::Number(number) => self.scrub(number.to_string().as_bytes()).map(|_| REMOVED.into()),
            Value::String(text) => self.scrub_text(text).map(Value::String),
            Value::Array(_) | Value::Object(_) if depth == 0 => {
                self.scrub(value.to_string().as_bytes()).map(|_| REMOVED.into())
            }
            Value::Array(list) => {
                let clean: Vec<Option<Value>> = list.iter().map(|item| self.scrub_below(item, depth - 1)).collect();
                clean.iter().any(Option::is_some).then(|| {
                    list.iter().zip(clean).map(|(item, clean)| clean.unwrap_or_else(|| item.clone())).collect()
                })
            }
            Value::Object(map) => {
                let clean: Vec<(Option<String>, Option<Value>)> =
                    map.iter().map(|(key, item)| (self.scrub_text(key), self.scrub_below(item, depth - 1))).collect();
                clean.iter().any(|(key, item)| key.is_some() || item.is_some()).then(|| {
                    let both = map.iter().zip(clean).map(|((key, item), (clean_key, clean))| {
                        (clean_key.unwrap_or_else(|| key.clone()), clean.unwrap_or_else(|| item.clone()))
                    });
                    Value::Object(both.collect())
                })
            }
        }
    }

    /// Whether a secret is in a text, in any form.
    fn is_in(&self, text: &[u8], depth: usize) -> bool {
        // Short secrets must be whole words, and without blanks nothing is.
        let long = |folded: &[u8]| self.find(folded).iter().any(|seen| seen.end - seen.start >= SHORT);
        !self.find(text).is_empty()
            || any_folding(text, long)
            || depth > 0 && opened(text, |inner| self.is_in(inner, depth - 1)).next().is_some()
    }

    /// The positions of secrets, in any order.
    fn places(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = self.find(text).iter().map(|seen| (seen.start, seen.end)).collect();
        each_folding(text, |folded| {
            let long = self.find(&folded.bytes).into_iter().filter(|seen| seen.end - seen.start >= SHORT);
            places.extend(long.filter_map(|seen| folded.source(seen.start, seen.end)));
        });
        places.extend(opened(text, |inner| self.is_in(inner, DEPTH - 1)));
        places
    }
}

/// Positions of base64 or hex stretches in which a secret `is_inside`. Lines that belong together are one stretch,
/// where one line alone holds none.
fn opened(text: &[u8], is_inside: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = (usize, usize)> {
    let mut until = 0;
    TokenRuns::new(text, LEAST).filter_map(move |(start, end)| {
        if start < until {
            return None;
        }
        let holds = |token: &[u8]| decoded(token).any(|inner| is_inside(&inner));
        if holds(cut(text, start, end)) {
            return Some((start, end));
        }
        let (end, joined) = decoded::wrapped(text, start, end)?;
        // In any case, its lines are not joined again starting from each of them.
        until = end;
        holds(&joined).then_some((start, end))
    })
}

/// The decoded content of a token that is base64 or hex, as a whole and in parts: a name or an address may be in front
/// of it. Unlike [`views::of_token`], any UTF-8 is checked: there can be more of other characters between the letters
/// of a secret.
fn decoded(token: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let parts = [&b""[..], b"=.~", b"=.~/"].into_iter().flat_map(move |signs| {
        let split = token.split(move |byte| signs.contains(byte));
        split.filter(move |part| part.len() >= LEAST && (signs.is_empty() || part.len() < token.len()))
    });
    parts.filter_map(|part| {
        let is_hex = part.len().is_multiple_of(2) && part.iter().all(u8::is_ascii_hexdigit);
        let digits = || part.chunks(2).map(|pair| decoded::unhex(at(pair, 0), at(pair, 1))).collect();
        let bytes: Vec<u8> = if is_hex { digits() } else { checksums::base64(part) }?;
        // Images and programs are not text, and most base64 is one of them.
        if std::str::from_utf8(&bytes).is_ok() { Some(bytes) } else { decoded::readable(bytes) }
    })
}

/// A text without these ranges.
fn without(text: &[u8], mut places: Vec<(usize, usize)>) -> Vec<u8> {
    places.sort_unstable();
    let (mut clean, mut from) = (Vec::with_capacity(text.len()), 0);
    for (start, end) in places {
        if end <= from {
            continue;
        }
        // A range that begins inside the last one is part of it.
        if start >= from {
            clean.extend_from_slice(cut(text, from, start));
            clean.extend_from_slice(REMOVED.as_bytes());
        }
        from = end;
    }
    clean.extend_from_slice(cut(text, from, text.len()));
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use serde_json::json;

    /// Every form, including one inside another.
    fn spellings(secret: &str) -> Vec<(&'static str, String)> {
        let each = |text: &str, how: &dyn Fn(char) -> String| text.chars().map(how).collect::<String>();
        let bytes = |text: &str, how: &dyn Fn(u8) -> String| text.bytes().map(how).collect::<String>();
        let zero = each(secret, &|c| format!("{c}\u{200B}"));
        let quoted = bytes(secret, &|b| format!("={b:02X}"));
        let escaped = each(secret, &|c| format!("\\u{:04x}", u32::from(c)));
        let percent = bytes(secret, &|b| format!("%{b:02x}"));
        let blanks = each(secret, &|c| format!("{c} "));
        vec![
            ("raw", secret.to_owned()),
            ("reversed", secret.chars().rev().collect()),
            ("zero-width", zero.clone()),
            ("soft hyphens", each(secret, &|c| format!("{c}\u{AD}"))),
            ("blanks", blanks.clone()),
            ("lines", each(secret, &|c| format!("{c}\r\n"))),
            ("JSON escapes", escaped.clone()),
            ("JSON escapes twice", escaped.replace('\\', "\\\\")),
            ("quoted-printable", quoted.clone()),
            ("soft line breaks", each(secret, &|c| format!("{c}=\r\n"))),
            ("percent", percent.clone()),
            ("percent twice", percent.replace('%', "%25")),
            ("entities", each(secret, &|c| format!("&#{};", u32::from(c)))),
            ("entities in hex", each(secret, &|c| format!("&#x{:X};", u32::from(c)))),
            ("base64", STANDARD.encode(secret)),
            ("base64 inside", STANDARD.encode(format!("it is {secret}, they say"))),
            ("base64 of blanks", STANDARD.encode(&blanks)),
            ("base64 of zero-width", STANDARD.encode(&zero)),
            ("base64 of quoted-printable", URL_SAFE_NO_PAD.encode(&quoted)),
            ("base64 of escapes", STANDARD.encode(&escaped)),
            ("base64 twice", STANDARD.encode(STANDARD.encode(secret))),
            ("hex", sluice_core::hex::encode(secret.as_bytes())),
            ("hex of percent", sluice_core::hex::encode(percent.as_bytes())),
            ("percent of zero-width", bytes(&zero, &|b| format!("%{b:02X}"))),
            ("reversed with zero-width", zero.chars().rev().collect()),
        ]
    }

    const SECRET: &str = "tok_Zq3vK8mPw2Lx7Ry5Tn9";

    #[test]
    fn no_spelling_of_a_secret_stays_and_what_is_around_it_does() {
        for secret in [SECRET, "with%41=3Dand\\x41&amp;more", "pass word/ü+123"] {
            let live = LiveSecrets::new([("s", secret)]).unwrap();
            for (how, spelled) in spellings(secret) {
                let text = format!("before\n{spelled}\nafter");
                let clean = live.scrub_text(&text).unwrap_or_else(|| panic!("{secret} as {how}"));
                assert!(clean.starts_with("before") && clean.ends_with("after"), "{how}: {clean}");
                assert!(clean.contains(REMOVED), "{how}: {clean}");
                assert_eq!(live.scrub_text(&clean), None, "{how}: {clean}");
                let longest = spelled.split(|c: char| !c.is_ascii_alphanumeric()).max_by_key(|part| part.len());
                let part = longest.filter(|part| part.len() >= 8).unwrap_or("\u{0}");
                assert!(!clean.contains(part), "{how}: {clean}");
            }
        }
    }

    #[test]
    fn ordinary_text_is_left_as_it_is() {
        let live = LiveSecrets::new([("s", SECRET), ("pin", "48151")]).unwrap();
        for text in ["", "tea at four", "order 2481516 = 50%", "{\"a\": \"b\\n\"}", "Zq3vK8mPw2Lx7Ry5Tn"] {
            assert_eq!(live.scrub_text(text), None, "{text}");
        }
        assert_eq!(live.scrub_text("the code 48151, please").unwrap(), "the code [credential removed], please");
        assert_eq!(LiveSecrets::default().scrub(b"anything"), None);
    }

    #[test]
    fn json_keeps_its_shape() {
        let live = LiveSecrets::new([("s", SECRET), ("n", "4815162342")]).unwrap();
        let zero: String = SECRET.chars().map(|c| format!("{c}\u{200B}")).collect();
        let value = json!({"a": [1, zero, {SECRET: true}], "b": "tea", "c": 4_815_162_342_u64});
        let clean = live.scrub_json(&value).unwrap();
        assert_eq!(clean["b"], "tea");
        assert_eq!((&clean["a"][0], &clean["a"][2][REMOVED], &clean["c"]), (&json!(1), &json!(true), &json!(REMOVED)));
        assert!(clean["a"][1].as_str().unwrap().contains(REMOVED));
        assert_eq!(live.scrub_json(&clean), None);
        // In the text of a JSON document, too.
        let text = json!({"echo": SECRET, "rest": "kept"}).to_string();
        let again: Value = serde_json::from_str(&live.scrub_text(&text).unwrap()).unwrap();
        assert_eq!(again, json!({"echo": REMOVED, "rest": "kept"}));
    }

    proptest! {
        #[test]
        fn nothing_breaks_it_and_what_it_gives_is_clean(text in "\\PC{0,200}", secret in "[!-~]{8,40}", at in 0_usize..200) {
            let live = LiveSecrets::new([("s", secret.as_str())]).unwrap();
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let reflected = format!("{} {secret} {}", &text[..at], &text[at..]);
            let clean = live.scrub_text(&reflected);
            prop_assert!(clean.is_some_and(|clean| live.scrub_text(&clean).is_none()));
        }
    }
}
