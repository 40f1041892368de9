//! Admission: turns a judged write into a held write.
//!
//! Takes a frozen action with its verdict; gives a hold, an open approval request, or the earlier operation that this
//! call repeats. Promise: counters, idempotency, the approval request, the message to people and the audit entry are
//! one transaction. When the batch window trips, the writes of that agent and service that still wait need approval
//! too, all on one card. A write that needs approval for another reason has its own approval request and shares no
//! card.

mod budget;
mod prepared;
mod repeated_calls;
mod separate_approvals;

use sluice_core::action::Action;
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::approval::{Approval, ApprovalState, ApprovalSubject};
use sluice_core::audit::{AuditFact, commit};
use sluice_core::batch::{SlidingWindow, WindowOutcome};
use sluice_core::budget::{DailyBudget, DailyBudgetLimits};
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::{MessageId, SessionId};
use sluice_core::target::{TracedTarget, origins};
use sluice_core::{Actor, AgentName, ApprovalId, CallId, HoldId, Millis, ServiceName, Tier, UtcMillis};

use crate::allowances::{self, AllowanceUse};
use crate::approvals;
use crate::counters::{self, WindowCounter};
use crate::error::StoreError;
use crate::freezes;
use crate::holds::{self, NewHold, columns};
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::prefetch::PrefetchQuery;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::UnitOfWork;
pub use budget::BudgetUse;
pub(crate) use prepared::AdmitWrite;
use prepared::PreparedHoldRows;
use repeated_calls::remember;

/// A write that has passed every room before the hold.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The call's id.
    pub call: CallId,
    /// The hold's id, if it becomes one.
    pub hold: HoldId,
    /// The approval request's id, if one is needed.
    pub approval: ApprovalId,
    /// The id of the message that asks people for the approval or notifies them of it.
    pub message: MessageId,
    /// The key under which its content is committed to the audit log.
    pub record_key: [u8; 32],
    /// The action to perform.
    pub action: Action,
    /// The session in which the call was made.
    pub session: Option<SessionId>,
    /// The service under which batch protection and freezes count it.
    pub service: ServiceName,
    /// The effect class: what may be done after an uncertain outcome.
    pub class: EffectClass,
    /// The object it changes, if it names one.
    pub object_key: Option<String>,
    /// How many ordinary writes it counts as.
    pub weight: u32,
    /// How long its undo window is.
    pub delay: Millis,
    /// The tier that policy decided, including escalations before the batch window.
    pub tier: Tier,
    /// The rules that decided it.
    pub policy: String,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// Rate-limit counters that policy wants to be counted.
    pub rates: Vec<RateLimitCounter>,
    /// The batch window of this agent and service.
    pub window: SlidingWindow,
    /// The limits per day above which a person must approve.
    pub budgets: DailyBudgetLimits,
    /// The window for approval requests about checks, if the caller carries out the action itself. Such a call counts
    /// in no window of writes.
    pub checks: Option<SlidingWindow>,
    /// The agent's own key for this call.
    pub idempotency_key: Option<String>,
    /// The key only names one call of a program: under a new key, an identical write is still a duplicate.
    pub named: bool,
    /// The agent knows that it repeats an identical call.
    pub allow_duplicate: bool,
    /// A person's standing approval that may satisfy policy's approval requirement. It never satisfies the batch
    /// window.
    pub allowance: Option<AllowanceUse>,
    /// How long people have to answer.
    pub expiry: Millis,
    /// The write that it undoes, if it is a rollback.
    pub reverses: Option<HoldId>,
    /// Who made the request, if not the agent: an operator rolls something back.
    pub by: Option<Actor>,
    /// The door through which the call came.
    pub door: Option<&'static str>,
    /// Its targets, each with its origin.
    pub targets: Vec<TracedTarget>,
    /// Why the agent wants it, in its own words. Only shown to people.
    pub reason: Option<String>,
    /// Why policy requires an approval, if it does. Stored with the approval request.
    pub reasons: Vec<ApprovalReason>,
}

/// One rate counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitCounter {
    /// The rule it belongs to.
    pub rule: String,
    /// Its window.
    pub window: SlidingWindow,
    /// The tier to which a call beyond the limit is raised, if the call was judged to be within the limit; `None` if it
    /// was judged to be beyond it already.
    pub on_exceed: Option<Tier>,
}

impl RateLimitCounter {
    pub(crate) fn counter<'a>(&'a self, agent: &'a AgentName) -> WindowCounter<'a> {
        WindowCounter { kind: counters::RATE, agent, name: &self.rule, window: &self.window }
    }
}

/// The tier to which this call is raised if calls counted since it was judged have used up a limit. Counting and
/// checking are one transaction: of two calls that both saw the last free place, one gets it.
pub(crate) async fn tier_if_exceeded<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    agent: &AgentName,
    rates: &[RateLimitCounter],
) -> Result<Option<Tier>, StoreError> {
    let mut raised = None;
    for rate in rates {
        let Some(tier) = rate.on_exceed else { continue };
        if rate.counter(agent).used(unit).await? >= rate.window.limit {
            raised = raised.max(Some(tier));
        }
    }
    Ok(raised)
}

/// The result of an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionOutcome {
    /// It waits for its undo window to close.
    Held {
        /// Its id.
        hold: HoldId,
        /// When the window closes.
        not_before: UtcMillis,
    },
    /// It waits for a person.
    Awaiting {
        /// Its id.
        hold: HoldId,
        /// The approval request.
        approval: ApprovalId,
        /// When the approval request expires and counts as denied.
        expires_at: UtcMillis,
        /// Whether the batch window requires the approval, rather than policy.
        batch: bool,
    },
    /// It never runs; the audit log says so.
    Blocked,
    /// It repeats an earlier call with the same key.
    Again {
        /// The first call.
        call: CallId,
        /// Its hold.
        hold: HoldId,
    },
}

const SIBLINGS: &str = columns!(
    "WHERE h.agent = ?1 AND h.service = ?2 AND h.admitted_at >= ?3 AND h.state IN ('held', 'ready') \
     AND h.approval IS NULL ORDER BY h.admitted_at, h.id /*lock*/"
);

impl Admission {
    /// The queries it will make, in the order in which it makes them.
    fn foreseen(&self, now: UtcMillis) -> Vec<PrefetchQuery> {
        let mut foreseen = vec![counters::turn_ahead(self.action.agent())];
        foreseen.extend(self.repeated_ahead(now));
        if self.tier != Tier::Blocked {
            foreseen.push(freezes::in_force_ahead());
            if self.checks.is_none() {
                foreseen.push(self.window_counter(counters::BATCH).used_ahead(now));
            }
            if self.may_go_alone(self.tier) {
                foreseen.extend(self.budgets_ahead(now));
            }
            let limits = self.rates.iter().filter(|rate| rate.on_exceed.is_some());
            foreseen.extend(limits.map(|rate| rate.counter(self.action.agent()).used_ahead(now)));
        }
        foreseen
    }

    /// Admits the write. Rows prepared in advance are used if they still fit.
    async fn admit<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        ready: Option<PreparedHoldRows>,
    ) -> Result<AdmissionOutcome, StoreError> {
        let is_first = counters::take_turn(unit, self.action.agent()).await?;
        if let Some(again) = self.repeated(unit).await? {
            return Ok(again);
        }
        let raised = tier_if_exceeded(unit, self.action.agent(), &self.rates).await?;
        let tier = self.tier.raise(raised.unwrap_or(self.tier));
        if tier == Tier::Blocked {
            self.record_block(unit);
            return Ok(AdmissionOutcome::Blocked);
        }
        freezes::refuse_if_frozen(unit, self.action.agent(), &self.service).await?;
        let card = match self.weighed(unit).await? {
            WindowOutcome::Fits => None,
            WindowOutcome::Trips => Some(self.batch_card(unit).await?),
        };
        let budget = if card.is_none() && self.may_go_alone(tier) { self.over_budget(unit).await? } else { None };
        let needs_yes = tier == Tier::ApprovalRequired || budget.is_some();
        // A standing approval satisfies policy's requirement, never an escalation.
        let is_escalated = raised.is_some() || budget.is_some();
        let code = reason(raised, budget);
        let admitted = match card {
            // A write that needs approval anyway gets its own request, and no standing approval answers it now.
            Some(card) if needs_yes => self.ask_apart(unit, card, code)?,
            Some(card) => self.join_card(unit, card)?,
            None if needs_yes && (is_escalated || !allowances::spend(unit, self).await?) => {
                self.refuse_flood(unit).await?;
                self.ask_alone(unit, code, self.asked_because(code, false))
            }
            None => {
                self.spend_budgets(unit);
                self.hold(unit, tier, ready)
            }
        };
        self.count(unit);
        if is_first {
            counters::make_latch(unit, self.action.agent());
        }
        Ok(admitted)
    }
}

/// The code for an approval that policy itself requires, without an escalation.
const BY_POLICY: &str = "policy.approval_required";

/// Why one write needs approval.
fn reason(rate: Option<Tier>, budget: Option<DailyBudget>) -> &'static str {
    match (rate, budget) {
        (Some(_), _) => "policy.rate_limit",
        (None, Some(budget)) => budget.code(),
        (None, None) => BY_POLICY,
    }
}

impl Admission {
    /// Whether it may go without a person, as far as rules and standing approvals decide.
    fn may_go_alone(&self, tier: Tier) -> bool {
        tier < Tier::ApprovalRequired || self.allowance.is_some()
    }

    /// Whether it fits the batch window. A call that is only checked is not a write and is not counted.
    async fn weighed<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<WindowOutcome, StoreError> {
        if self.checks.is_some() {
            return Ok(WindowOutcome::Fits);
        }
        let used = self.window_counter(counters::BATCH).used(unit).await?;
        let balance = self.window.check_write(used, self.weight).outcome();
        if balance == WindowOutcome::Fits {
            return Ok(balance);
        }
        let never_left = counters::count_given_back(unit, (self.action.agent(), &self.service), &self.window).await?;
        Ok(self.window.check_write(self.window.in_use(used, never_left), self.weight).outcome())
    }

    /// Refuses a check that would put one approval request too many to people.
    async fn refuse_flood<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let Some(window) = &self.checks else { return Ok(()) };
        let asked = WindowCounter { kind: counters::CHECK, agent: self.action.agent(), name: "", window };
        if asked.used(unit).await? >= window.limit {
            let again = asked.forgets(unit).await?;
            return Err(StoreError::CheckFlood { after: again.since(unit.now) });
        }
        asked.bump(unit, 1);
        Ok(())
    }
}

/// The card that people see when a batch window has tripped.
struct BatchApprovalCard {
    approval: Approval,
    is_new: bool,
    /// Writes that are already on the card.
    asked: Vec<HoldId>,
    siblings: Vec<Hold>,
}

impl Admission {
    /// The open card of this agent and service, or a new one, with all writes that still wait.
    async fn batch_card<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<BatchApprovalCard, StoreError> {
        let open = approvals::open_batch(unit, self.action.agent(), &self.service).await?;
        let since = unit.now - self.window.span;
        let rows = unit.rows(SIBLINGS, params![self.action.agent(), &self.service, since]).await?;
        let siblings = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let open = match open {
            // The last card has expired, but the sweep has not ended it yet: this write must not expire with it.
            Some(over) if over.is_over(unit.now) => {
                approvals::expire(unit, over).await?;
                None
            }
            other => other,
        };
        let asked = match &open {
            Some(card) if !siblings.is_empty() => {
                approvals::items(unit.tx(), card.id).await?.into_iter().map(|item| item.hold).collect()
            }
            Some(_) | None => Vec::new(),
        };
        let is_new = open.is_none();
        let approval = open.unwrap_or_else(|| self.question(unit.now, ApprovalSubject::Batch));
        Ok(BatchApprovalCard { approval, is_new, asked, siblings })
    }

    fn question(&self, now: UtcMillis, subject: ApprovalSubject) -> Approval {
        Approval {
            id: self.approval,
            subject,
            agent: self.action.agent().clone(),
            service: self.service.clone(),
            asked_at: now,
            state: ApprovalState::Pending { expires_at: now + self.expiry },
            version: 1,
            note: None,
            items: 0,
        }
    }

    /// Adds this write and its waiting siblings to the card.
    fn join_card<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        card: BatchApprovalCard,
    ) -> Result<AdmissionOutcome, StoreError> {
        let BatchApprovalCard { mut approval, is_new, asked, siblings } = card;
        let before = approval.version;
        self.pull_back(unit, &mut approval, &asked, siblings)?;
        approvals::add_item(unit, &mut approval, self.hold, self.action.digest());
        if is_new {
            approvals::insert(unit, &approval, "batch.window", &[self.window_reason()]);
            self.tell(unit, &approval);
        } else {
            approvals::grow(unit, &mut approval, before);
        }
        Ok(self.await_person(unit, &approval, true))
    }

    fn ask_alone<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        code: &'static str,
        why: Vec<ApprovalReason>,
    ) -> AdmissionOutcome {
        let mut approval = self.question(unit.now, ApprovalSubject::Write);
        approvals::add_item(unit, &mut approval, self.hold, self.action.digest());
        approvals::insert(unit, &approval, code, &why);
        self.tell(unit, &approval);
        self.await_person(unit, &approval, false)
    }

    fn await_person<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        approval: &Approval,
        batch: bool,
    ) -> AdmissionOutcome {
        let tier = self.tier.raise(Tier::ApprovalRequired);
        self.place(unit, HoldState::AwaitingApproval { approval: approval.id }, tier);
        let expires_at = match approval.state {
            ApprovalState::Pending { expires_at } => expires_at,
            _ => unit.now,
        };
        AdmissionOutcome::Awaiting { hold: self.hold, approval: approval.id, expires_at, batch }
    }

    fn hold<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        tier: Tier,
        ready: Option<PreparedHoldRows>,
    ) -> AdmissionOutcome {
        let not_before = unit.now + self.delay;
        let rows = ready.filter(|rows| rows.tier == tier).unwrap_or_else(|| PreparedHoldRows::held(self, tier));
        rows.put(unit, not_before);
        AdmissionOutcome::Held { hold: self.hold, not_before }
    }

    /// The write of a changed action, waiting for the approval that comes with the change. It belongs to the original
    /// call.
    pub(crate) fn place_amended<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, call: CallId) -> Hold {
        let tier = self.tier.raise(Tier::ApprovalRequired);
        let named = Self { call, idempotency_key: None, ..self.clone() };
        let hold = named.place(unit, HoldState::AwaitingApproval { approval: self.approval }, tier);
        self.count(unit);
        hold
    }

    /// The approval request for one write.
    pub(crate) fn question_for(&self, now: UtcMillis) -> Approval {
        self.question(now, ApprovalSubject::Write)
    }

    fn place<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, state: HoldState, tier: Tier) -> Hold {
        let hold = self.new_hold(unit.now, state, tier);
        NewHold::of(&hold, &self.record_key, &self.targets, self.reason.as_deref()).put(unit);
        unit.record(self.placed(&hold));
        if let Some(row) = self.key_row() {
            remember(unit, row);
        }
        hold
    }

    fn new_hold(&self, now: UtcMillis, state: HoldState, tier: Tier) -> Hold {
        Hold {
            id: self.hold,
            call: self.call,
            session: self.session,
            action: self.action.clone(),
            service: self.service.clone(),
            class: self.class,
            tier,
            policy: self.policy.clone(),
            object_key: self.object_key.clone(),
            weight: self.weight,
            delay: self.delay,
            admitted_at: now,
            state,
            version: 1,
            epoch: 0,
            attempts: 0,
            consent: None,
            handle: None,
            reverses: self.reverses,
        }
    }

    /// The audit fact for a new hold.
    fn placed(&self, hold: &Hold) -> AuditFact {
        let mut fact = self.fact(&format!("hold.{}", hold.state.word()), hold.tier);
        fact.hold = Some(hold.id);
        fact.to = Some(hold.state.word().to_owned());
        if let HoldState::AwaitingApproval { approval } = hold.state {
            fact.approval = Some(approval);
        }
        fact.commitments.insert("action".into(), commit(&self.record_key, self.action.bytes()));
        fact
    }

    /// Refused permanently. The key is not stored: a changed policy may decide differently.
    fn record_block<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) {
        let mut fact = self.fact("call.blocked", Tier::Blocked);
        fact.code = Some("policy.blocked".into());
        unit.record(fact);
        self.window_counter(counters::BLOCKED).bump(unit, 1);
    }

    fn fact(&self, kind: &str, tier: Tier) -> AuditFact {
        let agent = || Actor::Agent(self.action.agent().clone());
        let mut fact = AuditFact::new(kind, self.by.clone().unwrap_or_else(agent))
            .with("move", "admit")
            .with("capability", self.action.capability())
            .with("tier", tier)
            .with("weight", self.weight);
        if let Some(rule) = &self.rule {
            fact = fact.with("rule", rule);
        }
        if let Some(door) = self.door {
            fact = fact.with("door", door);
        }
        if !self.targets.is_empty() {
            fact = fact.with("origins", origins(&self.targets).to_string());
        }
        fact.call = Some(self.call);
        fact.digest = Some(self.action.digest());
        fact.policy = Some(self.policy.clone());
        fact
    }

    fn window_counter(&self, kind: &'static str) -> WindowCounter<'_> {
        WindowCounter { kind, agent: self.action.agent(), name: self.service.as_str(), window: &self.window }
    }

    fn count<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) {
        if self.checks.is_none() {
            self.window_counter(counters::BATCH).bump(unit, self.weight);
        }
        for rate in &self.rates {
            rate.counter(self.action.agent()).bump(unit, 1);
        }
    }

    fn tell<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, approval: &Approval) {
        let body = serde_json::json!({"approval": approval.id, "hold": self.hold, "agent": self.action.agent()});
        let message =
            OutboxMessage { id: self.message, topic: "approval.asked".into(), severity: MessageSeverity::Action, body };
        outbox::put(unit, &message);
    }
}
