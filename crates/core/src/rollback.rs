//! Rollback points: what a write found, kept until it can no longer be undone.
//!
//! A point is captured before the write, sealed when the write is proven, and then undone or expired;
//! if the write never happened it is abandoned. The captured content itself lives in the store; here
//! are its fingerprints. Promise: an undo happens only while the object is still in the state that our
//! write left it in, so it never overwrites newer work.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::actor::Actor;
use crate::clock::{Span, Timestamp};
use crate::hex;

/// How long we keep a rollback point. The service may forget earlier.
pub const RETENTION: Span = Span::from_hours(72);
const DOMAIN: &[u8] = b"sluice object state v1\0";

/// What an object looked like, as a hash of the form the adapter gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// What is known once a write has been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// When.
    pub at: Timestamp,
    /// The state the write left the object in.
    pub after: Fingerprint,
    /// Until when the service itself can take it back, if it says so.
    pub service_until: Option<Timestamp>,
}

/// Where a rollback point stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackState {
    /// The write has not been proven yet.
    Captured {
        /// When.
        at: Timestamp,
        /// The state the write would change.
        before: Fingerprint,
    },
    /// The write happened and can be undone.
    Sealed {
        /// The state to go back to.
        before: Fingerprint,
        /// The state the write left.
        after: Fingerprint,
        /// From this moment on it is too late.
        until: Timestamp,
    },
    /// Taken back.
    Undone {
        /// By whom.
        by: Actor,
        /// When.
        at: Timestamp,
    },
    /// Too late to take back.
    Expired {
        /// When we noticed.
        at: Timestamp,
    },
    /// The write never happened, so there is nothing to take back.
    Abandoned {
        /// When that was certain.
        at: Timestamp,
    },
}

/// Why a rollback point cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackError {
    /// The object is no longer as our write left it.
    #[error("the object has changed since the write; undoing it would overwrite newer work")]
    Conflict {
        /// As our write left it.
        expected: Fingerprint,
        /// As it is now.
        present: Fingerprint,
    },
    /// Too late.
    #[error("the write could be undone until {until}")]
    TooLate {
        /// Until when.
        until: Timestamp,
    },
    /// Too early to expire.
    #[error("the write can be undone until {until}")]
    NotYet {
        /// Until when.
        until: Timestamp,
    },
    /// There is no such move.
    #[error("a rollback point that is {from} cannot {attempted}")]
    NoEdge {
        /// The present state's word.
        from: &'static str,
        /// The move's word.
        attempted: &'static str,
    },
}

impl RollbackState {
    /// A new point, taken before the write.
    #[must_use]
    pub const fn captured(before: Fingerprint, at: Timestamp) -> Self {
        Self::Captured { at, before }
    }

    /// The write is proven. It can be undone for as long as we and the service both remember.
    ///
    /// # Errors
    /// When the point is not freshly captured.
    pub fn seal(self, written: Written) -> Result<Self, RollbackError> {
        match self {
            Self::Captured { before, .. } => {
                let ours = written.at + RETENTION;
                let until = written.service_until.map_or(ours, |theirs| theirs.min(ours));
                Ok(Self::Sealed { before, after: written.after, until })
            }
            other @ (Self::Sealed { .. } | Self::Undone { .. } | Self::Expired { .. } | Self::Abandoned { .. }) => {
                Err(other.no_edge("be sealed"))
            }
        }
    }

    /// The write is proven never to have happened.
    ///
    /// # Errors
    /// When the write is proven to have happened, or the point is spent.
    pub fn abandon(self, at: Timestamp) -> Result<Self, RollbackError> {
        match self {
            Self::Captured { .. } => Ok(Self::Abandoned { at }),
            other @ (Self::Sealed { .. } | Self::Undone { .. } | Self::Expired { .. } | Self::Abandoned { .. }) => {
                Err(other.no_edge("be abandoned"))
            }
        }
    }

    /// Whether the write can be undone now, with the object in its present state.
    ///
    /// # Errors
    /// When it is too late, the object has changed since, or there is nothing to undo.
    pub fn check(&self, present: Fingerprint, now: Timestamp) -> Result<(), RollbackError> {
        match self {
            // The time on record counts, not whether a loop came by to write it down.
            Self::Sealed { until, .. } if now >= *until => Err(RollbackError::TooLate { until: *until }),
            Self::Sealed { after, .. } if *after != present => {
                Err(RollbackError::Conflict { expected: *after, present })
            }
            Self::Sealed { .. } => Ok(()),
            Self::Captured { .. } | Self::Undone { .. } | Self::Expired { .. } | Self::Abandoned { .. } => {
                Err(self.no_edge("be undone"))
            }
        }
    }

    /// The write has been taken back, once.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn undo(self, present: Fingerprint, by: Actor, at: Timestamp) -> Result<Self, RollbackError> {
        self.check(present, at).map(|()| Self::Undone { by, at })
    }

    /// Time is up. A captured point does not expire: its write may still be in doubt.
    ///
    /// # Errors
    /// When there is time left, or nothing that could expire.
    pub fn expire(self, now: Timestamp) -> Result<Self, RollbackError> {
        match self {
            Self::Sealed { until, .. } if now < until => Err(RollbackError::NotYet { until }),
            Self::Sealed { .. } => Ok(Self::Expired { at: now }),
            other @ (Self::Captured { .. } | Self::Undone { .. } | Self::Expired { .. } | Self::Abandoned { .. }) => {
                Err(other.no_edge("expire"))
            }
        }
    }

    /// The word used in rows and answers.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Captured { .. } => "captured",
            Self::Sealed { .. } => "sealed",
            Self::Undone { .. } => "undone",
            Self::Expired { .. } => "expired",
            Self::Abandoned { .. } => "abandoned",
        }
    }

    const fn no_edge(&self, attempted: &'static str) -> RollbackError {
        RollbackError::NoEdge { from: self.word(), attempted }
    }
}

impl RollbackError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "rollback.conflict",
            Self::TooLate { .. } | Self::NoEdge { from: "expired", .. } => "rollback.expired",
            Self::NotYet { .. } | Self::NoEdge { .. } => "rollback.not_possible",
        }
    }
}

impl Fingerprint {
    /// Of an object's state, in the one form its adapter always gives it.
    #[must_use]
    pub fn of(state: &[u8]) -> Self {
        Self(Sha256::new().chain_update(DOMAIN).chain_update(state).finalize().into())
    }
    /// As stored.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }
    /// Reads the stored form.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PersonName;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_730_000_000_000);

    fn ana() -> Actor {
        Actor::Person(PersonName::new("ana").unwrap())
    }

    fn captured() -> RollbackState {
        RollbackState::captured(Fingerprint::of(b"inbox"), NOW)
    }

    fn sealed(service_until: Option<Timestamp>) -> RollbackState {
        captured().seal(Written { at: NOW, after: Fingerprint::of(b"trash"), service_until }).unwrap()
    }

    fn ended() -> [RollbackState; 3] {
        [
            RollbackState::Undone { by: ana(), at: NOW },
            RollbackState::Expired { at: NOW },
            RollbackState::Abandoned { at: NOW },
        ]
    }

    #[test]
    fn a_write_can_be_undone_once_while_the_object_is_as_we_left_it() {
        let undone = sealed(None).undo(Fingerprint::of(b"trash"), ana(), NOW).unwrap();
        assert_eq!(undone, RollbackState::Undone { by: ana(), at: NOW });
        let again = undone.undo(Fingerprint::of(b"trash"), ana(), NOW).unwrap_err();
        assert_eq!(again, RollbackError::NoEdge { from: "undone", attempted: "be undone" });
        assert_eq!(again.code(), "rollback.not_possible");
    }

    #[test]
    fn the_shorter_memory_of_ours_and_the_services_counts() {
        let until = |state: &RollbackState| match state {
            RollbackState::Sealed { until, .. } => *until,
            other => panic!("{other:?} has no end"),
        };
        assert_eq!(until(&sealed(None)), NOW + Span::from_hours(72));
        assert_eq!(until(&sealed(Some(NOW + Span::from_hours(24)))), NOW + Span::from_hours(24));
        assert_eq!(until(&sealed(Some(NOW + Span::from_hours(720)))), NOW + Span::from_hours(72));
    }

    #[test]
    fn too_late_is_too_late_even_before_the_loop_came_by() {
        let end = NOW + RETENTION;
        let late = sealed(None).undo(Fingerprint::of(b"trash"), ana(), end).unwrap_err();
        assert_eq!((late.clone(), late.code()), (RollbackError::TooLate { until: end }, "rollback.expired"));
        let last = Timestamp::from_millis(end.as_millis() - 1);
        assert!(sealed(None).undo(Fingerprint::of(b"trash"), ana(), last).is_ok());
        assert_eq!(sealed(None).expire(last), Err(RollbackError::NotYet { until: end }));
        let expired = sealed(None).expire(end).unwrap();
        assert_eq!(expired.undo(Fingerprint::of(b"trash"), ana(), NOW).unwrap_err().code(), "rollback.expired");
    }

    #[test]
    fn a_write_in_doubt_keeps_its_point_until_it_is_proven_either_way() {
        assert!(captured().expire(NOW + Span::from_hours(1000)).is_err());
        assert!(captured().undo(Fingerprint::of(b"inbox"), ana(), NOW).is_err());
        assert_eq!(captured().abandon(NOW), Ok(RollbackState::Abandoned { at: NOW }));
        assert!(sealed(None).abandon(NOW).is_err(), "a write that happened is never abandoned");
    }

    #[test]
    fn an_ended_point_never_moves_again() {
        let trash = Fingerprint::of(b"trash");
        for state in ended() {
            assert!(state.clone().seal(Written { at: NOW, after: trash, service_until: None }).is_err(), "{state:?}");
            assert!(state.clone().abandon(NOW).is_err(), "{state:?}");
            assert!(state.clone().expire(NOW + RETENTION).is_err(), "{state:?}");
            assert!(state.clone().undo(trash, ana(), NOW).is_err(), "{state:?}");
        }
    }

    #[test]
    fn the_fingerprint_is_pinned() {
        assert_eq!(
            Fingerprint::of(b"trash").to_string(),
            "5ef12c782ce17eefa22e0145d95ff8a913628112d47908e25642a9c40b17a206"
        );
        let bytes = Fingerprint::of(b"trash").to_bytes();
        assert_eq!(Fingerprint::from_bytes(&bytes), Some(Fingerprint::of(b"trash")));
        assert_eq!(Fingerprint::from_bytes(&bytes[..31]), None);
    }

    proptest! {
        #[test]
        fn an_object_in_any_other_state_is_left_alone(present in prop::collection::vec(any::<u8>(), 0..16)) {
            let found = Fingerprint::of(&present);
            let answer = sealed(None).undo(found, ana(), NOW);
            if present == b"trash" {
                prop_assert!(answer.is_ok());
            } else {
                prop_assert_eq!(answer.map_err(|error| error.code()), Err("rollback.conflict"));
            }
        }
    }
}
