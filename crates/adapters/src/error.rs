//! Failures at a service, in the types that the gateway acts on.
//!
//! Takes the result of an exchange; gives whether something can have happened and why not. Promise: only what provably
//! had no effect is called not done or refused; everything else is unclear.

use sluice_core::service_status::WriteFate;
pub use sluice_protocol::{AdapterWriteError, FailureCause, FailureDetail};

use crate::net::{ExchangePhase, NetError};

/// The failure of an exchange, or an answer that is not the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeError {
    /// There was no answer.
    Net(NetError),
    /// A status that is not a success.
    Status {
        /// The status code.
        status: u16,
        /// The service's reason code, if it gave one.
        reason: String,
        /// When the service asks to be tried again.
        retry_after_s: Option<u64>,
        /// The service's own words, unscreened.
        said: Option<String>,
    },
    /// A success whose answer cannot be read.
    Garbled,
}

impl ExchangeError {
    /// Whether this is the failure status.
    #[must_use]
    pub const fn is_status(&self, wanted: u16) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }

    /// What it means for a write.
    #[must_use]
    pub fn into_write_error(self) -> AdapterWriteError {
        match self {
            Self::Net(NetError::Denied { code, retry_after_s }) => {
                let text = format!("the request was not allowed out ({code})");
                AdapterWriteError::NotDone(FailureDetail {
                    cause: FailureCause::Denied,
                    text,
                    retry_after_s,
                    said: None,
                })
            }
            Self::Net(NetError::Broken(phase)) if phase.proves_nothing_sent() => {
                AdapterWriteError::NotDone(FailureDetail::new(FailureCause::Unavailable, not_reached(phase)))
            }
            // The answer was a success that we cannot read, or missing: it may well have happened.
            Self::Net(NetError::Broken(_) | NetError::TooLarge) | Self::Garbled => AdapterWriteError::Unclear,
            Self::Status { status, reason, retry_after_s, said } => {
                write_error_for_status(status, &reason, retry_after_s, said)
            }
        }
    }

    /// What it means for a lookup, which never changes anything.
    #[must_use]
    pub fn into_read_error(self) -> AdapterWriteError {
        match self {
            Self::Net(NetError::TooLarge) => AdapterWriteError::invalid("the answer of the service is too large"),
            Self::Net(_) | Self::Status { .. } | Self::Garbled => self.into_write_error().without_effect(),
        }
    }
}

fn not_reached(phase: ExchangePhase) -> &'static str {
    match phase {
        ExchangePhase::Dns => "the service's name was not found",
        ExchangePhase::Connect => "the service could not be reached",
        ExchangePhase::Tls => "no secure connection to the service",
        ExchangePhase::BeforeFirstByte | ExchangePhase::After | ExchangePhase::Reply => {
            "the connection to the service broke"
        }
    }
}

fn write_error_for_status(
    status: u16,
    reason: &str,
    retry_after_s: Option<u64>,
    said: Option<String>,
) -> AdapterWriteError {
    let rated = ["rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded"].contains(&reason);
    let why = |cause, text: &str| FailureDetail { cause, text: text.to_owned(), retry_after_s, said };
    match status {
        401 => {
            AdapterWriteError::NotDone(why(FailureCause::NeedsReauth, "the service no longer accepts the credential"))
        }
        403 if rated => AdapterWriteError::NotDone(why(FailureCause::RateLimited, "the service's limit is used up")),
        429 => AdapterWriteError::NotDone(why(FailureCause::RateLimited, "the service asks to slow down")),
        403 => AdapterWriteError::Refused(why(FailureCause::Permission, "the service does not permit this")),
        404 | 410 => AdapterWriteError::Refused(why(FailureCause::Gone, "the object is no longer there")),
        _ => match WriteFate::of_status(status) {
            WriteFate::Refused => {
                AdapterWriteError::Refused(why(FailureCause::Invalid, "the service does not accept this"))
            }
            WriteFate::NotNow => {
                AdapterWriteError::NotDone(why(FailureCause::Unavailable, "the service does not accept it now"))
            }
            // A 5xx may come after the effect; a success status in this place is not a success.
            WriteFate::InDoubt | WriteFate::Applied => AdapterWriteError::Unclear,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::refusal::Code;

    fn status(status: u16, reason: &str) -> AdapterWriteError {
        ExchangeError::Status { status, reason: reason.into(), retry_after_s: Some(7), said: None }.into_write_error()
    }

    #[test]
    fn only_proof_makes_a_write_not_done() {
        for phase in ExchangePhase::ALL {
            let sure =
                matches!(ExchangeError::Net(NetError::Broken(phase)).into_write_error(), AdapterWriteError::NotDone(_));
            assert_eq!(sure, phase.proves_nothing_sent(), "{phase:?}");
        }
        for code in [500, 502, 503, 504, 302, 299] {
            assert_eq!(status(code, ""), AdapterWriteError::Unclear, "{code}");
        }
        assert_eq!(ExchangeError::Garbled.into_write_error(), AdapterWriteError::Unclear);
        assert_eq!(ExchangeError::Net(NetError::TooLarge).into_write_error(), AdapterWriteError::Unclear);
    }

    #[test]
    fn every_status_says_of_a_write_what_the_common_table_says() {
        for code in 300..=599 {
            let found = status(code, "");
            let expected = WriteFate::of_status(code);
            match found {
                AdapterWriteError::Refused(_) => assert_eq!(expected, WriteFate::Refused, "{code}"),
                AdapterWriteError::NotDone(_) => assert_eq!(expected, WriteFate::NotNow, "{code}"),
                AdapterWriteError::Unclear => assert_eq!(expected, WriteFate::InDoubt, "{code}"),
            }
        }
    }

    #[test]
    fn a_failing_service_is_not_called_our_own_pause() {
        for code in [500, 502, 503, 504] {
            let AdapterWriteError::NotDone(why) =
                ExchangeError::Status { status: code, reason: String::new(), retry_after_s: None, said: None }
                    .into_read_error()
            else {
                panic!("{code}")
            };
            assert_eq!(why.cause.code(), Code::ExecuteUnavailable, "{code}");
        }
    }

    #[test]
    fn a_limit_is_waited_out_and_a_missing_permission_is_not() {
        assert!(
            matches!(status(403, "userRateLimitExceeded"), AdapterWriteError::NotDone(why) if why.cause == FailureCause::RateLimited && why.retry_after_s == Some(7))
        );
        assert!(
            matches!(status(403, "insufficientPermissions"), AdapterWriteError::Refused(why) if why.cause == FailureCause::Permission)
        );
        assert!(matches!(status(401, ""), AdapterWriteError::NotDone(why) if why.cause == FailureCause::NeedsReauth));
        assert!(matches!(status(404, ""), AdapterWriteError::Refused(why) if why.cause == FailureCause::Gone));
    }
}
