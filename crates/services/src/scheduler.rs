//! The scheduler service: calls that agents plan for later.
//!
//! Carries out `scheduler.cron_create`, `cron_list`, `cron_delete` and `delay`. When a plan is due,
//! `sluice_gateway::loops::schedule` makes the call in the agent's name, and every room judges it then. Promise: a plan
//! carries no approval with it, an agent sees and ends only its own plans, and no plan creates plans.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sluice_core::capability::Effect;
use sluice_core::cron::Cron;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, Actor, BoxedFuture, CapabilityName, Clock, HoldId, Millis, UtcMillis};
use sluice_store::{AddSchedule, MoveSchedule, Schedule, ScheduleState, Store, StoreError};

use super::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};
use crate::catalogue::LiveCatalogue;

/// The longest delay of a single call, in seconds: a year.
const LONGEST: u64 = 366 * 24 * 3_600;
/// The longest description, in characters.
const DESCRIPTION: usize = 500;
const PREFIX: &str = "cron_";

/// Plans of agents.
pub struct SchedulerService {
    store: Arc<Store>,
    catalogue: Arc<LiveCatalogue>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for SchedulerService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

/// The plan that a call asks for.
struct ScheduleDraft {
    capability: CapabilityName,
    arguments: Map<String, Value>,
    cron: Option<String>,
    description: Option<String>,
    next_at: UtcMillis,
}

/// The content needed to restore a plan.
#[derive(Debug, Serialize, Deserialize)]
struct ScheduleUndo {
    id: HoldId,
    next_at: Option<UtcMillis>,
}

impl SchedulerService {
    /// The service on this store; only capabilities of the catalogue can be planned.
    #[must_use]
    pub fn new(store: Arc<Store>, catalogue: Arc<LiveCatalogue>, clock: Arc<dyn Clock>) -> Self {
        Self { store, catalogue, clock }
    }

    fn wanted(&self, action: &Action) -> Result<ScheduleDraft, Refusal> {
        let arguments = action.arguments();
        let wrong = |text: &str| Refusal::new(Code::SchemaWrongType).with_text(text);
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let name = CapabilityName::new(text("capability").unwrap_or_default());
        let capability = name.map_err(|_| Refusal::new(Code::SchemaBadName))?;
        let inputs = arguments.get("inputs").and_then(Value::as_object).cloned().unwrap_or_default();
        let offered = self.catalogue.offered();
        let spec = offered.iter().find(|spec| spec.name == capability);
        let spec = spec.ok_or_else(|| Refusal::new(Code::SchemaUnknownCapability))?;
        if capability.as_str().starts_with("scheduler.") {
            return Err(wrong("a plan cannot make or end plans"));
        }
        if spec.effect == Effect::Read {
            return Err(wrong("only writes can be planned: nobody would receive the result of a read"));
        }
        Action::new(spec, action.agent().clone(), None, Value::Object(inputs.clone())).map_err(|error| {
            let code = Code::from_code(error.code()).unwrap_or(Code::SchemaWrongType);
            Refusal::new(code).with_text(&format!("inputs: {error}"))
        })?;
        let description = text("description").map(str::to_owned);
        if description.as_ref().is_some_and(|text| text.chars().count() > DESCRIPTION) {
            return Err(wrong("a description has at most 500 characters"));
        }
        let now = self.clock.now();
        let (cron, next_at) = match text("schedule") {
            Some(schedule) => {
                let cron = Cron::parse(schedule).map_err(|error| wrong(&error.to_string()))?;
                let next = cron.next_after(now).ok_or_else(|| wrong("no day of any year fits this schedule"))?;
                (Some(schedule.to_owned()), next)
            }
            None => match arguments.get("seconds").and_then(Value::as_u64) {
                Some(seconds @ 1..=LONGEST) => (None, now + Millis::from_secs(seconds)),
                _ => return Err(wrong("seconds is between 1 and 31622400 (a year)")),
            },
        };
        Ok(ScheduleDraft { capability, arguments: inputs, cron, description, next_at })
    }

    /// This agent's plan that a call names.
    async fn named(&self, action: &Action) -> Result<Schedule, Refusal> {
        let text = action.arguments().get("cron_id").and_then(Value::as_str).unwrap_or_default();
        let bits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == 32);
        let bits = bits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let id = HoldId::from_bits(bits.ok_or_else(|| Refusal::new(Code::SchemaBadName))?);
        let plan = self.store.schedule(id).await.map_err(refuse)?;
        // For an agent, the plans of other agents do not exist.
        let own = plan.filter(|plan| plan.agent == *action.agent());
        own.ok_or_else(|| Refusal::new(Code::StoreNotFound).with_text("there is no such planned call"))
    }

    async fn change(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        let id = permit.hold();
        if verb(&hold.action) == "cron_delete" {
            let plan = self.named(&hold.action).await.map_err(WriteError::Refused)?;
            let by = Actor::Agent(hold.agent().clone());
            if plan.state == ScheduleState::Active {
                self.cancel(&plan, by).await?;
            }
            let result = json!({"cron_id": cron_id(plan.id), "deleted": plan.state == ScheduleState::Active});
            let after = Some(fingerprint(Some(ScheduleState::Cancelled)));
            return Ok(CompletedWrite { receipt: "cancelled".into(), result, after, undo_until: None });
        }
        let ScheduleDraft { capability, arguments, cron, description, next_at } =
            self.wanted(&hold.action).map_err(WriteError::Refused)?;
        let new =
            AddSchedule { hold: id, agent: hold.agent().clone(), capability, arguments, cron, description, next_at };
        let plan = self.store.add_schedule(new).await.map_err(trouble)?;
        let next = plan.next_at.map(|at| at.to_string());
        let result = json!({"cron_id": cron_id(plan.id), "next_at": next});
        let after = Some(fingerprint(Some(ScheduleState::Active)));
        Ok(CompletedWrite { receipt: cron_id(plan.id), result, after, undo_until: None })
    }

    async fn cancel(&self, plan: &Schedule, by: Actor) -> Result<(), WriteError> {
        let run = MoveSchedule {
            id: plan.id,
            version: plan.version,
            state: ScheduleState::Cancelled,
            reason: None,
            next_at: None,
            fact: "schedule.cancelled",
            by: Some(by),
        };
        match self.store.move_schedule(run).await.map_err(trouble)? {
            true => Ok(()),
            // It became due at this moment; the next attempt finds its new state.
            false => Err(WriteError::NotDone(Refusal::new(Code::StoreConflict))),
        }
    }

    async fn bring_back(&self, done: &Hold, before: &[u8]) -> Result<CompletedWrite, WriteError> {
        let impossible = || WriteError::refused(Code::RollbackNotPossible);
        let kept: ScheduleUndo = serde_json::from_slice(before).map_err(|_| impossible())?;
        let plan = self.store.schedule(kept.id).await.map_err(trouble)?.ok_or_else(impossible)?;
        let by = Actor::Agent(done.agent().clone());
        if verb(&done.action) != "cron_delete" {
            if plan.state == ScheduleState::Active {
                self.cancel(&plan, by).await?;
            }
            let result = json!({"cron_id": cron_id(plan.id), "deleted": true});
            return Ok(CompletedWrite { receipt: "cancelled".into(), result, after: None, undo_until: None });
        }
        let now = self.clock.now();
        let next_at = match &plan.cron {
            Some(cron) => Cron::parse(cron).ok().and_then(|cron| cron.next_after(now)),
            None => kept.next_at.filter(|at| *at > now),
        };
        let next_at = Some(next_at.ok_or_else(impossible)?);
        let (id, version, state) = (plan.id, plan.version, ScheduleState::Active);
        let run = MoveSchedule { id, version, state, reason: None, next_at, fact: "schedule.restored", by: Some(by) };
        if !self.store.move_schedule(run).await.map_err(trouble)? {
            return Err(WriteError::NotDone(Refusal::new(Code::StoreConflict)));
        }
        let result = json!({"cron_id": cron_id(plan.id), "restored": true});
        Ok(CompletedWrite { receipt: "restored".into(), result, after: None, undo_until: None })
    }
}

/// The id of a plan, as agents name it.
fn cron_id(id: HoldId) -> String {
    format!("{PREFIX}{:032x}", id.bits())
}

fn verb(action: &Action) -> &str {
    action.capability().as_str().rsplit('.').next().unwrap_or_default()
}

/// A fingerprint of a plan's state, or of its absence.
fn fingerprint(state: Option<ScheduleState>) -> ObjectFingerprint {
    ObjectFingerprint::of(state.map_or("absent", ScheduleState::as_str).as_bytes())
}

fn told(plan: &Schedule) -> Value {
    json!({
        "cron_id": cron_id(plan.id), "capability": plan.capability, "inputs": plan.arguments, "schedule": plan.cron,
        "description": plan.description, "state": plan.state.as_str(), "reason": plan.reason,
        "next_at": plan.next_at.map(|at| at.to_string()), "created_at": plan.created_at.to_string(), "runs": plan.runs,
        "last_at": plan.last_at.map(|at| at.to_string()), "last_call_id": plan.last_call,
        "last_refusal": plan.last_code,
    })
}

fn refuse(error: StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).with_source(error)
}

fn trouble(error: StoreError) -> WriteError {
    let no = refuse(error);
    match no.code() {
        Code::StateQuota => {
            WriteError::Refused(no.with_text("an agent has at most 100 planned calls; delete one first"))
        }
        Code::StoreNotFound => WriteError::Refused(no),
        _ => WriteError::NotDone(no),
    }
}

impl Service for SchedulerService {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        ["scheduler.cron_create", "scheduler.cron_list", "scheduler.cron_delete", "scheduler.delay"]
            .contains(&capability.as_str())
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            match verb(action) {
                "cron_delete" => self.named(action).await.map(drop),
                _ => self.wanted(action).map(drop),
            }
        })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async move {
            let plans = self.store.schedules_of(ask.action.agent().clone()).await.map_err(refuse)?;
            let entries: Vec<Value> = plans.iter().map(told).collect();
            Ok(json!({"count": entries.len(), "schedules": entries}))
        })
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async move {
            let (kept, state) = match verb(&hold.action) {
                "cron_delete" => {
                    let plan = self.named(&hold.action).await.map_err(WriteError::Refused)?;
                    (ScheduleUndo { id: plan.id, next_at: plan.next_at }, Some(plan.state))
                }
                _ => (ScheduleUndo { id: hold.id, next_at: None }, None),
            };
            let content = serde_json::to_vec(&kept).map_err(|_| WriteError::refused(Code::GatewayInternal))?;
            Ok(PreparedWrite { handle: None, before: Some((content, fingerprint(state))) })
        })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.change(hold, permit))
    }

    /// A repeat has no further effect.
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(std::future::ready(LookupOutcome::Absent))
    }

    fn current_fingerprint<'a>(
        &'a self,
        _: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(async move {
            let broken = |_| WriteError::refused(Code::RollbackNotPossible);
            let kept: ScheduleUndo = serde_json::from_slice(before).map_err(broken)?;
            let plan = self.store.schedule(kept.id).await.map_err(trouble)?;
            Ok(fingerprint(plan.map(|plan| plan.state)))
        })
    }

    fn undo<'a>(
        &'a self,
        _: Permit,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.bring_back(done, before))
    }
}
