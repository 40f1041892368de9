//! Repeating the menu: what somebody hears whose reply could not be understood.
//!
//! Takes who spoke and what was unclear; gives the menu, once. Promise: one friendly repeat per question and person;
//! after that silence, so that two machines that answer each other come to an end. Nothing is decided either way.

use sluice_core::Actor;
use sluice_core::approval::reply::Unclear;
use sluice_store::StoreError;

use super::deciding::Question;
use super::standing;
use crate::Gateway;
use crate::channels::shown;

/// Under which name it is remembered who had it.
const NAME: &str = "gate";

/// The menu for somebody whose reply was unclear; nothing if they have had it.
///
/// # Errors
/// When it cannot be remembered: then nothing is said.
pub async fn menu_once(
    gw: &Gateway,
    by: &Actor,
    question: &Question,
    unclear: Unclear,
) -> Result<Option<String>, StoreError> {
    let news = format!("menu:{}:{by}", question.card.approval.id);
    if gw.store.has_heard(NAME, &news).await? {
        return Ok(None);
    }
    gw.store.hear(NAME, &news, None).await?;
    // The choices of a question are its client's words, which may be what must not leave.
    let withheld = shown::of(gw, question, shown::PAGE).withheld.is_some();
    Ok(Some(if withheld { format!("Nothing was decided: {unclear}.") } else { standing::repeat(question, unclear) }))
}
