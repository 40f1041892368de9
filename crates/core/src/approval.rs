//! Approvals: a request put to people, and the one answer it can get.
//!
//! One transition function, [`ApprovalState::apply`]. Promise: an approval leaves `pending` exactly
//! once; silence, a late answer and a lost channel never approve anything; an approval is used by the
//! write it was given for and by nothing else.

use serde::{Deserialize, Serialize};

use crate::action::Digest;
use crate::actor::Actor;
use crate::clock::{Millis, UtcMillis};
use crate::ids::{AgentName, ApprovalId, HoldId, ServiceName};

pub mod allowance;
pub mod bound;
pub mod card;
pub mod command;
pub mod diagram;
pub mod mail;
pub mod reason;
pub mod reply;
pub mod reply_meaning;
pub mod risk;

/// How long an approval request stays open unless configured.
pub const DEFAULT_EXPIRY: Millis = Millis::from_hours(1);

/// How long an approval is valid for its write to start: 15 minutes, or the undo window plus ten
/// minutes if that is longer.
#[must_use]
pub fn validity(delay: Millis) -> Millis {
    (delay + Millis::from_mins(10)).max(Millis::from_mins(15))
}

/// A person's answer, by its number in the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ApprovalAnswer {
    /// Allow once.
    #[serde(rename = "1")]
    Once,
    /// Allow for this session.
    #[serde(rename = "2")]
    Session,
    /// Deny.
    #[serde(rename = "3")]
    Deny,
    /// Allow once, with a note.
    #[serde(rename = "4")]
    Note,
    /// Modify, then allow.
    #[serde(rename = "5")]
    Amend,
    /// Always allow this action type.
    #[serde(rename = "6")]
    Always,
}

/// The state of an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody has answered yet.
    Pending {
        /// When the request expires if nobody answers.
        expires_at: UtcMillis,
    },
    /// A person approved it; no write has used the approval yet.
    Approved {
        /// Who approved it.
        by: Actor,
        /// When it was approved.
        at: UtcMillis,
        /// Which answer approved it.
        answer: ApprovalAnswer,
        /// Until when a write may start under it.
        valid_until: UtcMillis,
    },
    /// The write it was given for has started.
    Consumed {
        /// Who approved it.
        by: Actor,
        /// When it was approved.
        at: UtcMillis,
        /// Which answer approved it.
        answer: ApprovalAnswer,
        /// Until when the same write may be attempted again under it.
        valid_until: UtcMillis,
    },
    /// A person denied it.
    Denied {
        /// Who denied it.
        by: Actor,
        /// When it was denied.
        at: UtcMillis,
    },
    /// Nobody answered in time.
    Expired {
        /// When it expired.
        at: UtcMillis,
    },
    /// The write ended before anyone answered.
    Withdrawn {
        /// When it was withdrawn.
        at: UtcMillis,
    },
    /// A person changed the action; the changed one has its own approval.
    Superseded {
        /// Who changed the action.
        by: Actor,
        /// When it was changed.
        at: UtcMillis,
        /// The approval of the changed action.
        replacement: ApprovalId,
    },
    /// An approval that was not used in time.
    Lapsed {
        /// When it lapsed.
        at: UtcMillis,
    },
    /// An approval that no longer counts: the write was cancelled or the rules became stricter.
    Revoked {
        /// When it was revoked.
        at: UtcMillis,
    },
}

/// A change of an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalMove {
    /// A person approves.
    Approve {
        /// Who approves.
        by: Actor,
        /// When they approve.
        at: UtcMillis,
        /// The answer: once, session, note or always.
        answer: ApprovalAnswer,
        /// Until when a write may start under it.
        valid_until: UtcMillis,
    },
    /// A person denies.
    Deny {
        /// Who denies.
        by: Actor,
        /// When they deny.
        at: UtcMillis,
    },
    /// A person approves a changed text, for a client that acts by itself: the client gets the changed text,
    /// and the gateway carries out nothing.
    Reword {
        /// Who changed the text.
        by: Actor,
        /// When they changed it.
        at: UtcMillis,
        /// Until when it may be used.
        valid_until: UtcMillis,
    },
    /// A person changes the action.
    Supersede {
        /// Who changes the action.
        by: Actor,
        /// When they change it.
        at: UtcMillis,
        /// The approval of the changed action.
        replacement: ApprovalId,
    },
    /// The expiry time has passed.
    Expire {
        /// The current time.
        at: UtcMillis,
    },
    /// The write that the request is about is gone.
    Withdraw {
        /// When it is withdrawn.
        at: UtcMillis,
    },
    /// A write starts under it.
    Consume {
        /// The current time.
        now: UtcMillis,
    },
    /// The approval was not used in time.
    Lapse {
        /// The current time.
        at: UtcMillis,
    },
    /// The approval no longer counts.
    Revoke {
        /// When it is revoked.
        at: UtcMillis,
    },
}

/// Why a move is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// The request already has its answer.
    #[error("this approval request is already {status}")]
    AlreadyDecided {
        /// The name of the current state.
        status: &'static str,
    },
    /// Too late: the request has expired.
    #[error("this approval request expired at {at}")]
    Expired {
        /// When it expired.
        at: UtcMillis,
    },
    /// Too early to expire or lapse.
    #[error("not before {until}")]
    NotYet {
        /// The earliest time.
        until: UtcMillis,
    },
    /// There is no such edge.
    #[error("an approval request that is {from} cannot {attempted}")]
    NoEdge {
        /// The name of the current state.
        from: &'static str,
        /// The name of the attempted move.
        attempted: &'static str,
    },
}

impl ApprovalState {
    /// The one transition function.
    ///
    /// # Errors
    /// When the request already has its answer, has expired, or the move is not an edge.
    pub fn apply(self, next: ApprovalMove) -> Result<Self, ApprovalError> {
        use ApprovalMove as M;
        use ApprovalState as S;
        let (from, attempted) = (self.word(), next.word());
        Ok(match (self, next) {
            (
                S::Pending { expires_at },
                M::Approve { at, .. } | M::Deny { at, .. } | M::Reword { at, .. } | M::Supersede { at, .. },
            ) if at >= expires_at => {
                return Err(ApprovalError::Expired { at: expires_at });
            }
            (S::Pending { .. }, M::Approve { by, at, answer, valid_until }) => match answer {
                ApprovalAnswer::Once | ApprovalAnswer::Session | ApprovalAnswer::Note | ApprovalAnswer::Always => {
                    S::Approved { by, at, answer, valid_until }
                }
                // A denial and a changed action have moves of their own: neither may arrive as an approval.
                ApprovalAnswer::Deny | ApprovalAnswer::Amend => return Err(ApprovalError::NoEdge { from, attempted }),
            },
            (S::Pending { .. }, M::Deny { by, at }) => S::Denied { by, at },
            (S::Pending { .. }, M::Reword { by, at, valid_until }) => {
                S::Approved { by, at, answer: ApprovalAnswer::Amend, valid_until }
            }
            (S::Pending { .. }, M::Supersede { by, at, replacement }) => S::Superseded { by, at, replacement },
            (S::Pending { expires_at }, M::Expire { at }) if at >= expires_at => S::Expired { at: expires_at },
            (S::Pending { expires_at }, M::Expire { .. }) => return Err(ApprovalError::NotYet { until: expires_at }),
            (S::Pending { .. }, M::Withdraw { at }) => S::Withdrawn { at },
            (S::Approved { valid_until, .. } | S::Consumed { valid_until, .. }, M::Consume { now })
                if now >= valid_until =>
            {
                return Err(ApprovalError::Expired { at: valid_until });
            }
            // The same write may be attempted again after a proven refusal: consuming twice counts as one use.
            (
                S::Approved { by, at, answer, valid_until } | S::Consumed { by, at, answer, valid_until },
                M::Consume { .. },
            ) => S::Consumed { by, at, answer, valid_until },
            (S::Approved { valid_until, .. } | S::Consumed { valid_until, .. }, M::Lapse { at })
                if at >= valid_until =>
            {
                S::Lapsed { at }
            }
            (S::Approved { valid_until, .. } | S::Consumed { valid_until, .. }, M::Lapse { .. }) => {
                return Err(ApprovalError::NotYet { until: valid_until });
            }
            (S::Approved { .. } | S::Consumed { .. }, M::Revoke { at }) => S::Revoked { at },
            (_, M::Approve { .. } | M::Deny { .. } | M::Reword { .. } | M::Supersede { .. }) => {
                return Err(ApprovalError::AlreadyDecided { status: from });
            }
            (_, _) => return Err(ApprovalError::NoEdge { from, attempted }),
        })
    }

    /// The name of this state in rows and in the audit log.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Approved { .. } => "approved",
            Self::Consumed { .. } => "consumed",
            Self::Denied { .. } => "denied",
            Self::Expired { .. } => "expired",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Superseded { .. } => "superseded",
            Self::Lapsed { .. } => "lapsed",
            Self::Revoked { .. } => "revoked",
        }
    }

    /// Whether a person can still answer.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

impl ApprovalMove {
    /// The name of this move.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approve",
            Self::Deny { .. } => "deny",
            Self::Reword { .. } => "reword",
            Self::Supersede { .. } => "supersede",
            Self::Expire { .. } => "expire",
            Self::Withdraw { .. } => "withdraw",
            Self::Consume { .. } => "consume",
            Self::Lapse { .. } => "lapse",
            Self::Revoke { .. } => "revoke",
        }
    }
}

impl ApprovalAnswer {
    /// All answers, by number.
    pub const ALL: [Self; 6] = [Self::Once, Self::Session, Self::Deny, Self::Note, Self::Amend, Self::Always];

    /// Its number in the menu.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Once => "1",
            Self::Session => "2",
            Self::Deny => "3",
            Self::Note => "4",
            Self::Amend => "5",
            Self::Always => "6",
        }
    }

    /// The answer with this number.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.code() == code)
    }
}

/// What an approval request is about: one write, or many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalSubject {
    /// One write.
    Write,
    /// Every waiting write of one agent at one service after its batch window tripped. May still grow.
    Batch,
    /// An action that a client of the approval API wants to carry out by itself, in the client's words.
    Request,
}

/// One write of an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalItem {
    /// The held write.
    pub hold: HoldId,
    /// The digest of the action that was shown.
    pub digest: Digest,
    /// Its position on the card, from 0.
    pub place: u32,
}

/// The digest of all actions on a card, in their order: it names what a person who saw the card can approve.
#[must_use]
pub fn card_digest<'a>(shown: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let mut bytes = b"sluice card 1\0".to_vec();
    for digest in shown {
        bytes.extend(digest.to_bytes());
    }
    Digest::of(&bytes)
}

/// An approval request with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// One write, a batch, or an action of a client.
    pub subject: ApprovalSubject,
    /// The agent that wants to act.
    pub agent: AgentName,
    /// The service it wants to act at.
    pub service: ServiceName,
    /// When the request was made.
    pub asked_at: UtcMillis,
    /// Its state.
    pub state: ApprovalState,
    /// Counts its changes of state.
    pub version: u64,
    /// What a person wrote when approving. Data for the agent, never an instruction to the gateway.
    pub note: Option<String>,
    /// How many writes it asks about.
    pub items: u32,
}

impl Approval {
    /// Whether its expiry time has passed, even if no loop has recorded the expiry yet.
    #[must_use]
    pub fn is_over(&self, now: UtcMillis) -> bool {
        matches!(self.state, ApprovalState::Pending { expires_at } if now >= expires_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval::diagram::{moves, states};
    use crate::ids::PersonName;

    fn ana() -> Actor {
        Actor::Person(PersonName::new("ana").unwrap())
    }

    #[test]
    fn an_approval_leaves_pending_exactly_once() {
        for state in states().into_iter().filter(|state| !state.is_open()) {
            for next in moves() {
                if let Ok(after) = state.clone().apply(next) {
                    assert!(!after.is_open());
                }
            }
            let yes = ApprovalMove::Approve {
                by: ana(),
                at: UtcMillis::default(),
                answer: ApprovalAnswer::Once,
                valid_until: UtcMillis::from_millis(9),
            };
            assert!(matches!(state.apply(yes), Err(ApprovalError::AlreadyDecided { .. })));
        }
    }

    #[test]
    fn a_late_yes_is_no_yes() {
        let expires_at = UtcMillis::from_millis(10);
        let pending = ApprovalState::Pending { expires_at };
        let yes = |ms| ApprovalMove::Approve {
            by: ana(),
            at: UtcMillis::from_millis(ms),
            answer: ApprovalAnswer::Once,
            valid_until: UtcMillis::from_millis(99),
        };
        assert!(pending.clone().apply(yes(9)).is_ok());
        assert_eq!(pending.apply(yes(10)), Err(ApprovalError::Expired { at: expires_at }));
    }

    #[test]
    fn a_no_never_arrives_as_a_yes() {
        for answer in [ApprovalAnswer::Deny, ApprovalAnswer::Amend] {
            let pending = ApprovalState::Pending { expires_at: UtcMillis::from_millis(10) };
            let at = UtcMillis::default();
            let odd = ApprovalMove::Approve { by: ana(), at, answer, valid_until: UtcMillis::from_millis(9) };
            assert!(pending.apply(odd).is_err());
        }
    }

    #[test]
    fn a_yes_that_was_not_used_in_time_lapses() {
        let valid_until = UtcMillis::from_millis(50);
        let yes =
            ApprovalState::Approved { by: ana(), at: UtcMillis::default(), answer: ApprovalAnswer::Once, valid_until };
        assert!(yes.clone().apply(ApprovalMove::Consume { now: UtcMillis::from_millis(49) }).is_ok());
        assert!(yes.clone().apply(ApprovalMove::Consume { now: valid_until }).is_err());
        assert_eq!(yes.apply(ApprovalMove::Lapse { at: valid_until }), Ok(ApprovalState::Lapsed { at: valid_until }));
    }

    #[test]
    fn a_yes_outlives_the_undo_window() {
        assert_eq!(validity(Millis::from_secs(30)), Millis::from_mins(15));
        assert_eq!(validity(Millis::from_hours(1)), Millis::from_mins(70));
    }
}
