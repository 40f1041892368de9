//! Links: an address that lets one person open one approval request.
//!
//! Takes an approval, a person and the channel that the link is sent over; gives an address with a token that cannot be
//! guessed. Promise: only the hash of the token is stored; the link opens a page that shows and asks, it is not a
//! credential for anything else, and opening it decides nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sluice_config::ConfiguredPerson;
use sluice_core::ApprovalId;
use sluice_store::{ApprovalLink, StoreError};

use super::approval_message::hash;
use super::telegram;
use crate::Gateway;

/// The path of the pages, below the gateway's public address.
pub const PATH: &str = "/a/";

/// Makes a new link of a person to an approval; `None` if the gateway has no address for people.
///
/// # Errors
/// When it cannot be recorded: then it must not be sent.
pub async fn create_link(
    gw: &Gateway,
    approval: ApprovalId,
    person: &ConfiguredPerson,
    channel: &str,
) -> Result<Option<String>, StoreError> {
    let Some(base) = &gw.config.approvals.page else { return Ok(None) };
    let mut bytes = [0; 32];
    gw.entropy.fill(&mut bytes);
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let link = ApprovalLink { approval, person: person.name.clone(), channel: channel.to_owned() };
    gw.store.make_link(link, hash(&token)).await?;
    Ok(Some(format!("{}{PATH}{token}", base.as_str())))
}

/// The person who is alone at a place: only they see what is sent there.
#[must_use]
pub fn alone_at<'a>(gw: &'a Gateway, channel: &str, place: &str) -> Option<&'a ConfiguredPerson> {
    let person = gw.config.approvals.person_at(channel, place)?;
    // SECURITY: every member of a group sees its messages, and not all of them were asked.
    let private = channel != telegram::NAME || person.telegram.is_some_and(|user| user.to_string() == place);
    Some(person).filter(|_| private)
}
