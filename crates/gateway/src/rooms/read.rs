//! Reads: answered at once.
//!
//! Takes `UnfrozenCall`, gives the answer. Promise: a disclosure is recorded before it happens, and the answer and the
//! session's seen targets are written in one transaction; if that fails, nothing is disclosed.

use sluice_core::read_trace::ReadTrace;
use sluice_services::intake::{ContentRecipient, PendingObservations};
use sluice_services::{CallError, ServiceRead};

use super::answer::CallOutcome;
use super::audit;
use super::freeze::UnfrozenCall;
use crate::Gateway;

/// Answers a read.
///
/// # Errors
/// When the service refuses, or the audit entry cannot be written.
pub(crate) async fn answer(gw: &Gateway, free: UnfrozenCall) -> Result<CallOutcome, CallError> {
    let asked = free.into_asked();
    let mut entry = audit::answered(gw, &asked);
    let checked = asked.into_checked();
    let service = gw.services.for_service(checked.service())?;
    let session = checked.known().session().map(|session| session.id);
    let (known, action) = checked.into_action();
    let notes = PendingObservations::default();
    let ask = ServiceRead { call: known.call(), action, session, now: gw.now(), notes: Some(notes.clone()) };
    let result = service.read(&ask).await?;
    if service.gives_outside_text() {
        gw.intake.note(&ContentRecipient::of(&ask), ask.action.capability().as_str(), &result).await?;
    }
    entry.observed = notes.take();
    let action = &ask.action;
    let read = ReadTrace::of(&gw.vault.record_key(), action.capability(), action.arguments(), &result);
    audit::complete_notice(&mut entry, &read);
    entry.read = Some(read);
    audit::close(gw, entry).await?;
    Ok(CallOutcome::Done { call: known.call(), result })
}
