//! Brakes: a call that only stops a write of its own agent.
//!
//! Takes `CheckedCall`, gives the answer at once. Promise: a call that only stops a write never waits: no rule, delay,
//! batch window or freeze applies to it, as none applies to `DELETE /v1/calls/{id}`; and it can stop only writes of its
//! own agent.

use serde_json::json;
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId};
use sluice_services::CallError;
use sluice_store::{CallEnding, CloseCall};

use super::answer::CallOutcome;
use super::schema::CheckedCall;
use super::{audit, hold};
use crate::Gateway;

/// The write that a call stops, if the call does nothing else.
pub(crate) fn pulled(gw: &Gateway, checked: &CheckedCall) -> Option<HoldId> {
    if checked.only_checks() {
        return None;
    }
    gw.services.for_service(checked.service()).ok()?.find_stopped_hold(checked.action())
}

/// Stops the write.
///
/// # Errors
/// When there is no such write of this agent at this service, or it is too late.
pub(crate) async fn pull(gw: &Gateway, checked: &CheckedCall, write: HoldId) -> Result<CallOutcome, CallError> {
    let (known, action) = (checked.known(), checked.action());
    let wanted = gw.stop_lane().hold(write).await?;
    // SECURITY: for another agent the write does not exist, rather than being forbidden.
    if !wanted.is_some_and(|wanted| wanted.agent() == known.agent() && wanted.service == *checked.service()) {
        return Err(CallError::new(Code::HoldNotFound));
    }
    let stopped = hold::stop(gw, write, Actor::Agent(known.agent().clone())).await;
    // The stopped write's own call is not reported as this call.
    let stopped = stopped.map_err(|no| CallError { call: None, ..no })?;
    let entry = CloseCall {
        call: known.call(),
        agent: known.agent().clone(),
        session: known.session().map(|session| session.id),
        capability: action.capability().clone(),
        digest: Some(action.digest()),
        tier: None,
        policy: gw.policy.get().version().to_owned(),
        rule: None,
        outcome: CallEnding::Answered,
        rates: Vec::new(),
        notify: None,
        door: Some(known.door()),
        findings: None,
        origins: None,
        kept: None,
        observed: Vec::new(),
        read: None,
    };
    audit::close(gw, entry).await?;
    Ok(CallOutcome::Done { call: known.call(), result: json!({"buffer_id": stopped.id, "status": "cancelled"}) })
}
