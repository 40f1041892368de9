//! Holds: a write that waits before it leaves, and every state it can reach.
//!
//! One transition function, [`HoldState::apply`], takes a state and a [`HoldMove`] and gives the next
//! state or says why not. The store applies it inside the transaction that records it; the history
//! checker replays the audit log through the same function; the diagram in the docs is drawn from it.
//! Promise: intent is recorded before an effect and its result after; what may have left is never
//! repeated until someone has looked.

use serde::{Deserialize, Serialize};

use crate::action::{Action, Digest};
use crate::actor::Actor;
use crate::capability::EffectClass;
use crate::clock::{Millis, UtcMillis};
use crate::ids::{AgentName, ApprovalId, CallId, HoldId, NodeName, ServiceName, SessionId};
use crate::tier::Tier;

pub mod diagram;

/// A node's claim on one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldClaim {
    /// The node that claimed it.
    pub node: NodeName,
    /// The lifetime of the node: counts its starts. Claims of an earlier lifetime belong to nobody.
    pub life: u64,
    /// Counts the claims of this hold; a result with an older number comes from a fenced node.
    pub epoch: u64,
    /// When other nodes may conclude that this node is gone.
    pub lease_until: UtcMillis,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptPhase {
    /// Nothing can have left yet: reading the state before, creating an inert handle.
    Prepare,
    /// The effect may leave at any moment.
    Armed,
}

/// Why a write was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StaleReason {
    /// No gateway was alive when it came due, for longer than the grace.
    Downtime,
    /// The database was restored from a backup; what happened since is unknown.
    Restored,
    /// What it would change has changed in the meantime.
    TargetChanged,
}

/// The state of a held write. Each state carries exactly what is true in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldState {
    /// A person must approve it first.
    AwaitingApproval {
        /// The approval request.
        approval: ApprovalId,
    },
    /// The undo window is open.
    Held {
        /// When it closes.
        not_before: UtcMillis,
    },
    /// May be claimed; after a refusal, once its back-off has passed.
    Ready {
        /// The earliest time it may be claimed.
        not_before: UtcMillis,
    },
    /// A node works on it.
    Executing {
        /// The claim of that node.
        claim: HoldClaim,
        /// How far the attempt has come.
        phase: AttemptPhase,
    },
    /// It may have been sent; the outcome is uncertain. Never repeated automatically.
    InDoubt {
        /// Since when the outcome is uncertain.
        since: UtcMillis,
        /// Number of lookups that proved nothing.
        rounds: u32,
    },
    /// Only a person can tell what happened.
    NeedsHuman {
        /// Why, as a stable code.
        code: String,
    },
    /// It was set aside; a person chooses what happens.
    Stale {
        /// Why it was set aside.
        why: StaleReason,
    },
    /// It happened.
    Done {
        /// The service's proof.
        receipt: String,
        /// When the gateway knew that it happened.
        at: UtcMillis,
    },
    /// Stopped before anything left.
    Cancelled {
        /// Who stopped it.
        by: Actor,
        /// When it was stopped.
        at: UtcMillis,
    },
    /// A person denied it.
    Denied {
        /// When it was denied.
        at: UtcMillis,
    },
    /// Nobody answered in time.
    Expired {
        /// When it expired.
        at: UtcMillis,
    },
    /// Refused permanently, or out of attempts.
    Dead {
        /// Why, as a stable code.
        code: String,
        /// When it failed.
        at: UtcMillis,
    },
    /// A person discarded it.
    Discarded {
        /// Who discarded it.
        by: Actor,
        /// When it was discarded.
        at: UtcMillis,
    },
    /// Policy forbids it.
    Blocked {
        /// When it was blocked.
        at: UtcMillis,
    },
}

/// What can be done to a held write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldMove {
    /// A person approved it; the undo window opens now.
    Approve {
        /// When it closes.
        not_before: UtcMillis,
    },
    /// A person denied it.
    Deny {
        /// When it was denied.
        at: UtcMillis,
    },
    /// Nobody answered.
    Expire {
        /// When it expired.
        at: UtcMillis,
    },
    /// A person or agent stops it.
    Cancel {
        /// Who stops it.
        by: Actor,
        /// When it is stopped.
        at: UtcMillis,
    },
    /// A person must be asked after all: batch window, stricter policy.
    PullBack {
        /// The new approval request.
        approval: ApprovalId,
    },
    /// Policy forbids it now.
    Block {
        /// When it is blocked.
        at: UtcMillis,
    },
    /// Set aside until a person chooses.
    SetAside {
        /// Why it is set aside.
        why: StaleReason,
    },
    /// Wait (again) until then: extended, announced again after downtime, or chosen after being stale.
    Rehold {
        /// When the new window closes.
        not_before: UtcMillis,
    },
    /// The undo window has closed.
    ComeDue {
        /// The current time.
        now: UtcMillis,
    },
    /// An operator closes the undo window early, or ends the wait between two attempts.
    SendNow {
        /// The current time.
        now: UtcMillis,
    },
    /// A node takes the attempt.
    Claim {
        /// The claim.
        claim: HoldClaim,
        /// The current time.
        now: UtcMillis,
    },
    /// Everything is recorded; from here the effect may leave.
    Arm,
    /// Given back before anything left.
    Release {
        /// Earliest next attempt.
        not_before: UtcMillis,
    },
    /// The service provably did nothing; try again later.
    Retry {
        /// Earliest next attempt.
        not_before: UtcMillis,
    },
    /// The service refused it permanently, or the attempts are used up.
    GiveUp {
        /// Why, as a stable code.
        code: String,
        /// When it failed.
        at: UtcMillis,
    },
    /// Bytes may have left and no clear answer came.
    Doubt {
        /// The current time.
        since: UtcMillis,
    },
    /// A lookup proved nothing.
    Inconclusive,
    /// Lookups cannot prove it: ask a person.
    AskHuman {
        /// Why, as a stable code.
        code: String,
    },
    /// It provably happened.
    Complete {
        /// The service's proof, or the evidence found.
        receipt: String,
        /// When it was proven.
        at: UtcMillis,
    },
    /// It provably did not happen; the same write may be tried again.
    ProveAbsent {
        /// Earliest next attempt.
        not_before: UtcMillis,
    },
    /// An operator gives a dead letter another undo window.
    Revive {
        /// When it closes.
        not_before: UtcMillis,
    },
    /// An operator ends it.
    Discard {
        /// Who ends it.
        by: Actor,
        /// When it is ended.
        at: UtcMillis,
    },
}

/// A move that the present state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalMove {
    /// There is no such edge.
    #[error("a write that is {from} cannot {attempted}")]
    NoEdge {
        /// The name of the present state.
        from: &'static str,
        /// The name of the move.
        attempted: &'static str,
    },
    /// The edge exists, but not yet.
    #[error("this write may not move before {until}")]
    NotYet {
        /// The earliest time.
        until: UtcMillis,
    },
}

impl HoldState {
    /// The one transition function.
    ///
    /// # Errors
    /// When the move is not an edge from this state, or comes too early.
    pub fn apply(self, next: HoldMove) -> Result<Self, IllegalMove> {
        use HoldMove as M;
        use HoldState as S;
        let (from, attempted) = (self.word(), next.word());
        Ok(match (self, next) {
            (S::AwaitingApproval { .. }, M::Approve { not_before }) => S::Held { not_before },
            (S::AwaitingApproval { .. }, M::Deny { at }) => S::Denied { at },
            (S::AwaitingApproval { .. }, M::Expire { at }) => S::Expired { at },
            // A request that is merged into another one (a batch card) is still an approval request.
            (
                S::AwaitingApproval { .. } | S::Held { .. } | S::Ready { .. } | S::Stale { .. } | S::Dead { .. },
                M::PullBack { approval },
            ) => S::AwaitingApproval { approval },
            (
                S::AwaitingApproval { .. }
                | S::Held { .. }
                | S::Ready { .. }
                | S::Stale { .. }
                | S::Executing { phase: AttemptPhase::Prepare, .. },
                M::Cancel { by, at },
            ) => S::Cancelled { by, at },
            (S::Held { .. } | S::Ready { .. }, M::Block { at }) => S::Blocked { at },
            (S::AwaitingApproval { .. } | S::Held { .. } | S::Ready { .. }, M::SetAside { why }) => S::Stale { why },
            (S::Held { .. } | S::Ready { .. } | S::Stale { .. }, M::Rehold { not_before }) => S::Held { not_before },
            (S::Held { not_before }, M::ComeDue { now }) if now >= not_before => S::Ready { not_before },
            // A person can also end the wait between two attempts.
            (S::Held { .. } | S::Ready { .. }, M::SendNow { now }) => S::Ready { not_before: now },
            (S::Ready { not_before }, M::Claim { claim, now }) if now >= not_before => {
                S::Executing { claim, phase: AttemptPhase::Prepare }
            }
            (S::Held { not_before }, M::ComeDue { .. }) | (S::Ready { not_before }, M::Claim { .. }) => {
                return Err(IllegalMove::NotYet { until: not_before });
            }
            (S::Executing { claim, phase: AttemptPhase::Prepare }, M::Arm) => {
                S::Executing { claim, phase: AttemptPhase::Armed }
            }
            (S::Executing { phase: AttemptPhase::Prepare, .. }, M::Release { not_before }) => S::Ready { not_before },
            (S::Executing { .. }, M::Retry { not_before }) => S::Ready { not_before },
            (S::Executing { .. } | S::NeedsHuman { .. }, M::GiveUp { code, at }) => S::Dead { code, at },
            (S::Executing { phase: AttemptPhase::Armed, .. }, M::Doubt { since }) => S::InDoubt { since, rounds: 0 },
            // The schedule of lookups decides how many there are.
            (S::InDoubt { since, rounds }, M::Inconclusive) => S::InDoubt { since, rounds: rounds.saturating_add(1) },
            (S::InDoubt { .. }, M::AskHuman { code }) => S::NeedsHuman { code },
            (
                S::Executing { phase: AttemptPhase::Armed, .. } | S::InDoubt { .. } | S::NeedsHuman { .. },
                M::Complete { receipt, at },
            ) => S::Done { receipt, at },
            (S::InDoubt { .. } | S::NeedsHuman { .. }, M::ProveAbsent { not_before }) => S::Ready { not_before },
            (S::Dead { .. }, M::Revive { not_before }) => S::Held { not_before },
            (S::Dead { .. } | S::Stale { .. } | S::Ready { .. }, M::Discard { by, at }) => S::Discarded { by, at },
            (_, _) => return Err(IllegalMove::NoEdge { from, attempted }),
        })
    }

    /// The name of this state in rows, answers and the audit log.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::AwaitingApproval { .. } => "awaiting_approval",
            Self::Held { .. } => "held",
            Self::Ready { .. } => "ready",
            Self::Executing { phase: AttemptPhase::Prepare, .. } => "preparing",
            Self::Executing { phase: AttemptPhase::Armed, .. } => "armed",
            Self::InDoubt { .. } => "in_doubt",
            Self::NeedsHuman { .. } => "needs_human",
            Self::Stale { .. } => "stale",
            Self::Done { .. } => "done",
            Self::Cancelled { .. } => "cancelled",
            Self::Denied { .. } => "denied",
            Self::Expired { .. } => "expired",
            Self::Dead { .. } => "dead",
            Self::Discarded { .. } => "discarded",
            Self::Blocked { .. } => "blocked",
        }
    }

    /// Whether no further move is possible.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Done { .. }
            | Self::Cancelled { .. }
            | Self::Denied { .. }
            | Self::Expired { .. }
            | Self::Discarded { .. }
            | Self::Blocked { .. } => true,
            Self::AwaitingApproval { .. }
            | Self::Held { .. }
            | Self::Ready { .. }
            | Self::Executing { .. }
            | Self::InDoubt { .. }
            | Self::NeedsHuman { .. }
            | Self::Stale { .. }
            | Self::Dead { .. } => false,
        }
    }
}

impl HoldMove {
    /// The name of this move in the audit log and in refusals.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approve",
            Self::Deny { .. } => "deny",
            Self::Expire { .. } => "expire",
            Self::Cancel { .. } => "cancel",
            Self::PullBack { .. } => "pull_back",
            Self::Block { .. } => "block",
            Self::SetAside { .. } => "set_aside",
            Self::Rehold { .. } => "rehold",
            Self::ComeDue { .. } => "come_due",
            Self::SendNow { .. } => "send_now",
            Self::Claim { .. } => "claim",
            Self::Arm => "arm",
            Self::Release { .. } => "release",
            Self::Retry { .. } => "retry",
            Self::GiveUp { .. } => "give_up",
            Self::Doubt { .. } => "doubt",
            Self::Inconclusive => "inconclusive",
            Self::AskHuman { .. } => "ask_human",
            Self::Complete { .. } => "complete",
            Self::ProveAbsent { .. } => "prove_absent",
            Self::Revive { .. } => "revive",
            Self::Discard { .. } => "discard",
        }
    }
}

/// A held write with its state.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// Its id; the API calls it `buffer_id`.
    pub id: HoldId,
    /// The call that made it.
    pub call: CallId,
    /// The session in which it was asked for.
    pub session: Option<SessionId>,
    /// The action, frozen.
    pub action: Action,
    /// The service under which batch protection and freezes count it.
    pub service: ServiceName,
    /// What an unclear outcome allows.
    pub class: EffectClass,
    /// The tier it was admitted under, after all escalations.
    pub tier: Tier,
    /// The version of the rules it was judged by.
    pub policy: String,
    /// Writes with the same key run in the order they were admitted.
    pub object_key: Option<String>,
    /// How many ordinary writes it counts as.
    pub weight: u32,
    /// How long its undo window is.
    pub delay: Millis,
    /// When it was admitted.
    pub admitted_at: UtcMillis,
    /// Its state.
    pub state: HoldState,
    /// Counts its moves; every move names the one it follows.
    pub version: u64,
    /// Counts its claims.
    pub epoch: u64,
    /// Attempts so far: claims that were not released before anything left.
    pub attempts: u32,
    /// The approval it runs under, if a person was asked.
    pub consent: Option<ApprovalId>,
    /// The service's inert handle. Once set, never replaced: it makes a repeated attempt harmless.
    pub handle: Option<String>,
    /// The write it rolls back, if it is a rollback.
    pub reverses: Option<HoldId>,
}

/// The right to perform one held write, once. Not `Clone`: performing consumes it.
#[derive(Debug, PartialEq)]
pub struct Permit {
    hold: HoldId,
    epoch: u64,
    handle: Option<String>,
    action: Action,
}

/// Why a hold was not armed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    /// It is not in the phase for it.
    #[error(transparent)]
    Move(#[from] IllegalMove),
    /// The bytes about to leave are not the bytes that were admitted and approved.
    #[error("the bytes to be sent are not the bytes that were approved")]
    Mismatch,
    /// Another handle is already stored.
    #[error("this write already has a handle")]
    SecondHandle,
}

impl Hold {
    /// Arms the attempt: the last step before an effect may leave, and the only source of permits.
    ///
    /// # Errors
    /// When the hold is not preparing, the outgoing bytes differ, or a second handle is offered.
    pub fn arm(mut self, wire: Digest, handle: Option<String>) -> Result<(Self, Permit), ArmError> {
        if wire != self.action.digest() || Digest::of(self.action.bytes()) != wire {
            return Err(ArmError::Mismatch);
        }
        self.handle = match (self.handle, handle) {
            (None, offered) => offered,
            (Some(kept), None) => Some(kept),
            (Some(kept), Some(offered)) if kept == offered => Some(kept),
            (Some(_), Some(_)) => return Err(ArmError::SecondHandle),
        };
        self.state = self.state.apply(HoldMove::Arm)?;
        let permit =
            Permit { hold: self.id, epoch: self.epoch, handle: self.handle.clone(), action: self.action.clone() };
        Ok((self, permit))
    }

    /// The agent it belongs to.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        self.action.agent()
    }

    /// When it is tried again, if an attempt failed and another one follows by itself.
    #[must_use]
    pub const fn next_attempt_at(&self) -> Option<UtcMillis> {
        match self.state {
            HoldState::Ready { not_before } if self.attempts > 0 => Some(not_before),
            _ => None,
        }
    }
}

impl Permit {
    /// The hold that may be performed.
    #[must_use]
    pub fn hold(&self) -> HoldId {
        self.hold
    }
    /// The claim that the permit belongs to; the result must name it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
    /// The handle to consume, for services that have one.
    #[must_use]
    pub fn handle(&self) -> Option<&str> {
        self.handle.as_deref()
    }
    /// The action to perform: exactly these bytes.
    #[must_use]
    pub fn action(&self) -> &Action {
        &self.action
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::diagram::{edges, moves, states};

    #[test]
    fn a_running_write_can_no_longer_be_cancelled() {
        for state in states() {
            let cancellable = matches!(state.word(), "awaiting_approval" | "held" | "ready" | "preparing" | "stale");
            let cancel = HoldMove::Cancel { by: Actor::Node(NodeName::new("n").unwrap()), at: UtcMillis::default() };
            assert_eq!(state.clone().apply(cancel).is_ok(), cancellable, "{}", state.word());
        }
    }

    #[test]
    fn nothing_follows_a_final_state() {
        for state in states().into_iter().filter(HoldState::is_final) {
            for next in moves() {
                assert!(state.clone().apply(next).is_err());
            }
        }
    }

    #[test]
    fn an_armed_write_never_goes_back_to_waiting_without_proof() {
        let back: Vec<_> = edges()
            .into_iter()
            .filter(|edge| edge.from == "armed" && matches!(edge.to, "ready" | "held" | "awaiting_approval"))
            .map(|edge| edge.by)
            .collect();
        assert_eq!(back, ["retry"]);
    }

    #[test]
    fn a_write_runs_only_after_its_window_has_closed() {
        let at = UtcMillis::from_millis(100);
        let held = HoldState::Held { not_before: at };
        let early = held.clone().apply(HoldMove::ComeDue { now: UtcMillis::from_millis(99) });
        assert_eq!(early, Err(IllegalMove::NotYet { until: at }));
        assert_eq!(held.apply(HoldMove::ComeDue { now: at }), Ok(HoldState::Ready { not_before: at }));
    }

    #[test]
    fn each_undecided_lookup_counts_and_a_person_can_be_asked_after_any() {
        let doubt = HoldState::InDoubt { since: UtcMillis::default(), rounds: 6 };
        let next = doubt.clone().apply(HoldMove::Inconclusive).unwrap();
        assert_eq!(next, HoldState::InDoubt { since: UtcMillis::default(), rounds: 7 });
        assert!(doubt.apply(HoldMove::AskHuman { code: "execute.needs_human".into() }).is_ok());
    }

    fn preparing() -> Hold {
        let action = Action::custom(
            "custom:x".parse().unwrap(),
            AgentName::new("clerk").unwrap(),
            serde_json::json!({"to": "a"}),
        )
        .unwrap();
        let state = states().into_iter().find(|state| state.word() == "preparing").unwrap();
        Hold {
            id: HoldId::from_bits(1),
            call: CallId::from_bits(1),
            session: None,
            action,
            service: ServiceName::new("custom").unwrap(),
            class: EffectClass::ConsumeOnce,
            tier: Tier::Notify,
            policy: "p".into(),
            object_key: None,
            weight: 1,
            delay: Millis::from_secs(30),
            admitted_at: UtcMillis::default(),
            state,
            version: 3,
            epoch: 1,
            attempts: 0,
            consent: None,
            handle: None,
            reverses: None,
        }
    }

    #[test]
    fn bytes_that_differ_from_the_approved_ones_are_never_armed() {
        let hold = preparing();
        assert_eq!(hold.arm(Digest::of(b"something else"), None), Err(ArmError::Mismatch));
    }

    #[test]
    fn a_stored_handle_is_never_replaced() {
        let mut hold = preparing();
        let wire = hold.action.digest();
        hold.handle = Some("draft-1".into());
        assert_eq!(hold.clone().arm(wire, Some("draft-2".into())), Err(ArmError::SecondHandle));
        let (armed, permit) = hold.arm(wire, None).unwrap();
        assert_eq!(permit.handle(), Some("draft-1"));
        assert_eq!(armed.state.word(), "armed");
    }
}
