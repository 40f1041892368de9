//! Brakes: a call that does nothing but stop a write of its own agent.
//!
//! Takes `Checked`, gives the answer at once. Promise: what only stops something never waits: no rule, delay, batch
//! window or freeze stands before it, as none stands before `DELETE /v1/calls/{id}`; and it stops nobody else's.

use serde_json::json;
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId};
use sluice_store::{Closed, Ending};

use super::answer::Answer;
use super::schema::Checked;
use super::{audit, hold};
use crate::{Gateway, No};

/// The write that a call only wants to stop, if that is all it does.
pub(crate) fn pulled(gw: &Gateway, checked: &Checked) -> Option<HoldId> {
    if checked.only_checks() {
        return None;
    }
    gw.services.for_service(checked.service()).ok()?.stops(checked.action())
}

/// Stops it.
///
/// # Errors
/// When there is no such write of this agent at this service, or it is too late.
pub(crate) async fn pull(gw: &Gateway, checked: &Checked, write: HoldId) -> Result<Answer, No> {
    let (known, action) = (checked.known(), checked.action());
    let wanted = gw.stop_lane().hold(write).await?;
    // SECURITY: to a stranger the write does not exist, rather than being forbidden.
    if !wanted.is_some_and(|wanted| wanted.agent() == known.agent() && wanted.service == *checked.service()) {
        return Err(No::new(Code::HoldNotFound));
    }
    let stopped = hold::stop(gw, write, Actor::Agent(known.agent().clone())).await;
    // What is said about the stopped write's own call is not said about this one.
    let stopped = stopped.map_err(|no| No { call: None, ..no })?;
    let entry = Closed {
        call: known.call(),
        agent: known.agent().clone(),
        session: known.session().map(|session| session.id),
        capability: action.capability().clone(),
        digest: Some(action.digest()),
        tier: None,
        policy: gw.policy.get().version().to_owned(),
        rule: None,
        outcome: Ending::Answered,
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
    Ok(Answer::Done { call: known.call(), result: json!({"buffer_id": stopped.id, "status": "cancelled"}) })
}
