//! The arguments of a mounted tool: their names, what each one names, and how a call is checked.
//!
//! Takes the schema of a definition; gives arguments and a check. Pure. Promise: every argument that the schema names,
//! wherever it names it, is known by its name; a tool that takes others has the targets in them found by value; a schema
//! that cannot be checked within limits is named by its keyword and checks nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_content::stages::{SafeSchema, SchemaFault, SchemaFaultReason, without_names};
use sluice_core::capability::{CapabilityParam, ParamKind};

/// Most arguments of a tool.
const ARGUMENTS: usize = 128;
/// Deepest nesting of parts that are combined.
const COMBINED: usize = 16;
/// Most parts that are combined.
const PARTS: usize = 512;
/// Keywords whose lists or values are further schemas of the same object.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SINGLE: [&str; 3] = ["if", "then", "else"];

/// Argument names under which tools usually take the values that policy checks.
const PATHS: [&str; 14] = [
    "path",
    "file",
    "file_path",
    "filepath",
    "filename",
    "directory",
    "dir",
    "folder",
    "repo_path",
    "repository",
    "source",
    "destination",
    "root",
    "cwd",
];
const CONTENTS: [&str; 5] = ["content", "body", "text", "message", "data"];
pub(super) const RECIPIENTS: [&str; 5] = ["to", "recipient", "recipients", "cc", "bcc"];
pub(super) const URLS: [&str; 5] = ["url", "uri", "link", "endpoint", "webhook"];
const TARGETS: [&str; 9] = ["host", "hostname", "channel", "account", "amount", "user", "username", "owner", "repo"];

/// The check of the arguments of a call.
#[derive(Debug, Clone)]
pub(super) enum ArgumentCheck {
    /// They must follow the schema.
    Schema(SafeSchema),
    /// They pass unchecked: the schema has a keyword that cannot be checked within limits.
    Unchecked(SchemaFault),
}

impl ArgumentCheck {
    /// Whether a call with these arguments may be made.
    pub(super) fn allows(&self, arguments: &Value) -> bool {
        match self {
            Self::Schema(schema) => schema.allows(arguments),
            Self::Unchecked(_) => true,
        }
    }

    /// What people must know about the check.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Self::Schema(_) => None,
            Self::Unchecked(fault) => Some(format!("its arguments pass unchecked: {fault}")),
        }
    }
}

/// The part of a definition that does not depend on the settings of the mount.
#[derive(Debug)]
pub(super) struct ToolArguments {
    pub(super) params: Vec<CapabilityParam>,
    /// The schema for agents.
    pub(super) schema: Value,
    pub(super) check: ArgumentCheck,
    /// Whether the tool takes arguments that the schema does not name.
    pub(super) open: bool,
}

/// Reads the arguments of a definition.
///
/// # Errors
/// When the tool cannot be used at all.
pub(super) fn read(definition: &Value) -> Result<ToolArguments, String> {
    let mut schema = match definition.get("inputSchema") {
        Some(Value::Object(schema)) => schema.clone(),
        _ => return Err("its arguments have no schema".into()),
    };
    if !schema.get("type").is_none_or(is_object) {
        return Err("its arguments are not an object".into());
    }
    schema.insert("type".into(), json!("object"));
    if !schema.get("properties").is_none_or(Value::is_object) {
        return Err("its schema cannot be read: `properties` is not an object".into());
    }
    let schema = Value::Object(schema);
    super::headers::repeated(&schema)?;
    let plain = without_names(&schema);
    let mut found = SchemaArguments { root: &plain, named: BTreeMap::new(), parts: 0, open: false, closed: false };
    found.gather(&plain, true, 0);
    if found.named.len() > ARGUMENTS {
        return Err(format!("it has more than {ARGUMENTS} arguments"));
    }
    let open = found.open || (found.named.is_empty() && !found.closed);
    let params = found.named.into_iter().map(|(name, (kind, required))| CapabilityParam {
        required,
        target: is_target(&name, kind),
        ..CapabilityParam::new(name, kind)
    });
    let params = params.collect();
    let check = match SafeSchema::compile_foreign(&schema) {
        Ok(compiled) => ArgumentCheck::Schema(compiled),
        // SECURITY: nobody here or at the agent can know what another document says.
        Err(fault) if fault.reason == SchemaFaultReason::Elsewhere => {
            return Err(format!("its schema cannot be used: {fault}"));
        }
        Err(fault) => ArgumentCheck::Unchecked(fault),
    };
    Ok(ToolArguments { params, schema, check, open })
}

fn is_object(kind: &Value) -> bool {
    kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
}

/// The arguments that the parts of a schema name.
struct SchemaArguments<'a> {
    root: &'a Value,
    named: BTreeMap<String, (ParamKind, bool)>,
    parts: usize,
    open: bool,
    closed: bool,
}

impl<'a> SchemaArguments<'a> {
    /// Adds what one part names. `always` says whether the part holds for every call.
    fn gather(&mut self, node: &'a Value, always: bool, depth: usize) {
        self.parts += 1;
        let Value::Object(map) = node else { return };
        if depth > COMBINED || self.parts > PARTS {
            // What is not read may name anything.
            self.open = true;
            return;
        }
        self.own(map, always);
        if let Some(Value::String(target)) = map.get("$ref") {
            match target.strip_prefix('#').and_then(|place| self.root.pointer(place)) {
                Some(part) => self.gather(part, always, depth + 1),
                None => self.open = true,
            }
        }
        for (key, parts) in LISTS.iter().filter_map(|key| Some((*key, map.get(*key)?.as_array()?))) {
            parts.iter().for_each(|part| self.gather(part, always && key == "allOf", depth + 1));
        }
        SINGLE.iter().filter_map(|key| map.get(*key)).for_each(|part| self.gather(part, false, depth + 1));
        let dependent = map.get("dependentSchemas").and_then(Value::as_object);
        dependent.into_iter().flat_map(Map::values).for_each(|part| self.gather(part, false, depth + 1));
    }

    fn own(&mut self, map: &'a Map<String, Value>, always: bool) {
        let required: Vec<&str> =
            map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(Value::Object(properties)) = map.get("properties") {
            // An empty list of names is a statement: the tool takes nothing.
            self.closed |= properties.is_empty();
            for (name, shape) in properties {
                let kind = self.kind(name, shape);
                let named = self.named.entry(name.clone()).or_insert((kind, false));
                if named.0 != kind {
                    named.0 = ParamKind::Any;
                }
            }
        }
        if always {
            for name in &required {
                self.named.entry((*name).to_owned()).or_insert((ParamKind::Any, false)).1 = true;
            }
        }
        for key in ["additionalProperties", "unevaluatedProperties"] {
            match map.get(key) {
                Some(Value::Bool(false)) => self.closed = true,
                Some(_) => self.open = true,
                None => {}
            }
        }
        self.open |= map.get("patternProperties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    }

    /// The kind of an argument, by its schema and its name.
    fn kind(&self, name: &str, shape: &'a Value) -> ParamKind {
        let shape = self.followed(shape);
        let kind_of = |shape: &Value| shape.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let lower = name.to_ascii_lowercase();
        let named = |list: &[&str]| list.contains(&lower.as_str());
        let is_url = named(&URLS) || matches!(shape.get("format").and_then(Value::as_str), Some("uri" | "url"));
        let items = || shape.get("items").map(|items| kind_of(self.followed(items))).unwrap_or_default() == "string";
        match kind_of(shape).as_str() {
            "string" if is_url => ParamKind::Url,
            "string" if is_path(&lower) => ParamKind::Path,
            "string" if named(&CONTENTS) => ParamKind::Content,
            "string" if named(&RECIPIENTS) => ParamKind::Recipients,
            "string" => ParamKind::Text,
            "integer" => ParamKind::Integer,
            "number" => ParamKind::Number,
            "boolean" => ParamKind::Boolean,
            "object" => ParamKind::Object,
            "array" if items() && named(&RECIPIENTS) => ParamKind::Recipients,
            "array" if items() => ParamKind::Texts,
            _ => ParamKind::Any,
        }
    }

    /// The schema that a reference leads to.
    fn followed(&self, shape: &'a Value) -> &'a Value {
        let mut shape = shape;
        for _ in 0..COMBINED {
            let target = shape.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
            match target.and_then(|place| self.root.pointer(place)) {
                Some(next) => shape = next,
                None => break,
            }
        }
        shape
    }
}

fn is_path(lower: &str) -> bool {
    PATHS.contains(&lower) || lower.ends_with("_path")
}

/// Whether an argument says who or where.
fn is_target(name: &str, kind: ParamKind) -> bool {
    let lower = name.to_ascii_lowercase();
    let named = |list: &[&str]| list.contains(&lower.as_str());
    match kind {
        ParamKind::Url | ParamKind::Path | ParamKind::Recipients => true,
        // `path: string | null` names a path in whatever form it comes.
        ParamKind::Any | ParamKind::Texts | ParamKind::Object => {
            named(&TARGETS) || named(&URLS) || named(&RECIPIENTS) || is_path(&lower)
        }
        _ => named(&TARGETS),
    }
}

/// Whether a call can carry data out through an argument: an address or recipients.
pub(super) fn reaches_out(param: &CapabilityParam) -> bool {
    let lower = param.name.to_ascii_lowercase();
    match param.kind {
        ParamKind::Url | ParamKind::Recipients => true,
        ParamKind::Any | ParamKind::Texts | ParamKind::Object => {
            param.target && (URLS.contains(&lower.as_str()) || RECIPIENTS.contains(&lower.as_str()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: Value) -> ToolArguments {
        read(&json!({"name": "x", "inputSchema": schema})).unwrap_or_else(|why| panic!("{why}"))
    }

    fn names(arguments: &ToolArguments) -> Vec<(&str, ParamKind, bool)> {
        arguments.params.iter().map(|param| (param.name.as_str(), param.kind, param.required)).collect()
    }

    #[test]
    fn the_arguments_of_combined_parts_are_known_by_name() {
        let text = json!({"type": "string"});
        for key in ["oneOf", "anyOf"] {
            let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], key: [
                {"properties": {"path": text}, "required": ["path"], "additionalProperties": false},
                {"properties": {"url": text, "id": {"type": "integer"}}, "required": ["url"]},
            ]});
            let found = of(schema);
            let wanted =
                [("id", ParamKind::Integer, true), ("path", ParamKind::Path, false), ("url", ParamKind::Url, false)];
            assert_eq!((names(&found).as_slice(), found.open), (&wanted[..], false), "{key}");
            assert!(
                !found.check.allows(&json!({"id": 1})) && found.check.allows(&json!({"id": 1, "url": "x"})),
                "{key}"
            );
        }
        let all = of(json!({"allOf": [{"$ref": "#/$defs/a"}, {"required": ["to"]}], "$defs": {
            "a": {"properties": {"to": text, "path": {"anyOf": [text, {"type": "null"}]}}}}}));
        assert_eq!(names(&all), [("path", ParamKind::Any, false), ("to", ParamKind::Recipients, true)]);
        assert!(all.params.iter().all(|param| param.target), "an optional path is a target too");
    }

    #[test]
    fn a_tool_that_takes_more_than_its_schema_names_is_open_and_one_that_takes_nothing_is_not() {
        for open in [
            json!({"type": "object"}),
            json!({"type": "object", "additionalProperties": true}),
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            json!({"patternProperties": {"^x-": {"type": "string"}}}),
            json!({"properties": {"a": {}}, "oneOf": [{"additionalProperties": true}, {}]}),
        ] {
            assert!(of(open.clone()).open, "{open}");
        }
        for shut in [
            json!({"type": "object", "properties": {}}),
            json!({"type": "object", "additionalProperties": false}),
            json!({"properties": {"a": {}}}),
        ] {
            assert!(!of(shut.clone()).open, "{shut}");
        }
    }

    #[test]
    fn names_and_look_around_are_checked_and_what_cannot_be_checked_is_named() {
        let named =
            of(json!({"properties": {"a": {"$ref": "#text"}}, "$defs": {"t": {"$anchor": "text", "type": "string"}}}));
        assert_eq!(names(&named), [("a", ParamKind::Text, false)]);
        assert!(named.check.note().is_none() && !named.check.allows(&json!({"a": 1})));
        let looks = of(json!({"properties": {"a": {"type": "string", "pattern": "^(?!-)x"}}}));
        assert!(looks.check.allows(&json!({"a": "x"})) && !looks.check.allows(&json!({"a": "-x"})));
        let broken = of(json!({"properties": {"path": {"type": "string", "pattern": "("}}}));
        assert!(broken.check.allows(&json!({"path": "/x"})));
        assert!(broken.check.note().unwrap().contains("unchecked: `pattern`"), "{:?}", broken.check.note());
        assert_eq!(names(&broken), [("path", ParamKind::Path, false)], "its target is known anyway");
        let elsewhere = json!({"name": "x", "inputSchema": {"$ref": "http://example.org/schema"}});
        assert_eq!(read(&elsewhere).unwrap_err(), "its schema cannot be used: `$ref` refers to another document");
    }

    #[test]
    fn parts_without_an_end_are_read_to_a_limit() {
        let endless =
            of(json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}}));
        assert!(endless.open && endless.check.note().unwrap().contains("unlimited"));
    }
}
