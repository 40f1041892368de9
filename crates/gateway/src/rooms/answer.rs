//! Answers: what a caller is told about its call, at once or later.
//!
//! Takes the state of a held write; gives its status, result or refusal. Promise: the answer is what the row says, and
//! waiting ends when the write changes or when the time limit is reached.

use serde_json::Value;
use sluice_core::approval::ApprovalState;
use sluice_core::hold::{AttemptPhase, Hold, HoldState};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ApprovalId, CallId, HoldId, Millis, Tier, UtcMillis};
use sluice_services::CallError;
use sluice_services::failing::{FailingView, FailureAudience, failing};
use sluice_store::Store;

use super::freeze;
use crate::{Gateway, GatewayPhase};

/// The state of a call, as its caller is told.
#[derive(Debug, Clone, PartialEq)]
pub enum CallOutcome {
    /// The call is done.
    Done {
        /// The call.
        call: CallId,
        /// The result.
        result: Value,
    },
    /// The caller may carry out the action itself.
    Allowed {
        /// The call.
        call: CallId,
        /// What it would use and what is left, if its service has a budget.
        estimate: Option<Value>,
    },
    /// The caller may carry out the action only because its agent is observed; the rules would not have allowed it.
    Observed {
        /// The call.
        call: CallId,
        /// The verdict of the rules.
        would: Tier,
    },
    /// The write waits for its undo window to close.
    Held {
        /// The call.
        call: CallId,
        /// The write.
        hold: HoldId,
        /// When the window closes.
        not_before: UtcMillis,
    },
    /// The write waits for a person.
    Awaiting {
        /// The call.
        call: CallId,
        /// The write.
        hold: HoldId,
        /// The approval request.
        approval: ApprovalId,
        /// When the approval request expires, which counts as a denial.
        expires_at: Option<UtcMillis>,
        /// Whether the batch window asked for the approval, rather than a rule.
        batch: bool,
    },
    /// The write is in progress, or a person has to look at it.
    Under {
        /// The call.
        call: CallId,
        /// The write.
        hold: HoldId,
        /// The name of its state.
        state: &'static str,
        /// The next attempt and the last error, if the write is retried.
        failing: FailingView,
    },
}

/// Waits until a call is over or the time is up, and returns its state.
///
/// # Errors
/// The refusal that the call ended with, if it was not carried out.
pub async fn wait(gw: &Gateway, call: CallId, hold: HoldId, at_most: Millis) -> Result<CallOutcome, CallError> {
    wait_over(gw, &gw.store, call, hold, at_most).await
}

/// Like [`wait`], over a database connection of the caller's choice.
///
/// # Errors
/// As [`wait`].
pub async fn wait_over(
    gw: &Gateway,
    store: &Store,
    call: CallId,
    hold: HoldId,
    at_most: Millis,
) -> Result<CallOutcome, CallError> {
    let end = gw.clock.since_boot() + at_most;
    let waiter = gw.signals.waiting.on(hold);
    loop {
        let woken = waiter.woken();
        let row = store.hold(hold).await?.ok_or_else(|| CallError::new(Code::CallNotFound))?;
        let row = follow_replacement(store, row).await?;
        let left = Millis::from_millis(end.as_millis().saturating_sub(gw.clock.since_boot().as_millis()));
        // A caller that carries out the action itself does not wait while a freeze covers it. A gateway that stops still
        // ends writes that are under way, but asks nobody and releases nothing: their callers get their call ids.
        let is_stuck = gw.phase() == GatewayPhase::Stopping && waits_for_somebody(&row.state);
        if is_over(&row.state)
            || is_stuck
            || left == Millis::ZERO
            || freeze::refuse_if_frozen(store, &row).await.is_err()
        {
            return call_outcome(store, call, &row).await;
        }
        // Another node may change it without waking this one.
        let nap = left.min(Millis::from_millis(500));
        tokio::select! {
            _either = tokio::time::timeout(nap.as_duration(), woken) => {}
            () = gw.wait_for_stop(), if gw.phase() != GatewayPhase::Stopping => {}
        }
    }
}

/// Whether nothing happens to a write until a person answers or its time has come.
fn waits_for_somebody(state: &HoldState) -> bool {
    matches!(state, HoldState::AwaitingApproval { .. } | HoldState::Held { .. } | HoldState::InDoubt { .. })
}

/// The write that replaced a write because a person changed it; otherwise the write itself.
///
/// # Errors
/// When the database cannot be read.
pub async fn follow_replacement(store: &Store, row: Hold) -> Result<Hold, CallError> {
    let (HoldState::Denied { .. }, Some(consent)) = (&row.state, row.consent) else { return Ok(row) };
    let Some(card) = store.approval(consent).await? else { return Ok(row) };
    let ApprovalState::Superseded { replacement, .. } = card.approval.state else { return Ok(row) };
    let changed = store.approval(replacement).await?;
    let item = changed.as_ref().and_then(|card| card.items.first());
    match item {
        Some(item) => Ok(store.hold(item.hold).await?.unwrap_or(row)),
        None => Ok(row),
    }
}

/// The state of a call.
///
/// # Errors
/// The refusal that the call ended with, if it was not carried out.
pub async fn call_outcome(store: &Store, call: CallId, row: &Hold) -> Result<CallOutcome, CallError> {
    told(store, call, row).await.map_err(|no| no.for_ended_call(call))
}

async fn told(store: &Store, call: CallId, row: &Hold) -> Result<CallOutcome, CallError> {
    let hold = row.id;
    freeze::refuse_if_frozen(store, row).await?;
    Ok(match &row.state {
        HoldState::Done { .. } if sluice_services::is_elsewhere(&row.action) => {
            CallOutcome::Allowed { call, estimate: None }
        }
        HoldState::Done { .. } => {
            let text = store.hold_result(hold).await?;
            let result = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
            CallOutcome::Done { call, result }
        }
        HoldState::Held { not_before } => CallOutcome::Held { call, hold, not_before: *not_before },
        HoldState::AwaitingApproval { approval } => {
            let card = store.approval(*approval).await?;
            let expires_at = card.as_ref().and_then(|card| match card.approval.state {
                ApprovalState::Pending { expires_at } => Some(expires_at),
                _ => None,
            });
            let batch = card.is_some_and(|card| card.approval.subject == sluice_core::approval::ApprovalSubject::Batch);
            CallOutcome::Awaiting { call, hold, approval: *approval, expires_at, batch }
        }
        HoldState::Ready { .. } | HoldState::Executing { .. } => {
            let failing = failing(store, row, FailureAudience::Agent).await?;
            CallOutcome::Under { call, hold, state: status(row), failing }
        }
        HoldState::InDoubt { .. } => return Err(CallError::new(Code::ExecuteInDoubt)),
        HoldState::NeedsHuman { .. } => return Err(CallError::new(Code::ExecuteNeedsHuman)),
        HoldState::Stale { .. } => return Err(CallError::new(Code::HoldStale)),
        HoldState::Cancelled { .. } => return Err(CallError::new(Code::HoldCancelled)),
        HoldState::Denied { .. } => return Err(denied(store, row).await?),
        HoldState::Expired { .. } => return Err(CallError::new(Code::ApprovalExpired)),
        HoldState::Discarded { .. } => return Err(CallError::new(Code::HoldDiscarded)),
        HoldState::Blocked { .. } => return Err(CallError::new(Code::PolicyBlocked)),
        HoldState::Dead { code, .. } => return Err(dead(code)),
    })
}

/// The refusal for a denial, with the person's note.
async fn denied(store: &Store, row: &Hold) -> Result<CallError, CallError> {
    let asked = match row.consent {
        Some(id) => store.approval(id).await?,
        None => None,
    };
    let note = asked.and_then(|card| card.approval.note);
    Ok(match note {
        Some(note) => {
            CallError::with_text(Code::ApprovalDenied, &format!("a person denied the call, and wrote: {note}"))
        }
        None => CallError::new(Code::ApprovalDenied),
    })
}

/// The refusal that ended a write, if it has a published code.
fn dead(code: &str) -> CallError {
    match Code::from_code(code) {
        Some(code) => CallError::new(code),
        None => Refusal::new(Code::HoldDead).with_text(&format!("the write failed permanently: {code}")).into(),
    }
}

/// Whether a write is in a final state.
#[must_use]
pub fn is_over(state: &HoldState) -> bool {
    match state {
        HoldState::AwaitingApproval { .. }
        | HoldState::Held { .. }
        | HoldState::Ready { .. }
        | HoldState::Executing { .. }
        | HoldState::InDoubt { .. } => false,
        HoldState::NeedsHuman { .. }
        | HoldState::Stale { .. }
        | HoldState::Done { .. }
        | HoldState::Cancelled { .. }
        | HoldState::Denied { .. }
        | HoldState::Expired { .. }
        | HoldState::Dead { .. }
        | HoldState::Discarded { .. }
        | HoldState::Blocked { .. } => true,
    }
}

/// The state name that people see: exact, and `retrying` while the write waits for another attempt.
#[must_use]
pub const fn shown_state(hold: &Hold) -> &'static str {
    if hold.next_attempt_at().is_some() { "retrying" } else { hold.state.word() }
}

/// The state name that callers see.
#[must_use]
pub fn status(hold: &Hold) -> &'static str {
    match &hold.state {
        HoldState::Ready { .. } if hold.next_attempt_at().is_some() => "retrying",
        HoldState::Ready { .. } | HoldState::Executing { phase: AttemptPhase::Prepare | AttemptPhase::Armed, .. } => {
            "executing"
        }
        other => other.word(),
    }
}
