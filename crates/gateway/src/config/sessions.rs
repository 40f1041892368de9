//! Sessions of agents.

use std::path::Path;

use serde_json::{Value, json};
use sluice_core::Span;

use super::section::section;
use super::setting::{Bad, Setting};

section! {
    /// Sessions of agents.
    Sessions at "sessions" {
        /// Targets that count as known for every agent: addresses, `@domain` for all addresses there, hosts, channels,
        /// accounts, names, and folders (ending in a slash) for everything below them.
        known: Vec<KnownTarget> = Vec::new(),
        /// How long a session lasts.
        ttl: Span = Span::from_hours(24); within Span::from_mins(1)..=Span::from_hours(31 * 24),
    }
}

/// A target people have written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTarget(String);

impl KnownTarget {
    /// As written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for KnownTarget {
    const WHAT: &'static str = "an address, `@domain`, a host, a channel, an account, a name or a folder";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        let text = text.trim();
        let bare = text.trim_start_matches(['@', '#']);
        if bare.is_empty() || bare == "/" || text.contains('*') {
            return Err(Bad::expected(Self::WHAT, text).hint("each is compared whole; there are no wildcards"));
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
