//! Errors of egress, by phase, with what is known about whether the request reached the service.
//!
//! Promise: the texts hold nothing of what was sent or received; an error that cannot have reached the service says so,
//! and every other error counts as uncertain.

use sluice_core::UtcMillis;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::throttle::ThrottleReason;
pub use sluice_protocol::ExchangePhase;
use sluice_store::StoreError;

use crate::vault::VaultError;

/// What went wrong in that phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeFault {
    /// The host name does not exist.
    NoSuchHost,
    /// The address does not answer.
    Unreachable,
    /// The machine answers, but nothing listens at that port.
    Refused,
    /// The certificate or the handshake is not valid.
    NotTrusted,
    /// The time limit was reached.
    TooSlow,
    /// The service closed the connection.
    Closed,
    /// The answer is not HTTP.
    Garbage,
    /// The answer is larger than allowed.
    TooLarge,
    /// The answer decompresses to far more than was sent.
    Bomb,
    /// The answer is compressed incorrectly, or in a way that was not requested.
    Encoding,
    /// The redirect leads to a target that is not allowed.
    Redirect,
}

/// A failed exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeFailure {
    /// The phase.
    pub phase: ExchangePhase,
    /// The error.
    pub what: ExchangeFault,
    /// Whether any byte of the request may have reached the service.
    pub sent: bool,
}

/// Why egress refuses or fails.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The address is not valid.
    #[error("{0}")]
    Url(&'static str),
    /// The target is outside what the connection may reach.
    #[error("{0}")]
    NotAllowed(String),
    /// A header that only egress may set, or an invalid one.
    #[error("{0}")]
    Header(String),
    /// The host leads to an address that is not public.
    #[error("the host resolves to an address that is not allowed")]
    Address,
    /// The ticket is unknown, expired, or issued for something else.
    #[error("the ticket is not valid for this request")]
    Ticket,
    /// The request holds something that must not leave.
    #[error("the request holds something that must not leave ({})", .0.join(", "))]
    Leak(Vec<String>),
    /// A request limit is reached, or the circuit breaker is open.
    #[error("{}", words(*.stop))]
    Stopped {
        /// The limit or breaker that stopped it.
        stop: ThrottleReason,
        /// When a retry makes sense.
        again: Option<UtcMillis>,
    },
    /// The credential cannot be used.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The request could not be counted.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The exchange failed.
    #[error("{}", .0.text())]
    Failed(ExchangeFailure),
}

fn words(stop: ThrottleReason) -> &'static str {
    match stop {
        ThrottleReason::Minute => "too many requests in this minute",
        ThrottleReason::Hour => "too many requests in this hour",
        ThrottleReason::Burn => "this connection has used up its requests; a person has to reset it",
        ThrottleReason::Open { .. } | ThrottleReason::Probing { .. } => "the service asked for a pause",
    }
}

impl ExchangeFailure {
    fn text(self) -> String {
        let what = match self.what {
            ExchangeFault::NoSuchHost => "there is no such host",
            ExchangeFault::Unreachable => "the host does not answer",
            ExchangeFault::Refused => "the connection was refused: nothing listens at that port",
            ExchangeFault::NotTrusted => "its certificate is not trusted for this name",
            ExchangeFault::TooSlow => "it took too long",
            ExchangeFault::Closed => "the service hung up",
            ExchangeFault::Garbage => "the service does not answer with valid HTTP",
            ExchangeFault::TooLarge => "the answer is too large",
            ExchangeFault::Bomb => "the answer decompresses to far more than is allowed",
            ExchangeFault::Encoding => "the answer uses a compression that was not requested",
            ExchangeFault::Redirect => "the answer redirects to an address that is not allowed",
        };
        format!("{what} ({})", self.phase.as_str())
    }
}

impl From<ExchangeFailure> for EgressError {
    fn from(failed: ExchangeFailure) -> Self {
        Self::Failed(failed)
    }
}

impl EgressError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Url(_) => Code::EgressUrl,
            Self::NotAllowed(_) => Code::EgressNotAllowed,
            Self::Header(_) => Code::EgressHeader,
            Self::Address => Code::EgressAddress,
            Self::Ticket => Code::EgressTicket,
            Self::Leak(_) => Code::LeakFound,
            Self::Stopped { stop: ThrottleReason::Minute | ThrottleReason::Hour, .. } => Code::EgressLimit,
            Self::Stopped { stop: ThrottleReason::Burn, .. } => Code::EgressBurned,
            Self::Stopped { stop: ThrottleReason::Open { .. } | ThrottleReason::Probing { .. }, .. } => {
                Code::EgressBreaker
            }
            Self::Vault(VaultError::Unknown) => Code::VaultUnknown,
            Self::Vault(VaultError::OutOfScope) => Code::VaultScope,
            Self::Vault(VaultError::Wrong(_)) => Code::SchemaWrongType,
            Self::Vault(VaultError::Locked(_) | VaultError::Tampered) => Code::VaultLocked,
            Self::Vault(VaultError::Store(error)) | Self::Store(error) => {
                Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)
            }
            Self::Failed(failed) => failed.phase.code(),
        }
    }

    /// Whether any byte of the request may have reached the service.
    #[must_use]
    pub fn may_have_left(&self) -> bool {
        matches!(self, Self::Failed(ExchangeFailure { sent: true, .. }))
    }

    /// The error as a refusal.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let (code, text) = (self.code(), self.to_string());
        match self {
            Self::Vault(error) => error.refusal(),
            Self::Store(error) => Refusal::new(code).with_source(error),
            _ => Refusal::new(code).with_text(&text),
        }
    }

    /// Whether the cause is expected to go away by itself, so that a later attempt can succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Stopped { stop, .. } => *stop != ThrottleReason::Burn,
            Self::Failed(failed) => {
                matches!(
                    failed.phase,
                    ExchangePhase::Dns | ExchangePhase::Connect | ExchangePhase::Tls | ExchangePhase::BeforeFirstByte
                )
            }
            Self::Store(_) | Self::Vault(VaultError::Store(_)) => true,
            _ => false,
        }
    }
}
