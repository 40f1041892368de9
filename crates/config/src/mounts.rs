//! Mount settings: third-party MCP servers behind the gate, how each is reached and what it may reach.

mod sign_in;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_core::Millis;
use sluice_core::capability::Catalogue;
use sluice_core::ids::SecretName;
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};

use super::mount_facts::{self, MountToolFacts};
use super::setting::{BoundedSetting, Setting, SettingError};
use super::size::ByteSize;
use crate::network::{CredentialPlacement, EgressUrl, HostPattern, IpNetwork};

pub use sign_in::MountSignIn;

/// Mounted servers by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredMounts(pub Vec<MountConfig>);

/// One mounted third-party server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountConfig {
    /// The name of the mount: the first part of its capabilities.
    pub name: String,
    /// How the server is reached.
    pub way: MountTransport,
    /// Longest time that a call may take.
    pub timeout: Millis,
    /// Longest time until its first answer.
    pub start_timeout: Millis,
    /// How often its tools are checked again.
    pub recheck: Millis,
    /// Most calls at once.
    pub at_once: u32,
    /// Most tools that it may have.
    pub tools: u32,
    /// Largest message that it may send, and so the largest answer.
    pub max_answer: ByteSize,
    /// How long its writes are held.
    pub delay: Millis,
    /// Whether its hint that a tool only reads is trusted.
    pub trust_hints: bool,
    /// Whether one reader process may read all its answers to one conversation.
    pub keep_reader: bool,
    /// What the operator states about single tools, by the server's name for each.
    pub facts: BTreeMap<String, MountToolFacts>,
}

/// How a mounted server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountTransport {
    /// A program that the gateway starts.
    Program(Box<MountProgram>),
    /// A server at an address.
    Address(Box<MountAddress>),
}

/// A program and what it may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountProgram {
    /// A path, or a name that is searched for in the usual folders.
    pub command: String,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// The environment of the program.
    pub env: Vec<(String, EnvValue)>,
    /// The folder it starts in; by default one of its own.
    pub folder: Option<PathBuf>,
    /// Files and folders that it may read and execute.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may read and change.
    pub write: Vec<PathBuf>,
    /// Hosts it may reach.
    pub network: Vec<HostPattern>,
    /// Private addresses that those hosts may have.
    pub allow_addresses: Vec<IpNetwork>,
    /// Most memory it may use.
    pub memory: ByteSize,
}

/// The value of an environment variable.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// The value as written.
    Plain(String),
    /// A secret from the vault, read when the program is started.
    Vault(SecretName),
}

impl fmt::Debug for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("…"),
            Self::Vault(name) => write!(f, "vault:{name}"),
        }
    }
}

/// A server address and how to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountAddress {
    /// The URL of the server.
    pub url: String,
    /// Whether plain http is allowed.
    pub http: bool,
    /// The credential, added by the egress proxy.
    pub credential: Option<(SecretName, CredentialPlacement)>,
    /// How the gateway signs in, if the server wants OAuth.
    pub sign_in: MountSignIn,
    /// Private addresses that the host may have.
    pub allow_addresses: Vec<IpNetwork>,
    /// Most requests per minute, if limited.
    pub per_minute: Option<u32>,
}

const KEYS: [&str; 24] = [
    "command",
    "args",
    "env",
    "folder",
    "files",
    "network",
    "memory",
    "url",
    "http",
    "secret",
    "credential",
    "oauth",
    "allow_addresses",
    "per_minute",
    "timeout",
    "start_timeout",
    "recheck",
    "at_once",
    "tools",
    "max_answer",
    "delay",
    "trust_hints",
    "keep_reader",
    "facts",
];
/// Names with another meaning in capabilities.
const OURS: [&str; 6] = ["check", "custom", "mount", "proxy", "sluice", "inbox"];
/// A built-in capability group that a mount may carry out.
const LEFT_TO_MOUNTS: &str = "git";

impl Setting for ConfiguredMounts {
    const WHAT: &'static str = "a map of servers";

    fn from_text(_: &str, _: &Path) -> Result<Self, SettingError> {
        Err(SettingError::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let taken = reserved_names();
        let mut mounts: Vec<MountConfig> = Vec::new();
        for (key, value) in entries {
            let name = key.text.as_str();
            let bad = |hint: &str| {
                SettingError::new(format!("cannot use the name `{}`", escape(name))).hint(hint).at(key.place)
            };
            if !is_name(name) {
                return Err(bad("a name has 1 to 32 characters of a-z, 0-9, `_` and `-`, and starts with a letter"));
            }
            if taken.contains(name) {
                return Err(bad("the gateway itself has capabilities with this name; choose another"));
            }
            if let Some(like) = mounts.iter().find(|one| skeleton(&one.name) == skeleton(name)) {
                return Err(bad(&format!("it looks like `{}`; choose another", like.name)));
            }
            mounts.push(mount(name, value, base)?);
        }
        Ok(Self(mounts))
    }

    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|one| (one.name.clone(), shown(one))).collect::<Map<_, _>>())
    }

    fn shape() -> Value {
        let texts = json!({"type": "array", "items": {"type": "string"}});
        json!({"type": "object", "additionalProperties": {
            "type": "object", "additionalProperties": false, "properties": {
                "command": {"type": "string"}, "args": texts,
                "env": {"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}},
                "folder": PathBuf::shape(),
                "files": {"type": "object", "additionalProperties": false, "properties": {"read": texts, "write": texts}},
                "network": texts, "memory": ByteSize::shape(), "url": {"type": "string"}, "http": bool::shape(),
                "oauth": sign_in::shape(), "secret": {"type": "string"}, "credential": {"type": "string"}, "allow_addresses": texts,
                "per_minute": {"type": "integer", "minimum": 1}, "timeout": Millis::shape(), "start_timeout": Millis::shape(),
                "recheck": Millis::shape(), "at_once": {"type": "integer", "minimum": 1, "maximum": 64},
                "tools": {"type": "integer", "minimum": 1, "maximum": 2000}, "max_answer": ByteSize::shape(),
                "delay": Millis::shape(), "trust_hints": bool::shape(), "keep_reader": bool::shape(),
                "facts": mount_facts::shape()}}})
    }
}

/// The names of the gateway's own services.
pub(super) fn reserved_names() -> BTreeSet<String> {
    let first = |name: &str| name.split(['.', ':']).next().unwrap_or_default().to_owned();
    let builtin = Catalogue::builtin().unwrap_or_default();
    let names = builtin.iter().map(|capability| first(capability.name.as_str()));
    let mut taken: BTreeSet<String> = names.filter(|name| name != LEFT_TO_MOUNTS).collect();
    taken.extend(OURS.map(str::to_owned));
    taken
}

/// Whether a mount may have this name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
}

/// A simplified form of a name: two names with the same form are easily confused.
#[must_use]
pub fn skeleton(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for c in name.chars().flat_map(char::to_lowercase) {
        match c {
            '0' => folded.push('o'),
            '1' | 'i' => folded.push('l'),
            '5' => folded.push('s'),
            '-' | '_' | '.' | ':' | '/' => {}
            c => folded.push(c),
        }
    }
    folded.replace("rn", "m").replace("vv", "w")
}

fn shown(mount: &MountConfig) -> Value {
    let mut all = match &mount.way {
        MountTransport::Program(program) => {
            let MountProgram { command, args, env, folder, read, write, network, memory, .. } = program.as_ref();
            let env: Map<String, Value> = env
                .iter()
                .map(|(name, value)| match value {
                    // SECURITY: people write tokens here, against our advice, so the value is not shown.
                    EnvValue::Plain(_) => (name.clone(), json!("…")),
                    EnvValue::Vault(secret) => (name.clone(), json!(format!("vault:{secret}"))),
                })
                .collect();
            json!({
                "command": command, "args": args, "env": env, "folder": folder.shown(),
                "files": {"read": read.shown(), "write": write.shown()},
                "network": network.iter().map(ToString::to_string).collect::<Vec<_>>(), "memory": memory.shown(),
            })
        }
        MountTransport::Address(address) => {
            let mut all = json!({"url": address.url, "http": address.http});
            if let (Value::Object(map), Some((secret, placement))) = (&mut all, &address.credential) {
                map.insert("secret".into(), json!(secret));
                map.insert("credential".into(), json!(placement.text()));
            }
            if let (Value::Object(map), Some(shown)) = (&mut all, sign_in::shown(&address.sign_in)) {
                map.insert("oauth".into(), shown);
            }
            all
        }
    };
    if let Value::Object(map) = &mut all {
        map.insert("timeout".into(), mount.timeout.shown());
        map.insert("start_timeout".into(), mount.start_timeout.shown());
        map.insert("recheck".into(), mount.recheck.shown());
        map.insert("at_once".into(), json!(mount.at_once));
        map.insert("tools".into(), json!(mount.tools));
        map.insert("max_answer".into(), mount.max_answer.shown());
        map.insert("delay".into(), mount.delay.shown());
        map.insert("trust_hints".into(), json!(mount.trust_hints));
        map.insert("keep_reader".into(), json!(mount.keep_reader));
        map.insert("facts".into(), mount_facts::shown(&mount.facts));
    }
    all
}

/// The keys that were written for one server.
struct RawMountConfig {
    program: MountProgram,
    address: MountAddress,
    /// The first key that only a program, or only an address, can have.
    of_program: Option<String>,
    of_address: Option<String>,
    secret: Option<SecretName>,
    placement: Option<CredentialPlacement>,
}

fn mount(name: &str, node: &YamlNode, base: &Path) -> Result<MountConfig, SettingError> {
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new(format!("`{name}` must be a map with `command` or `url`")).at(node.place));
    };
    let mut made = MountConfig {
        name: name.to_owned(),
        way: MountTransport::Program(Box::new(nothing())),
        timeout: Millis::from_secs(30),
        start_timeout: Millis::from_secs(20),
        recheck: Millis::from_mins(5),
        at_once: 8,
        tools: 500,
        max_answer: ByteSize::from_kib(1024),
        delay: Millis::from_secs(30),
        trust_hints: true,
        keep_reader: false,
        facts: BTreeMap::new(),
    };
    let empty = MountAddress {
        url: String::new(),
        http: false,
        credential: None,
        sign_in: MountSignIn::default(),
        allow_addresses: Vec::new(),
        per_minute: None,
    };
    let mut written = RawMountConfig {
        program: nothing(),
        address: empty,
        of_program: None,
        of_address: None,
        secret: None,
        placement: None,
    };
    for (key, value) in entries {
        let read = one(&mut made, &mut written, key.text.as_str(), value, base);
        let read = match read {
            Some(read) => read,
            None => return Err(SettingError::unknown_key(key, &format!("a mount has {}", KEYS.join(", ")), &KEYS)),
        };
        read.map_err(|bad| {
            SettingError { message: format!("{name}.{}: {}", key.text, bad.message), ..bad }.at(value.place)
        })?;
    }
    settle(name, written).map(|way| MountConfig { way, ..made }).map_err(|bad| bad.at(node.place))
}

fn nothing() -> MountProgram {
    MountProgram {
        command: String::new(),
        args: Vec::new(),
        env: Vec::new(),
        folder: None,
        read: Vec::new(),
        write: Vec::new(),
        network: Vec::new(),
        allow_addresses: Vec::new(),
        memory: ByteSize::from_kib(1024 * 1024),
    }
}

fn settle(name: &str, written: RawMountConfig) -> Result<MountTransport, SettingError> {
    let RawMountConfig { mut program, mut address, of_program, of_address, secret, placement } = written;
    match (program.command.is_empty(), address.url.is_empty()) {
        (true, true) => Err(SettingError::new(format!("`{name}` must have a `command` or a `url`"))),
        (false, false) => {
            Err(SettingError::new(format!("`{name}` has a `command` and a `url`; it can have only one of them")))
        }
        (false, true) => match of_address {
            Some(key) => Err(SettingError::new(format!("`{name}.{key}` can be set for a `url`, not for a `command`"))),
            None => {
                program.allow_addresses = address.allow_addresses;
                Ok(MountTransport::Program(Box::new(program)))
            }
        },
        (true, false) => {
            if let Some(key) = of_program {
                return Err(SettingError::new(format!("`{name}.{key}` can be set for a `command`, not for a `url`")));
            }
            if address.url.starts_with("http://") && !address.http {
                return Err(SettingError::new(format!("`{name}.url` is unencrypted http"))
                    .hint("use https, or say `http: true`"));
            }
            address.credential = match (secret, placement) {
                (Some(secret), placement) => Some((secret, placement.unwrap_or(CredentialPlacement::Bearer))),
                (None, Some(_)) => return Err(SettingError::new("has a `credential` without a `secret`")),
                (None, None) => None,
            };
            if address.credential.is_some() && address.sign_in != MountSignIn::default() {
                return Err(SettingError::new(format!(
                    "`{name}` has a `secret` and `oauth`; it can have only one of them"
                )));
            }
            Ok(MountTransport::Address(Box::new(address)))
        }
    }
}

/// Reads one key; `None` if the key does not exist.
fn one(
    made: &mut MountConfig,
    written: &mut RawMountConfig,
    key: &str,
    value: &YamlNode,
    base: &Path,
) -> Option<Result<(), SettingError>> {
    let RawMountConfig { program, address, .. } = written;
    Some(match key {
        "command" => word(value).and_then(|text| command(&text, base)).map(|read| program.command = read),
        "args" => words(value).map(|read| program.args = read),
        "env" => env(value).map(|read| program.env = read),
        "folder" => PathBuf::from_node(value, base).map(|read| program.folder = Some(read)),
        "files" => files(value, base).map(|(read, write)| (program.read, program.write) = (read, write)),
        "network" => each(value, HostPattern::parse).map(|read| program.network = read),
        "memory" => within(value, base, ByteSize::from_kib(32 * 1024)..=ByteSize::from_kib(64 << 20))
            .map(|read| program.memory = read),
        "url" => word(value).and_then(|text| url(&text)).map(|read| address.url = read),
        "http" => bool::from_node(value, base).map(|read| address.http = read),
        "secret" => word(value).and_then(|text| secret(&text)).map(|read| written.secret = Some(read)),
        "credential" => word(value)
            .and_then(|text| CredentialPlacement::parse(&text).map_err(SettingError::new))
            .map(|read| written.placement = Some(read)),
        "oauth" => sign_in::read(value).map(|read| address.sign_in = read),
        "allow_addresses" => each(value, IpNetwork::opened).map(|read| address.allow_addresses = read),
        "per_minute" => within(value, base, 1..=1_000_000).map(|read| address.per_minute = Some(read)),
        // A write must end before its claim expires.
        "timeout" => {
            within(value, base, Millis::from_millis(100)..=Millis::from_secs(45)).map(|read| made.timeout = read)
        }
        "start_timeout" => {
            within(value, base, Millis::from_millis(100)..=Millis::from_mins(5)).map(|read| made.start_timeout = read)
        }
        "recheck" => within(value, base, Millis::from_secs(1)..=Millis::from_hours(24)).map(|read| made.recheck = read),
        "at_once" => within(value, base, 1..=64).map(|read| made.at_once = read),
        "tools" => within(value, base, 1..=2000).map(|read| made.tools = read),
        "max_answer" => within(value, base, ByteSize::from_kib(1)..=ByteSize::from_kib(8 * 1024 - 1))
            .map(|read| made.max_answer = read),
        "delay" => within(value, base, Millis::ZERO..=Millis::from_hours(24)).map(|read| made.delay = read),
        "trust_hints" => bool::from_node(value, base).map(|read| made.trust_hints = read),
        "keep_reader" => bool::from_node(value, base).map(|read| made.keep_reader = read),
        "facts" => mount_facts::read(value, base).map(|read| made.facts = read),
        _ => return None,
    })
    .inspect(|_| {
        let place = match key {
            "args" | "env" | "folder" | "files" | "network" | "memory" => &mut written.of_program,
            "http" | "secret" | "credential" | "oauth" | "per_minute" => &mut written.of_address,
            _ => return,
        };
        place.get_or_insert_with(|| key.to_owned());
    })
}

fn within<T>(node: &YamlNode, base: &Path, range: std::ops::RangeInclusive<T>) -> Result<T, SettingError>
where
    T: BoundedSetting,
{
    let read = T::from_node(node, base)?;
    read.within(&range)?;
    Ok(read)
}

fn word(node: &YamlNode) -> Result<String, SettingError> {
    match &node.kind {
        YamlValue::Text(text) if !text.is_empty() && !text.contains('\0') => Ok(text.clone()),
        _ => Err(SettingError::new(format!("must be a text, not {}", node.noun()))),
    }
}

/// A list of texts; numbers count as text.
fn words(node: &YamlNode) -> Result<Vec<String>, SettingError> {
    let YamlValue::List(items) = &node.kind else { return Err(SettingError::new("must be a list of texts")) };
    items.iter().map(|item| scalar(item).map_err(|bad| bad.at(item.place))).collect()
}

fn scalar(node: &YamlNode) -> Result<String, SettingError> {
    match &node.kind {
        YamlValue::Text(text) if !text.contains('\0') => Ok(text.clone()),
        YamlValue::Integer(number) => Ok(number.to_string()),
        YamlValue::Bool(truth) => Ok(truth.to_string()),
        _ => Err(SettingError::new(format!("must be a text, not {}", node.noun()))),
    }
}

fn each<T>(node: &YamlNode, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, SettingError> {
    let YamlValue::List(items) = &node.kind else { return Err(SettingError::new("must be a list of texts")) };
    let one = |item: &YamlNode| {
        let text = word(item).map_err(|bad| bad.at(item.place))?;
        read(&text).map_err(|why| SettingError::new(why).at(item.place))
    };
    items.iter().map(one).collect()
}

/// A path with a slash is relative to the folder of the file; a bare name is searched for later.
fn command(text: &str, base: &Path) -> Result<String, SettingError> {
    if !text.contains('/') {
        return Ok(text.to_owned());
    }
    PathBuf::from_text(text, base).map(|path| path.display().to_string())
}

fn url(text: &str) -> Result<String, SettingError> {
    EgressUrl::parse(text).map(|_| text.to_owned()).map_err(SettingError::new)
}

fn secret(text: &str) -> Result<SecretName, SettingError> {
    SecretName::new(text).map_err(|why| SettingError::new("must be a secret's name").hint(why.to_string()))
}

fn files(node: &YamlNode, base: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), SettingError> {
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new("must be a map with `read` and `write`"));
    };
    let (mut read, mut write) = (Vec::new(), Vec::new());
    for (key, value) in entries {
        let into = match key.text.as_str() {
            "read" => &mut read,
            "write" => &mut write,
            _ => return Err(SettingError::unknown_key(key, "files has read and write", &["read", "write"])),
        };
        *into = Vec::<PathBuf>::from_node(value, base).map_err(|bad| bad.at(value.place))?;
    }
    Ok((read, write))
}

fn env(node: &YamlNode) -> Result<Vec<(String, EnvValue)>, SettingError> {
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new("must be a map of names and values"));
    };
    let mut read = Vec::new();
    for (key, value) in entries {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if key.text.is_empty() || !key.text.chars().all(fine) || key.text.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(
                SettingError::new(format!("`{}` is not a valid variable name", escape(&key.text))).at(key.place)
            );
        }
        // SECURITY: these variables make the program run other code than the one that was configured.
        if key.text.starts_with("LD_") {
            return Err(SettingError::new(format!("`{}` cannot be set for a server", escape(&key.text))).at(key.place));
        }
        let text = scalar(value).map_err(|bad| bad.at(value.place))?;
        let value = match text.strip_prefix("vault:") {
            Some(name) => EnvValue::Vault(secret(name).map_err(|bad| bad.at(value.place))?),
            None => EnvValue::Plain(text),
        };
        read.push((key.text.clone(), value));
    }
    Ok(read)
}
