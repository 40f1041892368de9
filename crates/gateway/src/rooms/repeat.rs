//! Repeats: a call made again under its own key.
//!
//! Takes a refusal and the key of the call that met it; gives what became of the first call, if there was one. Promise:
//! whoever lost an answer and asks again hears that answer. What the first call itself has done, rules that came later
//! or a disk that is full stand in the way of a new call only.

use sluice_core::{AgentName, Digest, Span};

use super::answer::{self, Answer};
use super::hold::LONGEST_WAIT;
use super::schema::Checked;
use crate::{Gateway, No};

/// A call with a key of its agent's own.
#[derive(Debug)]
pub(crate) struct Named {
    agent: AgentName,
    key: String,
    digest: Digest,
    wait: Span,
}

/// The key of a call, if it has one. Whoever only asks whether it may is told what holds now.
pub(crate) fn named(checked: &Checked) -> Option<Named> {
    let wish = checked.known().wish();
    let key = wish.idempotency_key.clone().filter(|_| !checked.only_checks())?;
    let wait = Span::from_millis(wish.wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
    Some(Named { agent: checked.known().agent().clone(), key, digest: checked.action().digest(), wait })
}

/// What the first call under this key came to, instead of a refusal of the second.
///
/// # Errors
/// The refusal, if there was no first call; or how the first one ended.
pub(crate) async fn instead(gw: &Gateway, named: Option<Named>, no: No) -> Result<Answer, No> {
    let Some(Named { agent, key, digest, wait }) = named.filter(|_| !no.recorded) else { return Err(no) };
    match gw.store.call_named(agent, key, digest, gw.now()).await {
        Ok(Some((call, hold))) => answer::wait(gw, call, hold, wait).await,
        Ok(None) | Err(_) => Err(no),
    }
}
