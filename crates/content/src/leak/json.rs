//! A JSON value as parts: every text in it that could leak something.
//!
//! Takes a value; gives one part for each string, each long number and each key name, named by its path. Promise:
//! nothing that would be sent is left out, and the name of a part never contains a key name that could be a secret.

use serde_json::Value;

use super::{KEY, OutboundPart, live_secrets};

/// Numbers shorter than this cannot identify anything.
const SHORTEST_NUMBER: usize = 7;
/// Key names are scanned from this length: nothing shorter is searched for.
const LONG_KEY: usize = live_secrets::TOO_SHORT;
/// Longest key name that appears in a path.
const PLAIN: usize = 24;

/// All parts of a value, in order.
#[must_use]
pub fn parts_of<'a>(name: &str, value: &'a Value) -> Vec<OutboundPart<'a>> {
    let mut walk = JsonPartWalk { parts: Vec::new(), keys: 0 };
    walk.value(name.to_owned(), None, value);
    walk.parts
}

struct JsonPartWalk<'a> {
    parts: Vec<OutboundPart<'a>>,
    /// The number of key names so far.
    keys: usize,
}

impl<'a> JsonPartWalk<'a> {
    fn value(&mut self, path: String, key: Option<&'a str>, value: &'a Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let text = number.to_string();
                if text.len() >= SHORTEST_NUMBER {
                    self.parts.push(OutboundPart::new(path, text));
                }
            }
            Value::String(text) => {
                let part = OutboundPart::new(path, text.as_str());
                self.parts.push(match key {
                    Some(key) => part.under(key),
                    None => part,
                });
            }
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.value(format!("{path}[{n}]"), key, item);
                }
            }
            Value::Object(fields) => {
                for (name, item) in fields {
                    self.keys += 1;
                    // The number stands for the key name, which is then not readable in the recorded finding.
                    let numbered = format!("{KEY}{})", self.keys);
                    if name.len() >= LONG_KEY {
                        self.parts.push(OutboundPart::new(numbered.clone(), name.as_str()));
                    }
                    let own = if is_plain(name) { name.as_str() } else { &numbered };
                    let path = if path.is_empty() { own.to_owned() } else { format!("{path}.{own}") };
                    self.value(path, Some(name), item);
                }
            }
        }
    }
}

/// Whether a key name is one or two words: no secret format looks like this.
fn is_plain(name: &str) -> bool {
    name.len() <= PLAIN && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        || name.len() <= PLAIN && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_text_number_and_long_name_is_a_part() {
        let value = json!({"to": ["a", "b"], "n": 123_456_789, "small": 5, "deep": {"a_rather_long_name_of_a_key": null, "x": "y"}});
        let parts = parts_of("", &value);
        let named: Vec<(&str, &str)> = parts.iter().map(|part| (&*part.name, &*part.text)).collect();
        let long = "a_rather_long_name_of_a_key";
        assert_eq!(
            named,
            [
                ("(key 1)", "deep"),
                ("(key 2)", long),
                ("deep.x", "y"),
                ("n", "123456789"),
                ("(key 5)", "small"),
                ("to[0]", "a"),
                ("to[1]", "b")
            ]
        );
    }

    #[test]
    fn the_name_of_a_key_that_could_be_a_secret_stands_in_no_path() {
        let value = json!({"value": {"kP9xQ2vLm7Zt": "below", "colour": "red", "Authorization": "none"}});
        let parts = parts_of("", &value);
        let named: Vec<(&str, &str)> = parts.iter().map(|part| (&*part.name, &*part.text)).collect();
        assert_eq!(
            named,
            [
                ("(key 1)", "value"),
                ("(key 2)", "Authorization"),
                ("value.Authorization", "none"),
                ("(key 3)", "colour"),
                ("value.colour", "red"),
                ("(key 4)", "kP9xQ2vLm7Zt"),
                ("value.(key 4)", "below"),
            ]
        );
    }
}
