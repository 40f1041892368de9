//! Tools of a server as capabilities: which names can be used, and which arguments each takes.
//!
//! Takes definitions as the server gave them; gives capabilities or a reason. Pure. Promise: no name stands for two
//! tools, looks like another one or takes a name of the gateway; a tool that its server and a person do not both call a
//! read is a write that cannot be repeated or undone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_config::{MountConfig, MountToolFacts, skeleton};
use sluice_core::capability::{Capability, Catalogue, Effect, EffectClass};
use sluice_core::{CapabilityName, Millis, ServiceName, Tier};
use sluice_store::definition_digest;

use super::arguments::{self, ArgumentCheck, ToolArguments};
use super::facts::{self, ProposedFacts};

/// Longest definition, as canonical JSON.
const LONGEST: usize = 64 << 10;
/// Longest description that agents see, in characters.
const SHOWN: usize = 4_000;
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
    pub(super) check: ArgumentCheck,
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
            _ => arguments::read(&definition).err(),
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

/// Whether the server says that a tool only reads, and its hints count at all.
pub(super) fn claims_to_read(mount: &MountConfig, definition: &Value) -> bool {
    mount.trust_hints && definition.pointer("/annotations/readOnlyHint") == Some(&json!(true))
}

/// What may be stated about a tool: a proposal, nothing more.
pub(super) fn proposed(mount: &MountConfig, definition: &Value) -> Option<ProposedFacts> {
    let params = arguments::read(definition).map(|found| found.params).unwrap_or_default();
    facts::proposed(definition, &params, mount.trust_hints)
}

/// The tool behind the gate. `cleaned` is the definition after the content stages, or `None` if they withheld it.
/// `accepted_read` says whether a person accepted that it only reads: the server's word is not enough. What the operator
/// states about the tool counts more than either.
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
    let ToolArguments { params, schema, check, open } = arguments::read(source)?;
    let nothing = MountToolFacts::default();
    let stated = mount.facts.get(tool).unwrap_or(&nothing);
    let params = facts::stated(params, stated);
    let reads = stated.read.unwrap_or_else(|| accepted_read && claims_to_read(mount, definition));
    // A read that takes an address as an argument can carry data out through that address.
    let reaches_out = open || params.iter().any(arguments::reaches_out);
    let effect = if reads && !reaches_out { Effect::Read } else { Effect::Write };
    let usual_delay = if reads { Millis::ZERO } else { mount.delay };
    let usual = if reads { Tier::Notify } else { Tier::ApprovalRequired };
    let spec = Capability {
        name,
        service: service_name(&mount.name),
        effect,
        class: (effect == Effect::Write).then_some(EffectClass::Opaque),
        reversible: false,
        delay_s: stated.delay.unwrap_or(usual_delay).as_millis() / 1000,
        summary: summary(&mount.name, tool, source, cleaned.is_none()),
        params,
        usual: Some(stated.tier.unwrap_or(usual)),
        schema: Some(schema),
        definition: Some(definition_digest(text)),
        title: source.get("title").and_then(Value::as_str).map(str::to_owned),
        output: source.get("outputSchema").filter(|schema| schema.is_object()).cloned(),
        open,
    };
    Ok(MountTool { tool: tool.clone(), spec, check, open: false })
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
    use sluice_config::{ByteSize, EnvValue, MountProgram, MountTargetKind, MountTransport};

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
            facts: BTreeMap::new(),
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
    fn what_the_operator_states_counts_more_than_the_server_and_earlier_acceptances() {
        let mut fetching = definition("fetch");
        fetching["inputSchema"]["properties"] = json!({"address": {"type": "string", "format": "uri"}});
        let (good, _) = sift("git", vec![fetching], &Catalogue::default(), &|_| false);
        let made = |facts: MountToolFacts, accepted| {
            let mount = MountConfig { facts: [("fetch".to_owned(), facts)].into(), ..mount() };
            tool(&mount, &good[0], Some(&good[0].definition), accepted).unwrap().spec
        };
        let read = MountToolFacts { read: Some(true), ..MountToolFacts::default() };
        let spec = made(read.clone(), false);
        assert_eq!(
            (spec.effect, spec.usual, spec.delay_s),
            (Effect::Write, Some(Tier::Notify), 0),
            "it takes an address"
        );
        let plain = MountToolFacts { targets: [("address".to_owned(), MountTargetKind::None)].into(), ..read };
        let spec = made(plain, false);
        assert_eq!((spec.effect, spec.class, spec.params[0].target), (Effect::Read, None, false));
        let strict = MountToolFacts {
            read: Some(false),
            delay: Some(Millis::from_secs(90)),
            tier: Some(Tier::Blocked),
            ..MountToolFacts::default()
        };
        let spec = made(strict, true);
        assert_eq!((spec.effect, spec.usual, spec.delay_s), (Effect::Write, Some(Tier::Blocked), 90));
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
        assert!(made.check.allows(&json!({"title": "x"})) && !made.check.allows(&json!({})));
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
