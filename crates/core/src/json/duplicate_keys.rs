//! Tells whether all readers of a JSON text read the same: one value, several in a row, a repeated key, or no JSON.
//!
//! Takes bytes; builds no value. Promise: one pass, no deeper than 128 levels; a key counts as repeated when two
//! spellings of it decode to the same text.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::DUPLICATE;

/// The kind of a text, read as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonTextKind {
    /// One value.
    One,
    /// Several values, one after the other, as in JSON lines; or none at all.
    Several,
    /// An object in it has the same key twice: its meaning depends on the reader.
    Repeated,
    /// No JSON.
    Broken,
}

/// Reads a text without keeping any of it.
#[must_use]
pub fn classify(text: &[u8]) -> JsonTextKind {
    let mut count = 0_usize;
    for value in serde_json::Deserializer::from_slice(text).into_iter::<DuplicateCheckedJson>() {
        match value {
            Ok(DuplicateCheckedJson) => count += 1,
            Err(error) if error.to_string().starts_with(DUPLICATE) => return JsonTextKind::Repeated,
            Err(_) => return JsonTextKind::Broken,
        }
    }
    if count == 1 { JsonTextKind::One } else { JsonTextKind::Several }
}

/// A value that was checked and not kept.
struct DuplicateCheckedJson;

impl<'de> Deserialize<'de> for DuplicateCheckedJson {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(DuplicateKeyVisitor)
    }
}

struct DuplicateKeyVisitor;

impl<'de> Visitor<'de> for DuplicateKeyVisitor {
    type Value = DuplicateCheckedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<DuplicateCheckedJson, E> {
        Ok(DuplicateCheckedJson)
    }
    fn visit_i64<E>(self, _: i64) -> Result<DuplicateCheckedJson, E> {
        Ok(DuplicateCheckedJson)
    }
    fn visit_u64<E>(self, _: u64) -> Result<DuplicateCheckedJson, E> {
        Ok(DuplicateCheckedJson)
    }
    fn visit_f64<E>(self, _: f64) -> Result<DuplicateCheckedJson, E> {
        Ok(DuplicateCheckedJson)
    }
    fn visit_str<E>(self, _: &str) -> Result<DuplicateCheckedJson, E> {
        Ok(DuplicateCheckedJson)
    }
    fn visit_unit<E>(self) -> Result<DuplicateCheckedJson, E> {
        Ok(DuplicateCheckedJson)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<DuplicateCheckedJson, A::Error> {
        while elements.next_element::<DuplicateCheckedJson>()?.is_some() {}
        Ok(DuplicateCheckedJson)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<DuplicateCheckedJson, A::Error> {
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if !keys.insert(key) {
                return Err(de::Error::custom(DUPLICATE));
            }
            members.next_value::<DuplicateCheckedJson>()?;
        }
        Ok(DuplicateCheckedJson)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_value_several_ambiguous_or_none() {
        for (text, expected) in [
            ("{\"a\": [1, {\"a\": 2.5}], \"b\": null}", JsonTextKind::One),
            (" \"a\" ", JsonTextKind::One),
            ("{\"a\": 1}\n{\"a\": 2}\n", JsonTextKind::Several),
            ("", JsonTextKind::Several),
            ("{\"a\": 1, \"a\": 1}", JsonTextKind::Repeated),
            ("[[{\"x\": {\"a\": 1, \"\\u0061\": 2}}]]", JsonTextKind::Repeated),
            ("{\"a\": 1}\n{\"a\": 2, \"a\": 3}", JsonTextKind::Repeated),
            ("{\"a\": 1", JsonTextKind::Broken),
            ("{a: 1}", JsonTextKind::Broken),
            ("\"\\ud800\"", JsonTextKind::Broken),
            ("1e999", JsonTextKind::Broken),
        ] {
            assert_eq!(classify(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(classify("[".repeat(100_000).as_bytes()), JsonTextKind::Broken);
    }
}
