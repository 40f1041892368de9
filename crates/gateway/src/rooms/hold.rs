//! Holds: a write that waits before it leaves.
//!
//! Takes `Unfrozen`, gives what became of it: held, or waiting for a person. The batch window is weighed in the
//! same transaction. Promise: the row, its audit entry, its counters and its message appear together or not
//! at all; what needs no wait is answered with its outcome.

use serde_json::Value;
use sluice_core::batch::Window;
use sluice_core::budget::BudgetLimits;
use sluice_core::capability::Effect;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::{Action, Actor, ApprovalId, CallId, CapabilityName, HoldId, Span};
use sluice_store::{Admission, Admitted, Cancelled, StoreError};

use super::answer::{self, Answer};
use super::approval::Asked;
use super::freeze::Unfrozen;
use crate::gateway::Room;
use crate::services::{self, CHECKED};
use crate::{Gateway, No, recovery};

/// How long a call without a delay is waited for, unless the caller says otherwise.
const AT_ONCE: Span = Span::from_secs(5);
/// The longest a caller can wait in one request.
pub(crate) const LONGEST_WAIT: Span = Span::from_secs(60);
/// Nothing is counted under this window.
const UNLIMITED: Window = Window { limit: u32::MAX, span: Span::from_secs(60) };

/// Admits a write and waits for its outcome as long as asked.
///
/// # Errors
/// When it is a duplicate, frozen, or cannot be recorded; or, if it was waited for, when it did not happen.
pub(crate) async fn place(gw: &Gateway, free: Unfrozen) -> Result<Answer, No> {
    let asked = free.into_asked();
    if gw.room() != Room::Enough {
        return Err(No::new(Code::StoreDiskFull));
    }
    let checked = asked.checked();
    let mut admission = admission(gw, &asked);
    if !asked.only_checks() {
        // Fail early: what can be seen to be impossible now need not become a dead letter later.
        let service = gw.services.for_service(checked.service())?;
        let rate = gw.config.release.pace_of(checked.service(), service.is_local());
        gw.queues.admit((checked.service(), checked.known().agent()), rate, gw.config.release.queue)?;
        service.foresee(checked.action(), checked.known().session().map(|session| session.id)).await?;
        admission.action = bound(gw, &admission).await?;
    }
    let known = checked.known();
    let wait = known.wish().wait_ms.map_or_else(
        || if checked.delay() == Span::ZERO && !asked.needs_person() { AT_ONCE } else { Span::ZERO },
        |ms| Span::from_millis(ms).min(LONGEST_WAIT),
    );
    let admitted = gw.store.admit(admission).await?;
    gw.events.wrote();
    let (call, hold) = match admitted {
        Admitted::Held { hold, .. } | Admitted::Awaiting { hold, .. } => (CallId::from_bits(hold.bits()), hold),
        Admitted::Again { call, hold } => (call, hold),
        // The store has recorded it.
        Admitted::Blocked => return Err(No::new(Code::PolicyBlocked).ended(known.call())),
    };
    if let Admitted::Awaiting { approval, .. } = admitted {
        gw.asked(approval);
    }
    if let Admitted::Held { not_before, .. } = admitted {
        gw.queues.joined(checked.service(), known.agent());
        gw.opened_window(hold, not_before.since(gw.now()));
        if asked.checked().delay() == Span::ZERO {
            gw.due.notify_one();
        }
    }
    if wait > Span::ZERO || matches!(admitted, Admitted::Again { .. }) {
        return answer::wait(gw, call, hold, wait).await;
    }
    Ok(match admitted {
        Admitted::Held { not_before, .. } => Answer::Held { call, hold, not_before },
        Admitted::Awaiting { approval, expires_at, batch, .. } => {
            Answer::Awaiting { call, hold, approval, expires_at: Some(expires_at), batch }
        }
        Admitted::Again { .. } | Admitted::Blocked => return answer::wait(gw, call, hold, Span::ZERO).await,
    })
}

/// The action of a write, bound to the state its objects are in now.
///
/// # Errors
/// When that cannot be found out, or the write can be seen to be impossible.
pub(crate) async fn bound(gw: &Gateway, admission: &Admission) -> Result<Action, No> {
    let service = gw.services.for_service(&admission.service)?;
    Ok(admission.action.with_found(service.found(&admission.action).await?))
}

/// The action of a call that is only checked: never the one that would be carried out.
fn only_checked(action: &Action) -> Action {
    if services::is_elsewhere(action) {
        return action.clone();
    }
    let cut = CapabilityName::MAX - CHECKED.len();
    let name: String = action.capability().as_str().chars().take(cut).collect();
    let arguments = Value::Object(action.arguments().clone());
    CapabilityName::new(format!("{CHECKED}{name}"))
        .ok()
        .and_then(|name| Action::custom(name, action.agent().clone(), arguments).ok())
        .map(|checked| checked.with_spawn(action.spawn().cloned()))
        // INVARIANT: both names and arguments were valid a moment ago, and a prefix keeps them so.
        .unwrap_or_else(|| action.clone())
}

pub(crate) fn admission(gw: &Gateway, asked: &Asked) -> Admission {
    let (checked, ids) = (asked.checked(), gw.ids.as_ref());
    let known = checked.known();
    let mut record_key = [0; 32];
    gw.entropy.fill(&mut record_key);
    let window = gw.config.window_for(checked.service());
    let is_write = checked.effect() == Effect::Write && !asked.only_checks();
    let budgets = match window {
        Some(_) if is_write => gw.config.budgets.limits_at(checked.service()),
        Some(_) | None => BudgetLimits::default(),
    };
    Admission {
        call: known.call(),
        // One number names the call and its write, so that either finds the other.
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
        delay: if asked.only_checks() || asked.would().is_some() { Span::ZERO } else { checked.delay() },
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
/// When there is none, or it is too late, with what it is now.
pub(crate) async fn stop(gw: &Gateway, hold: HoldId, by: Actor) -> Result<Hold, No> {
    let cancelled = gw.stop_lane().cancel(hold, by).await.map_err(|error| match error {
        StoreError::NotFound { .. } => No::new(Code::HoldNotFound),
        other => other.into(),
    })?;
    match cancelled {
        Cancelled::Stopped(hold) => {
            recovery::remember_stop(gw).await;
            gw.forget_window(hold.id);
            gw.moved(hold.id);
            Ok(hold)
        }
        Cancelled::TooLate(hold) => {
            let text = format!("the write is already {}", answer::status(&hold));
            Err(No { call: Some(hold.call), ..No::saying(Code::HoldTooLate, &text) })
        }
    }
}
