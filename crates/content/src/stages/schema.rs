//! Stage 5: JSON has the shape that was agreed.
//!
//! Takes `Screened` and a schema, gives `Shaped`. Promise: depth and members are counted before anything is
//! parsed; a schema refers to nothing outside itself, and one whose checking could explode is not accepted.

mod cost;

use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use sluice_core::json::{Reading, reading};

use super::injection::Screened;
use super::size::Limits;
use crate::finding::{Finding, Refused, Stage};

/// A schema that is safe to check against.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Validator>);

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// When it refers to the outside, is too large, or its checking has no reasonable bound.
    pub fn compile(schema: &Value) -> Result<Self, Refused> {
        const REGEX: usize = 256 << 10;
        cost::accept(schema)?;
        let patterns = PatternOptions::regex().size_limit(REGEX).dfa_size_limit(REGEX);
        let options = jsonschema::options().with_pattern_options(patterns).offline();
        options.build(schema).map(|validator| Self(Arc::new(validator))).map_err(|_| Refused::BadSchema)
    }

    /// Whether a value has this shape.
    #[must_use]
    pub fn allows(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }
}

/// Content of the agreed shape.
#[derive(Debug, Clone)]
pub struct Shaped<'a> {
    pub(super) screened: Screened<'a>,
    pub(super) value: Option<Value>,
}

/// Stage 5. Without a schema, JSON is only held to its limits.
///
/// # Errors
/// When there is a schema and the content does not follow it, or JSON passes its limits.
pub fn shape<'a>(mut screened: Screened<'a>, schema: Option<&Schema>, limits: &Limits) -> Result<Shaped<'a>, Refused> {
    if !screened.is_json() {
        return if schema.is_some() { Err(Refused::NotJson) } else { Ok(Shaped { screened, value: None }) };
    }
    within(screened.text(), limits)?;
    let kind = reading(screened.text().as_bytes());
    let value: Option<Value> = match kind {
        // Who calls it JSON means one thing by it; of a text that only looks like it nobody reads a value.
        Reading::Repeated if screened.claims_json() => return Err(Refused::DuplicateKey),
        Reading::Repeated => None,
        Reading::One | Reading::Several | Reading::Broken => serde_json::from_str(screened.text()).ok(),
    };
    match (&value, schema) {
        (None, Some(_)) => return Err(Refused::NotJson),
        (None, None) => {
            let rule = match kind {
                Reading::Several => "json.several",
                Reading::Repeated => "json.duplicate_key",
                Reading::One | Reading::Broken => "json.invalid",
            };
            screened.note(Finding::note(Stage::Schema, rule, 0));
        }
        (Some(value), Some(schema)) if !schema.0.is_valid(value) => return Err(Refused::Schema),
        (Some(_), _) => {}
    }
    Ok(Shaped { screened, value })
}

/// Counts brackets and separators outside of strings.
fn within(text: &str, limits: &Limits) -> Result<(), Refused> {
    let (mut depth, mut members) = (0_usize, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                members += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => members += 1,
            _ => {}
        }
        if depth > limits.json_depth || members > limits.json_members {
            return Err(Refused::Deep);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Plan, Raw, clean};

    fn check(schema: &Value, text: &str) -> Result<(), Refused> {
        let plan = Plan { schema: Some(Schema::compile(schema)?), ..Plan::default() };
        clean(Raw::new(text.as_bytes()).declared("application/json"), &plan).map(|_| ())
    }

    #[test]
    fn what_follows_its_schema_passes_and_the_rest_does_not() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
        assert_eq!(check(&schema, r#"{"a": 1}"#), Ok(()));
        assert_eq!(check(&schema, r#"{"a": "x"}"#), Err(Refused::Schema));
        assert_eq!(check(&schema, "{"), Err(Refused::NotJson));
    }

    #[test]
    fn a_schema_never_refers_to_the_outside() {
        for target in ["https://example.org/a.json", "file:///etc/passwd", "other.json", "#name"] {
            assert_eq!(check(&json!({"$ref": target}), "1"), Err(Refused::BadSchema), "{target}");
        }
    }

    #[test]
    fn schemas_that_explode_are_refused_before_they_are_used() {
        let endless = json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"});
        assert_eq!(check(&endless, "1"), Err(Refused::BadSchema));
        let doubling = json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
        assert_eq!(check(&doubling, "{}"), Err(Refused::BadSchema));
        let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        assert_eq!(check(&tree, r#"{"left": {"right": {}}}"#), Ok(()));
    }

    #[test]
    fn a_back_tracking_pattern_is_no_danger() {
        let schema = json!({"type": "string", "pattern": "^(a+)+$"});
        assert_eq!(check(&schema, &format!("\"{}b\"", "a".repeat(50_000))), Err(Refused::Schema));
        assert_eq!(check(&json!({"pattern": "(?=a)a"}), "1"), Err(Refused::BadSchema), "not in the linear engine");
    }

    #[test]
    fn depth_and_members_are_limited_with_and_without_a_schema() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        let plan = Plan::default();
        let refused = clean(Raw::new(deep.as_bytes()).declared("application/json"), &plan).map(|_| ());
        assert_eq!(refused, Err(Refused::Deep));
        let wide = format!("[{}1]", "1,".repeat(100_001));
        let refused = clean(Raw::new(wide.as_bytes()).declared("application/json"), &plan).map(|_| ());
        assert_eq!(refused, Err(Refused::Deep));
        let quoted = format!("[\"{}\"]", "[".repeat(1000));
        assert!(clean(Raw::new(quoted.as_bytes()).declared("application/json"), &plan).is_ok());
    }
}
