//! Who speaks in a reply that a forwarding service hands in.
//!
//! Takes the question and the reply; gives the person. Promise: the approval's id decides nothing, because the agent that
//! asks knows it. A reply carries the token of a letter about this very question, or comes from a person who was asked and
//! whom the forwarding service, trusted by configuration, has authenticated. What proves neither is on record.

use sha2::{Digest as _, Sha256};
use sluice_core::refusal::Code;
use sluice_core::{Actor, ApprovalId, PersonName, hex};
use sluice_store::Delivery;

use super::gate::MailReply;
use crate::channels::email::NAME as EMAIL;
use crate::channels::letter::{hash, secrets_in};
use crate::gate::deciding::Question;
use crate::{Gateway, No};

/// Under which name the record knows what was handed in.
const CHANNEL: &str = "inbox";

/// Who speaks, and where they are reached.
pub(super) struct Speaker {
    /// The person.
    pub by: Actor,
    /// The letter whose token they have.
    pub letter: Option<Delivery>,
    /// Their address.
    pub place: Option<String>,
}

/// The one id a mail speaks of. Two are one too many: it cannot be told which is meant.
pub(super) fn only_id(subject: &str, body: &str) -> Result<ApprovalId, No> {
    let unclear = |text: &str| No::saying(Code::ApprovalUnclearReply, text);
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
        // An id, of nothing we have.
        [] if unknown => Err(No::saying(Code::ApprovalNotFound, "approval not found")),
        [] => Err(unclear("approval_id not found")),
        _ => Err(unclear("the mail names more than one approval")),
    }
}

/// The person a reply comes from.
///
/// # Errors
/// When the reply does not prove that it comes from a person who was asked.
pub(super) async fn speaker(gw: &Gateway, question: &Question, reply: &MailReply) -> Result<Speaker, No> {
    let found = match by_token(gw, question, reply).await? {
        Some((person, letter)) => Some((person, Some(letter.place.clone()), Some(letter))),
        None if gw.config.inbox.trust_sender => {
            by_sender(gw, question, reply).map(|name| (name, reply.from.as_deref().and_then(bare), None))
        }
        None => None,
    };
    match found {
        Some((name, place, letter)) => Ok(Speaker { by: Actor::Person(name), letter, place }),
        None => {
            let parts = [reply.from.as_deref(), reply.subject.as_deref(), Some(reply.body.as_str())];
            let mut print = Sha256::new();
            for part in parts {
                print.update(part.unwrap_or_default().as_bytes());
                print.update([0]);
            }
            let news = format!("mail:{}", hex::encode(&print.finalize()));
            gw.store.hear(CHANNEL, &news, Some("email.no_token")).await?;
            Err(No::new(Code::ApprovalReplyToken))
        }
    }
}

/// Whoever got the letter whose token stands in the reply, if that letter was about this question.
async fn by_token(gw: &Gateway, question: &Question, reply: &MailReply) -> Result<Option<(PersonName, Delivery)>, No> {
    let subject = reply.subject.as_deref().unwrap_or_default();
    for secret in secrets_in(subject).chain(secrets_in(&reply.body)) {
        let letter = gw.store.delivery_with(hash(secret)).await?;
        let letter = letter.filter(|letter| letter.approval == question.card.approval.id && letter.channel == EMAIL);
        if let Some(letter) = letter {
            return Ok(person_at(gw, &letter.place).map(|person| (person, letter)));
        }
    }
    Ok(None)
}

/// The sender, if that is somebody who was asked about this question.
fn by_sender(gw: &Gateway, question: &Question, reply: &MailReply) -> Option<PersonName> {
    let address = bare(reply.from.as_deref()?)?;
    let request = question.filed.as_ref().map(|filed| &filed.request);
    let named = request.and_then(|request| Some((request.channel.as_deref()?, request.place.as_deref()?)));
    let approvals = &gw.config.approvals;
    match named {
        // The request names one place: its person answers, by mail too.
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

/// The address of a sender, without the name before it. Two addresses are nobody's.
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
