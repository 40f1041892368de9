//! Stop orders: writes that had left, or may have left, when their service was disconnected.
//!
//! Takes a write that is about to be retried; gives the same write, cancelled if its connection was ended meanwhile.
//! Promise: a write for one connection never leaves through a later one.

use sluice_core::hold::{Hold, HoldMove};
use sluice_core::{Actor, HoldId};

use crate::error::StoreError;
use crate::holds::{self, HoldMoveReason};
use crate::sql::{StoreTx, params};
use crate::unit_of_work::UnitOfWork;

/// The code of their cancellation.
pub(crate) const CODE: &str = "service.disconnected";

const ORDER: &str =
    "INSERT INTO stop_orders (hold, given_by, given_at) VALUES (?1, ?2, ?3) ON CONFLICT (hold) DO NOTHING";
const ORDERED: &str = "SELECT given_by FROM stop_orders WHERE hold = ?1";

/// Orders that this write is not retried.
pub(crate) fn order<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: HoldId, by: &Actor) {
    let now = unit.now;
    unit.write(ORDER, params![hold, by, now]);
}

/// Who ordered that a write is not retried, if anyone did.
pub(crate) async fn stop_ordered_by<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: HoldId,
) -> Result<Option<Actor>, StoreError> {
    unit.row(ORDERED, params![hold]).await?.map(|row| row.of("stop_orders").parsed()).transpose()
}

/// Moves a write by this step, and then cancels it if that was ordered.
pub(crate) fn advance_or_stop<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: Hold,
    on: HoldMove,
    (stop, why): (Option<Actor>, &HoldMoveReason),
) -> Result<Hold, StoreError> {
    let Some(by) = stop else { return holds::shift(unit, hold, [on], why) };
    let at = unit.now;
    let why = HoldMoveReason::because(why.actor.clone(), CODE);
    holds::shift(unit, hold, [on, HoldMove::Cancel { by, at }], &why)
}
