//! Admission: repeats, duplicates, counters.

use sluice_core::batch::SlidingWindow;
use sluice_core::{AgentName, Millis, Tier};
use sluice_store::{Admission, AdmissionOutcome, ApprovalRuling, RateLimitCounter};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::done;

use crate::engines::{across_restarts, agent, armed, asked, code, everywhere, question, recorded, service};

fn keyed(world: &TestStore, who: &str, key: &str, text: &str) -> Admission {
    Admission { idempotency_key: Some(key.into()), ..world.mail(who, text) }
}

fn admit(world: &TestStore, admission: Admission) -> Result<AdmissionOutcome, sluice_store::StoreError> {
    world.wait(world.store.admit(admission))
}

#[test]
fn the_same_key_is_the_same_call_whatever_became_of_it() {
    everywhere(|world| {
        let first = keyed(world, "clerk", "k", "hello");
        let again = AdmissionOutcome::Again { call: first.call, hold: first.hold };
        let id = first.hold;
        world.admit(first);
        assert_eq!(world.admit(keyed(world, "clerk", "k", "hello")), again);
        world.wait(world.store.cancel(id, agent("clerk"))).unwrap();
        assert_eq!(world.admit(keyed(world, "clerk", "k", "hello")), again, "a retry does not revive it");
        assert_eq!(recorded(world, "hold.held"), 1);
        let (clerk, email, window) = (AgentName::new("clerk").unwrap(), service("email"), SlidingWindow::default());
        let used = world.wait(world.store.batch_used(clerk, &email, &window, world.now())).unwrap();
        assert_eq!(used, 1, "a repeat is not counted");
    });
}

#[test]
fn a_key_used_for_another_call_is_refused() {
    everywhere(|world| {
        world.admit(keyed(world, "clerk", "k", "hello"));
        assert_eq!(code(admit(world, keyed(world, "clerk", "k", "good bye"))), "call.key_reuse");
    });
}

#[test]
fn two_agents_may_choose_the_same_key() {
    everywhere(|world| {
        world.admit(keyed(world, "clerk", "k", "hello"));
        assert!(matches!(world.admit(keyed(world, "scout", "k", "hello")), AdmissionOutcome::Held { .. }));
    });
}

#[test]
fn a_key_is_remembered_for_thirty_days_and_across_restarts() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        world.admit(keyed(&world, "clerk", "k", "hello"));
        drop(world);
        place.clock.advance(Millis::from_millis(30 * 24 * 3_600_000 - 1));
        let world = place.open("gw-1");
        assert!(matches!(world.admit(keyed(&world, "clerk", "k", "hello")), AdmissionOutcome::Again { .. }));
        place.clock.advance(Millis::from_millis(1));
        assert!(matches!(world.admit(keyed(&world, "clerk", "k", "other")), AdmissionOutcome::Held { .. }));
        world
    });
}

#[test]
fn an_identical_call_without_a_key_is_a_possible_duplicate_for_ten_minutes() {
    everywhere(|world| {
        let first = world.admit_held("clerk", "hello");
        let twin = admit(world, world.mail("clerk", "hello")).unwrap_err();
        assert!(matches!(twin, sluice_store::StoreError::PossibleDuplicate { first: named } if named == first));
        assert!(
            matches!(admit(world, world.mail("scout", "hello")), Ok(AdmissionOutcome::Held { .. })),
            "another agent's"
        );
        world.admit(Admission { allow_duplicate: true, ..world.mail("clerk", "hello") });
        world.clock.advance(Millis::from_mins(10));
        assert!(matches!(admit(world, world.mail("clerk", "hello")), Ok(AdmissionOutcome::Held { .. })));
    });
}

#[test]
fn a_sent_write_is_still_a_twin_but_a_stopped_one_is_not() {
    everywhere(|world| {
        world.admit_held("clerk", "sent");
        let hold = armed(world);
        world.finish(hold.id, hold.epoch, done("r")).unwrap();
        assert_eq!(code(admit(world, world.mail("clerk", "sent"))), "call.possible_duplicate");
        let id = world.admit_held("clerk", "cancelled");
        world.wait(world.store.cancel(id, agent("clerk"))).unwrap();
        world.admit_held("clerk", "cancelled");
        let (_, approval) = asked(world, "clerk", "denied");
        world.decide(approval, ApprovalRuling::Deny { note: None }).unwrap();
        asked(world, "clerk", "denied");
    });
}

#[test]
fn a_blocked_call_is_on_record_and_nowhere_else() {
    everywhere(|world| {
        let blocked = |key: Option<&str>| Admission {
            tier: Tier::Blocked,
            idempotency_key: key.map(Into::into),
            ..world.mail("clerk", "hello")
        };
        assert_eq!(world.admit(blocked(None)), AdmissionOutcome::Blocked);
        assert_eq!(world.admit(blocked(Some("k"))), AdmissionOutcome::Blocked);
        assert_eq!(world.wait(world.store.holds(None, 9)).unwrap(), []);
        assert_eq!(recorded(world, "call.blocked"), 2);
        // A changed policy may decide differently: the key was not stored.
        assert!(matches!(world.admit(keyed(world, "clerk", "k", "hello")), AdmissionOutcome::Held { .. }));
    });
}

#[test]
fn counters_survive_a_restart_and_are_counted_once() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let hourly = SlidingWindow { limit: 100, span: Millis::from_hours(1) };
        let rates = vec![RateLimitCounter { rule: "agents/clerk.yaml:3".into(), window: hourly, on_exceed: None }];
        world.admit(Admission { weight: 3, rates: rates.clone(), ..world.mail("clerk", "one") });
        drop(world);
        let world = place.open("gw-1");
        world.admit(Admission { rates, ..world.mail("clerk", "two") });
        let clerk = || AgentName::new("clerk").unwrap();
        let batch = |now| {
            world.wait(world.store.batch_used(clerk(), &service("email"), &SlidingWindow::default(), now)).unwrap()
        };
        assert_eq!(batch(world.now()), 4);
        assert_eq!(batch(world.now() + Millis::from_mins(11)), 0);
        let rate = world.wait(world.store.rate_used(clerk(), "agents/clerk.yaml:3", &hourly, world.now()));
        assert_eq!(rate.unwrap(), 2);
        let other = world.wait(world.store.rate_used(clerk(), "agents/clerk.yaml:4", &hourly, world.now()));
        assert_eq!(other.unwrap(), 0);
        world.admit(world.mail("clerk", "three"));
        let sixth = world.admit(world.mail("clerk", "four"));
        assert!(matches!(sixth, AdmissionOutcome::Awaiting { batch: true, .. }), "3 + 1 + 1 + 1 is more than five");
        world
    });
}

#[test]
fn asking_leaves_one_message_in_the_same_transaction() {
    everywhere(|world| {
        let admission = question(world, "clerk", "hello");
        let (id, approval) = (admission.message, admission.approval);
        world.admit(admission);
        let due = world.wait(world.store.due_messages(world.now(), 9)).unwrap();
        assert_eq!(due.len(), 1);
        assert_eq!((due[0].message.id, due[0].message.topic.as_str()), (id, "approval.asked"));
        assert_eq!(due[0].message.body["approval"], approval.to_string());
    });
}

#[test]
fn a_message_is_due_until_it_was_delivered_and_a_failed_one_comes_back_later() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let later = place.clock_time() + Millis::from_mins(5);
        asked(&world, "clerk", "one");
        asked(&world, "clerk", "two");
        let due = world.wait(world.store.due_messages(world.now(), 9)).unwrap();
        assert_eq!(due.len(), 2);
        world.wait(world.store.mark_delivered(due[0].message.id)).unwrap();
        world.wait(world.store.deliver_later(due[1].message.id, later)).unwrap();
        drop(world);
        let world = place.open("gw-1");
        assert_eq!(world.wait(world.store.due_messages(world.now(), 9)).unwrap(), []);
        let due_then = world.wait(world.store.due_messages(later, 9)).unwrap();
        assert_eq!((due_then.len(), due_then[0].message.id, due_then[0].attempts), (1, due[1].message.id, 1));
        world.wait(world.store.mark_delivered(due[1].message.id)).unwrap();
        // A delivered message stays delivered, even if another node thought that delivery had failed.
        world.wait(world.store.deliver_later(due[1].message.id, later)).unwrap();
        assert_eq!(world.wait(world.store.due_messages(later, 9)).unwrap(), []);
        world
    });
}
