//! A model: what must be true after any sequence of steps, and the same on every engine.
//!
//! The model knows nothing of rows, transactions or the code under test: it is the lifecycle written
//! down a second time, as plainly as possible. Where both agree step by step, on sequences nobody
//! thought of, and where two engines give the same answers to the letter, little room is left.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::approval::Answer;
use sluice_core::capability::EffectClass;
use sluice_core::{ApprovalId, HoldId, Span, Timestamp};
use sluice_store::{Abandoned, Admission, Admitted, Claimed, Evidence, Outcome, Ruling, Scope, StoreError, Word};
use sluice_testkit::World;
use sluice_testkit::world::{LEASE, done};

use crate::checker;
use crate::engines::{Place, agent, message, not_done, operator, question, refused, resolve, settle};

#[derive(Debug, Clone)]
enum Step {
    Admit { asks: bool, class: EffectClass },
    Advance(u64),
    Claim,
    Arm(usize),
    Finish(usize, Ending),
    Cancel(usize),
    Decide(usize, bool),
    Expire,
    Recover,
    Overdue,
    Resolve(usize, Evidence),
    Settle(usize, Word),
    Freeze,
    Unfreeze,
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum Ending {
    Done,
    NotDone,
    Refused,
    GivenBack,
    Unclear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let class = prop::sample::select(EffectClass::ALL.to_vec());
    let ending = prop::sample::select(vec![
        Ending::Done,
        Ending::NotDone,
        Ending::NotDone,
        Ending::Refused,
        Ending::GivenBack,
        Ending::Unclear,
        Ending::Unclear,
    ]);
    let evidence = prop::sample::select(vec![
        Evidence::Applied { receipt: "r".into(), result: None, after: None, service_until: None },
        Evidence::Absent,
        Evidence::Inconclusive,
    ]);
    let word = prop::sample::select(vec![Word::Happened { evidence: "e".into() }, Word::Again, Word::GiveUp]);
    let seconds = prop::sample::select(vec![1, 29, 30, 31, 60, 120, 600, 900, 3_600, 40_000]);
    let step = prop_oneof![
        6 => (any::<bool>(), class).prop_map(|(asks, class)| Step::Admit { asks, class }),
        6 => seconds.prop_map(Step::Advance),
        6 => Just(Step::Claim),
        5 => (0_usize..8).prop_map(Step::Arm),
        6 => (0_usize..8, ending).prop_map(|(at, ending)| Step::Finish(at, ending)),
        2 => (0_usize..8).prop_map(Step::Cancel),
        4 => (0_usize..8, any::<bool>()).prop_map(|(at, yes)| Step::Decide(at, yes)),
        1 => Just(Step::Expire),
        2 => Just(Step::Recover),
        1 => Just(Step::Overdue),
        4 => (0_usize..8, evidence).prop_map(|(at, evidence)| Step::Resolve(at, evidence)),
        3 => (0_usize..8, word).prop_map(|(at, word)| Step::Settle(at, word)),
        1 => Just(Step::Freeze),
        2 => Just(Step::Unfreeze),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..80)
}

/// A write as the model sees it.
#[derive(Debug, Clone, PartialEq)]
struct Expected {
    class: EffectClass,
    word: &'static str,
    /// When it may go (held, ready), since when it is unclear, or when its question ends.
    at: Timestamp,
    rounds: u32,
    attempts: u32,
    epoch: u64,
    /// The gateway's life in which it was claimed.
    life: u64,
    question: Option<ApprovalId>,
    valid_until: Option<Timestamp>,
}

const WINDOW: Span = Span::from_secs(30);

impl Expected {
    fn becomes(&mut self, word: &'static str, at: Timestamp) -> bool {
        (self.word, self.at, self.rounds) = (word, at, 0);
        true
    }

    fn back_off(&self) -> Span {
        Span::from_mins(1 << (self.attempts.clamp(1, 5) - 1))
    }

    fn finish(&mut self, ending: Ending, now: Timestamp) -> bool {
        match (self.word, ending) {
            ("armed", Ending::Done) => self.becomes("done", now),
            ("preparing" | "armed", Ending::NotDone) if self.attempts > 5 => self.becomes("dead", now),
            ("preparing" | "armed", Ending::NotDone) => self.becomes("ready", now + self.back_off()),
            ("preparing" | "armed", Ending::Refused) => self.becomes("dead", now),
            ("preparing", Ending::GivenBack) => {
                self.attempts -= 1;
                self.becomes("ready", now)
            }
            ("armed", Ending::Unclear) => self.becomes("in_doubt", now),
            _ => false,
        }
    }

    fn resolve(&mut self, evidence: &Evidence, now: Timestamp) -> bool {
        let opaque = self.class == EffectClass::Opaque;
        let settle = match self.class {
            EffectClass::Absolute | EffectClass::Opaque => Span::ZERO,
            EffectClass::ConsumeOnce => Span::from_secs(30),
            EffectClass::Findable => Span::from_secs(120),
        };
        match evidence {
            _ if self.word != "in_doubt" => false,
            Evidence::Applied { .. } => self.becomes("done", now),
            Evidence::Absent if !opaque && now >= self.at + settle => match self.attempts {
                0..=5 => self.becomes("ready", now + self.back_off()),
                _ => self.becomes("needs_human", now),
            },
            Evidence::Absent | Evidence::Inconclusive if !opaque && self.rounds < 2 => {
                self.rounds += 1;
                true
            }
            Evidence::Absent | Evidence::Inconclusive => self.becomes("needs_human", now),
        }
    }

    fn settle(&mut self, word: &Word, now: Timestamp) -> bool {
        match (word, self.word) {
            (Word::Happened { .. }, "in_doubt" | "needs_human") => self.becomes("done", now),
            (Word::Again, "in_doubt" | "needs_human") => self.becomes("ready", now),
            // The wait before the next attempt ends.
            (Word::Again, "ready") if self.attempts > 0 => self.becomes("ready", now),
            (Word::Again, "dead" | "stale") => {
                self.attempts = 0;
                self.becomes("held", now + WINDOW)
            }
            (Word::GiveUp, "in_doubt" | "needs_human") => self.becomes("dead", now),
            (Word::GiveUp, "dead" | "stale") => self.becomes("discarded", now),
            (Word::GiveUp, "ready") if self.attempts > 0 => self.becomes("discarded", now),
            _ => false,
        }
    }

    fn overdue(&mut self, now: Timestamp) {
        let grace = if self.class == EffectClass::Absolute { Span::from_mins(60) } else { Span::from_mins(10) };
        if !["held", "ready"].contains(&self.word) || now <= self.at + Span::from_secs(30) {
            return;
        }
        if now <= self.at + grace {
            self.becomes("held", now + Span::from_mins(1));
        } else {
            self.becomes("stale", now);
        }
    }
}

/// One run: the store, the model beside it, and every answer the store gave.
struct Run {
    place: Place,
    world: Option<World>,
    model: BTreeMap<HoldId, Expected>,
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

impl Run {
    fn on(place: Place) -> Self {
        let world = Some(place.open("gw-1"));
        Self { place, world, model: BTreeMap::new(), frozen: false, life: 0, answers: Vec::new() }
    }

    fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    fn pick(&self, at: usize) -> Option<HoldId> {
        self.model.keys().nth(at % self.model.len().max(1)).copied()
    }

    fn take(&mut self, step: &Step) {
        let now = self.world().now();
        match step {
            Step::Admit { asks, class } => self.admit(*asks, *class, now),
            Step::Advance(seconds) => self.world().clock.advance(Span::from_secs(*seconds)),
            Step::Claim => self.claim(now),
            Step::Expire => {
                let ended = self.world().wait(self.world().store.expire_approvals(100));
                self.answers.push(text(&ended));
                for hold in self.model.values_mut().filter(|hold| hold.word == "awaiting_approval" && now >= hold.at) {
                    hold.becomes("expired", now);
                }
            }
            Step::Recover => {
                // Claims are abandoned by a gateway that dies. One dead letter per call: ask until nothing is left.
                self.reopen();
                while !crate::engines::recover(self.world(), Abandoned::Own).is_empty() {}
                for hold in self.model.values_mut() {
                    match hold.word {
                        "preparing" if hold.attempts > 5 => hold.becomes("dead", now),
                        // Late since its lease ran out; a claim says when it was made.
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
            Step::Overdue => {
                let late = self.world().wait(self.world().store.overdue(100, message(self.world())));
                self.answers.push(text(&late));
                self.model.values_mut().for_each(|hold| hold.overdue(now));
            }
            Step::Freeze => {
                let flying = self.world().wait(self.world().store.freeze(Scope::All, operator(), "r".into())).unwrap();
                let armed = self.model.iter().filter(|(_, hold)| hold.word == "armed").map(|(id, _)| *id);
                assert_eq!(flying, armed.collect::<Vec<_>>());
                self.frozen = true;
            }
            Step::Unfreeze => {
                let lifted = self.world().wait(self.world().store.unfreeze(Scope::All, operator()));
                assert_eq!(lifted.is_ok(), self.frozen);
                self.frozen = false;
            }
            Step::Reopen => {
                self.reopen();
            }
            Step::Arm(at)
            | Step::Finish(at, _)
            | Step::Cancel(at)
            | Step::Decide(at, _)
            | Step::Resolve(at, _)
            | Step::Settle(at, _) => {
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

    fn admit(&mut self, asks: bool, class: EffectClass, now: Timestamp) {
        let world = self.world();
        // An agent of its own for each write: batch protection has its own tests.
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
            Admitted::Held { .. } if !asks => ("held", now + WINDOW, None),
            Admitted::Awaiting { approval, .. } if asks => {
                ("awaiting_approval", now + Span::from_hours(1), Some(approval))
            }
            other => panic!("{other:?}"),
        };
        let (rounds, attempts, epoch, life, valid_until) = (0, 0, 0, 0, None);
        self.model.insert(id, Expected { class, word, at, rounds, attempts, epoch, life, question, valid_until });
    }

    fn claim(&mut self, now: Timestamp) {
        let claimed = self.world().claim_due();
        self.answers.push(format!("{claimed:?}"));
        let mut claimed: BTreeMap<HoldId, Claimed> = claimed
            .into_iter()
            .map(|claimed| match &claimed {
                Claimed::Ours(hold) => (hold.id, claimed),
                Claimed::Lost(id) | Claimed::Frozen(id) | Claimed::Asked(id, _) | Claimed::Blocked(id) => {
                    (*id, claimed)
                }
            })
            .collect();
        for (id, hold) in
            self.model.iter_mut().filter(|(_, hold)| ["held", "ready"].contains(&hold.word) && now >= hold.at)
        {
            match claimed.remove(id) {
                // What is frozen is not even listed.
                None if self.frozen => {}
                Some(Claimed::Asked(_, approval)) => {
                    assert!(hold.valid_until.is_some_and(|until| now >= until), "{id} was asked again too early");
                    (hold.question, hold.valid_until) = (Some(approval), None);
                    hold.becomes("awaiting_approval", now + Span::from_hours(1));
                }
                Some(Claimed::Ours(_)) => {
                    assert!(!self.frozen && hold.valid_until.is_none_or(|until| now < until), "{id}");
                    (hold.epoch, hold.attempts, hold.life) = (hold.epoch + 1, hold.attempts + 1, self.life);
                    hold.becomes("preparing", now);
                }
                other => panic!("{id} is due and became {other:?}"),
            }
        }
        assert!(claimed.is_empty(), "not due: {claimed:?}");
    }

    fn touch(&mut self, id: HoldId, step: &Step, now: Timestamp) {
        let (world, frozen) = (self.world.as_ref().unwrap(), self.frozen);
        let (hold, expected) = (world.hold(id), self.model.get_mut(&id).unwrap());
        let ours = expected.life == self.life;
        let (answer, fits) = match step {
            Step::Arm(_) => {
                let answer = world.arm(&hold);
                (
                    text(&answer),
                    (answer.is_ok(), expected.word == "preparing" && ours && !frozen && expected.becomes("armed", now)),
                )
            }
            Step::Finish(_, ending) => {
                let outcome = match ending {
                    Ending::Done => done("r"),
                    Ending::NotDone => not_done(),
                    Ending::Refused => refused(),
                    Ending::GivenBack => Outcome::GivenBack,
                    Ending::Unclear => Outcome::Unclear,
                };
                let answer = world.finish(id, hold.epoch, outcome);
                (text(&answer), (answer.is_ok(), ours && expected.finish(*ending, now)))
            }
            Step::Cancel(_) => {
                let answer = world.wait(world.store.cancel(id, agent(hold.agent().as_str())));
                let stopped = matches!(answer, Ok(sluice_store::Cancelled::Stopped(_)));
                let can = ["awaiting_approval", "held", "ready", "stale", "preparing"].contains(&expected.word);
                (text(&answer), (stopped, can && expected.becomes("cancelled", now)))
            }
            Step::Decide(_, yes) => {
                let Some(question) = expected.question else { return };
                let allow = Ruling::Allow { answer: Answer::Once, note: None };
                let answer = world.decide(question, if *yes { allow } else { Ruling::Deny { note: None } });
                let counted = matches!(answer, Ok(sluice_store::Decided::Now { .. }));
                let open = expected.word == "awaiting_approval";
                let counts = open && now < expected.at;
                match (open, counts, yes) {
                    (true, true, true) => {
                        expected.valid_until = Some(now + Span::from_mins(15));
                        expected.becomes("held", now + WINDOW);
                    }
                    (true, true, false) => drop(expected.becomes("denied", now)),
                    (true, false, _) => drop(expected.becomes("expired", now)),
                    (false, _, _) => {}
                }
                (text(&answer), (counted, counts))
            }
            Step::Resolve(_, evidence) => {
                let answer = resolve(world, &hold, evidence.clone());
                (text(&answer), (answer.is_ok(), expected.resolve(evidence, now)))
            }
            Step::Settle(_, word) => {
                let answer = settle(world, id, word.clone());
                (text(&answer), (answer.is_ok(), expected.settle(word, now)))
            }
            other => panic!("{other:?} touches no write"),
        };
        assert_eq!(fits.0, fits.1, "{step:?} on {id} ({}): {answer}", hold.state.word());
        self.answers.push(answer);
    }

    /// Every write is where the model says, whatever the step was.
    fn compare(&self, step: &Step) {
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

fn play(place: Place, steps: &[Step]) -> Vec<String> {
    let mut run = Run::on(place);
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
        play(Place::memory(), &steps);
    }
}

proptest! {
    #![proptest_config(cases(12))]
    #[test]
    fn every_engine_gives_the_same_answers_to_the_same_steps(steps in steps()) {
        let memory = play(Place::memory(), &steps);
        prop_assert_eq!(&play(Place::file(), &steps), &memory);
        if let Some(server) = Place::server() {
            prop_assert_eq!(&play(server, &steps), &memory);
        }
    }
}
