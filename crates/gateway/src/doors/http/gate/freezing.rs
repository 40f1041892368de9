//! Approvals that a freeze keeps back from clients that act by themselves.
//!
//! Takes a question as it stands; gives what its client is told. Promise: while its agent, its service or everything is
//! frozen, no client hears `approved`, whenever and by whom that was said.

use sluice_core::approval::{Approval, ApprovalState};
use sluice_store::Store;

use super::Seen;
use crate::No;
use crate::rooms::freeze;

/// What a client is told: an approval that is kept back still waits, and why is said along.
///
/// # Errors
/// When the freezes cannot be read: then nothing is told.
pub(super) async fn unless_frozen(store: &Store, approval: &Approval, view: Seen) -> Result<Seen, No> {
    if view.status != "approved" {
        return Ok(view);
    }
    match freeze::refuse(store, &approval.agent, &approval.service).await {
        Ok(()) => Ok(view),
        Err(no) if no.refusal.code().room() == "store" => Err(no),
        Err(no) => Ok(Seen {
            status: "pending".into(),
            decision: None,
            answer: None,
            session_id: None,
            action_type: None,
            frozen: Some(no.refusal.text().to_owned()),
            ..view
        }),
    }
}

/// Whether an approval was given and is kept back: its client goes on waiting. One that cannot be looked at is.
pub(super) async fn keeps_back(store: &Store, approval: &Approval) -> bool {
    let given = match approval.state {
        ApprovalState::Approved { .. } | ApprovalState::Consumed { .. } | ApprovalState::Superseded { .. } => true,
        ApprovalState::Pending { .. }
        | ApprovalState::Denied { .. }
        | ApprovalState::Expired { .. }
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Lapsed { .. }
        | ApprovalState::Revoked { .. } => false,
    };
    given && freeze::refuse(store, &approval.agent, &approval.service).await.is_err()
}
