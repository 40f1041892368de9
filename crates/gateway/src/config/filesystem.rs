//! Folders agents may use.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_core::AgentName;
use sluice_core::policy::reading::{Kind, Node, closest, escape};

use super::section::section;
use super::setting::{Bad, Setting};
use super::size::Size;

section! {
    /// Folders agents may use. Without one, no file can be read or written.
    Filesystem at "filesystem" {
        /// Folders, each with `path`, `agents` (a list of names, or `all`), `read_only` (false unless said) and `trusted`
        /// (false unless said). Files below a folder that is not trusted are outside text: they are screened before an
        /// agent is shown them. Set `trusted: true` only where nobody but the person puts files; what agents write there
        /// is screened nevertheless.
        /// None may hold, or lie in, the folders and files of the gateway itself.
        roots: Vec<Root> = Vec::new(),
        /// Whether files with several names (hard links) may be read and written. One of the names may lie outside.
        allow_hard_links: bool = false,
        /// The largest file of a coding client that is kept before the client changes it. What is larger cannot be taken
        /// back. See [coding-agents.md](coding-agents.md#taking-back-what-a-client-wrote).
        undo_file: Size = Size::from_kib(4096); within Size::from_bytes(0)..=Size::from_mb(64),
        /// The most files that are kept for one call of a coding client. 0 keeps nothing.
        undo_files: u32 = 200; within 0..=10_000,
        /// The most that is kept within 24 hours.
        undo_day: Size = Size::from_kib(256 * 1024); within Size::from_bytes(0)..=Size::from_mb(1_000_000),
    }
}

/// A folder agents may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// Who may use it.
    pub agents: Agents,
    /// Nothing may be changed in it.
    pub read_only: bool,
    /// Its files are the person's own words.
    pub trusted: bool,
}

/// Some agents, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agents {
    /// Every agent.
    All,
    /// These.
    Named(Vec<AgentName>),
}

impl Agents {
    /// Whether an agent is among them.
    #[must_use]
    pub fn contains(&self, agent: &AgentName) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(agent),
        }
    }
}

const KEYS: [&str; 4] = ["path", "agents", "read_only", "trusted"];

impl Setting for Root {
    const WHAT: &'static str = "a map with path, agents, read_only and trusted";

    fn from_text(_: &str, _: &Path) -> Result<Self, Bad> {
        Err(Bad::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let (mut path, mut agents, mut read_only, mut trusted) = (None, None, false, false);
        for (key, value) in entries {
            let read = match key.text.as_str() {
                "path" => PathBuf::from_node(value, base).map(|read| path = Some(read)),
                "agents" => Agents::from_node(value, base).map(|read| agents = Some(read)),
                "read_only" => bool::from_node(value, base).map(|read| read_only = read),
                "trusted" => bool::from_node(value, base).map(|read| trusted = read),
                other => {
                    let bad = Bad::new(format!("has no key `{}`: a root has {}", escape(other), KEYS.join(", ")));
                    let close = closest(other, KEYS).map(|close| format!("did you mean `{close}`?"));
                    return Err(Bad { hint: close, ..bad }.at(key.place));
                }
            };
            read.map_err(|bad| Bad { message: format!("{}: {}", key.text, bad.message), ..bad }.at(value.place))?;
        }
        let path = path.ok_or_else(|| Bad::new("must have a `path`"))?;
        let agents =
            agents.ok_or_else(|| Bad::new("must say whose it is").hint("add `agents: [name]` or `agents: all`"))?;
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
            "path": PathBuf::shape(), "agents": Agents::shape(), "read_only": bool::shape(),
            "trusted": bool::shape()}})
    }
}

impl Setting for Agents {
    const WHAT: &'static str = "a list of agents, or `all`";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        if text == "all" { Ok(Self::All) } else { Err(Bad::expected(Self::WHAT, text)) }
    }
    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        match &node.kind {
            Kind::List(_) => Vec::from_node(node, base).map(Self::Named),
            Kind::Text(text) => Self::from_text(text, base),
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
