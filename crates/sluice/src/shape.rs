//! The shapes in which the API's answers are printed.
//!
//! Takes an answer and the field that names its entries, gives text that ends with a line end. Promise: an entry is a
//! line in the shapes that have lines, whatever stands in it; an id that is printed is the entry's own.

use std::io;

use serde_json::Value;

use crate::screen::Output;

/// An answer in a shape. The command says which field names an entry; of anything else it is its `id` or its name.
///
/// # Errors
/// When it cannot be written down.
pub(crate) fn of(answer: &Value, output: Output, named: Option<&str>) -> io::Result<String> {
    let mut text = match output {
        Output::Table | Output::Wide | Output::Json => {
            serde_json::to_string_pretty(answer).map_err(io::Error::other)?
        }
        Output::Jsonl => lines(entries(answer).iter().map(|entry| entry.to_string())),
        Output::Yaml => serde_saphyr::to_string(answer).map_err(io::Error::other)?,
        Output::Id => lines(entries(answer).iter().filter_map(|entry| id(entry, named))),
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

/// What an entry is called.
fn id(entry: &Value, named: Option<&str>) -> Option<String> {
    let own = match named {
        Some(named) => entry.get(named),
        None => entry.get("id").or_else(|| entry.get("name")),
    };
    match own? {
        // A name with a line end would be two.
        Value::String(text) => Some(crate::visible::line(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_has_a_line_for_each_entry_and_one_thing_has_one() {
        let list =
            json!({"data": [{"buffer_id": "buf_1", "call_id": "call_1"}, {"buffer_id": "buf_2"}], "has_more": false});
        assert_eq!(of(&list, Output::Id, Some("buffer_id")).unwrap(), "buf_1\nbuf_2\n");
        assert_eq!(of(&list, Output::Jsonl, None).unwrap().lines().count(), 2);
        let one = json!({"call_id": "call_1", "note": "two\nlines"});
        assert_eq!(of(&one, Output::Id, Some("call_id")).unwrap(), "call_1\n");
        assert_eq!(of(&one, Output::Jsonl, None).unwrap().lines().count(), 1);
        assert_eq!(of(&json!({"data": []}), Output::Id, None).unwrap(), "");
    }

    #[test]
    fn the_id_is_that_of_the_thing_and_not_of_another_it_mentions() {
        let hold = json!({"data": [{"approval_id": "appr_1", "buffer_id": "buf_1", "call_id": "call_1", "name": "x"}]});
        for (named, id) in [("buffer_id", "buf_1\n"), ("call_id", "call_1\n"), ("approval_id", "appr_1\n"), ("seq", "")]
        {
            assert_eq!(of(&hold, Output::Id, Some(named)).unwrap(), id);
        }
        assert_eq!(of(&json!([{"seq": 7}]), Output::Id, Some("seq")).unwrap(), "7\n");
        assert_eq!(of(&hold, Output::Id, None).unwrap(), "x\n");
    }

    #[test]
    fn what_is_printed_as_yaml_is_the_same_answer() {
        let answer = json!({"data": [{"name": "no", "n": 1, "list": ["a: b", "- c", ""], "when": null}], "more": true});
        let text = of(&answer, Output::Yaml, None).unwrap();
        let again: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(again, answer, "{text}");
    }
}
