//! Editing JSON as text: one member is set or taken out, everything else keeps its order, spacing and spelling.
//!
//! Promise: what cannot be read as plain JSON (comments, trailing commas) is refused, not rewritten; of a list only what
//! bears our mark is replaced or taken out, also where it stands in one group with others.

use serde_json::Value;

/// Sets the member at a path, making objects on the way where there are none.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    put(text, path, &|_| Ok(pretty(value, path.len())))
}

/// What stands at a path.
pub(super) fn get(text: &str, path: &[&str]) -> Option<Value> {
    let read: Value = serde_json::from_str(text).ok()?;
    path.iter().try_fold(&read, |value, key| value.get(key)).cloned()
}

/// Takes the member at a path out, if it is there.
pub(super) fn cut(text: &str, path: &[&str]) -> Result<String, String> {
    if get(text, path).is_none() {
        return Ok(text.to_owned());
    }
    let mut open = text.find('{').ok_or("the file is not a JSON object")?;
    let [way @ .., last] = path else { return Err("there is no path".into()) };
    for key in way {
        let object = Object::read(text, open)?;
        let (_, start, _) = object.members.iter().find(|(name, ..)| name == key).ok_or("the path ends too early")?;
        open = *start;
    }
    let object = Object::read(text, open)?;
    let at = object.members.iter().position(|(name, ..)| name == last).ok_or("the path ends too early")?;
    let (_, _, end) = object.members.get(at).ok_or("the path ends too early")?;
    let before = at.checked_sub(1).and_then(|at| object.members.get(at));
    let edited = match before {
        Some((_, _, previous)) => splice(text, *previous, *end, ""),
        None if object.members.len() == 1 => splice(text, open + 1, object.close, ""),
        // The comma behind it goes along.
        None => splice(text, blank(text, open + 1), blank(text, blank(text, *end) + 1), ""),
    };
    serde_json::from_str::<Value>(&edited).map_err(|error| format!("the edit went wrong: {error}"))?;
    Ok(edited)
}

/// Adds an element to the list at a path, in place of what bears `mark`.
pub(super) fn push(text: &str, path: &[&str], value: &Value, mark: &str) -> Result<String, String> {
    put(text, path, &|old| {
        let mut list = match old {
            Some(old) => unmarked(old, mark)?,
            None => Vec::new(),
        };
        list.push(pretty(value, path.len() + 1));
        Ok(joined(&list, path.len()))
    })
}

/// Takes what bears `mark` out of the list at a path.
pub(super) fn pull(text: &str, path: &[&str], mark: &str) -> Result<String, String> {
    match get(text, path) {
        Some(Value::Array(list)) if list.iter().any(|one| is_marked(one, mark)) => {
            put(text, path, &|old| Ok(joined(&unmarked(old.unwrap_or("[]"), mark)?, path.len())))
        }
        _ => Ok(text.to_owned()),
    }
}

fn joined(list: &[String], depth: usize) -> String {
    if list.is_empty() {
        return "[]".to_owned();
    }
    let indent = "  ".repeat(depth + 1);
    format!("[\n{indent}{}\n{}]", list.join(&format!(",\n{indent}")), "  ".repeat(depth))
}

/// Whether an element, or one of its group, is ours.
fn is_marked(element: &Value, mark: &str) -> bool {
    let bears = |text: Option<&Value>| text.and_then(Value::as_str).is_some_and(|text| text.contains(mark));
    let group = element.get("hooks").and_then(Value::as_array);
    element == mark || bears(element.get("command")) || group.into_iter().flatten().any(|one| bears(one.get("command")))
}

/// The elements of a list as they are written, without ours; a group keeps those of its members that are not.
fn unmarked(list: &str, mark: &str) -> Result<Vec<String>, String> {
    let mut kept = Vec::new();
    for element in elements(list)? {
        let value: Value =
            serde_json::from_str(element).map_err(|error| format!("an element cannot be read: {error}"))?;
        if !is_marked(&value, mark) {
            kept.push(element.to_owned());
            continue;
        }
        let Some(group) = value.get("hooks").and_then(Value::as_array) else { continue };
        let others: Vec<&Value> = group.iter().filter(|one| !is_marked(one, mark)).collect();
        if !others.is_empty() {
            kept.push(set(element, &["hooks"], &serde_json::json!(others))?);
        }
    }
    Ok(kept)
}

type Made<'a> = &'a dyn Fn(Option<&str>) -> Result<String, String>;

fn put(text: &str, path: &[&str], made: Made<'_>) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => {}
        Ok(_) => return Err("the file is not a JSON object".into()),
        Err(error) => return Err(format!("the file is not plain JSON: {error}")),
    }
    let open = text.find('{').ok_or("the file is not a JSON object")?;
    let edited = within(text, open, path, 1, made)?;
    serde_json::from_str::<Value>(&edited).map_err(|error| format!("the edit went wrong: {error}"))?;
    Ok(edited)
}

fn within(text: &str, open: usize, path: &[&str], depth: usize, made: Made<'_>) -> Result<String, String> {
    let [key, rest @ ..] = path else { return Err("there is no path".into()) };
    let object = Object::read(text, open)?;
    let Some((_, start, end)) = object.members.iter().find(|(name, ..)| name == key) else {
        let mut fresh = made(None)?;
        for (n, key) in rest.iter().enumerate().rev() {
            let (inner, outer) = ("  ".repeat(depth + n + 1), "  ".repeat(depth + n));
            fresh = format!("{{\n{inner}{}: {fresh}\n{outer}}}", Value::from(*key));
        }
        let (indent, close) = ("  ".repeat(depth), "  ".repeat(depth - 1));
        let member = format!("{}: {fresh}", Value::from(*key));
        return Ok(match object.members.last() {
            Some((_, _, end)) => splice(text, *end, *end, &format!(",\n{indent}{member}")),
            None => splice(text, open + 1, object.close, &format!("\n{indent}{member}\n{close}")),
        });
    };
    let old = text.get(*start..*end).unwrap_or_default();
    if rest.is_empty() {
        return Ok(splice(text, *start, *end, &made(Some(old))?));
    }
    if !old.starts_with('{') {
        return Err(format!("`{key}` is not an object there"));
    }
    within(text, *start, rest, depth + 1, made)
}

fn splice(text: &str, start: usize, end: usize, with: &str) -> String {
    format!("{}{with}{}", text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default())
}

fn pretty(value: &Value, depth: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

/// The elements of a list, as they are written.
fn elements(list: &str) -> Result<Vec<&str>, String> {
    if !list.starts_with('[') {
        return Err("what stands there is not a list".into());
    }
    let (mut found, mut at) = (Vec::new(), 1);
    loop {
        at = blank(list, at);
        if list.as_bytes().get(at) == Some(&b']') {
            return Ok(found);
        }
        let end = value_end(list, at)?;
        found.push(list.get(at..end).unwrap_or_default());
        at = blank(list, end);
        if list.as_bytes().get(at) == Some(&b',') {
            at += 1;
        }
    }
}

/// An object's members, with where their values start and end.
struct Object {
    members: Vec<(String, usize, usize)>,
    close: usize,
}

impl Object {
    fn read(text: &str, open: usize) -> Result<Self, String> {
        let (mut members, mut at) = (Vec::new(), open + 1);
        loop {
            at = blank(text, at);
            if text.as_bytes().get(at) == Some(&b'}') {
                return Ok(Self { members, close: at });
            }
            let end = value_end(text, at)?;
            let key: String = serde_json::from_str(text.get(at..end).unwrap_or_default())
                .map_err(|_| "a member has no name".to_owned())?;
            let start = blank(text, blank(text, end) + 1);
            let end = value_end(text, start)?;
            members.push((key, start, end));
            at = blank(text, end);
            if text.as_bytes().get(at) == Some(&b',') {
                at += 1;
            }
        }
    }
}

fn blank(text: &str, mut at: usize) -> usize {
    while text.as_bytes().get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Where the value that starts here ends. The text was read as JSON before, so brackets are in order.
fn value_end(text: &str, start: usize) -> Result<usize, String> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate().skip(start) {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    quoted = false;
                    if depth == 0 {
                        return Ok(at + 1);
                    }
                }
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Ok(at),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return Ok(at),
            _ => {}
        }
    }
    Err("the file ends too early".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_there_keeps_its_order_and_spelling() {
        let text =
            "{\n    \"zeta\":1e2,  \"alpha\" : [1, 2],\n    \"mcpServers\": {\"other\": {\"command\": \"x\"}}\n}\n";
        let after = set(text, &["mcpServers", "sluice"], &json!({"command": "s"})).unwrap();
        assert!(after.starts_with(
            "{\n    \"zeta\":1e2,  \"alpha\" : [1, 2],\n    \"mcpServers\": {\"other\": {\"command\": \"x\"},\n"
        ));
        assert_eq!(
            set(&after, &["mcpServers", "sluice"], &json!({"command": "s"})).unwrap(),
            after,
            "again changes nothing"
        );
        let read: Value = serde_json::from_str(&after).unwrap();
        assert_eq!((&read["mcpServers"]["sluice"]["command"], &read["zeta"]), (&json!("s"), &json!(100.0)));
    }

    #[test]
    fn an_empty_file_gets_everything_on_the_way() {
        let after = set("", &["a", "b", "c"], &json!({"d": true})).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), json!({"a": {"b": {"c": {"d": true}}}}));
        let after = push("{}", &["hooks", "Pre"], &json!({"command": "sluice hook x"}), "sluice hook").unwrap();
        assert_eq!(
            push(&after, &["hooks", "Pre"], &json!({"command": "sluice hook x"}), "sluice hook").unwrap(),
            after
        );
    }

    #[test]
    fn a_list_keeps_what_others_put_there() {
        let text = "{\"hooks\": {\"Pre\": [ {\"b\":1, \"a\":\"]}\"} , {\"command\": \"old sluice hook\"} ]}}";
        let after = push(text, &["hooks", "Pre"], &json!("sluice hook new"), "sluice hook").unwrap();
        assert!(after.contains("{\"b\":1, \"a\":\"]}\"}") && !after.contains("old sluice"), "{after}");
    }

    #[test]
    fn a_group_keeps_what_others_put_into_it() {
        let text = r#"{"hooks": {"Pre": [{"matcher": "Bash", "hooks": [{"command": "mine"}, {"command": "x # sluice hook y"}]}]}}"#;
        let ours = json!({"matcher": "*", "hooks": [{"command": "new # sluice hook y"}]});
        let after = push(text, &["hooks", "Pre"], &ours, "# sluice hook ").unwrap();
        let read: Value = serde_json::from_str(&after).unwrap();
        let first = json!({"matcher": "Bash", "hooks": [{"command": "mine"}]});
        assert_eq!(read["hooks"]["Pre"], json!([first, ours]), "{after}");
        let after = pull(&after, &["hooks", "Pre"], "# sluice hook ").unwrap();
        assert_eq!(get(&after, &["hooks", "Pre"]).unwrap(), json!([first]));
        let own = r#"{"Pre": [{"command": "my-sluice hook runner"}]}"#;
        assert_eq!(pull(own, &["Pre"], "# sluice hook ").unwrap(), own, "a likeness is not our mark");
    }

    #[test]
    fn a_member_taken_out_leaves_the_rest_byte_for_byte() {
        for (text, path) in [
            ("{\n  \"a\": 1,\n  \"m\": {\"x\": {}}\n}\n", ["m", "sluice"]),
            ("{\"m\": {}, \"b\" : [ ]}", ["m", "sluice"]),
        ] {
            let with = set(text, &path, &json!({"command": "s"})).unwrap();
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let back = cut(&with, &path).unwrap();
            assert_eq!(parsed(&back), parsed(text), "{back}");
            assert_eq!(cut(&back, &path).unwrap(), back);
        }
        let text = "{\n  \"a\": 1,\n  \"m\": {\"x\": {}}\n}\n";
        assert_eq!(cut(&set(text, &["m", "sluice"], &json!(1)).unwrap(), &["m", "sluice"]).unwrap(), text);
        assert_eq!(cut("{\"s\": 1, \"b\": 2}", &["s"]).unwrap(), "{\"b\": 2}");
    }

    #[test]
    fn what_is_not_plain_json_is_left_alone() {
        for text in ["// comment\n{}", "{\"a\":1,}", "[]", "{\"a\": 1"] {
            assert!(set(text, &["x"], &json!(1)).is_err(), "{text}");
        }
        assert!(set("{\"a\": 1}", &["a", "b"], &json!(1)).is_err());
    }
}
