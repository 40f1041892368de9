//! OAuth settings: how the gateway names itself to authorization servers.

use std::path::Path;

use serde_json::{Value, json};

use super::section::section;
use super::setting::{Setting, SettingError};
use crate::network::EgressUrl;

section! {
    /// How the gateway signs in to mounted servers that want OAuth; see mounts.md.
    OauthClient at "oauth" {
        /// The public https address of the document that describes the gateway to authorization servers. With it, the
        /// gateway is known to every authorization server that reads such documents, and needs no registration. The
        /// gateway serves the document at `/oauth/client.json`; copy it to this address, or forward the address there.
        client_document: Option<DocumentUrl> = None,
    }
}

/// The https address of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentUrl(String);

impl DocumentUrl {
    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for DocumentUrl {
    const WHAT: &'static str = "an address such as `https://gate.example.org/oauth/client.json`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let bad = || SettingError::expected(Self::WHAT, text);
        let target = EgressUrl::parse(text).map_err(|_| bad())?;
        // The address is the client id: it is https, has a path, and neither a query nor a fragment.
        let plain = target.is_tls() && target.path() != "/" && !text.contains(['?', '#', '@']);
        if plain && text.bytes().all(|b| b.is_ascii_graphic()) { Ok(Self(text.to_owned())) } else { Err(bad()) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^https://"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_is_a_whole_https_address() {
        let read = |text: &str| DocumentUrl::from_text(text, Path::new("/"));
        assert!(read("https://gate.example.org/oauth/client.json").is_ok());
        for bad in [
            "https://gate.example.org",
            "https://gate.example.org/",
            "http://gate.example.org/client.json",
            "https://gate.example.org/client.json?x=1",
            "https://a@gate.example.org/client.json",
            "client.json",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
