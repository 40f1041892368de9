//! A marked block in a TOML file: we replace the block and leave everything around it unchanged.
//!
//! Takes the file's text; gives it with our block at its end, or without it. Promise: valid entries stay valid and keep
//! their meaning; where that is not possible (the table exists, or is written in a form that cannot be extended), the
//! file is refused.

use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item};

const START: &str = "# >>> sluice: written by `sluice setup`, removed by `sluice setup --undo`";
const END: &str = "# <<< sluice";
/// What the block contains.
const TABLE: [&str; 2] = ["mcp_servers", "sluice"];
const LISTS: [[&str; 2]; 3] = [["hooks", "PreToolUse"], ["hooks", "PostToolUse"], ["hooks", "UserPromptSubmit"]];

/// The text with our block, in place of an earlier one.
pub(super) fn put(text: &str, block: &str) -> Result<String, String> {
    let rest = cut(text)?;
    let before = read(&rest)?;
    if at(&before, TABLE).is_some() {
        return Err(format!("`{}` already exists and was not written by sluice", TABLE.join(".")));
    }
    let gap = if rest.is_empty() || rest.ends_with("\n\n") {
        ""
    } else if rest.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    let after = format!("{rest}{gap}{START}\n{block}{END}\n");
    let mut with = read(&after).map_err(|_| {
        format!("`{}` or `{}` is written in a form that cannot be extended", TABLE[0], LISTS[0].join("."))
    })?;
    take_out(&mut with, &before);
    if with != before {
        return Err("the sluice block would change the meaning of other entries".into());
    }
    Ok(after)
}

/// The text without our block.
pub(super) fn cut(text: &str) -> Result<String, String> {
    match (text.find(START), text.find(END)) {
        (Some(start), Some(end)) if start < end => {
            let before = text.get(..start).unwrap_or_default();
            let after = text.get(end + END.len()..).unwrap_or_default();
            let after = after.strip_prefix('\n').unwrap_or(after);
            // The empty line before our block belongs to the block.
            let before = if before.ends_with("\n\n") { before.strip_suffix('\n').unwrap_or(before) } else { before };
            Ok(format!("{before}{after}"))
        }
        (None, None) => Ok(text.to_owned()),
        _ => Err("the markers of the sluice block are damaged".into()),
    }
}

/// The text as JSON values.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let document: DocumentMut = text.parse().map_err(|_| "the file is not valid TOML".to_owned())?;
    Ok(plain(document.as_item()))
}

fn plain(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => plain_value(value),
        Item::Table(table) => Value::Object(table.iter().map(|(key, item)| (key.to_owned(), plain(item))).collect()),
        Item::ArrayOfTables(list) => Value::Array(
            list.iter()
                .map(|table| Value::Object(table.iter().map(|(key, item)| (key.to_owned(), plain(item))).collect()))
                .collect(),
        ),
    }
}

fn plain_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::String(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        toml_edit::Value::Float(number) => Value::String(format!("float {}", number.value())),
        toml_edit::Value::Boolean(word) => Value::Bool(*word.value()),
        toml_edit::Value::Datetime(time) => Value::String(format!("time {:?}", time.value())),
        toml_edit::Value::Array(list) => Value::Array(list.iter().map(plain_value).collect()),
        toml_edit::Value::InlineTable(table) => {
            Value::Object(table.iter().map(|(key, value)| (key.to_owned(), plain_value(value))).collect())
        }
    }
}

fn at<'v>(value: &'v Value, [table, key]: [&str; 2]) -> Option<&'v Value> {
    value.get(table)?.get(key)
}

/// Removes what the block added; what did not exist without it is removed too.
fn take_out(with: &mut Value, before: &Value) {
    let Some(all) = with.as_object_mut() else { return };
    let emptied = |map: &Map<String, Value>, table: &str| map.is_empty() && before.get(table).is_none();
    if let Some(Value::Object(servers)) = all.get_mut(TABLE[0]) {
        servers.remove(TABLE[1]);
        if emptied(servers, TABLE[0]) {
            all.remove(TABLE[0]);
        }
    }
    for list in LISTS {
        let had = at(before, list).and_then(Value::as_array).map_or(0, Vec::len);
        let Some(Value::Object(hooks)) = all.get_mut(list[0]) else { continue };
        if let Some(Value::Array(entries)) = hooks.get_mut(list[1])
            && entries.len() == had + 1
        {
            entries.pop();
            if entries.is_empty() && at(before, list).is_none() {
                hooks.remove(list[1]);
            }
        }
        if emptied(hooks, list[0]) {
            all.remove(list[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "[mcp_servers.sluice]\ncommand = \"s\"\n\n[[hooks.PreToolUse]]\nmatcher = \".*\"\n";

    #[test]
    fn a_block_is_added_once_and_taken_out_again() {
        let text = "model = \"x\"\n";
        let once = put(text, OURS).unwrap();
        assert!(once.starts_with("model = \"x\"\n\n# >>> sluice"));
        assert_eq!(put(&once, OURS).unwrap(), once);
        assert_eq!(cut(&once).unwrap(), text);
        let other = put(&format!("{once}[tail]\nb = 1\n"), OURS).unwrap();
        assert_eq!(cut(&other).unwrap(), "model = \"x\"\n[tail]\nb = 1\n");
        assert_eq!(put("", OURS).and_then(|text| cut(&text)).unwrap(), "");
    }

    #[test]
    fn what_is_there_is_neither_broken_nor_replaced() {
        for text in [
            "[mcp_servers]\nsluice = { command = \"mine\" }\n",
            "[mcp_servers.\"sluice\"]\ncommand = \"mine\"\n",
            "mcp_servers = { a = { command = \"x\" } }\n",
            "[hooks]\nPreToolUse = [{ matcher = \"x\" }]\n",
            "not toml",
        ] {
            assert!(put(text, OURS).is_err(), "{text}");
        }
    }

    #[test]
    fn what_only_mentions_us_or_stands_beside_us_is_no_hindrance() {
        for text in [
            "# once there was [mcp_servers.sluice] here\nmodel = \"x\"\n",
            "[mcp_servers]\na = { command = \"x\" }\n",
            "[mcp_servers.a]\ncommand = \"x\"\n\n[[hooks.PreToolUse]]\nmatcher = \"mine\"\n",
        ] {
            let after = put(text, OURS).unwrap();
            assert!(after.starts_with(text), "{after}");
            let read = read(&after).unwrap();
            assert_eq!(at(&read, TABLE).unwrap()["command"], "s");
        }
    }
}
