//! Services people can connect: by which adapter, where they are, and as what we are known there.

use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::ServiceName;
use sluice_core::policy::reading::{Kind, Node, closest, escape};

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
}

const KEYS: [&str; 7] = ["adapter", "api", "authorize", "token", "revoke", "client_id", "scopes"];

impl Account {
    /// With everything the adapter's own.
    #[must_use]
    pub fn new(name: ServiceName) -> Self {
        let adapter = name.to_string();
        let (api, authorize, token, revoke, client_id) = (None, None, None, None, None);
        Self { name, adapter, api, authorize, token, revoke, client_id, scopes: Vec::new() }
    }
}

impl Accounts {
    /// The service of this name.
    #[must_use]
    pub fn get(&self, name: &ServiceName) -> Option<&Account> {
        self.0.iter().find(|account| account.name == *name)
    }
}

impl Setting for Accounts {
    const WHAT: &'static str = "a map of services";

    fn from_text(_: &str, _: &Path) -> Result<Self, Bad> {
        Err(Bad::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &Node, _: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut accounts = Vec::new();
        for (key, value) in entries {
            let name = ServiceName::new(key.text.as_str()).map_err(|why| {
                Bad::new(format!("cannot use `{}`", escape(&key.text))).hint(why.to_string()).at(key.place)
            })?;
            accounts.push(account(name, value)?);
        }
        Ok(Self(accounts))
    }

    fn shown(&self) -> Value {
        let one = |account: &Account| {
            let Account { name, adapter, api, authorize, token, revoke, client_id, scopes } = account;
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
            (name.to_string(), Value::Object(all))
        };
        Value::Object(self.0.iter().map(one).collect())
    }

    fn shape() -> Value {
        let text = json!({"type": "string"});
        json!({"type": "object", "additionalProperties": {
            "type": ["object", "null"], "additionalProperties": false, "properties": {
                "adapter": text, "api": text, "authorize": text, "token": text, "revoke": text, "client_id": text,
                "scopes": {"type": "array", "items": {"type": "string"}}}}})
    }
}

fn account(name: ServiceName, node: &Node) -> Result<Account, Bad> {
    let mut made = Account::new(name);
    let entries = match &node.kind {
        Kind::Map(entries) => entries,
        Kind::Null => return Ok(made),
        _ => return Err(Bad::new("must be a map").at(node.place)),
    };
    for (key, value) in entries {
        let read = match key.text.as_str() {
            "adapter" => plain(value).map(|text| made.adapter = text),
            "client_id" => plain(value).map(|text| made.client_id = Some(text)),
            "api" => address(value).map(|text| made.api = Some(text)),
            "authorize" => address(value).map(|text| made.authorize = Some(text)),
            "token" => address(value).map(|text| made.token = Some(text)),
            "revoke" => address(value).map(|text| made.revoke = Some(text)),
            "scopes" => scopes(value).map(|list| made.scopes = list),
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
    Ok(made)
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
