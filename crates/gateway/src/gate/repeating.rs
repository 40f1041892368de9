//! Repeating the menu: the answer to a reply that could not be understood.
//!
//! Takes the person and what was unclear; gives the menu, once. Promise: one repeat per approval and person, and then
//! no more, so that two machines that answer each other stop. Nothing is decided either way.

use sluice_core::Actor;
use sluice_core::approval::reply::ReplyParseError;
use sluice_store::StoreError;

use super::deciding::ApprovalRequest;
use super::standing;
use crate::Gateway;
use crate::gate::rendering;

/// The name under which it is stored who received the menu.
const NAME: &str = "gate";

/// The menu for a person whose reply was unclear; `None` if they already received it.
///
/// # Errors
/// When it cannot be stored: then nothing is sent.
pub async fn menu_once(
    gw: &Gateway,
    by: &Actor,
    question: &ApprovalRequest,
    unclear: ReplyParseError,
) -> Result<Option<String>, StoreError> {
    let news = format!("menu:{}:{by}", question.card.approval.id);
    if gw.store.has_channel_news(NAME, &news).await? {
        return Ok(None);
    }
    gw.store.record_channel_news(NAME, &news, None).await?;
    // The choices of a client's request are the client's words, and may hold something that must not leave.
    let withheld = rendering::of(gw, question, rendering::PAGE).withheld.is_some();
    Ok(Some(if withheld { format!("Nothing was decided: {unclear}.") } else { standing::repeat(question, unclear) }))
}
