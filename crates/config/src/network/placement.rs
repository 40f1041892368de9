//! Credential placements: where a request carries the credential of its connection.
//!
//! Takes the text of the configuration; gives the placement. Promise: every placement reads as it is written, and a header
//! name is valid.

use http::HeaderName;

/// Where a request carries a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialPlacement {
    /// `Authorization: Bearer …`.
    Bearer,
    /// `Authorization: Basic …`; the secret is `user:password`.
    Basic,
    /// A header of its own, with a text before the secret.
    Header {
        /// The name of the header.
        name: HeaderName,
        /// The text before the secret, such as `token `, or nothing.
        prefix: String,
    },
    /// A pair of the query. Servers log URLs: only for services that accept nothing else.
    Query {
        /// The name of the pair.
        name: String,
    },
}

impl CredentialPlacement {
    /// Parses `bearer`, `basic`, `header X-Api-Key`, `header Authorization token` or `query key`.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || "write `bearer`, `basic`, `header X-Api-Key` or `query key`".to_owned();
        let mut words = text.split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("bearer"), None, ..) => Ok(Self::Bearer),
            (Some("basic"), None, ..) => Ok(Self::Basic),
            (Some("header"), Some(name), scheme, None) => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
                let plain = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic());
                match scheme {
                    Some(word) if !plain(word) => Err(bad()),
                    scheme => {
                        Ok(Self::Header { name, prefix: scheme.map(|word| format!("{word} ")).unwrap_or_default() })
                    }
                }
            }
            (Some("query"), Some(name), None, _) if !name.is_empty() => Ok(Self::Query { name: name.to_owned() }),
            _ => Err(bad()),
        }
    }

    /// The text as written in the configuration.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Bearer => "bearer".into(),
            Self::Basic => "basic".into(),
            Self::Header { name, prefix } => format!("header {name} {prefix}").trim_end().to_owned(),
            Self::Query { name } => format!("query {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_read_as_they_are_written() {
        for text in ["bearer", "basic", "header x-api-key", "header authorization token", "query key"] {
            assert_eq!(CredentialPlacement::parse(text).unwrap().text(), text);
        }
        for bad in ["", "bearer x", "header", "header a b c", "query", "cookie a", "header bad:name"] {
            assert!(CredentialPlacement::parse(bad).is_err(), "{bad}");
        }
    }
}
