//! A model: what must be true after any sequence of steps, the same on every engine.
//!
//! The model knows nothing of rows, transactions or the code under test: it is the lifecycle written down a second
//! time, as simply as possible. Both must agree step by step on random sequences, and both engines must give exactly
//! the same answers.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::approval::ApprovalAnswer;
use sluice_core::capability::EffectClass;
use sluice_core::{ApprovalId, HoldId, Millis, UtcMillis};
use sluice_store::{
    AbandonedClaims, Admission, AdmissionOutcome, ApprovalRuling, AttemptOutcome, FreezeTarget, HoldSettlement,
    LookupEvidence, StoreError, WriteClaimOutcome,
};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::{LEASE, done};

use crate::checker;
use crate::engines::{StoreTestDatabase, agent, message, not_done, operator, question, refused, resolve, settle};

#[derive(Debug, Clone)]
enum ModelStep {
    Admit { asks: bool, class: EffectClass },
    Advance(u64),
    Claim,
    Arm(usize),
    Finish(usize, ModelEnding),
    Cancel(usize),
    Decide(usize, bool),
    Expire,
    Recover,
    Overdue,
    Resolve(usize, LookupEvidence),
    Settle(usize, HoldSettlement),
    Freeze,
    Unfreeze,
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum ModelEnding {
    Done,
    NotDone,
    Refused,
    GivenBack,
    Unclear,
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let class = prop::sample::select(EffectClass::ALL.to_vec());
    let ending = prop::sample::select(vec![
        ModelEnding::Done,
        ModelEnding::NotDone,
        ModelEnding::NotDone,
        ModelEnding::Refused,
        ModelEnding::GivenBack,
        ModelEnding::Unclear,
        ModelEnding::Unclear,
    ]);
    let evidence = prop::sample::select(vec![
        LookupEvidence::Applied { receipt: "r".into(), result: None, after: None, service_until: None },
        LookupEvidence::Absent,
        LookupEvidence::Inconclusive,
    ]);
    let word = prop::sample::select(vec![
        HoldSettlement::Happened { evidence: "e".into() },
        HoldSettlement::Again,
        HoldSettlement::GiveUp,
    ]);
    let seconds = prop::sample::select(vec![1, 29, 30, 31, 60, 120, 600, 900, 3_600, 40_000]);
    let step = prop_oneof![
        6 => (any::<bool>(), class).prop_map(|(asks, class)| ModelStep::Admit { asks, class }),
        6 => seconds.prop_map(ModelStep::Advance),
        6 => Just(ModelStep::Claim),
        5 => (0_usize..8).prop_map(ModelStep::Arm),
        6 => (0_usize..8, ending).prop_map(|(at, ending)| ModelStep::Finish(at, ending)),
        2 => (0_usize..8).prop_map(ModelStep::Cancel),
        4 => (0_usize..8, any::<bool>()).prop_map(|(at, yes)| ModelStep::Decide(at, yes)),
        1 => Just(ModelStep::Expire),
        2 => Just(ModelStep::Recover),
        1 => Just(ModelStep::Overdue),
        4 => (0_usize..8, evidence).prop_map(|(at, evidence)| ModelStep::Resolve(at, evidence)),
        3 => (0_usize..8, word).prop_map(|(at, word)| ModelStep::Settle(at, word)),
        1 => Just(ModelStep::Freeze),
        2 => Just(ModelStep::Unfreeze),
        1 => Just(ModelStep::Reopen),
    ];
    prop::collection::vec(step, 1..80)
}

/// A write as the model sees it.
#[derive(Debug, Clone, PartialEq)]
struct ModelHold {
    class: EffectClass,
    word: &'static str,
    /// When it may leave (held, ready), since when its outcome is uncertain, or when its approval request expires.
    at: UtcMillis,
    rounds: u32,
    attempts: u32,
    epoch: u64,
    /// The start of the gateway in which it was claimed.
    life: u64,
    question: Option<ApprovalId>,
    valid_until: Option<UtcMillis>,
}

const WINDOW: Millis = Millis::from_secs(30);

impl ModelHold {
    fn becomes(&mut self, word: &'static str, at: UtcMillis) -> bool {
        (self.word, self.at, self.rounds) = (word, at, 0);
        true
    }

    fn back_off(&self) -> Millis {
        Millis::from_mins(1 << (self.attempts.clamp(1, 5) - 1))
    }

    fn finish(&mut self, ending: ModelEnding, now: UtcMillis) -> bool {
        match (self.word, ending) {
            ("armed", ModelEnding::Done) => self.becomes("done", now),
            ("preparing" | "armed", ModelEnding::NotDone) if self.attempts > 5 => self.becomes("dead", now),
            ("preparing" | "armed", ModelEnding::NotDone) => self.becomes("ready", now + self.back_off()),
            ("preparing" | "armed", ModelEnding::Refused) => self.becomes("dead", now),
            ("preparing", ModelEnding::GivenBack) => {
                self.attempts -= 1;
                self.becomes("ready", now)
            }
            ("armed", ModelEnding::Unclear) => self.becomes("in_doubt", now),
            _ => false,
        }
    }

    fn resolve(&mut self, evidence: &LookupEvidence, now: UtcMillis) -> bool {
        let opaque = self.class == EffectClass::Opaque;
        let settle = match self.class {
            EffectClass::Absolute | EffectClass::Opaque => Millis::ZERO,
            EffectClass::ConsumeOnce => Millis::from_secs(30),
            EffectClass::Findable => Millis::from_secs(120),
        };
        match evidence {
            _ if self.word != "in_doubt" => false,
            LookupEvidence::Applied { .. } => self.becomes("done", now),
            LookupEvidence::Absent if !opaque && now >= self.at + settle => match self.attempts {
                0..=5 => self.becomes("ready", now + self.back_off()),
                _ => self.becomes("needs_human", now),
            },
            LookupEvidence::Absent | LookupEvidence::Inconclusive if !opaque && self.rounds < 2 => {
                self.rounds += 1;
                true
            }
            LookupEvidence::Absent | LookupEvidence::Inconclusive => self.becomes("needs_human", now),
        }
    }

    fn settle(&mut self, word: &HoldSettlement, now: UtcMillis) -> bool {
        match (word, self.word) {
            (HoldSettlement::Happened { .. }, "in_doubt" | "needs_human") => self.becomes("done", now),
            (HoldSettlement::Again, "in_doubt" | "needs_human") => self.becomes("ready", now),
            // The wait before the next attempt ends.
            (HoldSettlement::Again, "ready") if self.attempts > 0 => self.becomes("ready", now),
            (HoldSettlement::Again, "dead" | "stale") => {
                self.attempts = 0;
                self.becomes("held", now + WINDOW)
            }
            (HoldSettlement::GiveUp, "in_doubt" | "needs_human") => self.becomes("dead", now),
            (HoldSettlement::GiveUp, "dead" | "stale") => self.becomes("discarded", now),
            (HoldSettlement::GiveUp, "ready") if self.attempts > 0 => self.becomes("discarded", now),
            _ => false,
        }
    }

    fn overdue(&mut self, now: UtcMillis) {
        let grace = if self.class == EffectClass::Absolute { Millis::from_mins(60) } else { Millis::from_mins(10) };
        if !["held", "ready"].contains(&self.word) || now <= self.at + Millis::from_secs(30) {
            return;
        }
        if now <= self.at + grace {
            self.becomes("held", now + Millis::from_mins(1));
        } else {
            self.becomes("stale", now);
        }
    }
}

/// One run: the store, the model, and every answer that the store gave.
struct ModelRun {
    place: StoreTestDatabase,
    world: Option<TestStore>,
    model: BTreeMap<HoldId, ModelHold>,
    frozen: bool,
    life: u64,
    answers: Vec<String>,
}

fn text<T: std::fmt::Debug>(answer: &Result<T, StoreError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => error.code().into(),
    }
}

impl ModelRun {
    fn on(place: StoreTestDatabase) -> Self {
        let world = Some(place.open("gw-1"));
        Self { place, world, model: BTreeMap::new(), frozen: false, life: 0, answers: Vec::new() }
    }

    fn world(&self) -> &TestStore {
        self.world.as_ref().unwrap()
    }

    fn pick(&self, at: usize) -> Option<HoldId> {
        self.model.keys().nth(at % self.model.len().max(1)).copied()
    }

    fn take(&mut self, step: &ModelStep) {
        let now = self.world().now();
        match step {
            ModelStep::Admit { asks, class } => self.admit(*asks, *class, now),
            ModelStep::Advance(seconds) => self.world().clock.advance(Millis::from_secs(*seconds)),
            ModelStep::Claim => self.claim(now),
            ModelStep::Expire => {
                let ended = self.world().wait(self.world().store.expire_approvals(100));
                self.answers.push(text(&ended));
                for hold in self.model.values_mut().filter(|hold| hold.word == "awaiting_approval" && now >= hold.at) {
                    hold.becomes("expired", now);
                }
            }
            ModelStep::Recover => {
                // Claims are abandoned when a gateway crashes. One dead write per call: repeat until nothing is left.
                self.reopen();
                while !crate::engines::recover(self.world(), AbandonedClaims::Own).is_empty() {}
                for hold in self.model.values_mut() {
                    match hold.word {
                        "preparing" if hold.attempts > 5 => hold.becomes("dead", now),
                        // Late since its lease expired; a claim says when it was made.
                        "preparing" => {
                            let due = now.min(hold.at + LEASE);
                            hold.becomes("ready", due);
                            hold.overdue(now);
                            if hold.word == "ready" {
                                hold.at = now;
                            }
                            true
                        }
                        "armed" => hold.becomes("in_doubt", now),
                        _ => false,
                    };
                }
            }
            ModelStep::Overdue => {
                let late = self.world().wait(self.world().store.apply_grace_rule(100, message(self.world())));
                self.answers.push(text(&late));
                self.model.values_mut().for_each(|hold| hold.overdue(now));
            }
            ModelStep::Freeze => {
                let flying =
                    self.world().wait(self.world().store.freeze(FreezeTarget::All, operator(), "r".into())).unwrap();
                let armed = self.model.iter().filter(|(_, hold)| hold.word == "armed").map(|(id, _)| *id);
                assert_eq!(flying, armed.collect::<Vec<_>>());
                self.frozen = true;
            }
            ModelStep::Unfreeze => {
                let lifted = self.world().wait(self.world().store.unfreeze(FreezeTarget::All, operator()));
                assert_eq!(lifted.is_ok(), self.frozen);
                self.frozen = false;
            }
            ModelStep::Reopen => {
                self.reopen();
            }
            ModelStep::Arm(at)
            | ModelStep::Finish(at, _)
            | ModelStep::Cancel(at)
            | ModelStep::Decide(at, _)
            | ModelStep::Resolve(at, _)
            | ModelStep::Settle(at, _) => {
                if let Some(id) = self.pick(*at) {
                    self.touch(id, step, now);
                }
            }
        }
        self.compare(step);
    }

    fn reopen(&mut self) {
        self.world = None;
        self.world = Some(self.place.open("gw-1"));
        self.life += 1;
    }

    fn admit(&mut self, asks: bool, class: EffectClass, now: UtcMillis) {
        let world = self.world();
        // A separate agent for each write: batch protection has its own tests.
        let name = format!("agent-{}", self.model.len());
        let mail = if asks { question(world, &name, "text") } else { world.mail(&name, "text") };
        let id = mail.hold;
        let answer = world.wait(world.store.admit(Admission { class, ..mail }));
        self.answers.push(text(&answer));
        if self.frozen {
            assert_eq!(answer.unwrap_err().code(), "freeze.active");
            return;
        }
        let (word, at, question) = match answer.unwrap() {
            AdmissionOutcome::Held { .. } if !asks => ("held", now + WINDOW, None),
            AdmissionOutcome::Awaiting { approval, .. } if asks => {
                ("awaiting_approval", now + Millis::from_hours(1), Some(approval))
            }
            other => panic!("{other:?}"),
        };
        let (rounds, attempts, epoch, life, valid_until) = (0, 0, 0, 0, None);
        self.model.insert(id, ModelHold { class, word, at, rounds, attempts, epoch, life, question, valid_until });
    }

    fn claim(&mut self, now: UtcMillis) {
        let claimed = self.world().claim_due();
        self.answers.push(format!("{claimed:?}"));
        let mut claimed: BTreeMap<HoldId, WriteClaimOutcome> = claimed
            .into_iter()
            .map(|claimed| match &claimed {
                WriteClaimOutcome::Ours(hold) => (hold.id, claimed),
                WriteClaimOutcome::Lost(id)
                | WriteClaimOutcome::Frozen(id)
                | WriteClaimOutcome::Asked(id, _)
                | WriteClaimOutcome::Blocked(id) => (*id, claimed),
            })
            .collect();
        for (id, hold) in
            self.model.iter_mut().filter(|(_, hold)| ["held", "ready"].contains(&hold.word) && now >= hold.at)
        {
            match claimed.remove(id) {
                // A frozen write is not even listed.
                None if self.frozen => {}
                Some(WriteClaimOutcome::Asked(_, approval)) => {
                    assert!(hold.valid_until.is_some_and(|until| now >= until), "{id} was asked again too early");
                    (hold.question, hold.valid_until) = (Some(approval), None);
                    hold.becomes("awaiting_approval", now + Millis::from_hours(1));
                }
                Some(WriteClaimOutcome::Ours(_)) => {
                    assert!(!self.frozen && hold.valid_until.is_none_or(|until| now < until), "{id}");
                    (hold.epoch, hold.attempts, hold.life) = (hold.epoch + 1, hold.attempts + 1, self.life);
                    hold.becomes("preparing", now);
                }
                other => panic!("{id} is due and became {other:?}"),
            }
        }
        assert!(claimed.is_empty(), "not due: {claimed:?}");
    }

    fn touch(&mut self, id: HoldId, step: &ModelStep, now: UtcMillis) {
        let (world, frozen) = (self.world.as_ref().unwrap(), self.frozen);
        let (hold, expected) = (world.hold(id), self.model.get_mut(&id).unwrap());
        let ours = expected.life == self.life;
        let (answer, fits) = match step {
            ModelStep::Arm(_) => {
                let answer = world.arm(&hold);
                (
                    text(&answer),
                    (answer.is_ok(), expected.word == "preparing" && ours && !frozen && expected.becomes("armed", now)),
                )
            }
            ModelStep::Finish(_, ending) => {
                let outcome = match ending {
                    ModelEnding::Done => done("r"),
                    ModelEnding::NotDone => not_done(),
                    ModelEnding::Refused => refused(),
                    ModelEnding::GivenBack => AttemptOutcome::GivenBack,
                    ModelEnding::Unclear => AttemptOutcome::Unclear,
                };
                let answer = world.finish(id, hold.epoch, outcome);
                (text(&answer), (answer.is_ok(), ours && expected.finish(*ending, now)))
            }
            ModelStep::Cancel(_) => {
                let answer = world.wait(world.store.cancel(id, agent(hold.agent().as_str())));
                let stopped = matches!(answer, Ok(sluice_store::CancelHoldOutcome::Stopped(_)));
                let can = ["awaiting_approval", "held", "ready", "stale", "preparing"].contains(&expected.word);
                (text(&answer), (stopped, can && expected.becomes("cancelled", now)))
            }
            ModelStep::Decide(_, yes) => {
                let Some(question) = expected.question else { return };
                let allow = ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None };
                let answer = world.decide(question, if *yes { allow } else { ApprovalRuling::Deny { note: None } });
                let counted = matches!(answer, Ok(sluice_store::DecisionOutcome::Now { .. }));
                let open = expected.word == "awaiting_approval";
                let counts = open && now < expected.at;
                match (open, counts, yes) {
                    (true, true, true) => {
                        expected.valid_until = Some(now + Millis::from_mins(15));
                        expected.becomes("held", now + WINDOW);
                    }
                    (true, true, false) => drop(expected.becomes("denied", now)),
                    (true, false, _) => drop(expected.becomes("expired", now)),
                    (false, _, _) => {}
                }
                (text(&answer), (counted, counts))
            }
            ModelStep::Resolve(_, evidence) => {
                let answer = resolve(world, &hold, evidence.clone());
                (text(&answer), (answer.is_ok(), expected.resolve(evidence, now)))
            }
            ModelStep::Settle(_, word) => {
                let answer = settle(world, id, word.clone());
                (text(&answer), (answer.is_ok(), expected.settle(word, now)))
            }
            other => panic!("{other:?} touches no write"),
        };
        assert_eq!(fits.0, fits.1, "{step:?} on {id} ({}): {answer}", hold.state.word());
        self.answers.push(answer);
    }

    /// Every write is where the model says, after every step.
    fn compare(&self, step: &ModelStep) {
        use sluice_core::hold::HoldState as S;
        let holds = self.world().wait(self.world().store.holds(None, 1_000)).unwrap();
        assert_eq!(holds.len(), self.model.len());
        for hold in holds {
            let expected = &self.model[&hold.id];
            let found = (hold.state.word(), hold.attempts, hold.epoch);
            assert_eq!(found, (expected.word, expected.attempts, expected.epoch), "{} after {step:?}", hold.id);
            match hold.state {
                S::Held { not_before } | S::Ready { not_before } => assert_eq!(not_before, expected.at, "{step:?}"),
                S::InDoubt { since, rounds } => assert_eq!((since, rounds), (expected.at, expected.rounds), "{step:?}"),
                _ => {}
            }
        }
    }
}

fn play(place: StoreTestDatabase, steps: &[ModelStep]) -> Vec<String> {
    let mut run = ModelRun::on(place);
    steps.iter().for_each(|step| run.take(step));
    checker::check(run.world());
    run.answers
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(300))]
    #[test]
    fn any_sequence_of_steps_goes_as_the_model_says(steps in steps()) {
        play(StoreTestDatabase::memory(), &steps);
    }
}

proptest! {
    #![proptest_config(cases(12))]
    #[test]
    fn every_engine_gives_the_same_answers_to_the_same_steps(steps in steps()) {
        let memory = play(StoreTestDatabase::memory(), &steps);
        prop_assert_eq!(&play(StoreTestDatabase::file(), &steps), &memory);
        if let Some(server) = StoreTestDatabase::server() {
            prop_assert_eq!(&play(server, &steps), &memory);
        }
    }
}
