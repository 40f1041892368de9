//! Approvals: a question put to people, and the one answer it can get.
//!
//! One transition function, [`ApprovalState::apply`]. Promise: an approval leaves `pending` exactly
//! once; silence, lateness and lost channels are never a yes; a yes is spent by the write it was
//! given for and by nothing else.

use serde::{Deserialize, Serialize};

use crate::action::Digest;
use crate::actor::Actor;
use crate::clock::{Span, Timestamp};
use crate::ids::{AgentName, ApprovalId, HoldId, ServiceName};

pub mod allowance;
pub mod bound;
pub mod card;
pub mod command;
pub mod diagram;
pub mod mail;
pub mod reason;
pub mod reply;
pub mod risk;
pub mod voice;

/// How long a question stays open unless configured.
pub const DEFAULT_EXPIRY: Span = Span::from_hours(1);

/// How long a yes may wait for its write to start: whatever is longer of a quarter of an hour and
/// the undo window plus ten minutes.
#[must_use]
pub fn validity(delay: Span) -> Span {
    (delay + Span::from_mins(10)).max(Span::from_mins(15))
}

/// What a person answered, in the menu's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer {
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

/// Where a question stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody has answered yet.
    Pending {
        /// When silence becomes a no.
        expires_at: Timestamp,
    },
    /// A person said yes; no write has used it yet.
    Approved {
        /// Who.
        by: Actor,
        /// When.
        at: Timestamp,
        /// How.
        answer: Answer,
        /// Until when a write may start under it.
        valid_until: Timestamp,
    },
    /// The write it was given for has started.
    Consumed {
        /// Who had said yes.
        by: Actor,
        /// When they did.
        at: Timestamp,
        /// How.
        answer: Answer,
        /// Until when the same write may be attempted again under it.
        valid_until: Timestamp,
    },
    /// A person said no.
    Denied {
        /// Who.
        by: Actor,
        /// When.
        at: Timestamp,
    },
    /// Nobody answered in time.
    Expired {
        /// When it ran out.
        at: Timestamp,
    },
    /// The write went away before anyone answered.
    Withdrawn {
        /// When.
        at: Timestamp,
    },
    /// A person changed the action; the changed one has its own approval.
    Superseded {
        /// Who.
        by: Actor,
        /// When.
        at: Timestamp,
        /// The approval of the changed action.
        replacement: ApprovalId,
    },
    /// A yes that was not used in time.
    Lapsed {
        /// When.
        at: Timestamp,
    },
    /// A yes that no longer counts: the write was cancelled or the rules became stricter.
    Revoked {
        /// When.
        at: Timestamp,
    },
}

/// What can happen to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalMove {
    /// A person says yes.
    Approve {
        /// Who.
        by: Actor,
        /// When.
        at: Timestamp,
        /// How: once, session, note or always.
        answer: Answer,
        /// Until when it may be used.
        valid_until: Timestamp,
    },
    /// A person says no.
    Deny {
        /// Who.
        by: Actor,
        /// When.
        at: Timestamp,
    },
    /// A person says yes to other words than those asked about, for a client that acts by itself: the words are
    /// handed back, and nothing here carries them out.
    Reword {
        /// Who.
        by: Actor,
        /// When.
        at: Timestamp,
        /// Until when it may be used.
        valid_until: Timestamp,
    },
    /// A person changes the action.
    Supersede {
        /// Who.
        by: Actor,
        /// When.
        at: Timestamp,
        /// The approval of the changed action.
        replacement: ApprovalId,
    },
    /// Time is up.
    Expire {
        /// Now.
        at: Timestamp,
    },
    /// What was asked about is gone.
    Withdraw {
        /// When.
        at: Timestamp,
    },
    /// A write starts under it.
    Consume {
        /// Now.
        now: Timestamp,
    },
    /// It was not used in time.
    Lapse {
        /// Now.
        at: Timestamp,
    },
    /// It no longer counts.
    Revoke {
        /// When.
        at: Timestamp,
    },
}

/// Why a move is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// It has its answer.
    #[error("this question is already {status}")]
    AlreadyDecided {
        /// The state's word.
        status: &'static str,
    },
    /// Too late: silence was the answer.
    #[error("this question expired at {at}")]
    Expired {
        /// When.
        at: Timestamp,
    },
    /// Too early to expire or lapse.
    #[error("not before {until}")]
    NotYet {
        /// When.
        until: Timestamp,
    },
    /// There is no such edge.
    #[error("a question that is {from} cannot {attempted}")]
    NoEdge {
        /// The present state's word.
        from: &'static str,
        /// The move's word.
        attempted: &'static str,
    },
}

impl ApprovalState {
    /// The one transition function.
    ///
    /// # Errors
    /// When the question already has its answer, time has run out, or the move is not an edge.
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
                Answer::Once | Answer::Session | Answer::Note | Answer::Always => {
                    S::Approved { by, at, answer, valid_until }
                }
                // A no, and a changed action, are moves of their own: neither may arrive as a yes.
                Answer::Deny | Answer::Amend => return Err(ApprovalError::NoEdge { from, attempted }),
            },
            (S::Pending { .. }, M::Deny { by, at }) => S::Denied { by, at },
            (S::Pending { .. }, M::Reword { by, at, valid_until }) => {
                S::Approved { by, at, answer: Answer::Amend, valid_until }
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
            // The same write may be attempted again after a proven refusal: consuming twice is one use.
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

    /// The word for this state in rows and the record.
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
    /// The word for this move.
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

impl Answer {
    /// All answers, by number.
    pub const ALL: [Self; 6] = [Self::Once, Self::Session, Self::Deny, Self::Note, Self::Amend, Self::Always];

    /// The menu's number.
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

    /// The answer a number stands for.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.code() == code)
    }
}

/// What is asked about: one write, or many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// One write.
    Write,
    /// Every waiting write of one agent at one service, after its window tripped. May still grow.
    Batch,
    /// What a client of the approval API wants to do by itself, in its own words.
    Request,
}

/// One write under a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which.
    pub hold: HoldId,
    /// Exactly these bytes were shown.
    pub digest: Digest,
    /// Its place on the card, from 0.
    pub place: u32,
}

/// Names the actions of a card and their order: what a person who saw it can approve.
#[must_use]
pub fn card_digest<'a>(shown: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let mut bytes = b"sluice card 1\0".to_vec();
    for digest in shown {
        bytes.extend(digest.to_bytes());
    }
    Digest::of(&bytes)
}

/// A question, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// One write or a batch.
    pub subject: Subject,
    /// Who wants to.
    pub agent: AgentName,
    /// At which service.
    pub service: ServiceName,
    /// When it was put.
    pub asked_at: Timestamp,
    /// Where it stands.
    pub state: ApprovalState,
    /// Counts its moves.
    pub version: u64,
    /// What a person wrote along with a yes. Data for the agent, never an instruction to us.
    pub note: Option<String>,
    /// How many writes it asks about.
    pub items: u32,
}

impl Approval {
    /// Whether its time is up, even if no loop came by to write that down.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
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
                at: Timestamp::default(),
                answer: Answer::Once,
                valid_until: Timestamp::from_millis(9),
            };
            assert!(matches!(state.apply(yes), Err(ApprovalError::AlreadyDecided { .. })));
        }
    }

    #[test]
    fn a_late_yes_is_no_yes() {
        let expires_at = Timestamp::from_millis(10);
        let pending = ApprovalState::Pending { expires_at };
        let yes = |ms| ApprovalMove::Approve {
            by: ana(),
            at: Timestamp::from_millis(ms),
            answer: Answer::Once,
            valid_until: Timestamp::from_millis(99),
        };
        assert!(pending.clone().apply(yes(9)).is_ok());
        assert_eq!(pending.apply(yes(10)), Err(ApprovalError::Expired { at: expires_at }));
    }

    #[test]
    fn a_no_never_arrives_as_a_yes() {
        for answer in [Answer::Deny, Answer::Amend] {
            let pending = ApprovalState::Pending { expires_at: Timestamp::from_millis(10) };
            let at = Timestamp::default();
            let odd = ApprovalMove::Approve { by: ana(), at, answer, valid_until: Timestamp::from_millis(9) };
            assert!(pending.apply(odd).is_err());
        }
    }

    #[test]
    fn a_yes_that_was_not_used_in_time_lapses() {
        let valid_until = Timestamp::from_millis(50);
        let yes = ApprovalState::Approved { by: ana(), at: Timestamp::default(), answer: Answer::Once, valid_until };
        assert!(yes.clone().apply(ApprovalMove::Consume { now: Timestamp::from_millis(49) }).is_ok());
        assert!(yes.clone().apply(ApprovalMove::Consume { now: valid_until }).is_err());
        assert_eq!(yes.apply(ApprovalMove::Lapse { at: valid_until }), Ok(ApprovalState::Lapsed { at: valid_until }));
    }

    #[test]
    fn a_yes_outlives_the_undo_window() {
        assert_eq!(validity(Span::from_secs(30)), Span::from_mins(15));
        assert_eq!(validity(Span::from_hours(1)), Span::from_mins(70));
    }
}
