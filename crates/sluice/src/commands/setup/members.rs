//! Editing JSON as text: one member is set, everything else keeps its order, spacing and spelling.
//!
//! Promise: what cannot be read as plain JSON (comments, trailing commas) is refused, not rewritten.

use serde_json::Value;

/// Sets the member at a path, making objects on the way where there are none.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    put(text, path, &|_| Ok(pretty(value, path.len())))
}

/// Adds an element to the list at a path, in place of those that contain `mark`.
pub(super) fn push(text: &str, path: &[&str], value: &Value, mark: &str) -> Result<String, String> {
    put(text, path, &|old| {
        let indent = "  ".repeat(path.len() + 1);
        let mut list: Vec<String> = match old {
            Some(old) => elements(old)?.into_iter().filter(|one| !one.contains(mark)).map(str::to_owned).collect(),
            None => Vec::new(),
        };
        list.push(pretty(value, path.len() + 1));
        Ok(format!("[\n{indent}{}\n{}]", list.join(&format!(",\n{indent}")), "  ".repeat(path.len())))
    })
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
    fn what_is_not_plain_json_is_left_alone() {
        for text in ["// comment\n{}", "{\"a\":1,}", "[]", "{\"a\": 1"] {
            assert!(set(text, &["x"], &json!(1)).is_err(), "{text}");
        }
        assert!(set("{\"a\": 1}", &["a", "b"], &json!(1)).is_err());
    }
}
