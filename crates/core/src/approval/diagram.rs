//! The lifecycle of an approval request as a list of edges and as a diagram, both generated from the code.

use crate::actor::Actor;
use crate::approval::{ApprovalAnswer, ApprovalMove, ApprovalState};
use crate::clock::UtcMillis;
use crate::hold::diagram::LifecycleEdge;
use crate::ids::{ApprovalId, NodeName};

/// Every edge that [`ApprovalState::apply`] allows, sorted.
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
    let arrows = edges().into_iter().map(|edge| format!("    {} --> {}: {}\n", edge.from, edge.to, edge.by));
    format!("stateDiagram-v2\n    [*] --> pending: ask\n{}", arrows.collect::<String>())
}

fn someone() -> Actor {
    NodeName::new("node").map_or_else(|_| unreachable_name(), Actor::Node)
}

#[expect(clippy::panic, reason = "`node` is a valid node name; the tests call this")]
fn unreachable_name() -> Actor {
    panic!("`node` is a node name")
}

/// The current time of the samples: after every request was made, before any expired.
const NOW: UtcMillis = UtcMillis::from_millis(5);
const LATER: UtcMillis = UtcMillis::from_millis(10);

/// One sample of every state, open ones both in time and overdue.
#[must_use]
pub fn states() -> Vec<ApprovalState> {
    let (by, at, answer) = (someone(), NOW, ApprovalAnswer::Once);
    vec![
        ApprovalState::Pending { expires_at: LATER },
        ApprovalState::Approved { by: by.clone(), at, answer, valid_until: LATER },
        ApprovalState::Consumed { by: by.clone(), at, answer, valid_until: LATER },
        ApprovalState::Denied { by: by.clone(), at },
        ApprovalState::Expired { at },
        ApprovalState::Withdrawn { at },
        ApprovalState::Superseded { by, at, replacement: ApprovalId::from_bits(2) },
        ApprovalState::Lapsed { at },
        ApprovalState::Revoked { at },
    ]
}

/// One sample of every move, at a moment when it may happen.
#[must_use]
pub fn moves() -> Vec<ApprovalMove> {
    let (by, at) = (someone(), NOW);
    vec![
        ApprovalMove::Approve { by: by.clone(), at, answer: ApprovalAnswer::Once, valid_until: LATER },
        ApprovalMove::Deny { by: by.clone(), at },
        ApprovalMove::Reword { by: by.clone(), at, valid_until: LATER },
        ApprovalMove::Supersede { by, at, replacement: ApprovalId::from_bits(2) },
        ApprovalMove::Expire { at: LATER },
        ApprovalMove::Withdraw { at },
        ApprovalMove::Consume { now: NOW },
        ApprovalMove::Lapse { at: LATER },
        ApprovalMove::Revoke { at },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_samples_name_every_state_and_move_once() {
        assert_eq!(states().iter().map(ApprovalState::word).collect::<BTreeSet<_>>().len(), 9);
        assert_eq!(moves().iter().map(ApprovalMove::word).collect::<BTreeSet<_>>().len(), 9);
    }

    #[test]
    fn only_pending_can_become_approved() {
        let into: BTreeSet<_> =
            edges().into_iter().filter(|edge| edge.to == "approved").map(|edge| edge.from).collect();
        assert_eq!(into, BTreeSet::from(["pending"]));
    }
}
