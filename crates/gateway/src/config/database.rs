//! Where the gateway remembers: a file of its own, or a server several gateways share.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::section::section;
use super::setting::{Bad, Setting};

section! {
    /// Where the gateway remembers: a file of its own, or a PostgreSQL server several gateways share. At most one of
    /// the three.
    DatabaseSettings at "database" {
        /// File of the built-in database.
        path: Option<PathBuf> = None => "`sluice.db` in the data folder",
        /// `postgres://…` of a server. A secret: it is never shown. Better named by `url_file`.
        url: Option<Secret> = None,
        /// File that holds the `postgres://…` of a server.
        url_file: Option<PathBuf> = None,
    }
}

/// Where the gateway remembers.
#[derive(Debug, Clone, PartialEq)]
pub enum Database {
    /// A file of its own.
    File(PathBuf),
    /// A server; the URL is a secret.
    Server(Secret),
}

impl Database {
    /// A server by its URL.
    ///
    /// # Errors
    /// What is wrong with the URL, without the URL.
    pub fn server(url: &str) -> Result<Self, String> {
        Secret::url(url.trim()).map(Self::Server).map_err(|bad| bad.message)
    }
}

/// A text nobody may see: wiped from memory when it is dropped.
#[derive(Clone, PartialEq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A URL of a PostgreSQL server.
    pub(crate) fn url(text: &str) -> Result<Self, Bad> {
        // SECURITY: what was found is not said; it may hold a password.
        let known = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let plain = !text.chars().any(|c| c.is_control() || c.is_whitespace());
        if known && plain {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err(Bad::new("must be one URL that starts with `postgres://`"))
        }
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("set (hidden)")
    }
}

impl Setting for Secret {
    const WHAT: &'static str = "a URL that starts with `postgres://`";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        Self::url(text)
    }
    fn shown(&self) -> Value {
        json!("set (hidden)")
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^postgres(ql)?://"})
    }
}
