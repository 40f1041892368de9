//! Grant terms: what differs between the account of a connected service and a server that protects itself by OAuth.
//!
//! Promise: addresses that a server published open nothing by themselves: a private address is reached only if the
//! operator opened it for this server, and a token crosses no network in plain text.

use sluice_config::network::{EgressUrl, IpNetwork};

use super::error::OauthError;

/// How a client proves at the token endpoint who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// It has no secret: the proof is PKCE.
    Public,
    /// Its id and secret in the `Authorization` header.
    Basic,
    /// Its id and secret in the form.
    Form,
}

impl ClientAuthentication {
    const ALL: [Self; 3] = [Self::Public, Self::Basic, Self::Form];

    /// The word of the standard.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "none",
            Self::Basic => "client_secret_basic",
            Self::Form => "client_secret_post",
        }
    }

    /// The method with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == word)
    }
}

/// How the gateway came to be known to an authorization server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOrigin {
    /// By the address of a document that describes it.
    Document,
    /// An operator registered it there.
    Registered,
    /// It registered itself.
    Dynamic,
}

impl ClientOrigin {
    const ALL: [Self; 3] = [Self::Document, Self::Registered, Self::Dynamic];

    /// The word in rows and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Registered => "registered",
            Self::Dynamic => "dynamic",
        }
    }

    /// The origin with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == word)
    }
}

/// What the operator opened for a server and its authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerReach {
    /// Whether the loopback addresses of this machine may be reached without TLS.
    pub plain_http: bool,
    /// Private addresses that may be reached.
    pub allow_addresses: Vec<IpNetwork>,
}

impl ServerReach {
    /// Checks an address that a server published.
    ///
    /// # Errors
    /// When it is not https, and not on this machine with plain http allowed.
    pub fn check(&self, what: &str, url: &str) -> Result<EgressUrl, OauthError> {
        let target = EgressUrl::parse(url).map_err(|why| OauthError::Metadata(format!("`{what}`: {why}")))?;
        // SECURITY: where `localhost` leads is checked again when the name is resolved.
        let is_here = target.host() == "localhost" || target.address().is_some_and(|address| address.is_loopback());
        if target.is_tls() || (self.plain_http && is_here) {
            Ok(target)
        } else {
            Err(OauthError::Metadata(format!("`{what}` is not an https address")))
        }
    }
}

/// The terms of a server that protects itself by OAuth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerGrantTerms {
    /// The server's own identifier, exactly as it published it: the audience of its tokens (RFC 8707).
    pub resource: String,
    /// How the gateway proves who it is.
    pub authentication: ClientAuthentication,
    /// How the gateway came to be known there.
    pub origin: ClientOrigin,
    /// Whether the authorization server names itself in every answer (RFC 9207).
    pub names_issuer: bool,
    /// What may be reached.
    pub reach: ServerReach,
}

/// The terms of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GrantTerms {
    /// The account of a connected service: it must be renewable, and every scope must be granted. The operator wrote the
    /// addresses of the provider.
    #[default]
    Account,
    /// A server that published where its tokens come from.
    Server(Box<ServerGrantTerms>),
}

impl GrantTerms {
    /// The terms of a server.
    pub(super) fn server(&self) -> Option<&ServerGrantTerms> {
        match self {
            Self::Account => None,
            Self::Server(terms) => Some(terms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_address_is_https_or_on_this_machine_where_the_operator_allows_it() {
        let (shut, open) = (ServerReach::default(), ServerReach { plain_http: true, ..ServerReach::default() });
        assert!(shut.check("token_endpoint", "https://auth.example/token").is_ok());
        for url in ["http://127.0.0.1:8/token", "http://localhost:8/token", "http://[::1]:8/token"] {
            assert!(shut.check("token_endpoint", url).is_err() && open.check("token_endpoint", url).is_ok(), "{url}");
        }
        for url in
            ["http://auth.example/token", "http://10.0.0.1/token", "http://localhost.evil.example/", "file:///etc"]
        {
            assert!(open.check("token_endpoint", url).is_err(), "{url}");
        }
    }

    #[test]
    fn words_lead_back_to_what_they_stand_for() {
        for method in ClientAuthentication::ALL {
            assert_eq!(ClientAuthentication::from_word(method.as_str()), Some(method));
        }
        for origin in ClientOrigin::ALL {
            assert_eq!(ClientOrigin::from_word(origin.as_str()), Some(origin));
        }
    }
}
