//! Recovery: abandoned claims, late writes, restored databases.

use sluice_core::capability::EffectClass;
use sluice_core::grace;
use sluice_core::hold::{HoldState, StaleReason};
use sluice_core::{HoldId, Millis};
use sluice_store::{AbandonedClaims, HoldSettlement, HoldTiming, MessageSeverity, OverdueHolds};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::{LEASE, ana};

use crate::engines::{
    WINDOW, across_restarts, armed, asked, claimed, code, everywhere, held_of, message, messages, not_done, recover,
    settle, with_two_nodes,
};

fn overdue(world: &TestStore) -> OverdueHolds {
    world.wait(world.store.apply_grace_rule(100, message(world))).unwrap()
}

#[test]
fn after_a_restart_own_claims_go_back_or_into_doubt() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        world.admit_held("clerk", "armed");
        let armed = armed(&world).id;
        world.admit_held("clerk", "preparing");
        place.clock.advance(WINDOW);
        let preparing = claimed(&world).id;
        drop(world);
        let world = place.open("gw-1");
        assert_eq!(recover(&world, AbandonedClaims::Own), [armed, preparing]);
        assert_eq!(recover(&world, AbandonedClaims::Own), []);
        assert_eq!(world.hold(armed).state, HoldState::InDoubt { since: world.now(), rounds: 0 });
        assert_eq!(world.hold(preparing).state, HoldState::Ready { not_before: world.now() });
        assert_eq!(claimed(&world).id, preparing, "and a write with an uncertain outcome is not claimed");
        world
    });
}

#[test]
fn a_lease_is_left_alone_until_it_has_run_out() {
    with_two_nodes(|one, two| {
        one.admit_held("clerk", "armed");
        let armed = armed(one).id;
        one.clock.advance(Millis::from_millis(LEASE.as_millis() - 1));
        assert_eq!(recover(two, AbandonedClaims::Expired), []);
        assert_eq!(recover(two, AbandonedClaims::Own), [], "it is the other node's");
        one.clock.advance(Millis::from_millis(1));
        assert_eq!(recover(two, AbandonedClaims::Expired), [armed]);
        assert_eq!(two.state(armed), "in_doubt");
    });
}

#[test]
fn a_write_that_keeps_taking_its_node_down_is_isolated_with_an_alert_for_each() {
    everywhere(|world| {
        let ids = [world.admit_held("clerk", "one"), world.admit_held("clerk", "two")];
        world.clock.advance(WINDOW);
        for _ in 0..5 {
            assert_eq!(world.claim_due().len(), 2);
            world.clock.advance(LEASE);
            assert_eq!(recover(world, AbandonedClaims::Expired), ids);
            assert_eq!(ids.map(|id| world.state(id)), ["ready", "ready"]);
        }
        assert_eq!(world.claim_due().len(), 2);
        world.clock.advance(LEASE);
        assert_eq!(
            [recover(world, AbandonedClaims::Expired), recover(world, AbandonedClaims::Expired)],
            [[ids[0]], [ids[1]]]
        );
        assert_eq!(recover(world, AbandonedClaims::Expired), []);
        for id in ids {
            assert_eq!(world.hold(id).state, HoldState::Dead { code: "execute.poison".into(), at: world.now() });
        }
        let alerts = messages(world, "hold.dead");
        assert_eq!((alerts.len(), alerts[0].severity), (2, MessageSeverity::Critical));
    });
}

#[test]
fn late_by_half_a_minute_is_on_time() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW + grace::ON_TIME);
        assert_eq!(overdue(world), OverdueHolds::default());
        claimed(world);
    });
}

#[test]
fn late_within_the_grace_is_announced_and_held_again() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW + Millis::from_millis(30_001));
        assert_eq!(overdue(world), OverdueHolds { reheld: vec![id], stale: vec![] });
        assert_eq!(world.hold(id).state, HoldState::Held { not_before: world.now() + Millis::from_mins(1) });
        assert!(world.claim_due().is_empty());
        let digest = messages(world, "hold.overdue");
        assert_eq!((digest.len(), &digest[0].body["reheld"], &digest[0].body["stale"]), (1, &1.into(), &0.into()));
    });
}

#[test]
fn beyond_the_grace_of_its_class_a_person_decides() {
    everywhere(|world| {
        let mail = held_of(world, EffectClass::ConsumeOnce, "mail");
        let label = held_of(world, EffectClass::Absolute, "label");
        world.clock.advance(WINDOW + Millis::from_millis(600_001));
        assert_eq!(overdue(world), OverdueHolds { reheld: vec![label], stale: vec![mail] });
        assert_eq!(world.hold(mail).state, HoldState::Stale { why: StaleReason::Downtime });
        assert_eq!(messages(world, "hold.overdue").len(), 1, "one summary for both");
        assert_eq!(
            code(world.wait(world.store.retime(mail, ana(), HoldTiming::Longer(WINDOW)))),
            "approval.not_offered"
        );
        let again = settle(world, mail, HoldSettlement::Again).unwrap();
        assert_eq!(again.state, HoldState::Held { not_before: world.now() + WINDOW }, "with a new undo window");
    });
}

#[test]
fn a_retry_that_came_due_while_nobody_was_here_is_late_too() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        world.finish(id, hold.epoch, not_done()).unwrap();
        world.clock.advance(Millis::from_hours(3));
        assert_eq!(overdue(world), OverdueHolds { reheld: vec![], stale: vec![id] });
        assert!(world.claim_due().is_empty());
    });
}

#[test]
fn a_stale_write_can_be_stopped_or_given_up() {
    everywhere(|world| {
        let ids = [world.admit_held("clerk", "one"), world.admit_held("clerk", "two")];
        world.clock.advance(Millis::from_hours(3));
        assert_eq!(overdue(world).stale, ids);
        world.wait(world.store.cancel(ids[0], ana())).unwrap();
        settle(world, ids[1], HoldSettlement::GiveUp).unwrap();
        assert_eq!(ids.map(|id| world.state(id)), ["cancelled", "discarded"]);
    });
}

#[test]
fn after_a_restore_nothing_pending_goes_by_itself() {
    everywhere(|world| {
        world.admit_held("clerk", "armed");
        let armed = armed(world).id;
        let (question, _) = asked(world, "clerk", "asked");
        let waiting = world.admit_held("clerk", "waiting");
        let page = |after| world.wait(world.store.require_person_after_restore(after, 1)).unwrap();
        assert_eq!(page(HoldId::from_bits(0)), [armed]);
        assert_eq!(page(armed), [question]);
        assert_eq!(page(question), [waiting]);
        assert_eq!(page(waiting), []);
        for id in [question, waiting] {
            assert_eq!(world.hold(id).state, HoldState::Stale { why: StaleReason::Restored });
        }
        assert_eq!(
            world.hold(armed).state,
            HoldState::NeedsHuman { code: "store.restored".into() },
            "it may have left: it is never looked up and repeated by itself"
        );
        world.clock.advance(Millis::from_hours(1));
        assert!(world.claim_due().is_empty());
        assert!(world.wait(world.store.doubtful_holds(world.now(), 9)).unwrap().is_empty());
    });
}
