//! Servers of others that are put behind the gate: how each is reached and how far it reaches itself.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_core::Span;
use sluice_core::capability::Catalogue;
use sluice_core::ids::SecretName;
use sluice_core::policy::reading::{Kind, Node, closest, escape};

use super::setting::{Bad, Bounded, Setting};
use super::size::Size;
use crate::egress::ssrf::Net;
use crate::egress::{HostPattern, Placement, Target};

/// Servers by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mounts(pub Vec<Mount>);

/// One server of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its name: the first part of its capabilities.
    pub name: String,
    /// How it is reached.
    pub way: Way,
    /// How long a call may take.
    pub timeout: Span,
    /// How long it may take to answer for the first time.
    pub start_timeout: Span,
    /// How often its tools are looked at again.
    pub recheck: Span,
    /// Calls at once.
    pub at_once: u32,
    /// Most tools.
    pub tools: u32,
    /// Largest message it may send, and so the largest answer.
    pub max_answer: Size,
    /// How long its writes are held.
    pub delay: Span,
    /// Whether its word counts that a tool only reads.
    pub trust_hints: bool,
    /// Whether one reader may read all its answers to one conversation.
    pub keep_reader: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// A program that is started here.
    Program(Box<Program>),
    /// An address.
    Address(Box<Address>),
}

/// A program and what it may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// A path, or a name that is looked for in the usual folders.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<(String, EnvValue)>,
    /// The folder it starts in; one of its own unless said.
    pub folder: Option<PathBuf>,
    /// What it may read and execute.
    pub read: Vec<PathBuf>,
    /// What it may read and change.
    pub write: Vec<PathBuf>,
    /// Hosts it may reach.
    pub network: Vec<HostPattern>,
    /// Private addresses those hosts may have.
    pub allow_addresses: Vec<Net>,
    /// Memory.
    pub memory: Size,
}

/// A value of the environment.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// As written.
    Plain(String),
    /// From the vault, when the program is started.
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

/// An address and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where.
    pub url: String,
    /// Plain http may be spoken.
    pub http: bool,
    /// The credential, added on the way out.
    pub credential: Option<(SecretName, Placement)>,
    /// Private addresses it may have.
    pub allow_addresses: Vec<Net>,
    /// Requests a minute, if limited.
    pub per_minute: Option<u32>,
}

const KEYS: [&str; 22] = [
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
];
/// Names that mean something else in capabilities.
const OURS: [&str; 6] = ["check", "custom", "mount", "proxy", "sluice", "inbox"];
/// A part of the built-in catalogue that nothing here carries out: servers for it come as mounts.
const LEFT_TO_MOUNTS: &str = "git";

impl Setting for Mounts {
    const WHAT: &'static str = "a map of servers";

    fn from_text(_: &str, _: &Path) -> Result<Self, Bad> {
        Err(Bad::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let taken = taken();
        let mut mounts: Vec<Mount> = Vec::new();
        for (key, value) in entries {
            let name = key.text.as_str();
            let bad = |hint: &str| Bad::new(format!("cannot use the name `{}`", escape(name))).hint(hint).at(key.place);
            if !is_name(name) {
                return Err(bad("a name has 1 to 32 of a-z, 0-9, `_` and `-`, and starts with a letter"));
            }
            if taken.contains(name) {
                return Err(bad("the gateway has capabilities of this name itself; choose another"));
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
                "network": texts, "memory": Size::shape(), "url": {"type": "string"}, "http": bool::shape(),
                "secret": {"type": "string"}, "credential": {"type": "string"}, "allow_addresses": texts,
                "per_minute": {"type": "integer", "minimum": 1}, "timeout": Span::shape(), "start_timeout": Span::shape(),
                "recheck": Span::shape(), "at_once": {"type": "integer", "minimum": 1, "maximum": 64},
                "tools": {"type": "integer", "minimum": 1, "maximum": 2000}, "max_answer": Size::shape(),
                "delay": Span::shape(), "trust_hints": bool::shape(), "keep_reader": bool::shape()}}})
    }
}

/// Names of the gateway's own services.
pub(super) fn taken() -> BTreeSet<String> {
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

/// What a name looks like at a glance: two names with the same are too easily taken for each other.
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

fn shown(mount: &Mount) -> Value {
    let mut all = match &mount.way {
        Way::Program(program) => {
            let Program { command, args, env, folder, read, write, network, memory, .. } = program.as_ref();
            let env: Map<String, Value> = env
                .iter()
                .map(|(name, value)| match value {
                    // SECURITY: people write tokens here, against our advice.
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
        Way::Address(address) => {
            let mut all = json!({"url": address.url, "http": address.http});
            if let (Value::Object(map), Some((secret, placement))) = (&mut all, &address.credential) {
                map.insert("secret".into(), json!(secret));
                map.insert("credential".into(), json!(placement.text()));
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
    }
    all
}

/// Everything that was written about one server.
struct Written {
    program: Program,
    address: Address,
    /// The first key that only makes sense for a program, and for an address.
    of_program: Option<String>,
    of_address: Option<String>,
    secret: Option<SecretName>,
    placement: Option<Placement>,
}

fn mount(name: &str, node: &Node, base: &Path) -> Result<Mount, Bad> {
    let Kind::Map(entries) = &node.kind else {
        return Err(Bad::new(format!("`{name}` must be a map with `command` or `url`")).at(node.place));
    };
    let mut made = Mount {
        name: name.to_owned(),
        way: Way::Program(Box::new(nothing())),
        timeout: Span::from_secs(30),
        start_timeout: Span::from_secs(20),
        recheck: Span::from_mins(5),
        at_once: 8,
        tools: 500,
        max_answer: Size::from_kib(1024),
        delay: Span::from_secs(30),
        trust_hints: true,
        keep_reader: false,
    };
    let empty =
        Address { url: String::new(), http: false, credential: None, allow_addresses: Vec::new(), per_minute: None };
    let mut written = Written {
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
            None => {
                let bad = Bad::new(format!("has no key `{}`: a mount has {}", escape(&key.text), KEYS.join(", ")));
                let close = closest(&key.text, KEYS).map(|close| format!("did you mean `{close}`?"));
                return Err(Bad { hint: close, ..bad }.at(key.place));
            }
        };
        read.map_err(|bad| Bad { message: format!("{name}.{}: {}", key.text, bad.message), ..bad }.at(value.place))?;
    }
    settle(name, written).map(|way| Mount { way, ..made }).map_err(|bad| bad.at(node.place))
}

fn nothing() -> Program {
    Program {
        command: String::new(),
        args: Vec::new(),
        env: Vec::new(),
        folder: None,
        read: Vec::new(),
        write: Vec::new(),
        network: Vec::new(),
        allow_addresses: Vec::new(),
        memory: Size::from_kib(1024 * 1024),
    }
}

fn settle(name: &str, written: Written) -> Result<Way, Bad> {
    let Written { mut program, mut address, of_program, of_address, secret, placement } = written;
    match (program.command.is_empty(), address.url.is_empty()) {
        (true, true) => Err(Bad::new(format!("`{name}` must have a `command` or a `url`"))),
        (false, false) => Err(Bad::new(format!("`{name}` has a `command` and a `url`; it can have one of them"))),
        (false, true) => match of_address {
            Some(key) => Err(Bad::new(format!("`{name}.{key}` goes with a `url`, not with a `command`"))),
            None => {
                program.allow_addresses = address.allow_addresses;
                Ok(Way::Program(Box::new(program)))
            }
        },
        (true, false) => {
            if let Some(key) = of_program {
                return Err(Bad::new(format!("`{name}.{key}` goes with a `command`, not with a `url`")));
            }
            if address.url.starts_with("http://") && !address.http {
                return Err(Bad::new(format!("`{name}.url` is plain http")).hint("use https, or say `http: true`"));
            }
            address.credential = match (secret, placement) {
                (Some(secret), placement) => Some((secret, placement.unwrap_or(Placement::Bearer))),
                (None, Some(_)) => return Err(Bad::new("`credential` says how, and no `secret` says which")),
                (None, None) => None,
            };
            Ok(Way::Address(Box::new(address)))
        }
    }
}

/// Reads one key; nothing if there is no such key.
fn one(made: &mut Mount, written: &mut Written, key: &str, value: &Node, base: &Path) -> Option<Result<(), Bad>> {
    let Written { program, address, .. } = written;
    Some(match key {
        "command" => word(value).and_then(|text| command(&text, base)).map(|read| program.command = read),
        "args" => words(value).map(|read| program.args = read),
        "env" => env(value).map(|read| program.env = read),
        "folder" => PathBuf::from_node(value, base).map(|read| program.folder = Some(read)),
        "files" => files(value, base).map(|(read, write)| (program.read, program.write) = (read, write)),
        "network" => each(value, HostPattern::parse).map(|read| program.network = read),
        "memory" => {
            within(value, base, Size::from_kib(32 * 1024)..=Size::from_kib(64 << 20)).map(|read| program.memory = read)
        }
        "url" => word(value).and_then(|text| url(&text)).map(|read| address.url = read),
        "http" => bool::from_node(value, base).map(|read| address.http = read),
        "secret" => word(value).and_then(|text| secret(&text)).map(|read| written.secret = Some(read)),
        "credential" => word(value)
            .and_then(|text| Placement::parse(&text).map_err(Bad::new))
            .map(|read| written.placement = Some(read)),
        "allow_addresses" => each(value, Net::opened).map(|read| address.allow_addresses = read),
        "per_minute" => within(value, base, 1..=1_000_000).map(|read| address.per_minute = Some(read)),
        // Writes have to end before the claim on them does.
        "timeout" => within(value, base, Span::from_millis(100)..=Span::from_secs(45)).map(|read| made.timeout = read),
        "start_timeout" => {
            within(value, base, Span::from_millis(100)..=Span::from_mins(5)).map(|read| made.start_timeout = read)
        }
        "recheck" => within(value, base, Span::from_secs(1)..=Span::from_hours(24)).map(|read| made.recheck = read),
        "at_once" => within(value, base, 1..=64).map(|read| made.at_once = read),
        "tools" => within(value, base, 1..=2000).map(|read| made.tools = read),
        "max_answer" => {
            within(value, base, Size::from_kib(1)..=Size::from_kib(8 * 1024 - 1)).map(|read| made.max_answer = read)
        }
        "delay" => within(value, base, Span::ZERO..=Span::from_hours(24)).map(|read| made.delay = read),
        "trust_hints" => bool::from_node(value, base).map(|read| made.trust_hints = read),
        "keep_reader" => bool::from_node(value, base).map(|read| made.keep_reader = read),
        _ => return None,
    })
    .inspect(|_| {
        let place = match key {
            "args" | "env" | "folder" | "files" | "network" | "memory" => &mut written.of_program,
            "http" | "secret" | "credential" | "per_minute" => &mut written.of_address,
            _ => return,
        };
        place.get_or_insert_with(|| key.to_owned());
    })
}

fn within<T>(node: &Node, base: &Path, range: std::ops::RangeInclusive<T>) -> Result<T, Bad>
where
    T: Bounded,
{
    let read = T::from_node(node, base)?;
    read.within(&range)?;
    Ok(read)
}

fn word(node: &Node) -> Result<String, Bad> {
    match &node.kind {
        Kind::Text(text) if !text.is_empty() && !text.contains('\0') => Ok(text.clone()),
        _ => Err(Bad::new(format!("must be a text, not {}", node.noun()))),
    }
}

/// Texts; numbers count as what they look like.
fn words(node: &Node) -> Result<Vec<String>, Bad> {
    let Kind::List(items) = &node.kind else { return Err(Bad::new("must be a list of texts")) };
    items.iter().map(|item| scalar(item).map_err(|bad| bad.at(item.place))).collect()
}

fn scalar(node: &Node) -> Result<String, Bad> {
    match &node.kind {
        Kind::Text(text) if !text.contains('\0') => Ok(text.clone()),
        Kind::Integer(number) => Ok(number.to_string()),
        Kind::Bool(truth) => Ok(truth.to_string()),
        _ => Err(Bad::new(format!("must be a text, not {}", node.noun()))),
    }
}

fn each<T>(node: &Node, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Bad> {
    let Kind::List(items) = &node.kind else { return Err(Bad::new("must be a list of texts")) };
    let one = |item: &Node| {
        let text = word(item).map_err(|bad| bad.at(item.place))?;
        read(&text).map_err(|why| Bad::new(why).at(item.place))
    };
    items.iter().map(one).collect()
}

/// A path with a slash begins at the folder of the file; a bare name is looked for later.
fn command(text: &str, base: &Path) -> Result<String, Bad> {
    if !text.contains('/') {
        return Ok(text.to_owned());
    }
    PathBuf::from_text(text, base).map(|path| path.display().to_string())
}

fn url(text: &str) -> Result<String, Bad> {
    Target::parse(text).map(|_| text.to_owned()).map_err(Bad::new)
}

fn secret(text: &str) -> Result<SecretName, Bad> {
    SecretName::new(text).map_err(|why| Bad::new("must be a secret's name").hint(why.to_string()))
}

fn files(node: &Node, base: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Bad> {
    let Kind::Map(entries) = &node.kind else { return Err(Bad::new("must be a map with `read` and `write`")) };
    let (mut read, mut write) = (Vec::new(), Vec::new());
    for (key, value) in entries {
        let into = match key.text.as_str() {
            "read" => &mut read,
            "write" => &mut write,
            other => {
                let bad = Bad::new(format!("has no key `{}`: files has read and write", escape(other)));
                let close = closest(other, ["read", "write"]).map(|close| format!("did you mean `{close}`?"));
                return Err(Bad { hint: close, ..bad }.at(key.place));
            }
        };
        *into = Vec::<PathBuf>::from_node(value, base).map_err(|bad| bad.at(value.place))?;
    }
    Ok((read, write))
}

fn env(node: &Node) -> Result<Vec<(String, EnvValue)>, Bad> {
    let Kind::Map(entries) = &node.kind else { return Err(Bad::new("must be a map of names and values")) };
    let mut read = Vec::new();
    for (key, value) in entries {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if key.text.is_empty() || !key.text.chars().all(fine) || key.text.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Bad::new(format!("`{}` is no name of a variable", escape(&key.text))).at(key.place));
        }
        // SECURITY: these make the program run other code than the one that was named.
        if key.text.starts_with("LD_") {
            return Err(Bad::new(format!("`{}` cannot be set for a server", escape(&key.text))).at(key.place));
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
