//! Rollback: undoing completed writes.
//!
//! First makes a plan, then held writes, one for each write that is undone. Promise: an object is restored only if it
//! is still as our write left it, so newer work is never overwritten unseen. Only a person who was shown the difference
//! can force it, and only if the service can show it. The plan says which writes cannot be undone.

mod client_files;

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use sluice_core::batch::SlidingWindow;
use sluice_core::budget::DailyBudgetLimits;
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::rollback::{ObjectFingerprint, RollbackError, RollbackState};
use sluice_core::{
    Action, Actor, AgentName, ApprovalId, CallId, CapabilityName, HoldId, Millis, ServiceName, Tier, UtcMillis,
};
use sluice_services::{CallError, CompletedWrite, LookupOutcome, PreparedWrite, WriteError};
use sluice_store::{Admission, AdmissionOutcome, AttemptOutcome, ClientWrite, RollbackPoint};

use super::execute::{self, ArmOutcome};
use super::freeze;
use crate::Gateway;

pub use client_files::FileRollbackStep;

/// The capability under which a rollback is recorded.
pub const CAPABILITY: &str = "rollback.apply";
/// How long people can stop a rollback.
const DELAY: Millis = Millis::from_secs(5);

/// What undoing one write would do.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct RollbackStep {
    /// The write.
    #[schemars(with = "String")]
    pub buffer_id: HoldId,
    /// The capability of the write.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// Whether it can be undone now.
    pub possible: bool,
    /// Why not, as a stable code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// A later write to the same object that the same plan undoes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub after: Option<HoldId>,
    /// Why not, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// Until when it can be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<String>,
    /// The files, if a coding client wrote them itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRollbackStep>,
    /// Who undid it already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<String>,
    /// When it was undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone_at: Option<String>,
    /// Whether a person can undo it with `force` although the object was changed since.
    pub can_be_forced: bool,
    /// What undoing it would then change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub difference: Vec<String>,
}

/// The chosen writes: those of the gateway, and those that coding clients made themselves.
#[derive(Debug, Default)]
pub struct RollbackSelection {
    /// Held writes, oldest first.
    pub holds: Vec<Hold>,
    /// Client calls, oldest first.
    pub client_writes: Vec<ClientWrite>,
    /// Whether newer changes are overwritten, if a person was shown the difference.
    pub force: bool,
}

/// Plans the rollback of these writes, the latest first. Changes nothing.
///
/// # Errors
/// When the database cannot be read.
pub async fn plan_all(gw: &Gateway, chosen: &RollbackSelection) -> Result<Vec<RollbackStep>, CallError> {
    Ok(planned(gw, chosen).await?.into_iter().map(|(step, _)| step).collect())
}

/// Each step, with the write that carries it out if the step is about files of a client.
async fn planned(
    gw: &Gateway,
    chosen: &RollbackSelection,
) -> Result<Vec<(RollbackStep, Option<FileOverwrites>)>, CallError> {
    let mut steps: Vec<(RollbackStep, Option<FileOverwrites>)> =
        plan_with(gw, &chosen.holds, chosen.force).await?.into_iter().map(|step| (step, None)).collect();
    let mut ahead = client_files::PredictedFiles::new();
    for write in chosen.client_writes.iter().rev() {
        let planned = client_files::plan(gw, write, chosen.force, &mut ahead).await?;
        steps.push((planned.step, Some(planned.overwrites)));
    }
    steps.sort_by_key(|(step, _)| std::cmp::Reverse(step.buffer_id));
    Ok(steps)
}

/// File states that a person was shown and that are overwritten.
type FileOverwrites = std::collections::BTreeMap<String, sluice_services::files::fingerprint::FileFingerprint>;

/// Plans the rollback of these writes. Changes nothing.
///
/// # Errors
/// When the database cannot be read.
pub async fn plan(gw: &Gateway, holds: &[Hold]) -> Result<Vec<RollbackStep>, CallError> {
    plan_with(gw, holds, false).await
}

/// Like [`plan`], over newer changes if a person sets `force`.
///
/// # Errors
/// As [`plan`].
pub async fn plan_with(gw: &Gateway, holds: &[Hold], force: bool) -> Result<Vec<RollbackStep>, CallError> {
    let mut steps = Vec::with_capacity(holds.len());
    // The state of objects after the steps so far, and the step that leads to it.
    let mut ahead: HashMap<&str, (HoldId, ObjectFingerprint)> = HashMap::new();
    // The latest first: a file edited twice is restored twice, in reverse order.
    for hold in holds.iter().rev() {
        let chained = hold.object_key.as_deref().and_then(|key| ahead.get(key)).copied();
        let found = possible(gw, hold, (chained.map(|(_, print)| print), force)).await?;
        let changed = changed(gw, hold, &found, force).await?;
        if let (Ok((point, _)), Some(key)) = (&found, hold.object_key.as_deref())
            && let RollbackState::Sealed { before, .. } = point.state
        {
            ahead.insert(key, (hold.id, before));
        }
        let (code, until) = match found {
            Ok((_, until)) => (None, Some(until.to_string())),
            Err(code) => (Some(code), None),
        };
        steps.push(RollbackStep {
            buffer_id: hold.id,
            capability: hold.action.capability().clone(),
            possible: code.is_none(),
            code: code.map(Code::as_str),
            after: chained.filter(|_| code.is_none()).map(|(newer, _)| newer),
            why: code.map(Code::meaning),
            until,
            files: Vec::new(),
            undone_by: changed.undone.as_ref().map(|(by, _)| by.clone()),
            undone_at: changed.undone.map(|(_, at)| at),
            can_be_forced: changed.can_be_forced,
            difference: changed.difference,
        });
    }
    Ok(steps)
}

/// Why a write cannot simply be undone.
#[derive(Debug, Default)]
struct RollbackConflict {
    undone: Option<(String, String)>,
    can_be_forced: bool,
    difference: Vec<String>,
}

async fn changed(
    gw: &Gateway,
    hold: &Hold,
    found: &Result<(RollbackPoint, UtcMillis), Code>,
    force: bool,
) -> Result<RollbackConflict, CallError> {
    let point = match found {
        Err(Code::RollbackUndone | Code::RollbackConflict) => gw.store.hold_rollback(hold.id).await?,
        Ok((point, _)) if force => Some(point.clone()),
        Ok(_) | Err(_) => None,
    };
    let Some(point) = point else { return Ok(RollbackConflict::default()) };
    if let RollbackState::Undone { by, at } = &point.state {
        return Ok(RollbackConflict { undone: Some((by.to_string(), at.to_string())), ..RollbackConflict::default() });
    }
    let Ok(service) = gw.services.for_service(&hold.service) else { return Ok(RollbackConflict::default()) };
    if !service.can_be_forced_back(hold) {
        return Ok(RollbackConflict::default());
    }
    let difference = service.difference(hold, &point.content).await;
    Ok(RollbackConflict { undone: None, can_be_forced: !difference.is_empty(), difference })
}

/// Whether a write can be undone now, or once its object is as `ahead` says; and until when.
async fn possible(
    gw: &Gateway,
    hold: &Hold,
    (ahead, force): (Option<ObjectFingerprint>, bool),
) -> Result<Result<(RollbackPoint, UtcMillis), Code>, CallError> {
    if !matches!(hold.state, HoldState::Done { .. }) {
        return Ok(Err(Code::RollbackNotPossible));
    }
    let Some(point) = gw.store.hold_rollback(hold.id).await? else { return Ok(Err(Code::RollbackIrreversible)) };
    let RollbackState::Sealed { until, .. } = point.state else {
        return Ok(Err(match point.state {
            RollbackState::Expired { .. } => Code::RollbackExpired,
            RollbackState::Undone { .. } => Code::RollbackUndone,
            _ => Code::RollbackNotPossible,
        }));
    };
    if let Ok(service) = gw.services.for_service(&hold.service)
        && freeze::is_blocked_by_freeze(gw, hold, service.as_ref()).await?
    {
        return Ok(Err(Code::FreezeActive));
    }
    let present = match ahead {
        Some(print) => print,
        None => match present(gw, hold, &point).await {
            Ok(print) => print,
            Err(code) => return Ok(Err(code)),
        },
    };
    Ok(match point.state.check(present, gw.now()) {
        Ok(()) => Ok((point, until)),
        // A person has seen the difference and still wants the rollback.
        Err(RollbackError::Conflict { .. }) if force && can_be_forced(gw, hold) => Ok((point, until)),
        Err(error) => Err(Code::from_code(error.code()).unwrap_or(Code::RollbackNotPossible)),
    })
}

fn can_be_forced(gw: &Gateway, hold: &Hold) -> bool {
    gw.services.for_service(&hold.service).is_ok_and(|service| service.can_be_forced_back(hold))
}

/// Admits held writes that undo those of the chosen writes that can be undone. Returns the plan and the new writes.
///
/// # Errors
/// When the database cannot be read, or a new write cannot be admitted.
pub async fn take_all_back(
    gw: &Gateway,
    chosen: &RollbackSelection,
    by: &Actor,
) -> Result<(Vec<RollbackStep>, Vec<HoldId>), CallError> {
    let steps = planned(gw, chosen).await?;
    let mut made: Vec<HoldId> = Vec::new();
    for (step, overwrites) in steps.iter().filter(|(step, _)| step.possible) {
        let number = step.buffer_id.bits();
        let undoing = match overwrites {
            None => chosen.holds.iter().find(|hold| hold.id == step.buffer_id).map(|hold| RollbackWrite::of(hold, by)),
            Some(overwrites) => {
                let write = chosen.client_writes.iter().find(|write| write.call.bits() == number);
                write.map(|write| client_files::undoing(write, by, overwrites))
            }
        };
        if let Some(undoing) = undoing {
            let last = made.last().copied();
            made.push(admit(gw, undoing, by.clone(), (last, chosen.force && overwrites.is_none())).await?);
        }
    }
    Ok((steps.into_iter().map(|(step, _)| step).collect(), made))
}

/// Admits a held write that undoes another one.
///
/// # Errors
/// When the write cannot be undone, or the new write cannot be admitted.
pub async fn take_back(gw: &Gateway, hold: &Hold, by: Actor) -> Result<HoldId, CallError> {
    match possible(gw, hold, (None, false)).await? {
        Err(code) => Err(CallError::new(code)),
        Ok(_) => admit(gw, RollbackWrite::of(hold, &by), by, (None, false)).await,
    }
}

/// The parts of a write that undoes another one.
struct RollbackWrite {
    /// The write that is undone.
    id: HoldId,
    agent: AgentName,
    service: ServiceName,
    object_key: Option<String>,
    arguments: Value,
}

impl RollbackWrite {
    fn of(hold: &Hold, by: &Actor) -> Self {
        Self {
            id: hold.id,
            agent: hold.agent().clone(),
            service: hold.service.clone(),
            object_key: hold.object_key.clone(),
            arguments: serde_json::json!({"buffer_id": hold.id, "by": by}),
        }
    }
}

async fn admit(
    gw: &Gateway,
    undoing: RollbackWrite,
    by: Actor,
    (after, force): (Option<HoldId>, bool),
) -> Result<HoldId, CallError> {
    let RollbackWrite { id, agent, service, object_key, mut arguments } = undoing;
    if force {
        sluice_services::value::put(&mut arguments, "force", true);
    }
    // Writes to one object that are due at the same time leave in the order of their ids.
    let least = after.map_or(0, |after| after.bits().saturating_add(1));
    let call = CallId::from_bits(CallId::mint(gw.ids.as_ref()).bits().max(least));
    let mut record_key = [0; 32];
    gw.entropy.fill(&mut record_key);
    let name = CapabilityName::new(CAPABILITY).map_err(|_| CallError::new(Code::GatewayInternal))?;
    let action = Action::custom(name, agent, arguments).map_err(|_| CallError::new(Code::GatewayInternal))?;
    let admission = Admission {
        call,
        hold: HoldId::from_bits(call.bits()),
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
        record_key,
        action,
        session: None,
        service,
        class: EffectClass::Absolute,
        object_key,
        // A person's rollback does not count in the agent's own window.
        weight: 0,
        delay: DELAY,
        tier: Tier::Notify,
        policy: gw.policy.get().version().to_owned(),
        rule: None,
        rates: Vec::new(),
        // A person asked for it; the batch window limits agents, not people.
        window: SlidingWindow { limit: u32::MAX, span: Millis::from_secs(60) },
        budgets: DailyBudgetLimits::default(),
        checks: None,
        idempotency_key: None,
        named: false,
        allow_duplicate: false,
        allowance: None,
        expiry: gw.config.approvals.expiry,
        reverses: Some(id),
        by: Some(by),
        door: None,
        targets: Vec::new(),
        reason: None,
        reasons: Vec::new(),
    };
    match gw.store.admit(admission).await? {
        AdmissionOutcome::Held { hold, .. } => {
            gw.open_undo_window(hold, DELAY);
            gw.notify_hold_changed(hold);
            Ok(hold)
        }
        AdmissionOutcome::Awaiting { hold, .. } | AdmissionOutcome::Again { hold, .. } => Ok(hold),
        AdmissionOutcome::Blocked => Err(CallError::new(Code::PolicyBlocked)),
    }
}

/// One attempt to undo a write.
pub(super) async fn attempt(
    gw: &Gateway,
    undoing: &Hold,
    reversed: HoldId,
    until: Millis,
) -> Result<AttemptOutcome, CallError> {
    if let Some(write) = gw.store.client_write(CallId::from_bits(reversed.bits())).await? {
        return client_files::attempt(gw, undoing, write, until).await;
    }
    let Some(done) = gw.store.hold(reversed).await? else { return Ok(execute::refused(Code::RollbackNotFound)) };
    let Ok(service) = gw.services.for_service(&done.service) else {
        return Ok(execute::refused(Code::GatewayUnsupported));
    };
    // The service is asked whether it is possible, and a freeze may have come since the claim.
    if freeze::is_blocked_by_freeze(gw, undoing, service.as_ref()).await? {
        return Ok(AttemptOutcome::GivenBack);
    }
    let force = undoing.action.arguments().get("force").and_then(Value::as_bool) == Some(true);
    let point = match possible(gw, &done, (None, force)).await? {
        Ok((point, _)) => point,
        Err(code) => return Ok(execute::refused(code)),
    };
    let RollbackState::Sealed { after, .. } = point.state else {
        return Ok(execute::refused(Code::RollbackNotPossible));
    };
    let place = match execute::reserve_slot(gw, undoing, service.as_ref(), until).await {
        Ok(place) => place,
        Err(outcome) => return Ok(outcome),
    };
    match execute::arm(gw, undoing, PreparedWrite::default()).await? {
        ArmOutcome::Stopped(outcome) => Ok(outcome),
        ArmOutcome::Permit(..) if execute::left(gw, until) == Millis::ZERO => Ok(execute::out_of_time()),
        ArmOutcome::Permit(permit, _) => {
            match execute::within(gw, until, place.hold_during(service.undo(*permit, &done, &point.content)))
                .await
                .unwrap_or(Err(WriteError::Unclear))
            {
                Ok(performed) => {
                    gw.store.mark_undone(reversed, after, who(undoing)).await?;
                    service.discard_undo_data(&point.content).await;
                    gw.notify_hold_changed(reversed);
                    Ok(execute::done(CompletedWrite { after: None, undo_until: None, ..performed }))
                }
                Err(trouble) => Ok(execute::outcome_of(gw.now(), Err(trouble))),
            }
        }
    }
}

/// Finds out whether an interrupted rollback happened.
pub(super) async fn look_up(gw: &Gateway, undoing: &Hold, reversed: HoldId) -> Result<LookupOutcome, CallError> {
    if let Some(write) = gw.store.client_write(CallId::from_bits(reversed.bits())).await? {
        return client_files::look_up(gw, undoing, &write).await;
    }
    let Some(done) = gw.store.hold(reversed).await? else { return Ok(LookupOutcome::Unknown) };
    let Some(point) = gw.store.hold_rollback(reversed).await? else { return Ok(LookupOutcome::Unknown) };
    let receipt =
        || CompletedWrite { receipt: "rolled back".into(), result: Value::Null, after: None, undo_until: None };
    Ok(match &point.state {
        RollbackState::Undone { .. } => LookupOutcome::Applied(receipt()),
        RollbackState::Sealed { before, after, .. } => match present(gw, &done, &point).await {
            Ok(print) if print == *before => {
                gw.store.mark_undone(reversed, *after, who(undoing)).await?;
                LookupOutcome::Applied(receipt())
            }
            Ok(print) if print == *after => LookupOutcome::Absent,
            Ok(_) => LookupOutcome::Unknown,
            Err(code) if code.is_unreached() => LookupOutcome::NotLooked,
            Err(_) => LookupOutcome::Unknown,
        },
        RollbackState::Captured { .. } | RollbackState::Expired { .. } | RollbackState::Abandoned { .. } => {
            LookupOutcome::Unknown
        }
    })
}

async fn present(gw: &Gateway, done: &Hold, point: &RollbackPoint) -> Result<ObjectFingerprint, Code> {
    let service = gw.services.for_service(&done.service).map_err(|no| no.code())?;
    service.current_fingerprint(done, &point.content).await.map_err(|trouble| match trouble {
        WriteError::NotDone(no) | WriteError::Refused(no) => no.code(),
        WriteError::Unclear | WriteError::UnclearSaying(_) => Code::RollbackNotPossible,
    })
}

/// Who asked for the rollback, as its action says.
fn who(undoing: &Hold) -> Actor {
    let named = undoing.action.arguments().get("by").and_then(Value::as_str).and_then(|text| text.parse().ok());
    named.unwrap_or_else(|| Actor::Agent(undoing.agent().clone()))
}
