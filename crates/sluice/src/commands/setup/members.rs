//! Editing JSON as text: one member is set, everything else keeps its order, spacing, spelling and comments.
//!
//! Takes plain JSON, or JSON with comments and trailing commas, which several clients read. Promise: what can be read as
//! neither is refused, not rewritten.

use serde_json::Value;

/// Sets the member at a path, making objects on the way where there are none.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    put(text, path, &|_| Ok(pretty(value, path.len())))
}

/// Adds an element to the list at a path, or puts it in the place of the first that contains `mark`.
pub(super) fn push(text: &str, path: &[&str], value: &Value, mark: &str) -> Result<String, String> {
    put(text, path, &|old| {
        let (depth, fresh) = (path.len(), pretty(value, path.len() + 1));
        let Some(old) = old else { return Ok(format!("[\n{0}{fresh}\n{1}]", space(depth + 1), space(depth))) };
        let plain = plain(old);
        let elements = elements(&plain)?;
        let is_ours = |(start, end): &&(usize, usize)| old.get(*start..*end).is_some_and(|one| one.contains(mark));
        if let Some((start, end)) = elements.iter().find(is_ours) {
            return Ok(splice(old, *start, *end, &fresh));
        }
        let close = plain.rfind(']').ok_or("what stands there is not a list")?;
        Ok(append(old, (elements.last().map(|(_, end)| *end), 0, close), &fresh, depth + 1))
    })
}

type Made<'a> = &'a dyn Fn(Option<&str>) -> Result<String, String>;

fn put(text: &str, path: &[&str], made: Made<'_>) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let bare = plain(text);
    match serde_json::from_str::<Value>(&bare) {
        Ok(Value::Object(_)) => {}
        Ok(_) => return Err("the file is not a JSON object".into()),
        Err(error) => return Err(format!("the file is not JSON: {error}")),
    }
    let open = bare.find('{').ok_or("the file is not a JSON object")?;
    let edited = within((text, &bare), open, path, 1, made)?;
    serde_json::from_str::<Value>(&plain(&edited)).map_err(|error| format!("the edit went wrong: {error}"))?;
    Ok(edited)
}

/// `bare` is the text without comments; both have everything else at the same place.
fn within(
    (text, bare): (&str, &str),
    open: usize,
    path: &[&str],
    depth: usize,
    made: Made<'_>,
) -> Result<String, String> {
    let [key, rest @ ..] = path else { return Err("there is no path".into()) };
    let object = Object::read(bare, open)?;
    let Some((_, start, end)) = object.members.iter().find(|(name, ..)| name == key) else {
        let mut fresh = made(None)?;
        for (n, key) in rest.iter().enumerate().rev() {
            fresh = format!("{{\n{}{}: {fresh}\n{}}}", space(depth + n + 1), Value::from(*key), space(depth + n));
        }
        let member = format!("{}: {fresh}", Value::from(*key));
        let last = object.members.last().map(|(_, _, end)| *end);
        return Ok(append(text, (last, open, object.close), &member, depth));
    };
    let old = text.get(*start..*end).unwrap_or_default();
    if rest.is_empty() {
        return Ok(splice(text, *start, *end, &made(Some(old))?));
    }
    if !old.starts_with('{') {
        return Err(format!("`{key}` is not an object there"));
    }
    within((text, bare), *start, rest, depth + 1, made)
}

/// Adds to what stands between two brackets. Comments after the last entry stay with it.
fn append(text: &str, (last, open, close): (Option<usize>, usize, usize), fresh: &str, depth: usize) -> String {
    let Some(last) = last else {
        let between = text.get(open + 1..close).unwrap_or_default().trim_end();
        return splice(text, open + 1, close, &format!("{between}\n{}{fresh}\n{}", space(depth), space(depth - 1)));
    };
    let between = text.get(last..close).unwrap_or_default();
    // A comma that ends a list stays the end of it.
    let ends = without_comments(between).contains(',');
    let (before, after) = if ends { ("", ",") } else { (",", "") };
    let kept = between.trim_end();
    let rest = between.get(kept.len()..).unwrap_or_default();
    splice(text, last, close, &format!("{before}{kept}\n{}{fresh}{after}{rest}", space(depth)))
}

fn splice(text: &str, start: usize, end: usize, with: &str) -> String {
    format!("{}{with}{}", text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default())
}

fn space(depth: usize) -> String {
    "  ".repeat(depth)
}

fn pretty(value: &Value, depth: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.replace('\n', &format!("\n{}", space(depth)))
}

/// The text as plain JSON: comments and commas at the end of a list are spaces, everything else is where it was.
fn plain(text: &str) -> String {
    let mut bare = without_comments(text).into_bytes();
    let (mut quoted, mut escaped, mut comma) = (false, false, None);
    for at in 0..bare.len() {
        let Some(&byte) = bare.get(at) else { break };
        match byte {
            _ if quoted && escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => (quoted, comma) = (!quoted, None),
            _ if quoted => {}
            b',' => comma = Some(at),
            b'}' | b']' => {
                if let Some(byte) = comma.take().and_then(|at| bare.get_mut(at)) {
                    *byte = b' ';
                }
            }
            b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => comma = None,
        }
    }
    // Only single bytes became spaces.
    String::from_utf8(bare).unwrap_or_default()
}

/// The text with spaces in the place of comments.
fn without_comments(text: &str) -> String {
    #[derive(PartialEq)]
    enum In {
        Text,
        Quotes,
        Line,
        Block,
    }
    let (mut bare, mut place, mut at) = (String::with_capacity(text.len()), In::Text, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let two = rest.get(..2).unwrap_or_default();
        let width = match place {
            In::Quotes if rest.starts_with('\\') => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            In::Text if two == "//" || two == "/*" => 2,
            In::Block if two == "*/" => 2,
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        let piece = rest.get(..width).unwrap_or_default();
        let shown = match (&place, piece) {
            (In::Text, "//") => {
                place = In::Line;
                false
            }
            (In::Text, "/*") => {
                place = In::Block;
                false
            }
            (In::Block, "*/") => {
                place = In::Text;
                false
            }
            (In::Line, "\n") => {
                place = In::Text;
                true
            }
            (In::Text, "\"") => {
                place = In::Quotes;
                true
            }
            (In::Quotes, "\"") => {
                place = In::Text;
                true
            }
            (In::Text | In::Quotes, _) => true,
            (In::Line | In::Block, _) => false,
        };
        if shown {
            bare.push_str(piece)
        } else {
            bare.push_str(&" ".repeat(width))
        }
        at += width;
    }
    bare
}

/// Where the elements of a list begin and end.
fn elements(list: &str) -> Result<Vec<(usize, usize)>, String> {
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
        found.push((at, end));
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
    fn what_is_no_json_is_left_alone() {
        for text in ["/* comment\n{}", "{\"a\":1,,}", "[]", "{\"a\": 1", "{\"a\": /}", "{'a': 1}"] {
            assert!(set(text, &["x"], &json!(1)).is_err(), "{text}");
        }
        assert!(set("{\"a\": 1}", &["a", "b"], &json!(1)).is_err());
    }

    #[test]
    fn comments_and_commas_at_the_end_stay_where_they_are() {
        let text = "// mine\n{\n  \"servers\": {\n    \"other\": {\"url\": \"http://x/*y*/\"}, // \"keep\": {\n  },\n  /* end, */\n}\n";
        let after = set(text, &["servers", "sluice"], &json!({"command": "s"})).unwrap();
        let expected =
            text.replace("// \"keep\": {\n", "// \"keep\": {\n    \"sluice\": {\n      \"command\": \"s\"\n    },\n");
        assert_eq!(after, expected);
        assert_eq!(set(&after, &["servers", "sluice"], &json!({"command": "s"})).unwrap(), after);
        let list = "{\"hooks\": {\"Pre\": [\n  // first\n  {\"command\": \"a\"} // \u{fc}ber\n]}}";
        let after = push(list, &["hooks", "Pre"], &json!("sluice hook x"), "sluice hook").unwrap();
        assert!(after.contains("// first\n") && after.contains("{\"command\": \"a\"}, // \u{fc}ber\n"), "{after}");
        let read: Value = serde_json::from_str(&plain(&after)).unwrap();
        assert_eq!(read["hooks"]["Pre"], json!([{"command": "a"}, "sluice hook x"]));
        let again = push(&after, &["hooks", "Pre"], &json!("sluice hook y"), "sluice hook").unwrap();
        assert_eq!(again, after.replace("hook x", "hook y"), "ours is replaced where it stands");
    }

    #[test]
    fn an_object_with_nothing_but_a_comment_keeps_it() {
        let after = set("{ // nothing yet\n}\n", &["a"], &json!(1)).unwrap();
        assert_eq!(after, "{ // nothing yet\n  \"a\": 1\n}\n");
        assert_eq!(serde_json::from_str::<Value>(&plain(&after)).unwrap(), json!({"a": 1}));
    }
}
