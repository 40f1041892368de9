//! What the HTTP status of an answer proves about a write.
//!
//! Takes the status a service answered a request with; gives whether the write happened, and whether it is worth
//! another try. Promise: only a status by which services say that they did nothing proves that nothing happened;
//! everything else counts as unclear. One table for adapters, security proxies and the gateway's own observation.

/// What a status proves about the write it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFate {
    /// The service says that it happened.
    Applied,
    /// The service clearly refused it: nothing happened, and the same request would be refused again.
    Refused,
    /// The service did not accept it now: nothing happened, and the same request may be accepted later.
    NotNow,
    /// It may have happened.
    InDoubt,
}

impl WriteFate {
    /// What this status proves about the write.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Applied,
            // A credential that is not accepted can be renewed; a limit passes.
            401 | 429 => Self::NotNow,
            // A time-out and an early request may come after the effect; a conflict may be with our own first try.
            408 | 409 | 425 => Self::InDoubt,
            400..=499 => Self::Refused,
            // A failing service may fail after the effect, a redirect may point to the created object.
            _ => Self::InDoubt,
        }
    }

    /// Whether it provably did not happen.
    #[must_use]
    pub const fn is_not_applied(self) -> bool {
        match self {
            Self::Refused | Self::NotNow => true,
            Self::Applied | Self::InDoubt => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_refusal_or_a_limit_proves_that_nothing_was_applied() {
        for status in 100..=599 {
            let expected = match status {
                408 | 409 | 425 => WriteFate::InDoubt,
                401 | 429 => WriteFate::NotNow,
                _ if status / 100 == 2 => WriteFate::Applied,
                _ if status / 100 == 4 => WriteFate::Refused,
                _ => WriteFate::InDoubt,
            };
            assert_eq!(WriteFate::of_status(status), expected, "{status}");
        }
    }
}
