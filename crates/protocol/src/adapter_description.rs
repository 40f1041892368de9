//! The description of an adapter: what it offers, and every request that it makes.
//!
//! Takes the answer of a program to `adapter.describe`; gives its parts. Promise: unknown keys are refused, and a
//! description is only a claim: the gateway accepts it as a whole or refuses it as a whole.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sluice_core::capability::Capability;

/// The step that a request serves. A job may make the requests of its own step and those before it: syncing a mailbox
/// needs no way to send from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterStep {
    /// Reads only.
    Look,
    /// Creates an inert handle that nobody outside can notice.
    Prepare,
    /// Has the effect.
    Effect,
}

impl AdapterStep {
    /// The word for the step.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Prepare => "prepare",
            Self::Effect => "effect",
        }
    }
}

/// A kind of request that an adapter makes: the way out is limited to these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireAllowedRequest {
    /// The step that it serves.
    pub step: AdapterStep,
    /// Its HTTP method: `GET`, `POST`, `PUT` or `DELETE`. A request that only looks is a `GET`.
    pub method: String,
    /// The path; `{id}` stands for exactly one segment.
    pub path: String,
}

/// The description of a third-party adapter: its answer to `adapter.describe`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThirdPartyDescription {
    /// The service: the name under which the operator configured the adapter.
    pub service: String,
    /// What it offers.
    #[schemars(schema_with = "capabilities")]
    pub capabilities: Vec<Capability>,
    /// The address of the service, unless the operator sets another one.
    pub home: String,
    /// Every request that it makes.
    pub reach: Vec<WireAllowedRequest>,
}

/// Capabilities as a program declares them. The catalogue of the gateway has more keys; a third-party adapter may not set
/// them.
fn capabilities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Its name; it begins with the name of the service: `todo.add`."},
                "summary": {"type": "string", "description": "One sentence for people and models, at most 200 characters."},
                "effect": {"enum": ["read", "write"], "description": "Whether it changes something at the service."},
                "class": {
                    "enum": ["absolute", "consume_once", "findable", "opaque"],
                    "description": "What an unclear outcome of a write allows. Only writes have a class."
                },
                "reversible": {"type": "boolean", "description": "Whether `undo` works for it."},
                "delay_s": {"type": "integer", "minimum": 0, "maximum": 86400, "description": "How long a write is held, in seconds; 30 unless given."},
                "params": {
                    "type": "array",
                    "description": "Its arguments, at most 32.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "description": "Its name, in lower case."},
                            "kind": {
                                "enum": ["text", "content", "integer", "number", "boolean", "path", "url", "recipients", "objects", "texts", "object", "any"],
                                "description": "Its shape. The gateway builds the schema of the argument from it."
                            },
                            "required": {"type": "boolean", "description": "Whether a call must have it."},
                            "target": {"type": "boolean", "description": "Whether it says who or where."},
                            "object": {"type": "boolean", "description": "Whether it names the object that the write changes."}
                        },
                        "required": ["name", "kind"]
                    }
                }
            },
            "required": ["name", "summary", "effect"]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_word_of_the_schema_is_one_that_the_gateway_reads() {
        let schema = serde_json::to_value(capabilities(&mut SchemaGenerator::default())).unwrap();
        let words = |pointer: &str| schema.pointer(pointer).and_then(|list| list.as_array()).unwrap().clone();
        let read = |capability| {
            serde_json::from_value::<ThirdPartyDescription>(
                json!({"service": "todo", "home": "", "reach": [], "capabilities": [capability]}),
            )
        };
        let properties = "/items/properties";
        for effect in words(&format!("{properties}/effect/enum")) {
            read(json!({"name": "todo.a", "summary": "s", "effect": effect})).unwrap();
        }
        for class in words(&format!("{properties}/class/enum")) {
            let whole = json!({"name": "todo.a", "summary": "s", "effect": "write", "class": class, "reversible": true,
                "delay_s": 5, "params": []});
            read(whole).unwrap();
        }
        for kind in words(&format!("{properties}/params/items/properties/kind/enum")) {
            let param = json!({"name": "a", "kind": kind, "required": true, "target": true, "object": true});
            read(json!({"name": "todo.a", "summary": "s", "effect": "read", "params": [param]})).unwrap();
        }
        assert!(read(json!({"name": "todo.a", "summary": "s", "effect": "read", "colour": "red"})).is_err());
    }

    #[test]
    fn steps_are_in_the_order_of_their_rights_and_named_as_on_the_wire() {
        assert!(AdapterStep::Look < AdapterStep::Prepare && AdapterStep::Prepare < AdapterStep::Effect);
        for step in [AdapterStep::Look, AdapterStep::Prepare, AdapterStep::Effect] {
            assert_eq!(serde_json::to_value(step).unwrap(), step.as_str());
        }
    }
}
