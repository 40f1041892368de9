//! One due write, in a task of its own: policy's second look, the claim, and the attempt.
//!
//! Takes a write as its lane gave it; leaves it carried out, asked about, blocked or as it was. Promise: a freeze, a
//! stricter rule or a lapsed approval stops it at the last moment; what another node can carry out and this one cannot is
//! left to it; whatever its service takes for it, the loop and the other services do not wait.

use sluice_core::approval::Subject;
use sluice_core::approval::reason::AskReason;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::{Action, ApprovalId, Tier};
use sluice_store::{ClaimItem, Claimed, Claims, DueWrite, Recheck};

use crate::gateway::Phase;
use crate::rooms::{execute, policy};
use crate::{Gateway, No, nodes};

/// Claims a write and carries it out. Gives whether it was claimed.
///
/// # Errors
/// When it cannot be judged or claimed: it stays as it was.
pub(super) async fn release(gw: &Gateway, due: &DueWrite) -> Result<bool, No> {
    // Somebody was faster, or stopped it.
    let Some(hold) = gw.store.hold(due.hold).await?.filter(|hold| hold.version == due.version) else {
        return Ok(false);
    };
    if nodes::leaves_to_others(gw, &hold).await? {
        return Ok(false);
    }
    let item = item(gw, &hold).await?;
    // New claims end at once when the gateway is told to stop.
    if gw.phase() != Phase::Open {
        return Ok(false);
    }
    // Taken before the claim: the lease has not begun earlier than this.
    let until = execute::until(gw);
    let claims = Claims { items: vec![item], lease: execute::LEASE, expiry: gw.config.approvals.expiry };
    let claimed = gw.store.claim(claims).await?.into_iter().next();
    match claimed {
        Some(Claimed::Ours(hold)) => {
            tracing::trace!(hold.id = %hold.id, service = %hold.service, "claimed {} for attempt {}", hold.id, hold.attempts);
            execute::run(gw, *hold, until).await;
            Ok(true)
        }
        Some(Claimed::Asked(hold, _) | Claimed::Blocked(hold)) => {
            gw.moved(hold);
            Ok(false)
        }
        Some(Claimed::Lost(_) | Claimed::Frozen(_)) | None => Ok(false),
    }
}

/// Policy's second look, as the store takes it.
async fn item(gw: &Gateway, hold: &Hold) -> Result<ClaimItem, No> {
    if hold.reverses.is_none() {
        // It may have been removed, or added, on another node a moment ago.
        gw.keyring.follow_for(hold.agent(), &gw.store).await?;
    }
    // Taking something back was asked for by a person, who is not subject to the rules for agents.
    let (stricter, reasons) = match hold.reverses {
        Some(_) => (None, Vec::new()),
        // It was on its way in while its agent was removed.
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
        Some(Tier::Blocked) => Recheck::Block { code: "policy.blocked".into() },
        Some(_) => {
            let stricter = AskReason::new("policy.stricter");
            let reasons = std::iter::once(stricter).chain(reasons).collect();
            Recheck::Ask { code: "policy.stricter".into(), expiry, reasons, action: changed(gw, hold).await }
        }
        // What a person approved is the state they were shown.
        None if hold.consent.is_some() => match changed(gw, hold).await {
            Some(action) => {
                let code = Code::FilesNotAsApproved.as_str();
                let reasons = std::iter::once(AskReason::new(code)).chain(reasons).collect();
                Recheck::Ask { code: code.into(), expiry, reasons, action: Some(action) }
            }
            None => Recheck::Stands,
        },
        None => Recheck::Stands,
    };
    Ok(ClaimItem {
        hold: hold.id,
        version: hold.version,
        recheck,
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
    })
}

/// Whether the yes to a write was one to many at once: it answers the batch window and nothing else.
async fn is_approved_with_others(gw: &Gateway, hold: &Hold) -> Result<bool, No> {
    let Some(consent) = hold.consent else { return Ok(false) };
    Ok(gw.store.approval(consent).await?.is_some_and(|card| card.approval.subject == Subject::Batch))
}

/// The write bound to the state its objects are in now, if that is another one than it was bound to. Where the state
/// cannot be found out, the attempt says why.
async fn changed(gw: &Gateway, hold: &Hold) -> Option<Box<Action>> {
    if hold.action.found().is_empty() {
        return None;
    }
    let service = gw.services.for_service(&hold.service).ok()?;
    let action = hold.action.with_found(service.found(&hold.action).await.ok()?);
    (action.digest() != hold.action.digest()).then(|| Box::new(action))
}
