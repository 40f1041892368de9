//! Stop orders: writes that were on their way when their service was disconnected.
//!
//! Takes a write that is to be tried again; gives the same write, cancelled where somebody ended its connection since.
//! Promise: what was meant for a connection never leaves through a later one.

use sluice_core::hold::{Hold, Move};
use sluice_core::{Actor, HoldId};

use crate::desk::Desk;
use crate::error::StoreError;
use crate::holds::{self, Why};
use crate::sql::{Tx, params};

/// Why they are cancelled.
pub(crate) const CODE: &str = "service.disconnected";

const ORDER: &str =
    "INSERT INTO stop_orders (hold, given_by, given_at) VALUES (?1, ?2, ?3) ON CONFLICT (hold) DO NOTHING";
const ORDERED: &str = "SELECT given_by FROM stop_orders WHERE hold = ?1";

/// This write is not to be tried again.
pub(crate) fn order<T: Tx>(desk: &mut Desk<'_, T>, hold: HoldId, by: &Actor) {
    let now = desk.now;
    desk.write(ORDER, params![hold, by, now]);
}

/// Who said that a write is not to be tried again, if anyone did.
pub(crate) async fn ordered<T: Tx>(desk: &mut Desk<'_, T>, hold: HoldId) -> Result<Option<Actor>, StoreError> {
    desk.row(ORDERED, params![hold]).await?.map(|row| row.of("stop_orders").parsed()).transpose()
}

/// Lets a write go on by this step, or stops it for good where that was ordered.
pub(crate) fn or_on<T: Tx>(
    desk: &mut Desk<'_, T>,
    hold: Hold,
    on: Move,
    (stop, why): (Option<Actor>, &Why),
) -> Result<Hold, StoreError> {
    let Some(by) = stop else { return holds::shift(desk, hold, [on], why) };
    let at = desk.now;
    let why = Why::because(why.actor.clone(), CODE);
    holds::shift(desk, hold, [on, Move::Cancel { by, at }], &why)
}
