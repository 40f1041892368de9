//! Stage 5: checks that JSON has the agreed shape.
//!
//! Takes `ScreenedContent` and a schema, gives `ShapedContent`. Promise: depth and members are counted before anything is parsed; a
//! schema refers to nothing outside itself, and a schema whose check could take exponential time is not accepted.

mod cost;
mod foreign;

use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use sluice_core::json::{JsonTextKind, classify};

pub use foreign::{SchemaFault, SchemaFaultReason, without_names};

use super::injection::ScreenedContent;
use super::size::ContentLimits;
use crate::finding::{ContentError, ContentStage, Finding};

/// Largest compiled pattern, in bytes.
const REGEX: usize = 256 << 10;

/// A schema that is safe to check against.
#[derive(Debug, Clone)]
pub struct SafeSchema(Arc<Validator>);

impl SafeSchema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// When it refers to other documents, is too large, or the cost of checking it has no reasonable limit.
    pub fn compile(schema: &Value) -> Result<Self, ContentError> {
        cost::accept(schema).map_err(|_| ContentError::BadSchema)?;
        let patterns = PatternOptions::regex().size_limit(REGEX).dfa_size_limit(REGEX);
        let options = jsonschema::options().with_pattern_options(patterns).offline();
        options.build(schema).map(|validator| Self(Arc::new(validator))).map_err(|_| ContentError::BadSchema)
    }

    /// Whether a value has this shape.
    #[must_use]
    pub fn allows(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }
}

/// Content with the agreed shape.
#[derive(Debug, Clone)]
pub struct ShapedContent<'a> {
    pub(super) screened: ScreenedContent<'a>,
    pub(super) value: Option<Value>,
}

/// Runs stage 5. Without a schema, JSON only has to stay within its limits.
///
/// # Errors
/// When there is a schema and the content does not follow it, or JSON exceeds its limits.
pub fn shape<'a>(
    mut screened: ScreenedContent<'a>,
    schema: Option<&SafeSchema>,
    limits: &ContentLimits,
) -> Result<ShapedContent<'a>, ContentError> {
    if !screened.is_json() {
        return if schema.is_some() { Err(ContentError::NotJson) } else { Ok(ShapedContent { screened, value: None }) };
    }
    check_json_limits(screened.text(), limits)?;
    let kind = classify(screened.text().as_bytes());
    let value: Option<Value> = match kind {
        // Declared JSON must have one meaning; nobody reads a value from a text that only looks like JSON.
        JsonTextKind::Repeated if screened.claims_json() => return Err(ContentError::DuplicateKey),
        JsonTextKind::Repeated => None,
        JsonTextKind::One | JsonTextKind::Several | JsonTextKind::Broken => serde_json::from_str(screened.text()).ok(),
    };
    match (&value, schema) {
        (None, Some(_)) => return Err(ContentError::NotJson),
        (None, None) => {
            let rule = match kind {
                JsonTextKind::Several => "json.several",
                JsonTextKind::Repeated => "json.duplicate_key",
                JsonTextKind::One | JsonTextKind::Broken => "json.invalid",
            };
            screened.note(Finding::note(ContentStage::Schema, rule, 0));
        }
        (Some(value), Some(schema)) if !schema.0.is_valid(value) => return Err(ContentError::Schema),
        (Some(_), _) => {}
    }
    Ok(ShapedContent { screened, value })
}

/// Counts brackets and separators outside of strings.
fn check_json_limits(text: &str, limits: &ContentLimits) -> Result<(), ContentError> {
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
            return Err(ContentError::Deep);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{RawContent, ScreeningPlan, clean};

    fn check(schema: &Value, text: &str) -> Result<(), ContentError> {
        let plan = ScreeningPlan { schema: Some(SafeSchema::compile(schema)?), ..ScreeningPlan::default() };
        clean(RawContent::new(text.as_bytes()).declared("application/json"), &plan).map(|_| ())
    }

    #[test]
    fn what_follows_its_schema_passes_and_the_rest_does_not() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
        assert_eq!(check(&schema, r#"{"a": 1}"#), Ok(()));
        assert_eq!(check(&schema, r#"{"a": "x"}"#), Err(ContentError::Schema));
        assert_eq!(check(&schema, "{"), Err(ContentError::NotJson));
    }

    #[test]
    fn a_schema_never_refers_to_the_outside() {
        for target in ["https://example.org/a.json", "file:///etc/passwd", "other.json", "#name"] {
            assert_eq!(check(&json!({"$ref": target}), "1"), Err(ContentError::BadSchema), "{target}");
        }
    }

    #[test]
    fn schemas_that_explode_are_refused_before_they_are_used() {
        let endless = json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"});
        assert_eq!(check(&endless, "1"), Err(ContentError::BadSchema));
        let doubling = json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
        assert_eq!(check(&doubling, "{}"), Err(ContentError::BadSchema));
        let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        assert_eq!(check(&tree, r#"{"left": {"right": {}}}"#), Ok(()));
    }

    #[test]
    fn a_back_tracking_pattern_is_no_danger() {
        let schema = json!({"type": "string", "pattern": "^(a+)+$"});
        assert_eq!(check(&schema, &format!("\"{}b\"", "a".repeat(50_000))), Err(ContentError::Schema));
        assert_eq!(check(&json!({"pattern": "(?=a)a"}), "1"), Err(ContentError::BadSchema), "not in the linear engine");
    }

    #[test]
    fn depth_and_members_are_limited_with_and_without_a_schema() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        let plan = ScreeningPlan::default();
        let refused = clean(RawContent::new(deep.as_bytes()).declared("application/json"), &plan).map(|_| ());
        assert_eq!(refused, Err(ContentError::Deep));
        let wide = format!("[{}1]", "1,".repeat(100_001));
        let refused = clean(RawContent::new(wide.as_bytes()).declared("application/json"), &plan).map(|_| ());
        assert_eq!(refused, Err(ContentError::Deep));
        let quoted = format!("[\"{}\"]", "[".repeat(1000));
        assert!(clean(RawContent::new(quoted.as_bytes()).declared("application/json"), &plan).is_ok());
    }
}
