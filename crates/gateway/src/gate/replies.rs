//! Replies: what somebody wrote back to a letter, and what comes of it.
//!
//! Takes the words of a reply and what else it holds; gives what the person means, or that they are asked to confirm it.
//! Promise: a note or a changed text counts whole or not at all. Where something of a reply may not have been understood,
//! the person gets back what was, with a token of its own, and nothing is decided until they confirm it.

use sluice_core::approval::Subject;
use sluice_core::approval::mail::{Rest, read_reply};
use sluice_core::approval::reply::{Reply, Unclear};
use sluice_core::approval::voice::{self, Form, Meaning, Understood};
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_store::{Delivery, ProposedAnswer};

use super::deciding::Question;
use crate::channels::email;
use crate::{Gateway, No};

/// A reply as it came.
#[derive(Debug, Clone)]
pub struct Written {
    /// The words of the person.
    pub words: String,
    /// What the reply holds beside them.
    pub rest: Rest,
    /// The channel and place that it came from, where no letter says so.
    pub from: Option<String>,
}

impl Written {
    /// A mail whose words were read already.
    #[must_use]
    pub fn mail(words: &str, rest: Rest) -> Self {
        Self { words: words.to_owned(), rest, from: None }
    }

    /// The text of a mail as somebody else handed it in, with the address of its sender.
    #[must_use]
    pub fn handed_in(text: &str, from: Option<String>) -> Self {
        let read = read_reply(text);
        Self { words: read.words, rest: read.rest, from }
    }
}

/// What comes of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// It is an answer.
    Meant(Meaning),
    /// The person gets back what was understood, to confirm it.
    ToConfirm,
    /// Nothing was decided, and this is said about it.
    Tell(String),
    /// Nothing was decided: it is not one of the answers.
    Unclear(Unclear),
}

/// Reads a reply to a question, to this letter if it is known to which.
///
/// # Errors
/// When what was understood cannot be kept.
pub async fn understand(
    gw: &Gateway,
    question: &Question,
    letter: Option<&Delivery>,
    reply: &Written,
) -> Result<Reading, No> {
    let form = question.form();
    let proposal = match letter.and_then(|letter| letter.proposal) {
        Some(id) => Some(gw.store.proposed_answer(id).await?.ok_or_else(|| No::new(Code::ApprovalNotFound))?),
        None => None,
    };
    if let Some(proposal) = &proposal
        && voice::is_confirmation(&reply.words, reply.rest)
    {
        return Ok(proposed(proposal, form).map_or(Reading::Unclear(Unclear::NoCode), Reading::Meant));
    }
    let meaning = match voice::hear(&reply.words, reply.rest, form) {
        Err(unclear) if proposal.is_none() => return Ok(Reading::Unclear(unclear)),
        Err(_) => return Ok(Reading::Tell(only_confirm())),
        Ok(Understood::Answer(meaning)) => {
            // Whoever answers `1` here may mean what was understood, or what was asked in the first place.
            let clear = matches!(
                &meaning,
                Meaning::Freeze(_) | Meaning::Menu(Reply::Deny(_) | Reply::Note(_) | Reply::Amend(_))
            );
            let clear = clear || matches!(&meaning, Meaning::Choice(_));
            return Ok(if proposal.is_none() || clear {
                Reading::Meant(meaning)
            } else {
                Reading::Tell(only_confirm())
            });
        }
        Ok(Understood::ToConfirm(meaning)) => meaning,
    };
    // A write that the gateway carries out is not changed by a text at all: that is said at once.
    if matches!(meaning, Meaning::Menu(Reply::Amend(_))) && question.card.approval.subject != Subject::Request {
        return Ok(Reading::Meant(meaning));
    }
    propose(gw, question, letter, reply, meaning).await
}

/// Keeps what was understood, and sends it back to whoever wrote it.
async fn propose(
    gw: &Gateway,
    question: &Question,
    letter: Option<&Delivery>,
    reply: &Written,
    meaning: Meaning,
) -> Result<Reading, No> {
    let (code, words) = match meaning {
        Meaning::Menu(Reply::Note(words)) | Meaning::Choice(words) => ("4", words),
        Meaning::Menu(Reply::Amend(words)) => ("5", words),
        other => return Ok(Reading::Meant(other)),
    };
    let place = letter.map(|letter| (letter.channel.clone(), letter.place.clone()));
    let place = place.or_else(|| Some((email::NAME.to_owned(), reply.from.clone()?)));
    let again = "Nothing was decided: more was written than could be understood for certain. Send the answer again as \
                 plain text, with nothing below it, or decide with `sluice approvals`. 3 still denies.";
    let Some((channel, place)) = place else { return Ok(Reading::Tell(again.into())) };
    let answer = ProposedAnswer {
        id: MessageId::mint(gw.ids.as_ref()),
        approval: question.card.approval.id,
        channel,
        place,
        code: code.to_owned(),
        words,
        made_at: gw.now(),
    };
    if !gw.store.propose_answer(answer).await? {
        return Ok(Reading::Tell(again.into()));
    }
    gw.letters.notify_one();
    Ok(Reading::ToConfirm)
}

/// What a proposed answer means to a question of this form.
fn proposed(proposal: &ProposedAnswer, form: Form<'_>) -> Option<Meaning> {
    let words = proposal.words.clone();
    match (form, proposal.code.as_str()) {
        (Form::Choice(_), "4") => Some(Meaning::Choice(words)),
        (Form::Menu, "4") => Some(Meaning::Menu(Reply::Note(words))),
        (Form::Menu, "5") => Some(Meaning::Menu(Reply::Amend(words))),
        _ => None,
    }
}

fn only_confirm() -> String {
    format!(
        "Nothing was decided: `{}` confirms what was understood, 3 denies, and 4 or 5 with the whole text replaces it. To \
         answer in another way, reply to the first message.",
        voice::CONFIRM
    )
}
