//! Retrying: why an attempt failed is kept with it, and every command of people meets every state of a write.

use sluice_core::Span;
use sluice_core::hold::Hold;
use sluice_store::{Cancelled, Finish, Outcome, Severity, Timing, Word};
use sluice_testkit::World;
use sluice_testkit::world::done;

use crate::engines::{WINDOW, armed, claimed, everywhere, message, messages, not_done, operator, refused, settle};

fn failed(world: &World, hold: &Hold, outcome: Outcome, words: Option<&str>) -> Hold {
    let service_words = words.map(str::to_owned);
    let finish = Finish { hold: hold.id, epoch: hold.epoch, outcome, service_words, message: message(world) };
    world.wait(world.store.finish(finish)).unwrap()
}

fn failure(world: &World, hold: &Hold) -> Option<(u32, String, Option<String>)> {
    let found = world.wait(world.store.attempt_failures(vec![hold.id])).unwrap().remove(0);
    found.map(|failure| (failure.attempt, failure.code, failure.service_words))
}

#[test]
fn the_newest_failure_of_a_write_is_kept_until_it_happens() {
    everywhere(|world| {
        world.held("clerk", "hello");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        assert_eq!(failure(world, &hold), None);
        failed(world, &hold, not_done(), Some("come back later"));
        assert_eq!(failure(world, &hold), Some((1, "service.busy".into(), Some("come back later".into()))));
        world.clock.advance(Span::from_mins(1));
        let hold = claimed(world);
        failed(world, &hold, Outcome::NotDone { code: "egress.dns".into() }, None);
        assert_eq!(failure(world, &hold), Some((2, "egress.dns".into(), None)));
        world.clock.advance(Span::from_mins(2));
        let hold = armed(world);
        failed(world, &hold, done("r"), None);
        assert_eq!(failure(world, &hold), None, "it happened");
    });
}

#[test]
fn a_refusal_is_a_warning_attempts_used_up_are_critical_and_a_wrong_argument_is_no_alert() {
    let loudness = |outcome: fn() -> Outcome, attempts: usize| {
        let heard = std::cell::RefCell::new(Vec::new());
        everywhere(|world| {
            world.held("clerk", "hello");
            world.clock.advance(WINDOW);
            for _ in 0..attempts {
                let hold = claimed(world);
                failed(world, &hold, outcome(), None);
                world.clock.advance(Span::from_mins(16));
            }
            heard.borrow_mut().push(messages(world, "hold.dead").iter().map(|told| told.severity).collect::<Vec<_>>());
        });
        let mut heard = heard.into_inner();
        heard.dedup();
        assert_eq!(heard.len(), 1, "every engine says the same: {heard:?}");
        heard.remove(0)
    };
    assert_eq!(loudness(refused, 1), [Severity::Warning]);
    assert_eq!(loudness(|| Outcome::Refused { code: "execute.refused".into() }, 1), [Severity::Warning]);
    assert_eq!(loudness(not_done, 6), [Severity::Critical]);
    assert_eq!(loudness(|| Outcome::Refused { code: "execute.refused_mismatch".into() }, 1), [Severity::Critical]);
    for code in ["execute.bad_argument", "schema.wrong_type", "store.not_found"] {
        let outcome = match code {
            "execute.bad_argument" => || Outcome::Refused { code: "execute.bad_argument".into() },
            "schema.wrong_type" => || Outcome::Refused { code: "schema.wrong_type".into() },
            _ => || Outcome::Refused { code: "store.not_found".into() },
        };
        assert_eq!(loudness(outcome, 1), [], "{code}");
    }
}

/// A write in a state of this word, by the shortest way there.
fn brought_to(world: &World, state: &str) -> Hold {
    let id = world.held("clerk", "hello");
    let find = || world.wait(world.store.hold(id)).unwrap().unwrap();
    if state == "held" {
        return find();
    }
    if state == "cancelled" {
        world.wait(world.store.cancel(id, operator())).unwrap();
        return find();
    }
    if state == "ready" {
        world.wait(world.store.retime(id, operator(), Timing::Now)).unwrap();
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
            settle(world, id, Word::GiveUp).unwrap();
        }
        "armed" | "done" | "in_doubt" => {
            world.arm(&hold).unwrap();
            match state {
                "done" => drop(failed(world, &hold, done("r"), None)),
                "in_doubt" => drop(failed(world, &hold, Outcome::Unclear, None)),
                _ => {}
            }
        }
        other => panic!("no way to {other}"),
    }
    find()
}

#[test]
fn every_command_of_people_meets_every_state_of_a_write() {
    // Cancel, hold longer, send now, try again, give up, say that it happened: where each of them leads to.
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
                        Cancelled::Stopped(hold) => Some(hold),
                        Cancelled::TooLate(_) => None,
                    },
                    1 => world.wait(world.store.retime(id, operator(), Timing::Longer(WINDOW))).ok(),
                    2 => world.wait(world.store.retime(id, operator(), Timing::Now)).ok(),
                    3 => settle(world, id, Word::Again).ok(),
                    4 => settle(world, id, Word::GiveUp).ok(),
                    _ => settle(world, id, Word::Happened { evidence: "seen".into() }).ok(),
                };
                assert_eq!(moved.map_or(no, |hold| hold.state.word()), to, "command {command} in state {state}");
                // Nothing of it is in the way of the next one.
                match world.wait(world.store.cancel(id, operator())).unwrap() {
                    Cancelled::Stopped(_) | Cancelled::TooLate(_) => {}
                }
                world.clock.advance(Span::from_hours(1));
            }
        }
    });
}
