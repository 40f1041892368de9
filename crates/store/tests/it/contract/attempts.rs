//! Attempts: claiming, arming, outcomes, back-off, and the order of writes to one object.

use sluice_core::hold::HoldState;
use sluice_core::{Digest, HoldId, Millis};
use sluice_store::{
    Admission, AdmissionOutcome, ArmWrite, AttemptOutcome, HoldSettlement, MessageSeverity, WriteClaimOutcome,
};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::done;

use crate::engines::{WINDOW, armed, claimed, code, everywhere, messages, not_done, refused, settle};

#[test]
fn a_failing_write_is_tried_again_after_1_2_4_8_and_16_minutes_and_then_dead() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        for minutes in [1, 2, 4, 8, 16] {
            let hold = claimed(world);
            let wait = Millis::from_mins(minutes);
            let failed = world.finish(id, hold.epoch, not_done()).unwrap();
            assert_eq!(failed.state, HoldState::Ready { not_before: world.now() + wait });
            world.clock.advance(Millis::from_millis(wait.as_millis() - 1));
            assert!(world.claim_due().is_empty(), "not a millisecond early");
            world.clock.advance(Millis::from_millis(1));
        }
        assert!(messages(world, "hold.dead").is_empty());
        let hold = claimed(world);
        let dead = world.finish(id, hold.epoch, not_done()).unwrap();
        assert_eq!(dead.state, HoldState::Dead { code: "service.busy".into(), at: world.now() });
        let alerts = messages(world, "hold.dead");
        assert_eq!(
            (alerts.len(), alerts[0].severity, &alerts[0].body["attempts"]),
            (1, MessageSeverity::Critical, &6.into())
        );
        world.clock.advance(Millis::from_hours(9));
        assert!(world.claim_due().is_empty());
    });
}

#[test]
fn a_service_that_asks_for_more_time_gets_it_and_never_less_than_the_schedule() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        for (minutes, asked, due) in [(1, 10, 10), (2, 0, 2)] {
            let hold = claimed(world);
            let not_before = world.now() + Millis::from_mins(asked);
            let outcome = AttemptOutcome::NotBefore { code: "egress.limit".into(), not_before };
            let later = world.finish(id, hold.epoch, outcome).unwrap();
            assert_eq!(later.state, HoldState::Ready { not_before: world.now() + Millis::from_mins(due) }, "{minutes}");
            world.clock.advance(Millis::from_mins(due));
        }
    });
}

#[test]
fn what_the_service_refuses_for_good_is_dead_at_once() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        let hold = armed(world);
        let dead = world.finish(hold.id, hold.epoch, refused()).unwrap();
        assert_eq!(dead.state, HoldState::Dead { code: "service.refused".into(), at: world.now() });
        assert_eq!(messages(world, "hold.dead").len(), 1);
        let revived = settle(world, hold.id, HoldSettlement::Again).unwrap();
        assert_eq!(revived.state, HoldState::Held { not_before: world.now() + WINDOW }, "with a new undo window");
    });
}

#[test]
fn a_write_given_back_untouched_has_not_been_attempted() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        for epoch in 1..=3 {
            let hold = claimed(world);
            assert_eq!((hold.epoch, hold.attempts), (epoch, 1));
            world.finish(id, epoch, AttemptOutcome::GivenBack).unwrap();
        }
        let hold = claimed(world);
        world.arm(&hold).unwrap();
        assert_eq!(code(world.finish(id, hold.epoch, AttemptOutcome::GivenBack)), "hold.too_late");
        assert_eq!(world.state(id), "armed");
    });
}

#[test]
fn nothing_is_done_or_in_doubt_before_it_is_armed() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        for outcome in [done("r"), AttemptOutcome::Unclear] {
            assert_eq!(code(world.finish(id, hold.epoch, outcome)), "hold.too_late");
        }
        assert_eq!(world.state(id), "preparing");
    });
}

#[test]
fn other_bytes_are_never_armed_and_a_handle_is_never_replaced() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let arming = |hold: &sluice_core::hold::Hold, handle: &str| ArmWrite {
            hold: id,
            epoch: hold.epoch,
            wire: hold.action.digest(),
            handle: Some(handle.into()),
            before: None,
        };
        let hold = claimed(world);
        let other = ArmWrite { wire: Digest::of(b"other"), ..arming(&hold, "draft-1") };
        assert_eq!(code(world.wait(world.store.arm(other))), "execute.refused_mismatch");
        let permit = world.wait(world.store.arm(arming(&hold, "draft-1"))).unwrap();
        assert_eq!(permit.handle(), Some("draft-1"));
        assert_eq!(code(world.wait(world.store.arm(arming(&hold, "draft-1")))), "hold.too_late", "armed once");
        world.finish(id, hold.epoch, not_done()).unwrap();
        world.clock.advance(Millis::from_mins(1));
        let again = claimed(world);
        assert_eq!(again.handle.as_deref(), Some("draft-1"));
        assert_eq!(code(world.wait(world.store.arm(arming(&again, "draft-2")))), "execute.second_handle");
        assert_eq!(world.arm(&again).unwrap().handle(), Some("draft-1"));
    });
}

fn on_object(world: &TestStore, key: &str, text: &str) -> HoldId {
    match world.admit(Admission { object_key: Some(key.into()), ..world.mail("clerk", text) }) {
        AdmissionOutcome::Held { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

fn ours(claimed: &[WriteClaimOutcome]) -> Vec<HoldId> {
    claimed
        .iter()
        .filter_map(|claimed| match claimed {
            WriteClaimOutcome::Ours(hold) => Some(hold.id),
            _ => None,
        })
        .collect()
}

#[test]
fn writes_to_one_object_leave_one_after_the_other_and_others_do_not_wait() {
    everywhere(|world| {
        let first = on_object(world, "thread/1", "one");
        let second = on_object(world, "thread/1", "two");
        let elsewhere = on_object(world, "thread/2", "three");
        world.clock.advance(WINDOW);
        assert_eq!(ours(&world.claim_due()), [first, elsewhere]);
        assert!(world.claim_due().is_empty());
        let hold = world.hold(first);
        world.arm(&hold).unwrap();
        assert!(world.claim_due().is_empty(), "the first is under way");
        world.finish(first, hold.epoch, AttemptOutcome::Unclear).unwrap();
        assert!(world.claim_due().is_empty(), "the first is unclear");
        world.clock.advance(Millis::from_secs(30));
        crate::engines::resolve(
            world,
            &world.hold(first),
            sluice_store::LookupEvidence::Applied {
                receipt: "r".into(),
                result: None,
                after: None,
                service_until: None,
            },
        )
        .unwrap();
        assert_eq!(ours(&world.claim_due()), [second]);
    });
}

#[test]
fn the_order_of_an_object_binds_even_a_node_with_an_old_list() {
    everywhere(|world| {
        let slow =
            Admission { object_key: Some("o".into()), delay: Millis::from_mins(2), ..world.mail("clerk", "slow") };
        let first = slow.hold;
        world.admit(slow);
        let second = on_object(world, "o", "fast");
        world.clock.advance(WINDOW);
        assert!(world.claim_due().is_empty(), "the first still waits");
        let list = [world.hold(second)];
        assert_eq!(world.wait(world.store.claim(world.claims(&list))).unwrap(), [WriteClaimOutcome::Lost(second)]);
        world.clock.advance(Millis::from_mins(2));
        assert_eq!(ours(&world.claim_due()), [first]);
        assert_eq!(world.wait(world.store.claim(world.claims(&list))).unwrap(), [WriteClaimOutcome::Lost(second)]);
    });
}

#[test]
fn a_claim_of_something_that_moved_on_is_lost() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let list = world.wait(world.store.due_holds(world.now(), 9)).unwrap();
        let claims = world.claims(&list);
        assert_eq!(ours(&world.wait(world.store.claim(claims.clone())).unwrap()).len(), 1);
        assert_eq!(world.wait(world.store.claim(claims)).unwrap(), [WriteClaimOutcome::Lost(list[0].id)]);
    });
}
