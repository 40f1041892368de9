//! Services people can connect: by which adapter, where they are, and as what we are known there.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sluice_core::ServiceName;
use sluice_core::policy::reading::{Kind, Node, closest, escape};

use super::mounts::{is_name, skeleton, taken};
use super::setting::{Bad, Setting};
use crate::egress::Target;

/// Services by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts(pub Vec<Account>);

/// One service that can be connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// What people call it.
    pub name: ServiceName,
    /// The adapter behind it.
    pub adapter: String,
    /// The service itself.
    pub api: Option<String>,
    /// Where a person says yes.
    pub authorize: Option<String>,
    /// Where a code becomes tokens.
    pub token: Option<String>,
    /// Where tokens end.
    pub revoke: Option<String>,
    /// As what we are known there.
    pub client_id: Option<String>,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// The adapter's program, if it is one of others.
    pub program: Option<AdapterProgram>,
}

/// An adapter that is a program of others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdapterProgram {
    /// Its whole path.
    pub path: PathBuf,
    /// What else it may read.
    pub read: Vec<PathBuf>,
}

/// Adapters that are part of the gateway.
const OWN: [&str; 1] = ["gmail"];

const KEYS: [&str; 9] = ["adapter", "api", "authorize", "token", "revoke", "client_id", "scopes", "program", "read"];

impl Account {
    /// With everything the adapter's own.
    #[must_use]
    pub fn new(name: ServiceName) -> Self {
        let adapter = name.to_string();
        let (api, authorize, token, revoke, client_id) = (None, None, None, None, None);
        Self { name, adapter, api, authorize, token, revoke, client_id, scopes: Vec::new(), program: None }
    }
}

impl Accounts {
    /// The service of this name.
    #[must_use]
    pub fn get(&self, name: &ServiceName) -> Option<&Account> {
        self.0.iter().find(|account| account.name == *name)
    }

    /// The program of an adapter, if it is one of others.
    #[must_use]
    pub fn program(&self, adapter: &str) -> Option<&AdapterProgram> {
        let ours = self.0.iter().filter(|account| account.adapter == adapter);
        ours.filter_map(|account| account.program.as_ref()).next()
    }
}

impl Setting for Accounts {
    const WHAT: &'static str = "a map of services";

    fn from_text(_: &str, _: &Path) -> Result<Self, Bad> {
        Err(Bad::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &Node, _: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut accounts: Vec<Account> = Vec::new();
        for (key, value) in entries {
            let name = ServiceName::new(key.text.as_str()).map_err(|why| {
                Bad::new(format!("cannot use `{}`", escape(&key.text))).hint(why.to_string()).at(key.place)
            })?;
            let made = account(name, value)?;
            let twin = accounts.iter().find(|one| one.adapter == made.adapter && one.program != made.program);
            if let Some(twin) = twin {
                let bad = Bad::new(format!("the adapter `{}` is another program in `{}`", made.adapter, twin.name));
                return Err(bad.at(key.place));
            }
            accounts.push(made);
        }
        Ok(Self(accounts))
    }

    fn shown(&self) -> Value {
        let one = |account: &Account| {
            let Account { name, adapter, api, authorize, token, revoke, client_id, scopes, program } = account;
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

fn account(name: ServiceName, node: &Node) -> Result<Account, Bad> {
    let mut made = Account::new(name);
    let entries = match &node.kind {
        Kind::Map(entries) => entries,
        Kind::Null if OWN.contains(&made.adapter.as_str()) => return Ok(made),
        Kind::Null => return Err(no_adapter(&made.adapter, node)),
        _ => return Err(Bad::new("must be a map").at(node.place)),
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
                let bad = Bad::new("has no key `client_secret`: a secret is not written into a file of settings");
                return Err(bad.hint("sluice connect NAME --client-secret-file FILE").at(key.place));
            }
            other => {
                let bad = Bad::new(format!("has no key `{}`: a service has {}", escape(other), KEYS.join(", ")));
                let close = closest(other, KEYS).map(|close| format!("did you mean `{close}`?"));
                return Err(Bad { hint: close, ..bad }.at(key.place));
            }
        };
        read.map_err(|bad| Bad { message: format!("{}: {}", key.text, bad.message), ..bad }.at(value.place))?;
    }
    if made.program.is_none() && !OWN.contains(&made.adapter.as_str()) {
        return Err(no_adapter(&made.adapter, node));
    }
    match (&mut made.program, read) {
        (None, None) => return Ok(made),
        (None, Some((_, place))) => return Err(Bad::new("has `read` without a `program` that reads it").at(place)),
        (Some(program), read) => program.read = read.map(|(list, _)| list).unwrap_or_default(),
    }
    // SECURITY: the adapter's name is what its capabilities begin with, and it is the operator's word, not the program's.
    let like = |own: &str| skeleton(own) == skeleton(&made.adapter);
    if !is_name(&made.adapter) || OWN.into_iter().any(like) || taken().iter().any(|own| like(own)) {
        let bad = Bad::new(format!("cannot use `{}` as the name of a program's adapter", escape(&made.adapter)));
        let hint = "1 to 32 of a-z, 0-9, `_` and `-`, a letter first, and unlike every service of the gateway itself";
        return Err(bad.hint(hint).at(node.place));
    }
    Ok(made)
}

/// A service that nothing could ever connect.
fn no_adapter(adapter: &str, node: &Node) -> Bad {
    let bad = Bad::new(format!("has no adapter `{}`: this entry would do nothing", escape(adapter))).at(node.place);
    bad.hint(match closest(adapter, OWN) {
        Some(close) => format!("did you mean `adapter: {close}`?"),
        None => format!("the adapters are {}; another one is a program: name it with `program`", OWN.join(", ")),
    })
}

fn whole_path(node: &Node) -> Result<PathBuf, Bad> {
    let path = PathBuf::from(plain(node)?);
    if path.is_absolute() { Ok(path) } else { Err(Bad::new("must be a whole path, beginning with a slash")) }
}

fn paths(node: &Node) -> Result<Vec<PathBuf>, Bad> {
    let Kind::List(items) = &node.kind else { return Err(Bad::new("must be a list of paths")) };
    items.iter().map(|item| whole_path(item).map_err(|bad| bad.at(item.place))).collect()
}

fn plain(node: &Node) -> Result<String, Bad> {
    match &node.kind {
        Kind::Text(text) if !text.is_empty() && text.len() <= 512 && text.bytes().all(|b| b.is_ascii_graphic()) => {
            Ok(text.clone())
        }
        Kind::Text(_) => Err(Bad::new("must be one word of printable characters")),
        _ => Err(Bad::new(format!("must be a text, not {}", node.noun()))),
    }
}

/// An address people and the gateway may be sent to. In clear only to this machine.
fn address(node: &Node) -> Result<String, Bad> {
    let text = plain(node)?;
    let target = Target::parse(&text).map_err(Bad::new)?;
    let here = target.address().is_some_and(|address| address.is_loopback());
    if target.is_tls() || here { Ok(text) } else { Err(Bad::new("must begin with https, or lead to 127.0.0.1")) }
}

fn scopes(node: &Node) -> Result<Vec<String>, Bad> {
    let Kind::List(items) = &node.kind else { return Err(Bad::new("must be a list of texts")) };
    items.iter().map(|item| plain(item).map_err(|bad| bad.at(item.place))).collect()
}
