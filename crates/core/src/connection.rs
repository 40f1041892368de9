//! The lifecycle of a connected service: from the first sign-in to its end.
//!
//! One function from a state and a step to the next state or the reason why not. Promise: what a person
//! stopped is started only by a person, and a connection that needs a new sign-in is not used before
//! that sign-in.

use serde::Serialize;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// A person is signing in.
    Connecting,
    /// Signed in; the replica is being filled for the first time.
    Syncing,
    /// The replica is complete and is kept up to date.
    Live,
    /// A person paused it.
    Paused,
    /// The service no longer takes our credential: a person has to sign in again.
    NeedsReauth,
    /// It has ended; only its entries in the audit log are left.
    Disconnected,
}

/// A step in the lifecycle of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionStep {
    /// A person begins to sign in, for the first time or again.
    Begin,
    /// The credential has arrived.
    SignedIn,
    /// The replica is complete for the first time.
    Copied,
    /// The service refused the credential.
    Refused,
    /// A person pauses it.
    Pause,
    /// A person resumes it.
    Resume,
    /// A person ends it.
    End,
}

/// A step that is not possible in the present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a connection that is {} cannot do this", .from.as_str())]
pub struct ConnectionStepError {
    /// The present state.
    pub from: ConnectionState,
    /// The step that was attempted.
    pub step: ConnectionStep,
}

impl ConnectionState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Connecting, Self::Syncing, Self::Live, Self::Paused, Self::NeedsReauth, Self::Disconnected];

    /// Its name in rows and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Syncing => "syncing",
            Self::Live => "live",
            Self::Paused => "paused",
            Self::NeedsReauth => "needs_reauth",
            Self::Disconnected => "disconnected",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the replica is kept up to date and writes may leave.
    #[must_use]
    pub const fn is_at_work(self) -> bool {
        match self {
            Self::Syncing | Self::Live => true,
            Self::Connecting | Self::Paused | Self::NeedsReauth | Self::Disconnected => false,
        }
    }

    /// Whether there is a replica to answer from, however old it is.
    #[must_use]
    pub const fn has_readable_copy(self) -> bool {
        match self {
            Self::Syncing | Self::Live | Self::Paused | Self::NeedsReauth => true,
            Self::Connecting | Self::Disconnected => false,
        }
    }

    /// The state after a step. Where the step changes nothing, the same state.
    ///
    /// # Errors
    /// When it is not possible from here.
    pub const fn apply(self, step: ConnectionStep) -> Result<Self, ConnectionStepError> {
        use ConnectionStep as Step;
        let next = match (self, step) {
            (Self::Connecting | Self::Disconnected, Step::Begin) => Self::Connecting,
            // A new sign-in leaves the replica where it is; until it is done, the state stays the same.
            (Self::NeedsReauth | Self::Syncing | Self::Live | Self::Paused, Step::Begin) => self,
            (Self::Connecting | Self::NeedsReauth | Self::Syncing, Step::SignedIn) => Self::Syncing,
            (Self::Live, Step::SignedIn) => Self::Live,
            (Self::Paused, Step::SignedIn) => Self::Paused,
            (Self::Syncing | Self::Live, Step::Copied) => Self::Live,
            (Self::Syncing | Self::Live | Self::NeedsReauth, Step::Refused) => Self::NeedsReauth,
            // A person's decision stands: what they paused stays paused.
            (Self::Paused, Step::Copied | Step::Refused | Step::Pause) => Self::Paused,
            (Self::Syncing | Self::Live, Step::Pause) => Self::Paused,
            (Self::Paused, Step::Resume) => Self::Syncing,
            (Self::Syncing | Self::Live, Step::Resume) => self,
            (
                Self::Connecting | Self::Syncing | Self::Live | Self::Paused | Self::NeedsReauth | Self::Disconnected,
                Step::End,
            ) => Self::Disconnected,
            (Self::Connecting | Self::NeedsReauth | Self::Disconnected, Step::Copied | Step::Pause | Step::Resume)
            | (Self::Connecting | Self::Disconnected, Step::Refused)
            | (Self::Disconnected, Step::SignedIn) => return Err(ConnectionStepError { from: self, step }),
        };
        Ok(next)
    }
}

impl std::fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionState as State, ConnectionStep as Step};

    #[test]
    fn a_refused_credential_ends_work_until_someone_signs_in() {
        for at_work in [State::Syncing, State::Live] {
            let refused = at_work.apply(Step::Refused).unwrap();
            assert_eq!(refused, State::NeedsReauth);
            assert!(!refused.is_at_work() && refused.has_readable_copy());
            assert!(refused.apply(Step::Copied).is_err() && refused.apply(Step::Resume).is_err());
            assert_eq!(refused.apply(Step::SignedIn), Ok(State::Syncing));
        }
    }

    #[test]
    fn what_a_person_paused_starts_only_by_a_person() {
        for step in [Step::Begin, Step::SignedIn, Step::Copied, Step::Refused, Step::Pause] {
            assert_eq!(State::Paused.apply(step), Ok(State::Paused), "{step:?}");
        }
        assert_eq!(State::Paused.apply(Step::Resume), Ok(State::Syncing));
    }

    #[test]
    fn everything_can_be_ended_and_nothing_comes_back_without_a_new_beginning() {
        for state in State::ALL {
            assert_eq!(state.apply(Step::End), Ok(State::Disconnected));
            assert_eq!(State::from_word(state.as_str()), Some(state));
        }
        for step in [Step::SignedIn, Step::Copied, Step::Refused, Step::Pause, Step::Resume] {
            assert!(State::Disconnected.apply(step).is_err(), "{step:?}");
        }
    }
}
