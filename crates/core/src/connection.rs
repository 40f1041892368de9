//! How a connected service stands: from the first knock to the receipt of its end.
//!
//! One function from a state and a step to the next state or the reason why not. Promise: what a person
//! stopped starts only by a person, and whoever needs a new sign-in is never asked of the service again
//! before there was one.

use serde::Serialize;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// A person is signing in.
    Connecting,
    /// Signed in; the first copy is being made.
    Syncing,
    /// The copy is whole and is kept up to date.
    Live,
    /// A person stopped it for a while.
    Paused,
    /// The service no longer takes our credential: a person has to sign in again.
    NeedsReauth,
    /// It is over; what is left is the record of it.
    Disconnected,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionStep {
    /// A person begins to sign in, for the first time or again.
    Begin,
    /// The credential is there.
    SignedIn,
    /// The first copy is whole.
    Copied,
    /// The service refused the credential.
    Refused,
    /// A person stops it for a while.
    Pause,
    /// A person lets it go on.
    Resume,
    /// A person ends it.
    End,
}

/// A step that is not possible from where the connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a connection that is {} cannot do this", .from.as_str())]
pub struct NotNow {
    /// Where it stands.
    pub from: ConnectionState,
    /// What was wanted.
    pub step: ConnectionStep,
}

impl ConnectionState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Connecting, Self::Syncing, Self::Live, Self::Paused, Self::NeedsReauth, Self::Disconnected];

    /// The word in rows and answers.
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

    /// The state of this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the copy is kept and writes may leave.
    #[must_use]
    pub const fn is_at_work(self) -> bool {
        match self {
            Self::Syncing | Self::Live => true,
            Self::Connecting | Self::Paused | Self::NeedsReauth | Self::Disconnected => false,
        }
    }

    /// Whether there is a copy that answers, however old it is.
    #[must_use]
    pub const fn answers(self) -> bool {
        match self {
            Self::Syncing | Self::Live | Self::Paused | Self::NeedsReauth => true,
            Self::Connecting | Self::Disconnected => false,
        }
    }

    /// The state after a step. Where the step changes nothing, the same state.
    ///
    /// # Errors
    /// When it is not possible from here.
    pub const fn after(self, step: ConnectionStep) -> Result<Self, NotNow> {
        use ConnectionStep as Step;
        let next = match (self, step) {
            (Self::Connecting | Self::Disconnected, Step::Begin) => Self::Connecting,
            // Signing in again leaves the copy where it is; until it is done, the connection stands as before.
            (Self::NeedsReauth | Self::Syncing | Self::Live | Self::Paused, Step::Begin) => self,
            (Self::Connecting | Self::NeedsReauth | Self::Syncing, Step::SignedIn) => Self::Syncing,
            (Self::Live, Step::SignedIn) => Self::Live,
            (Self::Paused, Step::SignedIn) => Self::Paused,
            (Self::Syncing | Self::Live, Step::Copied) => Self::Live,
            (Self::Syncing | Self::Live | Self::NeedsReauth, Step::Refused) => Self::NeedsReauth,
            // A person's word stands: what they paused stays paused.
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
            | (Self::Disconnected, Step::SignedIn) => return Err(NotNow { from: self, step }),
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
            let refused = at_work.after(Step::Refused).unwrap();
            assert_eq!(refused, State::NeedsReauth);
            assert!(!refused.is_at_work() && refused.answers());
            assert!(refused.after(Step::Copied).is_err() && refused.after(Step::Resume).is_err());
            assert_eq!(refused.after(Step::SignedIn), Ok(State::Syncing));
        }
    }

    #[test]
    fn what_a_person_paused_starts_only_by_a_person() {
        for step in [Step::Begin, Step::SignedIn, Step::Copied, Step::Refused, Step::Pause] {
            assert_eq!(State::Paused.after(step), Ok(State::Paused), "{step:?}");
        }
        assert_eq!(State::Paused.after(Step::Resume), Ok(State::Syncing));
    }

    #[test]
    fn everything_can_be_ended_and_nothing_comes_back_without_a_new_beginning() {
        for state in State::ALL {
            assert_eq!(state.after(Step::End), Ok(State::Disconnected));
            assert_eq!(State::from_word(state.as_str()), Some(state));
        }
        for step in [Step::SignedIn, Step::Copied, Step::Refused, Step::Pause, Step::Resume] {
            assert!(State::Disconnected.after(step).is_err(), "{step:?}");
        }
    }
}
