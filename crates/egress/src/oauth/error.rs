//! Errors of OAuth, with texts that can be shown.
//!
//! Promise: of what a provider said, the texts repeat only the codes of the standard.

use sluice_core::refusal::{Code, Refusal};

use crate::EgressError;
use crate::vault::VaultError;

/// Why a provider refuses: the codes of RFC 6749, 5.2, and one for everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OauthErrorCode(&'static str);

/// The codes that are repeated to people; any other text of a provider is not shown.
const CODES: [&str; 7] = [
    "invalid_grant",
    "invalid_client",
    "unauthorized_client",
    "invalid_request",
    "invalid_scope",
    "unsupported_grant_type",
    "access_denied",
];

impl OauthErrorCode {
    /// The code for a provider's text, if it is one of the known codes.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        Self(CODES.into_iter().find(|code| *code == word).unwrap_or("refused"))
    }

    /// The code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// Why there is no grant.
#[derive(Debug, thiserror::Error)]
pub enum OauthError {
    /// No provider grants access to this service.
    #[error("no provider is configured for this service")]
    Unknown,
    /// An address of the provider is not valid.
    #[error("{0}")]
    Address(String),
    /// The redirect would send the code to another machine.
    #[error("the redirect must lead to this machine: http://127.0.0.1:PORT/…")]
    Redirect,
    /// The answer belongs to no open link.
    #[error("the sign-in link is unknown, expired or already used")]
    State,
    /// Too many links wait for an answer.
    #[error("too many links wait for an answer; those expire after ten minutes")]
    TooMany,
    /// The provider refused.
    #[error("the provider refused: {}", .0.as_str())]
    Refused(OauthErrorCode),
    /// The provider's answer is not valid.
    #[error("the provider sent an invalid answer")]
    Garbled,
    /// The access cannot be renewed.
    #[error("the provider gave access that cannot be renewed; it must allow offline access")]
    NotOffline,
    /// Not all required scopes were granted.
    #[error("not all required access was granted: {} is missing", .0.join(", "))]
    Scope(Vec<String>),
    /// Another authorization server answered, or published metadata, than the expected one.
    #[error("the answer or the metadata names another authorization server than the one that was asked")]
    Issuer,
    /// The server names an authorization server that no person has accepted.
    #[error("the server names the authorization server `{0}`, which was not accepted; check it, then use `--issuer`")]
    IssuerChanged(String),
    /// What a server or its authorization server published cannot be used.
    #[error("the sign-in metadata cannot be used: {0}")]
    Metadata(String),
    /// There is no client that the authorization server would accept.
    #[error("{0}")]
    Client(String),
    /// The server asks for access that was already granted.
    #[error("the server still asks for access that was granted; signing in again does not help, ask its operator")]
    Endless,
    /// The request to the provider failed.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The vault failed.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl OauthError {
    /// The error as a refusal.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let text = self.to_string();
        match self {
            Self::Unknown => Refusal::new(Code::ServiceUnknown),
            Self::Redirect => Refusal::new(Code::SchemaWrongType).with_text(&text),
            Self::Address(_) => Refusal::new(Code::ServiceSettings).with_text(&text),
            Self::State | Self::TooMany => Refusal::new(Code::OauthState).with_text(&text),
            Self::Refused(_) | Self::NotOffline | Self::Scope(_) => Refusal::new(Code::OauthRefused).with_text(&text),
            Self::Endless => Refusal::new(Code::OauthRefused).with_text(&text),
            Self::Issuer | Self::IssuerChanged(_) => Refusal::new(Code::OauthIssuer).with_text(&text),
            Self::Metadata(_) => Refusal::new(Code::OauthMetadata).with_text(&text),
            Self::Client(_) => Refusal::new(Code::OauthClient).with_text(&text),
            Self::Garbled => Refusal::new(Code::OauthUnclear),
            Self::Egress(no) => no.refusal(),
            Self::Vault(error) => error.refusal(),
        }
    }
}
