//! The corridor: the path of one call from the door to the answer.
//!
//! This file is the whole path, in order. Each room takes a type that only the room before it can make, and can only
//! make the answer stricter. Held writes continue in [`crate::loops::release`], which reads the same way.

use sluice_core::CallId;
use sluice_core::capability::Effect;
use sluice_services::CallError;

use crate::Gateway;
use crate::rooms::identity::CallRequest;
use crate::rooms::schema::CheckedCall;
use crate::rooms::{
    approval, audit, brake, check, freeze, hold, idempotency, identity, leak, origin, own_files, policy, read, schema,
    spawn,
};

pub use crate::rooms::answer::CallOutcome;

/// Walks one call through every room.
///
/// # Errors
/// Any refusal, with the call it belongs to. Once the caller is known, the refusal is in the audit log too.
pub async fn walk(gw: &Gateway, call_request: CallRequest) -> Result<CallOutcome, CallError> {
    gw.require_accepting_calls()?;
    let known = identity::recognise(gw, call_request).await?;
    again(gw, known).await
}

/// Walks an agent's call that a person has changed, starting at the schema room: the caller was identified when the
/// agent made the call.
///
/// # Errors
/// As [`walk`].
pub async fn again(gw: &Gateway, known: identity::IdentifiedCall) -> Result<CallOutcome, CallError> {
    gw.require_accepting_calls()?;
    let worded = known.trace();
    let known = match spawn::resolve(gw, known) {
        Ok(known) => known, // from here on a spawn is the call that it names
        Err(no) => return Err(audit::refused(gw, &worded, no).await),
    };
    let trace = known.trace();
    match inside(gw, known).await {
        Ok(answer) => Ok(answer),
        Err(no) => Err(audit::refused(gw, &trace, no).await),
    }
}

async fn inside(gw: &Gateway, known: identity::IdentifiedCall) -> Result<CallOutcome, CallError> {
    let call: CallId = known.call();
    let checked = schema::check(gw, known).await?;
    if let Some(write) = brake::pulled(gw, &checked) {
        return brake::pull(gw, &checked, write).await.map_err(|no| no.for_call(call)); // a freeze never waits
    }
    let named = idempotency::named(&checked);
    match onward(gw, checked).await {
        Err(no) => idempotency::answer_from_first_call(gw, named, no).await.map_err(|no| no.for_call(call)), // a repeat gets its first answer
        answered => answered,
    }
}

async fn onward(gw: &Gateway, checked: CheckedCall) -> Result<CallOutcome, CallError> {
    own_files::protect(gw, &checked)?; // no agent may touch the gateway's own folder
    let sourced = origin::trace(gw, checked).await?; // asked for, known, seen outside or new
    let judged = policy::judge(gw, sourced).await?; // also picks the batch window it will be weighed in
    let cleared = leak::scan(gw, judged)?;
    let asked = approval::ask(gw, cleared).await?; // a standing approval answers, or a person is asked
    let free = freeze::stop(gw, asked).await?; // while frozen nothing is allowed and nothing leaves
    if free.asked().only_checks() {
        check::answer(gw, free).await
    } else if free.asked().effect() == Effect::Read && !free.asked().needs_person() {
        read::answer(gw, free).await
    } else {
        hold::place(gw, free).await // weighed against the batch window in the same transaction
    }
}
