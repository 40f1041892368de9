//! The content of an approval request: the content of its writes, and the reasons for it.
//!
//! Takes the id of an approval request; gives everything its card is rendered from. Promise: the reasons are those of
//! the moment the request was made, even if the rules have changed; a request is shown again only while it is open.

use sluice_core::approval::reason::ApprovalReason;
use sluice_core::ids::MessageId;
use sluice_core::target::TracedTarget;
use sluice_core::{ApprovalId, HoldId};

use crate::Store;
use crate::approvals;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{StoreTx, params};
use crate::targets;
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const REASONS: &str = "SELECT reasons FROM approvals WHERE id = ?1";
const CONTENTS: &str = "SELECT i.hold, c.targets, c.reason FROM approval_items i JOIN contents c ON c.hold = i.hold \
     WHERE i.approval = ?1 ORDER BY i.place";

/// What is stored about one write besides its action.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteContents {
    /// The write.
    pub hold: HoldId,
    /// Its targets with their origins, as they were when the write was admitted.
    pub targets: Vec<TracedTarget>,
    /// Why the agent wants it, in its own words.
    pub reason: Option<String>,
}

struct ListApprovalContents(ApprovalId);

impl StoreQuery for ListApprovalContents {
    type Out = Vec<WriteContents>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<WriteContents>, StoreError> {
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

struct ListApprovalReasons(ApprovalId);

impl StoreQuery for ListApprovalReasons {
    type Out = Vec<ApprovalReason>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ApprovalReason>, StoreError> {
        let Some(row) = tx.rows(REASONS, &params![self.0]).await?.into_iter().next() else { return Ok(Vec::new()) };
        let mut row = row.of("approvals");
        match row.maybe_text()? {
            // Made by an earlier release.
            None => Ok(Vec::new()),
            Some(text) => serde_json::from_str(&text).map_err(|_| row.impossible("reasons that cannot be read")),
        }
    }
}

struct ShowApprovalAgain {
    approval: ApprovalId,
    message: MessageId,
}

impl UseCase for ShowApprovalAgain {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let approval = approvals::locked(unit, self.approval).await?;
        if approval.state.is_open() && !approval.is_over(unit.now) {
            let body = serde_json::json!({"approval": approval.id, "agent": approval.agent, "again": true});
            let topic = "approval.asked".into();
            outbox::put(unit, &OutboxMessage { id: self.message, topic, severity: MessageSeverity::Action, body });
        }
        Ok(())
    }
}

impl Store {
    /// The contents of every write of an approval request, in the order of the card.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn question_contents(&self, id: ApprovalId) -> Result<Vec<WriteContents>, StoreError> {
        self.ask(ListApprovalContents(id)).await
    }

    /// The reasons for an approval request, as they were then. Empty for one of an earlier release.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn approval_reasons(&self, id: ApprovalId) -> Result<Vec<ApprovalReason>, StoreError> {
        self.ask(ListApprovalReasons(id)).await
    }

    /// Makes all channels show an approval request again, as it is now, where they showed it with fewer writes.
    ///
    /// # Errors
    /// When there is none, or that cannot be recorded.
    pub async fn show_again(&self, approval: ApprovalId, message: MessageId) -> Result<(), StoreError> {
        self.submit(ShowApprovalAgain { approval, message }).await
    }
}
