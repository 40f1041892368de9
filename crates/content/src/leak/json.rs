//! A JSON value as parts: every text in it that could carry something out.
//!
//! Takes a value; gives one part for each string, each long number and each name of a key, named by its path.
//! Promise: nothing that would be sent is left out.

use serde_json::Value;

use super::Part;

/// Numbers shorter than this say nothing.
const SHORTEST_NUMBER: usize = 7;
/// Names of keys are scanned together from this length on; shorter ones hold nothing.
const LONG_KEY: usize = 16;

/// All parts of a value, in order.
#[must_use]
pub fn parts_of<'a>(name: &str, value: &'a Value) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    walk(name.to_owned(), None, value, &mut parts);
    parts
}

fn walk<'a>(path: String, key: Option<&'a str>, value: &'a Value, parts: &mut Vec<Part<'a>>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            let text = number.to_string();
            if text.len() >= SHORTEST_NUMBER {
                parts.push(Part::new(path, text));
            }
        }
        Value::String(text) => {
            let part = Part::new(path, text.as_str());
            parts.push(match key {
                Some(key) => part.under(key),
                None => part,
            });
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                walk(format!("{path}[{n}]"), key, item, parts);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if name.len() >= LONG_KEY {
                    parts.push(Part::new(format!("{path} (name)"), name.as_str()));
                }
                walk(path, Some(name), item, parts);
            }
        }
    }
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
                ("deep.a_rather_long_name_of_a_key (name)", long),
                ("deep.x", "y"),
                ("n", "123456789"),
                ("to[0]", "a"),
                ("to[1]", "b")
            ]
        );
    }
}
