//! Holds: a write that waits before it leaves.
//!
//! Takes `UnfrozenCall`, gives the state of the write: held, or waiting for a person. The batch window is weighed in the
//! same transaction. Promise: the row, its audit entry, its counters and its message appear together or not at all; a
//! write without a delay is answered with its outcome.

use serde_json::Value;
use sluice_core::batch::SlidingWindow;
use sluice_core::budget::DailyBudgetLimits;
use sluice_core::capability::Effect;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::{Action, Actor, ApprovalId, CallId, CapabilityName, HoldId, Millis};
use sluice_services::{CHECKED, CallError};
use sluice_store::{Admission, AdmissionOutcome, CancelHoldOutcome, StoreError};

use super::answer::{self, CallOutcome};
use super::approval::ApprovalCheckedCall;
use super::freeze::UnfrozenCall;
use crate::gateway::DiskSpace;
use crate::{Gateway, recovery};

/// How long a call without a delay waits for its outcome, unless the caller sets a time.
const AT_ONCE: Millis = Millis::from_secs(5);
/// The longest a caller can wait in one request.
pub const LONGEST_WAIT: Millis = Millis::from_secs(60);
/// A window that limits nothing.
const UNLIMITED: SlidingWindow = SlidingWindow { limit: u32::MAX, span: Millis::from_secs(60) };

/// Admits a write and waits for its outcome as long as the caller asked.
///
/// # Errors
/// When it is a duplicate, frozen, or cannot be recorded; or, if the caller waits, when it was not carried out.
pub(crate) async fn place(gw: &Gateway, free: UnfrozenCall) -> Result<CallOutcome, CallError> {
    let asked = free.into_asked();
    if gw.disk_space() != DiskSpace::Enough {
        return Err(CallError::new(Code::StoreDiskFull));
    }
    let checked = asked.checked();
    let mut admission = admission(gw, &asked);
    if !asked.only_checks() {
        // Fail early: a write that is impossible now need not become a dead hold later.
        let service = gw.services.for_service(checked.service())?;
        let rate = gw.config.release.pace_of(checked.service(), service.is_local());
        gw.queues.admit((checked.service(), checked.known().agent()), rate, gw.config.release.queue)?;
        service.check_feasible(checked.action(), checked.known().session().map(|session| session.id)).await?;
        admission.action = bound(gw, &admission).await?;
    }
    let known = checked.known();
    let wait = known.wish().wait_ms.map_or_else(
        || if checked.delay() == Millis::ZERO && !asked.needs_person() { AT_ONCE } else { Millis::ZERO },
        |ms| Millis::from_millis(ms).min(LONGEST_WAIT),
    );
    let admitted = gw.store.admit(admission).await?;
    gw.signals.events.notify_written();
    let (call, hold) = match admitted {
        AdmissionOutcome::Held { hold, .. } | AdmissionOutcome::Awaiting { hold, .. } => {
            (CallId::from_bits(hold.bits()), hold)
        }
        AdmissionOutcome::Again { call, hold } => (call, hold),
        // The store has recorded the refusal.
        AdmissionOutcome::Blocked => return Err(CallError::new(Code::PolicyBlocked).for_ended_call(known.call())),
    };
    if let AdmissionOutcome::Awaiting { approval, .. } = admitted {
        gw.notify_approval_changed(approval);
    }
    if let AdmissionOutcome::Held { not_before, .. } = admitted {
        gw.queues.add_one(checked.service(), known.agent());
        gw.open_undo_window(hold, not_before.since(gw.now()));
        if asked.checked().delay() == Millis::ZERO {
            gw.due.notify_one();
        }
    }
    if wait > Millis::ZERO || matches!(admitted, AdmissionOutcome::Again { .. }) {
        return answer::wait(gw, call, hold, wait).await;
    }
    Ok(match admitted {
        AdmissionOutcome::Held { not_before, .. } => CallOutcome::Held { call, hold, not_before },
        AdmissionOutcome::Awaiting { approval, expires_at, batch, .. } => {
            CallOutcome::Awaiting { call, hold, approval, expires_at: Some(expires_at), batch }
        }
        AdmissionOutcome::Again { .. } | AdmissionOutcome::Blocked => {
            return answer::wait(gw, call, hold, Millis::ZERO).await;
        }
    })
}

/// The action of a write, bound to the current state of its objects.
///
/// # Errors
/// When that state cannot be read, or the write is impossible.
pub(crate) async fn bound(gw: &Gateway, admission: &Admission) -> Result<Action, CallError> {
    let service = gw.services.for_service(&admission.service)?;
    Ok(admission.action.with_found(service.describe_current_state(&admission.action).await?))
}

/// The action of a call that is only checked: never the action that would be carried out.
fn only_checked(action: &Action) -> Action {
    if sluice_services::is_elsewhere(action) {
        return action.clone();
    }
    let cut = CapabilityName::MAX - CHECKED.len();
    let name: String = action.capability().as_str().chars().take(cut).collect();
    let arguments = Value::Object(action.arguments().clone());
    CapabilityName::new(format!("{CHECKED}{name}"))
        .ok()
        .and_then(|name| Action::custom(name, action.agent().clone(), arguments).ok())
        .map(|checked| checked.with_spawn(action.spawn().cloned()))
        // INVARIANT: the name and arguments were valid before, and a prefix keeps them valid.
        .unwrap_or_else(|| action.clone())
}

pub(crate) fn admission(gw: &Gateway, asked: &ApprovalCheckedCall) -> Admission {
    let (checked, ids) = (asked.checked(), gw.ids.as_ref());
    let known = checked.known();
    let mut record_key = [0; 32];
    gw.entropy.fill(&mut record_key);
    let window = gw.config.window_for(checked.service());
    let is_write = checked.effect() == Effect::Write && !asked.only_checks();
    let budgets = match window {
        Some(_) if is_write => gw.config.budgets.limits_at(checked.service()),
        Some(_) | None => DailyBudgetLimits::default(),
    };
    Admission {
        call: known.call(),
        // The call and its write share one number, so that each can be found from the other.
        hold: HoldId::from_bits(known.call().bits()),
        approval: ApprovalId::mint(ids),
        message: MessageId::mint(ids),
        record_key,
        action: if asked.only_checks() { only_checked(checked.action()) } else { checked.action().clone() },
        session: known.session().map(|session| session.id),
        service: checked.service().clone(),
        class: checked.class(),
        object_key: checked.object_key().map(str::to_owned),
        weight: checked.weight(),
        delay: if asked.only_checks() || asked.would().is_some() { Millis::ZERO } else { checked.delay() },
        tier: asked.tier(),
        policy: asked.policy().to_owned(),
        rule: asked.rule().map(str::to_owned),
        rates: asked.rates().to_vec(),
        window: window.unwrap_or(UNLIMITED),
        budgets,
        checks: asked.only_checks().then(|| gw.config.budgets.checks()),
        idempotency_key: known.wish().idempotency_key.clone(),
        named: known.wish().named,
        allow_duplicate: known.wish().allow_duplicate || checked.effect() == Effect::Read,
        allowance: asked.allowance().cloned(),
        expiry: gw.config.approvals.expiry,
        reverses: None,
        by: None,
        door: Some(known.door()),
        targets: asked.targets().to_vec(),
        reason: known.wish().reason.clone(),
        reasons: asked.reasons().to_vec(),
    }
}

/// Stops a write.
///
/// # Errors
/// When there is no such write, or it is too late; the text names its current state.
pub async fn stop(gw: &Gateway, hold: HoldId, by: Actor) -> Result<Hold, CallError> {
    let cancelled = gw.stop_lane().cancel(hold, by).await.map_err(|error| match error {
        StoreError::NotFound { .. } => CallError::new(Code::HoldNotFound),
        other => other.into(),
    })?;
    match cancelled {
        CancelHoldOutcome::Stopped(hold) => {
            recovery::remember_stop(gw).await;
            gw.forget_window(hold.id);
            gw.notify_hold_changed(hold.id);
            Ok(hold)
        }
        CancelHoldOutcome::TooLate(hold) => {
            let text = format!("the write is already {}", answer::status(&hold));
            Err(CallError { call: Some(hold.call), ..CallError::with_text(Code::HoldTooLate, &text) })
        }
    }
}
