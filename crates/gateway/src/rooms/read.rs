//! Reads: answered at once, from what is here.
//!
//! Takes `Asked`, gives the answer. Promise: what is disclosed is on record first; when the entry cannot be
//! written, nothing is disclosed.

use super::answer::Answer;
use super::approval::Asked;
use super::audit;
use crate::intake::Reader;
use crate::services::Ask;
use crate::{Gateway, No};

/// Answers a read.
///
/// # Errors
/// When the service refuses, or the record cannot be written.
pub(crate) async fn answer(gw: &Gateway, asked: Asked) -> Result<Answer, No> {
    let entry = audit::answered(gw, &asked);
    let checked = asked.into_checked();
    let service = gw.services.for_service(checked.service())?;
    let session = checked.known().session().map(|session| session.id);
    let (known, action) = checked.into_action();
    let ask = Ask { call: known.call(), action, session, now: gw.now() };
    let result = service.read(&ask).await?;
    if service.outside() {
        let reader = Reader { agent: ask.action.agent().clone(), session, call: ask.call };
        gw.intake.note(&reader, ask.action.capability().as_str(), &result).await?;
    }
    audit::close(gw, entry).await?;
    Ok(Answer::Done { call: known.call(), result })
}
