//! Schemas of third parties: checked with every keyword that can be checked within limits.
//!
//! Takes a schema that somebody else wrote; gives a schema that is safe to check against, or the keyword that prevents
//! it. Promise: names inside the schema (`$anchor`, `$dynamicRef`) are resolved inside it and nowhere else; a pattern
//! with look-around takes a limited number of steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonschema::PatternOptions;
use serde_json::{Map, Value};

use super::{REGEX, SafeSchema, cost};

/// Most steps of a pattern that the linear engine does not know. A value that needs more does not match.
const STEPS: usize = 20_000;
/// Deepest nesting in which names are searched; deeper schemas are refused for their nesting.
const NESTING: usize = 64;
/// Parts of a schema that hold values, not schemas.
const VALUES: [&str; 4] = ["default", "const", "enum", "examples"];

/// Why a schema cannot be checked against.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{keyword}` {reason}")]
pub struct SchemaFault {
    /// The keyword that prevents it, cut to length.
    pub keyword: String,
    /// What is wrong with it.
    pub reason: SchemaFaultReason,
}

/// What is wrong with a keyword of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFaultReason {
    /// It refers to something outside the schema.
    #[error("refers to another document")]
    Elsewhere,
    /// It refers to a place that the schema does not have.
    #[error("refers to a place that does not exist")]
    Nowhere,
    /// It gives a part of the schema an address of its own.
    #[error("gives a part of the schema another address")]
    Address,
    /// The schema is too large or nested too deeply there.
    #[error("is too large or nested too deeply")]
    Large,
    /// Checking it has no reasonable limit.
    #[error("makes the cost of checking unlimited")]
    Costly,
    /// It is not a valid keyword of JSON Schema.
    #[error("is not valid in JSON Schema")]
    Invalid,
}

impl SchemaFault {
    pub(super) fn new(keyword: &str, reason: SchemaFaultReason) -> Self {
        let keyword = keyword.chars().filter(|c| !c.is_control() && *c != '`').take(64).collect();
        Self { keyword, reason }
    }
}

impl SafeSchema {
    /// Compiles a schema that a third party wrote. It may name its own parts, and its patterns may look around.
    ///
    /// # Errors
    /// When it cannot be checked within limits, with the keyword that prevents it.
    pub fn compile_foreign(schema: &Value) -> Result<Self, SchemaFault> {
        let schema = without_names(schema);
        cost::accept(&schema)?;
        let linear = PatternOptions::regex().size_limit(REGEX).dfa_size_limit(REGEX);
        if let Ok(validator) = jsonschema::options().with_pattern_options(linear).offline().build(&schema) {
            return Ok(Self(Arc::new(validator)));
        }
        let stepping = PatternOptions::fancy_regex().backtrack_limit(STEPS).size_limit(REGEX).dfa_size_limit(REGEX);
        let built = jsonschema::options().with_pattern_options(stepping).offline().build(&schema);
        built.map(|validator| Self(Arc::new(validator))).map_err(|error| {
            let place = error.instance_path().to_string();
            let named = place.rsplit('/').find(|part| !part.is_empty() && part.parse::<u32>().is_err());
            SchemaFault::new(named.unwrap_or("type"), SchemaFaultReason::Invalid)
        })
    }
}

/// The same schema in which references to names are references to places.
///
/// A schema without parts at another address is one resource, and in it a dynamic reference always leads to the one
/// place of that name. A schema in which a name is given twice, or a part has an address, stays as it is.
#[must_use]
pub fn without_names(schema: &Value) -> Value {
    let mut names = BTreeMap::new();
    if !gather(schema, &mut String::new(), 0, &mut names) {
        return schema.clone();
    }
    let mut schema = schema.clone();
    replace(&mut schema, 0, &names);
    schema
}

/// Collects names and their places. False if they cannot be told apart.
fn gather(node: &Value, place: &mut String, depth: usize, names: &mut BTreeMap<String, String>) -> bool {
    if depth > NESTING {
        return false;
    }
    let length = place.len();
    match node {
        Value::Object(map) => {
            for key in ["$anchor", "$dynamicAnchor"] {
                let Some(Value::String(name)) = map.get(key) else { continue };
                if names.insert(name.clone(), place.clone()).is_some_and(|before| before != *place) {
                    return false;
                }
            }
            map.iter().filter(|(key, _)| !VALUES.contains(&key.as_str())).all(|(key, value)| {
                place.push('/');
                place.push_str(&key.replace('~', "~0").replace('/', "~1"));
                let fine = gather(value, place, depth + 1, names);
                place.truncate(length);
                fine
            })
        }
        Value::Array(list) => list.iter().enumerate().all(|(n, value)| {
            place.push_str(&format!("/{n}"));
            let fine = gather(value, place, depth + 1, names);
            place.truncate(length);
            fine
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn replace(node: &mut Value, depth: usize, names: &BTreeMap<String, String>) {
    if depth > NESTING {
        return;
    }
    match node {
        Value::Object(map) => {
            let mut leads = None;
            for key in ["$ref", "$dynamicRef"] {
                let target = map.get(key).and_then(Value::as_str);
                let place = target.and_then(|target| target.strip_prefix('#')).and_then(|name| names.get(name));
                if let Some(place) = place {
                    leads = Some((key, place.clone()));
                }
            }
            if let Some((key, place)) = leads {
                map.remove(key);
                add_reference(map, &place);
            }
            if map.get("$recursiveRef").and_then(Value::as_str) == Some("#") {
                map.remove("$recursiveRef");
                add_reference(map, "");
            }
            for key in ["$anchor", "$dynamicAnchor", "$recursiveAnchor"] {
                if map.get(key).is_some_and(|name| name.is_string() || name.is_boolean()) {
                    map.remove(key);
                }
            }
            let inner = map.iter_mut().filter(|(key, _)| !VALUES.contains(&key.as_str()));
            inner.for_each(|(_, value)| replace(value, depth + 1, names));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, depth + 1, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Adds a reference to a place, beside another reference if there is one.
fn add_reference(map: &mut Map<String, Value>, place: &str) {
    let target = Value::String(format!("#{place}"));
    if !map.contains_key("$ref") {
        map.insert("$ref".into(), target);
        return;
    }
    let all = map.entry("allOf").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(all) = all {
        all.push(serde_json::json!({"$ref": target}));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_inside_a_schema_are_followed_inside_it() {
        for (mark, refer) in [("$anchor", "$ref"), ("$dynamicAnchor", "$dynamicRef"), ("$dynamicAnchor", "$ref")] {
            let schema = json!({
                "type": "object", "$defs": {"x/y": {mark: "name", "type": "string"}},
                "properties": {"a": {refer: "#name"}},
            });
            let compiled = SafeSchema::compile_foreign(&schema).unwrap_or_else(|fault| panic!("{mark}: {fault}"));
            assert!(compiled.allows(&json!({"a": "x"})) && !compiled.allows(&json!({"a": 1})), "{mark} {refer}");
        }
        let tree = json!({
            "$dynamicAnchor": "node", "type": "object",
            "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
        });
        let compiled = SafeSchema::compile_foreign(&tree).unwrap();
        assert!(compiled.allows(&json!({"value": 1, "children": [{"value": 2}]})));
        assert!(!compiled.allows(&json!({"children": [{"value": "x"}]})));
    }

    #[test]
    fn a_pattern_that_looks_around_is_checked_in_a_limited_number_of_steps() {
        let schema = json!({"type": "string", "pattern": "^(?!secret)[a-z]+$"});
        let compiled = SafeSchema::compile_foreign(&schema).unwrap();
        assert!(compiled.allows(&json!("public")) && !compiled.allows(&json!("secrets")));
        let endless = json!({"type": "string", "pattern": "^(?=(a|aa)+$)(a|a)*\\1b"});
        let compiled = SafeSchema::compile_foreign(&endless).unwrap();
        assert!(!compiled.allows(&json!("a".repeat(20_000))), "a value that takes too long is not allowed");
    }

    #[test]
    fn a_fault_names_its_keyword() {
        let fault = |schema: Value| SafeSchema::compile_foreign(&schema).map(|_| ()).unwrap_err().to_string();
        assert_eq!(fault(json!({"$ref": "https://a.example/x"})), "`$ref` refers to another document");
        assert_eq!(fault(json!({"$ref": "#nowhere"})), "`$ref` refers to a place that does not exist");
        assert_eq!(fault(json!({"$ref": "#/$defs/none"})), "`$ref` refers to a place that does not exist");
        assert_eq!(fault(json!({"properties": {"a": {"type": "strin"}}})), "`type` is not valid in JSON Schema");
        assert!(fault(json!({"properties": {"a": {"pattern": "("}}})).starts_with("`pattern` "));
        let doubling = json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
        assert!(fault(doubling).ends_with("makes the cost of checking unlimited"));
        let inner = json!({"properties": {"a": {"$id": "https://a.example/", "type": "string"}}});
        assert_eq!(fault(inner), "`$id` gives a part of the schema another address");
    }
}
