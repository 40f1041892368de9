//! The held write's lifecycle as a list of edges and as a picture, both drawn from the code.
//!
//! Takes nothing but the transition function; gives what it allows. The docs and the history
//! checker use this list, so neither can drift from what runs.

use crate::actor::Actor;
use crate::clock::Timestamp;
use crate::hold::{Claim, HoldState, Move, Phase, Staleness};
use crate::ids::{ApprovalId, NodeName};

/// One arrow of the lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// Where from.
    pub from: &'static str,
    /// By which move.
    pub by: &'static str,
    /// Where to.
    pub to: &'static str,
}

/// Every edge that [`HoldState::apply`] allows, sorted.
#[must_use]
pub fn edges() -> Vec<Edge> {
    let mut edges: Vec<Edge> = states()
        .into_iter()
        .flat_map(|state| {
            moves().into_iter().filter_map(move |step| {
                let (from, by) = (state.word(), step.word());
                state.clone().apply(step).ok().map(|next| Edge { from, by, to: next.word() })
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

fn claim() -> Claim {
    let Actor::Node(node) = node() else { return claim() };
    Claim { node, life: 1, epoch: 1, lease_until: Timestamp::default() }
}

/// One sample of every state.
#[must_use]
pub fn states() -> Vec<HoldState> {
    let (at, by, approval) = (Timestamp::default(), node(), ApprovalId::from_bits(1));
    vec![
        HoldState::AwaitingApproval { approval },
        HoldState::Held { not_before: at },
        HoldState::Ready { not_before: at },
        HoldState::Executing { claim: claim(), phase: Phase::Prepare },
        HoldState::Executing { claim: claim(), phase: Phase::Armed },
        HoldState::InDoubt { since: at, rounds: 0 },
        HoldState::NeedsHuman { code: "execute.needs_human".into() },
        HoldState::Stale { why: Staleness::Downtime },
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
pub fn moves() -> Vec<Move> {
    let (at, by) = (Timestamp::default(), node());
    let code = || "execute.refused".to_owned();
    vec![
        Move::Approve { not_before: at },
        Move::Deny { at },
        Move::Expire { at },
        Move::Cancel { by: by.clone(), at },
        Move::PullBack { approval: ApprovalId::from_bits(2) },
        Move::Block { at },
        Move::SetAside { why: Staleness::Downtime },
        Move::Rehold { not_before: at },
        Move::ComeDue { now: at },
        Move::SendNow { now: at },
        Move::Claim { claim: claim(), now: at },
        Move::Arm,
        Move::Release { not_before: at },
        Move::Retry { not_before: at },
        Move::GiveUp { code: code(), at },
        Move::Doubt { since: at },
        Move::Inconclusive,
        Move::AskHuman { code: code() },
        Move::Complete { receipt: "receipt".into(), at },
        Move::ProveAbsent { not_before: at },
        Move::Revive { not_before: at },
        Move::Discard { by, at },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A new variant must be added to the samples: the words seen here are the words there are.
    #[test]
    fn the_samples_name_every_state_and_move_once() {
        let words: BTreeSet<_> = states().iter().map(HoldState::word).collect();
        assert_eq!(words.len(), 15);
        let words: BTreeSet<_> = moves().iter().map(Move::word).collect();
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
