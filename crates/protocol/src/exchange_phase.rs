//! The phase in which an exchange with a service failed.
//!
//! Takes nothing; gives one definition for egress, workers and adapters. Promise: a phase proves that the service
//! received nothing only if no byte of the request can have been written in it. *The first byte* is the first byte of
//! the answer: an exchange that fails before it has sent its request, at least in part.

use serde::{Deserialize, Serialize};
use sluice_core::refusal::Code;

/// The phase in which an exchange failed, in the order in which an exchange passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangePhase {
    /// While resolving the host name.
    Dns,
    /// While connecting.
    Connect,
    /// During the TLS handshake.
    Tls,
    /// The request left, at least in part, and no answer came.
    BeforeFirstByte,
    /// Something came back that is not a valid head of an answer.
    After,
    /// The answer began and did not end correctly.
    Reply,
}

impl ExchangePhase {
    /// All phases, in order.
    pub const ALL: [Self; 6] = [Self::Dns, Self::Connect, Self::Tls, Self::BeforeFirstByte, Self::After, Self::Reply];

    /// The name of the phase.
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

    /// Whether it is proven that the service received nothing.
    #[must_use]
    pub const fn proves_nothing_sent(self) -> bool {
        match self {
            Self::Dns | Self::Connect | Self::Tls => true,
            Self::BeforeFirstByte | Self::After | Self::Reply => false,
        }
    }

    /// The code of the refusal for an exchange that failed in this phase.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Dns => Code::EgressDns,
            Self::Connect => Code::EgressConnect,
            Self::Tls => Code::EgressTls,
            Self::BeforeFirstByte => Code::EgressNoAnswer,
            Self::After => Code::EgressBroken,
            Self::Reply => Code::EgressReply,
        }
    }

    /// The phase that a refusal with this code names.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.code().as_str() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_first_byte_of_the_answer_the_request_may_have_left() {
        assert!(!ExchangePhase::BeforeFirstByte.proves_nothing_sent());
        let proven: Vec<_> = ExchangePhase::ALL.into_iter().filter(|phase| phase.proves_nothing_sent()).collect();
        assert_eq!(proven, [ExchangePhase::Dns, ExchangePhase::Connect, ExchangePhase::Tls]);
    }

    #[test]
    fn a_phase_its_name_and_its_code_name_each_other() {
        for phase in ExchangePhase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
            assert_eq!(ExchangePhase::of_code(phase.code().as_str()), Some(phase));
        }
        assert_eq!(ExchangePhase::of_code("egress.limit"), None);
    }

    #[test]
    fn a_phase_that_proves_that_nothing_left_is_one_that_did_not_reach_the_service() {
        for phase in ExchangePhase::ALL {
            assert!(!phase.proves_nothing_sent() || phase.code().is_unreached(), "{phase:?}");
        }
    }
}
