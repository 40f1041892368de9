//! Tools: capabilities as agents that speak MCP see them.
//!
//! Takes an agent, the rules, the freezes; gives the list of tools. Promise: a tool that the rules block with any
//! arguments is not listed, hints never make a tool look safer than it is, and a description says what happens to a
//! call.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_config::ToolsetMember;
use sluice_core::capability::{Capability, Catalogue, Effect, EffectClass};
use sluice_core::nodes::ServiceKind;
use sluice_core::{AgentName, CapabilityName, Millis, Tier};
use sluice_gateway::Gateway;
use sluice_services::{CallError, ReadSource};
use sluice_store::Freeze;

use super::client_lists::ToolListFingerprint;
use super::names::ToolNames;
use super::{companions, find_tools, output_schema};

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
/// Longest description of a tool, in characters.
const LONGEST_DESCRIPTION: usize = 300;
/// Longest title of a tool, in characters.
const LONGEST_TITLE: usize = 100;
/// Largest schema of arguments that is shown with all its words, in bytes.
const LONGEST_SCHEMA: usize = 8 << 10;
/// The prefix of capabilities that need a session.
const OF_A_SESSION: &str = "state.session.";

/// The reader of a list.
#[derive(Debug, Clone)]
pub(super) struct ToolListViewer<'a> {
    pub agent: &'a AgentName,
    pub client: Option<&'a str>,
    /// Whether the conversation has a session. The newest revision has none.
    pub has_session: bool,
    /// What the conversation has found: it is listed whatever the toolset says.
    pub found: BTreeSet<CapabilityName>,
}

/// A tool that the rules allow with some arguments.
#[derive(Debug)]
pub(super) struct AllowedTool<'a> {
    pub name: &'a str,
    pub spec: &'a Capability,
    /// The loosest tier that any arguments give it.
    loosest: Tier,
}

/// Every tool that the rules allow an agent, whether or not its toolset has it.
pub(super) fn allowed<'n>(
    gw: &Gateway,
    known: &'n Catalogue,
    names: &'n ToolNames,
    viewer: &ToolListViewer<'_>,
) -> Vec<AllowedTool<'n>> {
    let policy = gw.policy.get();
    let allowed = names.iter().filter_map(|(name, capability)| {
        let spec = known.get(capability)?;
        let loosest = policy.reach(viewer.agent, capability).loosest;
        let works = viewer.has_session || !needs_session(capability);
        (works && loosest < Tier::Blocked).then_some(AllowedTool { name, spec, loosest })
    });
    allowed.collect()
}

/// The tools of an agent's list, ordered by name: those of its toolset, and those that the conversation has found.
///
/// # Errors
/// When the freezes cannot be read.
pub(super) async fn list(gw: &Gateway, names: &ToolNames, viewer: ToolListViewer<'_>) -> Result<Vec<Tool>, CallError> {
    let freezes = gw.store.freezes().await?;
    let known = gw.catalogue.known();
    let settings = &gw.config.tools;
    let set = settings.of(viewer.agent, viewer.client);
    let paused = gw.keyring.is_paused(viewer.agent);
    let allowed = allowed(gw, &known, names, &viewer);
    let is_chosen = |one: &AllowedTool<'_>| set.contains(member(gw, one.spec));
    let chosen = allowed.iter().filter(|one| is_chosen(one)).count();
    let most = usize::try_from(settings.search_above).unwrap_or(usize::MAX);
    let is_search_only = chosen > most && settings.is_progressive(viewer.client);
    let mut tools = companions::list(viewer.client);
    let ours = tools.len();
    for one in &allowed {
        let spec = one.spec;
        if !viewer.found.contains(&spec.name) && (is_search_only || !is_chosen(one)) {
            continue;
        }
        let leaves = spec.effect == Effect::Write
            || gw.services.read_source(&spec.service(), &spec.name) == Some(ReadSource::Outside);
        let standstill = standstill(spec, leaves, (viewer.agent, paused), &freezes);
        let delay = gw.config.delay_for(&spec.name, Millis::from_secs(spec.delay_s));
        tools.push(tool(spec, one.name, describe(spec, one.loosest, delay, standstill)));
    }
    if tools.len() - ours < allowed.len() || chosen > most {
        tools.push(find_tools::tool());
    }
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tools)
}

/// A capability as toolsets see it.
fn member<'a>(gw: &Gateway, spec: &'a Capability) -> ToolsetMember<'a> {
    let is_added = gw.services.of(spec).is_some_and(|service| service.kind() != ServiceKind::BuiltIn);
    ToolsetMember { capability: &spec.name, is_added }
}

/// Whether a capability works only within a session.
pub(super) fn needs_session(capability: &CapabilityName) -> bool {
    capability.as_str().starts_with(OF_A_SESSION)
}

/// A fingerprint of the list, to notice changes.
pub(super) fn fingerprint(tools: &[Tool]) -> ToolListFingerprint {
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

fn tool(spec: &Capability, name: &str, description: String) -> Tool {
    let mut meta = MetaObject::default();
    meta.insert("sluice/capability".into(), spec.name.as_str().into());
    let mut tool =
        Tool::new(name.to_owned(), description, Arc::new(input(spec))).with_annotations(hints(spec)).with_meta(meta);
    if let Some(title) = &spec.title {
        let title: String = visible(title).chars().take(LONGEST_TITLE).collect();
        tool = tool.with_title(title);
    }
    if let Some(schema) = spec.output.as_ref().and_then(output_schema::with_refusals) {
        tool = tool.with_raw_output_schema(Arc::new(schema));
    }
    tool
}

/// What a tool does and what happens to a call, in a bounded length: a longer text is given by `sluice_find_tools`.
fn describe(spec: &Capability, loosest: Tier, delay: Millis, standstill: Option<&str>) -> String {
    let asks = loosest == Tier::ApprovalRequired;
    let what = match (spec.effect, asks) {
        (Effect::Read, false) => String::new(),
        (_, true) => " A person is asked first: answers `awaiting_approval`. Do not call again.".into(),
        (Effect::Write, false) if delay == Millis::ZERO => String::new(),
        (Effect::Write, false) => {
            format!(" Held for {delay} first: answers `held`, sluice_cancel stops it. Do not call again.")
        }
    };
    let undo = match (spec.effect, spec.reversible) {
        (Effect::Read, _) => "",
        (Effect::Write, true) => " People can undo it.",
        (Effect::Write, false) => " It cannot be undone.",
    };
    let before = standstill.unwrap_or_default();
    let left = LONGEST_DESCRIPTION.saturating_sub([before, &what, undo].iter().map(|text| text.chars().count()).sum());
    format!("{before}{}{what}{undo}", shortened(&visible(&spec.summary), left))
}

/// A text of at most this many characters, cut between two words.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let cut: String = text.chars().take(most.saturating_sub(1)).collect();
    let end = cut.rfind(char::is_whitespace).filter(|end| *end > cut.len() / 2).unwrap_or(cut.len());
    format!("{}…", cut.get(..end).unwrap_or(&cut).trim_end())
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
pub(super) fn input(spec: &Capability) -> JsonObject {
    let mut schema = sluice_services::input_schema(spec);
    plain(&mut schema);
    if serde_json::to_vec(&schema).is_ok_and(|text| text.len() > LONGEST_SCHEMA) {
        // The gate checks calls against the whole schema.
        without_words(&mut schema, 0);
    }
    let mut schema = object(schema);
    if spec.effect == Effect::Write
        && let Some(Value::Object(properties)) = schema.get_mut("properties")
    {
        properties.entry(REASON).or_insert(json!({
            "type": "string", "description": "Why, in one sentence, for the person who is asked.",
        }));
        properties.entry(AGAIN).or_insert(json!({
            "type": "boolean", "description": "True if an identical call was just made and a second is intended.",
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
pub(super) fn visible(text: &str) -> String {
    let steers = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || steers(*c))).collect()
}

/// Removes the words of a schema below its own arguments, for a schema that is too large to be shown.
fn without_words(schema: &mut Value, depth: u32) {
    const WORDS: [&str; 6] = ["description", "title", "examples", "$comment", "default", "markdownDescription"];
    match schema {
        Value::Object(members) => {
            // The descriptions of the arguments themselves stay: they are two levels below the root.
            members.retain(|name, member| {
                // An argument may have such a name: its schema is an object, or true or false.
                let is_word = WORDS.contains(&name.as_str()) && !member.is_object() && !member.is_boolean();
                !is_word || (depth <= 2 && name == "description")
            });
            members.values_mut().for_each(|member| without_words(member, depth + 1));
        }
        Value::Array(list) => list.iter_mut().for_each(|member| without_words(member, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What a list of tools costs a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToolListBudget {
    /// How many tools it has.
    pub tools: usize,
    /// About how many tokens a model reads for it.
    pub tokens: usize,
}

/// What a list costs: a model reads names, descriptions and arguments, about four characters for a token.
pub(crate) fn budget(tools: &[Tool]) -> ToolListBudget {
    let read =
        |tool: &Tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema});
    let characters: usize = tools.iter().map(|tool| read(tool).to_string().chars().count()).sum();
    ToolListBudget { tools: tools.len(), tokens: characters.div_ceil(4) }
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

    #[test]
    fn no_description_is_longer_than_300_characters_and_none_loses_what_becomes_of_a_call() {
        let frozen = Some("The connection behind it is stopped: calls are refused until a person resumes it. ");
        let mut long = Catalogue::builtin().unwrap().get(&CapabilityName::new("email.send").unwrap()).unwrap().clone();
        long.summary = "w\u{f6}rter ".repeat(1_000);
        for spec in Catalogue::builtin().unwrap().iter().chain([&long]) {
            for loosest in [Tier::Autonomous, Tier::ApprovalRequired] {
                let text = describe(spec, loosest, Millis::from_mins(30), frozen);
                assert!(text.chars().count() <= LONGEST_DESCRIPTION, "{}: {text}", spec.name);
                assert!(text.contains("asked first") == (loosest == Tier::ApprovalRequired), "{text}");
            }
        }
        assert_eq!(shortened("one two three", 9), "one two…");
    }

    #[test]
    fn a_very_large_schema_is_listed_without_the_words_inside_it_and_with_its_arguments() {
        let inner: serde_json::Map<String, Value> = (0..500)
            .map(|n| (format!("f{n}"), json!({"type": "string", "description": "w".repeat(100), "examples": ["w"]})))
            .collect();
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "description": "outer", "properties": inner},
            "title": {"type": "string"},
        }});
        let catalogue = Catalogue::builtin().unwrap();
        let spec = catalogue.get(&CapabilityName::new("email.send").unwrap()).unwrap();
        let listed = Value::Object(input(&Capability { schema: Some(schema), ..spec.clone() }));
        assert!(listed.to_string().len() < 20_000, "{}", listed.to_string().len());
        assert_eq!(listed["properties"]["a"]["description"], "outer");
        assert_eq!(listed["properties"]["a"]["properties"]["f499"], json!({"type": "string"}));
        assert_eq!(listed["properties"]["title"], json!({"type": "string"}), "an argument may have such a name");
    }

    #[test]
    fn no_tool_of_the_gateway_has_a_schema_of_its_answer() {
        for spec in Catalogue::builtin().unwrap().iter() {
            assert!(tool(spec, "t", String::new()).output_schema.is_none(), "{}", spec.name);
        }
    }
}
