//! Zygotes: a fork is locked in like a worker that was started for its job, and meets neither its zygote nor another
//! fork.

use sluice_core::Millis;
use sluice_core::crash::CrashCause;
use sluice_sandbox::JailLayerName;
use sluice_sandbox::parent::{NamespacesMode, WorkerCutOffReason, WorkerEnd, WorkerLimits, WorkerStartError};

use crate::test_sandbox::{self, BOTH, TestSandbox, acts, cause, value};

#[test]
fn every_copy_begins_as_the_mould_did() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        let mould = house.mould();
        for n in 1..=20 {
            let end = house.run_copy(&mould.handle(), "count");
            let WorkerEnd::Clean(done) = &end else { panic!("{end:?}") };
            assert_eq!(value(done), 0, "nothing is left of the one before");
            assert_eq!(mould.handle().children_started(), n);
            let missing = done.layers.missing();
            match namespaces {
                NamespacesMode::WhereAllowed => assert_eq!(done.layers.missing_mandatory(), [], "{:?}", done.layers),
                NamespacesMode::Off => assert_eq!(missing, [JailLayerName::Namespaces, JailLayerName::EmptyRoot]),
            }
        }
    }
}

#[test]
fn what_kills_a_worker_kills_a_copy_and_what_only_a_mould_may_do_as_well() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        let mould = house.mould();
        let copies = mould.handle();
        for act in acts::KILLED.iter().chain(acts::KILLED_IN_A_COPY) {
            let end = house.run_copy(&copies, act);
            assert_eq!(cause(&end), Some(&CrashCause::Forbidden), "{act} {namespaces:?}: {end:?}");
            house.is_untouched();
        }
        let end = house.run_copy(&copies, "count");
        assert!(matches!(end, WorkerEnd::Clean(_)), "the mould makes more: {end:?}");
    }
}

#[test]
fn frames_and_limits_are_those_of_every_worker() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces).limits(|limits| WorkerLimits {
            frames: 5_000,
            bytes: 20 << 20,
            exchanges: 7,
            cpu: Millis::from_secs(1),
            memory: 96 << 20,
            ..limits
        });
        let roomy = TestSandbox::new(namespaces);
        let (mould, roomy_mould) = (house.mould(), roomy.mould());
        let copies = mould.handle();
        for act in acts::MALFORMED {
            let end = roomy.run_copy(&roomy_mould.handle(), act);
            assert_eq!(cause(&end), Some(&CrashCause::MalformedFrame), "{act} {namespaces:?}: {end:?}");
        }
        for act in ["fill_memory", "one_huge_allocation", "stack_overflow", "spin", "flood_of_frames", "flood_of_bytes"]
        {
            let end = house.run_copy(&copies, act);
            assert_eq!(cause(&end), Some(&CrashCause::Exhausted), "{act} {namespaces:?}: {end:?}");
        }
        let end = house.run_copy(&copies, "ask_forever");
        assert_eq!(cause(&end), Some(&CrashCause::BurnLimit { limit: 7 }), "{end:?}");
        assert!(matches!(house.run_copy(&copies, "echo"), WorkerEnd::Clean(_)));
    }
}

#[test]
fn a_copy_may_use_less_than_its_mould_and_its_time_is_its_own() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed)
        .limits(|limits| WorkerLimits { cpu: Millis::from_secs(60), ..limits });
    let mould = house.mould();
    let shorter = WorkerLimits { cpu: Millis::from_secs(1), ..WorkerLimits::default() };
    for _ in 0..2 {
        let copy = mould.handle().start_child(shorter).unwrap();
        let job = house.task("spin", None).job;
        let end = copy.perform(job, &mut test_sandbox::AnsweringTestHost::default(), &house.cancel()).unwrap();
        assert_eq!(cause(&end), Some(&CrashCause::Exhausted), "{end:?}");
    }
}

#[test]
fn ordinary_ends_of_copies_are_told_apart() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed)
        .limits(|limits| WorkerLimits { wall: Millis::from_secs(20), ..limits });
    let mould = house.mould();
    let copies = mould.handle();
    let run = |act: &str| house.run_copy(&copies, act);
    assert_eq!(cause(&run("exit_silently")), Some(&CrashCause::Exited { code: 0 }));
    assert_eq!(cause(&run("exit_three")), Some(&CrashCause::Exited { code: 3 }));
    assert_eq!(cause(&run("fault")), Some(&CrashCause::Signalled { signal: 11 }));
    assert_eq!(cause(&run("abort")), Some(&CrashCause::Exhausted));
    assert_eq!(cause(&run("report_and_stay")), Some(&CrashCause::Forbidden));
    let WorkerEnd::Clean(done) = run("descriptors") else { panic!("no end") };
    assert_eq!(value(&done), serde_json::json!([0, 1, 2, 3]), "not the mould's socket, not another copy's");
    let cancel = house.cancel();
    cancel.cancel();
    let copy = copies.start_child(WorkerLimits::default()).unwrap();
    let job = house.task("half_a_frame_and_hang", None).job;
    let end = copy.perform(job, &mut test_sandbox::AnsweringTestHost::default(), &cancel).unwrap();
    assert!(matches!(end, WorkerEnd::CutOff { why: WorkerCutOffReason::Cancelled, .. }), "{end:?}");
}

#[test]
fn copies_work_at_the_same_time_and_from_any_thread() {
    let house = TestSandbox::new(NamespacesMode::WhereAllowed);
    let mould = house.mould();
    let (house, copies) = (&house, &mould.handle());
    std::thread::scope(|scope| {
        let lives: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    (0..20).for_each(|n| {
                        let act = if n % 4 == 3 { "socket_inet" } else { "echo" };
                        let end = house.run_copy(copies, act);
                        assert_eq!(matches!(end, WorkerEnd::Clean(_)), act == "echo", "{end:?}");
                    });
                })
            })
            .collect();
        lives.into_iter().for_each(|life| life.join().unwrap());
    });
    assert_eq!(copies.children_started(), 160);
}

#[test]
fn nothing_of_a_mould_outlives_it() {
    for namespaces in BOTH {
        let house = TestSandbox::new(namespaces);
        let mould = house.mould();
        let copies = mould.handle();
        let waiting = copies.start_child(WorkerLimits::default()).unwrap();
        assert!(waiting.is_there() && copies.is_there());
        drop(mould);
        assert!(!copies.is_there());
        assert!(matches!(copies.start_child(WorkerLimits::default()), Err(WorkerStartError::Spawn(_))));
        let job = house.task("echo", None).job;
        let end = waiting.perform(job, &mut test_sandbox::AnsweringTestHost::default(), &house.cancel()).unwrap();
        assert!(!matches!(end, WorkerEnd::Clean(_)), "{end:?}");
    }
}
