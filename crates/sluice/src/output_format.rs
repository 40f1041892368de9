//! The output formats of API responses.
//!
//! Takes a response and the field with the id of its entries; gives text that ends with a line end. Promise: in formats
//! with lines, every entry is one line, whatever it contains; a printed id is the entry's own id.

use std::io;

use serde_json::Value;

use crate::console::OutputFormat;

/// A response in an output format. The command gives the field with the id; otherwise `id` or `name` is used.
///
/// # Errors
/// When it cannot be serialised.
pub(crate) fn of(answer: &Value, output: OutputFormat, named: Option<&str>) -> io::Result<String> {
    let mut text = match output {
        OutputFormat::Table | OutputFormat::Wide | OutputFormat::Json => {
            serde_json::to_string_pretty(answer).map_err(io::Error::other)?
        }
        OutputFormat::Jsonl => lines(entries(answer).iter().map(|entry| entry.to_string())),
        OutputFormat::Yaml => serde_saphyr::to_string(answer).map_err(io::Error::other)?,
        OutputFormat::Id => lines(entries(answer).iter().filter_map(|entry| id(entry, named))),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

/// The entries of a list; any other value is its own only entry.
fn entries(answer: &Value) -> &[Value] {
    match answer.get("data").and_then(Value::as_array).or_else(|| answer.as_array()) {
        Some(list) => list,
        None => std::slice::from_ref(answer),
    }
}

/// The id of an entry.
fn id(entry: &Value, named: Option<&str>) -> Option<String> {
    let own = match named {
        Some(named) => entry.get(named),
        None => entry.get("id").or_else(|| entry.get("name")),
    };
    match own? {
        // A name with a line end would print as two lines.
        Value::String(text) => Some(crate::escape::escape_line(text)),
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
        assert_eq!(of(&list, OutputFormat::Id, Some("buffer_id")).unwrap(), "buf_1\nbuf_2\n");
        assert_eq!(of(&list, OutputFormat::Jsonl, None).unwrap().lines().count(), 2);
        let one = json!({"call_id": "call_1", "note": "two\nlines"});
        assert_eq!(of(&one, OutputFormat::Id, Some("call_id")).unwrap(), "call_1\n");
        assert_eq!(of(&one, OutputFormat::Jsonl, None).unwrap().lines().count(), 1);
        assert_eq!(of(&json!({"data": []}), OutputFormat::Id, None).unwrap(), "");
    }

    #[test]
    fn the_id_is_that_of_the_thing_and_not_of_another_it_mentions() {
        let hold = json!({"data": [{"approval_id": "appr_1", "buffer_id": "buf_1", "call_id": "call_1", "name": "x"}]});
        for (named, id) in [("buffer_id", "buf_1\n"), ("call_id", "call_1\n"), ("approval_id", "appr_1\n"), ("seq", "")]
        {
            assert_eq!(of(&hold, OutputFormat::Id, Some(named)).unwrap(), id);
        }
        assert_eq!(of(&json!([{"seq": 7}]), OutputFormat::Id, Some("seq")).unwrap(), "7\n");
        assert_eq!(of(&hold, OutputFormat::Id, None).unwrap(), "x\n");
    }

    #[test]
    fn what_is_printed_as_yaml_is_the_same_answer() {
        let answer = json!({"data": [{"name": "no", "n": 1, "list": ["a: b", "- c", ""], "when": null}], "more": true});
        let text = of(&answer, OutputFormat::Yaml, None).unwrap();
        let again: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(again, answer, "{text}");
    }
}
