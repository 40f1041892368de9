//! Sign-in settings of a mounted server: the client an operator registered, and whom the operator expects.

use serde_json::{Map, Value, json};
use sluice_core::policy::reading::{YamlNode, YamlValue};

use super::{SettingError, url, word, words};

/// How the gateway signs in to a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountSignIn {
    /// The client id of the gateway, if an operator registered it.
    pub client_id: Option<String>,
    /// The authorization server that the operator expects.
    pub issuer: Option<String>,
    /// The scopes to ask for, in place of those that the server names.
    pub scopes: Vec<String>,
}

const KEYS: [&str; 3] = ["client_id", "issuer", "scopes"];
/// The longest value.
const LONGEST: usize = 2048;

/// Reads the map.
pub(super) fn read(node: &YamlNode) -> Result<MountSignIn, SettingError> {
    let YamlValue::Map(entries) = &node.kind else {
        return Err(SettingError::new("must be a map with `client_id`, `issuer` or `scopes`"));
    };
    let mut made = MountSignIn::default();
    for (key, value) in entries {
        let read = match key.text.as_str() {
            "client_id" => plain(value).map(|text| made.client_id = Some(text)),
            "issuer" => plain(value).and_then(|text| url(&text)).map(|text| made.issuer = Some(text)),
            "scopes" => words(value).map(|list| made.scopes = list),
            "client_secret" => {
                let bad = SettingError::new("a secret does not belong in a configuration file");
                return Err(bad.hint("use: sluice mounts connect NAME --client-secret-file FILE").at(key.place));
            }
            _ => return Err(SettingError::unknown_key(key, "oauth has client_id, issuer and scopes", &KEYS)),
        };
        read.map_err(|bad| bad.at(value.place))?;
    }
    if made.scopes.iter().any(|scope| scope.is_empty() || !scope.bytes().all(|b| b.is_ascii_graphic())) {
        return Err(SettingError::new("a scope is one word of printable characters"));
    }
    Ok(made)
}

fn plain(node: &YamlNode) -> Result<String, SettingError> {
    let text = word(node)?;
    if text.len() <= LONGEST && text.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(text)
    } else {
        Err(SettingError::new("must be one word of printable characters"))
    }
}

/// The settings as they are shown; nothing if there are none.
pub(super) fn shown(sign_in: &MountSignIn) -> Option<Value> {
    let MountSignIn { client_id, issuer, scopes } = sign_in;
    let mut all = Map::new();
    all.extend(client_id.as_ref().map(|id| ("client_id".to_owned(), json!(id))));
    all.extend(issuer.as_ref().map(|issuer| ("issuer".to_owned(), json!(issuer))));
    if !scopes.is_empty() {
        all.insert("scopes".into(), json!(scopes));
    }
    (!all.is_empty()).then_some(Value::Object(all))
}

/// The shape of the settings.
pub(super) fn shape() -> Value {
    let text = json!({"type": "string"});
    json!({"type": "object", "additionalProperties": false, "properties": {
        "client_id": text, "issuer": text, "scopes": {"type": "array", "items": text}}})
}
