//! Checks: the caller carries it out itself, if it may.
//!
//! Takes `Asked` of a call with `mode: check`. What needs no person is allowed at once and recorded; what
//! does becomes a held write whose execution is the caller's, so that a person's answer, its expiry and its
//! record work as for any other.

use sluice_core::Tier;

use super::answer::Answer;
use super::approval::Asked;
use super::{audit, hold};
use crate::{Gateway, No};

/// Says whether the caller may.
///
/// # Errors
/// When the record cannot be written.
pub(crate) async fn answer(gw: &Gateway, asked: Asked) -> Result<Answer, No> {
    if asked.tier() == Tier::ApprovalRequired {
        // Asking a person, or spending the yes one gave in advance, is admission's work.
        return hold::place(gw, asked).await;
    }
    let call = asked.checked().known().call();
    let entry = audit::allowed(gw, &asked);
    audit::close(gw, entry).await?;
    Ok(match asked.would() {
        Some(would) => Answer::Observed { call, would },
        None => Answer::Allowed { call },
    })
}
