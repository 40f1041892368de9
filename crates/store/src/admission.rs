//! Admission: a judged write becomes a held one.
//!
//! Takes a frozen action with its verdict; gives a hold, an open question, or the operation it is a
//! repeat of. Promise: counters, idempotency, the question, the message to people and the audit entry
//! are one transaction; when the batch window trips, the writes of that agent and service that still
//! wait go back to people too, all on one card. A write that a person is asked about for another reason
//! has a question of its own and is on no card with others.

mod apart;
mod budget;
mod ready;

use sluice_core::action::Action;
use sluice_core::approval::reason::AskReason;
use sluice_core::approval::{Approval, ApprovalState, Subject};
use sluice_core::audit::{Fact, commit};
use sluice_core::batch::{Balance, Window};
use sluice_core::budget::{Budget, BudgetLimits};
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::{MessageId, SessionId};
use sluice_core::target::{Traced, origins};
use sluice_core::{Actor, AgentName, ApprovalId, CallId, Digest, HoldId, ServiceName, Span, Tier, Timestamp};

use crate::ahead::Ahead;
use crate::allowances::{self, AllowanceUse};
use crate::approvals;
use crate::counters::{self, Counter};
use crate::desk::Desk;
use crate::error::StoreError;
use crate::freezes;
use crate::holds::{self, NewHold, columns};
use crate::outbox::{self, Message, Severity};
use crate::recent::DUPLICATE_SPAN;
use crate::sql::{Row, Tx, Val, params};
pub use budget::BudgetUse;
pub(crate) use ready::Admit;
use ready::Rows;

/// How long an idempotency key is remembered.
const KEY_LIFE: Span = Span::from_hours(30 * 24);

/// A write that has passed every room before the hold.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The call's id.
    pub call: CallId,
    /// The hold's id, if it becomes one.
    pub hold: HoldId,
    /// The question's id, if one has to be put.
    pub approval: ApprovalId,
    /// The id of the message that carries the question, or tells people of it.
    pub message: MessageId,
    /// The key under which its content is committed to the record.
    pub record_key: [u8; 32],
    /// What is to be done.
    pub action: Action,
    /// The session it was asked in.
    pub session: Option<SessionId>,
    /// What batch protection and freezes count it under.
    pub service: ServiceName,
    /// What an unclear outcome allows.
    pub class: EffectClass,
    /// The object it changes, if it names one.
    pub object_key: Option<String>,
    /// How many ordinary writes it counts as.
    pub weight: u32,
    /// How long its undo window is.
    pub delay: Span,
    /// What policy said, escalations before batch included.
    pub tier: Tier,
    /// The rules that said so.
    pub policy: String,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// Rate-limit counters policy wants counted.
    pub rates: Vec<Rate>,
    /// The batch window of this agent and service.
    pub window: Window,
    /// What may happen within a day before a person is asked.
    pub budgets: BudgetLimits,
    /// The window of questions about checks, if the caller carries it out itself: such a call counts in no window of
    /// writes.
    pub checks: Option<Window>,
    /// The agent's own key for this call.
    pub idempotency_key: Option<String>,
    /// The key is only a program's name for one call: under a new name, an identical write is still a duplicate.
    pub named: bool,
    /// The agent knows that it repeats an identical call.
    pub allow_duplicate: bool,
    /// A person's standing approval that may answer policy's question. It never answers the batch window.
    pub allowance: Option<AllowanceUse>,
    /// How long people have to answer.
    pub expiry: Span,
    /// The write it takes back, if it is a rollback.
    pub reverses: Option<HoldId>,
    /// Who really asked, where that is not the agent: an operator takes something back.
    pub by: Option<Actor>,
    /// Over which door it came.
    pub door: Option<&'static str>,
    /// Its targets, and where each comes from.
    pub targets: Vec<Traced>,
    /// Why the agent wants it, in its own words: shown to people, and nothing else.
    pub reason: Option<String>,
    /// Why policy asks a person, if it does. Kept with the question.
    pub reasons: Vec<AskReason>,
}

/// One rate counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// The rule it belongs to.
    pub rule: String,
    /// Its window.
    pub window: Window,
    /// What a call beyond the limit is raised to, if the call was judged to be within it; nothing if it was
    /// judged to be beyond already.
    pub on_exceed: Option<Tier>,
}

impl Rate {
    pub(crate) fn counter<'a>(&'a self, agent: &'a AgentName) -> Counter<'a> {
        Counter { kind: counters::RATE, agent, name: &self.rule, window: &self.window }
    }
}

/// What calls that were counted since this one was judged raise it to, if they used a limit up. Counted and checked
/// in one transaction: of two calls that both saw the last place, one gets it.
pub(crate) async fn exceeded<T: Tx>(
    desk: &mut Desk<'_, T>,
    agent: &AgentName,
    rates: &[Rate],
) -> Result<Option<Tier>, StoreError> {
    let mut raised = None;
    for rate in rates {
        let Some(tier) = rate.on_exceed else { continue };
        if rate.counter(agent).used(desk).await? >= rate.window.limit {
            raised = raised.max(Some(tier));
        }
    }
    Ok(raised)
}

/// What became of an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// It waits for its undo window to close.
    Held {
        /// Its id.
        hold: HoldId,
        /// When the window closes.
        not_before: Timestamp,
    },
    /// It waits for a person.
    Awaiting {
        /// Its id.
        hold: HoldId,
        /// The question.
        approval: ApprovalId,
        /// When silence becomes a no.
        expires_at: Timestamp,
        /// Whether the batch window asked, rather than policy.
        batch: bool,
    },
    /// It never runs; the record says so.
    Blocked,
    /// It is the call that was made before with this key.
    Again {
        /// The first call.
        call: CallId,
        /// Its hold.
        hold: HoldId,
    },
}

const BY_KEY: &str = "SELECT digest, call, hold, expires_at FROM idempotency WHERE agent = ?1 AND name = ?2 /*lock*/";
const REMEMBER: &str = "INSERT INTO idempotency (agent, name, digest, call, hold, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (agent, name) DO UPDATE SET digest = excluded.digest, \
     call = excluded.call, hold = excluded.hold, expires_at = excluded.expires_at";
macro_rules! twin {
    ($which:literal) => {
        concat!(
            "SELECT id FROM holds WHERE ",
            $which,
            "digest = ?1 AND admitted_at > ?2 \
             AND state NOT IN ('cancelled', 'denied', 'expired', 'discarded', 'blocked') ORDER BY admitted_at LIMIT 1"
        )
    };
}
const TWIN: &str = twin!("");
const IS_TWIN: &str = twin!("id = ?3 AND ");
const SIBLINGS: &str = columns!(
    "WHERE h.agent = ?1 AND h.service = ?2 AND h.admitted_at >= ?3 AND h.state IN ('held', 'ready') \
     AND h.approval IS NULL ORDER BY h.admitted_at, h.id /*lock*/"
);

impl Admission {
    /// Questions it will ask, in the order it asks them.
    fn foreseen(&self, now: Timestamp) -> Vec<Ahead> {
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

    /// Admits it. What was got ready is used if it still fits.
    async fn admit<T: Tx>(&self, desk: &mut Desk<'_, T>, ready: Option<Rows>) -> Result<Admitted, StoreError> {
        let is_first = counters::take_turn(desk, self.action.agent()).await?;
        if let Some(again) = self.repeated(desk).await? {
            return Ok(again);
        }
        let raised = exceeded(desk, self.action.agent(), &self.rates).await?;
        let tier = self.tier.raise(raised.unwrap_or(self.tier));
        if tier == Tier::Blocked {
            self.record_block(desk);
            return Ok(Admitted::Blocked);
        }
        freezes::refuse_if_frozen(desk, self.action.agent(), &self.service).await?;
        let card = match self.weighed(desk).await? {
            Balance::Fits => None,
            Balance::Trips => Some(self.batch_card(desk).await?),
        };
        let budget = if card.is_none() && self.may_go_alone(tier) { self.over_budget(desk).await? } else { None };
        let needs_yes = tier == Tier::ApprovalRequired || budget.is_some();
        // A standing approval answers policy's question, never an escalation.
        let is_escalated = raised.is_some() || budget.is_some();
        let code = reason(raised, budget);
        let admitted = match card {
            // What a person is asked about anyway is asked about alone, and no standing approval answers it now.
            Some(card) if needs_yes => self.ask_apart(desk, card, code)?,
            Some(card) => self.join_card(desk, card)?,
            None if needs_yes && (is_escalated || !allowances::spend(desk, self).await?) => {
                self.refuse_flood(desk).await?;
                self.ask_alone(desk, code, self.asked_because(code, false))
            }
            None => {
                self.spend_budgets(desk);
                self.hold(desk, tier, ready)
            }
        };
        self.count(desk);
        if is_first {
            counters::make_latch(desk, self.action.agent());
        }
        Ok(admitted)
    }
}

/// What the policy itself asks, without an escalation.
const BY_POLICY: &str = "policy.approval_required";

/// Why a person is asked about one write.
fn reason(rate: Option<Tier>, budget: Option<Budget>) -> &'static str {
    match (rate, budget) {
        (Some(_), _) => "policy.rate_limit",
        (None, Some(budget)) => budget.code(),
        (None, None) => BY_POLICY,
    }
}

impl Admission {
    /// Whether it may go without a person, as far as the rules and standing approvals have a say.
    fn may_go_alone(&self, tier: Tier) -> bool {
        tier < Tier::ApprovalRequired || self.allowance.is_some()
    }

    /// Whether it fits the batch window. A call that is only checked is no write and is not weighed.
    async fn weighed<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Balance, StoreError> {
        if self.checks.is_some() {
            return Ok(Balance::Fits);
        }
        let used = self.window_counter(counters::BATCH).used(desk).await?;
        let balance = self.window.weighing(used, self.weight).balance();
        if balance == Balance::Fits {
            return Ok(balance);
        }
        let never_left = counters::given_back(desk, (self.action.agent(), &self.service), &self.window).await?;
        Ok(self.window.weighing(self.window.in_use(used, never_left), self.weight).balance())
    }

    /// Refuses a check that would put one question too many to people.
    async fn refuse_flood<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let Some(window) = &self.checks else { return Ok(()) };
        let asked = Counter { kind: counters::CHECK, agent: self.action.agent(), name: "", window };
        if asked.used(desk).await? >= window.limit {
            let again = asked.forgets(desk).await?;
            return Err(StoreError::CheckFlood { after: again.since(desk.now) });
        }
        asked.bump(desk, 1);
        Ok(())
    }
}

/// The card a tripped window puts in front of people.
struct Card {
    approval: Approval,
    is_new: bool,
    /// Writes it already asks about.
    asked: Vec<HoldId>,
    siblings: Vec<Hold>,
}

impl Admission {
    /// The operation this call repeats, if it does.
    async fn repeated<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Option<Admitted>, StoreError> {
        if let Some(key) = &self.idempotency_key {
            if let Some(again) = self.under(desk, key).await? {
                return Ok(Some(again));
            }
            if !self.named {
                return Ok(None);
            }
        }
        if self.allow_duplicate || self.tier == Tier::Blocked {
            return Ok(None);
        }
        match self.twin(desk).await? {
            Some(row) => {
                let first = HoldId::from_bits(row.of("holds").bits()?);
                Err(StoreError::PossibleDuplicate { first })
            }
            None => Ok(None),
        }
    }

    /// The call that was made under this key.
    async fn under<T: Tx>(&self, desk: &mut Desk<'_, T>, key: &str) -> Result<Option<Admitted>, StoreError> {
        let Some(row) = desk.row(BY_KEY, params![self.action.agent(), key]).await? else { return Ok(None) };
        let mut row = row.of("idempotency");
        let digest = Digest::from_bytes(&row.blob()?).ok_or_else(|| row.impossible("a digest of an unknown form"))?;
        let (call, hold, expires_at) = (row.bits()?, row.bits()?, row.time()?);
        if desk.now >= expires_at {
            return Ok(None);
        }
        if digest != self.action.asked_digest() {
            return Err(StoreError::KeyReuse);
        }
        Ok(Some(Admitted::Again { call: CallId::from_bits(call), hold: HoldId::from_bits(hold) }))
    }

    /// An identical write of the last minutes that still counts.
    async fn twin<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Option<Row>, StoreError> {
        let (digest, since) = (self.action.call_digest(), desk.now - DUPLICATE_SPAN);
        let Some(alike) = desk.tx().recent_like(digest) else {
            return desk.row(TWIN, params![digest, since]).await;
        };
        for hold in alike {
            if let Some(twin) = desk.row(IS_TWIN, params![digest, since, hold]).await? {
                return Ok(Some(twin));
            }
        }
        Ok(None)
    }

    /// The question of [`Self::repeated`], asked early.
    fn repeated_ahead(&self, now: Timestamp) -> Option<Ahead> {
        if let Some(key) = &self.idempotency_key {
            let params = params![self.action.agent(), key.as_str()];
            let values = ["agent", "name"].into_iter().zip(params.iter().cloned()).collect();
            return Some(Ahead { sql: BY_KEY, params, rests_on: vec![("idempotency", values)], follows: None });
        }
        let (digest, since) = (self.action.call_digest(), now - DUPLICATE_SPAN);
        let rests_on = vec![("holds", vec![("digest", Val::from(digest))])];
        (!self.allow_duplicate && self.tier != Tier::Blocked).then(|| Ahead {
            sql: TWIN,
            params: params![digest, since],
            rests_on,
            follows: None,
        })
    }

    /// The open card of this agent and service, or a new one; with everything that still waits.
    async fn batch_card<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Card, StoreError> {
        let open = approvals::open_batch(desk, self.action.agent(), &self.service).await?;
        let since = desk.now - self.window.span;
        let rows = desk.rows(SIBLINGS, params![self.action.agent(), &self.service, since]).await?;
        let siblings = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let open = match open {
            // Nobody came by to end the last card: it must not take this write down with it.
            Some(over) if over.is_over(desk.now) => {
                approvals::expire(desk, over).await?;
                None
            }
            other => other,
        };
        let asked = match &open {
            Some(card) if !siblings.is_empty() => {
                approvals::items(desk.tx(), card.id).await?.into_iter().map(|item| item.hold).collect()
            }
            Some(_) | None => Vec::new(),
        };
        let is_new = open.is_none();
        let approval = open.unwrap_or_else(|| self.question(desk.now, Subject::Batch));
        Ok(Card { approval, is_new, asked, siblings })
    }

    fn question(&self, now: Timestamp, subject: Subject) -> Approval {
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

    /// Puts this write and its waiting siblings in front of people.
    fn join_card<T: Tx>(&self, desk: &mut Desk<'_, T>, card: Card) -> Result<Admitted, StoreError> {
        let Card { mut approval, is_new, asked, siblings } = card;
        let before = approval.version;
        self.pull_back(desk, &mut approval, &asked, siblings)?;
        approvals::add_item(desk, &mut approval, self.hold, self.action.digest());
        if is_new {
            approvals::insert(desk, &approval, "batch.window", &[self.window_reason()]);
            self.tell(desk, &approval);
        } else {
            approvals::grow(desk, &mut approval, before);
        }
        Ok(self.await_person(desk, &approval, true))
    }

    fn ask_alone<T: Tx>(&self, desk: &mut Desk<'_, T>, code: &'static str, why: Vec<AskReason>) -> Admitted {
        let mut approval = self.question(desk.now, Subject::Write);
        approvals::add_item(desk, &mut approval, self.hold, self.action.digest());
        approvals::insert(desk, &approval, code, &why);
        self.tell(desk, &approval);
        self.await_person(desk, &approval, false)
    }

    fn await_person<T: Tx>(&self, desk: &mut Desk<'_, T>, approval: &Approval, batch: bool) -> Admitted {
        let tier = self.tier.raise(Tier::ApprovalRequired);
        self.place(desk, HoldState::AwaitingApproval { approval: approval.id }, tier);
        let expires_at = match approval.state {
            ApprovalState::Pending { expires_at } => expires_at,
            _ => desk.now,
        };
        Admitted::Awaiting { hold: self.hold, approval: approval.id, expires_at, batch }
    }

    fn hold<T: Tx>(&self, desk: &mut Desk<'_, T>, tier: Tier, ready: Option<Rows>) -> Admitted {
        let not_before = desk.now + self.delay;
        let rows = ready.filter(|rows| rows.tier == tier).unwrap_or_else(|| Rows::held(self, tier));
        rows.put(desk, not_before);
        Admitted::Held { hold: self.hold, not_before }
    }

    /// The write of a changed action, waiting for the yes that comes with it. It belongs to the call it was asked in.
    pub(crate) fn place_amended<T: Tx>(&self, desk: &mut Desk<'_, T>, call: CallId) -> Hold {
        let tier = self.tier.raise(Tier::ApprovalRequired);
        let named = Self { call, idempotency_key: None, ..self.clone() };
        let hold = named.place(desk, HoldState::AwaitingApproval { approval: self.approval }, tier);
        self.count(desk);
        hold
    }

    /// The question about one write.
    pub(crate) fn question_for(&self, now: Timestamp) -> Approval {
        self.question(now, Subject::Write)
    }

    fn place<T: Tx>(&self, desk: &mut Desk<'_, T>, state: HoldState, tier: Tier) -> Hold {
        let hold = self.new_hold(desk.now, state, tier);
        NewHold::of(&hold, &self.record_key, &self.targets, self.reason.as_deref()).put(desk);
        desk.record(self.placed(&hold));
        if let Some(row) = self.key_row() {
            remember(desk, row);
        }
        hold
    }

    fn new_hold(&self, now: Timestamp, state: HoldState, tier: Tier) -> Hold {
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

    /// What the record says of a new hold.
    fn placed(&self, hold: &Hold) -> Fact {
        let mut fact = self.fact(&format!("hold.{}", hold.state.word()), hold.tier);
        fact.hold = Some(hold.id);
        fact.to = Some(hold.state.word().to_owned());
        if let HoldState::AwaitingApproval { approval } = hold.state {
            fact.approval = Some(approval);
        }
        fact.commitments.insert("action".into(), commit(&self.record_key, self.action.bytes()));
        fact
    }

    /// The row of [`REMEMBER`], but for how long.
    fn key_row(&self) -> Option<Vec<Val>> {
        let key = self.idempotency_key.as_deref()?;
        Some(params![self.action.agent(), key, self.action.asked_digest(), self.call, self.hold])
    }

    /// Refused for good. The key is not kept: a changed policy may answer differently.
    fn record_block<T: Tx>(&self, desk: &mut Desk<'_, T>) {
        let mut fact = self.fact("call.blocked", Tier::Blocked);
        fact.code = Some("policy.blocked".into());
        desk.record(fact);
        self.window_counter(counters::BLOCKED).bump(desk, 1);
    }

    fn fact(&self, kind: &str, tier: Tier) -> Fact {
        let agent = || Actor::Agent(self.action.agent().clone());
        let mut fact = Fact::new(kind, self.by.clone().unwrap_or_else(agent))
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

    fn window_counter(&self, kind: &'static str) -> Counter<'_> {
        Counter { kind, agent: self.action.agent(), name: self.service.as_str(), window: &self.window }
    }

    fn count<T: Tx>(&self, desk: &mut Desk<'_, T>) {
        if self.checks.is_none() {
            self.window_counter(counters::BATCH).bump(desk, self.weight);
        }
        for rate in &self.rates {
            rate.counter(self.action.agent()).bump(desk, 1);
        }
    }

    fn tell<T: Tx>(&self, desk: &mut Desk<'_, T>, approval: &Approval) {
        let body = serde_json::json!({"approval": approval.id, "hold": self.hold, "agent": self.action.agent()});
        let message = Message { id: self.message, topic: "approval.asked".into(), severity: Severity::Action, body };
        outbox::put(desk, &message);
    }
}

fn remember<T: Tx>(desk: &mut Desk<'_, T>, mut row: Vec<Val>) {
    row.push((desk.now + KEY_LIFE).into());
    desk.write(REMEMBER, row);
}
