//! Why something did not go out, or did not come back: by phase, with what is known about the other side.
//!
//! Promise: the texts hold nothing of what was sent or received; a failure that cannot have reached the service
//! says so, and everything else counts as unclear.

use sluice_core::Timestamp;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::throttle::Stop;
use sluice_store::StoreError;

use crate::services::Trouble;
use crate::vault::VaultError;

/// Where an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Finding the address.
    Dns,
    /// Reaching it.
    Connect,
    /// Agreeing on encryption.
    Tls,
    /// The request left, at least in part, and nothing came back.
    BeforeFirstByte,
    /// Something came back that is no proper head of an answer.
    After,
    /// The answer began and did not end properly.
    Reply,
}

/// What went wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// There is no such name.
    NoSuchHost,
    /// Nobody answers there.
    Unreachable,
    /// The machine is there, and nothing listens at that port.
    Refused,
    /// The certificate or the handshake is not good.
    NotTrusted,
    /// It took too long.
    TooSlow,
    /// The other side hung up.
    Closed,
    /// It is not HTTP.
    Garbage,
    /// There is more of it than may be.
    TooLarge,
    /// It inflates far beyond what was sent.
    Bomb,
    /// It is compressed in a way we did not ask for, or wrongly.
    Encoding,
    /// A redirect that leads nowhere we go.
    Redirect,
}

/// A failed exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Where.
    pub phase: Phase,
    /// What.
    pub what: What,
    /// Whether any byte of the request may have reached the service.
    pub sent: bool,
}

/// Why egress says no.
#[derive(Debug, thiserror::Error)]
pub enum EgressNo {
    /// Not a proper address.
    #[error("{0}")]
    Url(&'static str),
    /// Outside what the connection may reach.
    #[error("{0}")]
    NotAllowed(String),
    /// A header nobody but egress may set, or not a proper one.
    #[error("{0}")]
    Header(String),
    /// It leads to an address that is not public.
    #[error("the host leads to an address that may not be reached")]
    Address,
    /// The ticket is unknown, used up by time, or for something else.
    #[error("the ticket is not good for this")]
    Ticket,
    /// It holds something that must not leave.
    #[error("the request holds something that must not leave ({})", .0.join(", "))]
    Leak(Vec<String>),
    /// Too often, or the breaker is open.
    #[error("{}", words(*.stop))]
    Stopped {
        /// Why.
        stop: Stop,
        /// When it makes sense to ask again.
        again: Option<Timestamp>,
    },
    /// The credential cannot be had.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// It could not be counted.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// On the way.
    #[error("{}", .0.text())]
    Failed(Failed),
}

fn words(stop: Stop) -> &'static str {
    match stop {
        Stop::Minute => "too many requests in this minute",
        Stop::Hour => "too many requests in this hour",
        Stop::Burn => "this connection has used up its requests until a person looks",
        Stop::Open { .. } | Stop::Probing { .. } => "the service asked for a pause",
    }
}

impl Phase {
    /// In a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::BeforeFirstByte => "before_first_byte",
            Self::After => "after",
            Self::Reply => "reply",
        }
    }
}

impl Failed {
    fn text(self) -> String {
        let what = match self.what {
            What::NoSuchHost => "there is no such host",
            What::Unreachable => "nobody answers there",
            What::Refused => "the connection was refused: nothing listens there",
            What::NotTrusted => "its certificate is not trusted for this name",
            What::TooSlow => "it took too long",
            What::Closed => "the service hung up",
            What::Garbage => "the service does not speak HTTP properly",
            What::TooLarge => "the answer is too large",
            What::Bomb => "the answer inflates beyond all reason",
            What::Encoding => "the answer is compressed in a way that was not asked for",
            What::Redirect => "the answer redirects to where requests may not go",
        };
        format!("{what} ({})", self.phase.as_str())
    }
}

impl From<Failed> for EgressNo {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl EgressNo {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Url(_) => Code::EgressUrl,
            Self::NotAllowed(_) => Code::EgressNotAllowed,
            Self::Header(_) => Code::EgressHeader,
            Self::Address => Code::EgressAddress,
            Self::Ticket => Code::EgressTicket,
            Self::Leak(_) => Code::LeakFound,
            Self::Stopped { stop: Stop::Minute | Stop::Hour, .. } => Code::EgressLimit,
            Self::Stopped { stop: Stop::Burn, .. } => Code::EgressBurned,
            Self::Stopped { stop: Stop::Open { .. } | Stop::Probing { .. }, .. } => Code::EgressBreaker,
            Self::Vault(VaultError::Unknown) => Code::VaultUnknown,
            Self::Vault(VaultError::OutOfScope) => Code::VaultScope,
            Self::Vault(VaultError::Wrong(_)) => Code::SchemaWrongType,
            Self::Vault(VaultError::Locked(_) | VaultError::Tampered) => Code::VaultLocked,
            Self::Vault(VaultError::Store(error)) | Self::Store(error) => {
                Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)
            }
            Self::Failed(failed) => match failed.phase {
                Phase::Dns => Code::EgressDns,
                Phase::Connect => Code::EgressConnect,
                Phase::Tls => Code::EgressTls,
                Phase::BeforeFirstByte => Code::EgressNoAnswer,
                Phase::After => Code::EgressBroken,
                Phase::Reply => Code::EgressReply,
            },
        }
    }

    /// Whether any byte of the request may have reached the service.
    #[must_use]
    pub fn may_have_left(&self) -> bool {
        matches!(self, Self::Failed(Failed { sent: true, .. }))
    }

    /// As a refusal.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let (code, text) = (self.code(), self.to_string());
        match self {
            Self::Vault(error) => error.refusal(),
            Self::Store(error) => Refusal::new(code).because(error),
            _ => Refusal::new(code).with_text(&text),
        }
    }

    /// What it means for a write, or for a read that was carried out like one.
    #[must_use]
    pub fn trouble(self, is_read: bool) -> Trouble {
        let passes = match &self {
            Self::Stopped { stop, .. } => *stop != Stop::Burn,
            Self::Failed(failed) => {
                matches!(failed.phase, Phase::Dns | Phase::Connect | Phase::Tls | Phase::BeforeFirstByte)
            }
            Self::Store(_) | Self::Vault(VaultError::Store(_)) => true,
            _ => false,
        };
        // A read changed nothing, whatever happened; whoever asked decides whether to ask again.
        match (is_read, self.may_have_left(), passes) {
            (true, _, _) | (false, false, false) => Trouble::Refused(self.refusal()),
            (false, true, _) => Trouble::Unclear,
            (false, false, true) => Trouble::NotDone(self.refusal()),
        }
    }
}
