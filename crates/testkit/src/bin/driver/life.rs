//! One driver process: recover, then admit, release, look up and let people decide until nothing is open.
//!
//! Every call of the store and of the service has a point before and after it. Several operations run at once, so that
//! commits are shared and a kill interrupts more than one operation.

use std::cell::RefCell;

use futures_util::future::{join, join_all, try_join_all};
use sluice_core::approval::{ApprovalAnswer, ApprovalError};
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Clock as _, HoldId, Millis, Tier};
use sluice_store::{
    AbandonedClaims, AdmissionOutcome, ApprovalRuling, ArmWrite, AttemptOutcome, CancelHoldOutcome, ClaimDueWrites,
    ClaimItem, FinishAttempt, HoldSettlement, LookupEvidence, PolicyRecheck, ResolveDoubt, SettleHold, Store,
    StoreError, WriteClaimOutcome,
};
use sluice_testkit::SeededIds;
use sluice_testkit::crash_state::{AcknowledgedWrites, LastingClock};
use sluice_testkit::ids::SplitMix;
use sluice_testkit::oracle::OracleService;
use sluice_testkit::test_store::{LEASE, ana, decision, done};

use crate::DriverParams;
use crate::kill_points::{KillPoints, say};
use crate::planted_faults::{self, PlantedFault};

/// How much time passes between two rounds in which something happened.
const ROUND: Millis = Millis::from_secs(10);
/// The most time between two rounds, when nothing happens.
const LONGEST: Millis = Millis::from_mins(5);
/// How many rows one step of recovery handles; small, so that recovery has many steps in which it can be killed.
const PAGE: u32 = 5;

pub struct DriverLife {
    asked: DriverParams,
    store: Store,
    clock: LastingClock,
    points: KillPoints,
    oracle: OracleService,
    acks: RefCell<AcknowledgedWrites>,
    random: RefCell<SplitMix>,
    ids: SeededIds,
}

impl DriverLife {
    #[expect(clippy::too_many_arguments, reason = "everything a life consists of, opened beforehand")]
    pub fn new(
        asked: DriverParams,
        store: Store,
        clock: LastingClock,
        points: KillPoints,
        oracle: OracleService,
        acks: AcknowledgedWrites,
    ) -> Self {
        // Ids must differ between processes and repeat within one.
        let own = SplitMix::new(asked.seed.wrapping_mul(1_000_003).wrapping_add(asked.life)).draw();
        let (acks, random) = (RefCell::new(acks), RefCell::new(SplitMix::new(own)));
        Self { asked, store, clock, points, oracle, acks, random, ids: SeededIds::new(own) }
    }

    pub async fn run(&self) -> Result<(), StoreError> {
        self.wake().await?;
        let mut pause = ROUND;
        loop {
            let holds = self.store.holds(None, 100_000).await?;
            if self.is_over(&holds) {
                break;
            }
            let (asked, worked) = join(self.ask(), self.work(&holds)).await;
            let moved = asked? + worked? + self.let_people_decide().await?;
            pause = if moved > 0 { ROUND } else { Millis::from_millis(2 * pause.as_millis()).min(LONGEST) };
            self.clock.advance(pause);
        }
        say("finished");
        Ok(())
    }

    /// Recovery: everything the last process left open is handled before anything new leaves.
    async fn wake(&self) -> Result<(), StoreError> {
        let holds = self.store.holds(None, 100_000).await?;
        let count = |word: &str| holds.iter().filter(|hold| hold.state.word() == word).count();
        let open = holds.iter().filter(|hold| !hold.state.is_final()).count();
        say(&format!("found {} preparing, {} armed, {open} open", count("preparing"), count("armed")));
        self.step("start", self.store.record_start("test")).await?;
        while !self.step("recover", self.store.recover(AbandonedClaims::Own, PAGE, self.message())).await?.is_empty() {}
        loop {
            let late = self.step("overdue", self.store.apply_grace_rule(PAGE, self.message())).await?;
            if late.reheld.is_empty() && late.stale.is_empty() {
                break;
            }
        }
        say("awake");
        Ok(())
    }

    /// Whether every write has ended, or waits for a decision that only people can make.
    fn is_over(&self, holds: &[Hold]) -> bool {
        let settled = |hold: &Hold| {
            hold.state.is_final()
                || hold.class == EffectClass::Opaque && matches!(hold.state, HoldState::NeedsHuman { .. })
        };
        self.acks.borrow().admitted.len() == self.asked.work.writes as usize && holds.iter().all(settled)
    }

    /// The agent's calls: those that were never acknowledged, and sometimes one that was.
    async fn ask(&self) -> Result<usize, StoreError> {
        let all = 0..self.asked.work.writes;
        let new = all.filter(|number| !self.acks.borrow().admitted.contains_key(number)).take(self.asked.flight);
        let mut numbers: Vec<u32> = new.collect();
        let asked = numbers.len();
        if self.chance(4) && asked > 0 {
            numbers.push(self.below(u64::from(self.asked.work.writes)));
        }
        try_join_all(numbers.into_iter().map(|number| self.admit(number))).await?;
        Ok(asked)
    }

    async fn admit(&self, number: u32) -> Result<(), StoreError> {
        let admission = self.asked.work.admission(number, &self.ids);
        let admitted = self.step("admit", self.store.admit(admission)).await?;
        let hold = match admitted {
            AdmissionOutcome::Held { hold, .. }
            | AdmissionOutcome::Awaiting { hold, .. }
            | AdmissionOutcome::Again { hold, .. } => hold,
            AdmissionOutcome::Blocked => panic!("nothing here is blocked"),
        };
        self.acknowledge("admitted", number, hold);
        Ok(())
    }

    /// Everything that runs at once: lookups, releases, cancels by the agent.
    async fn work(&self, holds: &[Hold]) -> Result<usize, StoreError> {
        let (looked, released) = join(self.look_up(), self.release()).await;
        let numbers: Vec<(u32, HoldId)> = self.acks.borrow().admitted.iter().map(|(n, id)| (*n, *id)).collect();
        let open = |id: HoldId| holds.iter().any(|hold| hold.id == id && !hold.state.is_final());
        let regretted = numbers.into_iter().filter(|(n, id)| self.asked.work.is_regretted(*n) && open(*id));
        let chosen: Vec<_> = regretted.filter(|_| self.chance(3)).collect();
        try_join_all(chosen.into_iter().map(|(number, id)| self.cancel(number, id))).await?;
        Ok(looked? + released?)
    }

    async fn cancel(&self, number: u32, id: HoldId) -> Result<(), StoreError> {
        let clerk = AgentName::new("clerk").unwrap_or_else(|error| panic!("{error}"));
        if let CancelHoldOutcome::Stopped(_) = self.step("cancel", self.store.cancel(id, Actor::Agent(clerk))).await? {
            self.acknowledge("cancelled", number, id);
        }
        Ok(())
    }

    async fn look_up(&self) -> Result<usize, StoreError> {
        let expired = self.store.recover(AbandonedClaims::Expired, PAGE, self.message());
        let taken = self.step("recover_expired", expired).await?.len();
        let doubtful = self.step("doubtful", self.store.doubtful_holds(self.clock.clock.now(), 12)).await?;
        let resolved = doubtful.len();
        try_join_all(doubtful.into_iter().map(|hold| self.resolve(hold))).await?;
        Ok(taken + resolved)
    }

    async fn resolve(&self, hold: Hold) -> Result<(), StoreError> {
        self.points.before("lookup");
        let evidence = self.oracle.look(&hold);
        self.points.after("lookup");
        let resolve =
            ResolveDoubt { hold: hold.id, version: hold.version, evidence, lookups: 3, message: self.message() };
        self.step("resolve", self.store.resolve(resolve)).await.map(drop)
    }

    async fn release(&self) -> Result<usize, StoreError> {
        let limit = u32::try_from(self.asked.flight).unwrap_or(u32::MAX);
        let due = self.step("due", self.store.due_holds(self.clock.clock.now(), limit)).await?;
        if due.is_empty() {
            return Ok(0);
        }
        let item = |hold: &Hold| ClaimItem {
            hold: hold.id,
            version: hold.version,
            recheck: PolicyRecheck::Stands,
            approval: ApprovalId::mint(&self.ids),
            message: self.message(),
        };
        let claims =
            ClaimDueWrites { items: due.iter().map(item).collect(), lease: LEASE, expiry: Millis::from_hours(1) };
        let claimed = self.step("claim", self.store.claim(claims)).await?;
        let ours = claimed.into_iter().filter_map(|claimed| match claimed {
            WriteClaimOutcome::Ours(hold) => Some(*hold),
            WriteClaimOutcome::Lost(_)
            | WriteClaimOutcome::Frozen(_)
            | WriteClaimOutcome::Asked(..)
            | WriteClaimOutcome::Blocked(_) => None,
        });
        for outcome in join_all(ours.map(|hold| self.perform(hold))).await {
            outcome?;
        }
        Ok(due.len())
    }

    /// From claim to result: handle, arm, effect, finish.
    async fn perform(&self, hold: Hold) -> Result<(), StoreError> {
        let handle = (hold.class == EffectClass::ConsumeOnce && hold.handle.is_none()).then(|| {
            let name = format!("{}.{}", hold.id, hold.epoch);
            self.points.before("handle");
            self.oracle.create_handle(&name, hold.action.digest());
            self.points.after("handle");
            name
        });
        let arming = ArmWrite { hold: hold.id, epoch: hold.epoch, wire: hold.action.digest(), handle, before: None };
        let permit = match self.step("arm", self.store.arm(arming)).await {
            Ok(permit) => permit,
            Err(StoreError::Fenced) => return Ok(()), // its agent cancelled it first
            Err(other) => return Err(other),
        };
        let outcome = self.effect(hold.class, &permit);
        let finish =
            FinishAttempt { hold: hold.id, epoch: hold.epoch, outcome, service_words: None, message: self.message() };
        let is_done = matches!(finish.outcome, AttemptOutcome::Done { .. });
        if is_done && self.asked.plant == Some(PlantedFault::AuditAfterCommit) {
            planted_faults::finish_and_record_later(&self.asked, &hold, self.clock.clock.now(), &self.points);
        } else {
            self.step("finish", self.store.finish(finish)).await?;
        }
        let number = self.acks.borrow().admitted.iter().find(|(_, id)| **id == hold.id).map(|(number, _)| *number);
        if let Some(number) = number.filter(|_| is_done) {
            self.acknowledge("done", number, hold.id);
        }
        Ok(())
    }

    /// What the service does, and which outcome the gateway sees.
    fn effect(&self, class: EffectClass, permit: &Permit) -> AttemptOutcome {
        if self.chance(24) {
            return AttemptOutcome::NotDone { code: "service.busy".into() };
        }
        self.points.before("effect");
        let happened = self.oracle.perform(class, permit);
        self.points.after("effect");
        // A handle that is gone means that the effect happened before, or that its outcome is unknown: look it up
        // first.
        if self.chance(24) || !happened { AttemptOutcome::Unclear } else { done("service") }
    }

    /// People decide what they are asked. The outcome of an opaque write is left to the parent.
    async fn let_people_decide(&self) -> Result<usize, StoreError> {
        let expired = self.step("expire", self.store.expire_approvals(100)).await?.len();
        let asked = self.store.open_approvals(100).await?;
        let (questions, holds) = (asked.len(), self.store.holds(None, 100_000).await?);
        try_join_all(asked.into_iter().map(|question| self.decide(question.id))).await?;
        let words: Vec<_> = holds.iter().filter_map(|hold| Some((hold, self.word_on(hold)?))).collect();
        let settled = words.len();
        try_join_all(words.into_iter().map(|(hold, word)| self.settle(hold, word))).await?;
        Ok(expired + questions + settled)
    }

    async fn decide(&self, question: ApprovalId) -> Result<(), StoreError> {
        let ruling = ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None };
        match self.step("decide", self.store.decide(decision(question, ruling))).await {
            Ok(_) | Err(StoreError::Approval(ApprovalError::Expired { .. })) => Ok(()),
            Err(other) => Err(other),
        }
    }

    fn word_on(&self, hold: &Hold) -> Option<HoldSettlement> {
        match &hold.state {
            HoldState::Stale { .. } | HoldState::Dead { .. } => Some(HoldSettlement::Again),
            HoldState::NeedsHuman { .. } => match self.oracle.look(hold) {
                LookupEvidence::Applied { receipt, .. } => Some(HoldSettlement::Happened { evidence: receipt }),
                LookupEvidence::Absent => Some(HoldSettlement::Again),
                LookupEvidence::Inconclusive => None,
            },
            HoldState::AwaitingApproval { .. }
            | HoldState::Held { .. }
            | HoldState::Ready { .. }
            | HoldState::Executing { .. }
            | HoldState::InDoubt { .. }
            | HoldState::Done { .. }
            | HoldState::Cancelled { .. }
            | HoldState::Denied { .. }
            | HoldState::Expired { .. }
            | HoldState::Discarded { .. }
            | HoldState::Blocked { .. } => None,
        }
    }

    async fn settle(&self, hold: &Hold, word: HoldSettlement) -> Result<(), StoreError> {
        let settle = SettleHold {
            hold: hold.id,
            version: hold.version,
            by: ana(),
            word,
            tier: Tier::Notify,
            approval: ApprovalId::mint(&self.ids),
            message: self.message(),
            expiry: Millis::from_hours(1),
        };
        self.step("settle", self.store.settle(settle)).await.map(drop)
    }

    /// A call with a point before and after it.
    async fn step<Out>(
        &self,
        name: &str,
        call: impl Future<Output = Result<Out, StoreError>>,
    ) -> Result<Out, StoreError> {
        self.points.before(name);
        let out = call.await;
        self.points.after(name);
        out
    }

    fn acknowledge(&self, word: &str, number: u32, hold: HoldId) {
        self.points.before("ack");
        self.acks.borrow_mut().note(word, number, hold);
        self.points.after("ack");
    }

    fn message(&self) -> MessageId {
        MessageId::mint(&self.ids)
    }

    fn below(&self, end: u64) -> u32 {
        u32::try_from(self.random.borrow_mut().below(end)).unwrap_or_default()
    }

    fn chance(&self, of: u64) -> bool {
        self.random.borrow_mut().below(of) == 0
    }
}
