//! Amending: a person changes the action they were asked about.
//!
//! Takes new arguments; gives the changed write, held. Promise: a changed action is a new action. It passes the rooms
//! from the schema on, as if the agent had asked for it; an action that is blocked stays blocked, and the approval is
//! bound to the digest of the action that is carried out.

use serde_json::Value;
use sluice_core::Actor;
use sluice_core::refusal::Code;
use sluice_services::CallError;
use sluice_store::{AmendApproval, AmendmentOutcome};

use super::deciding::{self, AnswerOutcome, ApprovalRequest};
use crate::Gateway;
use crate::rooms::identity::{CallMode, CallOptions, IdentifiedCall};
use crate::rooms::{approval, hold, leak, origin, policy, schema};

/// Replaces the arguments of an approval request with changed ones, and approves them once.
///
/// # Errors
/// When the approval is not about one write, a room refuses the changed write, or it cannot be recorded.
pub async fn amend(
    gw: &Gateway,
    by: Actor,
    question: &ApprovalRequest,
    arguments: Value,
) -> Result<AnswerOutcome, CallError> {
    let [old] = question.holds.as_slice() else {
        return Err(CallError::with_text(Code::ApprovalNotOffered, "only an approval of one write can be changed"));
    };
    if sluice_services::is_elsewhere(&old.action) {
        return Err(CallError::with_text(
            Code::ApprovalNotOffered,
            "the agent carries this out by itself; only it can change it",
        ));
    }
    let session = match old.session {
        Some(id) => gw.store.session(id).await?,
        None => None,
    };
    let wish = CallOptions {
        capability: old.action.capability().clone(),
        arguments,
        account: old.action.account().map(str::to_owned),
        session_id: old.session,
        idempotency_key: None,
        reason: None,
        mode: CallMode::Execute,
        wait_ms: None,
        allow_duplicate: true,
        named: false,
    };
    let spawn = old.action.spawn().cloned();
    let known = IdentifiedCall::on_behalf(gw, old.agent().clone(), session, wish).spawned(spawn);
    let checked = schema::check(gw, known).await?;
    let judged = policy::judge(gw, origin::trace(gw, checked).await?).await?;
    let asked = approval::ask(gw, leak::scan(gw, judged)?).await?;
    let mut changed = hold::admission(gw, &asked);
    changed.action = hold::bound(gw, &changed).await?;
    let amendment = AmendApproval { approval: question.card.approval.id, by, channel: "api".into(), changed };
    match gw.store.amend(amendment).await? {
        AmendmentOutcome::Now { old, new } => {
            let id = question.card.approval.id;
            deciding::announce(gw, id, &[new.id], &[old]).await?;
            let approval = gw.store.approval(id).await?.ok_or_else(|| CallError::new(Code::ApprovalNotFound))?.approval;
            Ok(AnswerOutcome::Decided { approval, allowed: vec![new.id], denied: vec![old] })
        }
        AmendmentOutcome::Already(approval) => Ok(AnswerOutcome::Late(approval)),
    }
}
