//! Tools of a server as capabilities: which names can be used, and which arguments each takes.
//!
//! Takes definitions as the server gave them; gives capabilities or a reason. Pure. Promise: no name stands for two
//! tools, looks like another one or takes a name of the gateway; a tool that its server and a person do not both call a
//! read is a write that cannot be repeated or undone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_config::{MountConfig, skeleton};
use sluice_content::stages::SafeSchema;
use sluice_core::capability::{Capability, CapabilityParam, Catalogue, Effect, EffectClass, ParamKind};
use sluice_core::{CapabilityName, ServiceName, Tier};
use sluice_store::definition_digest;

/// Longest definition, as canonical JSON.
const LONGEST: usize = 64 << 10;
/// Longest description that agents see, in characters.
const SHOWN: usize = 4_000;
/// Most arguments of a tool.
const ARGUMENTS: usize = 128;

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
const RECIPIENTS: [&str; 5] = ["to", "recipient", "recipients", "cc", "bcc"];
const URLS: [&str; 5] = ["url", "uri", "link", "endpoint", "webhook"];
const TARGETS: [&str; 9] = ["host", "hostname", "channel", "account", "amount", "user", "username", "owner", "repo"];

/// A definition that can be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedTool {
    /// The server's name for it.
    pub(super) tool: String,
    /// The whole definition.
    pub(super) definition: Value,
    /// The same as canonical text, which is pinned.
    pub(super) text: String,
}

/// One tool behind the gate.
#[derive(Debug, Clone)]
pub(super) struct MountTool {
    /// The server's name for it.
    pub(super) tool: String,
    pub(super) spec: Capability,
    pub(super) schema: SafeSchema,
    /// Whether it may be called: the server describes it exactly as it was accepted.
    pub(super) open: bool,
}

/// The service name of a mount, for batch protection and freezes.
pub(super) fn service_name(mount: &str) -> Option<ServiceName> {
    ServiceName::new(format!("mount.{mount}")).ok()
}

/// The capability name of a tool.
pub(super) fn capability_name(mount: &str, tool: &str) -> Option<CapabilityName> {
    CapabilityName::new(format!("{mount}.{tool}")).ok()
}

/// A tool that cannot be used, and why.
pub(super) type RefusedTool = (String, String);

/// Sorts a list of definitions into usable and unusable ones. `pinned` are names that people know.
pub(super) fn sift(
    mount: &str,
    list: Vec<Value>,
    catalogue: &Catalogue,
    pinned: &dyn Fn(&str) -> bool,
) -> (Vec<ListedTool>, Vec<RefusedTool>) {
    let name_of = |definition: &Value| definition.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut exact: BTreeMap<String, usize> = BTreeMap::new();
    let mut alike: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for definition in &list {
        let name = name_of(definition);
        *exact.entry(name.clone()).or_default() += 1;
        let like = alike.entry(skeleton(&name)).or_default();
        if !like.contains(&name) {
            like.push(name);
        }
    }
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for definition in list {
        let tool = name_of(&definition);
        let text = String::from_utf8(sluice_core::json::to_canonical_bytes(&definition)).unwrap_or_default();
        let lookalike = alike.get(&skeleton(&tool)).and_then(|all| all.iter().find(|other| **other != tool));
        let why = match (capability_name(mount, &tool), lookalike) {
            (None, _) => Some("its name is too long or has characters that are not allowed".to_owned()),
            _ if exact.get(&tool).is_some_and(|count| *count > 1) => Some("two tools have this name".to_owned()),
            (Some(_), Some(other)) if !pinned(&tool) => Some(format!("it looks like `{}`", printable(other))),
            (Some(name), _) if taken(mount, &name, catalogue) => {
                Some("the gateway itself has a capability of this name".to_owned())
            }
            _ if text.len() > LONGEST => Some(format!("its definition is larger than {LONGEST} bytes")),
            _ => specify(&definition).err(),
        };
        match why {
            None => good.push(ListedTool { tool, definition, text }),
            Some(why) => bad.push((printable(&tool), why)),
        }
    }
    bad.dedup();
    (good, bad)
}

/// A name in the form that people may see.
fn printable(name: &str) -> String {
    name.chars().take(64).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

fn taken(mount: &str, name: &CapabilityName, catalogue: &Catalogue) -> bool {
    catalogue.get(name).is_some_and(|spec| Some(spec.service()) != service_name(mount))
}

/// The part of a definition that does not depend on the settings of the mount.
struct SpecifiedToolSchema {
    params: Vec<CapabilityParam>,
    schema: Value,
    compiled: SafeSchema,
}

fn specify(definition: &Value) -> Result<SpecifiedToolSchema, String> {
    let mut schema = match definition.get("inputSchema") {
        Some(Value::Object(schema)) => schema.clone(),
        _ => return Err("its arguments have no schema".into()),
    };
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("its arguments are not an object".into());
    }
    schema.insert("type".into(), json!("object"));
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else { return Err("its schema cannot be read".into()) };
    if properties.len() > ARGUMENTS {
        return Err(format!("it has more than {ARGUMENTS} arguments"));
    }
    let properties = properties.clone();
    let required: Vec<&str> = match schema.get("required") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let params = properties.iter().map(|(name, shape)| param(name, shape, required.contains(&name.as_str()))).collect();
    let schema = Value::Object(schema);
    super::headers::repeated(&schema)?;
    let compiled = SafeSchema::compile(&schema).map_err(|_| {
        "its schema cannot be used: it refers to another document, or the cost of checking it has no limit".to_owned()
    })?;
    Ok(SpecifiedToolSchema { params, schema, compiled })
}

/// The kind of an argument, by its schema and its name.
fn param(name: &str, shape: &Value, required: bool) -> CapabilityParam {
    let kind_of = |shape: &Value| shape.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let lower = name.to_ascii_lowercase();
    let named = |list: &[&str]| list.contains(&lower.as_str());
    let is_url = named(&URLS) || matches!(shape.get("format").and_then(Value::as_str), Some("uri" | "url"));
    let items = || shape.get("items").map(&kind_of).unwrap_or_default() == "string";
    let kind = match kind_of(shape).as_str() {
        "string" if is_url => ParamKind::Url,
        "string" if named(&PATHS) || lower.ends_with("_path") => ParamKind::Path,
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
    };
    let target = matches!(kind, ParamKind::Url | ParamKind::Path | ParamKind::Recipients) || named(&TARGETS);
    CapabilityParam { required, target, ..CapabilityParam::new(name, kind) }
}

/// Whether the server says that a tool only reads, and its hints count at all.
pub(super) fn claims_to_read(mount: &MountConfig, definition: &Value) -> bool {
    mount.trust_hints && definition.pointer("/annotations/readOnlyHint") == Some(&json!(true))
}

/// The tool behind the gate. `cleaned` is the definition after the content stages, or `None` if they withheld it.
/// `accepted_read` says whether a person accepted that it only reads: the server's word is not enough.
pub(super) fn tool(
    mount: &MountConfig,
    listed: &ListedTool,
    cleaned: Option<&Value>,
    accepted_read: bool,
) -> Result<MountTool, String> {
    let ListedTool { tool, definition, text } = listed;
    let name = capability_name(&mount.name, tool).ok_or_else(|| "its name cannot be used".to_owned())?;
    // A withheld definition can still be used if a person accepted it; its words are left out.
    let bare;
    let source = match cleaned {
        Some(cleaned) => cleaned,
        None => {
            bare = without_words(definition);
            &bare
        }
    };
    let SpecifiedToolSchema { params, schema, compiled } = specify(source)?;
    let reads = accepted_read && claims_to_read(mount, definition);
    // A read that takes an address as an argument can carry data out through that address.
    let reaches_out = params.iter().any(|param| matches!(param.kind, ParamKind::Url | ParamKind::Recipients));
    let effect = if reads && !reaches_out { Effect::Read } else { Effect::Write };
    let spec = Capability {
        name,
        service: service_name(&mount.name),
        effect,
        class: (effect == Effect::Write).then_some(EffectClass::Opaque),
        reversible: false,
        delay_s: if reads { 0 } else { mount.delay.as_millis() / 1000 },
        summary: summary(&mount.name, tool, source, cleaned.is_none()),
        params,
        usual: Some(if reads { Tier::Notify } else { Tier::ApprovalRequired }),
        schema: Some(schema),
        definition: Some(definition_digest(text)),
    };
    Ok(MountTool { tool: tool.clone(), spec, schema: compiled, open: false })
}

fn summary(mount: &str, tool: &str, definition: &Value, withheld: bool) -> String {
    let said = definition.get("description").and_then(Value::as_str).unwrap_or_default();
    let said: String = said.trim().chars().take(SHOWN).collect();
    let end = if said.ends_with(['.', '!', '?', ':']) { "" } else { "." };
    match (withheld, said.is_empty()) {
        (true, _) => format!("Tool `{tool}` of the server `{mount}`; its own description is withheld."),
        (false, true) => format!("Tool `{tool}` of the server `{mount}`."),
        (false, false) => format!("{said}{end}"),
    }
}

/// A definition in which a model can read only names.
fn without_words(definition: &Value) -> Value {
    const WORDS: [&str; 7] = ["description", "title", "examples", "default", "$comment", "_meta", "icons"];
    match definition {
        Value::Object(map) => {
            // Under `properties`, the keys are names of arguments.
            let keep = |(key, value): (&String, &Value)| {
                let inner = if key == "properties" { each(value) } else { without_words(value) };
                (!WORDS.contains(&key.as_str())).then(|| (key.clone(), inner))
            };
            Value::Object(map.iter().filter_map(keep).collect::<Map<_, _>>())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_words).collect()),
        other => other.clone(),
    }
}

fn each(properties: &Value) -> Value {
    match properties {
        Value::Object(map) => {
            Value::Object(map.iter().map(|(name, shape)| (name.clone(), without_words(shape))).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::{ByteSize, EnvValue, MountProgram, MountTransport};
    use sluice_core::Millis;

    fn mount() -> MountConfig {
        let program = MountProgram {
            command: "x".into(),
            args: Vec::new(),
            env: vec![("A".into(), EnvValue::Plain("b".into()))],
            folder: None,
            read: Vec::new(),
            write: Vec::new(),
            network: Vec::new(),
            allow_addresses: Vec::new(),
            memory: ByteSize::from_mb(1),
        };
        MountConfig {
            name: "git".into(),
            way: MountTransport::Program(Box::new(program)),
            timeout: Millis::from_secs(1),
            start_timeout: Millis::from_secs(1),
            recheck: Millis::from_secs(1),
            at_once: 1,
            tools: 10,
            max_answer: ByteSize::from_mb(1),
            delay: Millis::from_secs(30),
            trust_hints: true,
            keep_reader: false,
        }
    }

    fn definition(name: &str) -> Value {
        json!({"name": name, "description": "Does it", "inputSchema": {"type": "object", "properties": {}}})
    }

    fn sifted(names: &[&str], pinned: &[&str]) -> (Vec<String>, Vec<RefusedTool>) {
        let list = names.iter().map(|name| definition(name)).collect();
        let catalogue = Catalogue::builtin().unwrap();
        let (good, bad) = sift("git", list, &catalogue, &|name| pinned.contains(&name));
        (good.into_iter().map(|listed| listed.tool).collect(), bad)
    }

    #[test]
    fn names_that_are_taken_doubled_alike_or_none_are_refused_with_a_reason() {
        let (good, bad) =
            sifted(&["git_status", "push", "two", "two", "send_mail", "send-mai1", "päth", "a/b", ""], &[]);
        assert_eq!(good, ["git_status"]);
        let why: BTreeMap<&str, &str> = bad.iter().map(|(tool, why)| (tool.as_str(), why.as_str())).collect();
        assert!(why["push"].contains("itself has a capability"), "{bad:?}");
        assert!(why["two"].contains("two tools"));
        assert!(why["send_mail"].contains("looks like `send-mai1`") && why["send-mai1"].contains("looks like"));
        assert!(why["p?th"].contains("characters") && why["a/b"].contains("characters") && why[""].contains("name"));
    }

    #[test]
    fn a_newcomer_that_looks_like_a_known_tool_does_not_take_it_down() {
        let (good, bad) = sifted(&["send_mail", "send_mai1"], &["send_mail"]);
        assert_eq!((good.as_slice(), bad.len()), (&["send_mail".to_owned()][..], 1));
    }

    #[test]
    fn what_is_not_said_to_read_is_a_write_nobody_repeats() {
        let catalogue = Catalogue::default();
        let mut reading = definition("status");
        reading["annotations"] = json!({"readOnlyHint": true});
        let mut fetching = definition("fetch");
        fetching["annotations"] = json!({"readOnlyHint": true});
        fetching["inputSchema"]["properties"] = json!({"url": {"type": "string"}});
        let (good, bad) = sift("git", vec![reading, fetching, definition("commit")], &catalogue, &|_| false);
        assert_eq!(bad, []);
        let specs: Vec<Capability> =
            good.iter().map(|listed| tool(&mount(), listed, Some(&listed.definition), true).unwrap().spec).collect();
        assert_eq!((specs[0].effect, specs[0].usual), (Effect::Read, Some(Tier::Notify)));
        assert_eq!((specs[1].effect, specs[1].usual, specs[1].delay_s), (Effect::Write, Some(Tier::Notify), 0));
        assert_eq!((specs[2].effect, specs[2].usual), (Effect::Write, Some(Tier::ApprovalRequired)));
        assert_eq!((specs[2].class, specs[2].delay_s, specs[2].reversible), (Some(EffectClass::Opaque), 30, false));
        let doubting = MountConfig { trust_hints: false, ..mount() };
        for (mount, accepted) in [(doubting, true), (mount(), false)] {
            let spec = tool(&mount, &good[0], Some(&good[0].definition), accepted).unwrap().spec;
            assert_eq!((spec.effect, spec.usual), (Effect::Write, Some(Tier::ApprovalRequired)));
            assert_eq!((spec.class, spec.delay_s), (Some(EffectClass::Opaque), 30));
        }
    }

    #[test]
    fn a_withheld_definition_keeps_its_shape_and_loses_its_words() {
        let mut poisoned = definition("add");
        poisoned["description"] = json!("EVIL");
        poisoned["inputSchema"] = json!({
            "type": "object", "title": "EVIL", "required": ["title"],
            "properties": {"title": {"type": "string", "description": "EVIL", "examples": ["EVIL"]}},
        });
        let (good, _) = sift("git", vec![poisoned], &Catalogue::default(), &|_| false);
        let made = tool(&mount(), &good[0], None, false).unwrap();
        let shown = format!("{} {}", made.spec.summary, made.spec.input_schema());
        assert!(!shown.contains("EVIL"), "{shown}");
        assert_eq!(made.spec.params.len(), 1);
        assert!(made.schema.allows(&json!({"title": "x"})) && !made.schema.allows(&json!({})));
    }

    #[test]
    fn a_schema_that_leads_elsewhere_or_is_none_is_refused() {
        let mut elsewhere = definition("a");
        elsewhere["inputSchema"] = json!({"$ref": "http://example.org/schema"});
        let mut list = definition("b");
        list["inputSchema"] = json!({"type": "array"});
        let (good, bad) = sift("git", vec![elsewhere, list, json!({"name": "c"})], &Catalogue::default(), &|_| false);
        assert_eq!((good.len(), bad.len()), (0, 3), "{bad:?}");
    }
}
