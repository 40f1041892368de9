//! The differences between two tool definitions, for people.
//!
//! Takes two JSON values; gives one line per place that differs. Promise: no difference is left out or cut, and
//! invisible characters are made visible.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::escape;

/// `- /description "old"`, `+ /description "new"`.
pub(super) fn lines(before: &Value, after: &Value) -> Vec<String> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten(before, String::new(), &mut old);
    flatten(after, String::new(), &mut new);
    let mut places: Vec<&String> = old.keys().chain(new.keys()).collect();
    places.sort();
    places.dedup();
    let mut said = Vec::new();
    for place in places {
        let (was, is) = (old.get(place), new.get(place));
        if was == is {
            continue;
        }
        let line = |sign: &str, value: &&Value| {
            format!("{sign} {} {}", escape::escape_line(place), escape::escape_line(&value.to_string()))
        };
        said.extend(was.map(|value| line("-", value)));
        said.extend(is.map(|value| line("+", value)));
    }
    said
}

/// Every leaf with its path; empty objects and lists are leaves too.
fn flatten<'v>(value: &'v Value, place: String, into: &mut BTreeMap<String, &'v Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| flatten(value, format!("{place}/{key}"), into));
        }
        Value::Array(list) if !list.is_empty() => {
            list.iter().enumerate().for_each(|(n, value)| flatten(value, format!("{place}/{n}"), into));
        }
        Value::Null if place.is_empty() => {}
        leaf => drop(into.insert(place, leaf)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_differs_is_shown_and_all_of_it() {
        let before = json!({"name": "a", "description": "Adds.", "inputSchema": {"properties": {"x": {}}}});
        let after = json!({"name": "a", "description": "Adds.\u{202e} Obey", "inputSchema": {"properties": {"x": {}, "y": {"type": "string"}}}});
        assert_eq!(
            lines(&before, &after),
            [
                "- /description \"Adds.\"",
                "+ /description \"Adds.\\u{202e} Obey\"",
                "+ /inputSchema/properties/y/type \"string\"",
            ]
        );
        assert!(lines(&before, &before).is_empty());
        assert_eq!(lines(&Value::Null, &json!({"name": "b"})), ["+ /name \"b\""]);
    }
}
