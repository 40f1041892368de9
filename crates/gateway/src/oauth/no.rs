//! Why a grant was not had, in words that can be shown.
//!
//! Promise: no text holds anything a provider said beyond the codes of the standard.

use sluice_core::refusal::{Code, Refusal};

use crate::egress::EgressNo;
use crate::vault::VaultError;

/// Why a provider says no: the codes of RFC 6749, 5.2, and one for everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied(&'static str);

/// The codes that are repeated to people; whatever else a provider says is its own.
const CODES: [&str; 7] = [
    "invalid_grant",
    "invalid_client",
    "unauthorized_client",
    "invalid_request",
    "invalid_scope",
    "unsupported_grant_type",
    "access_denied",
];

impl Denied {
    /// As the provider worded it, if it is one of the words there are.
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
pub enum OauthNo {
    /// Nobody grants access to this service.
    #[error("no provider is configured for this service")]
    Unknown,
    /// An address of the provider is none.
    #[error("{0}")]
    Address(String),
    /// The redirect would send the code to somebody else's machine.
    #[error("the redirect must lead to this machine: http://127.0.0.1:PORT/…")]
    Redirect,
    /// The answer belongs to no link that was given out, or no longer.
    #[error("this does not answer a link that was given out, or it comes too late or a second time")]
    State,
    /// Too many links wait for an answer.
    #[error("too many links wait for an answer; those expire after ten minutes")]
    TooMany,
    /// The provider said no.
    #[error("the provider says no: {}", .0.as_str())]
    Refused(Denied),
    /// The provider answered, but not as one does.
    #[error("the provider's answer is not that of one")]
    Garbled,
    /// It cannot be renewed.
    #[error("the provider gave access that cannot be renewed; it must allow offline access")]
    NotOffline,
    /// Less was granted than is needed.
    #[error("not everything that is needed was granted: {} is missing", .0.join(", "))]
    Scope(Vec<String>),
    /// The way there.
    #[error(transparent)]
    Egress(#[from] EgressNo),
    /// The vault.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl OauthNo {
    /// As a refusal.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let text = self.to_string();
        match self {
            Self::Unknown => Refusal::new(Code::ServiceUnknown),
            Self::Redirect => Refusal::new(Code::SchemaWrongType).with_text(&text),
            Self::Address(_) => Refusal::new(Code::ServiceSettings).with_text(&text),
            Self::State | Self::TooMany => Refusal::new(Code::OauthState).with_text(&text),
            Self::Refused(_) | Self::NotOffline | Self::Scope(_) => Refusal::new(Code::OauthRefused).with_text(&text),
            Self::Garbled => Refusal::new(Code::OauthUnclear),
            Self::Egress(no) => no.refusal(),
            Self::Vault(error) => error.refusal(),
        }
    }
}
