//! Execute: one claimed write, carried out once.
//!
//! Takes a hold that this node has claimed; leaves it done, retrying, dead or in doubt. Promise: everything needed to
//! look it up and to undo it is recorded before anything can leave, the one effect consumes the permit from arming, and
//! an uncertain outcome is recorded as uncertain.

use sluice_core::capability::{Effect, EffectClass};
use sluice_core::hold::Hold;
use sluice_core::ids::{MessageId, RollbackId};
use sluice_core::read_trace::ReadTrace;
use sluice_core::refusal::{Code, Refusal, RetryAdvice};
use sluice_core::{CapabilityName, Millis, UtcMillis};
use sluice_services::intake::ContentRecipient;
use sluice_services::{
    CallError, CompletedWrite, ELSEWHERE, LookupOutcome, PreparedWrite, Service, ServiceRead, ServiceSlot, WriteError,
};
use sluice_store::{
    ArmWrite, AttemptOutcome, FinishAttempt, LookupEvidence, ResolveDoubt, StateBeforeWrite, StoreError,
};
use tokio::time::timeout;

use super::{client_writes, freeze, rollback};
use crate::gateway::GatewayPhase;
use crate::{Gateway, nodes, recovery};

/// How long a claim lasts before other nodes may conclude that this node is gone.
pub const LEASE: Millis = Millis::from_secs(60);
/// The last part of a lease, in which nothing is started and nothing is waited for.
const MARGIN: Millis = Millis::from_secs(5);

/// Until when a claim made now may be worked on, in time since boot, which nobody can set.
#[must_use]
pub fn until(gw: &Gateway) -> Millis {
    gw.clock.since_boot() + Millis::from_millis(LEASE.as_millis().saturating_sub(MARGIN.as_millis()))
}

/// Carries out a claimed write and records the outcome. No part of it runs after `until`.
pub async fn run(gw: &Gateway, hold: Hold, until: Millis) {
    let id = hold.id;
    let mut service_words = None;
    let outcome = match attempt(gw, &hold, until, &mut service_words).await {
        Ok(outcome) => outcome,
        Err(unrecorded) => {
            // Nothing is lost: the lease runs out and the write is looked up.
            tracing::warn!(hold.id = %id, code = unrecorded.refusal.code().as_str(), "could not record an attempt of {id}");
            return gw.notify_hold_changed(id);
        }
    };
    let message = MessageId::mint(gw.ids.as_ref());
    let finish = FinishAttempt { hold: id, epoch: hold.epoch, outcome, service_words, message };
    match gw.store.finish(finish).await {
        Ok(_) => {}
        Err(StoreError::Fenced) => {
            tracing::warn!(hold.id = %id, "the claim on {id} was lost before its end was recorded")
        }
        Err(error) => tracing::error!(hold.id = %id, code = error.code(), "could not record the end of {id}"),
    }
    gw.forget_window(id);
    gw.notify_hold_changed(id);
}

/// One attempt: its outcome, or why the outcome cannot be recorded. `words` becomes the service's text on a refusal.
async fn attempt(
    gw: &Gateway,
    hold: &Hold,
    until: Millis,
    words: &mut Option<String>,
) -> Result<AttemptOutcome, CallError> {
    if sluice_services::is_elsewhere(&hold.action) {
        return match arm(gw, hold, PreparedWrite::default()).await? {
            ArmOutcome::Permit(..) => {
                // Before the client learns of the approval: afterwards the old bytes may be gone.
                client_writes::keep(gw, hold.call, &hold.action, hold.session).await?;
                Ok(done(CompletedWrite {
                    receipt: ELSEWHERE.into(),
                    result: serde_json::json!({"decision": "allow"}),
                    after: None,
                    undo_until: None,
                }))
            }
            ArmOutcome::Stopped(outcome) => Ok(outcome),
        };
    }
    if let Some(reversed) = hold.reverses {
        return rollback::attempt(gw, hold, reversed, until).await;
    }
    let Ok(service) = gw.services.for_service(&hold.service) else { return Ok(refused(Code::GatewayUnsupported)) };
    if effect_of(gw, hold.action.capability()) == Some(Effect::Read) {
        // A read that a person had to approve: it has no earlier state to restore and can be repeated.
        let ArmOutcome::Permit(permit, _) = arm(gw, hold, PreparedWrite::default()).await? else {
            return Ok(AttemptOutcome::GivenBack);
        };
        drop(permit);
        let (call, action, session) = (hold.call, hold.action.clone(), hold.session);
        let ask = ServiceRead { call, action, session, now: gw.now(), notes: None };
        let given = match service.read(&ask).await {
            Ok(result) if service.gives_outside_text() => {
                let reader = ContentRecipient::of_write(hold);
                gw.intake.note(&reader, hold.action.capability().as_str(), &result).await.map(|()| result)
            }
            other => other,
        };
        if let Ok(result) = &given {
            // A disclosure is recorded before it happens.
            let (name, arguments) = (hold.action.capability(), hold.action.arguments());
            let read = ReadTrace::of(&gw.vault.record_key(), name, arguments, result);
            gw.store.record_given_read(hold, &read).await?;
        }
        return Ok(match given {
            Ok(result) => done(CompletedWrite { receipt: "answered".into(), result, after: None, undo_until: None }),
            Err(no) => AttemptOutcome::Refused { code: no.code().as_str().into() },
        });
    }
    // Preparing may reach the service, and a freeze may have come since the claim.
    if freeze::is_blocked_by_freeze(gw, hold, service.as_ref()).await? {
        return Ok(AttemptOutcome::GivenBack);
    }
    let prepared = match within(gw, until, service.prepare(hold)).await {
        Some(Ok(prepared)) => prepared,
        Some(Err(trouble)) => {
            *words = trouble.service_words().map(str::to_owned);
            return Ok(before_arming(gw.now(), trouble));
        }
        None => return Ok(out_of_time()),
    };
    let place = match reserve_slot(gw, hold, service.as_ref(), until).await {
        Ok(place) => place,
        Err(outcome) => return Ok(outcome),
    };
    match arm(gw, hold, prepared).await? {
        ArmOutcome::Stopped(outcome) => Ok(outcome),
        ArmOutcome::Permit(..) if left(gw, until) == Millis::ZERO => Ok(out_of_time()),
        ArmOutcome::Permit(permit, before) => {
            let work = place.hold_during(service.perform(*permit, hold, before.as_deref()));
            let tried = within(gw, until, work).await.unwrap_or(Err(WriteError::Unclear));
            *words = tried.as_ref().err().and_then(WriteError::service_words).map(str::to_owned);
            Ok(outcome_of(gw.now(), tried))
        }
    }
}

/// The place that an effect needs, or the outcome of a write that got none: it was not sent.
pub(super) async fn reserve_slot(
    gw: &Gateway,
    hold: &Hold,
    service: &dyn Service,
    until: Millis,
) -> Result<ServiceSlot, AttemptOutcome> {
    let place = match within(gw, until, service.reserve(hold)).await {
        Some(Ok(place)) => place,
        Some(Err(no)) => return Err(later(gw.now(), &no)),
        // No place became free in time: the write goes back to its queue, and no attempt is counted.
        None => return Err(AttemptOutcome::GivenBack),
    };
    if left(gw, until) == Millis::ZERO {
        return Err(out_of_time());
    }
    // A stopping gateway starts nothing: a write that has not left waits for the next start.
    if gw.phase() == GatewayPhase::Stopping {
        return Err(AttemptOutcome::GivenBack);
    }
    Ok(place)
}

/// The time that is left of a claim.
pub(super) fn left(gw: &Gateway, until: Millis) -> Millis {
    Millis::from_millis(until.as_millis().saturating_sub(gw.clock.since_boot().as_millis()))
}

/// Runs work that must end before the claim does. Nothing if it did not.
pub(super) async fn within<T>(gw: &Gateway, until: Millis, work: impl Future<Output = T>) -> Option<T> {
    timeout(left(gw, until).as_duration(), work).await.ok()
}

/// The outcome when the claim's time was used up before anything could leave.
pub(super) fn out_of_time() -> AttemptOutcome {
    AttemptOutcome::NotDone { code: Code::ExecuteOutOfTime.as_str().into() }
}

/// The result of arming.
pub(super) enum ArmOutcome {
    /// The right to one effect, and the content from before it.
    Permit(Box<sluice_core::hold::Permit>, Option<Vec<u8>>),
    /// The write must not continue.
    Stopped(AttemptOutcome),
}

/// Records everything needed to reconcile and undo, and gets the permit.
pub(super) async fn arm(gw: &Gateway, hold: &Hold, prepared: PreparedWrite) -> Result<ArmOutcome, CallError> {
    let PreparedWrite { handle, before } = prepared;
    let content = before.as_ref().map(|(content, _)| content.clone());
    let before =
        before.map(|(content, print)| StateBeforeWrite { id: RollbackId::mint(gw.ids.as_ref()), content, print });
    // A handle that is already recorded is used, even if a new one was made.
    let handle = hold.handle.clone().or(handle);
    let arming = ArmWrite { hold: hold.id, epoch: hold.epoch, wire: hold.action.digest(), handle, before };
    match gw.store.arm(arming).await {
        // The state file outside the database is updated before anything leaves: a restored database is then older than
        // the file.
        Ok(permit) => match recovery::remember(gw).await {
            Ok(()) => Ok(ArmOutcome::Permit(Box::new(permit), content)),
            Err(no) => Ok(ArmOutcome::Stopped(AttemptOutcome::NotDone { code: no.refusal.code().as_str().into() })),
        },
        Err(StoreError::Frozen { .. } | StoreError::Braked { .. }) => {
            Ok(ArmOutcome::Stopped(AttemptOutcome::GivenBack))
        }
        Err(StoreError::Arm(_)) => Ok(ArmOutcome::Stopped(refused(Code::ExecuteRefusedMismatch))),
        Err(error) => Err(error.into()),
    }
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupAttempt {
    /// The service was asked, and its answer is recorded.
    Made,
    /// The service could not be asked. Nothing is recorded, and no lookup is counted.
    NotMade,
    /// The service is not asked for now: it is paused or frozen.
    PutOff,
}

/// Looks up a write with an uncertain outcome and records the result.
///
/// # Errors
/// When it cannot be recorded.
pub async fn look_up(gw: &Gateway, hold: &Hold) -> Result<LookupAttempt, CallError> {
    if nodes::leaves_to_others(gw, hold).await? {
        return Ok(LookupAttempt::PutOff);
    }
    if let Ok(service) = gw.services.for_service(&hold.service)
        && (!service.can_be_asked() || freeze::is_blocked_by_freeze(gw, hold, service.as_ref()).await?)
    {
        return Ok(LookupAttempt::PutOff);
    }
    let point = gw.store.hold_rollback(hold.id).await?;
    let found = match (gw.services.for_service(&hold.service), hold.reverses) {
        _ if sluice_services::is_elsewhere(&hold.action) => LookupOutcome::Absent,
        (_, Some(reversed)) => rollback::look_up(gw, hold, reversed).await?,
        (Ok(service), None) if effect_of(gw, hold.action.capability()) == Some(Effect::Write) => {
            service.look_up(hold, point.as_ref().map(|point| point.content.as_slice())).await
        }
        // An interrupted read changed nothing.
        (Ok(_), None) => LookupOutcome::Absent,
        (Err(_), _) => LookupOutcome::Unknown,
    };
    let evidence = match found {
        LookupOutcome::Applied(CompletedWrite { receipt, result, after, undo_until }) => {
            LookupEvidence::Applied { receipt, result: Some(result.to_string()), after, service_until: undo_until }
        }
        LookupOutcome::Absent => LookupEvidence::Absent,
        LookupOutcome::Unknown => LookupEvidence::Inconclusive,
        // An opaque effect cannot be looked up anywhere, whether the service is reachable or not.
        LookupOutcome::NotLooked if hold.class == EffectClass::Opaque => LookupEvidence::Inconclusive,
        LookupOutcome::NotLooked => return Ok(LookupAttempt::NotMade),
    };
    let message = MessageId::mint(gw.ids.as_ref());
    let lookups = gw.config.release.lookups.schedule().lookups();
    gw.store.resolve(ResolveDoubt { hold: hold.id, version: hold.version, evidence, lookups, message }).await?;
    gw.notify_hold_changed(hold.id);
    Ok(LookupAttempt::Made)
}

/// The outcome of an error before the permit: nothing can have happened.
fn before_arming(now: UtcMillis, trouble: WriteError) -> AttemptOutcome {
    match trouble {
        WriteError::Refused(no) => AttemptOutcome::Refused { code: no.code().as_str().into() },
        WriteError::NotDone(no) => later(now, &no),
        WriteError::Unclear | WriteError::UnclearSaying(_) => {
            AttemptOutcome::NotDone { code: Code::ExecuteRefused.as_str().into() }
        }
    }
}

/// The outcome of a write that is retried: at the time the service named, if it named one.
fn later(now: UtcMillis, no: &Refusal) -> AttemptOutcome {
    let code = no.code().as_str().into();
    // The general advice of a code is only a guess; in that case the gateway's own schedule applies.
    let was_said = no.code() == Code::EgressLimit || no.retry() != no.code().retry();
    match no.retry() {
        RetryAdvice::After(span) if was_said => AttemptOutcome::NotBefore { code, not_before: now + span },
        _ => AttemptOutcome::NotDone { code },
    }
}

pub(super) fn outcome_of(now: UtcMillis, tried: Result<CompletedWrite, WriteError>) -> AttemptOutcome {
    match tried {
        Ok(performed) => done(performed),
        Err(WriteError::NotDone(no)) => later(now, &no),
        Err(WriteError::Refused(no)) => AttemptOutcome::Refused { code: no.code().as_str().into() },
        Err(WriteError::Unclear | WriteError::UnclearSaying(_)) => AttemptOutcome::Unclear,
    }
}

pub(super) fn done(performed: CompletedWrite) -> AttemptOutcome {
    let CompletedWrite { receipt, result, after, undo_until } = performed;
    AttemptOutcome::Done { receipt, after, service_until: undo_until, result: Some(result.to_string()) }
}

pub(super) fn refused(code: Code) -> AttemptOutcome {
    AttemptOutcome::Refused { code: code.as_str().into() }
}

fn effect_of(gw: &Gateway, capability: &CapabilityName) -> Option<Effect> {
    gw.catalogue.known().get(capability).map(|spec| spec.effect)
}
