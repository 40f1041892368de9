//! Rollback: taking back what was done.
//!
//! A plan first, then held writes of its own, one for each write taken back. Promise: nothing is put back
//! unless what our write touched is still as it left it, so newer work is never overwritten unseen: only a person who was
//! shown the difference can insist, and only where the service can show it. What cannot be undone says so in the plan.

mod client_files;

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use sluice_core::batch::Window;
use sluice_core::budget::BudgetLimits;
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::rollback::{Fingerprint, RollbackError, RollbackState};
use sluice_core::{
    Action, Actor, AgentName, ApprovalId, CallId, CapabilityName, HoldId, ServiceName, Span, Tier, Timestamp,
};
use sluice_store::{Admission, Admitted, ClientWrite, Outcome, Point};

use super::execute::{self, Armed};
use super::freeze;
use crate::services::{Found, Performed, Prepared, Trouble};
use crate::{Gateway, No};

pub use client_files::FileStep;

/// The capability a taking-back is recorded under.
pub const CAPABILITY: &str = "rollback.apply";
/// How long people can stop a taking-back.
const DELAY: Span = Span::from_secs(5);

/// What taking one write back would do.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Step {
    /// The write.
    #[schemars(with = "String")]
    pub buffer_id: HoldId,
    /// What it did.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// Whether it can be taken back now.
    pub possible: bool,
    /// Why not, as a stable code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// A later write to the same object that is taken back first, in the same plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub after: Option<HoldId>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// Until when it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<String>,
    /// The files, where a coding client wrote them itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileStep>,
    /// Who took it back already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<String>,
    /// When they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone_at: Option<String>,
    /// Where something was changed since: whether a person can have it taken back all the same, with `force`.
    pub can_be_forced: bool,
    /// What taking it back would change then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub difference: Vec<String>,
}

/// Writes that are meant: those of the gateway, and those that coding clients made themselves.
#[derive(Debug, Default)]
pub struct ChosenWrites {
    /// Held writes, oldest first.
    pub holds: Vec<Hold>,
    /// Calls of clients, oldest first.
    pub client_writes: Vec<ClientWrite>,
    /// Whether what somebody changed since is overwritten, where a person was shown the difference.
    pub force: bool,
}

/// Says what taking back these writes would do, the latest first. Changes nothing.
///
/// # Errors
/// When the database cannot be read.
pub async fn plan_all(gw: &Gateway, chosen: &ChosenWrites) -> Result<Vec<Step>, No> {
    Ok(planned(gw, chosen).await?.into_iter().map(|(step, _)| step).collect())
}

/// Each step, and the write of its own that would do it if it is one about files of a client.
async fn planned(gw: &Gateway, chosen: &ChosenWrites) -> Result<Vec<(Step, Option<Overwrites>)>, No> {
    let mut steps: Vec<(Step, Option<Overwrites>)> =
        plan_with(gw, &chosen.holds, chosen.force).await?.into_iter().map(|step| (step, None)).collect();
    let mut ahead = client_files::Ahead::new();
    for write in chosen.client_writes.iter().rev() {
        let planned = client_files::plan(gw, write, chosen.force, &mut ahead).await?;
        steps.push((planned.step, Some(planned.overwrites)));
    }
    steps.sort_by_key(|(step, _)| std::cmp::Reverse(step.buffer_id));
    Ok(steps)
}

/// States of files that a person was shown and that are overwritten.
type Overwrites = std::collections::BTreeMap<String, crate::services::files::print::Print>;

/// Says what taking back these writes would do. Changes nothing.
///
/// # Errors
/// When the database cannot be read.
pub async fn plan(gw: &Gateway, holds: &[Hold]) -> Result<Vec<Step>, No> {
    plan_with(gw, holds, false).await
}

/// The same, for a person who insists on it over newer changes if `force` is set.
///
/// # Errors
/// As [`plan`].
pub async fn plan_with(gw: &Gateway, holds: &[Hold], force: bool) -> Result<Vec<Step>, No> {
    let mut steps = Vec::with_capacity(holds.len());
    // How objects will be once the steps so far are done, and by which of them.
    let mut ahead: HashMap<&str, (HoldId, Fingerprint)> = HashMap::new();
    // The latest first: a file edited twice is taken back twice, in the opposite order.
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
        steps.push(Step {
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

/// What is to be said about a write that cannot simply be taken back.
#[derive(Debug, Default)]
struct Changed {
    undone: Option<(String, String)>,
    can_be_forced: bool,
    difference: Vec<String>,
}

async fn changed(
    gw: &Gateway,
    hold: &Hold,
    found: &Result<(Point, Timestamp), Code>,
    force: bool,
) -> Result<Changed, No> {
    let point = match found {
        Err(Code::RollbackUndone | Code::RollbackConflict) => gw.store.rollback_of(hold.id).await?,
        Ok((point, _)) if force => Some(point.clone()),
        Ok(_) | Err(_) => None,
    };
    let Some(point) = point else { return Ok(Changed::default()) };
    if let RollbackState::Undone { by, at } = &point.state {
        return Ok(Changed { undone: Some((by.to_string(), at.to_string())), ..Changed::default() });
    }
    let Ok(service) = gw.services.for_service(&hold.service) else { return Ok(Changed::default()) };
    if !service.can_be_forced_back(hold) {
        return Ok(Changed::default());
    }
    let difference = service.difference(hold, &point.content).await;
    Ok(Changed { undone: None, can_be_forced: !difference.is_empty(), difference })
}

/// Whether a write can be taken back now, or once its object is as `ahead` says; and until when.
async fn possible(
    gw: &Gateway,
    hold: &Hold,
    (ahead, force): (Option<Fingerprint>, bool),
) -> Result<Result<(Point, Timestamp), Code>, No> {
    if !matches!(hold.state, HoldState::Done { .. }) {
        return Ok(Err(Code::RollbackNotPossible));
    }
    let Some(point) = gw.store.rollback_of(hold.id).await? else { return Ok(Err(Code::RollbackIrreversible)) };
    let RollbackState::Sealed { until, .. } = point.state else {
        return Ok(Err(match point.state {
            RollbackState::Expired { .. } => Code::RollbackExpired,
            RollbackState::Undone { .. } => Code::RollbackUndone,
            _ => Code::RollbackNotPossible,
        }));
    };
    if let Ok(service) = gw.services.for_service(&hold.service)
        && freeze::keeps_in(gw, hold, service.as_ref()).await?
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
        // A person has seen what differs, and wants it back all the same.
        Err(RollbackError::Conflict { .. }) if force && can_be_forced(gw, hold) => Ok((point, until)),
        Err(error) => Err(Code::from_code(error.code()).unwrap_or(Code::RollbackNotPossible)),
    })
}

fn can_be_forced(gw: &Gateway, hold: &Hold) -> bool {
    gw.services.for_service(&hold.service).is_ok_and(|service| service.can_be_forced_back(hold))
}

/// Admits held writes that take back what can be taken back of these. Gives the plan and the new writes.
///
/// # Errors
/// When the database cannot be read, or a new write cannot be admitted.
pub async fn take_all_back(gw: &Gateway, chosen: &ChosenWrites, by: &Actor) -> Result<(Vec<Step>, Vec<HoldId>), No> {
    let steps = planned(gw, chosen).await?;
    let mut made: Vec<HoldId> = Vec::new();
    for (step, overwrites) in steps.iter().filter(|(step, _)| step.possible) {
        let number = step.buffer_id.bits();
        let undoing = match overwrites {
            None => chosen.holds.iter().find(|hold| hold.id == step.buffer_id).map(|hold| Undoing::of(hold, by)),
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

/// Admits a held write that takes another one back.
///
/// # Errors
/// When it cannot be taken back, or the new write cannot be admitted.
pub async fn take_back(gw: &Gateway, hold: &Hold, by: Actor) -> Result<HoldId, No> {
    match possible(gw, hold, (None, false)).await? {
        Err(code) => Err(No::new(code)),
        Ok(_) => admit(gw, Undoing::of(hold, &by), by, (None, false)).await,
    }
}

/// What a write that takes another one back is made of.
struct Undoing {
    /// The write that is taken back.
    id: HoldId,
    agent: AgentName,
    service: ServiceName,
    object_key: Option<String>,
    arguments: Value,
}

impl Undoing {
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
    undoing: Undoing,
    by: Actor,
    (after, force): (Option<HoldId>, bool),
) -> Result<HoldId, No> {
    let Undoing { id, agent, service, object_key, mut arguments } = undoing;
    if force {
        crate::value::put(&mut arguments, "force", true);
    }
    // Writes to one object leave in the order of their ids where their times are the same.
    let least = after.map_or(0, |after| after.bits().saturating_add(1));
    let call = CallId::from_bits(CallId::mint(gw.ids.as_ref()).bits().max(least));
    let mut record_key = [0; 32];
    gw.entropy.fill(&mut record_key);
    let name = CapabilityName::new(CAPABILITY).map_err(|_| No::new(Code::GatewayInternal))?;
    let action = Action::custom(name, agent, arguments).map_err(|_| No::new(Code::GatewayInternal))?;
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
        // It is a person's: in the agent's own window it counts for nothing.
        weight: 0,
        delay: DELAY,
        tier: Tier::Notify,
        policy: gw.policy.get().version().to_owned(),
        rule: None,
        rates: Vec::new(),
        // A person asked for it; the window protects people from agents, not from themselves.
        window: Window { limit: u32::MAX, span: Span::from_secs(60) },
        budgets: BudgetLimits::default(),
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
        Admitted::Held { hold, .. } => {
            gw.opened_window(hold, DELAY);
            gw.moved(hold);
            Ok(hold)
        }
        Admitted::Awaiting { hold, .. } | Admitted::Again { hold, .. } => Ok(hold),
        Admitted::Blocked => Err(No::new(Code::PolicyBlocked)),
    }
}

/// One attempt at taking a write back.
pub(super) async fn attempt(gw: &Gateway, undoing: &Hold, reversed: HoldId, until: Span) -> Result<Outcome, No> {
    if let Some(write) = gw.store.client_write(CallId::from_bits(reversed.bits())).await? {
        return client_files::attempt(gw, undoing, write, until).await;
    }
    let Some(done) = gw.store.hold(reversed).await? else { return Ok(execute::refused(Code::RollbackNotFound)) };
    let Ok(service) = gw.services.for_service(&done.service) else {
        return Ok(execute::refused(Code::GatewayUnsupported));
    };
    // Whether it is possible is asked of the service, and a freeze may have come since the claim.
    if freeze::keeps_in(gw, undoing, service.as_ref()).await? {
        return Ok(Outcome::GivenBack);
    }
    let force = undoing.action.arguments().get("force").and_then(Value::as_bool) == Some(true);
    let point = match possible(gw, &done, (None, force)).await? {
        Ok((point, _)) => point,
        Err(code) => return Ok(execute::refused(code)),
    };
    let RollbackState::Sealed { after, .. } = point.state else {
        return Ok(execute::refused(Code::RollbackNotPossible));
    };
    let place = match execute::reserved(gw, undoing, service.as_ref(), until).await {
        Ok(place) => place,
        Err(outcome) => return Ok(outcome),
    };
    match execute::arm(gw, undoing, Prepared::default()).await? {
        Armed::Stopped(outcome) => Ok(outcome),
        Armed::Permit(..) if execute::left(gw, until) == Span::ZERO => Ok(execute::out_of_time()),
        Armed::Permit(permit, _) => {
            match execute::within(gw, until, place.hold_during(service.undo(*permit, &done, &point.content)))
                .await
                .unwrap_or(Err(Trouble::Unclear))
            {
                Ok(performed) => {
                    gw.store.undone(reversed, after, who(undoing)).await?;
                    service.forget(&point.content).await;
                    gw.moved(reversed);
                    Ok(execute::done(Performed { after: None, undo_until: None, ..performed }))
                }
                Err(trouble) => Ok(execute::outcome_of(gw.now(), Err(trouble))),
            }
        }
    }
}

/// Finds out whether an interrupted taking-back happened.
pub(super) async fn look_up(gw: &Gateway, undoing: &Hold, reversed: HoldId) -> Result<Found, No> {
    if let Some(write) = gw.store.client_write(CallId::from_bits(reversed.bits())).await? {
        return client_files::look_up(gw, undoing, &write).await;
    }
    let Some(done) = gw.store.hold(reversed).await? else { return Ok(Found::Unknown) };
    let Some(point) = gw.store.rollback_of(reversed).await? else { return Ok(Found::Unknown) };
    let receipt = || Performed { receipt: "taken back".into(), result: Value::Null, after: None, undo_until: None };
    Ok(match &point.state {
        RollbackState::Undone { .. } => Found::Applied(receipt()),
        RollbackState::Sealed { before, after, .. } => match present(gw, &done, &point).await {
            Ok(print) if print == *before => {
                gw.store.undone(reversed, *after, who(undoing)).await?;
                Found::Applied(receipt())
            }
            Ok(print) if print == *after => Found::Absent,
            Ok(_) => Found::Unknown,
            Err(code) if code.is_unreached() => Found::NotLooked,
            Err(_) => Found::Unknown,
        },
        RollbackState::Captured { .. } | RollbackState::Expired { .. } | RollbackState::Abandoned { .. } => {
            Found::Unknown
        }
    })
}

async fn present(gw: &Gateway, done: &Hold, point: &Point) -> Result<Fingerprint, Code> {
    let service = gw.services.for_service(&done.service).map_err(|no| no.code())?;
    service.present(done, &point.content).await.map_err(|trouble| match trouble {
        Trouble::NotDone(no) | Trouble::Refused(no) => no.code(),
        Trouble::Unclear | Trouble::UnclearSaying(_) => Code::RollbackNotPossible,
    })
}

/// Who asked for it, as its own action says.
fn who(undoing: &Hold) -> Actor {
    let named = undoing.action.arguments().get("by").and_then(Value::as_str).and_then(|text| text.parse().ok());
    named.unwrap_or_else(|| Actor::Agent(undoing.agent().clone()))
}
