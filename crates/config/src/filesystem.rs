//! File access: the folders that agents may use.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_core::AgentName;
use sluice_core::policy::reading::{YamlNode, YamlValue};

use super::section::section;
use super::setting::{Setting, SettingError};
use super::size::ByteSize;

section! {
    /// Folders that agents may use. Without one, no file can be read or written.
    Filesystem at "filesystem" {
        /// Folders, each with `path`, `agents` (a list of names, or `all`), `read_only` (by default false) and
        /// `trusted` (by default false). Files below a folder that is not trusted are content from outside: they are
        /// screened before an agent is shown them. Set `trusted: true` only if nobody but the person puts files there;
        /// files that agents write there are screened nevertheless.
        /// No folder may hold, or lie in, the folders and files of the gateway itself.
        roots: Vec<FilesystemRootConfig> = Vec::new(),
        /// Whether files with several names (hard links) may be read and written. One of the names may lie outside the
        /// folder.
        allow_hard_links: bool = false,
        /// The largest file that is kept before a coding client changes it. A change to a larger file cannot be undone.
        /// See [coding-agents.md](coding-agents.md#taking-back-what-a-client-wrote).
        undo_file: ByteSize = ByteSize::from_kib(4096); within ByteSize::from_bytes(0)..=ByteSize::from_mb(64),
        /// The most files that are kept for one call of a coding client. 0 keeps nothing.
        undo_files: u32 = 200; within 0..=10_000,
        /// The most data that is kept within 24 hours.
        undo_day: ByteSize = ByteSize::from_kib(256 * 1024); within ByteSize::from_bytes(0)..=ByteSize::from_mb(1_000_000),
    }
}

/// A folder that agents may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesystemRootConfig {
    /// The path of the folder.
    pub path: PathBuf,
    /// The agents that may use it.
    pub agents: AgentSelection,
    /// Whether nothing may be changed in it.
    pub read_only: bool,
    /// Whether its files count as the person's own words.
    pub trusted: bool,
}

/// Some agents, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentSelection {
    /// Every agent.
    All,
    /// Only these agents.
    Named(Vec<AgentName>),
}

impl AgentSelection {
    /// Whether an agent is included.
    #[must_use]
    pub fn contains(&self, agent: &AgentName) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(agent),
        }
    }
}

const KEYS: [&str; 4] = ["path", "agents", "read_only", "trusted"];

impl Setting for FilesystemRootConfig {
    const WHAT: &'static str = "a map with path, agents, read_only and trusted";

    fn from_text(_: &str, _: &Path) -> Result<Self, SettingError> {
        Err(SettingError::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let (mut path, mut agents, mut read_only, mut trusted) = (None, None, false, false);
        for (key, value) in entries {
            let read = match key.text.as_str() {
                "path" => PathBuf::from_node(value, base).map(|read| path = Some(read)),
                "agents" => AgentSelection::from_node(value, base).map(|read| agents = Some(read)),
                "read_only" => bool::from_node(value, base).map(|read| read_only = read),
                "trusted" => bool::from_node(value, base).map(|read| trusted = read),
                _ => return Err(SettingError::unknown_key(key, &format!("a root has {}", KEYS.join(", ")), &KEYS)),
            };
            read.map_err(|bad| bad.inside(key, value))?;
        }
        let path = path.ok_or_else(|| SettingError::new("must have a `path`"))?;
        let agents = agents
            .ok_or_else(|| SettingError::new("must name its agents").hint("add `agents: [name]` or `agents: all`"))?;
        Ok(Self { path, agents, read_only, trusted })
    }

    fn shown(&self) -> Value {
        let fields = [
            ("path", self.path.shown()),
            ("agents", self.agents.shown()),
            ("read_only", self.read_only.shown()),
            ("trusted", self.trusted.shown()),
        ];
        Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect::<Map<_, _>>())
    }

    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": false, "required": ["path", "agents"], "properties": {
            "path": PathBuf::shape(), "agents": AgentSelection::shape(), "read_only": bool::shape(),
            "trusted": bool::shape()}})
    }
}

impl Setting for AgentSelection {
    const WHAT: &'static str = "a list of agents, or `all`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        if text == "all" { Ok(Self::All) } else { Err(SettingError::expected(Self::WHAT, text)) }
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        match &node.kind {
            YamlValue::List(_) => Vec::from_node(node, base).map(Self::Named),
            YamlValue::Text(text) => Self::from_text(text, base),
            _ => Err(Self::not(node)),
        }
    }
    fn shown(&self) -> Value {
        match self {
            Self::All => json!("all"),
            Self::Named(names) => names.shown(),
        }
    }
    fn shape() -> Value {
        json!({"anyOf": [{"enum": ["all"]}, Vec::<AgentName>::shape()]})
    }
}
