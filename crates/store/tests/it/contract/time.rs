//! Time: a clock that is set back makes nothing happen early and revives nothing.

use sluice_core::approval::{ApprovalAnswer, DEFAULT_EXPIRY};
use sluice_core::{Clock, Millis};
use sluice_store::{ApprovalRuling, DecisionOutcome, WriteClaimOutcome};

use crate::engines::{WINDOW, across_restarts, asked, everywhere, recorded_times};

#[test]
fn a_clock_set_back_does_not_make_a_write_leave_before_its_window_closed() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        let start = world.now();
        world.clock.jump(start - Millis::from_hours(5));
        let late = world.admit_held("clerk", "admitted after the jump");
        let hold = world.hold(late);
        assert_eq!(hold.admitted_at, start, "time does not run backwards");
        let early = world.wait(world.store.claim(world.claims(&[world.hold(id), hold]))).unwrap();
        assert_eq!(early, [WriteClaimOutcome::Lost(id), WriteClaimOutcome::Lost(late)]);
        world.clock.jump(start + WINDOW);
        assert_eq!(world.claim_due().len(), 2);
    });
}

#[test]
fn a_clock_set_back_revives_no_expired_question() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let (id, approval) = asked(&world, "clerk", "hello");
        let start = place.clock.now();
        place.clock.advance(DEFAULT_EXPIRY);
        // Another write was made at that moment; nobody has looked at the approval request yet.
        world.admit_held("scout", "hello");
        drop(world);
        place.clock.jump(start);
        let world = place.open("gw-1");
        let yes = ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None };
        let Ok(DecisionOutcome::Already(found)) = world.decide(approval, yes) else {
            panic!("a late approval counted")
        };
        assert_eq!((found.state.word(), world.state(id)), ("expired", "expired"));
        world
    });
}

#[test]
fn a_clock_set_back_does_not_let_a_lapsed_yes_count_or_a_lease_live_on() {
    everywhere(|world| {
        let (_, approval) = asked(world, "clerk", "hello");
        let start = world.now();
        world.decide(approval, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }).unwrap();
        world.clock.advance(Millis::from_mins(15));
        world.admit_held("scout", "hello");
        let due = world.wait(world.store.due_holds(world.now(), 9)).unwrap();
        world.clock.jump(start + WINDOW);
        let claimed = world.wait(world.store.claim(world.claims(&due))).unwrap();
        assert!(matches!(claimed[..], [WriteClaimOutcome::Asked(_, _)]), "{claimed:?}");
    });
}

#[test]
fn the_record_never_runs_backwards() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        world.admit_held("clerk", "one");
        place.clock.jump(place.clock.now() - Millis::from_hours(1));
        world.admit_held("clerk", "two");
        drop(world);
        place.clock.jump(place.clock.now() - Millis::from_hours(1));
        let world = place.open("gw-1");
        world.admit_held("clerk", "three");
        assert!(recorded_times(&world).is_sorted());
        world
    });
}
