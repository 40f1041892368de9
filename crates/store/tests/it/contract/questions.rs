//! Approval requests: one decision each, made by a person, in time.

use sluice_core::approval::{ApprovalAnswer, ApprovalState, DEFAULT_EXPIRY};
use sluice_core::hold::HoldState;
use sluice_core::{Actor, ApprovalId, Digest, Millis, NodeName, Tier};
use sluice_store::{
    Admission, AdmissionOutcome, ApprovalRuling, AttemptOutcome, DecideApproval, DecisionOutcome, HoldSettlement,
    PolicyRecheck, WriteClaimOutcome,
};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::{ana, decision, done};

use crate::engines::{
    WINDOW, agent, asked, claimed, code, everywhere, messages, not_done, operator, recorded, refused, settle_under,
};

fn yes() -> ApprovalRuling {
    ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }
}

fn no() -> ApprovalRuling {
    ApprovalRuling::Deny { note: None }
}

fn standing(world: &TestStore, id: ApprovalId) -> &'static str {
    world.wait(world.store.approval(id)).unwrap().unwrap().approval.state.word()
}

/// Claims the one due write with this second judgement of policy.
fn rechecked(world: &TestStore, recheck: &PolicyRecheck) -> WriteClaimOutcome {
    let due = world.wait(world.store.due_holds(world.now(), 9)).unwrap();
    let mut claims = world.claims(&due);
    claims.items.iter_mut().for_each(|item| item.recheck = recheck.clone());
    world.wait(world.store.claim(claims)).unwrap().remove(0)
}

#[test]
fn the_undo_window_starts_at_the_decision() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        world.clock.advance(Millis::from_mins(20));
        assert!(world.claim_due().is_empty(), "nobody has answered");
        let Ok(DecisionOutcome::Now { approval: decided, allowed, denied }) = world.decide(approval, yes()) else {
            panic!()
        };
        assert_eq!((allowed, denied), (vec![id], vec![]));
        assert!(matches!(decided.state, ApprovalState::Approved { ref by, .. } if *by == ana()));
        assert_eq!(world.hold(id).state, HoldState::Held { not_before: world.now() + WINDOW });
        assert!(world.claim_due().is_empty());
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        assert_eq!(hold.consent, Some(approval));
        assert_eq!(standing(world, approval), "consumed");
    });
}

#[test]
fn a_no_ends_the_write() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        let Ok(DecisionOutcome::Now { denied, .. }) = world.decide(approval, no()) else { panic!() };
        assert_eq!((denied, world.state(id), standing(world, approval)), (vec![id], "denied", "denied"));
        assert!(world.wait(world.store.open_approvals(9)).unwrap().is_empty());
    });
}

#[test]
fn the_second_answer_changes_nothing_and_says_what_the_first_was() {
    everywhere(|world| {
        for (first, second, word) in [(yes(), no(), "approved"), (no(), yes(), "denied")] {
            let (id, approval) = asked(world, "clerk", word);
            world.decide(approval, first).unwrap();
            let before = world.hold(id);
            let Ok(DecisionOutcome::Already(found)) = world.decide(approval, second) else { panic!() };
            assert_eq!(found.state.word(), word);
            assert_eq!(world.hold(id), before);
        }
        assert_eq!(recorded(world, "approval.approved") + recorded(world, "approval.denied"), 2);
    });
}

#[test]
fn no_credential_of_an_agent_or_a_node_decides() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        for by in [agent("clerk"), agent("scout"), Actor::Node(NodeName::new("gw-1").unwrap())] {
            let answer = world.wait(world.store.decide(DecideApproval { by, ..decision(approval, yes()) }));
            assert_eq!(code(answer), "approval.not_an_approver");
        }
        assert_eq!((world.state(id), standing(world, approval)), ("awaiting_approval", "pending"));
        world.wait(world.store.decide(DecideApproval { by: operator(), ..decision(approval, yes()) })).unwrap();
        assert_eq!(world.state(id), "held");
    });
}

#[test]
fn a_note_travels_with_either_answer() {
    everywhere(|world| {
        let note = Some("mind the date".to_owned());
        let rulings = [
            ApprovalRuling::Allow { answer: ApprovalAnswer::Note, note: note.clone() },
            ApprovalRuling::Deny { note: note.clone() },
        ];
        for (n, ruling) in rulings.into_iter().enumerate() {
            let (_, approval) = asked(world, "clerk", &format!("mail {n}"));
            world.decide(approval, ruling).unwrap();
            assert_eq!(world.wait(world.store.approval(approval)).unwrap().unwrap().approval.note, note);
        }
    });
}

#[test]
fn an_answer_the_card_does_not_offer_is_refused_and_leaves_it_open() {
    everywhere(|world| {
        let (_, approval) = asked(world, "clerk", "hello");
        for answer in [ApprovalAnswer::Deny, ApprovalAnswer::Amend] {
            let ruling = ApprovalRuling::Allow { answer, note: None };
            assert_eq!(code(world.decide(approval, ruling)), "approval.not_offered");
        }
        let other = DecideApproval { shown: vec![Digest::of(b"something else")], ..decision(approval, yes()) };
        assert_eq!(code(world.wait(world.store.decide(other))), "store.conflict");
        assert_eq!(standing(world, approval), "pending");
        assert_eq!(code(world.decide(ApprovalId::from_bits(99), yes())), "store.not_found");
    });
}

#[test]
fn silence_is_a_no_found_by_the_sweep() {
    everywhere(|world| {
        let (first, one) = asked(world, "clerk", "one");
        let (second, two) = asked(world, "clerk", "two");
        world.clock.advance(Millis::from_millis(DEFAULT_EXPIRY.as_millis() - 1));
        assert!(world.wait(world.store.expire_approvals(9)).unwrap().is_empty());
        world.clock.advance(Millis::from_millis(1));
        assert_eq!(world.wait(world.store.expire_approvals(9)).unwrap(), [one, two]);
        assert_eq!((world.state(first), world.state(second)), ("expired", "expired"));
        assert!(matches!(world.decide(one, yes()), Ok(DecisionOutcome::Already(_))));
    });
}

#[test]
fn silence_is_a_no_even_before_the_sweep_came_by() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        world.clock.advance(DEFAULT_EXPIRY);
        let Ok(DecisionOutcome::Already(found)) = world.decide(approval, yes()) else { panic!() };
        assert_eq!((found.state.word(), world.state(id)), ("expired", "expired"));
    });
}

#[test]
fn a_cancelled_write_takes_its_question_or_its_yes_with_it() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "asked");
        world.wait(world.store.cancel(id, agent("clerk"))).unwrap();
        assert_eq!(standing(world, approval), "withdrawn");
        assert!(matches!(world.decide(approval, yes()), Ok(DecisionOutcome::Already(_))));
        let (id, approval) = asked(world, "clerk", "approved");
        world.decide(approval, yes()).unwrap();
        world.wait(world.store.cancel(id, agent("clerk"))).unwrap();
        assert_eq!(standing(world, approval), "revoked");
    });
}

#[test]
fn a_yes_that_lapsed_is_asked_again() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        world.decide(approval, yes()).unwrap();
        world.clock.advance(Millis::from_mins(15));
        let claimed = world.claim_due();
        let [WriteClaimOutcome::Asked(same, fresh)] = claimed.as_slice() else { panic!("{claimed:?}") };
        assert_eq!(*same, id);
        assert_eq!((standing(world, approval), standing(world, *fresh)), ("lapsed", "pending"));
        assert_eq!(messages(world, "approval.asked").len(), 2);
        world.decide(*fresh, yes()).unwrap();
        assert_eq!(world.hold(id).state, HoldState::Held { not_before: world.now() + WINDOW });
    });
}

#[test]
fn a_retry_runs_under_the_yes_of_the_first_attempt_while_it_lasts() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        world.decide(approval, yes()).unwrap();
        world.clock.advance(WINDOW);
        let first = claimed(world);
        world.finish(id, first.epoch, not_done()).unwrap();
        world.clock.advance(Millis::from_mins(1));
        let second = claimed(world);
        assert_eq!((second.attempts, second.consent), (2, Some(approval)));
        assert_eq!(recorded(world, "approval.consumed"), 1, "consuming twice is one use");
        world.arm(&second).unwrap();
        world.finish(id, second.epoch, done("r")).unwrap();
    });
}

#[test]
fn whoever_claims_too_early_spends_no_yes() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        world.decide(approval, yes()).unwrap();
        let hold = world.hold(id);
        let early = world.wait(world.store.claim(world.claims(&[hold]))).unwrap();
        assert_eq!(early, [WriteClaimOutcome::Lost(id)]);
        assert_eq!((world.state(id), standing(world, approval)), ("held", "approved"));
    });
}

#[test]
fn a_stricter_policy_at_claim_asks_a_person_and_takes_the_old_yes_back() {
    everywhere(|world| {
        let (code, expiry) = ("policy.approval_required".into(), Millis::from_mins(5));
        let recheck = PolicyRecheck::Ask { code, expiry, reasons: Vec::new(), action: None };
        let plain = world.admit_held("clerk", "never asked");
        world.clock.advance(WINDOW);
        let WriteClaimOutcome::Asked(same, fresh) = rechecked(world, &recheck) else { panic!() };
        assert_eq!((same, world.state(plain)), (plain, "awaiting_approval"));
        world.decide(fresh, no()).unwrap();
        let (_, approval) = asked(world, "clerk", "asked before");
        world.decide(approval, yes()).unwrap();
        world.clock.advance(WINDOW);
        let WriteClaimOutcome::Asked(_, fresh) = rechecked(world, &recheck) else { panic!() };
        assert_eq!((standing(world, approval), standing(world, fresh)), ("revoked", "pending"));
        world.clock.advance(Millis::from_mins(5));
        assert_eq!(world.wait(world.store.expire_approvals(9)).unwrap(), [fresh]);
    });
}

#[test]
fn a_changed_state_at_claim_ends_the_approval_and_asks_about_the_new_state() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "copy a to b");
        world.decide(approval, yes()).unwrap();
        world.clock.advance(WINDOW);
        let shown = world.hold(id).action;
        let changed = shown.with_found(vec!["a: 4 bytes".into()]);
        let ask = |action: &sluice_core::Action| PolicyRecheck::Ask {
            code: "files.changed".into(),
            expiry: Millis::from_mins(5),
            reasons: Vec::new(),
            action: Some(Box::new(action.clone())),
        };
        let WriteClaimOutcome::Asked(same, fresh) = rechecked(world, &ask(&changed)) else { panic!() };
        assert_eq!((same, world.state(id)), (id, "awaiting_approval"));
        assert_eq!((standing(world, approval), standing(world, fresh)), ("revoked", "pending"));
        assert_eq!(world.hold(id).action, changed);
        let card = world.wait(world.store.approval(fresh)).unwrap().unwrap();
        assert_eq!(card.items[0].digest, changed.digest());
        world.decide(fresh, yes()).unwrap();
        world.clock.advance(WINDOW);
        // The call itself is never exchanged for another one.
        let (other, _) = asked(world, "clerk", "something else");
        let other = world.hold(other).action;
        let hold = world.hold(id);
        let mut claims = world.claims(&[hold]);
        claims.items[0].recheck = ask(&other);
        assert!(world.wait(world.store.claim(claims)).is_err());
        assert_eq!(world.hold(id).action, changed);
    });
}

#[test]
fn what_policy_forbids_now_never_leaves() {
    everywhere(|world| {
        let (id, approval) = asked(world, "clerk", "hello");
        world.decide(approval, yes()).unwrap();
        world.clock.advance(WINDOW);
        let blocked = rechecked(world, &PolicyRecheck::Block { code: "policy.blocked".into() });
        assert_eq!(blocked, WriteClaimOutcome::Blocked(id));
        assert_eq!((world.state(id), standing(world, approval)), ("blocked", "revoked"));
    });
}

#[test]
fn open_questions_are_listed_by_urgency() {
    everywhere(|world| {
        let mut ids = Vec::new();
        for minutes in [30, 10, 20] {
            let expiry = Millis::from_mins(minutes);
            let mail = world.mail("clerk", &format!("mail {minutes}"));
            let admitted = world.admit(Admission { tier: Tier::ApprovalRequired, expiry, ..mail });
            let AdmissionOutcome::Awaiting { approval, .. } = admitted else { panic!() };
            ids.push(approval);
        }
        let open: Vec<_> = world.wait(world.store.open_approvals(2)).unwrap().into_iter().map(|open| open.id).collect();
        assert_eq!(open, [ids[1], ids[2]]);
    });
}

#[test]
fn an_old_question_does_not_speak_for_a_write_that_is_asked_about_anew() {
    everywhere(|world| {
        let (id, old) = asked(world, "clerk", "hello");
        world.wait(world.store.require_person_after_restore(sluice_core::HoldId::from_bits(0), 9)).unwrap();
        assert_eq!(world.state(id), "stale");
        let hold = settle_under(world, id, HoldSettlement::Again, Tier::ApprovalRequired).unwrap();
        let HoldState::AwaitingApproval { approval: fresh } = hold.state else { panic!("{hold:?}") };
        world.decide(old, yes()).unwrap();
        assert_eq!(world.state(id), "awaiting_approval", "the answer was to a question from before");
        world.decide(fresh, no()).unwrap();
        assert_eq!(world.state(id), "denied");
    });
}

#[test]
fn a_dead_letter_is_revived_through_a_person_where_policy_wants_one() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        world.finish(id, hold.epoch, refused()).unwrap();
        assert_eq!(code(settle_under(world, id, HoldSettlement::Again, Tier::Blocked)), "approval.not_offered");
        let revived = settle_under(world, id, HoldSettlement::Again, Tier::ApprovalRequired).unwrap();
        let HoldState::AwaitingApproval { approval } = revived.state else { panic!("{revived:?}") };
        assert_eq!(revived.attempts, 0);
        world.decide(approval, yes()).unwrap();
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        assert_eq!(hold.attempts, 1);
        world.finish(id, hold.epoch, AttemptOutcome::GivenBack).unwrap();
    });
}
