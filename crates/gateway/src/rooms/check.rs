//! Checks: the gateway only decides, and the caller carries out the action itself.
//!
//! Takes `UnfrozenCall` of a call with `mode: check`. A call that needs no person is allowed at once and recorded. One that
//! needs a person becomes a held write that the caller carries out, so that the decision, the expiry and the audit
//! entries work as for any other write.

use sluice_core::Tier;
use sluice_services::CallError;

use super::answer::CallOutcome;
use super::freeze::UnfrozenCall;
use super::{audit, client_writes, hold};
use crate::Gateway;

/// Says whether the caller may carry out the action.
///
/// # Errors
/// When a freeze came in between, or the audit entry cannot be written.
pub(crate) async fn answer(gw: &Gateway, free: UnfrozenCall) -> Result<CallOutcome, CallError> {
    let asked = free.asked();
    let checked = asked.checked();
    // Without a service there is no budget: the caller carries out the action.
    let estimate = match gw.services.for_service(checked.service()) {
        Ok(service) => service.estimate(checked.action()).await?,
        Err(_) => None,
    };
    if asked.tier() == Tier::ApprovalRequired {
        // Admission asks a person, or spends a standing approval.
        return hold::place(gw, free).await;
    }
    let known = asked.checked().known();
    let call = known.call();
    // Before the client is told that the call is allowed: afterwards the old bytes may be gone.
    client_writes::keep(gw, call, asked.checked().action(), known.session().map(|session| session.id)).await?;
    let entry = audit::allowed(gw, asked, free.unless_frozen());
    audit::close(gw, entry).await?;
    Ok(match asked.would() {
        Some(would) => CallOutcome::Observed { call, would },
        None => CallOutcome::Allowed { call, estimate },
    })
}
