//! Strict JSON in, canonical JSON out.
//!
//! Takes unchecked bytes; gives a value that means the same to every reader, or says
//! where the text is wrong. Promise: what policy judges, people approve and workers execute is one value,
//! because a text with two readings (duplicate keys, lossy numbers, lone surrogates) is refused.

mod duplicate_keys;

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub use self::duplicate_keys::{JsonTextKind, classify};

/// How much JSON is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// Whole text, in bytes.
    pub bytes: usize,
    /// Nested arrays and objects.
    pub depth: usize,
    /// Object keys and array elements, all levels together.
    pub items: usize,
}

/// What an agent may send in one request.
pub const REQUEST: JsonLimits = JsonLimits { bytes: 1 << 20, depth: 64, items: 10_000 };

/// Longest number literal.
const NUMBER_DIGITS: usize = 40;
/// Above this, neighbouring integers share one double: 2^53.
const EXACT_INTEGER: i64 = 1 << 53;

/// Why a text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Longer than allowed.
    #[error("the text has {size} bytes, at most {max} are accepted")]
    TooLarge {
        /// Bytes found.
        size: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Nested deeper than allowed.
    #[error("nested deeper than {max} levels at byte {at}")]
    TooDeep {
        /// Levels allowed.
        max: usize,
        /// The byte where it happens.
        at: usize,
    },
    /// More keys and elements than allowed.
    #[error("more than {max} keys and elements")]
    TooMany {
        /// Items allowed.
        max: usize,
    },
    /// A number that a double cannot hold exactly.
    #[error("the number at byte {at} would lose digits; send it as a string")]
    LossyNumber {
        /// The byte where it begins.
        at: usize,
    },
    /// The same key twice in one object.
    #[error("the key `{key}` appears twice in one object")]
    DuplicateKey {
        /// The key, cut to length.
        key: String,
    },
    /// Not JSON.
    #[error("not valid JSON at line {line}, column {column}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
}

impl JsonError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "json.too_large",
            Self::TooDeep { .. } => "json.too_deep",
            Self::TooMany { .. } => "json.too_many_items",
            Self::LossyNumber { .. } => "json.lossy_number",
            Self::DuplicateKey { .. } => "json.duplicate_key",
            Self::Syntax { .. } => "json.syntax",
        }
    }
}

/// Reads a text that has exactly one meaning.
///
/// # Errors
/// When the text is not JSON, over a limit, or ambiguous.
pub fn parse(text: &[u8], limits: &JsonLimits) -> Result<Value, JsonError> {
    if text.len() > limits.bytes {
        return Err(JsonError::TooLarge { size: text.len(), max: limits.bytes });
    }
    survey(text, limits)?;
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = UnambiguousJson::deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value.0))
        .map_err(|error| refusal_of(&error))?;
    Ok(value)
}

/// The RFC 8785 form: one byte string for each value.
#[must_use]
pub fn to_canonical_bytes(value: &Value) -> Vec<u8> {
    if is_plain(value) {
        // Here the output of the serializer is already the canonical form, for a third of the work.
        return serde_json::to_vec(value).unwrap_or_default();
    }
    // The writer is a Vec and the value came through `parse` or was built by us, so the only error
    // the library knows (a non-finite number, which `Value` cannot hold) does not occur. An empty
    // answer would fail every digest comparison, which is the safe direction.
    serde_json_canonicalizer::to_vec(value).unwrap_or_default()
}

/// Whether the serializer's own bytes are the canonical ones: keys in ASCII and already in order, numbers whole and small
/// enough for a double to hold. Strings are escaped alike by both.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.as_i64().is_some_and(|whole| whole.unsigned_abs() < 1 << f64::MANTISSA_DIGITS),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(fields) => {
            fields.keys().all(|key| key.is_ascii()) && fields.keys().is_sorted() && fields.values().all(is_plain)
        }
    }
}

/// One linear pass before the parser: depth, item count and number literals, none of which
/// `serde_json` lets us see afterwards. It checks no grammar; the parser does.
fn survey(text: &[u8], limits: &JsonLimits) -> Result<(), JsonError> {
    let (mut depth, mut items, mut at) = (0_usize, 0_usize, 0_usize);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_string(text, at),
            b'{' | b'[' => {
                depth += 1;
                items += 1;
                if depth > limits.depth {
                    return Err(JsonError::TooDeep { max: limits.depth, at });
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => items += 1,
            b'-' | b'0'..=b'9' => {
                let rest = text.get(at..).unwrap_or_default();
                let length = rest.iter().take_while(|b| b"+-.eE0123456789".contains(b)).count();
                let literal = rest.get(..length).unwrap_or_default();
                if !is_lossless(literal) {
                    return Err(JsonError::LossyNumber { at });
                }
                at += length.saturating_sub(1);
            }
            _ => {}
        }
        if items > limits.items {
            return Err(JsonError::TooMany { max: limits.items });
        }
        at += 1;
    }
    Ok(())
}

/// Index of the closing quote of the string that opens at `at` (or the end of the text).
fn end_of_string(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// Whether the decimal number written here is the one that will be written back.
fn is_lossless(literal: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(literal) else { return false };
    if text.len() > NUMBER_DIGITS {
        return false;
    }
    if let Ok(integer) = text.parse::<i64>() {
        // `-0` is a negative zero to a double and `0` to JCS: two meanings.
        return (-EXACT_INTEGER..=EXACT_INTEGER).contains(&integer) && text != "-0";
    }
    let Ok(double) = text.parse::<f64>() else {
        return true; // not a number at all: the parser says so with line and column
    };
    // Beyond 2^53 every double is a whole number, and RFC 8785 writes many of them without an
    // exponent: refused in every spelling, so that canonical bytes always read back.
    // Compared with what RFC 8785 writes: of two shortest spellings of one double it takes the even one.
    let back = Number::from_f64(double).map(|number| to_canonical_bytes(&Value::Number(number))).unwrap_or_default();
    let back = std::str::from_utf8(&back).ok().and_then(decimal);
    double.abs() <= EXACT_INTEGER as f64 && back.is_some() && decimal(text) == back
}

/// Significant digits without trailing zeros, and the power of ten of the last one.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let power = exponent - fraction.len() as i64 + (digits.len() - kept.len()) as i64;
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() {
        return (!negative).then(|| (false, String::new(), 0));
    }
    Some((negative, kept.to_owned(), power))
}

const DUPLICATE: &str = "duplicate key ";

fn refusal_of(error: &serde_json::Error) -> JsonError {
    let text = error.to_string();
    if let Some(rest) = text.strip_prefix(DUPLICATE) {
        let key = rest.rsplit_once(" at line ").map_or(rest, |(key, _)| key);
        return JsonError::DuplicateKey { key: key.chars().take(64).collect() };
    }
    JsonError::Syntax { line: error.line(), column: error.column() }
}

/// A `Value` whose objects name each key once.
struct UnambiguousJson(Value);

impl<'de> Deserialize<'de> for UnambiguousJson {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(StrictJsonVisitor).map(Self)
    }
}

struct StrictJsonVisitor;

impl<'de> Visitor<'de> for StrictJsonVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        // `1.0` and `1` are the same number; keep one spelling inside as well.
        if value.fract() == 0.0 && value.abs() <= EXACT_INTEGER as f64 {
            return Ok(Value::Number((value as i64).into()));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(UnambiguousJson(element)) = elements.next_element()? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("{DUPLICATE}{key}")));
            }
            let UnambiguousJson(value) = members.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Value, JsonError> {
        parse(text.as_bytes(), &REQUEST)
    }

    #[test]
    fn a_key_given_twice_is_refused_at_any_depth() {
        assert_eq!(read(r#"{"to":"a","to":"b"}"#), Err(JsonError::DuplicateKey { key: "to".into() }));
        assert!(matches!(read(r#"[{"a":{"b":1,"\u0062":2}}]"#), Err(JsonError::DuplicateKey { .. })));
    }

    #[test]
    fn numbers_that_would_change_are_refused() {
        for lossy in [
            "9007199254740993",
            "-9007199254740993",
            "18446744073709551615",
            "0.10000000000000000001",
            "1e400",
            "1e17",
            "1e30",
            "1e-400",
            "-0",
            "-0.0",
            "3.14159265358979323846",
            "-2245088543769245.3",
        ] {
            assert!(matches!(read(lossy), Err(JsonError::LossyNumber { .. })), "{lossy}");
        }
        for exact in ["0", "9007199254740992", "0.1", "1.50", "1e2", "1E+2", "-2.5e-3", "100.0", "-2245088543769245.2"]
        {
            assert!(read(exact).is_ok(), "{exact}");
        }
        assert!(matches!(read(&"1".repeat(41)), Err(JsonError::LossyNumber { .. })));
    }

    #[test]
    fn limits_are_exact() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(read(&deep(64)).is_ok());
        assert!(matches!(read(&deep(65)), Err(JsonError::TooDeep { max: 64, at: 64 })));
        assert!(matches!(read(&deep(100_000)), Err(JsonError::TooDeep { .. })));
        let wide = format!("[{}0]", "0,".repeat(10_000));
        assert!(matches!(read(&wide), Err(JsonError::TooMany { .. })));
        let large = format!("\"{}\"", "x".repeat(1 << 20));
        assert!(matches!(read(&large), Err(JsonError::TooLarge { .. })));
    }

    #[test]
    fn malformed_text_is_refused_with_its_place() {
        for bad in
            ["", "{", "{\"a\":}", "nul", "[1,]", "\"\\ud800\"", "1 2", "{\"a\" 1}", "'a'", "01", "+1", "1.", "--1"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(read("{\n  \"a\": x}"), Err(JsonError::Syntax { line: 2, column: 8 }));
        assert!(parse(b"\"\xff\"", &REQUEST).is_err());
    }

    #[test]
    fn brackets_inside_strings_do_not_count() {
        assert!(read(&format!("\"{}\"", "[".repeat(1000))).is_ok());
        assert!(read(r#"["\\","\"[[["]"#).is_ok());
    }

    /// RFC 8785, section 3.2.2 and 3.2.3, and the number samples of its appendix B that JSON text can carry exactly.
    #[test]
    fn the_rfc_8785_vectors_hold() {
        let value: Value = serde_json::from_str(
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
                "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
        )
        .unwrap();
        let expected = concat!(
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(String::from_utf8(to_canonical_bytes(&value)).unwrap(), expected);

        let sorted: Value = serde_json::from_str(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
                "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        )
        .unwrap();
        let text = String::from_utf8(to_canonical_bytes(&sorted)).unwrap();
        let order: Vec<usize> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
            .iter()
            .map(|word| text.find(word).unwrap())
            .collect();
        assert!(order.is_sorted(), "{text}");

        for (bits, expected) in [
            (0x0000_0000_0000_0001_u64, "5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
        ] {
            let number = Value::Number(Number::from_f64(f64::from_bits(bits)).unwrap());
            assert_eq!(String::from_utf8(to_canonical_bytes(&number)).unwrap(), expected);
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            (-EXACT_INTEGER..=EXACT_INTEGER).prop_map(|n| Value::Number(n.into())),
            any::<f64>().prop_filter_map("exact, not -0", |f| {
                (f.abs() <= EXACT_INTEGER as f64 && f.to_bits() != (-0.0_f64).to_bits())
                    .then(|| Number::from_f64(f).map(Value::Number))?
            }),
            ".{0,12}".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_bytes_read_back_to_themselves(value in any_value()) {
            let bytes = to_canonical_bytes(&value);
            let again = parse(&bytes, &REQUEST).unwrap();
            prop_assert_eq!(to_canonical_bytes(&again), bytes);
        }

        #[test]
        fn the_short_way_writes_what_the_library_writes(
            value in any_value(),
            strings in prop::collection::btree_map("[\\x00-\\x7f]{0,4}", any::<String>(), 0..8),
            whole in any::<i64>(),
        ) {
            let plain = serde_json::json!({"strings": strings, "whole": whole, "of all kinds": value});
            for value in [&value, &plain, &plain["strings"], &plain["whole"]] {
                prop_assert_eq!(to_canonical_bytes(value), serde_json_canonicalizer::to_vec(value).unwrap());
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse(&bytes, &REQUEST);
        }
    }
}
