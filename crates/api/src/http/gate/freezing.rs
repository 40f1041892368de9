//! Approvals that a freeze holds back from self-executing clients.
//!
//! Takes the state of an approval; gives what its client is told. Promise: while its agent, its service or everything
//! is frozen, no client receives `approved`, whenever and by whom it was approved.

use sluice_core::approval::{Approval, ApprovalState};
use sluice_gateway::rooms::freeze;
use sluice_services::CallError;
use sluice_store::Store;

use super::GateRequestView;

/// What a client is told: an approval that is held back is still pending, with the reason.
///
/// # Errors
/// When the freezes cannot be read: then the client gets an error.
pub(super) async fn unless_frozen(
    store: &Store,
    approval: &Approval,
    view: GateRequestView,
) -> Result<GateRequestView, CallError> {
    if view.status != "approved" {
        return Ok(view);
    }
    match freeze::refuse(store, &approval.agent, &approval.service).await {
        Ok(()) => Ok(view),
        Err(no) if no.refusal.code().room() == "store" => Err(no),
        Err(no) => Ok(GateRequestView {
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

/// Whether an approval was given and is held back: its client keeps waiting. If the freezes cannot be read, it is held
/// back.
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
