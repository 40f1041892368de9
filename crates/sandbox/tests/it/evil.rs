//! The evil-worker suite: whatever a worker does, it fails, it is reported, and the parent goes on.
//!
//! Each act runs in a fresh worker, with namespaces where the system allows them and without.

use sluice_core::Span;
use sluice_core::crash::Cause;
use sluice_sandbox::parent::{CutOff, End, Limits, Namespaces};

use crate::house::{self, BOTH, House, acts, cause};

#[test]
fn a_call_that_is_not_in_the_list_kills_and_is_reported_as_forbidden() {
    for namespaces in BOTH {
        let house = House::new(namespaces);
        for act in acts::KILLED {
            let end = house.run(act);
            assert_eq!(cause(&end), Some(&Cause::Forbidden), "{act} {namespaces:?}: {end:?}");
            house.is_untouched();
        }
        house.still_works();
    }
}

#[test]
fn nothing_outside_the_scratch_folder_can_be_reached_through_it() {
    for namespaces in BOTH {
        let house = House::new(namespaces);
        for act in acts::DENIED {
            let end = house.run_with_scratch(act);
            let End::Clean(done) = &end else { panic!("{act} {namespaces:?}: {end:?}") };
            let said = house::value(done);
            assert_eq!(said["escaped"], false, "{act} {namespaces:?}: {said}");
            house.is_untouched();
        }
        house.still_works();
    }
}

#[test]
fn what_is_forbidden_without_a_scratch_folder_is_forbidden_with_one() {
    for namespaces in BOTH {
        let house = House::new(namespaces);
        for act in acts::KILLED.iter().filter(|act| !acts::OTHERWISE_WITH_SCRATCH.contains(act)) {
            let end = house.run_with_scratch(act);
            assert_eq!(cause(&end), Some(&Cause::Forbidden), "{act} {namespaces:?}: {end:?}");
        }
        house.is_untouched();
        house.still_works();
    }
}

#[test]
fn frames_that_are_none_are_reported_as_such() {
    for namespaces in BOTH {
        let house = House::new(namespaces);
        for act in acts::MALFORMED {
            let end = house.run(act);
            assert_eq!(cause(&end), Some(&Cause::MalformedFrame), "{act} {namespaces:?}: {end:?}");
        }
        house.still_works();
    }
}

#[test]
fn whoever_uses_too_much_is_stopped() {
    for namespaces in BOTH {
        let house = House::new(namespaces).limits(|limits| Limits {
            frames: 5_000,
            bytes: 20 << 20,
            exchanges: 7,
            cpu: Span::from_secs(1),
            memory: 96 << 20,
            ..limits
        });
        for act in ["fill_memory", "one_huge_allocation", "stack_overflow", "spin", "flood_of_frames", "flood_of_bytes"]
        {
            let end = house.run(act);
            assert_eq!(cause(&end), Some(&Cause::Exhausted), "{act} {namespaces:?}: {end:?}");
        }
        let end = house.run("ask_forever");
        assert_eq!(cause(&end), Some(&Cause::BurnLimit { limit: 7 }), "{end:?}");
        let end = house.run_with_scratch("fill_the_scratch_file");
        // The first process of a namespace is refused; any other is killed by the signal of that limit.
        match &end {
            End::Clean(done) => assert_eq!(house::value(done)["escaped"], false),
            _ => assert_eq!(cause(&end), Some(&Cause::Exhausted), "{end:?}"),
        }
        let written = std::fs::metadata(house.path("scratch/draft")).unwrap().len();
        assert!(written <= 1 << 20, "{written}");
        house.still_works();
    }
}

#[test]
fn whoever_hangs_is_cut_off() {
    for namespaces in BOTH {
        let house = House::new(namespaces).limits(|limits| Limits { wall: Span::from_millis(300), ..limits });
        for act in ["half_a_frame_and_hang", "stop_itself"] {
            let end = house.run(act);
            let End::CutOff { why: CutOff::Time, usage, .. } = &end else { panic!("{act}: {end:?}") };
            assert!(usage.wall.as_millis() >= 300 && usage.wall < Span::from_secs(30), "{act}: {usage:?}");
        }
    }
}

#[test]
fn whoever_stays_after_the_end_is_removed_and_called_what_it_is() {
    let house = House::new(Namespaces::WhereAllowed);
    let end = house.run("report_and_stay");
    assert_eq!(cause(&end), Some(&Cause::Forbidden), "{end:?}");
    let end = house.run_with_scratch("close_the_pipe_and_stay");
    assert_eq!(cause(&end), Some(&Cause::Forbidden), "{end:?}");
    let end = house.run_with_scratch("another_file_as_the_pipe");
    assert_eq!(cause(&end), Some(&Cause::Exited { code: 0 }), "no report is no good end: {end:?}");
    house.still_works();
}

#[test]
fn an_ordinary_fault_is_told_from_an_attack() {
    let house = House::new(Namespaces::WhereAllowed);
    assert_eq!(cause(&house.run("exit_silently")), Some(&Cause::Exited { code: 0 }));
    assert_eq!(cause(&house.run("exit_three")), Some(&Cause::Exited { code: 3 }));
    assert_eq!(cause(&house.run("fault")), Some(&Cause::Signalled { signal: 11 }));
    let end = house.run("panic");
    let End::Crashed(crash) = &end else { panic!("{end:?}") };
    assert_eq!(crash.cause, Cause::Exited { code: 101 });
    let words = crash.last_words.as_ref().unwrap();
    assert!(words.place.contains("main.rs:"), "{words:?}");
    assert!(!format!("{end:?}").contains("stranger"), "the words of a panic may hold content and stay inside");
}

#[test]
fn a_worker_that_is_not_wanted_any_more_is_gone_at_once() {
    let house = House::new(Namespaces::WhereAllowed);
    let cancel = house.cancel();
    let end = std::thread::scope(|scope| {
        let worker = scope.spawn(|| house.run_until(&cancel, "half_a_frame_and_hang"));
        cancel.cancel();
        worker.join().unwrap()
    });
    let End::CutOff { why: CutOff::Cancelled, usage, .. } = &end else { panic!("{end:?}") };
    assert!(usage.wall < Span::from_secs(20), "{usage:?}");
}

#[test]
fn a_worker_has_no_descriptor_but_those_it_needs() {
    // Descriptors of the gateway that are open, some of them without close-on-exec.
    let house = House::new(Namespaces::WhereAllowed);
    let leaky = rustix::io::dup(std::fs::File::open("/etc/passwd").unwrap()).unwrap();
    let End::Clean(done) = house.run("descriptors") else { panic!("no end") };
    assert_eq!(house::value(&done), serde_json::json!([0, 1, 2, 3]));
    let End::Clean(done) = house.run_with_scratch("descriptors") else { panic!("no end") };
    assert_eq!(house::value(&done), serde_json::json!([0, 1, 2, 3, 4]));
    drop(leaky);
}

#[test]
fn the_suite_has_every_act_it_promises() {
    let count = acts::KILLED.len() + acts::DENIED.len() + acts::MALFORMED.len();
    assert!(count >= 80, "{count}");
}
