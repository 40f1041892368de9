//! The evil-worker suite: whatever a worker does, it fails and is reported, and the parent continues.
//!
//! Each act runs in a fresh worker, with namespaces where the system allows them and without.

use sluice_core::Millis;
use sluice_core::crash::CrashCause;
use sluice_sandbox::parent::{NamespacesMode, WorkerCutOffReason, WorkerEnd, WorkerLimits};

use crate::test_sandbox::{self, BOTH, TestSandbox, acts, cause};

#[test]
fn a_call_that_is_not_in_the_list_kills_and_is_reported_as_forbidden() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        for act in acts::KILLED {
            let end = house.run(act);
            assert_eq!(cause(&end), Some(&CrashCause::Forbidden), "{act} {namespaces:?}: {end:?}");
            house.is_untouched();
        }
        house.still_works();
    }
}

#[test]
fn nothing_outside_the_scratch_folder_can_be_reached_through_it() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        for act in acts::DENIED {
            let end = house.run_with_scratch(act);
            let WorkerEnd::Clean(done) = &end else { panic!("{act} {namespaces:?}: {end:?}") };
            let said = test_sandbox::value(done);
            assert_eq!(said["escaped"], false, "{act} {namespaces:?}: {said}");
            house.is_untouched();
        }
        house.still_works();
    }
}

#[test]
fn what_is_forbidden_without_a_scratch_folder_is_forbidden_with_one() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        for act in acts::KILLED.iter().filter(|act| !acts::OTHERWISE_WITH_SCRATCH.contains(act)) {
            let end = house.run_with_scratch(act);
            assert_eq!(cause(&end), Some(&CrashCause::Forbidden), "{act} {namespaces:?}: {end:?}");
        }
        house.is_untouched();
        house.still_works();
    }
}

#[test]
fn frames_that_are_none_are_reported_as_such() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        for act in acts::MALFORMED {
            let end = house.run(act);
            assert_eq!(cause(&end), Some(&CrashCause::MalformedFrame), "{act} {namespaces:?}: {end:?}");
        }
        house.still_works();
    }
}

#[test]
fn whoever_uses_too_much_is_stopped() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces).limits(|limits| WorkerLimits {
            frames: 5_000,
            bytes: 20 << 20,
            exchanges: 7,
            cpu: Millis::from_secs(1),
            memory: 96 << 20,
            ..limits
        });
        for act in ["fill_memory", "one_huge_allocation", "stack_overflow", "spin", "flood_of_frames", "flood_of_bytes"]
        {
            let end = house.run(act);
            assert_eq!(cause(&end), Some(&CrashCause::Exhausted), "{act} {namespaces:?}: {end:?}");
        }
        let end = house.run("ask_forever");
        assert_eq!(cause(&end), Some(&CrashCause::BurnLimit { limit: 7 }), "{end:?}");
        let end = house.run_with_scratch("fill_the_scratch_file");
        // The first process of a namespace is refused; any other one is killed by the signal of that limit.
        match &end {
            WorkerEnd::Clean(done) => assert_eq!(test_sandbox::value(done)["escaped"], false),
            _ => assert_eq!(cause(&end), Some(&CrashCause::Exhausted), "{end:?}"),
        }
        let written = std::fs::metadata(house.path("scratch/draft")).unwrap().len();
        assert!(written <= 1 << 20, "{written}");
        house.still_works();
    }
}

#[test]
fn whoever_hangs_is_cut_off() {
    for namespaces in BOTH {
        let house =
            TestSandbox::new(namespaces).limits(|limits| WorkerLimits { wall: Millis::from_millis(300), ..limits });
        for act in ["half_a_frame_and_hang", "stop_itself"] {
            let end = house.run(act);
            let WorkerEnd::CutOff { why: WorkerCutOffReason::Time, usage, .. } = &end else { panic!("{act}: {end:?}") };
            assert!(usage.wall.as_millis() >= 300 && usage.wall < Millis::from_secs(30), "{act}: {usage:?}");
        }
    }
}

#[test]
fn whoever_stays_after_the_end_is_removed_and_called_what_it_is() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let end = house.run("report_and_stay");
    assert_eq!(cause(&end), Some(&CrashCause::Forbidden), "{end:?}");
    let end = house.run_with_scratch("close_the_pipe_and_stay");
    assert_eq!(cause(&end), Some(&CrashCause::Forbidden), "{end:?}");
    let end = house.run_with_scratch("another_file_as_the_pipe");
    assert_eq!(cause(&end), Some(&CrashCause::Exited { code: 0 }), "no report is no good end: {end:?}");
    house.still_works();
}

#[test]
fn an_ordinary_fault_is_told_from_an_attack() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    assert_eq!(cause(&house.run("exit_silently")), Some(&CrashCause::Exited { code: 0 }));
    assert_eq!(cause(&house.run("exit_three")), Some(&CrashCause::Exited { code: 3 }));
    assert_eq!(cause(&house.run("fault")), Some(&CrashCause::Signalled { signal: 11 }));
    let end = house.run("panic");
    let WorkerEnd::Crashed(crash) = &end else { panic!("{end:?}") };
    assert_eq!(crash.cause, CrashCause::Exited { code: 101 });
    let words = crash.last_words.as_ref().unwrap();
    assert!(words.place.contains("main.rs:"), "{words:?}");
    assert!(!format!("{end:?}").contains("stranger"), "the words of a panic may hold content and stay inside");
}

#[test]
fn a_worker_that_is_not_wanted_any_more_is_gone_at_once() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let cancel = house.cancel();
    let end = std::thread::scope(|scope| {
        let worker = scope.spawn(|| house.run_until(&cancel, "half_a_frame_and_hang"));
        cancel.cancel();
        worker.join().unwrap()
    });
    let WorkerEnd::CutOff { why: WorkerCutOffReason::Cancelled, usage, .. } = &end else { panic!("{end:?}") };
    assert!(usage.wall < Millis::from_secs(20), "{usage:?}");
}

#[test]
fn a_worker_has_no_descriptor_but_those_it_needs() {
    // Descriptors of the gateway that are open, some of them without close-on-exec.
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let leaky = rustix::io::dup(std::fs::File::open("/etc/passwd").unwrap()).unwrap();
    let WorkerEnd::Clean(done) = house.run("descriptors") else { panic!("no end") };
    assert_eq!(test_sandbox::value(&done), serde_json::json!([0, 1, 2, 3]));
    let WorkerEnd::Clean(done) = house.run_with_scratch("descriptors") else { panic!("no end") };
    assert_eq!(test_sandbox::value(&done), serde_json::json!([0, 1, 2, 3, 4]));
    drop(leaky);
}

#[test]
fn the_suite_has_every_act_it_promises() {
    let count = acts::KILLED.len() + acts::DENIED.len() + acts::MALFORMED.len();
    assert!(count >= 80, "{count}");
}
