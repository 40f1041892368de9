//! One due write, in a task of its own: the second policy check, the claim, and the attempt.
//!
//! Takes a write from its lane; leaves it carried out, waiting for an approval, blocked or unchanged. Promise: a
//! freeze, a stricter rule or a lapsed approval stops it at the last moment; a write that this node cannot carry out
//! and another one can is left to that node; however long its service takes, the loop and the other services do not
//! wait.

use sluice_core::approval::ApprovalSubject;
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::{Action, ApprovalId, Tier};
use sluice_services::CallError;
use sluice_store::{ClaimDueWrites, ClaimItem, DueWrite, PolicyRecheck, WriteClaimOutcome};

use crate::gateway::GatewayPhase;
use crate::rooms::{execute, policy};
use crate::{Gateway, nodes};

/// Claims a write and carries it out. Returns whether it was claimed.
///
/// # Errors
/// When it cannot be judged or claimed: it stays unchanged.
pub(super) async fn release(gw: &Gateway, due: &DueWrite) -> Result<bool, CallError> {
    // Another node was faster, or the write was stopped.
    let Some(hold) = gw.store.hold(due.hold).await?.filter(|hold| hold.version == due.version) else {
        return Ok(false);
    };
    if nodes::leaves_to_others(gw, &hold).await? {
        return Ok(false);
    }
    let item = item(gw, &hold).await?;
    // No new claims once the gateway is told to stop.
    if gw.phase() != GatewayPhase::Open {
        return Ok(false);
    }
    // Taken before the claim, so the lease cannot have started earlier.
    let until = execute::until(gw);
    let claims = ClaimDueWrites { items: vec![item], lease: execute::LEASE, expiry: gw.config.approvals.expiry };
    let claimed = gw.store.claim(claims).await?.into_iter().next();
    match claimed {
        Some(WriteClaimOutcome::Ours(hold)) => {
            tracing::trace!(hold.id = %hold.id, service = %hold.service, "claimed {} for attempt {}", hold.id, hold.attempts);
            execute::run(gw, *hold, until).await;
            Ok(true)
        }
        Some(WriteClaimOutcome::Asked(hold, _) | WriteClaimOutcome::Blocked(hold)) => {
            gw.notify_hold_changed(hold);
            Ok(false)
        }
        Some(WriteClaimOutcome::Lost(_) | WriteClaimOutcome::Frozen(_)) | None => Ok(false),
    }
}

/// The second policy check, in the form that the store takes.
async fn item(gw: &Gateway, hold: &Hold) -> Result<ClaimItem, CallError> {
    if hold.reverses.is_none() {
        // The agent may have been removed, or added, on another node a moment ago.
        gw.keyring.follow_for(hold.agent(), &gw.store).await?;
    }
    // An undo was requested by a person, who is not subject to the rules for agents.
    let (stricter, reasons) = match hold.reverses {
        Some(_) => (None, Vec::new()),
        // The agent was removed while the write waited.
        None if !gw.keyring.knows(hold.agent()) => (Some(Tier::Blocked), Vec::new()),
        None => {
            let opinion = policy::look_again(gw, hold).await?;
            let asks = opinion.asks_alone() && is_approved_with_others(gw, hold).await?;
            let asks = asks.then_some(Tier::ApprovalRequired);
            (policy::stricter(hold, &opinion).or(asks), opinion.reasons)
        }
    };
    let expiry = gw.config.approvals.expiry;
    let recheck = match stricter {
        Some(Tier::Blocked) => PolicyRecheck::Block { code: "policy.blocked".into() },
        Some(_) => {
            let stricter = ApprovalReason::new("policy.stricter");
            let reasons = std::iter::once(stricter).chain(reasons).collect();
            PolicyRecheck::Ask { code: "policy.stricter".into(), expiry, reasons, action: changed(gw, hold).await }
        }
        // A person approved the state that they were shown.
        None if hold.consent.is_some() => match changed(gw, hold).await {
            Some(action) => {
                let code = Code::FilesNotAsApproved.as_str();
                let reasons = std::iter::once(ApprovalReason::new(code)).chain(reasons).collect();
                PolicyRecheck::Ask { code: code.into(), expiry, reasons, action: Some(action) }
            }
            None => PolicyRecheck::Stands,
        },
        None => PolicyRecheck::Stands,
    };
    Ok(ClaimItem {
        hold: hold.id,
        version: hold.version,
        recheck,
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
    })
}

/// Whether the approval of a write was given for a batch: it answers the batch window and nothing else.
async fn is_approved_with_others(gw: &Gateway, hold: &Hold) -> Result<bool, CallError> {
    let Some(consent) = hold.consent else { return Ok(false) };
    Ok(gw.store.approval(consent).await?.is_some_and(|card| card.approval.subject == ApprovalSubject::Batch))
}

/// The write bound to the current state of its objects, if that differs from the state it was bound to. If the state
/// cannot be found out, the attempt reports why.
async fn changed(gw: &Gateway, hold: &Hold) -> Option<Box<Action>> {
    if hold.action.found().is_empty() {
        return None;
    }
    let service = gw.services.for_service(&hold.service).ok()?;
    let action = hold.action.with_found(service.describe_current_state(&hold.action).await.ok()?);
    (action.digest() != hold.action.digest()).then(|| Box::new(action))
}
