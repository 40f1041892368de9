//! What of an answer reaches the agent: the fields of the schema, or a summary without any text of the service.
//!
//! Promise: how well a service is known changes which unknown fields are put up with, never what a text may
//! hold; a summary repeats no text that came from outside.

use serde_json::{Map, Value, json};

use super::Trust;

/// How an answer with more than the schema names is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// It is refused.
    Exact,
    /// What is not named is left out.
    Drop,
}

/// Deepest schema that is worked on.
const DEPTH: usize = 32;
/// Longest text of a service that is not well known, in characters.
const TEXT: u64 = 4_000;
/// Longest text of a well-known one.
const LONG_TEXT: u64 = 20_000;

impl Trust {
    /// How an answer with unknown fields is taken.
    #[must_use]
    pub const fn strictness(self) -> Strictness {
        match self {
            Self::Acquaintance => Strictness::Exact,
            Self::Friend | Self::Ally => Strictness::Drop,
        }
    }

    const fn longest(self) -> u64 {
        match self {
            Self::Acquaintance | Self::Friend => TEXT,
            Self::Ally => LONG_TEXT,
        }
    }
}

/// A declared schema as an answer is held against it: nothing unnamed passes, every text has an end.
#[must_use]
pub fn tighten(schema: &Value, trust: Trust) -> Value {
    tighten_at(schema, trust, 0)
}

fn tighten_at(schema: &Value, trust: Trust, depth: usize) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    if depth > DEPTH {
        return Value::Bool(false);
    }
    let mut next = Map::new();
    for (name, value) in fields {
        let below = |value: &Value| tighten_at(value, trust, depth + 1);
        let value = match (name.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(inner)) => {
                Value::Object(inner.iter().map(|(name, value)| (name.clone(), below(value))).collect())
            }
            ("items" | "not" | "if" | "then" | "else" | "contains" | "additionalProperties", value) => below(value),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => list.iter().map(below).collect(),
            (_, value) => value.clone(),
        };
        next.insert(name.clone(), value);
    }
    let is = |what: &str| fields.get("type").is_some_and(|kind| kind.as_str() == Some(what));
    if is("object") && trust.strictness() == Strictness::Exact {
        next.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    if is("string") {
        let most = fields.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX).min(trust.longest());
        next.insert("maxLength".into(), most.into());
    }
    if is("array") {
        next.entry("maxItems").or_insert_with(|| 1_000.into());
    }
    Value::Object(next)
}

/// An answer with only what its schema names.
#[must_use]
pub fn project(answer: &Value, schema: &Value) -> Value {
    match (answer, schema.get("properties"), schema.get("items")) {
        (Value::Object(fields), Some(Value::Object(named)), _) => {
            let kept = named.iter().filter_map(|(name, inner)| Some((name.clone(), project(fields.get(name)?, inner))));
            Value::Object(kept.collect())
        }
        (Value::Array(items), _, Some(inner)) => items.iter().map(|item| project(item, inner)).collect(),
        _ => answer.clone(),
    }
}

/// Counts, numbers and sizes of an answer; not one text of it.
#[must_use]
pub fn summary(answer: &Value) -> Value {
    match answer {
        Value::Null | Value::Bool(_) | Value::Number(_) => answer.clone(),
        Value::String(text) => json!({"characters": text.chars().count()}),
        Value::Array(items) => {
            let numbers: Vec<f64> = items.iter().filter_map(Value::as_f64).collect();
            if numbers.len() == items.len() && !items.is_empty() {
                let total: f64 = numbers.iter().sum();
                let (low, high) = numbers.iter().fold((f64::MAX, f64::MIN), |(l, h), n| (l.min(*n), h.max(*n)));
                return json!({"count": items.len(), "sum": total, "least": low, "most": high});
            }
            json!({"count": items.len(), "first": items.first().map(summary)})
        }
        // Names of fields come from the schema: an answer was held against it before.
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), summary(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::moltbook;
    use super::*;

    #[test]
    fn an_acquaintance_is_taken_at_its_word_and_no_more() {
        let proxy = moltbook();
        let schema = proxy.operations["feed"].answer.clone().unwrap();
        let exact = tighten(&schema, Trust::Acquaintance);
        assert_eq!(exact["additionalProperties"], false);
        assert_eq!(exact["properties"]["posts"]["items"]["additionalProperties"], false);
        let loose = tighten(&json!({"type": "object", "properties": {"t": {"type": "string"}}}), Trust::Ally);
        assert!(loose.get("additionalProperties").is_none());
        assert_eq!(loose["properties"]["t"]["maxLength"], 20_000);
    }

    #[test]
    fn a_schema_that_says_more_is_not_made_looser() {
        let schema = json!({"type": "string", "maxLength": 7});
        assert_eq!(tighten(&schema, Trust::Ally)["maxLength"], 7);
        assert_eq!(tighten(&json!({"type": "string", "maxLength": 9_000_000}), Trust::Friend)["maxLength"], 4_000);
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(tighten(&deep, Trust::Ally).to_string().contains("\"items\":false"));
    }

    #[test]
    fn only_what_the_schema_names_is_kept() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"b": {}}}}}});
        let answer = json!({"a": [{"b": 1, "c": "x"}, {"c": 2}], "d": "y"});
        assert_eq!(project(&answer, &schema), json!({"a": [{"b": 1}, {}]}));
    }

    #[test]
    fn a_summary_counts() {
        let answer = json!({"posts": [{"id": "x", "likes": 3}, {"id": "y", "likes": 1}], "ages": [3, 4], "ok": true});
        let expected = json!({
            "posts": {"count": 2, "first": {"id": {"characters": 1}, "likes": 3}},
            "ages": {"count": 2, "sum": 7.0, "least": 3.0, "most": 4.0}, "ok": true,
        });
        assert_eq!(summary(&answer), expected);
    }

    proptest! {
        #[test]
        fn a_summary_repeats_no_text(text in "[a-z]{14,40}", n in 0_usize..4) {
            let answer = json!({"a": vec![json!({"t": text, "u": [text]}); n], "b": text});
            prop_assert!(!summary(&answer).to_string().contains(&text));
        }
    }
}
