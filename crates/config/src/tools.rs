//! Tool settings: which tools agents are shown over MCP.
//!
//! Takes toolsets for single agents and clients; gives the one that counts for a list. Promise: a toolset only shortens
//! a list. It allows nothing: what a call may do, the rules decide.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::policy::CapabilityPattern;
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};
use sluice_core::{AgentName, CapabilityName};

use super::section::section;
use super::setting::{Setting, SettingError};

section! {
    /// Which tools agents are shown over MCP ([mcp.md](mcp.md#toolsets)). A toolset is `minimal`, `files`, `mail`,
    /// `all`, a pattern such as `git.*`, or a list of these. It only shortens the list: the rules decide what a call
    /// may do.
    ToolSettings at "tools" {
        /// Toolsets of single agents, by name: `{coder: [minimal, "git.*"]}`. In the environment:
        /// `coder=minimal+git.*`.
        agents: AgentToolsets = AgentToolsets::default(),
        /// Toolsets of client programs, by the start of the name that a client gives itself:
        /// `{claude-code: files}`. The longest start counts. An agent that has a toolset keeps it in every client.
        clients: ClientToolsets = ClientToolsets::default(),
        /// The toolset of every other client.
        others: Toolset = Toolset::all(),
        /// With more tools than this, a client that is named in `progressive` is shown `sluice_find_tools`, and only
        /// the tools that were found with it.
        search_above: u32 = 60; within 10..=10_000,
        /// Clients that list their tools again when the gateway tells them to, by the start of their names.
        progressive: Vec<ClientNamePrefix> = ClientNamePrefix::known(),
    }
}

/// Clients that have tools for files and commands of their own.
const CODING_CLIENTS: [&str; 12] = [
    "claude-code",
    "codex",
    "gemini-cli",
    "antigravity",
    "cursor",
    "visual studio code",
    "github-copilot",
    "copilot",
    "opencode",
    "windsurf",
    "zed",
    "cline",
];
/// Clients known to list their tools again after `notifications/tools/list_changed`.
const PROGRESSIVE_CLIENTS: [&str; 2] = ["claude-code", "visual studio code"];

/// One part of a toolset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolsetPart {
    /// What people mounted, connected or declared.
    Minimal,
    /// The same, and files and git.
    Files,
    /// The same as `minimal`, and mail and messages.
    Mail,
    /// Every tool that the rules allow.
    All,
    /// Capabilities by name or by the start of their names.
    Pattern(CapabilityPattern),
}

/// A selection of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolset(Vec<ToolsetPart>);

/// What a toolset needs to know about a capability.
#[derive(Debug, Clone, Copy)]
pub struct ToolsetMember<'a> {
    /// Its name.
    pub capability: &'a CapabilityName,
    /// Whether a person mounted, connected or declared it. The others come with the gateway.
    pub is_added: bool,
}

impl ToolsetPart {
    fn contains(&self, member: ToolsetMember<'_>) -> bool {
        let name = member.capability.as_str();
        let of = |services: &[&str]| {
            services.iter().any(|service| name.strip_prefix(service).is_some_and(|rest| rest.starts_with('.')))
        };
        match self {
            Self::Minimal => member.is_added,
            Self::Files => member.is_added || of(&["filesystem", "git"]),
            Self::Mail => member.is_added || of(&["email", "comms"]),
            Self::All => true,
            Self::Pattern(pattern) => pattern.matches(name),
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Minimal => "minimal".into(),
            Self::Files => "files".into(),
            Self::Mail => "mail".into(),
            Self::All => "all".into(),
            Self::Pattern(pattern) => pattern.to_string(),
        }
    }

    fn from_word(word: &str) -> Result<Self, SettingError> {
        Ok(match word {
            "minimal" => Self::Minimal,
            "files" => Self::Files,
            "mail" => Self::Mail,
            "all" => Self::All,
            // A single word is no capability: it is more likely a misspelled toolset.
            pattern if pattern == "*" || pattern.contains(['.', ':', '*']) => {
                let bad = |why: &str| SettingError::expected(Toolset::WHAT, pattern).hint(why.to_owned());
                Self::Pattern(CapabilityPattern::new(pattern).map_err(bad)?)
            }
            other => {
                let close = sluice_core::policy::reading::closest(other, ["minimal", "files", "mail", "all"]);
                let bad = SettingError::expected(Toolset::WHAT, other);
                return Err(match close {
                    Some(close) => bad.hint(format!("did you mean `{close}`?")),
                    None => bad,
                });
            }
        })
    }
}

impl Toolset {
    /// The toolset with everything.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![ToolsetPart::All])
    }

    /// The toolset of clients that have tools for files of their own.
    #[must_use]
    pub fn minimal() -> Self {
        Self(vec![ToolsetPart::Minimal])
    }

    /// Whether a capability is part of it.
    #[must_use]
    pub fn contains(&self, member: ToolsetMember<'_>) -> bool {
        self.0.iter().any(|part| part.contains(member))
    }
}

impl std::fmt::Display for Toolset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(ToolsetPart::word).collect::<Vec<_>>().join(" + "))
    }
}

impl ToolSettings {
    /// The toolset of an agent in a client. The agent's own counts first, then that of the client.
    #[must_use]
    pub fn of(&self, agent: &AgentName, client: Option<&str>) -> &Toolset {
        self.agents.0.get(agent.as_str()).or_else(|| self.clients.of(client?)).unwrap_or(&self.others)
    }

    /// Whether an agent has a toolset of its own.
    #[must_use]
    pub fn is_agent_named(&self, agent: &AgentName) -> bool {
        self.agents.0.contains_key(agent.as_str())
    }

    /// Whether this client lists its tools again when it is told that they changed.
    #[must_use]
    pub fn is_progressive(&self, client: Option<&str>) -> bool {
        client.is_some_and(|client| self.progressive.iter().any(|prefix| prefix.begins(client)))
    }
}

/// The start of the name that a client gives itself, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientNamePrefix(String);

impl ClientNamePrefix {
    fn known() -> Vec<Self> {
        PROGRESSIVE_CLIENTS.map(|name| Self(name.to_owned())).into()
    }

    fn begins(&self, client: &str) -> bool {
        client.to_lowercase().starts_with(&self.0)
    }

    /// The start of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for ClientNamePrefix {
    const WHAT: &'static str = "the start of a client's name, such as `claude-code`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let is_fine = !text.trim().is_empty() && text.len() <= 100 && !text.chars().any(char::is_control);
        if is_fine { Ok(Self(text.trim().to_lowercase())) } else { Err(SettingError::expected(Self::WHAT, text)) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 100})
    }
}

impl Setting for Toolset {
    const WHAT: &'static str = "`minimal`, `files`, `mail`, `all`, a pattern such as `git.*`, or a list of these";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let parts: Result<Vec<_>, _> = text.split('+').map(|word| ToolsetPart::from_word(word.trim())).collect();
        parts.map(Self)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        match &node.kind {
            YamlValue::Text(text) => Self::from_text(text, base),
            YamlValue::List(items) if !items.is_empty() => {
                let part = |item: &YamlNode| match &item.kind {
                    YamlValue::Text(text) => ToolsetPart::from_word(text).map_err(|bad| bad.at(item.place)),
                    _ => Err(Self::not(item).at(item.place)),
                };
                items.iter().map(part).collect::<Result<_, _>>().map(Self)
            }
            _ => Err(Self::not(node)),
        }
    }
    fn shown(&self) -> Value {
        match self.0.as_slice() {
            [one] => json!(one.word()),
            parts => parts.iter().map(|part| json!(part.word())).collect(),
        }
    }
    fn shape() -> Value {
        let word = json!({"type": "string", "minLength": 1});
        json!({"anyOf": [word, {"type": "array", "minItems": 1, "items": word}]})
    }
}

/// Toolsets of single agents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentToolsets(BTreeMap<String, Toolset>);

/// Toolsets of client programs. A client without one keeps the setting that ships with the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientToolsets(BTreeMap<ClientNamePrefix, Toolset>);

impl Default for ClientToolsets {
    /// Coding clients have tools for files and commands of their own.
    fn default() -> Self {
        Self(CODING_CLIENTS.map(|name| (ClientNamePrefix(name.to_owned()), Toolset::minimal())).into())
    }
}

impl ClientToolsets {
    fn of(&self, client: &str) -> Option<&Toolset> {
        let fitting = self.0.iter().filter(|(prefix, _)| prefix.begins(client));
        fitting.max_by_key(|(prefix, _)| prefix.0.len()).map(|(_, set)| set)
    }

    /// Every client that has a toolset, with it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Toolset)> {
        self.0.iter().map(|(prefix, set)| (prefix.as_str(), set))
    }
}

/// `name=toolset`, separated by commas, as the environment writes a map.
fn pairs(text: &str, base: &Path) -> Result<Vec<(String, Toolset)>, SettingError> {
    let pair = |part: &str| {
        let (name, set) = part
            .trim()
            .split_once('=')
            .ok_or_else(|| SettingError::expected("such as `coder=minimal` or `coder=minimal+git.*`", part))?;
        Toolset::from_text(set, base).map(|set| (name.trim().to_owned(), set))
    };
    text.split(',').map(pair).collect()
}

/// The entries of a map of toolsets, each with the reader's own form of its key.
fn entries<K>(
    node: &YamlNode,
    base: &Path,
    key_of: impl Fn(&str) -> Result<K, SettingError>,
) -> Result<Vec<(K, Toolset)>, SettingError> {
    let YamlValue::Map(entries) = &node.kind else { return Err(AgentToolsets::not(node)) };
    let entry = |(key, value): &(sluice_core::policy::reading::YamlKey, YamlNode)| {
        let name = key_of(&key.text).map_err(|bad| bad.at(key.place))?;
        Toolset::from_node(value, base).map(|set| (name, set)).map_err(|bad| bad.inside(key, value))
    };
    entries.iter().map(entry).collect()
}

fn agent(name: &str) -> Result<String, SettingError> {
    let bad = |why: sluice_core::ids::NameError| {
        SettingError::new(format!("cannot use `{}` as an agent", escape(name))).hint(why.to_string())
    };
    AgentName::new(name).map(|name| name.as_str().to_owned()).map_err(bad)
}

/// A map of toolsets as people and machines see it.
fn shown<'s>(sets: impl Iterator<Item = (&'s str, &'s Toolset)>) -> Value {
    Value::Object(sets.map(|(name, set)| (name.to_owned(), set.shown())).collect::<Map<_, _>>())
}

impl Setting for AgentToolsets {
    const WHAT: &'static str = "a map of names with a toolset each";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let read = pairs(text, base)?.into_iter().map(|(name, set)| agent(&name).map(|name| (name, set)));
        read.collect::<Result<_, _>>().map(Self)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        entries(node, base, agent).map(|read| Self(read.into_iter().collect()))
    }
    fn shown(&self) -> Value {
        shown(self.0.iter().map(|(name, set)| (name.as_str(), set)))
    }
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": Toolset::shape()})
    }
}

impl Setting for ClientToolsets {
    const WHAT: &'static str = AgentToolsets::WHAT;

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let mut sets = Self::default();
        for (name, set) in pairs(text, base)? {
            sets.0.insert(ClientNamePrefix::from_text(&name, base)?, set);
        }
        Ok(sets)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let mut sets = Self::default();
        sets.0.extend(entries(node, base, |name| ClientNamePrefix::from_text(name, base))?);
        Ok(sets)
    }
    fn shown(&self) -> Value {
        shown(self.iter())
    }
    fn shape() -> Value {
        AgentToolsets::shape()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member<'a>(capability: &'a CapabilityName, is_added: bool) -> ToolsetMember<'a> {
        ToolsetMember { capability, is_added }
    }

    fn name(text: &str) -> CapabilityName {
        CapabilityName::new(text).unwrap()
    }

    #[test]
    fn an_agent_keeps_its_own_toolset_and_the_longest_client_name_counts() {
        let base = Path::new("/");
        let tools = ToolSettings {
            agents: AgentToolsets::from_text("clerk=mail", base).unwrap(),
            clients: ClientToolsets::from_text("claude=files,Cursor=minimal+git.*", base).unwrap(),
            ..ToolSettings::default()
        };
        let of = |agent: &str, client: Option<&str>| tools.of(&AgentName::new(agent).unwrap(), client).to_string();
        assert_eq!(of("clerk", Some("claude-code")), "mail");
        assert_eq!(of("maid", Some("claude-code")), "minimal", "the default of the longer name stays");
        assert_eq!(of("maid", Some("Claude-AI")), "files");
        assert_eq!(of("maid", Some("cursor-vscode")), "minimal + git.*");
        assert_eq!(of("maid", Some("my script")), "all");
        assert_eq!(of("maid", None), "all");
        assert!(tools.is_progressive(Some("claude-code")) && !tools.is_progressive(Some("codex-mcp-client")));
    }

    #[test]
    fn each_toolset_contains_what_people_added_and_its_own_services() {
        let contains = |set: &str, capability: &str, is_added| {
            let capability = name(capability);
            Toolset::from_text(set, Path::new("/")).unwrap().contains(member(&capability, is_added))
        };
        for set in ["minimal", "files", "mail", "all"] {
            assert!(contains(set, "weather.today", true), "{set}");
        }
        assert!(!contains("minimal", "filesystem.read", false) && contains("files", "filesystem.read", false));
        assert!(!contains("files", "email.send", false) && contains("mail", "email.send", false));
        assert!(!contains("files", "filesystems.read", false), "a service is a whole word");
        assert!(contains("minimal+state.*", "state.shared.get", false));
        assert!(!contains("git.*", "weather.today", true), "patterns alone name everything");
    }

    #[test]
    fn a_misspelled_toolset_is_refused_with_the_right_word() {
        let bad = Toolset::from_text("minimum", Path::new("/")).unwrap_err();
        assert!(bad.message.contains("minimum"), "{bad:?}");
        assert_eq!(Toolset::from_text("filez", Path::new("/")).unwrap_err().hint.unwrap(), "did you mean `files`?");
        for wrong in ["git*x", "", "minimal,all", "*.send"] {
            assert!(Toolset::from_text(wrong, Path::new("/")).is_err(), "{wrong}");
        }
    }
}
