//! What a question shows: the contents of its writes, and why it was put.
//!
//! Takes a question's id; gives what a card is rendered from. Promise: the reasons are those of the moment the question
//! was put, whatever the rules say now; a question is shown again only while it is open.

use sluice_core::approval::reason::AskReason;
use sluice_core::ids::MessageId;
use sluice_core::target::Traced;
use sluice_core::{ApprovalId, HoldId};

use crate::Store;
use crate::approvals;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Tx, params};
use crate::targets;

const REASONS: &str = "SELECT reasons FROM approvals WHERE id = ?1";
const CONTENTS: &str = "SELECT i.hold, c.targets, c.reason FROM approval_items i JOIN contents c ON c.hold = i.hold \
     WHERE i.approval = ?1 ORDER BY i.place";

/// What is kept of one write beside its action.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteContents {
    /// Which write.
    pub hold: HoldId,
    /// Its targets, and where each comes from, as it was when the write was admitted.
    pub targets: Vec<Traced>,
    /// Why the agent wants it, in its own words.
    pub reason: Option<String>,
}

struct Contents(ApprovalId);

impl Query for Contents {
    type Out = Vec<WriteContents>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<WriteContents>, StoreError> {
        let rows = tx.rows(CONTENTS, &params![self.0]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("contents");
                let hold = HoldId::from_bits(row.bits()?);
                let targets = targets::read(&mut row)?;
                Ok(WriteContents { hold, targets, reason: row.maybe_text()? })
            })
            .collect()
    }
}

struct Reasons(ApprovalId);

impl Query for Reasons {
    type Out = Vec<AskReason>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<AskReason>, StoreError> {
        let Some(row) = tx.rows(REASONS, &params![self.0]).await?.into_iter().next() else { return Ok(Vec::new()) };
        let mut row = row.of("approvals");
        match row.maybe_text()? {
            // Put by an earlier release.
            None => Ok(Vec::new()),
            Some(text) => serde_json::from_str(&text).map_err(|_| row.impossible("reasons that cannot be read")),
        }
    }
}

struct ShowAgain {
    approval: ApprovalId,
    message: MessageId,
}

impl UseCase for ShowAgain {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let approval = approvals::locked(desk, self.approval).await?;
        if approval.state.is_open() && !approval.is_over(desk.now) {
            let body = serde_json::json!({"approval": approval.id, "agent": approval.agent, "again": true});
            let topic = "approval.asked".into();
            outbox::put(desk, &Message { id: self.message, topic, severity: Severity::Action, body });
        }
        Ok(())
    }
}

impl Store {
    /// The contents of every write of a question, in the order of the card.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn question_contents(&self, id: ApprovalId) -> Result<Vec<WriteContents>, StoreError> {
        self.ask(Contents(id)).await
    }

    /// Why a question was put, as it was then. Empty for one of an earlier release.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn asked_because(&self, id: ApprovalId) -> Result<Vec<AskReason>, StoreError> {
        self.ask(Reasons(id)).await
    }

    /// Has a question shown again, as it is now, wherever it was shown with fewer writes.
    ///
    /// # Errors
    /// When there is none, or that cannot be recorded.
    pub async fn show_again(&self, approval: ApprovalId, message: MessageId) -> Result<(), StoreError> {
        self.submit(ShowAgain { approval, message }).await
    }
}
