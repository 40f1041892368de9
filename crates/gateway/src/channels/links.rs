//! Links: an address under which one person can open one question.
//!
//! Takes a question, a person and the channel the link is sent over; gives an address with a token nobody can guess.
//! Promise: only its hash is kept; it opens a page that shows and asks, it is no credential for anything else, and
//! whoever merely opens it has decided nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sluice_core::ApprovalId;
use sluice_store::{Link, StoreError};

use super::letter::hash;
use super::telegram;
use crate::Gateway;
use crate::config::Person;

/// Where the pages are, below the gateway's public address.
pub const PATH: &str = "/a/";

/// A new link of a person to a question; nothing where the gateway has no address for people.
///
/// # Errors
/// When it cannot be recorded: then it must not be sent.
pub async fn link(
    gw: &Gateway,
    approval: ApprovalId,
    person: &Person,
    channel: &str,
) -> Result<Option<String>, StoreError> {
    let Some(base) = &gw.config.approvals.page else { return Ok(None) };
    let mut bytes = [0; 32];
    gw.entropy.fill(&mut bytes);
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let link = Link { approval, person: person.name.clone(), channel: channel.to_owned() };
    gw.store.make_link(link, hash(&token)).await?;
    Ok(Some(format!("{}{PATH}{token}", base.as_str())))
}

/// The person who is alone at a place: what is sent there is theirs only.
#[must_use]
pub fn alone_at<'a>(gw: &'a Gateway, channel: &str, place: &str) -> Option<&'a Person> {
    let person = gw.config.approvals.person_at(channel, place)?;
    // SECURITY: a group sees every message, and not everyone in it was asked.
    let private = channel != telegram::NAME || person.telegram.is_some_and(|user| user.to_string() == place);
    Some(person).filter(|_| private)
}
