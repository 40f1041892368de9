//! Retrying: why an attempt failed is stored with it, and every command of people is tried in every state of a write.

use sluice_core::Millis;
use sluice_core::hold::Hold;
use sluice_store::{AttemptOutcome, CancelHoldOutcome, FinishAttempt, HoldSettlement, HoldTiming, MessageSeverity};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::done;

use crate::engines::{WINDOW, armed, claimed, everywhere, message, messages, not_done, operator, refused, settle};

fn failed(world: &TestStore, hold: &Hold, outcome: AttemptOutcome, words: Option<&str>) -> Hold {
    let service_words = words.map(str::to_owned);
    let finish = FinishAttempt { hold: hold.id, epoch: hold.epoch, outcome, service_words, message: message(world) };
    world.wait(world.store.finish(finish)).unwrap()
}

fn failure(world: &TestStore, hold: &Hold) -> Option<(u32, String, Option<String>)> {
    let found = world.wait(world.store.attempt_failures(vec![hold.id])).unwrap().remove(0);
    found.map(|failure| (failure.attempt, failure.code, failure.service_words))
}

#[test]
fn the_newest_failure_of_a_write_is_kept_until_it_happens() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        assert_eq!(failure(world, &hold), None);
        failed(world, &hold, not_done(), Some("come back later"));
        assert_eq!(failure(world, &hold), Some((1, "service.busy".into(), Some("come back later".into()))));
        world.clock.advance(Millis::from_mins(1));
        let hold = claimed(world);
        failed(world, &hold, AttemptOutcome::NotDone { code: "egress.dns".into() }, None);
        assert_eq!(failure(world, &hold), Some((2, "egress.dns".into(), None)));
        world.clock.advance(Millis::from_mins(2));
        let hold = armed(world);
        failed(world, &hold, done("r"), None);
        assert_eq!(failure(world, &hold), None, "it happened");
    });
}

#[test]
fn a_refusal_is_a_warning_attempts_used_up_are_critical_and_a_wrong_argument_is_no_alert() {
    let loudness = |outcome: fn() -> AttemptOutcome, attempts: usize| {
        let heard = std::cell::RefCell::new(Vec::new());
        everywhere(|world| {
            world.admit_held("clerk", "hello");
            world.clock.advance(WINDOW);
            for _ in 0..attempts {
                let hold = claimed(world);
                failed(world, &hold, outcome(), None);
                world.clock.advance(Millis::from_mins(16));
            }
            heard.borrow_mut().push(messages(world, "hold.dead").iter().map(|told| told.severity).collect::<Vec<_>>());
        });
        let mut heard = heard.into_inner();
        heard.dedup();
        assert_eq!(heard.len(), 1, "every engine says the same: {heard:?}");
        heard.remove(0)
    };
    assert_eq!(loudness(refused, 1), [MessageSeverity::Warning]);
    assert_eq!(loudness(|| AttemptOutcome::Refused { code: "execute.refused".into() }, 1), [MessageSeverity::Warning]);
    assert_eq!(loudness(not_done, 6), [MessageSeverity::Critical]);
    assert_eq!(
        loudness(|| AttemptOutcome::Refused { code: "execute.refused_mismatch".into() }, 1),
        [MessageSeverity::Critical]
    );
    for code in ["execute.bad_argument", "schema.wrong_type", "store.not_found"] {
        let outcome = match code {
            "execute.bad_argument" => || AttemptOutcome::Refused { code: "execute.bad_argument".into() },
            "schema.wrong_type" => || AttemptOutcome::Refused { code: "schema.wrong_type".into() },
            _ => || AttemptOutcome::Refused { code: "store.not_found".into() },
        };
        assert_eq!(loudness(outcome, 1), [], "{code}");
    }
}

/// A write brought to this state, by the shortest way.
fn brought_to(world: &TestStore, state: &str) -> Hold {
    let id = world.admit_held("clerk", "hello");
    let find = || world.wait(world.store.hold(id)).unwrap().unwrap();
    if state == "held" {
        return find();
    }
    if state == "cancelled" {
        world.wait(world.store.cancel(id, operator())).unwrap();
        return find();
    }
    if state == "ready" {
        world.wait(world.store.retime(id, operator(), HoldTiming::Now)).unwrap();
        return find();
    }
    world.clock.advance(WINDOW);
    let hold = claimed(world);
    match state {
        "preparing" => {}
        "retrying" => drop(failed(world, &hold, not_done(), None)),
        "dead" => drop(failed(world, &hold, refused(), None)),
        "discarded" => {
            failed(world, &hold, refused(), None);
            settle(world, id, HoldSettlement::GiveUp).unwrap();
        }
        "armed" | "done" | "in_doubt" => {
            world.arm(&hold).unwrap();
            match state {
                "done" => drop(failed(world, &hold, done("r"), None)),
                "in_doubt" => drop(failed(world, &hold, AttemptOutcome::Unclear, None)),
                _ => {}
            }
        }
        other => panic!("no way to {other}"),
    }
    find()
}

#[test]
fn every_command_of_people_meets_every_state_of_a_write() {
    // Cancel, hold longer, send now, try again, give up, say that it happened: the state that each of them leads to.
    let no = "";
    let table = [
        ("held", ["cancelled", "held", "ready", no, no, no]),
        ("ready", ["cancelled", "held", "ready", no, no, no]),
        ("retrying", ["cancelled", "held", "ready", "ready", "discarded", no]),
        ("preparing", ["cancelled", no, no, no, no, no]),
        ("armed", [no, no, no, no, no, no]),
        ("in_doubt", [no, no, no, "ready", "dead", "done"]),
        ("dead", [no, no, no, "held", "discarded", no]),
        ("done", [no, no, no, no, no, no]),
        ("cancelled", [no, no, no, no, no, no]),
        ("discarded", [no, no, no, no, no, no]),
    ];
    everywhere(|world| {
        for (state, expected) in table {
            for (command, to) in expected.into_iter().enumerate() {
                let hold = brought_to(world, state);
                let id = hold.id;
                let moved = match command {
                    0 => match world.wait(world.store.cancel(id, operator())).unwrap() {
                        CancelHoldOutcome::Stopped(hold) => Some(hold),
                        CancelHoldOutcome::TooLate(_) => None,
                    },
                    1 => world.wait(world.store.retime(id, operator(), HoldTiming::Longer(WINDOW))).ok(),
                    2 => world.wait(world.store.retime(id, operator(), HoldTiming::Now)).ok(),
                    3 => settle(world, id, HoldSettlement::Again).ok(),
                    4 => settle(world, id, HoldSettlement::GiveUp).ok(),
                    _ => settle(world, id, HoldSettlement::Happened { evidence: "seen".into() }).ok(),
                };
                assert_eq!(moved.map_or(no, |hold| hold.state.word()), to, "command {command} in state {state}");
                // Ends the write, so that it does not affect the next one.
                match world.wait(world.store.cancel(id, operator())).unwrap() {
                    CancelHoldOutcome::Stopped(_) | CancelHoldOutcome::TooLate(_) => {}
                }
                world.clock.advance(Millis::from_hours(1));
            }
        }
    });
}
