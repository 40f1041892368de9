//! Rollback points: the state before a write, kept until the write can no longer be undone.
//!
//! A point is captured before the write, sealed when the write is proven, and then undone or expired;
//! if the write never happened it is abandoned. The captured content itself lives in the store; here
//! are its fingerprints. Promise: an undo happens only while the object is still in the state that our
//! write left it in, so it never overwrites newer work.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::actor::Actor;
use crate::clock::{Millis, UtcMillis};
use crate::hex;

/// How long we keep a rollback point. The service may forget earlier.
pub const RETENTION: Millis = Millis::from_hours(72);
const DOMAIN: &[u8] = b"sluice object state v1\0";

/// The state of an object, as a hash of the form the adapter gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectFingerprint([u8; 32]);

/// What is known once a write was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackWriteRecord {
    /// When it was carried out.
    pub at: UtcMillis,
    /// The state the write left the object in.
    pub after: ObjectFingerprint,
    /// Until when the service itself can undo it, if the service says so.
    pub service_until: Option<UtcMillis>,
}

/// The state of a rollback point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackState {
    /// The write has not been proven yet.
    Captured {
        /// When it was captured.
        at: UtcMillis,
        /// The state before the write.
        before: ObjectFingerprint,
    },
    /// The write happened and can be undone.
    Sealed {
        /// The state to restore.
        before: ObjectFingerprint,
        /// The state the write left.
        after: ObjectFingerprint,
        /// From this time on it is too late.
        until: UtcMillis,
    },
    /// The write was undone.
    Undone {
        /// Who undid it.
        by: Actor,
        /// When it was undone.
        at: UtcMillis,
    },
    /// Too late to undo.
    Expired {
        /// When the gateway noticed.
        at: UtcMillis,
    },
    /// The write never happened, so there is nothing to undo.
    Abandoned {
        /// When that was certain.
        at: UtcMillis,
    },
}

/// Why a move of a rollback point is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackError {
    /// The object is no longer in the state in which our write left it.
    #[error("the object has changed since the write; undoing it would overwrite newer work")]
    Conflict {
        /// The state in which our write left it.
        expected: ObjectFingerprint,
        /// Its present state.
        present: ObjectFingerprint,
    },
    /// Too late.
    #[error("the write could be undone until {until}")]
    TooLate {
        /// Until when.
        until: UtcMillis,
    },
    /// Too early to expire.
    #[error("the write can be undone until {until}")]
    NotYet {
        /// Until when.
        until: UtcMillis,
    },
    /// There is no such move.
    #[error("a rollback point that is {from} cannot {attempted}")]
    NoEdge {
        /// The name of the present state.
        from: &'static str,
        /// The name of the move.
        attempted: &'static str,
    },
}

impl RollbackState {
    /// A new point, taken before the write.
    #[must_use]
    pub const fn captured(before: ObjectFingerprint, at: UtcMillis) -> Self {
        Self::Captured { at, before }
    }

    /// Notes that the write is proven. It can be undone for as long as both the gateway and the service keep the state.
    ///
    /// # Errors
    /// When the point is not freshly captured.
    pub fn seal(self, written: RollbackWriteRecord) -> Result<Self, RollbackError> {
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

    /// Notes that the write is proven never to have happened.
    ///
    /// # Errors
    /// When the write is proven to have happened, or the point is in a final state.
    pub fn abandon(self, at: UtcMillis) -> Result<Self, RollbackError> {
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
    pub fn check(&self, present: ObjectFingerprint, now: UtcMillis) -> Result<(), RollbackError> {
        match self {
            // The recorded time counts, not whether a loop has already noted the expiry.
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

    /// Notes that the write was undone, once.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn undo(self, present: ObjectFingerprint, by: Actor, at: UtcMillis) -> Result<Self, RollbackError> {
        self.check(present, at).map(|()| Self::Undone { by, at })
    }

    /// Expires the point. A captured point does not expire: the outcome of its write may still be uncertain.
    ///
    /// # Errors
    /// When there is time left, or the point cannot expire.
    pub fn expire(self, now: UtcMillis) -> Result<Self, RollbackError> {
        match self {
            Self::Sealed { until, .. } if now < until => Err(RollbackError::NotYet { until }),
            Self::Sealed { .. } => Ok(Self::Expired { at: now }),
            other @ (Self::Captured { .. } | Self::Undone { .. } | Self::Expired { .. } | Self::Abandoned { .. }) => {
                Err(other.no_edge("expire"))
            }
        }
    }

    /// The name used in rows and answers.
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

impl ObjectFingerprint {
    /// The fingerprint of an object's state, in the one form its adapter always gives it.
    #[must_use]
    pub fn of(state: &[u8]) -> Self {
        Self(Sha256::new().chain_update(DOMAIN).chain_update(state).finalize().into())
    }
    /// The stored form.
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

impl fmt::Display for ObjectFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for ObjectFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PersonName;
    use proptest::prelude::*;

    const NOW: UtcMillis = UtcMillis::from_millis(1_730_000_000_000);

    fn ana() -> Actor {
        Actor::Person(PersonName::new("ana").unwrap())
    }

    fn captured() -> RollbackState {
        RollbackState::captured(ObjectFingerprint::of(b"inbox"), NOW)
    }

    fn sealed(service_until: Option<UtcMillis>) -> RollbackState {
        captured().seal(RollbackWriteRecord { at: NOW, after: ObjectFingerprint::of(b"trash"), service_until }).unwrap()
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
        let undone = sealed(None).undo(ObjectFingerprint::of(b"trash"), ana(), NOW).unwrap();
        assert_eq!(undone, RollbackState::Undone { by: ana(), at: NOW });
        let again = undone.undo(ObjectFingerprint::of(b"trash"), ana(), NOW).unwrap_err();
        assert_eq!(again, RollbackError::NoEdge { from: "undone", attempted: "be undone" });
        assert_eq!(again.code(), "rollback.not_possible");
    }

    #[test]
    fn the_shorter_memory_of_ours_and_the_services_counts() {
        let until = |state: &RollbackState| match state {
            RollbackState::Sealed { until, .. } => *until,
            other => panic!("{other:?} has no end"),
        };
        assert_eq!(until(&sealed(None)), NOW + Millis::from_hours(72));
        assert_eq!(until(&sealed(Some(NOW + Millis::from_hours(24)))), NOW + Millis::from_hours(24));
        assert_eq!(until(&sealed(Some(NOW + Millis::from_hours(720)))), NOW + Millis::from_hours(72));
    }

    #[test]
    fn too_late_is_too_late_even_before_the_loop_came_by() {
        let end = NOW + RETENTION;
        let late = sealed(None).undo(ObjectFingerprint::of(b"trash"), ana(), end).unwrap_err();
        assert_eq!((late.clone(), late.code()), (RollbackError::TooLate { until: end }, "rollback.expired"));
        let last = UtcMillis::from_millis(end.as_millis() - 1);
        assert!(sealed(None).undo(ObjectFingerprint::of(b"trash"), ana(), last).is_ok());
        assert_eq!(sealed(None).expire(last), Err(RollbackError::NotYet { until: end }));
        let expired = sealed(None).expire(end).unwrap();
        assert_eq!(expired.undo(ObjectFingerprint::of(b"trash"), ana(), NOW).unwrap_err().code(), "rollback.expired");
    }

    #[test]
    fn a_write_in_doubt_keeps_its_point_until_it_is_proven_either_way() {
        assert!(captured().expire(NOW + Millis::from_hours(1000)).is_err());
        assert!(captured().undo(ObjectFingerprint::of(b"inbox"), ana(), NOW).is_err());
        assert_eq!(captured().abandon(NOW), Ok(RollbackState::Abandoned { at: NOW }));
        assert!(sealed(None).abandon(NOW).is_err(), "a write that happened is never abandoned");
    }

    #[test]
    fn an_ended_point_never_moves_again() {
        let trash = ObjectFingerprint::of(b"trash");
        for state in ended() {
            assert!(
                state.clone().seal(RollbackWriteRecord { at: NOW, after: trash, service_until: None }).is_err(),
                "{state:?}"
            );
            assert!(state.clone().abandon(NOW).is_err(), "{state:?}");
            assert!(state.clone().expire(NOW + RETENTION).is_err(), "{state:?}");
            assert!(state.clone().undo(trash, ana(), NOW).is_err(), "{state:?}");
        }
    }

    #[test]
    fn the_fingerprint_is_pinned() {
        assert_eq!(
            ObjectFingerprint::of(b"trash").to_string(),
            "5ef12c782ce17eefa22e0145d95ff8a913628112d47908e25642a9c40b17a206"
        );
        let bytes = ObjectFingerprint::of(b"trash").to_bytes();
        assert_eq!(ObjectFingerprint::from_bytes(&bytes), Some(ObjectFingerprint::of(b"trash")));
        assert_eq!(ObjectFingerprint::from_bytes(&bytes[..31]), None);
    }

    proptest! {
        #[test]
        fn an_object_in_any_other_state_is_left_alone(present in prop::collection::vec(any::<u8>(), 0..16)) {
            let found = ObjectFingerprint::of(&present);
            let answer = sealed(None).undo(found, ana(), NOW);
            if present == b"trash" {
                prop_assert!(answer.is_ok());
            } else {
                prop_assert_eq!(answer.map_err(|error| error.code()), Err("rollback.conflict"));
            }
        }
    }
}
