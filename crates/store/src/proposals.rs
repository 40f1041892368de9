//! Proposed answers: answers that wait for their person to confirm them.
//!
//! Takes an answer whose text may be incomplete; gives it back by its id. Promise: it decides nothing by itself. It is
//! stored together with the message that shows the person what was understood.

use sluice_core::ids::MessageId;
use sluice_core::{ApprovalId, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const PUT: &str = "INSERT INTO proposed_answers (id, approval, channel, place, code, words, made_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const BY_ID: &str = "SELECT id, approval, channel, place, code, words, made_at FROM proposed_answers WHERE id = ?1";
const COUNT: &str = "SELECT COUNT(*) FROM proposed_answers WHERE approval = ?1 AND channel = ?2 AND place = ?3";
const FORGET: &str = "DELETE FROM proposed_answers WHERE made_at < ?1";
/// How long they are kept: longer than an approval request can be open.
const KEPT: Millis = Millis::from_hours(8 * 24);
/// Most answers of one person to one approval request that are sent back: this ends a loop of two programs answering
/// each other.
const MOST: u32 = 5;

/// An answer as it was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedAnswer {
    /// Its id, which is that of the message that sends it back.
    pub id: MessageId,
    /// The approval request it would answer.
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
    pub made_at: UtcMillis,
}

struct ProposeAnswer(ProposedAnswer);

impl UseCase for ProposeAnswer {
    type Out = bool;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let ProposedAnswer { id, approval, channel, place, code, words, .. } = &self.0;
        let row = unit.row(COUNT, params![*approval, channel.as_str(), place.as_str()]).await?;
        let before = match row {
            Some(row) => row.of("proposed_answers").count::<u32>()?,
            None => 0,
        };
        if before >= MOST {
            return Ok(false);
        }
        let now = unit.now;
        let mut row = params![*id, *approval, channel.as_str(), place.as_str()];
        row.extend(params![code.as_str(), words.as_str(), now]);
        unit.write(FORGET, params![now - KEPT]);
        unit.write(PUT, row);
        let body = serde_json::json!({"approval": approval});
        let message =
            OutboxMessage { id: *id, topic: "approval.confirm".into(), severity: MessageSeverity::Action, body };
        outbox::put(unit, &message);
        Ok(true)
    }
}

struct GetProposedAnswer(MessageId);

impl StoreQuery for GetProposedAnswer {
    type Out = Option<ProposedAnswer>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(BY_ID, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

fn decode(row: SqlRow) -> Result<ProposedAnswer, StoreError> {
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
        self.submit(ProposeAnswer(answer)).await
    }

    /// An answer that waits to be confirmed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn proposed_answer(&self, id: MessageId) -> Result<Option<ProposedAnswer>, StoreError> {
        self.ask(GetProposedAnswer(id)).await
    }
}
