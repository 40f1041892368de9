//! Recovery settings: what is kept outside the database, and who cosigns the audit log.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::audit::cosignature::WitnessKey;
use sluice_core::hex;
use sluice_core::policy::reading::{YamlNode, YamlValue};

use super::channels::BaseUrl;
use super::section::section;
use super::setting::{Setting, SettingError};

section! {
    /// State that is kept outside the database, so that a restored or changed database is noticed at start. See
    /// [recovery.md](recovery.md).
    Recovery at "recovery" {
        /// The state file. Keep it outside the folders that a backup of the database copies.
        state_file: Option<PathBuf> = None
            => "`sluice/<hash of the data folder>/state.json` in `$XDG_STATE_HOME` or `~/.local/state`; without a home, in `<data>.state` beside the data folder; if there is none, where the last start had it (`<data>/state_file.path`)",
        /// File to which every signed checkpoint is appended.
        checkpoints_file: Option<PathBuf> = None => "`checkpoints` beside the state file",
    }
}

section! {
    /// The audit log.
    Audit at "audit" {
        /// Witnesses that every signed checkpoint is sent to: a list of maps with `url` (`https://witness.example.com`,
        /// to which `/add-checkpoint` is added) and `key` (the cosigner's key, `name+id+base64`). Empty by default.
        witnesses: Vec<WitnessConfig> = Vec::new(),
    }
}

impl Recovery {
    /// The paths of both files; `home` is the folder in which programs keep their state, if there is one.
    pub(super) fn settle(&mut self, data: &Path, home: Option<&Path>) -> (PathBuf, PathBuf) {
        let state = self.state_file.clone().unwrap_or_else(|| state_file_at(data, home));
        let checkpoints = self.checkpoints_file.clone().unwrap_or_else(|| state.with_file_name("checkpoints"));
        (state, checkpoints)
    }
}

/// The path of the state file of a data folder, if it is not configured.
fn state_file_at(data: &Path, home: Option<&Path>) -> PathBuf {
    let folder = match home {
        Some(home) => {
            let name = Sha256::digest(data.as_os_str().as_encoded_bytes());
            home.join("sluice").join(hex::encode(name.get(..8).unwrap_or_default()))
        }
        None => {
            let mut beside = data.to_path_buf();
            beside.as_mut_os_string().push(".state");
            beside
        }
    };
    folder.join("state.json")
}

/// Every place where the state file of a data folder may be, depending on the environment of the gateway.
#[must_use]
pub fn state_file_places(data: &Path, homes: &[PathBuf]) -> Vec<PathBuf> {
    let homes = homes.iter().map(|home| Some(home.as_path()));
    let mut places: Vec<PathBuf> = homes.chain([None]).map(|home| state_file_at(data, home)).collect();
    places.sort();
    places.dedup();
    places
}

/// Whether a path has the form that the state file of this data folder has in some environment.
#[must_use]
pub fn is_state_file_of(data: &Path, path: &Path) -> bool {
    let home = path.ancestors().nth(3);
    state_file_at(data, None) == path || home.is_some_and(|home| state_file_at(data, Some(home)) == path)
}

/// The folder in which programs keep their state, as the environment names it.
pub(super) fn state_home(env: &[(String, String)]) -> Option<PathBuf> {
    let variable = |name: &str| env.iter().find(|(key, value)| key == name && Path::new(value).is_absolute());
    let own = variable("XDG_STATE_HOME").map(|(_, path)| PathBuf::from(path));
    own.or_else(|| variable("HOME").map(|(_, path)| Path::new(path).join(".local/state")))
}

/// A witness that cosigns checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessConfig {
    /// The address that checkpoints are sent to.
    pub url: BaseUrl,
    /// The key that verifies its cosignatures.
    pub key: WitnessKey,
}

const KEYS: [&str; 2] = ["url", "key"];

impl Setting for WitnessConfig {
    const WHAT: &'static str = "a map with url and key";

    fn from_text(_: &str, _: &Path) -> Result<Self, SettingError> {
        Err(SettingError::new("can only be set in sluice.yaml"))
    }

    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let (mut url, mut key) = (None, None);
        for (name, value) in entries {
            let YamlValue::Text(text) = &value.kind else {
                return Err(SettingError::new(format!("must be a text, not {}", value.noun())).at(value.place));
            };
            match name.text.as_str() {
                "url" => url = Some(BaseUrl::from_text(text, base).map_err(|bad| bad.at(value.place))?),
                "key" => {
                    let bad = |error: sluice_core::audit::key::KeyError| {
                        SettingError::expected("the key of a witness: `name+id+base64`", text).hint(error.to_string())
                    };
                    key = Some(text.parse().map_err(|error| bad(error).at(value.place))?);
                }
                _ => return Err(SettingError::unknown_key(name, &format!("a witness has {}", KEYS.join(", ")), &KEYS)),
            }
        }
        match (url, key) {
            (Some(url), Some(key)) => Ok(Self { url, key }),
            (None, _) => Err(SettingError::new("must have a `url`")),
            (_, None) => {
                Err(SettingError::new("must have a `key`").hint("without it, its cosignatures cannot be verified"))
            }
        }
    }

    fn shown(&self) -> Value {
        json!({"url": self.url.as_str(), "key": self.key.to_string()})
    }

    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": false, "required": KEYS, "properties": {
            "url": {"type": "string", "pattern": "^https?://"}, "key": {"type": "string"}}})
    }
}
