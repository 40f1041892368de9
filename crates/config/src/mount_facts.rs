//! Facts about single tools of a mounted server, as the operator states them.
//!
//! Takes the map `facts` of a mount; gives typed facts by tool. Promise: a fact that cannot be read is refused with its
//! place; a fact that is not stated leaves the tool as its server and the gateway treat it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};
use sluice_core::{Millis, Tier};

use super::setting::{Setting, SettingError};

/// What the operator states about one tool. Nothing stated is an empty value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountToolFacts {
    /// Whether it only reads.
    pub read: Option<bool>,
    /// Whether agents neither see nor call it.
    pub hide: bool,
    /// How long its writes are held.
    pub delay: Option<Millis>,
    /// Its tier where no rule names it.
    pub tier: Option<Tier>,
    /// What its arguments name, by argument.
    pub targets: BTreeMap<String, MountTargetKind>,
}

/// What an argument of a tool names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountTargetKind {
    /// A file or folder.
    Path,
    /// An address on the network.
    Url,
    /// People who get something.
    Recipients,
    /// Another place or person, such as a channel or an account.
    Name,
    /// No target.
    None,
}

impl MountTargetKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Path, Self::Url, Self::Recipients, Self::Name, Self::None];

    /// The word for it in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Url => "url",
            Self::Recipients => "recipients",
            Self::Name => "name",
            Self::None => "none",
        }
    }

    /// The kind of this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The keys of the facts about one tool.
const KEYS: [&str; 5] = ["read", "hide", "delay", "tier", "targets"];
/// Most tools that facts can be stated about.
const TOOLS: usize = 2000;

impl MountToolFacts {
    /// Whether nothing is stated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The facts as they are written in the configuration.
    #[must_use]
    pub fn shown(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Option<Value>| value.map(|value| map.insert(key.to_owned(), value));
        put("read", self.read.map(Value::from));
        put("hide", self.hide.then_some(Value::Bool(true)));
        put("delay", self.delay.map(|delay| delay.shown()));
        put("tier", self.tier.map(|tier| json!(tier.as_str())));
        let targets: Map<String, Value> =
            self.targets.iter().map(|(name, kind)| (name.clone(), json!(kind.as_str()))).collect();
        put("targets", (!targets.is_empty()).then_some(Value::Object(targets)));
        Value::Object(map)
    }
}

/// The facts of a mount as people and machines see them.
pub(crate) fn shown(facts: &BTreeMap<String, MountToolFacts>) -> Value {
    Value::Object(facts.iter().map(|(tool, facts)| (tool.clone(), facts.shown())).collect())
}

/// JSON Schema of the map of facts.
pub(crate) fn shape() -> Value {
    let kinds = MountTargetKind::ALL.map(MountTargetKind::as_str);
    let tiers = Tier::ALL.map(Tier::as_str);
    json!({"type": "object", "additionalProperties": {
        "type": "object", "additionalProperties": false, "properties": {
            "read": {"type": "boolean"}, "hide": {"type": "boolean"}, "delay": Millis::shape(),
            "tier": {"enum": tiers},
            "targets": {"type": "object", "additionalProperties": {"enum": kinds}}}}})
}

/// Reads the map of facts.
pub(crate) fn read(node: &YamlNode, base: &Path) -> Result<BTreeMap<String, MountToolFacts>, SettingError> {
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new("must be a map of tools and what is stated about each"));
    };
    if entries.len() > TOOLS {
        return Err(SettingError::new(format!("must have at most {TOOLS} tools")));
    }
    let mut facts = BTreeMap::new();
    for (key, value) in entries {
        if key.text.is_empty() || key.text.len() > 128 || key.text.chars().any(char::is_control) {
            return Err(SettingError::new(format!("`{}` is not a tool name", escape(&key.text))).at(key.place));
        }
        let read = of_tool(value, base).map_err(|bad| bad.inside(key, value))?;
        facts.insert(key.text.clone(), read);
    }
    Ok(facts)
}

fn of_tool(node: &YamlNode, base: &Path) -> Result<MountToolFacts, SettingError> {
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new(format!("must be a map with {}", KEYS.join(", "))));
    };
    let mut facts = MountToolFacts::default();
    for (key, value) in entries {
        let read = match key.text.as_str() {
            "read" => bool::from_node(value, base).map(|read| facts.read = Some(read)),
            "hide" => bool::from_node(value, base).map(|read| facts.hide = read),
            "delay" => delay(value, base).map(|read| facts.delay = Some(read)),
            "tier" => tier(value).map(|read| facts.tier = Some(read)),
            "targets" => targets(value).map(|read| facts.targets = read),
            _ => return Err(SettingError::unknown_key(key, &format!("a tool has {}", KEYS.join(", ")), &KEYS)),
        };
        read.map_err(|bad| bad.inside(key, value))?;
    }
    Ok(facts)
}

fn delay(node: &YamlNode, base: &Path) -> Result<Millis, SettingError> {
    let most = Millis::from_hours(24);
    match Millis::from_node(node, base)? {
        delay if delay <= most => Ok(delay),
        _ => Err(SettingError::new("must be at most 24h")),
    }
}

fn tier(node: &YamlNode) -> Result<Tier, SettingError> {
    let words = Tier::ALL.map(Tier::as_str).join(", ");
    match &node.kind {
        YamlValue::Text(text) => text.parse().map_err(|_| SettingError::expected(&format!("one of {words}"), text)),
        _ => Err(SettingError::new(format!("must be one of {words}"))),
    }
}

fn targets(node: &YamlNode) -> Result<BTreeMap<String, MountTargetKind>, SettingError> {
    let words = MountTargetKind::ALL.map(MountTargetKind::as_str).join(", ");
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new(format!("must be a map of arguments, each with one of {words}")));
    };
    let mut targets = BTreeMap::new();
    for (key, value) in entries {
        let bad = |found: &str| SettingError::expected(&format!("one of {words}"), found).inside(key, value);
        let kind = match &value.kind {
            YamlValue::Text(text) => MountTargetKind::from_word(text).ok_or_else(|| bad(text))?,
            _ => return Err(bad(value.noun())),
        };
        targets.insert(key.text.clone(), kind);
    }
    Ok(targets)
}
