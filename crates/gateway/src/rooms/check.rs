//! Checks: the caller carries it out itself, if it may.
//!
//! Takes `Unfrozen` of a call with `mode: check`. What needs no person is allowed at once and recorded; what
//! does becomes a held write whose execution is the caller's, so that a person's answer, its expiry and its
//! record work as for any other.

use sluice_core::Tier;

use super::answer::Answer;
use super::freeze::Unfrozen;
use super::{audit, client_writes, hold};
use crate::{Gateway, No};

/// Says whether the caller may.
///
/// # Errors
/// When it was frozen a moment ago, or the record cannot be written.
pub(crate) async fn answer(gw: &Gateway, free: Unfrozen) -> Result<Answer, No> {
    let asked = free.asked();
    let checked = asked.checked();
    // A service that is not there has no budget either: the caller carries it out.
    let estimate = match gw.services.for_service(checked.service()) {
        Ok(service) => service.estimate(checked.action()).await?,
        Err(_) => None,
    };
    if asked.tier() == Tier::ApprovalRequired {
        // Asking a person, or spending the yes one gave in advance, is admission's work.
        return hold::place(gw, free).await;
    }
    let known = asked.checked().known();
    let call = known.call();
    // Before the client hears a yes: afterwards the old bytes may be gone.
    client_writes::keep(gw, call, asked.checked().action(), known.session().map(|session| session.id)).await?;
    let entry = audit::allowed(gw, asked, free.unless_frozen());
    audit::close(gw, entry).await?;
    Ok(match asked.would() {
        Some(would) => Answer::Observed { call, would },
        None => Answer::Allowed { call, estimate },
    })
}
