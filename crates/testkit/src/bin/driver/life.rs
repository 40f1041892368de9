//! A life: come back, then ask, release, look up and let people decide until nothing is open.
//!
//! Every call of the store and of the service has a point before and after it. Several operations
//! are under way at once, so that commits are shared and a kill finds more than one thing unfinished.

use std::cell::RefCell;

use futures_util::future::{join, join_all, try_join_all};
use sluice_core::approval::{Answer, ApprovalError};
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Clock as _, HoldId, Span, Tier};
use sluice_store::{
    Abandoned, Admitted, Arming, Cancelled, ClaimItem, Claimed, Claims, Evidence, Finish, Outcome, Recheck, Resolve,
    Ruling, Settle, Store, StoreError, Word,
};
use sluice_testkit::SeededIds;
use sluice_testkit::ids::SplitMix;
use sluice_testkit::lives::{Acks, LastingClock};
use sluice_testkit::oracle::Oracle;
use sluice_testkit::world::{LEASE, ana, decision, done};

use crate::Asked;
use crate::plants::{self, Plant};
use crate::points::{Points, say};

/// How much time passes between two rounds in which something happened.
const ROUND: Span = Span::from_secs(10);
/// And at most, when nothing does.
const LONGEST: Span = Span::from_mins(5);
/// How many rows one step of recovery takes; small, so that recovery has many steps to be killed in.
const PAGE: u32 = 5;

pub struct Life {
    asked: Asked,
    store: Store,
    clock: LastingClock,
    points: Points,
    oracle: Oracle,
    acks: RefCell<Acks>,
    random: RefCell<SplitMix>,
    ids: SeededIds,
}

impl Life {
    #[expect(clippy::too_many_arguments, reason = "everything a life consists of, opened beforehand")]
    pub fn new(asked: Asked, store: Store, clock: LastingClock, points: Points, oracle: Oracle, acks: Acks) -> Self {
        // Ids must differ between lives and repeat within one.
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
            pause = if moved > 0 { ROUND } else { Span::from_millis(2 * pause.as_millis()).min(LONGEST) };
            self.clock.advance(pause);
        }
        say("finished");
        Ok(())
    }

    /// Coming back: everything the last life left is taken up before anything new leaves.
    async fn wake(&self) -> Result<(), StoreError> {
        let holds = self.store.holds(None, 100_000).await?;
        let count = |word: &str| holds.iter().filter(|hold| hold.state.word() == word).count();
        let open = holds.iter().filter(|hold| !hold.state.is_final()).count();
        say(&format!("found {} preparing, {} armed, {open} open", count("preparing"), count("armed")));
        self.step("start", self.store.started("test")).await?;
        while !self.step("recover", self.store.recover(Abandoned::Own, PAGE, self.message())).await?.is_empty() {}
        loop {
            let late = self.step("overdue", self.store.overdue(PAGE, self.message())).await?;
            if late.reheld.is_empty() && late.stale.is_empty() {
                break;
            }
        }
        say("awake");
        Ok(())
    }

    /// Whether every write has ended, or waits for a person's word that only people can give.
    fn is_over(&self, holds: &[Hold]) -> bool {
        let settled = |hold: &Hold| {
            hold.state.is_final()
                || hold.class == EffectClass::Opaque && matches!(hold.state, HoldState::NeedsHuman { .. })
        };
        self.acks.borrow().admitted.len() == self.asked.work.writes as usize && holds.iter().all(settled)
    }

    /// The agent's calls: what was never acknowledged, and now and then one that was.
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
            Admitted::Held { hold, .. } | Admitted::Awaiting { hold, .. } | Admitted::Again { hold, .. } => hold,
            Admitted::Blocked => panic!("nothing here is blocked"),
        };
        self.acknowledge("admitted", number, hold);
        Ok(())
    }

    /// Everything that is under way at once: lookups, releases, an agent's second thoughts.
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
        if let Cancelled::Stopped(_) = self.step("cancel", self.store.cancel(id, Actor::Agent(clerk))).await? {
            self.acknowledge("cancelled", number, id);
        }
        Ok(())
    }

    async fn look_up(&self) -> Result<usize, StoreError> {
        let expired = self.store.recover(Abandoned::Expired, PAGE, self.message());
        let taken = self.step("recover_expired", expired).await?.len();
        let doubtful = self.step("doubtful", self.store.doubtful(self.clock.clock.now(), 12)).await?;
        let resolved = doubtful.len();
        try_join_all(doubtful.into_iter().map(|hold| self.resolve(hold))).await?;
        Ok(taken + resolved)
    }

    async fn resolve(&self, hold: Hold) -> Result<(), StoreError> {
        self.points.before("lookup");
        let evidence = self.oracle.look(&hold);
        self.points.after("lookup");
        let resolve = Resolve { hold: hold.id, version: hold.version, evidence, lookups: 3, message: self.message() };
        self.step("resolve", self.store.resolve(resolve)).await.map(drop)
    }

    async fn release(&self) -> Result<usize, StoreError> {
        let limit = u32::try_from(self.asked.flight).unwrap_or(u32::MAX);
        let due = self.step("due", self.store.due(self.clock.clock.now(), limit)).await?;
        if due.is_empty() {
            return Ok(0);
        }
        let item = |hold: &Hold| ClaimItem {
            hold: hold.id,
            version: hold.version,
            recheck: Recheck::Stands,
            approval: ApprovalId::mint(&self.ids),
            message: self.message(),
        };
        let claims = Claims { items: due.iter().map(item).collect(), lease: LEASE, expiry: Span::from_hours(1) };
        let claimed = self.step("claim", self.store.claim(claims)).await?;
        let ours = claimed.into_iter().filter_map(|claimed| match claimed {
            Claimed::Ours(hold) => Some(*hold),
            Claimed::Lost(_) | Claimed::Frozen(_) | Claimed::Asked(..) | Claimed::Blocked(_) => None,
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
        let arming = Arming { hold: hold.id, epoch: hold.epoch, wire: hold.action.digest(), handle, before: None };
        let permit = match self.step("arm", self.store.arm(arming)).await {
            Ok(permit) => permit,
            Err(StoreError::Fenced) => return Ok(()), // its agent was faster and stopped it
            Err(other) => return Err(other),
        };
        let outcome = self.effect(hold.class, &permit);
        let finish = Finish { hold: hold.id, epoch: hold.epoch, outcome, service_words: None, message: self.message() };
        let is_done = matches!(finish.outcome, Outcome::Done { .. });
        if is_done && self.asked.plant == Some(Plant::AuditAfterCommit) {
            plants::finish_and_record_later(&self.asked, &hold, self.clock.clock.now(), &self.points);
        } else {
            self.step("finish", self.store.finish(finish)).await?;
        }
        let number = self.acks.borrow().admitted.iter().find(|(_, id)| **id == hold.id).map(|(number, _)| *number);
        if let Some(number) = number.filter(|_| is_done) {
            self.acknowledge("done", number, hold.id);
        }
        Ok(())
    }

    /// What the service does, and what we get to hear of it.
    fn effect(&self, class: EffectClass, permit: &Permit) -> Outcome {
        if self.chance(24) {
            return Outcome::NotDone { code: "service.busy".into() };
        }
        self.points.before("effect");
        let happened = self.oracle.perform(class, permit);
        self.points.after("effect");
        // A handle that is gone means that it happened before, or that nobody knows: look first.
        if self.chance(24) || !happened { Outcome::Unclear } else { done("service") }
    }

    /// People answer what is asked of them. What happened to an opaque write is left to the parent.
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
        let ruling = Ruling::Allow { answer: Answer::Once, note: None };
        match self.step("decide", self.store.decide(decision(question, ruling))).await {
            Ok(_) | Err(StoreError::Approval(ApprovalError::Expired { .. })) => Ok(()),
            Err(other) => Err(other),
        }
    }

    fn word_on(&self, hold: &Hold) -> Option<Word> {
        match &hold.state {
            HoldState::Stale { .. } | HoldState::Dead { .. } => Some(Word::Again),
            HoldState::NeedsHuman { .. } => match self.oracle.look(hold) {
                Evidence::Applied { receipt, .. } => Some(Word::Happened { evidence: receipt }),
                Evidence::Absent => Some(Word::Again),
                Evidence::Inconclusive => None,
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

    async fn settle(&self, hold: &Hold, word: Word) -> Result<(), StoreError> {
        let settle = Settle {
            hold: hold.id,
            version: hold.version,
            by: ana(),
            word,
            tier: Tier::Notify,
            approval: ApprovalId::mint(&self.ids),
            message: self.message(),
            expiry: Span::from_hours(1),
        };
        self.step("settle", self.store.settle(settle)).await.map(drop)
    }

    /// A call with a point on either side.
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
