//! Session settings: known targets and the lifetime of sessions.

use std::path::Path;

use serde_json::{Value, json};
use sluice_core::Millis;

use super::section::section;
use super::setting::{Setting, SettingError};

section! {
    /// Sessions of agents.
    Sessions at "sessions" {
        /// Targets that count as known for every agent: addresses, `@domain` for all addresses there, hosts, channels,
        /// accounts, names, and folders (ending in a slash) for everything below them.
        known: Vec<KnownTarget> = Vec::new(),
        /// How long a session lasts.
        ttl: Millis = Millis::from_hours(24); within Millis::from_mins(1)..=Millis::from_hours(31 * 24),
    }
}

/// A target that people have configured as known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTarget(String);

impl KnownTarget {
    /// The target as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for KnownTarget {
    const WHAT: &'static str = "an address, `@domain`, a host, a channel, an account, a name or a folder";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let text = text.trim();
        let bare = text.trim_start_matches(['@', '#']);
        if bare.is_empty() || bare == "/" || text.contains('*') {
            return Err(SettingError::expected(Self::WHAT, text).hint("each is compared whole; there are no wildcards"));
        }
        Ok(Self(text.to_owned()))
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": ["string", "integer"], "minLength": 1})
    }
}
