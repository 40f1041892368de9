//! Database settings: a file of the gateway's own, or a server that several gateways share.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::section::section;
use super::setting::{Setting, SettingError};

section! {
    /// The database: a file of the gateway's own, or a PostgreSQL server that several gateways share. At most one of
    /// the three keys can be set.
    DatabaseSettings at "database" {
        /// File of the built-in database.
        path: Option<PathBuf> = None => "`sluice.db` in the data folder",
        /// The `postgres://…` URL of a server. It is a secret and never shown. `url_file` is the better choice.
        url: Option<DatabaseUrl> = None,
        /// File that holds the `postgres://…` URL of a server.
        url_file: Option<PathBuf> = None,
    }
}

/// The database of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum DatabaseLocation {
    /// A file of the gateway's own.
    File(PathBuf),
    /// A server; the URL is a secret.
    Server(DatabaseUrl),
}

impl DatabaseLocation {
    /// A server by its URL.
    ///
    /// # Errors
    /// Says what is wrong with the URL, without the URL.
    pub fn server(url: &str) -> Result<Self, String> {
        DatabaseUrl::url(url.trim()).map(Self::Server).map_err(|bad| bad.message)
    }
}

/// A secret text: never shown, and wiped from memory when it is dropped.
#[derive(Clone, PartialEq)]
pub struct DatabaseUrl(Zeroizing<String>);

impl DatabaseUrl {
    /// A URL of a PostgreSQL server.
    pub(crate) fn url(text: &str) -> Result<Self, SettingError> {
        // SECURITY: the error does not quote the value, which may hold a password.
        let known = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let plain = !text.chars().any(|c| c.is_control() || c.is_whitespace());
        if known && plain {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err(SettingError::new("must be one URL that starts with `postgres://`"))
        }
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("set (hidden)")
    }
}

impl Setting for DatabaseUrl {
    const WHAT: &'static str = "a URL that starts with `postgres://`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        Self::url(text)
    }
    fn shown(&self) -> Value {
        json!("set (hidden)")
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^postgres(ql)?://"})
    }
}
