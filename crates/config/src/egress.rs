//! Egress connections: which hosts may be reached, how, how often and with which credential.

use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Map, Value, json};
use sluice_core::Millis;
use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};

use super::filesystem::AgentSelection;
use super::section::section;
use super::setting::{BoundedSetting as _, Setting, SettingError};
use super::size::ByteSize;
use crate::network::{CredentialPlacement, EgressConnection, HostPattern, IpNetwork, METHODS, PathPattern};

section! {
    /// Connections of the egress proxy. Without one, nothing leaves.
    Egress at "egress" {
        /// Connections by name, each with `hosts` (`api.example.com`, `*.example.com`) and, if it differs from the
        /// default: `ports` (443), `methods` (GET, HEAD), `paths` (`/v1/*`; all), `http` (false), `allow_addresses`
        /// (private addresses or blocks that it may reach; none), `agents` (agents that may use it with `network.*`;
        /// none), `secret` with `credential` (`bearer`, `basic`, `header X-Api-Key`, `query key`), `per_minute` (10),
        /// `per_hour` (100), `burn` (200; each a number or `off`), `max_answer` (8MiB), `timeout` (30s), `idle_timeout`
        /// (10s), `redirects` (3).
        connections: ConfiguredConnections = ConfiguredConnections::default(),
        /// File with certificates that are trusted in addition to those of the machine.
        ca_file: Option<PathBuf> = None,
    }
}

/// Connections by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredConnections(pub Vec<EgressConnection>);

const KEYS: [&str; 16] = [
    "hosts",
    "ports",
    "methods",
    "paths",
    "http",
    "allow_addresses",
    "agents",
    "secret",
    "credential",
    "per_minute",
    "per_hour",
    "burn",
    "max_answer",
    "timeout",
    "idle_timeout",
    "redirects",
];

impl Setting for ConfiguredConnections {
    const WHAT: &'static str = "a map of connections";

    fn from_text(_: &str, _: &Path) -> Result<Self, SettingError> {
        Err(SettingError::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut connections = Vec::new();
        for (key, value) in entries {
            let name = ConnectionName::new(key.text.as_str()).map_err(|why| {
                SettingError::new(format!("cannot use `{}`", escape(&key.text))).hint(why.to_string()).at(key.place)
            })?;
            connections.push(connection(name, value, base)?);
        }
        Ok(Self(connections))
    }

    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|one| (one.name.to_string(), shown(one))).collect::<Map<_, _>>())
    }

    fn shape() -> Value {
        let texts = json!({"type": "array", "items": {"type": "string"}});
        let number = json!({"anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["off"]}]});
        json!({"type": "object", "additionalProperties": {
            "type": "object", "additionalProperties": false, "required": ["hosts"], "properties": {
                "hosts": texts, "ports": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
                "methods": {"type": "array", "items": {"enum": METHODS.map(|method| method.to_string())}},
                "paths": texts, "http": bool::shape(), "allow_addresses": texts, "agents": AgentSelection::shape(),
                "secret": {"type": "string"}, "credential": {"type": "string"}, "per_minute": number,
                "per_hour": number, "burn": number, "max_answer": ByteSize::shape(), "timeout": Millis::shape(),
                "idle_timeout": Millis::shape(), "redirects": {"type": "integer", "minimum": 0, "maximum": 10}}}})
    }
}

/// A connection as `sluice config show` prints it.
#[must_use]
pub fn shown(connection: &EgressConnection) -> Value {
    let texts = |list: &[String]| Value::from(list.to_vec());
    let number = |limit: Option<u32>| limit.map_or_else(|| json!("off"), |limit| json!(limit));
    let EgressConnection { hosts, ports, methods, paths, allow_addresses, credential, limits, .. } = connection;
    let words = |list: Vec<String>| texts(&list);
    let mut all = json!({
        "hosts": words(hosts.iter().map(ToString::to_string).collect()),
        "ports": ports,
        "methods": words(methods.iter().map(ToString::to_string).collect()),
        "paths": words(paths.iter().map(ToString::to_string).collect()),
        "http": connection.plain_http,
        "allow_addresses": words(allow_addresses.iter().map(ToString::to_string).collect()),
        "per_minute": number(limits.per_minute),
        "per_hour": number(limits.per_hour),
        "burn": number(limits.burn),
        "max_answer": ByteSize::from_bytes(connection.max_answer).shown(),
        "timeout": connection.timeout.shown(),
        "idle_timeout": connection.idle_timeout.shown(),
        "redirects": connection.redirects,
    });
    if let Value::Object(map) = &mut all {
        if let Some(agents) = &connection.agents {
            map.insert("agents".into(), agents.shown());
        }
        if let Some((secret, placement)) = credential {
            map.insert("secret".into(), json!(secret));
            map.insert("credential".into(), json!(placement.text()));
        }
    }
    all
}

fn connection(name: ConnectionName, node: &YamlNode, base: &Path) -> Result<EgressConnection, SettingError> {
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new("must be a map with `hosts`").at(node.place));
    };
    let mut made = EgressConnection::new(name, Vec::new());
    let (mut secret, mut placement) = (None, None);
    for (key, value) in entries {
        let read = match key.text.as_str() {
            "hosts" => each(value, base, HostPattern::parse).map(|read| made.hosts = read),
            "ports" => ports(value, base).map(|read| made.ports = read),
            "methods" => each(value, base, method).map(|read| made.methods = read),
            "paths" => each(value, base, PathPattern::parse).map(|read| made.paths = read),
            "http" => bool::from_node(value, base).map(|read| made.plain_http = read),
            "allow_addresses" => each(value, base, IpNetwork::opened).map(|read| made.allow_addresses = read),
            "agents" => AgentSelection::from_node(value, base).map(|read| made.agents = Some(read)),
            "secret" => word(value, base).and_then(|text| {
                SecretName::new(text)
                    .map_err(|why| SettingError::new("must be a secret's name").hint(why.to_string()))
                    .map(|read| secret = Some(read))
            }),
            "credential" => word(value, base).and_then(|text| {
                CredentialPlacement::parse(&text).map_err(SettingError::new).map(|read| placement = Some(read))
            }),
            "per_minute" => number(value, base).map(|read| made.limits.per_minute = read),
            "per_hour" => number(value, base).map(|read| made.limits.per_hour = read),
            "burn" => number(value, base).map(|read| made.limits.burn = read),
            "max_answer" => size(value, base).map(|read| made.max_answer = read),
            "timeout" => span(value, base).map(|read| made.timeout = read),
            "idle_timeout" => span(value, base).map(|read| made.idle_timeout = read),
            "redirects" => u32::from_node(value, base).and_then(|n| n.within(&(0..=10)).map(|()| made.redirects = n)),
            _ => return Err(SettingError::unknown_key(key, &format!("a connection has {}", KEYS.join(", ")), &KEYS)),
        };
        read.map_err(|bad| bad.inside(key, value))?;
    }
    if made.hosts.is_empty() {
        return Err(SettingError::new("must name at least one host in `hosts`").at(node.place));
    }
    made.credential = match (secret, placement) {
        (Some(secret), placement) => Some((secret, placement.unwrap_or(CredentialPlacement::Bearer))),
        (None, Some(_)) => return Err(SettingError::new("has a `credential` without a `secret`").at(node.place)),
        (None, None) => None,
    };
    Ok(made)
}

fn each<T>(node: &YamlNode, base: &Path, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, SettingError> {
    let YamlValue::List(items) = &node.kind else { return Err(SettingError::new("must be a list of texts")) };
    let one = |item: &YamlNode| {
        let text = word(item, base).map_err(|bad| bad.at(item.place))?;
        read(&text).map_err(|why| SettingError::new(why).at(item.place))
    };
    items.iter().map(one).collect()
}

fn word(node: &YamlNode, _: &Path) -> Result<String, SettingError> {
    match &node.kind {
        YamlValue::Text(text) => Ok(text.clone()),
        _ => Err(SettingError::new(format!("must be a text, not {}", node.noun()))),
    }
}

fn method(text: &str) -> Result<Method, String> {
    let known = METHODS.into_iter().find(|method| method.as_str() == text);
    known.ok_or_else(|| {
        format!("`{}` is not one of {}", escape(text), METHODS.map(|method| method.to_string()).join(", "))
    })
}

fn ports(node: &YamlNode, base: &Path) -> Result<Vec<u16>, SettingError> {
    let numbers = Vec::<u32>::from_node(node, base)?;
    let port = |number: u32| u16::try_from(number).ok().filter(|port| *port > 0);
    numbers
        .into_iter()
        .map(|number| port(number).ok_or_else(|| SettingError::new("a port lies between 1 and 65535")))
        .collect()
}

fn number(node: &YamlNode, base: &Path) -> Result<Option<u32>, SettingError> {
    match &node.kind {
        YamlValue::Text(text) if text == "off" => Ok(None),
        _ => u32::from_node(node, base).map(Some),
    }
}

fn size(node: &YamlNode, base: &Path) -> Result<u64, SettingError> {
    let read = ByteSize::from_node(node, base)?;
    read.within(&(ByteSize::from_kib(1)..=ByteSize::from_kib(256 * 1024)))?;
    Ok(read.as_bytes())
}

fn span(node: &YamlNode, base: &Path) -> Result<Millis, SettingError> {
    let read = Millis::from_node(node, base)?;
    read.within(&(Millis::from_millis(10)..=Millis::from_mins(5)))?;
    Ok(read)
}
