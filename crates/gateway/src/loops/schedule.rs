//! Planned calls: makes the calls that agents planned when they are due.
//!
//! Promise: a due call passes every room again in its agent's name, under the rules, windows and freezes of that
//! moment, and brings no approval along; for each due time one call is made, on one node; calls that came due while no
//! gateway was running follow the grace rule, once and not in a burst; a freeze that covers a plan ends it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::capability::{Capability, EffectClass};
use sluice_core::cron::Cron;
use sluice_core::grace::{self, OverdueDecision};
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::{Actor, CallId, Millis, ServiceName, UtcMillis};
use sluice_services::CallError;
use sluice_services::timer::tick;
use sluice_store::{Freeze, MessageSeverity, MoveSchedule, OutboxMessage, Schedule, ScheduleState};
use tokio::sync::watch;

use crate::gateway::GatewayPhase;
use crate::rooms::answer::CallOutcome;
use crate::rooms::identity::{CallMode, CallOptions, IdentifiedCall};
use crate::{Gateway, corridor};

const EVERY: Duration = Duration::from_secs(1);
/// Most plans that one step reads.
const PAGE: u32 = 100;

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut failing = false;
    while tick(&mut stop, EVERY, std::future::pending()).await {
        match step(&gw).await {
            Ok(_) => failing = false,
            Err(no) if failing => drop(no),
            Err(no) => {
                failing = true;
                tracing::error!(code = no.refusal.code().as_str(), "planned calls cannot be made: {}", no.refusal);
            }
        }
    }
}

/// Makes the calls that are due. Returns how many were made.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn step(gw: &Gateway) -> Result<usize, CallError> {
    if gw.phase() != GatewayPhase::Open || gw.clock_is_suspect() {
        return Ok(0);
    }
    end_frozen(gw).await?;
    let (now, mut made) = (gw.now(), 0);
    for plan in gw.store.due_schedules(now, PAGE).await? {
        made += usize::from(due(gw, plan, now).await?);
    }
    Ok(made)
}

/// Ends every plan that a person's freeze covers: after an incident no plan resumes without a person having checked it.
async fn end_frozen(gw: &Gateway) -> Result<(), CallError> {
    let freezes: Vec<Freeze> = gw.store.freezes().await?.into_iter().filter(|freeze| freeze.brake.is_none()).collect();
    if freezes.is_empty() {
        return Ok(());
    }
    let own = ServiceName::new("scheduler").map_err(|_| CallError::new(Code::GatewayInternal))?;
    for plan in gw.store.active_schedules().await? {
        let service = spec_of(gw, &plan).map_or_else(|| own.clone(), |spec| spec.service());
        let covers =
            |freeze: &Freeze| freeze.scope.covers(&plan.agent, &own) || freeze.scope.covers(&plan.agent, &service);
        if freezes.iter().any(covers) {
            let state = ScheduleState::Cancelled;
            end(gw, &plan, state, Code::FreezeActive.as_str(), "schedule.cancelled").await?;
        }
    }
    Ok(())
}

fn spec_of(gw: &Gateway, plan: &Schedule) -> Option<Capability> {
    gw.catalogue.known().get(&plan.capability).cloned()
}

async fn end(
    gw: &Gateway,
    plan: &Schedule,
    state: ScheduleState,
    why: &str,
    fact: &'static str,
) -> Result<bool, CallError> {
    let (id, version, reason) = (plan.id, plan.version, Some(why.to_owned()));
    let run = MoveSchedule { id, version, state, reason, next_at: None, fact, by: None };
    Ok(gw.store.move_schedule(run).await?)
}

/// Handles one due plan. Returns true if its call was made.
async fn due(gw: &Gateway, plan: Schedule, now: UtcMillis) -> Result<bool, CallError> {
    let Some(due_at) = plan.next_at else { return Ok(false) };
    gw.keyring.follow_for(&plan.agent, &gw.store).await?;
    if !gw.keyring.knows(&plan.agent) {
        end(gw, &plan, ScheduleState::Cancelled, Code::IdentityUnknown.as_str(), "schedule.cancelled").await?;
        return Ok(false);
    }
    let again = plan.cron.as_deref().and_then(|cron| Cron::parse(cron).ok()).and_then(|cron| cron.next_after(now));
    let class = spec_of(gw, &plan).and_then(|spec| spec.class).unwrap_or(EffectClass::Opaque);
    let (id, version) = (plan.id, plan.version);
    let (state, next_at, fact) = match grace::judge_overdue(due_at, now, Millis::ZERO, grace::grace(class)) {
        OverdueDecision::OnTime => {
            let state = if again.is_some() { ScheduleState::Active } else { ScheduleState::Done };
            (state, again, "schedule.due")
        }
        OverdueDecision::Rehold { until } => (ScheduleState::Active, Some(until), "schedule.late"),
        OverdueDecision::Stale if again.is_some() => (ScheduleState::Active, again, "schedule.missed"),
        OverdueDecision::Stale => (ScheduleState::Missed, None, "schedule.missed"),
    };
    let run = MoveSchedule { id, version, state, reason: None, next_at, fact, by: None };
    // Another node, or the agent, may have changed the plan first.
    if !gw.store.move_schedule(run).await? {
        return Ok(false);
    }
    if fact != "schedule.due" {
        tell(gw, &plan, fact, due_at, next_at).await?;
        return Ok(false);
    }
    let (call, code) = make(gw, &plan, due_at).await;
    gw.store.record_schedule_run(id, call, code).await?;
    Ok(true)
}

/// Makes the call as if the agent made it now.
async fn make(gw: &Gateway, plan: &Schedule, due_at: UtcMillis) -> (Option<CallId>, Option<String>) {
    if gw.keyring.is_paused(&plan.agent) {
        return (None, Some(Code::IdentityPaused.as_str().to_owned()));
    }
    let wish = CallOptions {
        capability: plan.capability.clone(),
        arguments: Value::Object(plan.arguments.clone()),
        account: None,
        session_id: None,
        idempotency_key: Some(format!("schedule:{:032x}:{}", plan.id.bits(), due_at.as_millis())),
        reason: plan.description.clone(),
        mode: CallMode::Execute,
        wait_ms: Some(0),
        // The same call each morning is meant; the key above makes each of them one.
        allow_duplicate: true,
        named: false,
    };
    let known = IdentifiedCall::planned(gw, plan.agent.clone(), wish);
    let call = known.call();
    match corridor::again(gw, known).await {
        Ok(
            CallOutcome::Done { call, .. }
            | CallOutcome::Allowed { call, .. }
            | CallOutcome::Observed { call, .. }
            | CallOutcome::Held { call, .. }
            | CallOutcome::Awaiting { call, .. }
            | CallOutcome::Under { call, .. },
        ) => (Some(call), None),
        Err(no) => (Some(no.call.unwrap_or(call)), Some(no.refusal.code().as_str().to_owned())),
    }
}

/// Notifies people about a call that is late or will not be made.
async fn tell(
    gw: &Gateway,
    plan: &Schedule,
    topic: &str,
    due_at: UtcMillis,
    next_at: Option<UtcMillis>,
) -> Result<(), CallError> {
    let next = next_at.map(|at| at.to_string());
    let body = json!({
        "agent": plan.agent, "capability": plan.capability, "due_at": due_at.to_string(), "next_at": next,
    });
    let id = MessageId::mint(gw.ids.as_ref());
    let message = OutboxMessage { id, topic: topic.to_owned(), severity: MessageSeverity::Info, body };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    Ok(())
}
