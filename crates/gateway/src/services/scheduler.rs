//! Calls that agents plan for later: `scheduler.cron_create`, `cron_list`, `cron_delete`, `delay`.
//!
//! A plan is only a plan: when it is due, [`crate::loops::schedule`] makes the call in the agent's name, and every room
//! judges it then. Promise: a plan carries no approval with it, an agent sees and ends its own only, and no plan makes
//! plans.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sluice_core::capability::Effect;
use sluice_core::cron::Cron;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Action, Actor, CapabilityName, Clock, HoldId, Span, Timestamp};
use sluice_store::{NewSchedule, Schedule, ScheduleRun, ScheduleState, Store, StoreError};

use super::{Ask, Found, Performed, Prepared, ReadSource, Service, Trouble, Work};
use crate::catalogue::LiveCatalogue;

/// The longest a single call can be put off, in seconds: a year.
const LONGEST: u64 = 366 * 24 * 3_600;
/// The longest description, in characters.
const DESCRIPTION: usize = 500;
const PREFIX: &str = "cron_";

/// Plans of agents.
pub struct Scheduler {
    store: Arc<Store>,
    catalogue: Arc<LiveCatalogue>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

/// A plan that an agent wants to make.
struct Wanted {
    capability: CapabilityName,
    arguments: Map<String, Value>,
    cron: Option<String>,
    description: Option<String>,
    next_at: Timestamp,
}

/// What is needed to bring a plan back.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    id: HoldId,
    next_at: Option<Timestamp>,
}

impl Scheduler {
    /// On this store; only what the catalogue offers can be planned.
    #[must_use]
    pub fn new(store: Arc<Store>, catalogue: Arc<LiveCatalogue>, clock: Arc<dyn Clock>) -> Self {
        Self { store, catalogue, clock }
    }

    fn wanted(&self, action: &Action) -> Result<Wanted, Refusal> {
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
            return Err(wrong("only writes can be planned: nobody would get what a read gives"));
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
                Some(seconds @ 1..=LONGEST) => (None, now + Span::from_secs(seconds)),
                _ => return Err(wrong("seconds is between 1 and 31622400 (a year)")),
            },
        };
        Ok(Wanted { capability, arguments: inputs, cron, description, next_at })
    }

    /// The plan of this agent that a call names.
    async fn named(&self, action: &Action) -> Result<Schedule, Refusal> {
        let text = action.arguments().get("cron_id").and_then(Value::as_str).unwrap_or_default();
        let bits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == 32);
        let bits = bits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let id = HoldId::from_bits(bits.ok_or_else(|| Refusal::new(Code::SchemaBadName))?);
        let plan = self.store.schedule(id).await.map_err(refuse)?;
        // Plans of others do not exist for an agent.
        let own = plan.filter(|plan| plan.agent == *action.agent());
        own.ok_or_else(|| Refusal::new(Code::StoreNotFound).with_text("there is no such planned call"))
    }

    async fn change(&self, hold: &Hold, permit: Permit) -> Result<Performed, Trouble> {
        let id = permit.hold();
        if verb(&hold.action) == "cron_delete" {
            let plan = self.named(&hold.action).await.map_err(Trouble::Refused)?;
            let by = Actor::Agent(hold.agent().clone());
            if plan.state == ScheduleState::Active {
                self.cancel(&plan, by).await?;
            }
            let result = json!({"cron_id": cron_id(plan.id), "deleted": plan.state == ScheduleState::Active});
            let after = Some(print(Some(ScheduleState::Cancelled)));
            return Ok(Performed { receipt: "cancelled".into(), result, after, undo_until: None });
        }
        let Wanted { capability, arguments, cron, description, next_at } =
            self.wanted(&hold.action).map_err(Trouble::Refused)?;
        let new =
            NewSchedule { hold: id, agent: hold.agent().clone(), capability, arguments, cron, description, next_at };
        let plan = self.store.add_schedule(new).await.map_err(trouble)?;
        let next = plan.next_at.map(|at| at.to_string());
        let result = json!({"cron_id": cron_id(plan.id), "next_at": next});
        let after = Some(print(Some(ScheduleState::Active)));
        Ok(Performed { receipt: cron_id(plan.id), result, after, undo_until: None })
    }

    async fn cancel(&self, plan: &Schedule, by: Actor) -> Result<(), Trouble> {
        let run = ScheduleRun {
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
            // It became due in this very moment; the next attempt finds it as it is then.
            false => Err(Trouble::NotDone(Refusal::new(Code::StoreConflict))),
        }
    }

    async fn bring_back(&self, done: &Hold, before: &[u8]) -> Result<Performed, Trouble> {
        let impossible = || Trouble::refused(Code::RollbackNotPossible);
        let kept: Kept = serde_json::from_slice(before).map_err(|_| impossible())?;
        let plan = self.store.schedule(kept.id).await.map_err(trouble)?.ok_or_else(impossible)?;
        let by = Actor::Agent(done.agent().clone());
        if verb(&done.action) != "cron_delete" {
            if plan.state == ScheduleState::Active {
                self.cancel(&plan, by).await?;
            }
            let result = json!({"cron_id": cron_id(plan.id), "deleted": true});
            return Ok(Performed { receipt: "cancelled".into(), result, after: None, undo_until: None });
        }
        let now = self.clock.now();
        let next_at = match &plan.cron {
            Some(cron) => Cron::parse(cron).ok().and_then(|cron| cron.next_after(now)),
            None => kept.next_at.filter(|at| *at > now),
        };
        let next_at = Some(next_at.ok_or_else(impossible)?);
        let (id, version, state) = (plan.id, plan.version, ScheduleState::Active);
        let run = ScheduleRun { id, version, state, reason: None, next_at, fact: "schedule.restored", by: Some(by) };
        if !self.store.move_schedule(run).await.map_err(trouble)? {
            return Err(Trouble::NotDone(Refusal::new(Code::StoreConflict)));
        }
        let result = json!({"cron_id": cron_id(plan.id), "restored": true});
        Ok(Performed { receipt: "restored".into(), result, after: None, undo_until: None })
    }
}

/// A plan as agents name it.
fn cron_id(id: HoldId) -> String {
    format!("{PREFIX}{:032x}", id.bits())
}

fn verb(action: &Action) -> &str {
    action.capability().as_str().rsplit('.').next().unwrap_or_default()
}

/// A print of how a plan stands, or of its absence.
fn print(state: Option<ScheduleState>) -> Fingerprint {
    Fingerprint::of(state.map_or("absent", ScheduleState::as_str).as_bytes())
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
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).because(error)
}

fn trouble(error: StoreError) -> Trouble {
    let no = refuse(error);
    match no.code() {
        Code::StateQuota => Trouble::Refused(no.with_text("an agent has at most 100 planned calls; delete one first")),
        Code::StoreNotFound => Trouble::Refused(no),
        _ => Trouble::NotDone(no),
    }
}

impl Service for Scheduler {
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

    fn foresee<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async move {
            match verb(action) {
                "cron_delete" => self.named(action).await.map(drop),
                _ => self.wanted(action).map(drop),
            }
        })
    }

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(async move {
            let plans = self.store.schedules_of(ask.action.agent().clone()).await.map_err(refuse)?;
            let entries: Vec<Value> = plans.iter().map(told).collect();
            Ok(json!({"count": entries.len(), "schedules": entries}))
        })
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
        Box::pin(async move {
            let (kept, state) = match verb(&hold.action) {
                "cron_delete" => {
                    let plan = self.named(&hold.action).await.map_err(Trouble::Refused)?;
                    (Kept { id: plan.id, next_at: plan.next_at }, Some(plan.state))
                }
                _ => (Kept { id: hold.id, next_at: None }, None),
            };
            let content = serde_json::to_vec(&kept).map_err(|_| Trouble::refused(Code::GatewayInternal))?;
            Ok(Prepared { handle: None, before: Some((content, print(state))) })
        })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(self.change(hold, permit))
    }

    /// Doing it again is doing it once.
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(std::future::ready(Found::Absent))
    }

    fn present<'a>(&'a self, _: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>> {
        Box::pin(async move {
            let broken = |_| Trouble::refused(Code::RollbackNotPossible);
            let kept: Kept = serde_json::from_slice(before).map_err(broken)?;
            let plan = self.store.schedule(kept.id).await.map_err(trouble)?;
            Ok(print(plan.map(|plan| plan.state)))
        })
    }

    fn undo<'a>(&'a self, _: Permit, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(self.bring_back(done, before))
    }
}
