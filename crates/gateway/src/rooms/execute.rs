//! Execute: one claimed write, carried out once.
//!
//! Takes a hold this node has claimed; leaves it done, retrying, dead or in doubt. Promise: everything
//! needed to look it up and to undo it is on record before anything can leave, the permit that arming gave
//! is consumed by the one effect, and a doubt is recorded as one.

use sluice_core::capability::{Effect, EffectClass};
use sluice_core::hold::Hold;
use sluice_core::ids::{MessageId, RollbackId};
use sluice_core::read_trace::ReadTrace;
use sluice_core::refusal::{Code, Refusal, Retry};
use sluice_core::{CapabilityName, Span, Timestamp};
use sluice_store::{Arming, Before, Evidence, Finish, Outcome, Resolve, StoreError};
use tokio::time::timeout;

use super::{client_writes, freeze, rollback};
use crate::gateway::Phase;
use crate::intake::Reader;
use crate::services::{self, Ask, ELSEWHERE, Found, Performed, Place, Prepared, Service, Trouble};
use crate::{Gateway, No, nodes, recovery};

/// How long a claim lasts before others may conclude that this node is gone.
pub const LEASE: Span = Span::from_secs(60);
/// The last part of a lease, in which nothing is begun and nothing is waited for.
const MARGIN: Span = Span::from_secs(5);

/// Until when a claim made from now on may be worked on, in time since boot: a clock that nobody can set.
#[must_use]
pub fn until(gw: &Gateway) -> Span {
    gw.clock.since_boot() + Span::from_millis(LEASE.as_millis().saturating_sub(MARGIN.as_millis()))
}

/// Carries out a claimed write and records how it went. Nothing of it goes on after `until`.
pub async fn run(gw: &Gateway, hold: Hold, until: Span) {
    let id = hold.id;
    let mut service_words = None;
    let outcome = match attempt(gw, &hold, until, &mut service_words).await {
        Ok(outcome) => outcome,
        Err(unrecorded) => {
            // Nothing is lost: the lease runs out and the write is looked up.
            tracing::warn!(hold.id = %id, code = unrecorded.refusal.code().as_str(), "could not record an attempt of {id}");
            return gw.moved(id);
        }
    };
    let message = MessageId::mint(gw.ids.as_ref());
    let finish = Finish { hold: id, epoch: hold.epoch, outcome, service_words, message };
    match gw.store.finish(finish).await {
        Ok(_) => {}
        Err(StoreError::Fenced) => {
            tracing::warn!(hold.id = %id, "the claim on {id} was lost before its end was recorded")
        }
        Err(error) => tracing::error!(hold.id = %id, code = error.code(), "could not record the end of {id}"),
    }
    gw.forget_window(id);
    gw.moved(id);
}

/// One attempt: how it went, or why that cannot even be recorded. `words` becomes what the service said to a no.
async fn attempt(gw: &Gateway, hold: &Hold, until: Span, words: &mut Option<String>) -> Result<Outcome, No> {
    if services::is_elsewhere(&hold.action) {
        return match arm(gw, hold, Prepared::default()).await? {
            Armed::Permit(..) => {
                // Before the client hears of the approval: afterwards the old bytes may be gone.
                client_writes::keep(gw, hold.call, &hold.action, hold.session).await?;
                Ok(done(Performed {
                    receipt: ELSEWHERE.into(),
                    result: serde_json::json!({"decision": "allow"}),
                    after: None,
                    undo_until: None,
                }))
            }
            Armed::Stopped(outcome) => Ok(outcome),
        };
    }
    if let Some(reversed) = hold.reverses {
        return rollback::attempt(gw, hold, reversed, until).await;
    }
    let Ok(service) = gw.services.for_service(&hold.service) else { return Ok(refused(Code::GatewayUnsupported)) };
    if effect_of(gw, hold.action.capability()) == Some(Effect::Read) {
        // A read a person had to allow: it has no state to go back to and can be repeated.
        let Armed::Permit(permit, _) = arm(gw, hold, Prepared::default()).await? else { return Ok(Outcome::GivenBack) };
        drop(permit);
        let (call, action, session) = (hold.call, hold.action.clone(), hold.session);
        let ask = Ask { call, action, session, now: gw.now(), notes: None };
        let given = match service.read(&ask).await {
            Ok(result) if service.outside() => {
                let reader = Reader::of_write(hold);
                gw.intake.note(&reader, hold.action.capability().as_str(), &result).await.map(|()| result)
            }
            other => other,
        };
        if let Ok(result) = &given {
            // What is disclosed is on record first.
            let (name, arguments) = (hold.action.capability(), hold.action.arguments());
            let read = ReadTrace::of(&gw.vault.record_key(), name, arguments, result);
            gw.store.read_given(hold, &read).await?;
        }
        return Ok(match given {
            Ok(result) => done(Performed { receipt: "answered".into(), result, after: None, undo_until: None }),
            Err(no) => Outcome::Refused { code: no.code().as_str().into() },
        });
    }
    // Preparing may reach the service, and a freeze may have come since the claim.
    if freeze::keeps_in(gw, hold, service.as_ref()).await? {
        return Ok(Outcome::GivenBack);
    }
    let prepared = match within(gw, until, service.prepare(hold)).await {
        Some(Ok(prepared)) => prepared,
        Some(Err(trouble)) => {
            *words = trouble.service_words().map(str::to_owned);
            return Ok(before_arming(gw.now(), trouble));
        }
        None => return Ok(out_of_time()),
    };
    let place = match reserved(gw, hold, service.as_ref(), until).await {
        Ok(place) => place,
        Err(outcome) => return Ok(outcome),
    };
    match arm(gw, hold, prepared).await? {
        Armed::Stopped(outcome) => Ok(outcome),
        Armed::Permit(..) if left(gw, until) == Span::ZERO => Ok(out_of_time()),
        Armed::Permit(permit, before) => {
            let work = place.hold_during(service.perform(*permit, hold, before.as_deref()));
            let tried = within(gw, until, work).await.unwrap_or(Err(Trouble::Unclear));
            *words = tried.as_ref().err().and_then(Trouble::service_words).map(str::to_owned);
            Ok(outcome_of(gw.now(), tried))
        }
    }
}

/// The place an effect needs, or what becomes of a write that has none: it has not been sent.
pub(super) async fn reserved(gw: &Gateway, hold: &Hold, service: &dyn Service, until: Span) -> Result<Place, Outcome> {
    let place = match within(gw, until, service.reserve(hold)).await {
        Some(Ok(place)) => place,
        Some(Err(no)) => return Err(later(gw.now(), &no)),
        // None came free in time: back to its queue, and no attempt is counted.
        None => return Err(Outcome::GivenBack),
    };
    if left(gw, until) == Span::ZERO {
        return Err(out_of_time());
    }
    // A gateway that stops begins nothing: what has not left waits for the next one.
    if gw.phase() == Phase::Stopping {
        return Err(Outcome::GivenBack);
    }
    Ok(place)
}

/// What is left of the time a claim gave.
pub(super) fn left(gw: &Gateway, until: Span) -> Span {
    Span::from_millis(until.as_millis().saturating_sub(gw.clock.since_boot().as_millis()))
}

/// Work that ends before the claim does. Nothing if it did not.
pub(super) async fn within<T>(gw: &Gateway, until: Span, work: impl Future<Output = T>) -> Option<T> {
    timeout(left(gw, until).as_duration(), work).await.ok()
}

/// The claim's time was used up before anything could leave.
pub(super) fn out_of_time() -> Outcome {
    Outcome::NotDone { code: Code::ExecuteOutOfTime.as_str().into() }
}

/// What arming gave.
pub(super) enum Armed {
    /// The right to one effect, and what was found before it.
    Permit(Box<sluice_core::hold::Permit>, Option<Vec<u8>>),
    /// It must not go on.
    Stopped(Outcome),
}

/// Records everything needed to reconcile and undo, and gets the permit.
pub(super) async fn arm(gw: &Gateway, hold: &Hold, prepared: Prepared) -> Result<Armed, No> {
    let Prepared { handle, before } = prepared;
    let content = before.as_ref().map(|(content, _)| content.clone());
    let before = before.map(|(content, print)| Before { id: RollbackId::mint(gw.ids.as_ref()), content, print });
    // A handle that is already on record is the one to use, whatever was made anew.
    let handle = hold.handle.clone().or(handle);
    let arming = Arming { hold: hold.id, epoch: hold.epoch, wire: hold.action.digest(), handle, before };
    match gw.store.arm(arming).await {
        // The file outside the database remembers it before anything leaves: a restored database is behind it then.
        Ok(permit) => match recovery::remember(gw).await {
            Ok(()) => Ok(Armed::Permit(Box::new(permit), content)),
            Err(no) => Ok(Armed::Stopped(Outcome::NotDone { code: no.refusal.code().as_str().into() })),
        },
        Err(StoreError::Frozen { .. } | StoreError::Braked { .. }) => Ok(Armed::Stopped(Outcome::GivenBack)),
        Err(StoreError::Arm(_)) => Ok(Armed::Stopped(refused(Code::ExecuteRefusedMismatch))),
        Err(error) => Err(error.into()),
    }
}

/// What became of an attempt to look a write up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The service was asked, and what it said is on record.
    Made,
    /// The service could not be asked. Nothing is on record, and no lookup is used up.
    NotMade,
    /// It is not asked for now: it stands still, or is frozen.
    PutOff,
}

/// Looks up a write whose outcome is unclear, and records what was found.
///
/// # Errors
/// When it cannot be recorded.
pub async fn look_up(gw: &Gateway, hold: &Hold) -> Result<Lookup, No> {
    if nodes::leaves_to_others(gw, hold).await? {
        return Ok(Lookup::PutOff);
    }
    if let Ok(service) = gw.services.for_service(&hold.service)
        && (!service.can_be_asked() || freeze::keeps_in(gw, hold, service.as_ref()).await?)
    {
        return Ok(Lookup::PutOff);
    }
    let point = gw.store.rollback_of(hold.id).await?;
    let found = match (gw.services.for_service(&hold.service), hold.reverses) {
        _ if services::is_elsewhere(&hold.action) => Found::Absent,
        (_, Some(reversed)) => rollback::look_up(gw, hold, reversed).await?,
        (Ok(service), None) if effect_of(gw, hold.action.capability()) == Some(Effect::Write) => {
            service.look_up(hold, point.as_ref().map(|point| point.content.as_slice())).await
        }
        // A read that was interrupted did nothing.
        (Ok(_), None) => Found::Absent,
        (Err(_), _) => Found::Unknown,
    };
    let evidence = match found {
        Found::Applied(Performed { receipt, result, after, undo_until }) => {
            Evidence::Applied { receipt, result: Some(result.to_string()), after, service_until: undo_until }
        }
        Found::Absent => Evidence::Absent,
        Found::Unknown => Evidence::Inconclusive,
        // There is no place to look for an opaque effect, reachable or not.
        Found::NotLooked if hold.class == EffectClass::Opaque => Evidence::Inconclusive,
        Found::NotLooked => return Ok(Lookup::NotMade),
    };
    let message = MessageId::mint(gw.ids.as_ref());
    let lookups = gw.config.release.lookups.schedule().lookups();
    gw.store.resolve(Resolve { hold: hold.id, version: hold.version, evidence, lookups, message }).await?;
    gw.moved(hold.id);
    Ok(Lookup::Made)
}

/// Trouble before the permit: nothing can have happened.
fn before_arming(now: Timestamp, trouble: Trouble) -> Outcome {
    match trouble {
        Trouble::Refused(no) => Outcome::Refused { code: no.code().as_str().into() },
        Trouble::NotDone(no) => later(now, &no),
        Trouble::Unclear | Trouble::UnclearSaying(_) => Outcome::NotDone { code: Code::ExecuteRefused.as_str().into() },
    }
}

/// Worth another try: when the service said, if it said so.
fn later(now: Timestamp, no: &Refusal) -> Outcome {
    let code = no.code().as_str().into();
    // The general advice of a code is no more than a guess; the schedule is ours then.
    let was_said = no.code() == Code::EgressLimit || no.retry() != no.code().retry();
    match no.retry() {
        Retry::After(span) if was_said => Outcome::NotBefore { code, not_before: now + span },
        _ => Outcome::NotDone { code },
    }
}

pub(super) fn outcome_of(now: Timestamp, tried: Result<Performed, Trouble>) -> Outcome {
    match tried {
        Ok(performed) => done(performed),
        Err(Trouble::NotDone(no)) => later(now, &no),
        Err(Trouble::Refused(no)) => Outcome::Refused { code: no.code().as_str().into() },
        Err(Trouble::Unclear | Trouble::UnclearSaying(_)) => Outcome::Unclear,
    }
}

pub(super) fn done(performed: Performed) -> Outcome {
    let Performed { receipt, result, after, undo_until } = performed;
    Outcome::Done { receipt, after, service_until: undo_until, result: Some(result.to_string()) }
}

pub(super) fn refused(code: Code) -> Outcome {
    Outcome::Refused { code: code.as_str().into() }
}

fn effect_of(gw: &Gateway, capability: &CapabilityName) -> Option<Effect> {
    gw.catalogue.known().get(capability).map(|spec| spec.effect)
}
