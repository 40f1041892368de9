//! Repeats: a call made again under its own idempotency key.
//!
//! Takes a refusal and the key of the refused call; gives the outcome of the first call with that key, if there was
//! one. Promise: a caller that lost an answer and asks again gets that answer. Effects of the first call, later rules
//! and a full disk affect new calls only.

use sluice_core::{AgentName, Digest, Millis};
use sluice_services::CallError;

use super::answer::{self, CallOutcome};
use super::hold::LONGEST_WAIT;
use super::schema::CheckedCall;
use crate::Gateway;

/// A call with an idempotency key of its agent.
#[derive(Debug)]
pub(crate) struct IdempotentCall {
    agent: AgentName,
    key: String,
    digest: Digest,
    wait: Millis,
}

/// The key of a call, if it has one. A check has none: it is answered with the current verdict.
pub(crate) fn named(checked: &CheckedCall) -> Option<IdempotentCall> {
    let wish = checked.known().wish();
    let key = wish.idempotency_key.clone().filter(|_| !checked.only_checks())?;
    let wait = Millis::from_millis(wish.wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
    Some(IdempotentCall { agent: checked.known().agent().clone(), key, digest: checked.action().digest(), wait })
}

/// Returns the outcome of the first call under this key, instead of a refusal of the second.
///
/// # Errors
/// The refusal, if there was no first call; or the refusal that the first call ended with.
pub(crate) async fn answer_from_first_call(
    gw: &Gateway,
    named: Option<IdempotentCall>,
    no: CallError,
) -> Result<CallOutcome, CallError> {
    let Some(IdempotentCall { agent, key, digest, wait }) = named.filter(|_| !no.recorded) else { return Err(no) };
    match gw.store.find_call_by_key(agent, key, digest, gw.now()).await {
        Ok(Some((call, hold))) => answer::wait(gw, call, hold, wait).await,
        Ok(None) | Err(_) => Err(no),
    }
}
