//! Services that people can connect: their adapters, their addresses, and the client id of the gateway there.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_core::ServiceName;
use sluice_core::policy::reading::{YamlNode, YamlValue, closest, escape};

use super::mounts::{is_name, reserved_names, skeleton};
use super::setting::{Setting, SettingError};
use crate::network::EgressUrl;

/// Services by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectableServices(pub Vec<ConnectableService>);

/// One service that can be connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectableService {
    /// The name that people use.
    pub name: ServiceName,
    /// The adapter of the service.
    pub adapter: String,
    /// The address of the service's API.
    pub api: Option<String>,
    /// The address at which a person grants access.
    pub authorize: Option<String>,
    /// The address that exchanges a code for tokens.
    pub token: Option<String>,
    /// The address that revokes tokens.
    pub revoke: Option<String>,
    /// The client id of the gateway at the provider.
    pub client_id: Option<String>,
    /// The scopes that the gateway asks for.
    pub scopes: Vec<String>,
    /// The adapter's program, if it is a third-party adapter.
    pub program: Option<AdapterProgram>,
}

/// A third-party adapter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdapterProgram {
    /// The absolute path of the program.
    pub path: PathBuf,
    /// What else the program may read.
    pub read: Vec<PathBuf>,
}

/// Adapters that are part of the gateway.
const OWN: [&str; 1] = ["gmail"];

const KEYS: [&str; 9] = ["adapter", "api", "authorize", "token", "revoke", "client_id", "scopes", "program", "read"];

impl ConnectableService {
    /// A service with the adapter's own addresses and scopes.
    #[must_use]
    pub fn new(name: ServiceName) -> Self {
        let adapter = name.to_string();
        let (api, authorize, token, revoke, client_id) = (None, None, None, None, None);
        Self { name, adapter, api, authorize, token, revoke, client_id, scopes: Vec::new(), program: None }
    }
}

impl ConnectableServices {
    /// The service of this name.
    #[must_use]
    pub fn get(&self, name: &ServiceName) -> Option<&ConnectableService> {
        self.0.iter().find(|account| account.name == *name)
    }

    /// The program of an adapter, if it is a third-party adapter.
    #[must_use]
    pub fn program(&self, adapter: &str) -> Option<&AdapterProgram> {
        let ours = self.0.iter().filter(|account| account.adapter == adapter);
        ours.filter_map(|account| account.program.as_ref()).next()
    }
}

impl Setting for ConnectableServices {
    const WHAT: &'static str = "a map of services";

    fn from_text(_: &str, _: &Path) -> Result<Self, SettingError> {
        Err(SettingError::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &YamlNode, _: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut accounts: Vec<ConnectableService> = Vec::new();
        for (key, value) in entries {
            let name = ServiceName::new(key.text.as_str()).map_err(|why| {
                SettingError::new(format!("cannot use `{}`", escape(&key.text))).hint(why.to_string()).at(key.place)
            })?;
            let made = account(name, value)?;
            let twin = accounts.iter().find(|one| one.adapter == made.adapter && one.program != made.program);
            if let Some(twin) = twin {
                let bad =
                    SettingError::new(format!("the adapter `{}` is another program in `{}`", made.adapter, twin.name));
                return Err(bad.at(key.place));
            }
            accounts.push(made);
        }
        Ok(Self(accounts))
    }

    fn shown(&self) -> Value {
        let one = |account: &ConnectableService| {
            let ConnectableService { name, adapter, api, authorize, token, revoke, client_id, scopes, program } =
                account;
            let mut all = Map::new();
            all.insert("adapter".into(), json!(adapter));
            let texts = [
                ("api", api),
                ("authorize", authorize),
                ("token", token),
                ("revoke", revoke),
                ("client_id", client_id),
            ];
            for (key, value) in texts {
                all.extend(value.as_ref().map(|value| (key.to_owned(), json!(value))));
            }
            if !scopes.is_empty() {
                all.insert("scopes".into(), json!(scopes));
            }
            if let Some(AdapterProgram { path, read }) = program {
                all.insert("program".into(), json!(path));
                all.insert("read".into(), json!(read));
            }
            (name.to_string(), Value::Object(all))
        };
        Value::Object(self.0.iter().map(one).collect())
    }

    fn shape() -> Value {
        let text = json!({"type": "string"});
        json!({"type": "object", "additionalProperties": {
            "type": ["object", "null"], "additionalProperties": false, "properties": {
                "adapter": text, "api": text, "authorize": text, "token": text, "revoke": text, "client_id": text,
                "scopes": {"type": "array", "items": {"type": "string"}}, "program": text,
                "read": {"type": "array", "items": {"type": "string"}}}}})
    }
}

fn account(name: ServiceName, node: &YamlNode) -> Result<ConnectableService, SettingError> {
    let mut made = ConnectableService::new(name);
    let entries = match &node.kind {
        YamlValue::Map(entries) => entries,
        YamlValue::Null if OWN.contains(&made.adapter.as_str()) => return Ok(made),
        YamlValue::Null => return Err(no_adapter(&made.adapter, node)),
        _ => return Err(SettingError::new("must be a map").at(node.place)),
    };
    let mut read = None;
    for (key, value) in entries {
        let read = match key.text.as_str() {
            "adapter" => plain(value).map(|text| made.adapter = text),
            "client_id" => plain(value).map(|text| made.client_id = Some(text)),
            "api" => address(value).map(|text| made.api = Some(text)),
            "authorize" => address(value).map(|text| made.authorize = Some(text)),
            "token" => address(value).map(|text| made.token = Some(text)),
            "revoke" => address(value).map(|text| made.revoke = Some(text)),
            "scopes" => scopes(value).map(|list| made.scopes = list),
            "program" => whole_path(value).map(|path| made.program = Some(AdapterProgram { path, read: Vec::new() })),
            "read" => paths(value).map(|list| read = Some((list, key.place))),
            "client_secret" => {
                let bad =
                    SettingError::new("has no key `client_secret`: a secret does not belong in a configuration file");
                return Err(bad.hint("use: sluice connect NAME --client-secret-file FILE").at(key.place));
            }
            _ => return Err(SettingError::unknown_key(key, &format!("a service has {}", KEYS.join(", ")), &KEYS)),
        };
        read.map_err(|bad| bad.inside(key, value))?;
    }
    if made.program.is_none() && !OWN.contains(&made.adapter.as_str()) {
        return Err(no_adapter(&made.adapter, node));
    }
    match (&mut made.program, read) {
        (None, None) => return Ok(made),
        (None, Some((_, place))) => return Err(SettingError::new("has `read` without a `program`").at(place)),
        (Some(program), read) => program.read = read.map(|(list, _)| list).unwrap_or_default(),
    }
    // SECURITY: the adapter's name is the prefix of its capabilities, and the operator chooses it, not the program.
    let like = |own: &str| skeleton(own) == skeleton(&made.adapter);
    if !is_name(&made.adapter) || OWN.into_iter().any(like) || reserved_names().iter().any(|own| like(own)) {
        let bad =
            SettingError::new(format!("cannot use `{}` as the name of a program's adapter", escape(&made.adapter)));
        let hint = "a name has 1 to 32 characters of a-z, 0-9, `_` and `-`, starts with a letter, and does not \
                    resemble a service of the gateway";
        return Err(bad.hint(hint).at(node.place));
    }
    Ok(made)
}

/// The error for a service whose adapter does not exist.
fn no_adapter(adapter: &str, node: &YamlNode) -> SettingError {
    let bad =
        SettingError::new(format!("has no adapter `{}`: this entry has no effect", escape(adapter))).at(node.place);
    bad.hint(match closest(adapter, OWN) {
        Some(close) => format!("did you mean `adapter: {close}`?"),
        None => format!("the adapters are {}; configure a third-party adapter with `program`", OWN.join(", ")),
    })
}

fn whole_path(node: &YamlNode) -> Result<PathBuf, SettingError> {
    let path = PathBuf::from(plain(node)?);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(SettingError::new("must be an absolute path, starting with a slash"))
    }
}

fn paths(node: &YamlNode) -> Result<Vec<PathBuf>, SettingError> {
    let YamlValue::List(items) = &node.kind else { return Err(SettingError::new("must be a list of paths")) };
    items.iter().map(|item| whole_path(item).map_err(|bad| bad.at(item.place))).collect()
}

fn plain(node: &YamlNode) -> Result<String, SettingError> {
    match &node.kind {
        YamlValue::Text(text)
            if !text.is_empty() && text.len() <= 512 && text.bytes().all(|b| b.is_ascii_graphic()) =>
        {
            Ok(text.clone())
        }
        YamlValue::Text(_) => Err(SettingError::new("must be one word of printable characters")),
        _ => Err(SettingError::new(format!("must be a text, not {}", node.noun()))),
    }
}

/// An address that people and the gateway may be sent to. Unencrypted only to this machine.
fn address(node: &YamlNode) -> Result<String, SettingError> {
    let text = plain(node)?;
    let target = EgressUrl::parse(&text).map_err(SettingError::new)?;
    let here = target.address().is_some_and(|address| address.is_loopback());
    if target.is_tls() || here {
        Ok(text)
    } else {
        Err(SettingError::new("must begin with https, or point to 127.0.0.1"))
    }
}

fn scopes(node: &YamlNode) -> Result<Vec<String>, SettingError> {
    let YamlValue::List(items) = &node.kind else { return Err(SettingError::new("must be a list of texts")) };
    items.iter().map(|item| plain(item).map_err(|bad| bad.at(item.place))).collect()
}
