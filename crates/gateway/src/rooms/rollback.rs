//! Rollback: taking back what was done.
//!
//! A plan first, then held writes of its own, one for each write taken back. Promise: nothing is put back
//! unless the object is still exactly as our write left it, so newer work is never overwritten; what cannot
//! be undone says so in the plan.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use sluice_core::batch::Window;
use sluice_core::budget::BudgetLimits;
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::rollback::{Fingerprint, RollbackState};
use sluice_core::{Action, Actor, ApprovalId, CallId, CapabilityName, HoldId, Span, Tier, Timestamp};
use sluice_store::{Admission, Admitted, Outcome, Point};

use super::execute::{self, Armed};
use super::freeze;
use crate::services::{Found, Performed, Prepared, Trouble};
use crate::{Gateway, No};

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
}

/// Says what taking back these writes would do. Changes nothing.
///
/// # Errors
/// When the database cannot be read.
pub async fn plan(gw: &Gateway, holds: &[Hold]) -> Result<Vec<Step>, No> {
    let mut steps = Vec::with_capacity(holds.len());
    // How objects will be once the steps so far are done, and by which of them.
    let mut ahead: HashMap<&str, (HoldId, Fingerprint)> = HashMap::new();
    // The latest first: a file edited twice is taken back twice, in the opposite order.
    for hold in holds.iter().rev() {
        let chained = hold.object_key.as_deref().and_then(|key| ahead.get(key)).copied();
        let found = possible(gw, hold, chained.map(|(_, print)| print)).await?;
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
        });
    }
    Ok(steps)
}

/// Whether a write can be taken back now, or once its object is as `ahead` says; and until when.
async fn possible(
    gw: &Gateway,
    hold: &Hold,
    ahead: Option<Fingerprint>,
) -> Result<Result<(Point, Timestamp), Code>, No> {
    if !matches!(hold.state, HoldState::Done { .. }) {
        return Ok(Err(Code::RollbackNotPossible));
    }
    let Some(point) = gw.store.rollback_of(hold.id).await? else { return Ok(Err(Code::RollbackIrreversible)) };
    let RollbackState::Sealed { until, .. } = point.state else {
        return Ok(Err(match point.state {
            RollbackState::Expired { .. } => Code::RollbackExpired,
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
        Err(error) => Err(Code::from_code(error.code()).unwrap_or(Code::RollbackNotPossible)),
    })
}

/// Admits held writes that take back what can be taken back of these. Gives the plan and the new writes.
///
/// # Errors
/// When the database cannot be read, or a new write cannot be admitted.
pub async fn take_all_back(gw: &Gateway, holds: &[Hold], by: &Actor) -> Result<(Vec<Step>, Vec<HoldId>), No> {
    let steps = plan(gw, holds).await?;
    let mut made: Vec<HoldId> = Vec::new();
    for step in steps.iter().filter(|step| step.possible) {
        if let Some(hold) = holds.iter().find(|hold| hold.id == step.buffer_id) {
            let last = made.last().copied();
            made.push(admit(gw, hold, by.clone(), last).await?);
        }
    }
    Ok((steps, made))
}

/// Admits a held write that takes another one back.
///
/// # Errors
/// When it cannot be taken back, or the new write cannot be admitted.
pub async fn take_back(gw: &Gateway, hold: &Hold, by: Actor) -> Result<HoldId, No> {
    match possible(gw, hold, None).await? {
        Err(code) => Err(No::new(code)),
        Ok(_) => admit(gw, hold, by, None).await,
    }
}

async fn admit(gw: &Gateway, hold: &Hold, by: Actor, after: Option<HoldId>) -> Result<HoldId, No> {
    // Writes to one object leave in the order of their ids where their times are the same.
    let least = after.map_or(0, |after| after.bits().saturating_add(1));
    let call = CallId::from_bits(CallId::mint(gw.ids.as_ref()).bits().max(least));
    let mut record_key = [0; 32];
    gw.entropy.fill(&mut record_key);
    let name = CapabilityName::new(CAPABILITY).map_err(|_| No::new(Code::GatewayInternal))?;
    let arguments = serde_json::json!({"buffer_id": hold.id, "by": by});
    let action = Action::custom(name, hold.agent().clone(), arguments).map_err(|_| No::new(Code::GatewayInternal))?;
    let admission = Admission {
        call,
        hold: HoldId::from_bits(call.bits()),
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
        record_key,
        action,
        session: None,
        service: hold.service.clone(),
        class: EffectClass::Absolute,
        object_key: hold.object_key.clone(),
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
        reverses: Some(hold.id),
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
    let Some(done) = gw.store.hold(reversed).await? else { return Ok(execute::refused(Code::RollbackNotFound)) };
    let Ok(service) = gw.services.for_service(&done.service) else {
        return Ok(execute::refused(Code::GatewayUnsupported));
    };
    // Whether it is possible is asked of the service, and a freeze may have come since the claim.
    if freeze::keeps_in(gw, undoing, service.as_ref()).await? {
        return Ok(Outcome::GivenBack);
    }
    let point = match possible(gw, &done, None).await? {
        Ok((point, _)) => point,
        Err(code) => return Ok(execute::refused(code)),
    };
    let RollbackState::Sealed { after, .. } = point.state else {
        return Ok(execute::refused(Code::RollbackNotPossible));
    };
    match execute::arm(gw, undoing, Prepared::default()).await? {
        Armed::Stopped(outcome) => Ok(outcome),
        Armed::Permit(..) if execute::left(gw, until) == Span::ZERO => Ok(execute::out_of_time()),
        Armed::Permit(permit, _) => match execute::within(gw, until, service.undo(*permit, &done, &point.content))
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
        },
    }
}

/// Finds out whether an interrupted taking-back happened.
pub(super) async fn look_up(gw: &Gateway, undoing: &Hold, reversed: HoldId) -> Result<Found, No> {
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
            Ok(_) | Err(_) => Found::Unknown,
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
        Trouble::Unclear => Code::RollbackNotPossible,
    })
}

/// Who asked for it, as its own action says.
fn who(undoing: &Hold) -> Actor {
    let named = undoing.action.arguments().get("by").and_then(Value::as_str).and_then(|text| text.parse().ok());
    named.unwrap_or_else(|| Actor::Agent(undoing.agent().clone()))
}
