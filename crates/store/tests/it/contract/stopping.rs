//! Stopping and retiming: what people and agents do to a write that waits.

use sluice_core::hold::HoldState;
use sluice_core::ids::MessageId;
use sluice_core::{HoldId, Millis};
use sluice_store::{Admission, AttemptOutcome, CancelHoldOutcome, HoldTiming, LookupEvidence, ResolveDoubt};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::{LEASE, ana, done};

use crate::engines::{WINDOW, agent, armed, asked, claimed, code, everywhere, operator, refused, service, settle};

fn cancel(world: &TestStore, id: HoldId) -> CancelHoldOutcome {
    world.wait(world.store.cancel(id, agent("clerk"))).unwrap()
}

#[test]
fn cancelled_means_never_sent() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        assert_eq!(code(world.wait(world.store.cancel(id, agent("intruder")))), "store.not_found");
        assert!(matches!(cancel(world, id), CancelHoldOutcome::Stopped(_)));
        world.clock.advance(LEASE);
        assert!(world.claim_due().is_empty());
        assert_eq!(world.hold(id).state, HoldState::Cancelled { by: agent("clerk"), at: world.now() - LEASE });
        assert!(matches!(cancel(world, id), CancelHoldOutcome::TooLate(_)), "once is enough");
    });
}

#[test]
fn a_claimed_write_can_still_be_stopped_until_it_is_armed() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        assert!(matches!(cancel(world, hold.id), CancelHoldOutcome::Stopped(_)));
        assert_eq!(code(world.arm(&hold)), "execute.fenced");
        assert_eq!(code(world.finish(hold.id, hold.epoch, done("r"))), "execute.fenced");
    });
}

#[test]
fn from_arming_on_it_is_too_late() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        let hold = armed(world);
        for outcome in [None, Some(AttemptOutcome::Unclear)] {
            if let Some(outcome) = outcome {
                world.finish(hold.id, hold.epoch, outcome).unwrap();
            }
            let CancelHoldOutcome::TooLate(found) = cancel(world, hold.id) else { panic!() };
            assert_eq!(found, world.hold(hold.id));
        }
    });
}

#[test]
fn a_dead_letter_is_not_cancelled_but_given_up() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        world.finish(hold.id, hold.epoch, refused()).unwrap();
        assert!(matches!(cancel(world, hold.id), CancelHoldOutcome::TooLate(_)));
        settle(world, hold.id, sluice_store::HoldSettlement::GiveUp).unwrap();
        assert_eq!(world.state(hold.id), "discarded");
    });
}

#[test]
fn disconnecting_a_service_stops_everything_of_it_that_has_not_left() {
    everywhere(|world| {
        world.admit_held("clerk", "armed");
        let armed = armed(world).id;
        world.admit_held("clerk", "preparing");
        world.clock.advance(WINDOW);
        let preparing = claimed(world).id;
        let (question, open) = asked(world, "scout", "asked");
        let (approved, yes) = asked(world, "scout", "approved");
        let ruling =
            sluice_store::ApprovalRuling::Allow { answer: sluice_core::approval::ApprovalAnswer::Once, note: None };
        world.decide(yes, ruling).unwrap();
        let waiting = world.admit_held("clerk", "waiting");
        let other = Admission { service: service("calendar"), ..world.mail("clerk", "elsewhere") };
        let elsewhere = other.hold;
        world.admit(other);
        let stopped = world.wait(world.store.cancel_service(service("email"), operator())).unwrap();
        assert_eq!(stopped.cancelled, [preparing, question, approved, waiting]);
        assert_eq!(stopped.on_their_way, [armed]);
        assert_eq!((world.state(armed), world.state(elsewhere)), ("armed", "held"));
        for (approval, word) in [(open, "withdrawn"), (yes, "revoked")] {
            assert_eq!(world.wait(world.store.approval(approval)).unwrap().unwrap().approval.state.word(), word);
        }
    });
}

#[test]
fn a_waiting_write_can_wait_longer() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        let due = world.now() + WINDOW;
        world.wait(world.store.retime(id, agent("clerk"), HoldTiming::Longer(Millis::from_mins(5)))).unwrap();
        assert_eq!(world.hold(id).state, HoldState::Held { not_before: due + Millis::from_mins(5) });
        world.clock.advance(WINDOW);
        assert!(world.claim_due().is_empty());
        let stranger = world.store.retime(id, agent("scout"), HoldTiming::Longer(WINDOW));
        assert_eq!(code(world.wait(stranger)), "store.not_found");
    });
}

#[test]
fn only_a_person_closes_the_undo_window_early() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        assert_eq!(
            code(world.wait(world.store.retime(id, agent("clerk"), HoldTiming::Now))),
            "approval.not_an_approver"
        );
        assert!(world.claim_due().is_empty());
        world.wait(world.store.retime(id, ana(), HoldTiming::Now)).unwrap();
        assert_eq!(claimed(world).id, id);
        assert_eq!(code(world.wait(world.store.retime(id, ana(), HoldTiming::Now))), "hold.too_late");
        let (asked, _) = asked(world, "clerk", "asked");
        assert_eq!(code(world.wait(world.store.retime(asked, ana(), HoldTiming::Now))), "hold.too_late");
    });
}

#[test]
fn a_write_on_its_way_when_its_service_was_disconnected_is_not_tried_again() {
    everywhere(|world| {
        let end = |world: &TestStore| world.wait(world.store.cancel_service(service("email"), operator())).unwrap();
        let not_before = world.now();
        for outcome in [
            AttemptOutcome::NotDone { code: "execute.unavailable".into() },
            AttemptOutcome::NotBefore { code: "execute.rate_limited".into(), not_before },
        ] {
            world.admit_held("clerk", &format!("{outcome:?}"));
            let armed = armed(world);
            assert_eq!(end(world).on_their_way, [armed.id]);
            let after = world.finish(armed.id, armed.epoch, outcome).unwrap();
            assert_eq!(after.state.word(), "cancelled");
        }
        world.admit_held("clerk", "in doubt");
        let doubtful = armed(world);
        world.finish(doubtful.id, doubtful.epoch, AttemptOutcome::Unclear).unwrap();
        assert_eq!(end(world).on_their_way, [doubtful.id]);
        world.clock.advance(Millis::from_hours(1));
        let version = world.hold(doubtful.id).version;
        let message = MessageId::mint(world.ids.as_ref());
        let resolve =
            ResolveDoubt { hold: doubtful.id, version, evidence: LookupEvidence::Absent, lookups: 3, message };
        assert_eq!(world.wait(world.store.resolve(resolve)).unwrap().state.word(), "cancelled");
        world.admit_held("clerk", "sent after all");
        let sent = armed(world);
        end(world);
        let done = AttemptOutcome::Done { receipt: "r".into(), after: None, service_until: None, result: None };
        assert_eq!(world.finish(sent.id, sent.epoch, done).unwrap().state.word(), "done");
        world.admit_held("clerk", "of the next connection");
        let next = armed(world);
        let again = AttemptOutcome::NotDone { code: "execute.unavailable".into() };
        assert_eq!(world.finish(next.id, next.epoch, again).unwrap().state.word(), "ready", "it is not meant");
    });
}
