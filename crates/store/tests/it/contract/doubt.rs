//! Uncertain outcomes: ended by proof or by a person, never by time.

use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{ApprovalId, Millis, Tier};
use sluice_store::{HoldSettlement, LookupEvidence, MessageSeverity, SettleHold};
use sluice_testkit::TestStore;

use crate::engines::{
    agent, armed, claimed, code, doubtful, everywhere, message, messages, operator, resolve, settle, settle_under,
};

const LOOKED_UP: [EffectClass; 3] = [EffectClass::Absolute, EffectClass::ConsumeOnce, EffectClass::Findable];

fn listed(world: &TestStore) -> usize {
    world.wait(world.store.doubtful_holds(world.now(), 9)).unwrap().len()
}

/// A write whose outcome only a person can tell.
fn stuck(world: &TestStore) -> Hold {
    let hold = doubtful(world, EffectClass::Opaque);
    resolve(world, &hold, LookupEvidence::Inconclusive).unwrap()
}

#[test]
fn an_absence_counts_only_after_the_service_has_settled() {
    for class in LOOKED_UP {
        everywhere(|world| {
            let hold = doubtful(world, class);
            if class.settle() > Millis::ZERO {
                world.clock.advance(Millis::from_millis(class.settle().as_millis() - 1));
                assert_eq!(listed(world), 0);
                let early = resolve(world, &hold, LookupEvidence::Absent).unwrap();
                assert!(matches!(early.state, HoldState::InDoubt { rounds: 1, .. }), "an early absence proves nothing");
                world.clock.advance(Millis::from_millis(1));
            }
            assert_eq!(listed(world), 1);
            let absent = resolve(world, &world.hold(hold.id), LookupEvidence::Absent).unwrap();
            assert_eq!(absent.state, HoldState::Ready { not_before: world.now() + Millis::from_mins(1) });
            world.clock.advance(Millis::from_mins(1));
            assert_eq!(claimed(world).attempts, 2);
        });
    }
}

#[test]
fn what_is_found_is_done() {
    for class in EffectClass::ALL {
        everywhere(|world| {
            let hold = doubtful(world, class);
            let found = resolve(
                world,
                &hold,
                LookupEvidence::Applied { receipt: "found".into(), result: None, after: None, service_until: None },
            )
            .unwrap();
            assert_eq!(found.state, HoldState::Done { receipt: "found".into(), at: world.now() });
        });
    }
}

#[test]
fn an_opaque_write_is_never_tried_again_by_itself() {
    for evidence in [LookupEvidence::Absent, LookupEvidence::Inconclusive] {
        everywhere(|world| {
            let hold = doubtful(world, EffectClass::Opaque);
            let asked = resolve(world, &hold, evidence.clone()).unwrap();
            assert_eq!(asked.state.word(), "needs_human");
            let alerts = messages(world, "hold.needs_human");
            assert_eq!((alerts.len(), alerts[0].severity), (1, MessageSeverity::Critical));
            world.clock.advance(Millis::from_hours(99));
            assert!(world.claim_due().is_empty());
            assert_eq!(listed(world), 0);
        });
    }
}

#[test]
fn three_lookups_that_prove_nothing_ask_a_person() {
    everywhere(|world| {
        let hold = doubtful(world, EffectClass::Findable);
        world.clock.advance(Millis::from_secs(120));
        let one = resolve(world, &hold, LookupEvidence::Inconclusive).unwrap();
        assert_eq!(
            code(resolve(world, &hold, LookupEvidence::Inconclusive)),
            "store.conflict",
            "each lookup counts once"
        );
        let two = resolve(world, &one, LookupEvidence::Inconclusive).unwrap();
        assert_eq!(two.state.word(), "in_doubt");
        let three = resolve(world, &two, LookupEvidence::Inconclusive).unwrap();
        assert_eq!(three.state, HoldState::NeedsHuman { code: "execute.needs_human".into() });
        assert_eq!(code(resolve(world, &three, LookupEvidence::Absent)), "store.conflict");
    });
}

#[test]
fn a_write_that_used_up_its_attempts_asks_a_person_rather_than_try_again() {
    everywhere(|world| {
        let mut hold = doubtful(world, EffectClass::Absolute);
        for _ in 0..5 {
            resolve(world, &hold, LookupEvidence::Absent).unwrap();
            world.clock.advance(Millis::from_mins(16));
            let again = claimed(world);
            world.arm(&again).unwrap();
            hold = world.finish(again.id, again.epoch, sluice_store::AttemptOutcome::Unclear).unwrap();
        }
        assert_eq!(hold.attempts, 6);
        let stuck = resolve(world, &hold, LookupEvidence::Absent).unwrap();
        assert_eq!(stuck.state, HoldState::NeedsHuman { code: "execute.attempts_used".into() });
    });
}

#[test]
fn a_person_says_that_it_happened() {
    everywhere(|world| {
        let id = stuck(world).id;
        let hold = settle(world, id, HoldSettlement::Happened { evidence: "seen in the outbox".into() }).unwrap();
        assert_eq!(hold.state, HoldState::Done { receipt: "seen in the outbox".into(), at: world.now() });
        assert_eq!(code(settle(world, id, HoldSettlement::Again)), "hold.too_late");
    });
}

#[test]
fn a_person_says_try_again() {
    everywhere(|world| {
        let id = stuck(world).id;
        let hold = settle(world, id, HoldSettlement::Again).unwrap();
        assert_eq!(hold.state, HoldState::Ready { not_before: world.now() });
        assert_eq!(claimed(world).attempts, 2, "the same write, another attempt");
    });
}

#[test]
fn a_person_gives_up_twice_until_it_is_gone() {
    everywhere(|world| {
        let id = stuck(world).id;
        let dead = settle(world, id, HoldSettlement::GiveUp).unwrap();
        assert_eq!(dead.state, HoldState::Dead { code: "execute.given_up".into(), at: world.now() });
        let gone = settle(world, id, HoldSettlement::GiveUp).unwrap();
        assert_eq!(gone.state, HoldState::Discarded { by: operator(), at: world.now() });
        assert_eq!(code(settle(world, id, HoldSettlement::GiveUp)), "hold.too_late");
        assert_eq!(code(settle_under(world, id, HoldSettlement::Again, Tier::Notify)), "hold.too_late");
    });
}

#[test]
fn a_word_counts_only_from_a_person_who_saw_the_present_state() {
    everywhere(|world| {
        let hold = stuck(world);
        let settle = |by, version| SettleHold {
            hold: hold.id,
            version,
            by,
            word: HoldSettlement::Again,
            tier: Tier::Notify,
            approval: ApprovalId::mint(world.ids.as_ref()),
            message: message(world),
            expiry: Millis::from_hours(1),
        };
        let agents = world.wait(world.store.settle(settle(agent("clerk"), hold.version)));
        assert_eq!(code(agents), "approval.not_an_approver");
        assert_eq!(code(world.wait(world.store.settle(settle(operator(), hold.version - 1)))), "store.conflict");
        assert_eq!(world.hold(hold.id), hold);
    });
}

#[test]
fn no_word_fits_a_write_that_simply_waits() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        for word in [HoldSettlement::Happened { evidence: "no".into() }, HoldSettlement::Again, HoldSettlement::GiveUp]
        {
            assert_eq!(code(settle(world, id, word)), "hold.too_late");
        }
        armed(world);
        assert_eq!(code(settle(world, id, HoldSettlement::Again)), "hold.too_late");
        assert_eq!(code(settle(world, id, HoldSettlement::GiveUp)), "hold.too_late");
    });
}
