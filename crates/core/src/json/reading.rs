//! Whether all readers of a JSON text read the same: one value, several in a row, a key given twice, or no JSON.
//!
//! Takes bytes; builds nothing of them. Promise: one pass, no deeper than 128 levels; a key counts as given twice when two
//! spellings of it decode to the same text.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::DUPLICATE;

/// What a text is, read as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// One value.
    One,
    /// Several values, one after the other, as in JSON lines; or none at all.
    Several,
    /// An object in it has the same key twice: what it means depends on who reads it.
    Repeated,
    /// No JSON.
    Broken,
}

/// Reads a text without keeping any of it.
#[must_use]
pub fn reading(text: &[u8]) -> Reading {
    let mut count = 0_usize;
    for value in serde_json::Deserializer::from_slice(text).into_iter::<Looked>() {
        match value {
            Ok(Looked) => count += 1,
            Err(error) if error.to_string().starts_with(DUPLICATE) => return Reading::Repeated,
            Err(_) => return Reading::Broken,
        }
    }
    if count == 1 { Reading::One } else { Reading::Several }
}

/// A value that was looked at and not kept.
struct Looked;

impl<'de> Deserialize<'de> for Looked {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Looked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Looked, E> {
        Ok(Looked)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Looked, E> {
        Ok(Looked)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Looked, E> {
        Ok(Looked)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Looked, E> {
        Ok(Looked)
    }
    fn visit_str<E>(self, _: &str) -> Result<Looked, E> {
        Ok(Looked)
    }
    fn visit_unit<E>(self) -> Result<Looked, E> {
        Ok(Looked)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Looked, A::Error> {
        while elements.next_element::<Looked>()?.is_some() {}
        Ok(Looked)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Looked, A::Error> {
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if !keys.insert(key) {
                return Err(de::Error::custom(DUPLICATE));
            }
            members.next_value::<Looked>()?;
        }
        Ok(Looked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_value_several_ambiguous_or_none() {
        for (text, expected) in [
            ("{\"a\": [1, {\"a\": 2.5}], \"b\": null}", Reading::One),
            (" \"a\" ", Reading::One),
            ("{\"a\": 1}\n{\"a\": 2}\n", Reading::Several),
            ("", Reading::Several),
            ("{\"a\": 1, \"a\": 1}", Reading::Repeated),
            ("[[{\"x\": {\"a\": 1, \"\\u0061\": 2}}]]", Reading::Repeated),
            ("{\"a\": 1}\n{\"a\": 2, \"a\": 3}", Reading::Repeated),
            ("{\"a\": 1", Reading::Broken),
            ("{a: 1}", Reading::Broken),
            ("\"\\ud800\"", Reading::Broken),
            ("1e999", Reading::Broken),
        ] {
            assert_eq!(reading(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(reading("[".repeat(100_000).as_bytes()), Reading::Broken);
    }
}
