//! What went wrong at a service, in the words the gateway acts on.
//!
//! Takes what an exchange showed; gives whether something can have happened and why not. Promise: only
//! what is proven to have had no effect is called not done or refused; everything else is unclear.

use serde::{Deserialize, Serialize};
use sluice_core::refusal::Code;
use sluice_core::service_status::WriteFate;

use crate::net::{NetError, Phase};

/// The cause, as far as it changes what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The service no longer takes our credential: someone has to connect again.
    NeedsReauth,
    /// Too many requests.
    RateLimited,
    /// The credential does not reach that far.
    Permission,
    /// The object is gone.
    Gone,
    /// The service does not accept what was asked.
    Invalid,
    /// This adapter sees that an argument cannot be used, or names what is not there.
    Argument,
    /// The service is down or not to be reached.
    Unavailable,
    /// Our own egress did not let it out.
    Denied,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 8] = [
        Self::NeedsReauth,
        Self::RateLimited,
        Self::Permission,
        Self::Gone,
        Self::Invalid,
        Self::Argument,
        Self::Unavailable,
        Self::Denied,
    ];

    /// The refusal an agent meets.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::NeedsReauth => Code::ExecuteReconnect,
            Self::RateLimited => Code::EgressLimit,
            Self::Permission | Self::Gone | Self::Invalid => Code::ExecuteRefused,
            Self::Argument => Code::ExecuteBadArgument,
            Self::Unavailable => Code::ExecuteUnavailable,
            Self::Denied => Code::EgressNotAllowed,
        }
    }
}

/// A cause with a sentence that is safe to show: our words. The service's own are beside it, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// What kind.
    pub cause: Cause,
    /// For people.
    pub text: String,
    /// When the service asked to be tried again, in seconds.
    pub retry_after_s: Option<u64>,
    /// What the service said, as it came: nobody is shown it before it was screened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

impl Why {
    /// A cause and a sentence.
    #[must_use]
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        Self { cause, text: text.into(), retry_after_s: None, said: None }
    }
}

/// A write that did not happen, or may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Provably nothing happened; worth another try.
    NotDone(Why),
    /// Provably nothing happened, and the same write will not succeed later.
    Refused(Why),
    /// Something may have happened.
    Unclear,
}

impl Trouble {
    /// Refused because the adapter itself sees that it cannot be done.
    #[must_use]
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Refused(Why::new(Cause::Argument, text))
    }

    /// The same, for a step that has no effect of its own: unclear only means worth another try.
    #[must_use]
    pub fn without_effect(self) -> Self {
        match self {
            Self::Unclear => Self::NotDone(Why::new(Cause::Unavailable, "the service failed or did not answer")),
            sure @ (Self::NotDone(_) | Self::Refused(_)) => sure,
        }
    }

    /// The same, for a write of several steps of which some are already done.
    #[must_use]
    pub fn halfway(self) -> Self {
        match self {
            Self::NotDone(_) | Self::Refused(_) | Self::Unclear => Self::Unclear,
        }
    }
}

/// What a service answered when it did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No answer.
    Net(NetError),
    /// A status that is no success.
    Status {
        /// Which.
        status: u16,
        /// The service's own word for it, if it gave one.
        reason: String,
        /// When it asked to be tried again.
        retry_after_s: Option<u64>,
        /// What it said about it, as it came.
        said: Option<String>,
    },
    /// A success that cannot be read.
    Garbled,
}

impl Fault {
    /// Whether this is the status.
    #[must_use]
    pub const fn is_status(&self, wanted: u16) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }

    /// What it means for a write.
    #[must_use]
    pub fn of_write(self) -> Trouble {
        match self {
            Self::Net(NetError::Denied { code, retry_after_s }) => {
                let text = format!("not let out ({code})");
                Trouble::NotDone(Why { cause: Cause::Denied, text, retry_after_s, said: None })
            }
            Self::Net(NetError::Broken(phase)) if phase.nothing_left() => {
                Trouble::NotDone(Why::new(Cause::Unavailable, not_reached(phase)))
            }
            // The answer was a success we cannot read, or none: it may well have happened.
            Self::Net(NetError::Broken(_) | NetError::TooLarge) | Self::Garbled => Trouble::Unclear,
            Self::Status { status, reason, retry_after_s, said } => of_status(status, &reason, retry_after_s, said),
        }
    }

    /// What it means for a look, which changes nothing whatever happens.
    #[must_use]
    pub fn of_look(self) -> Trouble {
        match self {
            Self::Net(NetError::TooLarge) => Trouble::invalid("the answer of the service is too large"),
            Self::Net(_) | Self::Status { .. } | Self::Garbled => self.of_write().without_effect(),
        }
    }
}

fn not_reached(phase: Phase) -> &'static str {
    match phase {
        Phase::Dns => "the service's name was not found",
        Phase::Connect => "the service could not be reached",
        Phase::Tls => "no secure connection to the service",
        Phase::BeforeFirstByte | Phase::After | Phase::Reply => "the connection to the service broke",
    }
}

fn of_status(status: u16, reason: &str, retry_after_s: Option<u64>, said: Option<String>) -> Trouble {
    let rated = ["rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded"].contains(&reason);
    let why = |cause, text: &str| Why { cause, text: text.to_owned(), retry_after_s, said };
    match status {
        401 => Trouble::NotDone(why(Cause::NeedsReauth, "the service no longer accepts the credential")),
        403 if rated => Trouble::NotDone(why(Cause::RateLimited, "the service's limit is used up")),
        429 => Trouble::NotDone(why(Cause::RateLimited, "the service asks to slow down")),
        403 => Trouble::Refused(why(Cause::Permission, "the service does not permit this")),
        404 | 410 => Trouble::Refused(why(Cause::Gone, "the object is no longer there")),
        _ => match WriteFate::of_status(status) {
            WriteFate::Refused => Trouble::Refused(why(Cause::Invalid, "the service does not accept this")),
            WriteFate::NotNow => Trouble::NotDone(why(Cause::Unavailable, "the service does not take it now")),
            // 5xx may come after the effect; a status for success is none here.
            WriteFate::InDoubt | WriteFate::Applied => Trouble::Unclear,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, reason: &str) -> Trouble {
        Fault::Status { status, reason: reason.into(), retry_after_s: Some(7), said: None }.of_write()
    }

    #[test]
    fn only_proof_makes_a_write_not_done() {
        for phase in Phase::ALL {
            let sure = matches!(Fault::Net(NetError::Broken(phase)).of_write(), Trouble::NotDone(_));
            assert_eq!(sure, phase.nothing_left(), "{phase:?}");
        }
        for code in [500, 502, 503, 504, 302, 299] {
            assert_eq!(status(code, ""), Trouble::Unclear, "{code}");
        }
        assert_eq!(Fault::Garbled.of_write(), Trouble::Unclear);
        assert_eq!(Fault::Net(NetError::TooLarge).of_write(), Trouble::Unclear);
    }

    #[test]
    fn every_status_says_of_a_write_what_the_common_table_says() {
        for code in 300..=599 {
            let found = status(code, "");
            let expected = WriteFate::of_status(code);
            match found {
                Trouble::Refused(_) => assert_eq!(expected, WriteFate::Refused, "{code}"),
                Trouble::NotDone(_) => assert_eq!(expected, WriteFate::NotNow, "{code}"),
                Trouble::Unclear => assert_eq!(expected, WriteFate::InDoubt, "{code}"),
            }
        }
    }

    #[test]
    fn a_failing_service_is_not_called_our_own_pause() {
        for code in [500, 502, 503, 504] {
            let Trouble::NotDone(why) =
                Fault::Status { status: code, reason: String::new(), retry_after_s: None, said: None }.of_look()
            else {
                panic!("{code}")
            };
            assert_eq!(why.cause.code(), Code::ExecuteUnavailable, "{code}");
        }
    }

    #[test]
    fn a_limit_is_waited_out_and_a_missing_permission_is_not() {
        assert!(
            matches!(status(403, "userRateLimitExceeded"), Trouble::NotDone(why) if why.cause == Cause::RateLimited && why.retry_after_s == Some(7))
        );
        assert!(
            matches!(status(403, "insufficientPermissions"), Trouble::Refused(why) if why.cause == Cause::Permission)
        );
        assert!(matches!(status(401, ""), Trouble::NotDone(why) if why.cause == Cause::NeedsReauth));
        assert!(matches!(status(404, ""), Trouble::Refused(why) if why.cause == Cause::Gone));
    }
}
