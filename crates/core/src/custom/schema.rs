//! The JSON Schema of a custom capability's file, for editors: `docs/capability.schema.json`.
//!
//! Promise: it names exactly the keys that [`super::CustomCapability`] reads.

use serde_json::{Value, json};

/// JSON Schema (draft 2020-12) of `capabilities/<name>.yaml`.
#[must_use]
pub fn schema() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let whole = |about: &str, least: u64| json!({"type": "integer", "minimum": least, "description": about});
    let flag = |about: &str| json!({"type": "boolean", "description": about});
    let pairs =
        |about: &str| json!({"type": "object", "additionalProperties": {"type": "string"}, "description": about});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required});
    let method = json!({"enum": ["GET", "POST", "PUT", "PATCH", "DELETE"], "description": "The method."});
    let path = text("The path after `base_url`; `{argument}` fills one whole part of it.");
    let query = pairs("The query, by name; a value may hold `{argument}`.");
    let body = json!({"description": "The body as JSON; a text that is nothing but `{argument}` becomes its value."});
    let argument = object(
        json!({
            "type": {"enum": ["text", "integer", "number", "boolean", "texts", "object"], "description": "Its shape."},
            "required": flag("Whether a call must contain it."),
            "target": flag("Whether it says who, where or how much; found by its name unless said."),
            "object": flag("Whether it names the object that the write changes."),
            "about": text("What it means, in a sentence."),
            "max": whole("Longest text in characters, largest number, most items of a list.", 0),
            "choices": {"type": "array", "items": {"type": "string"}, "description": "The only accepted texts."},
        }),
        &["type"],
    );
    let request = object(
        json!({"method": method, "path": path, "query": query, "body": body,
               "headers": pairs("Headers as they are; nothing of a call is placed in them.")}),
        &["path"],
    );
    let lookup = object(
        json!({"path": path, "query": query,
               "applied": text("The place in the answer that holds something exactly if the write happened.")}),
        &["path"],
    );
    let rollback = object(
        json!({"method": method, "path": path, "query": query, "body": body,
               "repeatable": flag("Whether it may be sent again when its outcome is unclear.")}),
        &["method", "path"],
    );
    let limits = object(
        json!({
            "per_minute": whole("Requests in a minute; 10 unless given.", 1),
            "per_hour": whole("Requests in an hour; 100 unless given.", 1),
            "burn": whole("Requests until a person looks at it; 200 unless given.", 1),
            "timeout_seconds": whole("How long one request may take; 30 unless given, at most 45.", 1),
            "answer_kb": whole("Largest answer in kilobytes; 512 unless given.", 1),
        }),
        &[],
    );
    let credential = object(
        json!({
            "secret": text("Name of the secret in the vault."),
            "placement": text("`bearer`, `basic`, `header X-Api-Key` or `query key`; `bearer` unless given."),
        }),
        &["secret"],
    );
    let mut whole_file = object(
        json!({
            "program": program(),
            "summary": text("What it does, in a sentence."),
            "effect": {"enum": ["read", "write"], "description": "Whether it changes anything."},
            "class": {"enum": ["absolute", "consume_once", "findable", "opaque"],
                      "description": "What an unclear outcome allows; `opaque` unless given."},
            "hold_seconds": whole("How long a write waits before it leaves; 30 unless given.", 0),
            "base_url": text("Scheme, host, port, and a path that every request starts with."),
            "allow_addresses": {"type": "array", "items": {"type": "string"},
                                "description": "Private addresses that the host may have."},
            "credential": credential,
            "limits": limits,
            "arguments": {"type": "object", "additionalProperties": argument,
                          "description": "The arguments of a call, by name."},
            "request": request,
            "idempotency_header": text("The header in which the service takes an idempotency key."),
            "keep": pairs("Values of the answer that a rollback needs: a name and a JSON pointer."),
            "lookup": lookup,
            "rollback": rollback,
        }),
        &["summary", "effect"],
    );
    let ways = json!([{"required": ["base_url", "request"]}, {"required": ["program"]}]);
    if let Some(fields) = whole_file.as_object_mut() {
        fields.insert("oneOf".into(), ways);
        fields.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        fields.insert("title".into(), "A custom capability of Sluicegate".into());
    }
    whole_file
}

/// The schema of `program`, the section that stands in place of the request.
fn program() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let texts = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
    let whole = |about: &str, least: u64| json!({"type": "integer", "minimum": least, "description": about});
    let codes = |about: &str| {
        let code = json!({"type": "integer", "minimum": 0, "maximum": 255});
        json!({"type": "array", "items": code, "description": about})
    };
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required});
    let command =
        texts("The program by its whole path, then its arguments; `{argument}` fills an item or a part of one.");
    let input = json!({"description": "What it reads: `json` for all arguments as one object, or JSON with places."});
    let lookup = object(json!({"command": command, "input": input}), &["command"]);
    let repeatable =
        json!({"type": "boolean", "description": "Whether it may be run again when its outcome is unclear."});
    let rollback = object(json!({"command": command, "input": input, "repeatable": repeatable}), &["command"]);
    let limits = object(
        json!({
            "timeout_seconds": whole("How long one run may take; 30 unless given, at most 45.", 1),
            "memory_mb": whole("Memory of each of its processes; 512 unless given.", 16),
            "answer_kb": whole("Most that it may print; 512 unless given.", 1),
        }),
        &[],
    );
    let exit_codes = object(
        json!({
            "done": codes("It is done; 0 unless given."),
            "not_applied": codes("Nothing happened, and it may be tried again."),
            "refused": codes("Nothing happened, and nothing will."),
        }),
        &[],
    );
    object(
        json!({
            "command": command,
            "input": input,
            "folder": text("The folder it starts in, in one of `reads` or `writes`; one of its own unless given."),
            "reads": texts("Files and folders beside those of the system that it may read and execute."),
            "writes": texts("Files and folders that it may read and change."),
            "files": texts("Further files whose content belongs to what is approved."),
            "network": texts("Hosts whose port 443 it may reach; none unless given."),
            "allow_addresses": texts("Private addresses that these hosts may have."),
            "environment": {"type": "object", "additionalProperties": {"type": "string"},
                            "description": "Variables: a text, `secret:NAME` or `{call.key}`."},
            "limits": limits,
            "answer": {"type": "object", "description": "The JSON Schema of what it prints; text unless given."},
            "exit_codes": exit_codes,
            "lookup": lookup,
            "rollback": rollback,
        }),
        &["command"],
    )
}
