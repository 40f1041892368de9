//! The expiry of approval requests.
//!
//! Takes a request, or the time; gives the requests that expired. Promise: a request expires in the same transaction as
//! every write that still waits for it; none of those writes can be approved by it later.

use sluice_core::ApprovalId;
use sluice_core::approval::{Approval, ApprovalMove};
use sluice_core::hold::{Hold, HoldMove};

use super::{OVERDUE, awaits, decode, items, shift};
use crate::error::StoreError;
use crate::holds::{self, HoldMoveReason};
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{UnitOfWork, UseCase};

/// Expires the request, because nobody answered, and ends every write still waiting for it.
pub(crate) async fn expire<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: Approval,
) -> Result<Approval, StoreError> {
    let waiting = waiting(unit, approval.id).await?;
    end(unit, approval, waiting)
}

/// The writes that still wait for this request, locked.
async fn waiting<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, question: ApprovalId) -> Result<Vec<Hold>, StoreError> {
    let mut waiting = Vec::new();
    for item in items(unit.tx(), question).await? {
        waiting.push(holds::locked(unit, item.hold).await?);
    }
    waiting.retain(|hold| awaits(hold, question));
    Ok(waiting)
}

fn end<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: Approval,
    waiting: Vec<Hold>,
) -> Result<Approval, StoreError> {
    let at = unit.now;
    let why = HoldMoveReason::because(unit.actor(), "approval.expired");
    for hold in waiting {
        holds::shift(unit, hold, [HoldMove::Expire { at }], &why)?;
    }
    shift(unit, approval, ApprovalMove::Expire { at }, &why)
}

/// Expires requests whose time is up.
pub(crate) struct ExpireDueApprovals {
    pub limit: u32,
}

impl UseCase for ExpireDueApprovals {
    type Out = Vec<ApprovalId>;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<ApprovalId>, StoreError> {
        let now = unit.now;
        let rows = unit.rows(OVERDUE, params![now, self.limit]).await?;
        let mut over = Vec::with_capacity(rows.len());
        for approval in rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()? {
            let waiting = waiting(unit, approval.id).await?;
            over.push((approval, waiting));
        }
        over.into_iter().map(|(approval, waiting)| end(unit, approval, waiting).map(|ended| ended.id)).collect()
    }
}
