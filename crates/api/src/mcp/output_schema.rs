//! The schema of what a mounted tool answers, as clients of the gate may check it.
//!
//! Takes the schema that a server declares; gives one that also admits the gate's own answers. Promise: an answer of
//! the server that its schema allows is allowed here too, and a held or refused call never breaks a client that checks.

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::tools::object;

/// Largest schema that is passed on, in bytes.
const LARGEST: usize = 8 << 10;
/// Members of the root that references of the schema may lead to, or that say how it is read.
const OF_THE_ROOT: [&str; 3] = ["$schema", "$defs", "definitions"];

/// The server's schema, or the gate's answer where there is none of the server. `None` if it cannot be passed on.
pub(super) fn with_refusals(own: &Value) -> Option<JsonObject> {
    let Value::Object(own) = own else { return None };
    if own.get("type") != Some(&json!("object")) || own.contains_key("$id") || leads_elsewhere(own) {
        return None;
    }
    let mut root = Map::new();
    let mut own = own.clone();
    for name in OF_THE_ROOT {
        if let Some(member) = own.remove(name) {
            root.insert(name.to_owned(), member);
        }
    }
    root.insert("type".into(), json!("object"));
    let ours = json!({"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}});
    root.insert("anyOf".into(), json!([own, ours]));
    let schema = object(Value::Object(root));
    let size = serde_json::to_vec(&schema).map_or(usize::MAX, |text| text.len());
    (size <= LARGEST).then_some(schema)
}

/// Whether a reference leads to a place that is no longer there.
fn leads_elsewhere(schema: &Map<String, Value>) -> bool {
    let stays = |target: &str| ["#/$defs/", "#/definitions/"].iter().any(|start| target.starts_with(start));
    let mut waiting: Vec<&Value> = schema.values().collect();
    let referred = |map: &Map<String, Value>| {
        ["$ref", "$dynamicRef", "$anchor", "$dynamicAnchor"]
            .iter()
            .any(|name| map.get(*name).is_some_and(|target| !target.as_str().is_some_and(stays)))
    };
    if referred(schema) {
        return true;
    }
    while let Some(next) = waiting.pop() {
        match next {
            Value::Object(map) if referred(map) => return true,
            Value::Object(map) => waiting.extend(map.values()),
            Value::Array(list) => waiting.extend(list),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_schema_stays_and_a_refusal_fits_too() {
        let own = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": {"at": {"$ref": "#/$defs/time"}}, "required": ["at"], "$defs": {"time": {"type": "string"}},
        });
        let schema = Value::Object(with_refusals(&own).unwrap());
        let checked = sluice_content::stages::SafeSchema::compile(&schema).unwrap();
        let fits = |value: &Value| checked.allows(value);
        assert!(fits(&json!({"at": "noon"})) && fits(&json!({"status": "denied", "code": "approval.denied"})));
        assert!(!fits(&json!({"at": 7})) && !fits(&json!([])));
        assert_eq!(schema["type"], "object", "clients demand it of the root");
    }

    #[test]
    fn a_schema_that_cannot_be_moved_is_left_out() {
        for own in [
            json!({"type": "array"}),
            json!({"type": "object", "$id": "https://x.example/schema"}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/properties/b"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "https://x.example/schema"}}}),
            json!({"type": "object", "description": "x".repeat(LARGEST)}),
        ] {
            assert!(with_refusals(&own).is_none(), "{own}");
        }
    }
}
