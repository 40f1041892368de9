//! Reads: answered at once, from what is here.
//!
//! Takes `Unfrozen`, gives the answer. Promise: what is disclosed is on record first, the answer and what its session has seen
//! with it in one transaction; when that cannot be written, nothing is disclosed.

use sluice_core::read_trace::ReadTrace;

use super::answer::Answer;
use super::audit;
use super::freeze::Unfrozen;
use crate::intake::{Notes, Reader};
use crate::services::Ask;
use crate::{Gateway, No};

/// Answers a read.
///
/// # Errors
/// When the service refuses, or the record cannot be written.
pub(crate) async fn answer(gw: &Gateway, free: Unfrozen) -> Result<Answer, No> {
    let asked = free.into_asked();
    let mut entry = audit::answered(gw, &asked);
    let checked = asked.into_checked();
    let service = gw.services.for_service(checked.service())?;
    let session = checked.known().session().map(|session| session.id);
    let (known, action) = checked.into_action();
    let notes = Notes::default();
    let ask = Ask { call: known.call(), action, session, now: gw.now(), notes: Some(notes.clone()) };
    let result = service.read(&ask).await?;
    if service.outside() {
        gw.intake.note(&Reader::of(&ask), ask.action.capability().as_str(), &result).await?;
    }
    entry.observed = notes.take();
    let action = &ask.action;
    let read = ReadTrace::of(&gw.vault.record_key(), action.capability(), action.arguments(), &result);
    audit::complete_notice(&mut entry, &read);
    entry.read = Some(read);
    audit::close(gw, entry).await?;
    Ok(Answer::Done { call: known.call(), result })
}
