//! Headers that repeat parts of a message: revisions without a handshake require them for servers at an address.
//!
//! Takes a message and the header annotations of the server's tools; gives names and values of headers. Pure. Promise:
//! a value is ASCII that every header parser reads the same way, or base64 that is marked as such; a tool that asks for
//! anything else is not used.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The key in a schema that names the header of an argument.
const MARK: &str = "x-mcp-header";
/// Where a request of these revisions states its revision.
const VERSION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
/// Parts of a schema that hold values, not schemas.
const VALUES: [&str; 4] = ["default", "const", "enum", "examples"];
/// Parts of a schema that hold schemas by name.
const NAMED: [&str; 5] = ["properties", "$defs", "definitions", "dependentSchemas", "patternProperties"];

/// An argument, by the path of names that leads to it, and the header that repeats it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArgumentHeader {
    path: Vec<String>,
    header: String,
}

/// The arguments of a schema that headers repeat.
///
/// # Errors
/// When the schema asks for a header that is not possible.
pub(super) fn repeated(schema: &Value) -> Result<Vec<ArgumentHeader>, String> {
    let mut found = Vec::new();
    gather(schema.get("properties"), &mut Vec::new(), &mut found)?;
    let mut names = BTreeSet::new();
    if let Some(twice) = found.iter().find(|one| !names.insert(one.header.to_ascii_lowercase())) {
        return Err(format!("two of its arguments want the header `{}`", twice.header));
    }
    if marks(schema) != found.len() {
        return Err("it wants a header for something that is not one of its arguments".into());
    }
    Ok(found)
}

fn gather(properties: Option<&Value>, path: &mut Vec<String>, found: &mut Vec<ArgumentHeader>) -> Result<(), String> {
    for (name, shape) in properties.and_then(Value::as_object).into_iter().flatten() {
        path.push(name.clone());
        if let Some(mark) = shape.get(MARK) {
            let token = |text: &&str| !text.is_empty() && text.len() <= 64 && text.bytes().all(is_token);
            let header = mark.as_str().filter(token).ok_or("it wants a header with an invalid name")?;
            let kind = shape.get("type").and_then(Value::as_str).unwrap_or_default();
            if !["string", "integer", "boolean"].contains(&kind) {
                return Err("it wants a header for an argument that is not a string, an integer or a boolean".into());
            }
            found.push(ArgumentHeader { path: path.clone(), header: header.to_owned() });
        }
        gather(shape.get("properties"), path, found)?;
        path.pop();
    }
    Ok(())
}

/// The number of headers that a schema asks for, anywhere in it.
fn marks(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match key.as_str() {
                MARK => 1,
                key if VALUES.contains(&key) => 0,
                key if NAMED.contains(&key) => value.as_object().into_iter().flatten().map(|(_, one)| marks(one)).sum(),
                _ => marks(value),
            })
            .sum(),
        Value::Array(list) => list.iter().map(marks).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The headers of a message; none for a message of the older revisions.
pub(super) fn of(message: &Value, tools: &BTreeMap<String, Vec<ArgumentHeader>>) -> Vec<(String, String)> {
    let Some(version) = message.pointer(VERSION).and_then(Value::as_str) else { return Vec::new() };
    let Some(method) = message.get("method").and_then(Value::as_str) else { return Vec::new() };
    let mut headers =
        vec![("mcp-protocol-version".to_owned(), version.to_owned()), ("mcp-method".to_owned(), method.to_owned())];
    if method != "tools/call" {
        return headers;
    }
    let name = message.pointer("/params/name").and_then(Value::as_str).unwrap_or_default();
    headers.push(("mcp-name".to_owned(), encoded(name)));
    let arguments = message.pointer("/params/arguments").unwrap_or(&Value::Null);
    for ArgumentHeader { path, header } in tools.get(name).into_iter().flatten() {
        let value = match path.iter().try_fold(arguments, |value, step| value.get(step)) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(yes)) => yes.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => continue,
        };
        headers.push((format!("mcp-param-{}", header.to_ascii_lowercase()), encoded(&value)));
    }
    headers
}

/// A value in the form that a header can carry.
fn encoded(value: &str) -> String {
    let plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let padded = value.starts_with(' ') || value.ends_with(' ');
    let pretends = value.starts_with("=?base64?") && value.ends_with("?=");
    if plain && !padded && !pretends { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    #[test]
    fn arguments_are_repeated_as_ascii_or_as_base64_that_says_so() {
        let shape = schema(json!({
            "region": {"type": "string", "x-mcp-header": "Region"}, "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
            "query": {"type": "string"},
        }));
        let tools = BTreeMap::from([("find".to_owned(), repeated(&shape).unwrap())]);
        let message = |arguments: Value| {
            json!({"method": "tools/call", "id": 1, "params": {"name": "find", "arguments": arguments,
                "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}})
        };
        let headers = |arguments| of(&message(arguments), &tools).into_iter().collect::<BTreeMap<_, _>>();
        let plain = headers(json!({"region": "us west", "count": 42, "deep": {"on": false}, "query": "x"}));
        for (name, value) in [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "find"),
            ("mcp-param-region", "us west"),
            ("mcp-param-count", "42"),
            ("mcp-param-on", "false"),
        ] {
            assert_eq!(plain.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(plain.len(), 6, "an argument without an annotation is in no header");
        for odd in [" padded", "a\r\nb", "世界", "=?base64?eA==?=", "\tx"] {
            let value = headers(json!({"region": odd, "count": null}))["mcp-param-region"].clone();
            let inner = value.strip_prefix("=?base64?").and_then(|text| text.strip_suffix("?=")).unwrap();
            assert_eq!(STANDARD.decode(inner).unwrap(), odd.as_bytes());
        }
        assert!(!headers(json!({"region": "x", "count": null})).contains_key("mcp-param-count"));
    }

    #[test]
    fn messages_of_the_older_revisions_have_no_such_headers() {
        assert!(of(&json!({"method": "tools/call", "params": {"name": "find"}}), &BTreeMap::new()).is_empty());
        assert!(of(&json!({"id": 1, "result": {}}), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn a_header_that_cannot_be_is_refused() {
        let one = |mark: Value, kind: &str| repeated(&schema(json!({"a": {"type": kind, "x-mcp-header": mark}})));
        assert!(one(json!("Region"), "string").is_ok());
        for (mark, kind) in [
            (json!(""), "string"),
            (json!("My Region"), "string"),
            (json!("A:B"), "string"),
            (json!("Région"), "string"),
            (json!("A\tB"), "string"),
            (json!(7), "string"),
            (json!("A"), "number"),
            (json!("A"), "object"),
            (json!("A"), "array"),
            (json!("A"), "null"),
        ] {
            assert!(one(mark.clone(), kind).is_err(), "{mark} on {kind}");
        }
        let twice = json!({"a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}});
        assert!(repeated(&schema(twice)).is_err());
        let inside = json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "X"}}});
        assert!(repeated(&schema(inside)).is_err());
        let only_a_value = json!({"a": {"type": "object", "default": {"x-mcp-header": "X"}}});
        assert_eq!(repeated(&schema(only_a_value)), Ok(Vec::new()));
    }
}
