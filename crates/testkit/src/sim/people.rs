//! Simulated agents that make calls, and people who decide, stop, freeze and settle.
//!
//! People tell the truth about what happened: they look at the service itself. Otherwise they are careless, and press
//! buttons for things that no longer exist.

use std::sync::Arc;

use serde_json::json;
use sluice_core::approval::{ApprovalAnswer, ApprovalSubject};
use sluice_core::budget::DailyBudgetLimits;
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::{Action, Actor, AgentName, ApprovalId, CallId, Clock as _, HoldId, Millis, ServiceName, Tier};
use sluice_store::{
    Admission, AdmissionOutcome, ApprovalRuling, BatchChoice, CancelHoldOutcome, DecideApproval, DecisionOutcome,
    FreezeTarget, HoldSettlement, HoldTiming, SettleHold, Store, StoreError,
};

use crate::sim::{SimResult, Simulation, WINDOW, at_once};
use crate::test_store::ana;

const AGENTS: [&str; 3] = ["clerk", "scout", "herald"];
const SERVICES: [&str; 2] = ["email", "tracker"];
const DELAYS_S: [u64; 6] = [0, 5, 5, 30, 30, 120];

impl Simulation {
    /// The store of a running node, chosen anew each time.
    fn door(&mut self) -> Option<Arc<Store>> {
        let at = self.any_node();
        let node = self.node(at);
        if node.paused_until > self.elapsed { None } else { node.store() }
    }

    fn agent(&mut self) -> AgentName {
        let name = AGENTS.get(self.below(AGENTS.len())).copied().unwrap_or("clerk");
        AgentName::new(name).unwrap_or_else(|error| panic!("{error}"))
    }

    fn service(&mut self) -> ServiceName {
        let name = SERVICES.get(self.below(SERVICES.len())).copied().unwrap_or("email");
        ServiceName::new(name).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn agent_acts(&mut self) -> SimResult {
        let Some(store) = self.door() else { return Ok(()) };
        if self.one_in(12) {
            return self.agent_meddles(&store);
        }
        let admission = self.wish();
        let (agent, digest) = (admission.action.agent().clone(), admission.action.digest());
        let (key, hold, service) = (admission.idempotency_key.clone(), admission.hold, admission.service.clone());
        let known = key.as_ref().and_then(|key| self.book.keys.get(&(agent.clone(), key.clone()))).copied();
        let answer = at_once(store.admit(admission));
        self.note(format!("{agent} asks {hold} at {service}: {answer:?}"));
        match answer {
            Ok(AdmissionOutcome::Held { hold, .. }) if known.is_none() => {
                self.book.acknowledged.push(hold);
                self.book.window_opened(hold, self.elapsed);
            }
            Ok(AdmissionOutcome::Awaiting { hold, batch, .. }) if known.is_none() => {
                self.book.acknowledged.push(hold);
                if batch {
                    self.nothing_slips_past(&agent, &service, &store)?;
                }
            }
            Ok(AdmissionOutcome::Again { hold, .. }) if known == Some((digest, hold)) => return Ok(()),
            Ok(AdmissionOutcome::Blocked) if known.is_none() => return Ok(()),
            Err(StoreError::KeyReuse) if known.is_some_and(|(first, _)| first != digest) => return Ok(()),
            Err(StoreError::PossibleDuplicate { .. }) if key.is_none() => return Ok(()),
            Err(StoreError::Frozen { .. }) if !self.book.frozen.is_empty() => return Ok(()),
            other => return Err(format!("G4: {agent} asked with key {key:?}, known as {known:?}, and got {other:?}")),
        }
        if let Some(key) = key {
            self.book.keys.insert((agent, key), (digest, hold));
        }
        Ok(())
    }

    /// A tripped window leaves no sibling to be sent without approval.
    fn nothing_slips_past(&self, agent: &AgentName, service: &ServiceName, store: &Store) -> SimResult {
        let now = self.nodes.iter().map(|node| node.clock.now()).min().unwrap_or_default();
        let rows =
            at_once(store.holds(None, 10_000)).map_err(|error| format!("held writes cannot be read: {error}"))?;
        let slipped = rows.iter().find(|hold| {
            hold.agent() == agent
                && hold.service == *service
                && matches!(hold.state.word(), "held" | "ready")
                && hold.consent.is_none()
                && hold.admitted_at > now - WINDOW.span
        });
        slipped.map_or(Ok(()), |hold| Err(format!("O7: the window tripped and {} is still on its way", hold.id)))
    }

    /// A random admission of an agent.
    fn wish(&mut self) -> Admission {
        let agent = self.agent();
        let class = EffectClass::ALL.get(self.below(4)).copied().unwrap_or(EffectClass::Opaque);
        let key = self.one_in(4).then(|| format!("key-{}", self.random.below(4)));
        let text = self.random.below(if key.is_some() { 2 } else { 200 });
        let capability = "custom:mail".parse().unwrap_or_else(|error| panic!("{error}"));
        let action = Action::custom(capability, agent, json!({ "text": text }));
        let tier = match self.random.below(12) {
            0..4 => Tier::Autonomous,
            4..8 => Tier::Notify,
            8..11 => Tier::ApprovalRequired,
            _ => Tier::Blocked,
        };
        let weight = if self.one_in(12) { 1 + self.random.below(12) } else { 1 };
        let delay = DELAYS_S.get(self.below(DELAYS_S.len())).copied().unwrap_or(30);
        Admission {
            call: CallId::mint(&self.ids),
            hold: HoldId::mint(&self.ids),
            approval: ApprovalId::mint(&self.ids),
            message: MessageId::mint(&self.ids),
            record_key: [7; 32],
            action: action.unwrap_or_else(|error| panic!("{error}")),
            session: None,
            service: self.service(),
            class,
            object_key: self.one_in(3).then(|| format!("object-{}", self.random.below(2))),
            weight: u32::try_from(weight).unwrap_or(1),
            delay: Millis::from_secs(delay),
            tier,
            policy: "sim".into(),
            rule: None,
            rates: Vec::new(),
            window: WINDOW,
            budgets: DailyBudgetLimits::default(),
            checks: None,
            idempotency_key: key,
            named: false,
            allow_duplicate: self.one_in(4),
            allowance: None,
            expiry: Millis::from_mins(if self.one_in(2) { 5 } else { 60 }),
            reverses: None,
            by: None,
            door: None,
            targets: Vec::new(),
            reason: None,
            reasons: Vec::new(),
        }
    }

    /// An agent tries something that only people may do.
    fn agent_meddles(&mut self, store: &Store) -> SimResult {
        let agent = Actor::Agent(self.agent());
        let Some(approval) = self.open_question(store)? else { return Ok(()) };
        let decision = DecideApproval {
            approval,
            by: agent.clone(),
            channel: "api".into(),
            ruling: ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None },
            shown: Vec::new(),
            allowance: None,
        };
        match at_once(store.decide(decision)) {
            Err(StoreError::NotAPerson) => Ok(()),
            other => Err(format!("G7: {agent} decided {approval}: {other:?}")),
        }
    }

    fn open_question(&mut self, store: &Store) -> SimResult<Option<ApprovalId>> {
        let open = at_once(store.open_approvals(20)).map_err(|error| format!("questions cannot be read: {error}"))?;
        Ok(open.get(self.below(open.len().max(1))).map(|approval| approval.id))
    }

    pub(super) fn person_acts(&mut self) -> SimResult {
        let Some(store) = self.door() else { return Ok(()) };
        match self.random.below(30) {
            0..11 => {
                let Some(approval) = self.open_question(&store)? else { return Ok(()) };
                self.decide(&store, approval)
            }
            11..14 => self.cancel(&store),
            14..17 => self.retime(&store),
            17..25 => self.settle_any(&store),
            25 => self.freeze(&store),
            26..28 => self.unfreeze_all(),
            28 if self.one_in(4) => {
                let service = self.service();
                let gone = at_once(store.cancel_service(service.clone(), ana()));
                self.note(format!("ana disconnects {service}: {gone:?}"));
                gone.map(drop).map_err(|error| format!("cancel {service}: {error}"))
            }
            29 if self.one_in(4) => {
                let moved = at_once(store.require_person_after_restore(HoldId::from_bits(0), 3));
                self.note(format!("ana restores a copy: {moved:?}"));
                moved.map(drop).map_err(|error| format!("restore: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn decide(&mut self, store: &Store, approval: ApprovalId) -> SimResult {
        let card = at_once(store.approval(approval)).map_err(|error| format!("{approval} cannot be read: {error}"))?;
        let Some(card) = card else { return Err(format!("{approval} was open and is gone")) };
        let seen = card.approval.items;
        let ruling = match (card.approval.subject, self.random.below(10)) {
            (_, 0..2) => ApprovalRuling::Deny { note: None },
            (ApprovalSubject::Write | ApprovalSubject::Request, _) => {
                ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }
            }
            (ApprovalSubject::Batch, 2..6) => ApprovalRuling::Choose(BatchChoice::All { seen }),
            (ApprovalSubject::Batch, 6..8) => ApprovalRuling::Choose(BatchChoice::First(seen / 2)),
            (ApprovalSubject::Batch, _) => {
                ApprovalRuling::Choose(BatchChoice::These(card.items.iter().take(2).map(|item| item.hold).collect()))
            }
        };
        let decision =
            DecideApproval { approval, by: ana(), channel: "cli".into(), ruling, shown: Vec::new(), allowance: None };
        let decided = at_once(store.decide(decision.clone())).map_err(|error| format!("decide {approval}: {error}"))?;
        match &decided {
            DecisionOutcome::Now { allowed, denied, .. } => {
                self.note(format!("ana decides {approval}: yes {allowed:?}, no {denied:?}"));
                allowed.iter().for_each(|id| self.book.window_opened(*id, self.elapsed));
            }
            DecisionOutcome::Already(after) => {
                self.note(format!("ana decides {approval}: it is {}", after.state.word()))
            }
        }
        match at_once(store.decide(decision)) {
            Ok(DecisionOutcome::Already(_)) => Ok(()),
            other => Err(format!("G6: {approval} was decided twice: {other:?}")),
        }
    }

    fn any_hold(&mut self, store: &Store) -> SimResult<Option<Hold>> {
        let at = self.below(self.book.acknowledged.len().max(1));
        let Some(id) = self.book.acknowledged.get(at).copied() else { return Ok(None) };
        let hold = at_once(store.hold(id)).map_err(|error| format!("{id} cannot be read: {error}"))?;
        hold.map(Some).ok_or_else(|| format!("G1: {id} was acknowledged and is gone"))
    }

    fn cancel(&mut self, store: &Store) -> SimResult {
        let Some(hold) = self.any_hold(store)? else { return Ok(()) };
        let (id, owner) = (hold.id, hold.agent().clone());
        let by = match self.random.below(3) {
            0 => Actor::Agent(self.agent()),
            1 => Actor::Agent(owner.clone()),
            _ => ana(),
        };
        let stranger = matches!(&by, Actor::Agent(name) if *name != owner);
        let answer = at_once(store.cancel(id, by.clone()));
        match answer {
            Ok(CancelHoldOutcome::Stopped(after)) if !stranger && after.state.word() == "cancelled" => {
                self.note(format!("{by} stops {id}"));
                Ok(())
            }
            Ok(CancelHoldOutcome::TooLate(after)) if !stranger => {
                self.note(format!("{by} would stop {id}: {}", after.state.word()));
                Ok(())
            }
            Err(StoreError::NotFound { .. }) if stranger => Ok(()),
            other => Err(format!("G2: {by} cancels {id}: {other:?}")),
        }
    }

    fn retime(&mut self, store: &Store) -> SimResult {
        let Some(hold) = self.any_hold(store)? else { return Ok(()) };
        let timing = if self.one_in(2) {
            HoldTiming::Now
        } else {
            HoldTiming::Longer(Millis::from_secs(self.random.below(300)))
        };
        match at_once(store.retime(hold.id, ana(), timing)) {
            Ok(after) => {
                self.book.window_retimed(hold.id);
                self.note(format!("ana retimes {} ({timing:?}): {:?}", hold.id, after.state));
                Ok(())
            }
            Err(StoreError::Move(_) | StoreError::NotOffered) => Ok(()),
            Err(error) => Err(format!("retime {}: {error}", hold.id)),
        }
    }

    fn settle_any(&mut self, store: &Store) -> SimResult {
        for _ in 0..4 {
            let Some(hold) = self.any_hold(store)? else { return Ok(()) };
            let waits = matches!(hold.state.word(), "needs_human" | "stale" | "dead");
            if waits || self.one_in(12) {
                let word = if self.one_in(3) { HoldSettlement::GiveUp } else { HoldSettlement::Again };
                return self.settle(store, &hold, word);
            }
        }
        Ok(())
    }

    /// A person's decision; if it is about what happened, the truth.
    fn settle(&mut self, store: &Store, hold: &Hold, word: HoldSettlement) -> SimResult {
        let happened = !self.provider.effects(hold.id).is_empty();
        let word = match &hold.state {
            HoldState::NeedsHuman { .. } | HoldState::InDoubt { .. } if happened => {
                HoldSettlement::Happened { evidence: "ana saw it".into() }
            }
            _ => word,
        };
        let tier = match self.random.below(6) {
            0 => Tier::Blocked,
            1..3 => Tier::ApprovalRequired,
            _ => Tier::Notify,
        };
        let settle = SettleHold {
            hold: hold.id,
            version: hold.version,
            by: ana(),
            word: word.clone(),
            tier,
            approval: ApprovalId::mint(&self.ids),
            message: MessageId::mint(&self.ids),
            expiry: Millis::from_mins(30),
        };
        match at_once(store.settle(settle)) {
            Ok(after) => {
                self.note(format!("ana settles {} ({word:?}): {}", hold.id, after.state.word()));
                if after.state.word() == "held" {
                    self.book.window_opened(hold.id, self.elapsed);
                }
                Ok(())
            }
            Err(StoreError::Move(_) | StoreError::NotOffered | StoreError::Conflict) => Ok(()),
            Err(error) => Err(format!("settle {} with {word:?}: {error}", hold.id)),
        }
    }

    fn freeze(&mut self, store: &Store) -> SimResult {
        let scope = match self.random.below(3) {
            0 => FreezeTarget::All,
            1 => FreezeTarget::Agent(self.agent()),
            _ => FreezeTarget::Service(self.service()),
        };
        let under_way = at_once(store.freeze(scope.clone(), ana(), "sim".into()));
        let under_way = under_way.map_err(|error| format!("freeze {scope}: {error}"))?;
        self.note(format!("ana freezes {scope}, under way {under_way:?}"));
        if !self.book.frozen.iter().any(|(known, _)| *known == scope) {
            self.book.frozen.push((scope, under_way.into_iter().collect()));
        }
        Ok(())
    }

    pub(super) fn unfreeze_all(&mut self) -> SimResult {
        let Some(store) = self.any_store() else { return Ok(()) };
        for (scope, _) in std::mem::take(&mut self.book.frozen) {
            self.note(format!("ana unfreezes {scope}"));
            at_once(store.unfreeze(scope.clone(), ana())).map_err(|error| format!("unfreeze {scope}: {error}"))?;
        }
        Ok(())
    }

    /// Settles everything that waits for a person, more and more decisively the longer it takes.
    pub(super) fn people_settle(&mut self, open: &[Hold], round: u32) -> SimResult {
        let Some(store) = self.any_store() else { return Ok(()) };
        for hold in open {
            match &hold.state {
                HoldState::AwaitingApproval { approval } => self.decide(&store, *approval)?,
                HoldState::NeedsHuman { .. } | HoldState::Stale { .. } | HoldState::Dead { .. } => {
                    let word = if round > 4 || self.one_in(3) { HoldSettlement::GiveUp } else { HoldSettlement::Again };
                    self.settle(&store, hold, word)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
