//! The shapes in which the API's answers are printed.
//!
//! Takes an answer, gives text that ends with a line end. Promise: an entry is a line in the shapes that have lines,
//! whatever stands in it.

use std::io;

use serde_json::Value;

use crate::screen::Output;

/// An answer in a shape.
///
/// # Errors
/// When it cannot be written down.
pub(crate) fn of(answer: &Value, output: Output) -> io::Result<String> {
    let mut text = match output {
        Output::Table | Output::Wide | Output::Json => {
            serde_json::to_string_pretty(answer).map_err(io::Error::other)?
        }
        Output::Jsonl => lines(entries(answer).iter().map(|entry| entry.to_string())),
        Output::Yaml => serde_saphyr::to_string(answer).map_err(io::Error::other)?,
        Output::Id => lines(entries(answer).iter().filter_map(id)),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

/// The entries of a list; anything else is its own only entry.
fn entries(answer: &Value) -> &[Value] {
    match answer.get("data").and_then(Value::as_array).or_else(|| answer.as_array()) {
        Some(list) => list,
        None => std::slice::from_ref(answer),
    }
}

/// What an entry is called: its own id, or its name. Ids of other things stand behind it.
fn id(entry: &Value) -> Option<String> {
    const OWN: [&str; 13] = [
        "approval_id",
        "buffer_id",
        "call_id",
        "key_id",
        "alert_id",
        "allowance_id",
        "finding_id",
        "session_id",
        "rule_id",
        "crash_id",
        "id",
        "name",
        "connection",
    ];
    let own = OWN.iter().find_map(|name| entry.get(name));
    let own = own.or_else(|| entry.as_object()?.iter().find(|(name, _)| name.ends_with("_id")).map(|(_, id)| id))?;
    // A name with a line end would be two.
    own.as_str().map(crate::visible::line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_has_a_line_for_each_entry_and_one_thing_has_one() {
        let list =
            json!({"data": [{"buffer_id": "buf_1", "call_id": "call_1"}, {"buffer_id": "buf_2"}], "has_more": false});
        assert_eq!(of(&list, Output::Id).unwrap(), "buf_1\nbuf_2\n");
        assert_eq!(of(&list, Output::Jsonl).unwrap().lines().count(), 2);
        let one = json!({"call_id": "call_1", "note": "two\nlines"});
        assert_eq!(of(&one, Output::Id).unwrap(), "call_1\n");
        assert_eq!(of(&one, Output::Jsonl).unwrap().lines().count(), 1);
        assert_eq!(of(&json!({"data": []}), Output::Id).unwrap(), "");
    }

    #[test]
    fn what_is_printed_as_yaml_is_the_same_answer() {
        let answer = json!({"data": [{"name": "no", "n": 1, "list": ["a: b", "- c", ""], "when": null}], "more": true});
        let text = of(&answer, Output::Yaml).unwrap();
        let again: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(again, answer, "{text}");
    }
}
