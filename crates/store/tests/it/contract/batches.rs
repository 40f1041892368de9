//! Batch protection: one card for everything that still waits.

use sluice_core::approval::{ApprovalAnswer, ApprovalSubject};
use sluice_core::ids::MessageId;
use sluice_core::{Action, Actor, ApprovalId, HoldId, Millis, PersonName, Tier};
use sluice_store::{
    Admission, AdmissionOutcome, ApprovalRuling, BatchChoice, DecideApproval, DecisionOutcome, JointDecisionOutcome,
};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::decision;

use crate::engines::{WINDOW, agent, asked, code, everywhere, messages};

/// Six mails in a row: five that were held, the one that tripped the window, and their card.
fn tripped(world: &TestStore) -> (Vec<HoldId>, ApprovalId) {
    let mut all: Vec<_> = (0..5).map(|n| world.admit_held("clerk", &format!("mail {n}"))).collect();
    let admitted = world.admit(world.mail("clerk", "mail 5"));
    let AdmissionOutcome::Awaiting { approval, batch: true, hold, .. } = admitted else { panic!("{admitted:?}") };
    all.push(hold);
    (all, approval)
}

/// A mail that the gateway itself sends.
fn sent(world: &TestStore, text: &str) -> Admission {
    let mail = world.mail("clerk", text);
    let (capability, arguments) = ("email.send".parse().unwrap(), serde_json::json!({"text": text}));
    Admission { action: Action::custom(capability, mail.action.agent().clone(), arguments).unwrap(), ..mail }
}

fn held(world: &TestStore, text: &str) -> HoldId {
    match world.admit(sent(world, text)) {
        AdmissionOutcome::Held { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

fn states(world: &TestStore, ids: &[HoldId]) -> Vec<&'static str> {
    ids.iter().map(|id| world.state(*id)).collect()
}

#[test]
fn the_sixth_write_in_ten_minutes_pulls_back_the_five_before_it() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        assert_eq!(states(world, &all), ["awaiting_approval"; 6]);
        let next = world.admit(world.mail("clerk", "mail 6"));
        assert!(matches!(next, AdmissionOutcome::Awaiting { approval: same, batch: true, .. } if same == approval));
        let card = world.wait(world.store.approval(approval)).unwrap().unwrap();
        assert_eq!((card.approval.subject, card.approval.items), (ApprovalSubject::Batch, 7));
        assert!(card.items.iter().map(|item| item.hold).take(6).eq(all.iter().copied()));
        let Ok(DecisionOutcome::Now { allowed, denied, .. }) =
            world.decide(approval, ApprovalRuling::Choose(BatchChoice::First(3)))
        else {
            panic!()
        };
        assert_eq!((allowed.as_slice(), denied.len()), (&all[..3], 4));
        assert_eq!(messages(world, "approval.asked").len(), 1, "one card, one message");
        world.clock.advance(WINDOW);
        assert_eq!(world.claim_due().len(), 3);
    });
}

#[test]
fn all_means_as_many_as_were_seen() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        world.admit(world.mail("clerk", "one more"));
        assert_eq!(
            code(world.decide(approval, ApprovalRuling::Choose(BatchChoice::All { seen: 6 }))),
            "approval.grown"
        );
        assert_eq!(states(world, &all), ["awaiting_approval"; 6]);
        world.decide(approval, ApprovalRuling::Choose(BatchChoice::All { seen: 7 })).unwrap();
        assert_eq!(states(world, &all), ["held"; 6]);
        world.clock.advance(WINDOW);
        assert_eq!(world.claim_due().len(), 7, "one approval, consumed once, covers them all");
    });
}

#[test]
fn exactly_the_chosen_ones_go() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        let stranger = world.admit_held("scout", "not on the card");
        let odd = ApprovalRuling::Choose(BatchChoice::These(vec![all[1], stranger]));
        assert_eq!(code(world.decide(approval, odd)), "store.not_found");
        world.decide(approval, ApprovalRuling::Choose(BatchChoice::These(vec![all[4], all[1]]))).unwrap();
        assert_eq!(states(world, &all), ["denied", "held", "denied", "denied", "held", "denied"]);
    });
}

#[test]
fn choosing_none_is_a_no() {
    everywhere(|world| {
        for ruling in [
            ApprovalRuling::Choose(BatchChoice::These(Vec::new())),
            ApprovalRuling::Choose(BatchChoice::First(0)),
            ApprovalRuling::Deny { note: None },
        ] {
            let (all, approval) = tripped(world);
            let Ok(DecisionOutcome::Now { approval, .. }) = world.decide(approval, ruling) else { panic!() };
            assert_eq!(approval.state.word(), "denied");
            assert_eq!(states(world, &all), ["denied"; 6]);
            world.clock.advance(Millis::from_mins(11));
        }
    });
}

#[test]
fn no_standing_yes_grows_out_of_a_batch() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        for answer in [ApprovalAnswer::Once, ApprovalAnswer::Session, ApprovalAnswer::Note, ApprovalAnswer::Always] {
            assert_eq!(
                code(world.decide(approval, ApprovalRuling::Allow { answer, note: None })),
                "approval.not_offered"
            );
        }
        assert_eq!(states(world, &all), ["awaiting_approval"; 6]);
        assert!(world.wait(world.store.allowances(9)).unwrap().is_empty());
    });
}

#[test]
fn a_card_choice_does_not_answer_a_single_question() {
    everywhere(|world| {
        let (_, approval) = asked(world, "clerk", "hello");
        let ruling = ApprovalRuling::Choose(BatchChoice::All { seen: 1 });
        assert_eq!(code(world.decide(approval, ruling)), "approval.not_offered");
    });
}

#[test]
fn a_cancelled_write_leaves_the_card_to_the_others() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        world.wait(world.store.cancel(all[2], agent("clerk"))).unwrap();
        let Ok(DecisionOutcome::Now { allowed, .. }) =
            world.decide(approval, ApprovalRuling::Choose(BatchChoice::All { seen: 6 }))
        else {
            panic!()
        };
        assert_eq!(allowed.len(), 5);
        assert_eq!(world.state(all[2]), "cancelled");
    });
}

#[test]
fn what_a_person_has_approved_is_not_pulled_back() {
    everywhere(|world| {
        let (approved, approval) = asked(world, "clerk", "approved");
        world.decide(approval, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }).unwrap();
        let waiting = world.admit_held("clerk", "waiting");
        let heavy = world.admit(Admission { weight: 5, ..world.mail("clerk", "heavy") });
        assert!(matches!(heavy, AdmissionOutcome::Awaiting { batch: true, .. }));
        assert_eq!((world.state(approved), world.state(waiting)), ("held", "awaiting_approval"));
    });
}

#[test]
fn another_agent_and_another_service_have_windows_of_their_own() {
    everywhere(|world| {
        tripped(world);
        world.admit_held("scout", "hello");
        let elsewhere = Admission { service: crate::engines::service("calendar"), ..world.mail("clerk", "elsewhere") };
        assert!(matches!(world.admit(elsewhere), AdmissionOutcome::Held { .. }));
    });
}

#[test]
fn silence_ends_a_whole_card_and_the_next_write_gets_a_new_one() {
    everywhere(|world| {
        let expiry = Millis::from_mins(2);
        let heavy = |text: &str| Admission { weight: 6, expiry, ..world.mail("clerk", text) };
        let AdmissionOutcome::Awaiting { hold: first, approval: old, .. } = world.admit(heavy("one")) else { panic!() };
        world.clock.advance(expiry);
        // No sweep has run.
        let AdmissionOutcome::Awaiting { hold, approval, expires_at, .. } = world.admit(heavy("two")) else { panic!() };
        assert_ne!(old, approval);
        assert_eq!(
            (expires_at, world.state(first), world.state(hold)),
            (world.now() + expiry, "expired", "awaiting_approval")
        );
    });
}

#[test]
fn a_write_that_a_rule_asks_about_is_on_no_card_with_others() {
    everywhere(|world| {
        let (_, card) = tripped(world);
        let mail = Admission { tier: Tier::ApprovalRequired, ..world.mail("clerk", "asked") };
        let AdmissionOutcome::Awaiting { approval, batch: false, hold, .. } = world.admit(mail) else { panic!() };
        assert_ne!(approval, card);
        let items = |id| world.wait(world.store.approval(id)).unwrap().unwrap().items;
        assert_eq!(items(approval).iter().map(|item| item.hold).collect::<Vec<_>>(), [hold]);
        assert_eq!(items(card).len(), 6, "the card did not grow");
        world.decide(card, ApprovalRuling::Choose(BatchChoice::All { seen: 6 })).unwrap();
        assert_eq!(world.state(hold), "awaiting_approval");
        let why = world.wait(world.store.approval_reasons(approval)).unwrap();
        assert_eq!(why.iter().map(|why| why.code.as_str()).collect::<Vec<_>>(), ["policy.rule", "batch.window"]);
        assert_eq!(world.wait(world.store.approval_reasons(card)).unwrap()[0].code, "batch.window");
        assert_eq!(messages(world, "approval.asked").len(), 2);
    });
}

#[test]
fn what_was_denied_or_cancelled_and_never_left_is_given_back_to_the_window() {
    everywhere(|world| {
        let ask = |n: usize| Admission { tier: Tier::ApprovalRequired, ..sent(world, &format!("asked {n}")) };
        for n in 0..3 {
            let AdmissionOutcome::Awaiting { approval, batch: false, .. } = world.admit(ask(n)) else { panic!() };
            world.decide(approval, ApprovalRuling::Deny { note: None }).unwrap();
        }
        for n in 0..2 {
            let hold = held(world, &format!("cancelled {n}"));
            world.wait(world.store.cancel(hold, agent("clerk"))).unwrap();
        }
        // Five were counted, and none of them left: five more fit, and not one more.
        let all: Vec<_> = (0..5).map(|n| held(world, &format!("mail {n}"))).collect();
        let sixth = world.admit(sent(world, "mail 5"));
        assert!(matches!(sixth, AdmissionOutcome::Awaiting { batch: true, .. }), "{sixth:?}");
        assert_eq!(states(world, &all), ["awaiting_approval"; 5]);
    });
}

#[test]
fn whoever_cancels_without_end_meets_the_window_all_the_same() {
    everywhere(|world| {
        for n in 0..10 {
            let hold = held(world, &format!("mail {n}"));
            world.wait(world.store.cancel(hold, agent("clerk"))).unwrap();
        }
        let next = world.admit(sent(world, "mail 10"));
        assert!(
            matches!(next, AdmissionOutcome::Awaiting { batch: true, .. }),
            "one whole window comes back, and no more"
        );
        // Other agents and other times are not affected.
        world.admit_held("helper", "mail");
        world.clock.advance(Millis::from_mins(11));
        held(world, "mail 11");
    });
}

#[test]
fn a_denied_batch_still_counts() {
    everywhere(|world| {
        let (_, card) = tripped(world);
        world.decide(card, ApprovalRuling::Choose(BatchChoice::First(0))).unwrap();
        let next = world.admit(world.mail("clerk", "again"));
        assert!(matches!(next, AdmissionOutcome::Awaiting { batch: true, .. }), "{next:?}");
    });
}

#[test]
fn a_write_that_trips_the_window_and_is_asked_about_alone_still_pulls_the_others_back() {
    everywhere(|world| {
        let all: Vec<_> = (0..5).map(|n| world.admit_held("clerk", &format!("mail {n}"))).collect();
        let mail = Admission { tier: Tier::ApprovalRequired, ..world.mail("clerk", "asked") };
        let AdmissionOutcome::Awaiting { approval, batch: false, hold, .. } = world.admit(mail) else { panic!() };
        assert_eq!(states(world, &all), ["awaiting_approval"; 5]);
        let open = world.wait(world.store.open_approvals(9)).unwrap();
        let card = open.iter().find(|open| open.id != approval).unwrap();
        assert_eq!((open.len(), card.subject, card.items), (2, ApprovalSubject::Batch, 5));
        world.decide(card.id, ApprovalRuling::Choose(BatchChoice::All { seen: 5 })).unwrap();
        assert_eq!((states(world, &all), world.state(hold)), (vec!["held"; 5], "awaiting_approval"));
        assert_eq!(messages(world, "approval.asked").len(), 2, "each approval request has its message");
    });
}

#[test]
fn a_yes_covers_only_the_digests_that_were_shown() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        let shown: Vec<_> = all.iter().map(|id| world.hold(*id).action.digest()).collect();
        let AdmissionOutcome::Awaiting { hold: late, .. } = world.admit(world.mail("clerk", "late")) else { panic!() };
        for choice in [BatchChoice::All { seen: 7 }, BatchChoice::First(7), BatchChoice::These(vec![late])] {
            let yes = DecideApproval { shown: shown.clone(), ..decision(approval, ApprovalRuling::Choose(choice)) };
            assert_eq!(code(world.wait(world.store.decide(yes))), "approval.grown");
        }
        assert_eq!(world.state(late), "awaiting_approval");
        let yes = DecideApproval { shown, ..decision(approval, ApprovalRuling::Choose(BatchChoice::First(6))) };
        world.wait(world.store.decide(yes)).unwrap();
        assert_eq!((states(world, &all), world.state(late)), (vec!["held"; 6], "denied"));
    });
}

#[test]
fn votes_for_fewer_writes_do_not_count_for_more() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        let say = |name: &str, choice| {
            let by = Actor::Person(PersonName::new(name).unwrap());
            let decision = DecideApproval { by, ..decision(approval, ApprovalRuling::Choose(choice)) };
            world.wait(world.store.decide_jointly(decision, 2)).unwrap()
        };
        assert!(matches!(say("ana", BatchChoice::All { seen: 6 }), JointDecisionOutcome::Waiting { have: 1, .. }));
        world.admit(world.mail("clerk", "one more"));
        assert!(
            matches!(say("dan", BatchChoice::All { seen: 7 }), JointDecisionOutcome::Waiting { have: 1, .. }),
            "ana saw six"
        );
        assert!(
            matches!(say("eve", BatchChoice::First(3)), JointDecisionOutcome::Waiting { have: 1, .. }),
            "neither agreed to three"
        );
        assert_eq!(states(world, &all), ["awaiting_approval"; 6]);
        assert!(matches!(
            say("ana", BatchChoice::All { seen: 7 }),
            JointDecisionOutcome::Settled(DecisionOutcome::Now { .. })
        ));
        assert_eq!(states(world, &all), ["held"; 6]);
    });
}

#[test]
fn a_letter_covers_the_writes_it_showed_and_a_question_is_shown_again_while_it_is_open() {
    everywhere(|world| {
        let (_, approval) = tripped(world);
        let store = &world.store;
        let card = || world.wait(store.approval(approval)).unwrap().unwrap();
        let before = card().items;
        let letter = world.wait(store.open_delivery(approval, ("telegram", "1"), [1; 32], &before)).unwrap();
        world.admit(world.mail("clerk", "one more"));
        let kept = world.wait(store.delivery_by_secret([1; 32])).unwrap().unwrap();
        assert_eq!((kept.covers(&before), kept.covers(&card().items), letter.items), (6, 6, 6));
        let mut other = card().items;
        other.swap(0, 6);
        assert_eq!(kept.covers(&other), 0, "a message that showed other writes covers none");
        let again = || world.wait(store.show_again(approval, MessageId::mint(world.ids.as_ref()))).unwrap();
        again();
        assert_eq!(messages(world, "approval.asked").len(), 2);
        world.decide(approval, ApprovalRuling::Deny { note: None }).unwrap();
        again();
        assert_eq!(messages(world, "approval.asked").len(), 2, "what is decided is not shown again");
    });
}
