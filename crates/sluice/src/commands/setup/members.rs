//! Edits JSON as text: sets or removes one member; everything else keeps its order, spacing, spelling and comments.
//!
//! Takes plain JSON, or JSON with comments and trailing commas, which several clients read. Promise: a text that is
//! neither is refused, not rewritten; in a list, only elements with our marker are replaced or removed, even if they
//! share a group with others.

use serde_json::{Value, json};

/// Sets the member at a path; creates missing objects on the way.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    put(text, path, &|_| Ok(pretty(value, path.len())))
}

/// The value at a path.
pub(super) fn get(text: &str, path: &[&str]) -> Option<Value> {
    let read = read(text)?;
    path.iter().try_fold(&read, |value, key| value.get(key)).cloned()
}

/// The whole text as a value, with or without comments; `None` if it is not JSON.
pub(crate) fn read(text: &str) -> Option<Value> {
    serde_json::from_str(&plain(text)).ok()
}

/// Removes the member at a path, if it exists.
pub(super) fn cut(text: &str, path: &[&str]) -> Result<String, String> {
    if get(text, path).is_none() {
        return Ok(text.to_owned());
    }
    let bare = plain(text);
    let mut open = bare.find('{').ok_or("the file is not a JSON object")?;
    let [way @ .., last] = path else { return Err("the path is empty".into()) };
    for key in way {
        let object = JsonObjectLayout::read(&bare, open)?;
        let member = object.members.iter().find(|member| member.name == *key).ok_or("the path ends too early")?;
        open = member.start;
    }
    let object = JsonObjectLayout::read(&bare, open)?;
    let member = object.members.iter().find(|member| member.name == *last).ok_or("the path ends too early")?;
    let alone = object.members.len() == 1 && text.get(open..object.close) == bare.get(open..object.close);
    let edited = if alone { splice(text, open + 1, object.close, "") } else { cut_out(text, member.at, member.end) };
    checked(edited)
}

/// Adds an element to the list at a path, in place of elements with `mark`.
pub(super) fn push(text: &str, path: &[&str], value: &Value, mark: &str) -> Result<String, String> {
    put(text, path, &|old| {
        let (depth, fresh) = (path.len(), pretty(value, path.len() + 1));
        let Some(old) = old else { return Ok(format!("[\n{0}{fresh}\n{1}]", space(depth + 1), space(depth))) };
        let ours = OwnListElements::of(old, mark)?;
        // The new element replaces our last one; our other elements are removed.
        let (mut list, mut rest) = (old.to_owned(), ours.whole.as_slice());
        let kept = rest.split_first().map(|(first, others)| {
            rest = others;
            *first
        });
        let mut edits: Vec<(usize, usize, Option<String>)> =
            rest.iter().map(|(start, end)| (*start, *end, None)).collect();
        edits.extend(ours.shared.into_iter().map(|(start, end, left)| (start, end, Some(left))));
        edits.extend(kept.map(|(start, end)| (start, end, Some(fresh.clone()))));
        list = edited(&list, edits);
        if kept.is_some() {
            return Ok(list);
        }
        let bare = plain(&list);
        let last = elements(&bare)?.last().map(|(_, end)| *end);
        let close = bare.rfind(']').ok_or("the value is not a list")?;
        Ok(append(&list, (last, 0, close), &fresh, depth + 1))
    })
}

/// Removes elements with `mark` from the list at a path.
pub(super) fn pull(text: &str, path: &[&str], mark: &str) -> Result<String, String> {
    match get(text, path) {
        Some(Value::Array(list)) if list.iter().any(|one| is_marked(one, mark)) => put(text, path, &|old| {
            let old = old.unwrap_or("[]");
            let ours = OwnListElements::of(old, mark)?;
            if ours.is_all {
                return Ok("[]".to_owned());
            }
            let mut edits: Vec<(usize, usize, Option<String>)> =
                ours.whole.iter().map(|(start, end)| (*start, *end, None)).collect();
            edits.extend(ours.shared.into_iter().map(|(start, end, left)| (start, end, Some(left))));
            Ok(edited(old, edits))
        }),
        _ => Ok(text.to_owned()),
    }
}

/// Replaces or removes parts of a text.
fn edited(text: &str, mut edits: Vec<(usize, usize, Option<String>)>) -> String {
    // From the end, so that earlier positions stay valid.
    edits.sort_unstable_by_key(|(start, ..)| std::cmp::Reverse(*start));
    edits.into_iter().fold(text.to_owned(), |text, (start, end, with)| match with {
        Some(with) => splice(&text, start, end, &with),
        None => cut_out(&text, start, end),
    })
}

/// Our elements in a list.
struct OwnListElements {
    /// Elements that are only ours.
    whole: Vec<(usize, usize)>,
    /// Groups that contain other hooks too, and their text without ours.
    shared: Vec<(usize, usize, String)>,
    /// Whether the list contains nothing else.
    is_all: bool,
}

impl OwnListElements {
    fn of(list: &str, mark: &str) -> Result<Self, String> {
        let bare = plain(list);
        let all = elements(&bare)?;
        let mut ours = Self { whole: Vec::new(), shared: Vec::new(), is_all: false };
        for (start, end) in &all {
            let element = bare.get(*start..*end).unwrap_or_default();
            let value: Value =
                serde_json::from_str(element).map_err(|error| format!("an element cannot be read: {error}"))?;
            if !is_marked(&value, mark) {
                continue;
            }
            let group = value.get("hooks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let others: Vec<&Value> = group.iter().filter(|one| !is_marked(one, mark)).collect();
            if others.is_empty() {
                ours.whole.push((*start, *end));
            } else {
                let written = list.get(*start..*end).unwrap_or_default();
                ours.shared.push((*start, *end, set(written, &["hooks"], &json!(others))?));
            }
        }
        ours.is_all = ours.whole.len() == all.len();
        Ok(ours)
    }
}

/// Whether an element, or one in its group, is ours.
fn is_marked(element: &Value, mark: &str) -> bool {
    let bears = |text: Option<&Value>| text.and_then(Value::as_str).is_some_and(|text| text.contains(mark));
    let group = element.get("hooks").and_then(Value::as_array);
    element == mark || bears(element.get("command")) || group.into_iter().flatten().any(|one| bears(one.get("command")))
}

type MemberValueMaker<'a> = &'a dyn Fn(Option<&str>) -> Result<String, String>;

fn put(text: &str, path: &[&str], made: MemberValueMaker<'_>) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let bare = plain(text);
    match serde_json::from_str::<Value>(&bare) {
        Ok(Value::Object(_)) => {}
        Ok(_) => return Err("the file is not a JSON object".into()),
        Err(error) => return Err(format!("the file is not JSON: {error}")),
    }
    let open = bare.find('{').ok_or("the file is not a JSON object")?;
    checked(within((text, &bare), open, path, 1, made)?)
}

fn checked(edited: String) -> Result<String, String> {
    serde_json::from_str::<Value>(&plain(&edited)).map_err(|error| format!("the edit went wrong: {error}"))?;
    Ok(edited)
}

/// `bare` is the text without comments; both have everything else at the same position.
fn within(
    (text, bare): (&str, &str),
    open: usize,
    path: &[&str],
    depth: usize,
    made: MemberValueMaker<'_>,
) -> Result<String, String> {
    let [key, rest @ ..] = path else { return Err("the path is empty".into()) };
    let object = JsonObjectLayout::read(bare, open)?;
    let Some(JsonMemberLayout { start, end, .. }) = object.members.iter().find(|member| member.name == *key) else {
        let mut fresh = made(None)?;
        for (n, key) in rest.iter().enumerate().rev() {
            fresh = format!("{{\n{}{}: {fresh}\n{}}}", space(depth + n + 1), Value::from(*key), space(depth + n));
        }
        let member = format!("{}: {fresh}", Value::from(*key));
        let last = object.members.last().map(|member| member.end);
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

/// Removes an entry with its comma; comments around it stay.
fn cut_out(text: &str, start: usize, end: usize) -> String {
    let words = without_comments(text);
    let behind = blank(&words, end);
    let before = text.get(..start).unwrap_or_default().trim_end().len();
    if words.as_bytes().get(behind) == Some(&b',') {
        // An entry on lines of its own is removed with its lines.
        let own_line = text.get(before..start).is_some_and(|space| space.contains('\n'));
        let (from, to) = if own_line { (before, behind + 1) } else { (start, blank(text, behind + 1)) };
        return splice(text, from, to, "");
    }
    let comma = words.get(..start).and_then(|words| words.trim_end().strip_suffix(',')).map(str::len);
    let without = splice(text, before, end, "");
    comma.map_or_else(|| without.clone(), |comma| splice(&without, comma, comma + 1, ""))
}

/// Adds an entry between two brackets. Comments after the last entry stay with it.
fn append(text: &str, (last, open, close): (Option<usize>, usize, usize), fresh: &str, depth: usize) -> String {
    let Some(last) = last else {
        let between = text.get(open + 1..close).unwrap_or_default().trim_end();
        return splice(text, open + 1, close, &format!("{between}\n{}{fresh}\n{}", space(depth), space(depth - 1)));
    };
    let between = text.get(last..close).unwrap_or_default();
    // A trailing comma stays at the end.
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

/// The text as plain JSON: comments and trailing commas become spaces, everything else keeps its position.
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

/// The text with comments replaced by spaces.
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

/// Start and end of each element of a list.
fn elements(list: &str) -> Result<Vec<(usize, usize)>, String> {
    if !list.starts_with('[') {
        return Err("the value is not a list".into());
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

/// The members of an object.
struct JsonObjectLayout {
    members: Vec<JsonMemberLayout>,
    close: usize,
}

/// One member: the start of its name, and start and end of its value.
struct JsonMemberLayout {
    name: String,
    at: usize,
    start: usize,
    end: usize,
}

impl JsonObjectLayout {
    fn read(text: &str, open: usize) -> Result<Self, String> {
        let (mut members, mut at) = (Vec::new(), open + 1);
        loop {
            at = blank(text, at);
            if text.as_bytes().get(at) == Some(&b'}') {
                return Ok(Self { members, close: at });
            }
            let named = value_end(text, at)?;
            let name: String = serde_json::from_str(text.get(at..named).unwrap_or_default())
                .map_err(|_| "a member has no name".to_owned())?;
            let start = blank(text, blank(text, named) + 1);
            let end = value_end(text, start)?;
            members.push(JsonMemberLayout { name, at, start, end });
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

/// The end of the value that starts here. The text was parsed as JSON before, so brackets match.
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
        let after = push(list, &["hooks", "Pre"], &json!({"command": "sluice hook x"}), "sluice hook").unwrap();
        assert!(after.contains("// first\n") && after.contains("{\"command\": \"a\"}, // \u{fc}ber\n"), "{after}");
        let read: Value = serde_json::from_str(&plain(&after)).unwrap();
        assert_eq!(read["hooks"]["Pre"], json!([{"command": "a"}, {"command": "sluice hook x"}]));
        let again = push(&after, &["hooks", "Pre"], &json!({"command": "sluice hook y"}), "sluice hook").unwrap();
        assert_eq!(again, after.replace("hook x", "hook y"), "ours is replaced where it stands");
    }

    #[test]
    fn an_object_with_nothing_but_a_comment_keeps_it() {
        let after = set("{ // nothing yet\n}\n", &["a"], &json!(1)).unwrap();
        assert_eq!(after, "{ // nothing yet\n  \"a\": 1\n}\n");
        assert_eq!(serde_json::from_str::<Value>(&plain(&after)).unwrap(), json!({"a": 1}));
    }
}
