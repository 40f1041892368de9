//! The refusal codes, generated from the table, and the properties of each.

use std::fmt;

use super::Code;

macro_rules! codes {
    ($($name:ident = $code:literal, $status:literal, $retry:expr, $meaning:literal, $hint:literal;)*) => {
        /// Why a call was refused, as a code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = concat!("`", $code, "`: ", $meaning, ".")] $name,)*
        }

        impl Code {
            /// All codes, room by room.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];

            /// The stable text: `room.what`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The HTTP status it is answered with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Whether and when the agent may make the same call again.
            #[must_use]
            pub const fn retry(self) -> RetryAdvice {
                match self { $(Self::$name => $retry,)* }
            }

            /// What happened.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// What to do instead, addressed to the agent.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

impl Code {
    /// Whether the call itself was wrong, so that only its caller can correct it.
    #[must_use]
    pub fn is_callers_mistake(self) -> bool {
        let named = [Self::ExecuteBadArgument, Self::StoreNotFound, Self::HoldNotFound, Self::EgressUrl];
        ["schema", "json"].contains(&self.room()) || named.contains(&self) || self == Self::EgressHeader
    }

    /// Whether a request to a service got no answer because the service was not reached, or because a limit of the
    /// gateway held the request back. The service has not seen it then.
    #[must_use]
    pub fn is_unreached(self) -> bool {
        matches!(
            self,
            // The service, or its connection, is not there for now.
            Self::ExecuteUnavailable | Self::ExecuteReconnect | Self::MountDown | Self::ServiceStarting
            // A limit of the gateway.
            | Self::EgressLimit | Self::EgressBreaker | Self::EgressBurned | Self::FreezeActive | Self::ProcessTooMany
            // The network.
            | Self::EgressDns | Self::EgressConnect | Self::EgressTls | Self::EgressNoAnswer
            // The gateway itself.
            | Self::VaultLocked | Self::WorkerQuarantined | Self::StoreUnavailable | Self::GatewayUnavailable
        )
    }

    /// The code with this text.
    #[must_use]
    pub fn from_code(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// The part before the dot.
    #[must_use]
    pub fn room(self) -> &'static str {
        self.as_str().split_once('.').map_or(self.as_str(), |(room, _)| room)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
