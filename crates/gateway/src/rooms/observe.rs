//! Observe mode: an agent's calls are judged and recorded, and not stopped.
//!
//! Takes a call and what policy says to it; says whether it is let through all the same. Promise: only for agents that an
//! operator named, only until the end they set; never for what a system rule blocks, what leaves the house and was not
//! named, a session that has read something suspicious, or the gateway's own files. The leak scan and the batch window
//! stand behind it as ever. What would have happened is in the record before the call is answered.

use sluice_core::approval::allowance::{Escalation, Why};
use sluice_core::policy::in_house;
use sluice_core::{Action, Tier};
use sluice_store::ObservedCall;

use super::policy::Opinion;
use super::refused::Wanted;
use super::schema::Checked;
use crate::{Gateway, No};

/// Whether observe mode lets through what policy would not.
pub(crate) fn covers(gw: &Gateway, action: &Action, opinion: &Opinion) -> bool {
    if opinion.tier < Tier::ApprovalRequired {
        return false;
    }
    let Some(mode) = gw.keyring.observing(action.agent(), gw.now()) else { return false };
    let by_system = opinion
        .verdict
        .all()
        .filter_map(|verdict| verdict.system.as_ref())
        .any(|hit| hit.tier >= Tier::ApprovalRequired);
    let tainted = opinion.why.iter().any(|why| matches!(why, Why::Escalation(Escalation::Taint)));
    let named = mode.leaving.iter().any(|name| name == action.capability().as_str());
    !by_system && !tainted && (named || in_house(action.capability(), action.arguments()))
}

/// Records what would have happened.
///
/// # Errors
/// When it cannot be recorded: then the call is not let through.
pub(crate) async fn record(
    gw: &Gateway,
    checked: &Checked,
    wanted: &Wanted,
    (would, rule): (Tier, Option<String>),
) -> Result<(), No> {
    let action = checked.action();
    let call = ObservedCall {
        call: checked.known().call(),
        agent: action.agent().clone(),
        capability: action.capability().clone(),
        would,
        rule,
        policy: gw.policy.get().version().to_owned(),
        kept: wanted.may_be_kept(gw).then(|| action.clone()),
    };
    gw.store.observed_call(call).await?;
    gw.events.wrote();
    Ok(())
}
