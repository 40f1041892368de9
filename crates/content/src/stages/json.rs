//! Parsed JSON: each string and key is decoded, passed through the stages and put back in its place.
//!
//! Takes a text; gives its strings one by one, and the text with the changed strings. Promise: numbers, structure and
//! blanks keep their bytes, and so does a string that no stage changed and that has no `\u` escape; JSON inside a
//! string is parsed as well, three levels deep; the cost of each level is linear.

mod shape;

use serde_json::Value;
use sluice_core::json::{JsonTextKind, classify};

pub(super) use self::shape::MarkupIntent;
use self::shape::SchemaWalk;

/// How many levels of JSON inside a string are opened.
const NESTED: usize = 3;
/// Shorter strings hold no JSON worth opening.
const LEAST_NESTED: usize = 7;
/// The most strings that are read. A document with more is refused for its members.
const MOST: usize = 400_000;

/// The role of a string in its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonStringRole {
    Key,
    Value,
}

/// One string of a document.
#[derive(Debug, Clone)]
struct JsonString {
    /// The position of its opening quote.
    start: usize,
    /// The position after its closing quote.
    end: usize,
    role: JsonStringRole,
    intent: MarkupIntent,
    /// Its decoded text, where that differs from the text between its quotes.
    text: Option<String>,
    /// Whether it must be written again.
    rewritten: bool,
    /// The JSON inside it.
    nested: Option<Box<JsonDocument>>,
}

/// A JSON text and its strings.
#[derive(Debug, Clone)]
pub(super) struct JsonDocument {
    source: String,
    strings: Vec<JsonString>,
    /// Whether it is valid JSON, so that the result is valid JSON again.
    pub(super) is_valid: bool,
}

/// Whether a text begins and ends like an object or a list.
pub(super) fn looks_like_json(text: &str) -> bool {
    let text = text.trim_matches([' ', '\n', '\r', '\t', '\u{feff}']);
    text.len() >= LEAST_NESTED
        && text.contains('"')
        && matches!((text.as_bytes().first(), text.as_bytes().last()), (Some(b'{' | b'['), Some(b'}' | b']')))
}

impl JsonDocument {
    /// Parses a text. Invalid JSON is read as far as it has quotes.
    pub(super) fn read(source: String, intent: MarkupIntent, shape: Option<&Value>) -> Self {
        Self::below(source, intent, shape, NESTED)
    }

    fn below(source: String, intent: MarkupIntent, shape: Option<&Value>, depth: usize) -> Self {
        let is_valid = classify(source.as_bytes()) != JsonTextKind::Broken;
        let strings = strings(&source, intent, shape, depth);
        Self { source, strings, is_valid }
    }

    fn text_of<'a>(&'a self, string: &'a JsonString) -> &'a str {
        let between = || self.source.get(string.start + 1..string.end.saturating_sub(1)).unwrap_or_default();
        string.text.as_deref().unwrap_or_else(between)
    }

    /// Passes every string to `change`, the innermost ones where a string holds JSON; the result replaces the string.
    pub(super) fn each(&mut self, change: &mut dyn FnMut(&str, MarkupIntent) -> Option<String>) {
        let mut strings = std::mem::take(&mut self.strings);
        for string in &mut strings {
            let changed = match &mut string.nested {
                Some(nested) => {
                    nested.each(change);
                    nested.is_rewritten().then(|| nested.render())
                }
                None => change(self.text_of(string), string.intent),
            };
            if changed.is_some() {
                (string.text, string.rewritten) = (changed, true);
            }
        }
        self.strings = strings;
    }

    fn is_rewritten(&self) -> bool {
        self.strings.iter().any(|string| string.rewritten)
    }

    /// The text with each string as it is now.
    pub(super) fn render(&self) -> String {
        self.put_together(&|string, out| {
            if string.rewritten {
                out.push_str(&Value::from(self.text_of(string)).to_string());
            } else {
                out.push_str(self.source.get(string.start..string.end).unwrap_or_default());
            }
        })
    }

    /// The text with every escape decoded: the same layout, and each string as its content.
    pub(super) fn layout(&self) -> String {
        self.put_together(&|string, out| {
            out.push('"');
            match &string.nested {
                Some(nested) => out.push_str(&nested.layout()),
                None => out.push_str(self.text_of(string)),
            }
            out.push('"');
        })
    }

    fn put_together(&self, write: &dyn Fn(&JsonString, &mut String)) -> String {
        let mut out = String::with_capacity(self.source.len());
        let mut from = 0;
        for string in &self.strings {
            out.push_str(self.source.get(from..string.start).unwrap_or_default());
            write(string, &mut out);
            from = string.end;
        }
        out.push_str(self.source.get(from..).unwrap_or_default());
        out
    }

    /// Every string and key in document order.
    pub(super) fn leaves(&self) -> Vec<(JsonStringRole, &str)> {
        let mut leaves = Vec::with_capacity(self.strings.len());
        self.gather(&mut leaves);
        leaves
    }

    fn gather<'a>(&'a self, leaves: &mut Vec<(JsonStringRole, &'a str)>) {
        for string in &self.strings {
            match &string.nested {
                Some(nested) => nested.gather(leaves),
                None => leaves.push((string.role, self.text_of(string))),
            }
        }
    }
}

/// Every string of a text, decoded.
fn strings(source: &str, intent: MarkupIntent, shape: Option<&Value>, depth: usize) -> Vec<JsonString> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut walk = SchemaWalk::new(shape, intent);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'"' {
            walk.pass(byte);
            at += 1;
            continue;
        }
        let Some(end) = end_of(bytes, at) else { break };
        let inside = source.get(at + 1..end - 1).unwrap_or_default();
        let next = bytes.get(end..).unwrap_or_default().iter().find(|byte| !byte.is_ascii_whitespace());
        let role = if next == Some(&b':') { JsonStringRole::Key } else { JsonStringRole::Value };
        let text = unescaped(inside);
        let said = text.as_deref().unwrap_or(inside);
        let own = match role {
            JsonStringRole::Key => {
                walk.key(said);
                intent
            }
            JsonStringRole::Value => walk.intent(),
        };
        let nested = (role == JsonStringRole::Value && depth > 0 && own != MarkupIntent::Html && looks_like_json(said))
            .then(|| JsonDocument::below(said.to_owned(), own, None, depth - 1))
            .filter(|nested| nested.is_valid)
            .map(Box::new);
        let rewritten = inside.contains("\\u");
        found.push(JsonString { start: at, end, role, intent: own, text, rewritten, nested });
        if found.len() == MOST {
            break;
        }
        at = end;
    }
    found
}

/// The position after the closing quote of the string that opens here; `None` if it never closes.
fn end_of(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The decoded content of a string; `None` if it has no escapes. Half of a surrogate pair is not a character.
fn unescaped(inside: &str) -> Option<String> {
    if !inside.contains('\\') {
        return None;
    }
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.find('\\') {
        out.push_str(rest.get(..at).unwrap_or_default());
        let from = rest.get(at..).unwrap_or_default();
        let (length, c) = escape(from);
        out.push(c);
        rest = from.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    Some(out)
}

/// One escape: its length and its character.
fn escape(from: &str) -> (usize, char) {
    let unit = |at: usize| {
        let digits = from.get(at..at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let second = from.get(1..).and_then(|rest| rest.chars().next());
    let plain = |c: char| (1 + second.map_or(0, char::len_utf8), c);
    match second {
        Some('n') => plain('\n'),
        Some('r') => plain('\r'),
        Some('t') => plain('\t'),
        Some('b') => plain('\u{8}'),
        Some('f') => plain('\u{c}'),
        Some('u') => match (unit(2), unit(8).filter(|_| from.get(6..8) == Some("\\u"))) {
            (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                let joined = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                (12, char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            (Some(single), _) => (6, char::from_u32(single).unwrap_or(char::REPLACEMENT_CHARACTER)),
            (None, _) => plain('u'),
        },
        Some(other) => plain(other),
        None => (1, '\\'),
    }
}

/// Strings joined in sequence.
pub(super) fn joined(leaves: &[(JsonStringRole, &str)], role: JsonStringRole, between: &str) -> String {
    let texts = leaves.iter().filter(|(own, _)| *own == role).map(|(_, text)| *text);
    let mut out = String::new();
    for (n, text) in texts.enumerate() {
        if n > 0 {
            out.push_str(between);
        }
        out.push_str(text);
    }
    out
}

/// The document inside a passage of plain text, for detectors only.
pub(super) fn inside(text: &str) -> Option<JsonDocument> {
    let document = looks_like_json(text).then(|| JsonDocument::read(text.to_owned(), MarkupIntent::Source, None))?;
    document.is_valid.then_some(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            "\\PC{0,12}|[\\x00-\\x1f\"\\\\/{}\\[\\]:,]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,6}", inner.clone(), 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                inner.prop_map(|value| Value::from(value.to_string())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_nobody_changes_comes_back_as_it_was(value in value()) {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let mut document = JsonDocument::read(text.clone(), MarkupIntent::Data, None);
                document.each(&mut |_, _| None);
                prop_assert_eq!(serde_json::from_str::<Value>(&document.render()).unwrap(), value.clone());
            }
        }

        #[test]
        fn every_string_can_be_changed_and_nothing_else_is(value in value()) {
            let mut document = JsonDocument::read(value.to_string(), MarkupIntent::Data, None);
            document.each(&mut |text, _| Some(text.to_owned()));
            prop_assert_eq!(serde_json::from_str::<Value>(&document.render()).unwrap(), value);
        }

        #[test]
        fn whatever_it_is_given_it_ends(text in "[\\[\\]{}\":,\\\\u0-9a-f dD8é]{0,80}") {
            let mut document = JsonDocument::read(text.clone(), MarkupIntent::Data, None);
            document.each(&mut |_, _| Some("x".into()));
            prop_assert!(document.render().len() <= text.len() * 3 + 8);
            prop_assert!(document.leaves().iter().all(|(_, leaf)| *leaf == "x"));
        }
    }

    #[test]
    fn strings_keys_and_json_inside_of_strings_are_decoded_in_the_order_in_which_they_stand() {
        let inner = json!({"c\u{200b}": "d\u{1f600}"}).to_string();
        let text = format!("{{\"b\": \"\\u0061\\ud83d\\ude00\\ud83d\", \"a\": {}, \"z\": 1.50}}", Value::from(inner));
        let document = JsonDocument::read(text, MarkupIntent::Data, None);
        let leaves = document.leaves();
        let expected = [
            (JsonStringRole::Key, "b"),
            (JsonStringRole::Value, "a\u{1f600}\u{fffd}"),
            (JsonStringRole::Key, "a"),
            (JsonStringRole::Key, "c\u{200b}"),
            (JsonStringRole::Value, "d\u{1f600}"),
            (JsonStringRole::Key, "z"),
        ];
        assert_eq!(leaves, expected);
        assert_eq!(joined(&leaves, JsonStringRole::Value, "+"), "a\u{1f600}\u{fffd}+d\u{1f600}");
    }
}
