//! Replies: what a person wrote back to a message, and what it leads to.
//!
//! Takes the words of a reply and what else it holds; gives the person's meaning, or asks them to confirm it.
//! Promise: a note or a changed text counts in full or not at all. If a part of a reply may not have been understood,
//! the person gets back what was understood, with a token of its own, and nothing is decided until they confirm it.

use sluice_core::approval::ApprovalSubject;
use sluice_core::approval::mail::{ReplyRemainder, read_reply};
use sluice_core::approval::reply::{ApprovalReply, ReplyParseError};
use sluice_core::approval::reply_meaning::{self, ExpectedReplyForm, ReplyInterpretation, ReplyMeaning};
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_services::CallError;
use sluice_store::{ApprovalDelivery, ProposedAnswer};

use super::deciding::ApprovalRequest;
use super::rendering;
use crate::Gateway;

/// A reply as it arrived.
#[derive(Debug, Clone)]
pub struct WrittenReply {
    /// The words of the person.
    pub words: String,
    /// What the reply holds in addition to those words.
    pub rest: ReplyRemainder,
    /// The channel and place that it came from, if no message shows that.
    pub from: Option<String>,
}

impl WrittenReply {
    /// A mail whose words were already extracted.
    #[must_use]
    pub fn mail(words: &str, rest: ReplyRemainder) -> Self {
        Self { words: words.to_owned(), rest, from: None }
    }

    /// The text of a mail that a forwarding service handed in, with the address of its sender.
    #[must_use]
    pub fn handed_in(text: &str, from: Option<String>) -> Self {
        let read = read_reply(text);
        Self { words: read.words, rest: read.rest, from }
    }
}

/// What a reply leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// It is a complete answer.
    Meant(ReplyMeaning),
    /// What was understood is sent back to the person, to confirm it.
    ToConfirm,
    /// Nothing was decided, and the person gets this text.
    Tell(String),
    /// Nothing was decided: the reply is not one of the answers.
    Unclear(ReplyParseError),
}

/// Reads a reply to an approval request, and to one message of it if that is known.
///
/// # Errors
/// When what was understood cannot be stored.
pub async fn understand(
    gw: &Gateway,
    question: &ApprovalRequest,
    letter: Option<&ApprovalDelivery>,
    reply: &WrittenReply,
) -> Result<ReplyOutcome, CallError> {
    let form = question.form();
    let proposal = match letter.and_then(|letter| letter.proposal) {
        Some(id) => Some(gw.store.proposed_answer(id).await?.ok_or_else(|| CallError::new(Code::ApprovalNotFound))?),
        None => None,
    };
    if let Some(proposal) = &proposal
        && reply_meaning::is_confirmation(&reply.words, reply.rest)
    {
        return Ok(proposed(proposal, form).map_or(ReplyOutcome::Unclear(ReplyParseError::NoCode), ReplyOutcome::Meant));
    }
    let meaning = match reply_meaning::interpret_reply(&reply.words, reply.rest, form) {
        Err(unclear) if proposal.is_none() => return Ok(ReplyOutcome::Unclear(unclear)),
        Err(_) => return Ok(ReplyOutcome::Tell(only_confirm())),
        Ok(ReplyInterpretation::Answer(meaning)) => {
            // A `1` here may mean what was understood, or the original request.
            let clear = matches!(
                &meaning,
                ReplyMeaning::Freeze(_)
                    | ReplyMeaning::Menu(ApprovalReply::Deny(_) | ApprovalReply::Note(_) | ApprovalReply::Amend(_))
            );
            let clear = clear || matches!(&meaning, ReplyMeaning::Choice(_));
            return Ok(if proposal.is_none() || clear {
                ReplyOutcome::Meant(meaning)
            } else {
                ReplyOutcome::Tell(only_confirm())
            });
        }
        Ok(ReplyInterpretation::ToConfirm(meaning)) => meaning,
    };
    // A write that the gateway carries out is not changed by a text: the person is told so at once.
    if matches!(meaning, ReplyMeaning::Menu(ApprovalReply::Amend(_)))
        && question.card.approval.subject != ApprovalSubject::Request
    {
        return Ok(ReplyOutcome::Meant(meaning));
    }
    propose(gw, question, letter, reply, meaning).await
}

/// Stores what was understood, and sends it back to the person who wrote it.
async fn propose(
    gw: &Gateway,
    question: &ApprovalRequest,
    letter: Option<&ApprovalDelivery>,
    reply: &WrittenReply,
    meaning: ReplyMeaning,
) -> Result<ReplyOutcome, CallError> {
    let (code, words) = match meaning {
        ReplyMeaning::Menu(ApprovalReply::Note(words)) | ReplyMeaning::Choice(words) => ("4", words),
        ReplyMeaning::Menu(ApprovalReply::Amend(words)) => ("5", words),
        other => return Ok(ReplyOutcome::Meant(other)),
    };
    let place = letter.map(|letter| (letter.channel.clone(), letter.place.clone()));
    let place = place.or_else(|| Some((rendering::EMAIL.to_owned(), reply.from.clone()?)));
    let again = "Nothing was decided: a part of the reply could not be understood for certain. Send the answer again \
                 as plain text, with nothing below it, or decide with `sluice approvals`. 3 still denies.";
    let Some((channel, place)) = place else { return Ok(ReplyOutcome::Tell(again.into())) };
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
        return Ok(ReplyOutcome::Tell(again.into()));
    }
    gw.signals.letters.notify_one();
    Ok(ReplyOutcome::ToConfirm)
}

/// What a proposed answer means for an approval of this form.
fn proposed(proposal: &ProposedAnswer, form: ExpectedReplyForm<'_>) -> Option<ReplyMeaning> {
    let words = proposal.words.clone();
    match (form, proposal.code.as_str()) {
        (ExpectedReplyForm::Choice(_), "4") => Some(ReplyMeaning::Choice(words)),
        (ExpectedReplyForm::Menu, "4") => Some(ReplyMeaning::Menu(ApprovalReply::Note(words))),
        (ExpectedReplyForm::Menu, "5") => Some(ReplyMeaning::Menu(ApprovalReply::Amend(words))),
        _ => None,
    }
}

fn only_confirm() -> String {
    format!(
        "Nothing was decided: `{}` confirms what was understood, 3 denies, and 4 or 5 with the whole text replaces it. To \
         answer in another way, reply to the first message.",
        reply_meaning::CONFIRM
    )
}
