//! Operating: what people with an operator's credential do to held writes and to what is frozen.
//!
//! Takes a write or a scope and the person; gives the write or what could no longer be stopped. Promise: every door for
//! operators acts here, so that each of them changes the same things and wakes the same waiters.

use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::{Actor, ApprovalId, HoldId, Millis};
use sluice_services::CallError;
use sluice_store::{FreezeTarget, HoldSettlement, HoldTiming, SettleHold, StoreError};

use crate::rooms::{answer, policy};
use crate::{Gateway, loops, recovery};

/// The longest time by which one request can extend a hold.
pub const LONGEST_EXTENSION: Millis = Millis::from_hours(24);

/// Holds a write longer, or lets it leave now.
///
/// # Errors
/// When there is no such write, it is too late, or the time is out of bounds.
pub async fn retime(gw: &Gateway, id: HoldId, by: Actor, timing: HoldTiming) -> Result<Hold, CallError> {
    if let HoldTiming::Longer(span) = timing
        && (span == Millis::ZERO || span > LONGEST_EXTENSION)
    {
        return Err(CallError::with_text(Code::DoorParameter, "a write is held longer by 1 second to 24 hours"));
    }
    let hold = match gw.store.retime(id, by, timing).await.map_err(missing) {
        Ok(hold) => hold,
        Err(no) if no.refusal.code() == Code::HoldTooLate => return Err(over(gw, id, no).await),
        Err(no) => return Err(no),
    };
    match timing {
        HoldTiming::Now => {
            gw.forget_window(id);
            gw.due.notify_one();
        }
        HoldTiming::Longer(span) => {
            let left = loops::release::due_at(&hold).map_or(span, |at| at.since(gw.now()));
            gw.open_undo_window(id, left);
        }
    }
    gw.notify_hold_changed(id);
    Ok(hold)
}

/// The refusal for a write that can no longer be changed, with its state.
async fn over(gw: &Gateway, id: HoldId, no: CallError) -> CallError {
    match gw.store.hold(id).await {
        Ok(Some(hold)) => {
            CallError::with_text(Code::HoldTooLate, &format!("the write is already {}", answer::status(&hold)))
        }
        Ok(None) | Err(_) => no,
    }
}

/// Records a person's decision about a write that they saw at this version.
///
/// # Errors
/// When it has changed since, or its state takes no such decision.
pub async fn settle(
    gw: &Gateway,
    hold: &Hold,
    version: u64,
    (word, by): (HoldSettlement, Actor),
) -> Result<Hold, CallError> {
    let tier = policy::look_again(gw, hold).await?.tier;
    let ids = gw.ids.as_ref();
    let settle = SettleHold {
        hold: hold.id,
        version,
        by,
        word,
        tier,
        approval: ApprovalId::mint(ids),
        message: MessageId::mint(ids),
        expiry: gw.config.approvals.expiry,
    };
    let hold = gw.store.settle(settle).await.map_err(missing)?;
    gw.notify_hold_changed(hold.id);
    gw.due.notify_one();
    Ok(hold)
}

/// Freezes a scope. Gives the writes that were already on their way.
///
/// # Errors
/// When the reason is too long, or it cannot be recorded.
pub async fn freeze(gw: &Gateway, scope: FreezeTarget, by: Actor, reason: String) -> Result<Vec<HoldId>, CallError> {
    if reason.chars().count() > 500 {
        return Err(CallError::with_text(Code::DoorParameter, "a reason has at most 500 characters"));
    }
    let in_flight = gw.stop_lane().freeze(scope, by, reason).await?;
    gw.standstill.look(&gw.store).await;
    recovery::remember_stop(gw).await;
    gw.signals.events.notify_written();
    Ok(in_flight)
}

/// Lifts a freeze.
///
/// # Errors
/// When there is no such freeze, or it may not be lifted now.
pub async fn unfreeze(gw: &Gateway, scope: FreezeTarget, by: Actor) -> Result<(), CallError> {
    gw.store.unfreeze(scope, by).await?;
    gw.standstill.look(&gw.store).await;
    gw.signals.events.notify_written();
    gw.due.notify_one();
    Ok(())
}

fn missing(error: StoreError) -> CallError {
    match error {
        StoreError::NotFound { .. } => CallError::new(Code::HoldNotFound),
        other => other.into(),
    }
}
