//! The cost of checking against a schema.
//!
//! Takes a schema, gives success or a refusal. Promise: an accepted schema refers only to itself, has a limited size,
//! and visits each place of a document a limited number of times, however it refers to itself.

use std::collections::HashMap;

use serde_json::Value;

use super::foreign::{SchemaFault, SchemaFaultReason};

const NODES: usize = 10_000;
const NESTING: usize = 48;
/// Most levels of a document that are considered; deeper documents are refused earlier.
const LEVELS: usize = 64;
const VISITS: u64 = 200_000;

/// Whether a schema may be compiled and used.
pub(super) fn accept(schema: &Value) -> Result<(), SchemaFault> {
    let mut left = NODES;
    survey(schema, (0, "properties"), &mut left, false)?;
    let mut costs = SchemaCosts { root: schema, known: HashMap::new() };
    let visits = costs.visits(schema, LEVELS, 0)?;
    (visits <= VISITS).then_some(()).ok_or_else(|| SchemaFault::new(costs.dearest_keyword(), SchemaFaultReason::Costly))
}

/// Checks size, nesting, and references that leave the document.
fn survey(node: &Value, (depth, under): (usize, &str), left: &mut usize, inside: bool) -> Result<(), SchemaFault> {
    let large = || SchemaFault::new(under, SchemaFaultReason::Large);
    *left = left.checked_sub(1).ok_or_else(large)?;
    if depth > NESTING {
        return Err(large());
    }
    match node {
        Value::Object(members) => members.iter().try_for_each(|(key, value)| {
            let fault = match (key.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    let inside = target.starts_with('#');
                    let reason = if inside { SchemaFaultReason::Nowhere } else { SchemaFaultReason::Elsewhere };
                    (target != "#" && !target.starts_with("#/")).then_some(reason)
                }
                // A name of its own would change the base of its references.
                ("$id", Value::String(_)) if inside => Some(SchemaFaultReason::Address),
                ("$anchor" | "$dynamicAnchor", Value::String(_)) => Some(SchemaFaultReason::Address),
                _ => None,
            };
            match fault {
                Some(reason) => Err(SchemaFault::new(key, reason)),
                None => survey(value, (depth + 1, key), left, true),
            }
        }),
        Value::Array(items) => items.iter().try_for_each(|item| survey(item, (depth + 1, under), left, true)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

struct SchemaCosts<'a> {
    root: &'a Value,
    /// Visits by address of the node in memory and remaining levels; `None` while it is being computed.
    known: HashMap<(*const Value, usize), Option<u64>>,
}

impl<'a> SchemaCosts<'a> {
    /// How often a document with this many levels can be visited by this schema and those that it applies.
    fn visits(&mut self, node: &'a Value, levels: usize, depth: usize) -> Result<u64, SchemaFault> {
        let Value::Object(members) = node else { return Ok(1) };
        let key = (std::ptr::from_ref(node), levels);
        match self.known.get(&key) {
            // It applies itself to the same place again, without end.
            Some(None) => return Err(SchemaFault::new("$ref", SchemaFaultReason::Costly)),
            Some(Some(visits)) => return Ok(*visits),
            None => {}
        }
        // Each level of a document takes at most a few steps here; a schema that needs more is refused.
        if depth > LEVELS * 12 {
            return Err(SchemaFault::new("$ref", SchemaFaultReason::Costly));
        }
        self.known.insert(key, None);
        let mut total = 1_u64;
        for (name, value) in members {
            let below = levels.checked_sub(1);
            let visits = match (name.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    let target = self.root.pointer(target.trim_start_matches('#'));
                    let target = target.ok_or_else(|| SchemaFault::new(name, SchemaFaultReason::Nowhere))?;
                    self.visits(target, levels, depth + 1)?
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => self.sum(all.iter(), levels, depth)?,
                ("dependentSchemas" | "dependencies", Value::Object(all)) => self.sum(all.values(), levels, depth)?,
                ("not" | "if" | "then" | "else", value) => self.visits(value, levels, depth + 1)?,
                // A member has one name and an item one place: only the most expensive one counts.
                ("properties", Value::Object(all)) => self.dearest(all.values(), below, depth)?,
                ("prefixItems" | "items", Value::Array(all)) => self.dearest(all.iter(), below, depth)?,
                ("patternProperties", Value::Object(all)) => match below {
                    Some(below) => self.sum(all.values(), below, depth)?,
                    None => 0,
                },
                (
                    "items"
                    | "additionalItems"
                    | "unevaluatedItems"
                    | "contains"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "propertyNames",
                    value,
                ) => self.dearest(std::iter::once(value), below, depth)?,
                _ => 0,
            };
            total = total.saturating_add(visits);
        }
        self.known.insert(key, Some(total));
        Ok(total)
    }

    /// The keyword of the root that costs most.
    fn dearest_keyword(&self) -> &'static str {
        const COMBINING: [&str; 5] = ["allOf", "anyOf", "oneOf", "dependentSchemas", "patternProperties"];
        let found = COMBINING.into_iter().find(|keyword| self.root.get(keyword).is_some());
        found.unwrap_or("$ref")
    }

    fn sum(&mut self, all: impl Iterator<Item = &'a Value>, levels: usize, depth: usize) -> Result<u64, SchemaFault> {
        let mut total = 0_u64;
        for node in all {
            total = total.saturating_add(self.visits(node, levels, depth + 1)?);
        }
        Ok(total)
    }

    fn dearest(
        &mut self,
        all: impl Iterator<Item = &'a Value>,
        below: Option<usize>,
        depth: usize,
    ) -> Result<u64, SchemaFault> {
        let Some(below) = below else { return Ok(0) };
        let mut most = 0;
        for node in all {
            most = most.max(self.visits(node, below, depth + 1)?);
        }
        Ok(most)
    }
}
