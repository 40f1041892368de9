//! Answers: what a caller is told about its call, now or later.
//!
//! Takes the state of a held write; gives the word, the result or the refusal. Promise: what is told is what
//! the row says, and waiting ends early when it moves and in any case at its limit.

use serde_json::Value;
use sluice_core::approval::ApprovalState;
use sluice_core::hold::{Hold, HoldState, Phase};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ApprovalId, CallId, HoldId, Span, Tier, Timestamp};
use sluice_store::Store;

use super::freeze;
use crate::doors::http::views::failing::{Audience, FailingView, failing};
use crate::services;
use crate::{Gateway, No};

/// What became of a call so far.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is done.
    Done {
        /// The call.
        call: CallId,
        /// What it gave.
        result: Value,
    },
    /// The caller may carry it out.
    Allowed {
        /// The call.
        call: CallId,
        /// What it would use and what is left, where its service has a budget.
        estimate: Option<Value>,
    },
    /// The caller may carry it out only because its agent is observed; the rules would not have let it through.
    Observed {
        /// The call.
        call: CallId,
        /// What the rules said.
        would: Tier,
    },
    /// It waits for its undo window to close.
    Held {
        /// The call.
        call: CallId,
        /// The write.
        hold: HoldId,
        /// When the window closes.
        not_before: Timestamp,
    },
    /// It waits for a person.
    Awaiting {
        /// The call.
        call: CallId,
        /// The write.
        hold: HoldId,
        /// The question.
        approval: ApprovalId,
        /// When silence becomes a no.
        expires_at: Option<Timestamp>,
        /// Whether too many writes at once asked, rather than a rule.
        batch: bool,
    },
    /// It is on its way, or a person has to look at it.
    Under {
        /// The call.
        call: CallId,
        /// The write.
        hold: HoldId,
        /// Its state's word.
        state: &'static str,
        /// The next attempt and the last error, where it is tried again.
        failing: FailingView,
    },
}

/// Waits until a call is over or the time is up, and says how it stands.
///
/// # Errors
/// When it did not happen, as the refusal it ended with.
pub async fn wait(gw: &Gateway, call: CallId, hold: HoldId, at_most: Span) -> Result<Answer, No> {
    wait_over(gw, &gw.store, call, hold, at_most).await
}

/// The same, with the database asked over a connection of the caller's choice.
///
/// # Errors
/// As [`wait`].
pub async fn wait_over(gw: &Gateway, store: &Store, call: CallId, hold: HoldId, at_most: Span) -> Result<Answer, No> {
    let end = gw.clock.since_boot() + at_most;
    let waiter = gw.waiting.on(hold);
    loop {
        let woken = waiter.woken();
        let row = store.hold(hold).await?.ok_or_else(|| No::new(Code::CallNotFound))?;
        let row = present(store, row).await?;
        let left = Span::from_millis(end.as_millis().saturating_sub(gw.clock.since_boot().as_millis()));
        // A caller that carries it out itself does not wait for what a freeze keeps from it.
        if is_over(&row.state) || left == Span::ZERO || freeze::hold_back(store, &row).await.is_err() {
            return tell(store, call, &row).await;
        }
        // Another node may move it without waking us.
        let nap = left.min(Span::from_millis(500));
        let _either = tokio::time::timeout(nap.as_duration(), woken).await;
    }
}

/// The write that took a write's place, if a person changed it; the write itself otherwise.
///
/// # Errors
/// When the database cannot be read.
pub async fn present(store: &Store, row: Hold) -> Result<Hold, No> {
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

/// How a call stands.
///
/// # Errors
/// When it did not happen, as the refusal it ended with.
pub async fn tell(store: &Store, call: CallId, row: &Hold) -> Result<Answer, No> {
    told(store, call, row).await.map_err(|no| no.ended(call))
}

async fn told(store: &Store, call: CallId, row: &Hold) -> Result<Answer, No> {
    let hold = row.id;
    freeze::hold_back(store, row).await?;
    Ok(match &row.state {
        HoldState::Done { .. } if services::is_elsewhere(&row.action) => Answer::Allowed { call, estimate: None },
        HoldState::Done { .. } => {
            let text = store.result(hold).await?;
            let result = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
            Answer::Done { call, result }
        }
        HoldState::Held { not_before } => Answer::Held { call, hold, not_before: *not_before },
        HoldState::AwaitingApproval { approval } => {
            let card = store.approval(*approval).await?;
            let expires_at = card.as_ref().and_then(|card| match card.approval.state {
                ApprovalState::Pending { expires_at } => Some(expires_at),
                _ => None,
            });
            let batch = card.is_some_and(|card| card.approval.subject == sluice_core::approval::Subject::Batch);
            Answer::Awaiting { call, hold, approval: *approval, expires_at, batch }
        }
        HoldState::Ready { .. } | HoldState::Executing { .. } => {
            let failing = failing(store, row, Audience::Agent).await?;
            Answer::Under { call, hold, state: status(row), failing }
        }
        HoldState::InDoubt { .. } => return Err(No::new(Code::ExecuteInDoubt)),
        HoldState::NeedsHuman { .. } => return Err(No::new(Code::ExecuteNeedsHuman)),
        HoldState::Stale { .. } => return Err(No::new(Code::HoldStale)),
        HoldState::Cancelled { .. } => return Err(No::new(Code::HoldCancelled)),
        HoldState::Denied { .. } => return Err(denied(store, row).await?),
        HoldState::Expired { .. } => return Err(No::new(Code::ApprovalExpired)),
        HoldState::Discarded { .. } => return Err(No::new(Code::HoldDiscarded)),
        HoldState::Blocked { .. } => return Err(No::new(Code::PolicyBlocked)),
        HoldState::Dead { code, .. } => return Err(dead(code)),
    })
}

/// A person's no, with what they wrote along.
async fn denied(store: &Store, row: &Hold) -> Result<No, No> {
    let asked = match row.consent {
        Some(id) => store.approval(id).await?,
        None => None,
    };
    let note = asked.and_then(|card| card.approval.note);
    Ok(match note {
        Some(note) => No::saying(Code::ApprovalDenied, &format!("a person said no, and wrote: {note}")),
        None => No::new(Code::ApprovalDenied),
    })
}

/// The refusal a write died of, if it has a published code.
fn dead(code: &str) -> No {
    match Code::from_code(code) {
        Some(code) => No::new(code),
        None => Refusal::new(Code::HoldDead).with_text(&format!("the write failed for good: {code}")).into(),
    }
}

/// Whether nothing more happens to it by itself.
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

/// The word people see for the state of a write: exact, and `retrying` while it waits for another attempt.
#[must_use]
pub const fn shown_state(hold: &Hold) -> &'static str {
    if hold.next_attempt_at().is_some() { "retrying" } else { hold.state.word() }
}

/// The word callers see for how a write stands.
#[must_use]
pub fn status(hold: &Hold) -> &'static str {
    match &hold.state {
        HoldState::Ready { .. } if hold.next_attempt_at().is_some() => "retrying",
        HoldState::Ready { .. } | HoldState::Executing { phase: Phase::Prepare | Phase::Armed, .. } => "executing",
        other => other.word(),
    }
}
