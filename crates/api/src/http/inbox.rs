//! Finds out who wrote a reply that a forwarding service hands in.
//!
//! Takes the approval and the reply; gives the person. Promise: the approval's id decides nothing, because the agent
//! that asks knows it. A reply must carry the token of a message about this approval, or come from a person who was
//! asked and whom the forwarding service, trusted by configuration, has authenticated. A reply that proves neither is
//! recorded.

use sha2::{Digest as _, Sha256};
use sluice_core::refusal::Code;
use sluice_core::{Actor, ApprovalId, PersonName, hex};
use sluice_gateway::Gateway;
use sluice_gateway::channels::approval_message::{hash, secrets_in};
use sluice_gateway::channels::email::NAME as EMAIL;
use sluice_gateway::gate::deciding::ApprovalRequest;
use sluice_services::CallError;
use sluice_store::ApprovalDelivery;

use super::gate::MailReplyBody;

/// The channel name of handed-in replies in the audit log.
const CHANNEL: &str = "inbox";

/// The person who wrote a reply, and where they are reached.
pub(super) struct ReplyAuthor {
    /// The person.
    pub by: Actor,
    /// The message whose token they have.
    pub letter: Option<ApprovalDelivery>,
    /// The person's address.
    pub place: Option<String>,
}

/// The one approval id in a mail. Two ids are an error: it is not clear which is meant.
pub(super) fn only_id(subject: &str, body: &str) -> Result<ApprovalId, CallError> {
    let unclear = |text: &str| CallError::with_text(Code::ApprovalUnclearReply, text);
    let (mut ids, mut unknown): (Vec<ApprovalId>, bool) = (Vec::new(), false);
    for text in [subject, body] {
        for (at, _) in text.match_indices("appr_") {
            let id: String = text
                .get(at..)
                .unwrap_or_default()
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            match id.parse::<ApprovalId>() {
                Ok(id) if !ids.contains(&id) => ids.push(id),
                Ok(_) => {}
                Err(_) => unknown |= id.len() > "appr_".len(),
            }
        }
    }
    match ids.as_slice() {
        [id] => Ok(*id),
        // An id of no approval that we have.
        [] if unknown => Err(CallError::with_text(Code::ApprovalNotFound, "approval not found")),
        [] => Err(unclear("approval_id not found")),
        _ => Err(unclear("the mail names more than one approval")),
    }
}

/// The person that a reply comes from.
///
/// # Errors
/// When the reply does not prove that it comes from a person who was asked.
pub(super) async fn speaker(
    gw: &Gateway,
    question: &ApprovalRequest,
    reply: &MailReplyBody,
) -> Result<ReplyAuthor, CallError> {
    let found = match by_token(gw, question, reply).await? {
        Some((person, letter)) => Some((person, Some(letter.place.clone()), Some(letter))),
        None if gw.config.inbox.trust_sender => {
            by_sender(gw, question, reply).map(|name| (name, reply.from.as_deref().and_then(bare), None))
        }
        None => None,
    };
    match found {
        Some((name, place, letter)) => Ok(ReplyAuthor { by: Actor::Person(name), letter, place }),
        None => {
            let parts = [reply.from.as_deref(), reply.subject.as_deref(), Some(reply.body.as_str())];
            let mut print = Sha256::new();
            for part in parts {
                print.update(part.unwrap_or_default().as_bytes());
                print.update([0]);
            }
            let news = format!("mail:{}", hex::encode(&print.finalize()));
            gw.store.record_channel_news(CHANNEL, &news, Some("email.no_token")).await?;
            Err(CallError::new(Code::ApprovalReplyToken))
        }
    }
}

/// The person who got the message whose token is in the reply, if that message was about this approval.
async fn by_token(
    gw: &Gateway,
    question: &ApprovalRequest,
    reply: &MailReplyBody,
) -> Result<Option<(PersonName, ApprovalDelivery)>, CallError> {
    let subject = reply.subject.as_deref().unwrap_or_default();
    for secret in secrets_in(subject).chain(secrets_in(&reply.body)) {
        let letter = gw.store.delivery_by_secret(hash(secret)).await?;
        let letter = letter.filter(|letter| letter.approval == question.card.approval.id && letter.channel == EMAIL);
        if let Some(letter) = letter {
            return Ok(person_at(gw, &letter.place).map(|person| (person, letter)));
        }
    }
    Ok(None)
}

/// The sender, if that is a person who was asked about this approval.
fn by_sender(gw: &Gateway, question: &ApprovalRequest, reply: &MailReplyBody) -> Option<PersonName> {
    let address = bare(reply.from.as_deref()?)?;
    let request = question.filed.as_ref().map(|filed| &filed.request);
    let named = request.and_then(|request| Some((request.channel.as_deref()?, request.place.as_deref()?)));
    let approvals = &gw.config.approvals;
    match named {
        // The request names one place: its person answers, by e-mail too.
        Some((EMAIL, place)) if place.eq_ignore_ascii_case(&address) => person_at(gw, place),
        Some((channel, place)) => {
            let person = approvals.person_at(EMAIL, &address)?;
            person.is_at(channel, place).then(|| person.name.clone())
        }
        None => approvals.person_at(EMAIL, &address).map(|person| person.name.clone()),
    }
}

fn person_at(gw: &Gateway, address: &str) -> Option<PersonName> {
    match gw.config.approvals.person_at(EMAIL, address) {
        Some(person) => Some(person.name.clone()),
        None => PersonName::new(address).ok(),
    }
}

/// The address of a sender, without the display name. Two addresses are refused.
fn bare(from: &str) -> Option<String> {
    let inside = match from.rsplit_once('<') {
        Some((_, rest)) => rest.strip_suffix('>')?,
        None => from,
    };
    let address = inside.trim();
    let fine = address.matches('@').count() == 1 && !address.contains([',', ';', '<', '>', ' ', '\t', '\n', '\r']);
    (fine && from.matches('<').count() <= 1).then(|| address.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_one_address() {
        for from in ["ana@b.c", " Ana@B.c ", "Ana <ana@b.c>", "\"Ana, A\" <ana@b.c>"] {
            assert_eq!(bare(from).as_deref(), Some("ana@b.c"), "{from}");
        }
        for from in ["", "ana", "ana@b.c, eve@b.c", "<ana@b.c> <eve@b.c>", "ana@b.c <", "a@b@c", "Ana <ana@b.c> x"] {
            assert_eq!(bare(from), None, "{from}");
        }
    }
}
