//! Observe mode: an agent's calls are judged and recorded, but not stopped.
//!
//! Takes a call and its verdict; says whether observe mode allows it. Promise: only for agents that an operator named,
//! and only until the end the operator set; never for a call that a system rule blocks, that leaves the machine and was
//! not named, that comes from a tainted session, or that touches the gateway's own files. The leak scan and the batch
//! window still apply. What would have happened is in the audit log before the call is answered.

use sluice_core::approval::allowance::{ApprovalTrigger, TierEscalation};
use sluice_core::policy::stays_on_machine;
use sluice_core::{Action, Tier};
use sluice_services::CallError;
use sluice_store::ObservedCall;

use super::policy::PolicyOpinion;
use super::schema::CheckedCall;
use crate::Gateway;
use sluice_services::refused_action::RefusedAction;

/// Whether observe mode allows a call that policy would not.
pub(crate) fn covers(gw: &Gateway, action: &Action, opinion: &PolicyOpinion) -> bool {
    if opinion.tier < Tier::ApprovalRequired {
        return false;
    }
    let Some(mode) = gw.keyring.observing(action.agent(), gw.now()) else { return false };
    let by_system = opinion
        .verdict
        .all()
        .filter_map(|verdict| verdict.system.as_ref())
        .any(|hit| hit.tier >= Tier::ApprovalRequired);
    let tainted = opinion.why.iter().any(|why| matches!(why, ApprovalTrigger::Escalation(TierEscalation::Taint)));
    let named = mode.leaving.iter().any(|name| name == action.capability().as_str());
    !by_system && !tainted && (named || stays_on_machine(action.capability(), action.arguments()))
}

/// Records the verdict that observe mode did not enforce.
///
/// # Errors
/// When it cannot be recorded: in that case the call is not allowed.
pub(crate) async fn record(
    gw: &Gateway,
    checked: &CheckedCall,
    wanted: &RefusedAction,
    (would, rule): (Tier, Option<String>),
) -> Result<(), CallError> {
    let action = checked.action();
    let call = ObservedCall {
        call: checked.known().call(),
        agent: action.agent().clone(),
        capability: action.capability().clone(),
        would,
        rule,
        policy: gw.policy.get().version().to_owned(),
        kept: wanted.may_be_kept(gw.leak_scan()).then(|| action.clone()),
    };
    gw.store.record_observed_call(call).await?;
    gw.signals.events.notify_written();
    Ok(())
}
