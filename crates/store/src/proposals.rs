//! Answers that wait for their person to confirm them.
//!
//! Takes an answer with a text of which something may be missing; gives it back by its id. Promise: it decides nothing by
//! itself. It is written together with the message that sends the person what was understood.

use sluice_core::ids::MessageId;
use sluice_core::{ApprovalId, Span, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Row, Tx, params};

const PUT: &str = "INSERT INTO proposed_answers (id, approval, channel, place, code, words, made_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const BY_ID: &str = "SELECT id, approval, channel, place, code, words, made_at FROM proposed_answers WHERE id = ?1";
const COUNT: &str = "SELECT COUNT(*) FROM proposed_answers WHERE approval = ?1 AND channel = ?2 AND place = ?3";
const FORGET: &str = "DELETE FROM proposed_answers WHERE made_at < ?1";
/// How long they are kept: longer than a question can be open.
const KEPT: Span = Span::from_hours(8 * 24);
/// Most answers of one person to one question that are sent back: two programs that answer each other come to an end.
const MOST: u32 = 5;

/// An answer as it was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedAnswer {
    /// Its id, which is that of the message that sends it back.
    pub id: MessageId,
    /// The question it would answer.
    pub approval: ApprovalId,
    /// The channel it came over.
    pub channel: String,
    /// The chat or address it came from, and is sent back to.
    pub place: String,
    /// The digit of the menu.
    pub code: String,
    /// The text after it.
    pub words: String,
    /// When it came.
    pub made_at: Timestamp,
}

struct Propose(ProposedAnswer);

impl UseCase for Propose {
    type Out = bool;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<bool, StoreError> {
        let ProposedAnswer { id, approval, channel, place, code, words, .. } = &self.0;
        let row = desk.row(COUNT, params![*approval, channel.as_str(), place.as_str()]).await?;
        let before = match row {
            Some(row) => row.of("proposed_answers").count::<u32>()?,
            None => 0,
        };
        if before >= MOST {
            return Ok(false);
        }
        let now = desk.now;
        let mut row = params![*id, *approval, channel.as_str(), place.as_str()];
        row.extend(params![code.as_str(), words.as_str(), now]);
        desk.write(FORGET, params![now - KEPT]);
        desk.write(PUT, row);
        let body = serde_json::json!({"approval": approval});
        let message = Message { id: *id, topic: "approval.confirm".into(), severity: Severity::Action, body };
        outbox::put(desk, &message);
        Ok(true)
    }
}

struct ById(MessageId);

impl Query for ById {
    type Out = Option<ProposedAnswer>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(BY_ID, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

fn decode(row: Row) -> Result<ProposedAnswer, StoreError> {
    let mut row = row.of("proposed_answers");
    Ok(ProposedAnswer {
        id: MessageId::from_bits(row.bits()?),
        approval: ApprovalId::from_bits(row.bits()?),
        channel: row.text()?,
        place: row.text()?,
        code: row.text()?,
        words: row.text()?,
        made_at: row.time()?,
    })
}

impl Store {
    /// Keeps an answer until its person confirms it, with the message that asks for that. False if there were too many.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn propose_answer(&self, answer: ProposedAnswer) -> Result<bool, StoreError> {
        self.submit(Propose(answer)).await
    }

    /// An answer that waits to be confirmed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn proposed_answer(&self, id: MessageId) -> Result<Option<ProposedAnswer>, StoreError> {
        self.ask(ById(id)).await
    }
}
