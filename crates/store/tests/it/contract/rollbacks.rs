//! Rollback points: captured before a write, completed after it, used at most once.

use sluice_core::hold::Hold;
use sluice_core::ids::RollbackId;
use sluice_core::rollback::{ObjectFingerprint, RETENTION, RollbackState};
use sluice_core::{HoldId, Millis, UtcMillis};
use sluice_store::{ArmWrite, AttemptOutcome, HoldSettlement, RollbackPoint, StateBeforeWrite};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::ana;

use crate::engines::{WINDOW, claimed, code, everywhere, recorded, refused, settle};

fn print(state: &str) -> ObjectFingerprint {
    ObjectFingerprint::of(state.as_bytes())
}

pub(super) fn arm_seeing(world: &TestStore, hold: &Hold, state: &str) {
    let before = StateBeforeWrite {
        id: RollbackId::mint(world.ids.as_ref()),
        content: state.as_bytes().to_vec(),
        print: print(state),
    };
    let (wire, epoch) = (hold.action.digest(), hold.epoch);
    world.wait(world.store.arm(ArmWrite { hold: hold.id, epoch, wire, handle: None, before: Some(before) })).unwrap();
}

fn point(world: &TestStore, hold: HoldId) -> RollbackPoint {
    world.wait(world.store.hold_rollback(hold)).unwrap().unwrap()
}

fn leaving(state: &str, service_until: Option<UtcMillis>) -> AttemptOutcome {
    AttemptOutcome::Done { receipt: "r".into(), after: Some(print(state)), service_until, result: None }
}

/// A write that moved an object from inbox to trash.
fn trashed(world: &TestStore, service_until: Option<UtcMillis>) -> HoldId {
    let id = world.admit_held("clerk", "trash it");
    world.clock.advance(WINDOW);
    let hold = claimed(world);
    arm_seeing(world, &hold, "inbox");
    world.finish(id, hold.epoch, leaving("trash", service_until)).unwrap();
    id
}

#[test]
fn a_point_is_captured_at_arming_and_sealed_when_the_write_is_done() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "trash it");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        assert_eq!(world.wait(world.store.hold_rollback(id)).unwrap(), None);
        arm_seeing(world, &hold, "inbox");
        let captured = RollbackState::Captured { at: world.now(), before: print("inbox") };
        assert_eq!(point(world, id).state, captured);
        world.finish(id, hold.epoch, leaving("trash", None)).unwrap();
        let sealed = point(world, id);
        let until = world.now() + RETENTION;
        assert_eq!(sealed.state, RollbackState::Sealed { before: print("inbox"), after: print("trash"), until });
        assert_eq!(sealed.content, b"inbox");
    });
}

#[test]
fn the_first_picture_is_kept_when_a_second_attempt_sees_our_own_change() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "trash it");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        arm_seeing(world, &hold, "inbox");
        world.finish(id, hold.epoch, AttemptOutcome::NotDone { code: "service.busy".into() }).unwrap();
        world.clock.advance(Millis::from_mins(1));
        let hold = claimed(world);
        arm_seeing(world, &hold, "trash");
        assert_eq!(point(world, id).content, b"inbox");
        assert_eq!(recorded(world, "rollback.captured"), 1);
    });
}

#[test]
fn a_refused_write_that_is_revived_gets_a_new_picture_and_can_be_done() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "trash it");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        arm_seeing(world, &hold, "inbox");
        world.finish(id, hold.epoch, refused()).unwrap();
        assert_eq!(point(world, id).state, RollbackState::Abandoned { at: world.now() });
        assert!(point(world, id).content.is_empty());
        settle(world, id, HoldSettlement::Again).unwrap();
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        arm_seeing(world, &hold, "archive");
        assert_eq!(point(world, id).content, b"archive");
        world.finish(id, hold.epoch, leaving("trash", None)).unwrap();
        assert_eq!(point(world, id).state.word(), "sealed");
    });
}

#[test]
fn a_refused_write_that_is_revived_can_be_done_without_a_picture_too() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "trash it");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        arm_seeing(world, &hold, "inbox");
        world.finish(id, hold.epoch, refused()).unwrap();
        settle(world, id, HoldSettlement::Again).unwrap();
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        world.arm(&hold).unwrap();
        world.finish(id, hold.epoch, leaving("trash", None)).unwrap();
        assert_eq!(world.state(id), "done");
    });
}

#[test]
fn a_write_is_taken_back_once_and_only_while_nothing_newer_happened() {
    everywhere(|world| {
        let id = trashed(world, None);
        let undo = |present: &str| world.wait(world.store.mark_undone(id, print(present), ana()));
        assert_eq!(code(undo("edited by someone")), "rollback.conflict");
        undo("trash").unwrap();
        assert_eq!(point(world, id).state, RollbackState::Undone { by: ana(), at: world.now() });
        assert_eq!(code(undo("trash")), "rollback.not_possible");
        assert_eq!(
            code(world.wait(world.store.mark_undone(HoldId::from_bits(99), print("x"), ana()))),
            "store.not_found"
        );
    });
}

#[test]
fn a_point_ends_with_the_shorter_memory_and_its_content_is_forgotten() {
    everywhere(|world| {
        let soon = world.now() + Millis::from_hours(1);
        let (short, long) = (trashed(world, Some(soon)), {
            let id = world.admit_held("clerk", "another");
            world.clock.advance(WINDOW);
            let hold = claimed(world);
            arm_seeing(world, &hold, "inbox");
            world.finish(id, hold.epoch, leaving("trash", None)).unwrap();
            id
        });
        world.clock.advance(Millis::from_hours(1));
        let late = world.wait(world.store.mark_undone(short, print("trash"), ana()));
        assert_eq!(code(late), "rollback.expired", "even before the loop came by");
        assert_eq!(world.wait(world.store.expire_rollbacks(9)).unwrap().len(), 1);
        assert_eq!(world.wait(world.store.expire_rollbacks(9)).unwrap().len(), 0);
        assert_eq!((point(world, short).state.word(), point(world, short).content.len()), ("expired", 0));
        assert_eq!(point(world, long).state.word(), "sealed");
        world.clock.advance(RETENTION);
        assert_eq!(world.wait(world.store.expire_rollbacks(9)).unwrap().len(), 1);
    });
}
