//! The lifecycle of a held write as a list of edges and as a diagram, both generated from the code.
//!
//! Takes only the transition function; gives the edges it allows. The docs and the history
//! checker use this list, so neither can drift from what runs.

use crate::actor::Actor;
use crate::clock::UtcMillis;
use crate::hold::{AttemptPhase, HoldClaim, HoldMove, HoldState, StaleReason};
use crate::ids::{ApprovalId, NodeName};

/// One edge of the lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LifecycleEdge {
    /// The state before the move.
    pub from: &'static str,
    /// The move.
    pub by: &'static str,
    /// The state after the move.
    pub to: &'static str,
}

/// Every edge that [`HoldState::apply`] allows, sorted.
#[must_use]
pub fn edges() -> Vec<LifecycleEdge> {
    let mut edges: Vec<LifecycleEdge> = states()
        .into_iter()
        .flat_map(|state| {
            moves().into_iter().filter_map(move |step| {
                let (from, by) = (state.word(), step.word());
                state.clone().apply(step).ok().map(|next| LifecycleEdge { from, by, to: next.word() })
            })
        })
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// The lifecycle as a Mermaid state diagram.
#[must_use]
pub fn mermaid() -> String {
    let births = ["awaiting_approval", "held"].map(|to| format!("    [*] --> {to}: admit\n"));
    let arrows = edges().into_iter().map(|edge| format!("    {} --> {}: {}\n", edge.from, edge.to, edge.by));
    let deaths =
        states().into_iter().filter(HoldState::is_final).map(|state| format!("    {} --> [*]\n", state.word()));
    format!("stateDiagram-v2\n{}", births.into_iter().chain(arrows).chain(deaths).collect::<String>())
}

fn node() -> Actor {
    NodeName::new("node").map_or_else(|_| unreachable_node(), Actor::Node)
}

#[expect(clippy::panic, reason = "`node` is a valid node name; the tests call this")]
fn unreachable_node() -> Actor {
    panic!("`node` is a node name")
}

fn claim() -> HoldClaim {
    let Actor::Node(node) = node() else { return claim() };
    HoldClaim { node, life: 1, epoch: 1, lease_until: UtcMillis::default() }
}

/// One sample of every state.
#[must_use]
pub fn states() -> Vec<HoldState> {
    let (at, by, approval) = (UtcMillis::default(), node(), ApprovalId::from_bits(1));
    vec![
        HoldState::AwaitingApproval { approval },
        HoldState::Held { not_before: at },
        HoldState::Ready { not_before: at },
        HoldState::Executing { claim: claim(), phase: AttemptPhase::Prepare },
        HoldState::Executing { claim: claim(), phase: AttemptPhase::Armed },
        HoldState::InDoubt { since: at, rounds: 0 },
        HoldState::NeedsHuman { code: "execute.needs_human".into() },
        HoldState::Stale { why: StaleReason::Downtime },
        HoldState::Done { receipt: "receipt".into(), at },
        HoldState::Cancelled { by: by.clone(), at },
        HoldState::Denied { at },
        HoldState::Expired { at },
        HoldState::Dead { code: "execute.refused".into(), at },
        HoldState::Discarded { by, at },
        HoldState::Blocked { at },
    ]
}

/// One sample of every move, at a moment when every window has closed.
#[must_use]
pub fn moves() -> Vec<HoldMove> {
    let (at, by) = (UtcMillis::default(), node());
    let code = || "execute.refused".to_owned();
    vec![
        HoldMove::Approve { not_before: at },
        HoldMove::Deny { at },
        HoldMove::Expire { at },
        HoldMove::Cancel { by: by.clone(), at },
        HoldMove::PullBack { approval: ApprovalId::from_bits(2) },
        HoldMove::Block { at },
        HoldMove::SetAside { why: StaleReason::Downtime },
        HoldMove::Rehold { not_before: at },
        HoldMove::ComeDue { now: at },
        HoldMove::SendNow { now: at },
        HoldMove::Claim { claim: claim(), now: at },
        HoldMove::Arm,
        HoldMove::Release { not_before: at },
        HoldMove::Retry { not_before: at },
        HoldMove::GiveUp { code: code(), at },
        HoldMove::Doubt { since: at },
        HoldMove::Inconclusive,
        HoldMove::AskHuman { code: code() },
        HoldMove::Complete { receipt: "receipt".into(), at },
        HoldMove::ProveAbsent { not_before: at },
        HoldMove::Revive { not_before: at },
        HoldMove::Discard { by, at },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A new variant must be added to the samples: the names seen here are all names there are.
    #[test]
    fn the_samples_name_every_state_and_move_once() {
        let words: BTreeSet<_> = states().iter().map(HoldState::word).collect();
        assert_eq!(words.len(), 15);
        let words: BTreeSet<_> = moves().iter().map(HoldMove::word).collect();
        assert_eq!(words.len(), 22);
    }

    #[test]
    fn every_state_that_is_not_final_has_a_way_out_and_every_state_a_way_in() {
        let edges = edges();
        for state in states() {
            let word = state.word();
            assert_eq!(edges.iter().any(|edge| edge.from == word), !state.is_final(), "out of {word}");
            let born = ["awaiting_approval", "held"].contains(&word);
            assert!(born || edges.iter().any(|edge| edge.to == word), "into {word}");
        }
    }
}
