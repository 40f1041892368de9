//! Tools: capabilities as agents that speak MCP see them.
//!
//! Takes an agent, the rules, the freezes; gives the list of tools. Promise: a tool that the rules block with any
//! arguments is not listed, hints never make a tool look safer than it is, and a description says what happens to a
//! call.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::capability::{Capability, Effect, EffectClass};
use sluice_core::{AgentName, CapabilityName, Millis, Tier};
use sluice_gateway::Gateway;
use sluice_services::{CallError, ReadSource};
use sluice_store::Freeze;

use super::companions;
use super::names::ToolNames;

/// The argument with the agent's reason: shown to the person who is asked.
pub(super) const REASON: &str = "sluice_reason";
/// The argument that says that a second identical call is intended.
pub(super) const AGAIN: &str = "sluice_allow_duplicate";
/// The mark of an argument that a header repeats.
const REPEATED: &str = "x-mcp-header";
/// Services whose effects stay on this gateway.
const LOCAL: [&str; 8] = ["filesystem", "state", "agent", "system", "scheduler", "secrets", "comms", "alerts"];
/// Services whose reads are answered from a replica that the gateway keeps.
const COPIED: [&str; 1] = ["email"];
/// Last parts of names that only add something. `copy` is not one of them: it may replace its target.
const ADDS: [&str; 8] = ["append", "create", "label", "react", "mark_read", "acknowledge", "init", "draft"];
/// Last parts of names that change existing content, so that a repeated call has another effect.
const BUILDS_ON: [&str; 2] = ["append", "edit"];
/// The prefix of capabilities that need a session.
const OF_A_SESSION: &str = "state.session.";

/// The reader of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolListViewer<'a> {
    pub agent: &'a AgentName,
    pub client: Option<&'a str>,
    /// Whether the conversation has a session. The newest revision has none.
    pub has_session: bool,
}

/// All tools of an agent, ordered by name.
///
/// # Errors
/// When the freezes cannot be read.
pub(super) async fn list(
    gw: &Gateway,
    names: &ToolNames,
    ToolListViewer { agent, client, has_session }: ToolListViewer<'_>,
) -> Result<Vec<Tool>, CallError> {
    let freezes = gw.store.freezes().await?;
    let (policy, known) = (gw.policy.get(), gw.catalogue.known());
    let paused = gw.keyring.is_paused(agent);
    let mut tools = companions::list(client);
    for (name, capability) in names.iter() {
        let Some(spec) = known.get(capability) else { continue };
        let reach = policy.reach(agent, capability);
        if reach.loosest == Tier::Blocked || (!has_session && needs_session(capability)) {
            continue;
        }
        let leaves = spec.effect == Effect::Write
            || gw.services.read_source(&spec.service(), capability) == Some(ReadSource::Outside);
        let standstill = standstill(spec, leaves, (agent, paused), &freezes);
        let delay = gw.config.delay_for(capability, Millis::from_secs(spec.delay_s));
        tools.push(tool(spec, name, &describe(spec, reach.loosest, delay, standstill)));
    }
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tools)
}

/// Whether a capability works only within a session.
pub(super) fn needs_session(capability: &CapabilityName) -> bool {
    capability.as_str().starts_with(OF_A_SESSION)
}

/// A fingerprint of the list, to notice changes.
pub(super) fn fingerprint(tools: &[Tool]) -> [u8; 32] {
    Sha256::digest(serde_json::to_vec(tools).unwrap_or_default()).into()
}

/// Why calls of this capability are refused at the moment, if they are.
fn standstill(
    spec: &Capability,
    leaves: bool,
    (agent, paused): (&AgentName, bool),
    freezes: &[Freeze],
) -> Option<&'static str> {
    if paused {
        return Some("A person has paused this agent: calls are refused until it is resumed. ");
    }
    // Reads of local data continue.
    if !leaves {
        return None;
    }
    let service = spec.service();
    let frozen = |freeze: &Freeze| freeze.scope.covers(agent, &service);
    let mut stands = freezes.iter().filter(|freeze| frozen(freeze)).peekable();
    stands.peek()?;
    Some(if stands.all(|freeze| freeze.brake.is_some()) {
        "The connection behind it is stopped: calls are refused until a person resumes it. "
    } else {
        "Frozen by a person: calls are refused until the freeze is lifted. "
    })
}

fn tool(spec: &Capability, name: &str, description: &str) -> Tool {
    let mut meta = MetaObject::default();
    meta.insert("sluice/capability".into(), spec.name.as_str().into());
    Tool::new(name.to_owned(), description.to_owned(), Arc::new(input(spec)))
        .with_title(spec.name.as_str())
        .with_annotations(hints(spec))
        .with_raw_output_schema(Arc::new(object(output())))
        .with_meta(meta)
}

/// What a tool does and what happens to a call.
fn describe(spec: &Capability, loosest: Tier, delay: Millis, standstill: Option<&str>) -> String {
    let asks = loosest == Tier::ApprovalRequired;
    let what = match (spec.effect, asks) {
        (Effect::Read, false) => String::new(),
        (_, true) => " A person is asked first: the answer is `awaiting_approval` with a `call_id`. Do not call again; \
                      wait with sluice_wait or continue with other work."
            .into(),
        (Effect::Write, false) if delay == Millis::ZERO => {
            " Done at once, unless a person has to be asked: then the answer is `awaiting_approval` with a `call_id`. Do \
             not call again; wait with sluice_wait."
                .into()
        }
        (Effect::Write, false) => format!(
            " Held for {delay} before it leaves: the answer is `held` with a `call_id`, and sluice_cancel stops it until \
             then. Do not call again; sluice_status returns the outcome."
        ),
    };
    let undo = match (spec.effect, spec.reversible) {
        (Effect::Read, _) => "",
        (Effect::Write, true) => " People can undo it.",
        (Effect::Write, false) => " It cannot be undone.",
    };
    format!("{}{}{what}{undo}", standstill.unwrap_or_default(), visible(&spec.summary))
}

/// Hints that never understate the effect: a tool that is not known to be harmless counts as harmful.
fn hints(spec: &Capability) -> ToolAnnotations {
    let service = spec.service();
    let local = LOCAL.contains(&service.as_str());
    if spec.effect == Effect::Read {
        let here = local || COPIED.contains(&service.as_str());
        return ToolAnnotations::default().read_only(true).open_world(!here);
    }
    let last = spec.name.as_str().rsplit('.').next().unwrap_or_default();
    let adds = spec.reversible && ADDS.contains(&last);
    let same_again = spec.class == Some(EffectClass::Absolute) && !BUILDS_ON.contains(&last);
    ToolAnnotations::default().read_only(false).destructive(!adds).idempotent(same_again).open_world(!local)
}

/// The arguments, with those that every write takes in addition to its own.
fn input(spec: &Capability) -> JsonObject {
    let mut schema = sluice_services::input_schema(spec);
    plain(&mut schema);
    let mut schema = object(schema);
    if spec.effect == Effect::Write
        && let Some(Value::Object(properties)) = schema.get_mut("properties")
    {
        properties.entry(REASON).or_insert(json!({
            "type": "string", "description": "Why, in one sentence: shown to the person who is asked.",
        }));
        properties.entry(AGAIN).or_insert(json!({
            "type": "boolean", "description": "True if an identical call was made moments ago and a second is intended.",
        }));
    }
    schema
}

/// Whether a capability itself has an argument of this name.
pub(super) fn has_own(spec: &Capability, argument: &str) -> bool {
    spec.param(argument).is_some()
}

/// Removes from the texts of a schema what a terminal would act on. Names and values stay: they must be given
/// unchanged.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // A server may want arguments repeated in headers: the gate does that, not the client of the gate.
            members.retain(|name, member| name != REPEATED || !member.is_string());
            for (name, member) in members {
                match member {
                    Value::String(text) if ["description", "title"].contains(&name.as_str()) => *text = visible(text),
                    other => plain(other),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A server's text without control characters and without characters that only change how text is displayed.
fn visible(text: &str) -> String {
    let steers = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || steers(*c))).collect()
}

/// The schema of every capability's answer.
pub(super) fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "description": "done, held, awaiting_approval, executing, retrying, blocked, refused or how a write ended"},
            "call_id": {"type": "string"},
            "result": {"description": "The result, once done."},
            "cancel_deadline": {"type": "string"},
            "approval_id": {"type": "string"},
            "code": {"type": "string"},
            "reason": {"type": "string"},
            "hint": {"type": "string"},
        },
        "required": ["status"],
    })
}

/// The object in a value that is known to be one.
pub(super) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::CapabilityName;
    use sluice_core::capability::Catalogue;

    fn hints_of(name: &str) -> ToolAnnotations {
        hints(Catalogue::builtin().unwrap().get(&CapabilityName::new(name).unwrap()).unwrap())
    }

    #[test]
    fn only_reads_call_themselves_read_only() {
        for spec in Catalogue::builtin().unwrap().iter() {
            assert_eq!(hints(spec).read_only_hint, Some(spec.effect == Effect::Read), "{}", spec.name);
        }
    }

    #[test]
    fn what_removes_replaces_or_leaves_calls_itself_destructive() {
        for name in [
            "email.send",
            "filesystem.delete",
            "filesystem.write",
            "filesystem.copy",
            "state.persistent.set",
            "git.push",
        ] {
            assert_eq!(hints_of(name).destructive_hint, Some(true), "{name}");
        }
        assert_eq!(hints_of("filesystem.append").destructive_hint, Some(false));
        for name in ["filesystem.append", "filesystem.edit"] {
            assert_eq!(hints_of(name).idempotent_hint, Some(false), "{name}");
        }
        assert_eq!(hints_of("email.send").open_world_hint, Some(true));
        assert_eq!(hints_of("filesystem.write").open_world_hint, Some(false));
    }

    #[test]
    fn a_read_that_asks_elsewhere_says_so() {
        for (name, open) in [("filesystem.read", false), ("email.read", false), ("git.log", true)] {
            assert_eq!(hints_of(name).open_world_hint, Some(open), "{name}");
        }
    }

    #[test]
    fn what_a_screen_would_act_on_does_not_reach_a_client() {
        let mut schema = json!({"properties": {"x": {"description": "a\u{1b}[2Jb\u{202e}", "enum": ["\u{1b}"]}}});
        plain(&mut schema);
        assert_eq!(schema, json!({"properties": {"x": {"description": "a[2Jb", "enum": ["\u{1b}"]}}}));
        assert_eq!(visible("two\nlines\u{7}"), "two\nlines");
        let mut schema =
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "x-mcp-header": {"type": "string"}}});
        plain(&mut schema);
        assert_eq!(schema, json!({"properties": {"a": {"type": "string"}, "x-mcp-header": {"type": "string"}}}));
    }

    #[test]
    fn a_held_write_says_what_becomes_of_it() {
        let catalogue = Catalogue::builtin().unwrap();
        let spec = catalogue.get(&CapabilityName::new("email.send").unwrap()).unwrap();
        let text = describe(spec, Tier::Notify, Millis::from_secs(30), None);
        assert!(text.contains("Held for 30 s") && text.contains("Do not call again"), "{text}");
        let text = describe(spec, Tier::ApprovalRequired, Millis::from_secs(30), Some("Frozen. "));
        assert!(text.starts_with("Frozen. ") && text.contains("A person is asked first"), "{text}");
    }
}
