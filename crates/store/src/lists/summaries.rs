//! What writes and approvals are about, for lists.
//!
//! Takes ids; gives the capability and the targets of each in the same order. Promise: a list of any length costs three
//! batches of queries, and a batch of a thousand writes is read no further than its first write.

use sluice_core::hold::Hold;
use sluice_core::ids::CapabilityName;
use sluice_core::target::TracedTarget;
use sluice_core::{ApprovalId, HoldId};

use crate::Store;
use crate::error::StoreError;
use crate::holds::{self, columns};
use crate::sql::{SqlRow, StoreTx, params};
use crate::targets;
use crate::unit_of_work::StoreQuery;

const FIRST_WRITE: &str =
    columns!("JOIN approval_items i ON i.hold = h.id WHERE i.approval = ?1 ORDER BY i.place LIMIT 1");
const REQUESTED: &str = "SELECT action_type, title FROM requests WHERE approval = ?1";

/// What an approval is about.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalSummary {
    /// Writes: the capability and the targets of the first one.
    Write {
        /// The capability.
        capability: CapabilityName,
        /// Its targets with their origins.
        targets: Vec<TracedTarget>,
    },
    /// An action that a client carries out itself, in its own words.
    Request {
        /// The client's name for the kind of action.
        action_type: String,
        /// Its short title.
        title: String,
    },
    /// Its content is no longer stored.
    Forgotten,
}

struct SummarizeApprovals(Vec<ApprovalId>);

impl StoreQuery for SummarizeApprovals {
    type Out = Vec<ApprovalSummary>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let each: Vec<_> = self.0.iter().map(|id| params![*id]).collect();
        let writes = tx.rows_each(FIRST_WRITE, &each).await?;
        let requests = tx.rows_each(REQUESTED, &each).await?;
        let first = |rows: Vec<SqlRow>| rows.into_iter().next().map(holds::decode).transpose();
        let writes: Vec<Option<Hold>> = writes.into_iter().map(first).collect::<Result<_, _>>()?;
        let held: Vec<_> = writes.iter().flatten().map(|hold| params![hold.id]).collect();
        let mut targets = tx.rows_each(targets::OF_HOLD, &held).await?.into_iter();
        let mut summaries = Vec::with_capacity(each.len());
        for (write, requests) in writes.into_iter().zip(requests) {
            let summary = match (write, requests.into_iter().next()) {
                (Some(hold), _) => {
                    let targets = read(targets.next().unwrap_or_default())?;
                    ApprovalSummary::Write { capability: hold.action.capability().clone(), targets }
                }
                (None, Some(request)) => {
                    let mut row = request.of("requests");
                    ApprovalSummary::Request { action_type: row.text()?, title: row.text()? }
                }
                (None, None) => ApprovalSummary::Forgotten,
            };
            summaries.push(summary);
        }
        Ok(summaries)
    }
}

struct ListTargets(Vec<HoldId>);

impl StoreQuery for ListTargets {
    type Out = Vec<Vec<TracedTarget>>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let each: Vec<_> = self.0.iter().map(|id| params![*id]).collect();
        tx.rows_each(targets::OF_HOLD, &each).await?.into_iter().map(read).collect()
    }
}

/// The targets in the first row; none if there is no row.
fn read(rows: Vec<SqlRow>) -> Result<Vec<TracedTarget>, StoreError> {
    rows.into_iter().next().map_or_else(|| Ok(Vec::new()), |row| targets::read(&mut row.of("contents")))
}

impl Store {
    /// What each of these approvals is about, in the same order.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn approval_summaries(&self, approvals: Vec<ApprovalId>) -> Result<Vec<ApprovalSummary>, StoreError> {
        self.ask(SummarizeApprovals(approvals)).await
    }

    /// The targets of each of these writes, in the same order.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn targets_of_holds(&self, holds: Vec<HoldId>) -> Result<Vec<Vec<TracedTarget>>, StoreError> {
        self.ask(ListTargets(holds)).await
    }
}
