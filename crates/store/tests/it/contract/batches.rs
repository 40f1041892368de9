//! Batch protection: one card for everything that still waits.

use sluice_core::approval::{Answer, Subject};
use sluice_core::{ApprovalId, HoldId, Span, Tier};
use sluice_store::{Admission, Admitted, Choice, Decided, Ruling};
use sluice_testkit::World;

use crate::engines::{WINDOW, agent, asked, code, everywhere, messages};

/// Six mails in a row: five that were held, the one that tripped the window, and their card.
fn tripped(world: &World) -> (Vec<HoldId>, ApprovalId) {
    let mut all: Vec<_> = (0..5).map(|n| world.held("clerk", &format!("mail {n}"))).collect();
    let admitted = world.admit(world.mail("clerk", "mail 5"));
    let Admitted::Awaiting { approval, batch: true, hold, .. } = admitted else { panic!("{admitted:?}") };
    all.push(hold);
    (all, approval)
}

fn states(world: &World, ids: &[HoldId]) -> Vec<&'static str> {
    ids.iter().map(|id| world.state(*id)).collect()
}

#[test]
fn the_sixth_write_in_ten_minutes_pulls_back_the_five_before_it() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        assert_eq!(states(world, &all), ["awaiting_approval"; 6]);
        let next = world.admit(world.mail("clerk", "mail 6"));
        assert!(matches!(next, Admitted::Awaiting { approval: same, batch: true, .. } if same == approval));
        let card = world.wait(world.store.approval(approval)).unwrap().unwrap();
        assert_eq!((card.approval.subject, card.approval.items), (Subject::Batch, 7));
        assert!(card.items.iter().map(|item| item.hold).take(6).eq(all.iter().copied()));
        let Ok(Decided::Now { allowed, denied, .. }) = world.decide(approval, Ruling::Choose(Choice::First(3))) else {
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
        assert_eq!(code(world.decide(approval, Ruling::Choose(Choice::All { seen: 6 }))), "approval.grown");
        assert_eq!(states(world, &all), ["awaiting_approval"; 6]);
        world.decide(approval, Ruling::Choose(Choice::All { seen: 7 })).unwrap();
        assert_eq!(states(world, &all), ["held"; 6]);
        world.clock.advance(WINDOW);
        assert_eq!(world.claim_due().len(), 7, "one yes, spent once, covers them all");
    });
}

#[test]
fn exactly_the_chosen_ones_go() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        let stranger = world.held("scout", "not on the card");
        let odd = Ruling::Choose(Choice::These(vec![all[1], stranger]));
        assert_eq!(code(world.decide(approval, odd)), "store.not_found");
        world.decide(approval, Ruling::Choose(Choice::These(vec![all[4], all[1]]))).unwrap();
        assert_eq!(states(world, &all), ["denied", "held", "denied", "denied", "held", "denied"]);
    });
}

#[test]
fn choosing_none_is_a_no() {
    everywhere(|world| {
        for ruling in
            [Ruling::Choose(Choice::These(Vec::new())), Ruling::Choose(Choice::First(0)), Ruling::Deny { note: None }]
        {
            let (all, approval) = tripped(world);
            let Ok(Decided::Now { approval, .. }) = world.decide(approval, ruling) else { panic!() };
            assert_eq!(approval.state.word(), "denied");
            assert_eq!(states(world, &all), ["denied"; 6]);
            world.clock.advance(Span::from_mins(11));
        }
    });
}

#[test]
fn no_standing_yes_grows_out_of_a_batch() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        for answer in [Answer::Once, Answer::Session, Answer::Note, Answer::Always] {
            assert_eq!(code(world.decide(approval, Ruling::Allow { answer, note: None })), "approval.not_offered");
        }
        assert_eq!(states(world, &all), ["awaiting_approval"; 6]);
        assert!(world.wait(world.store.allowances(9)).unwrap().is_empty());
    });
}

#[test]
fn a_card_choice_does_not_answer_a_single_question() {
    everywhere(|world| {
        let (_, approval) = asked(world, "clerk", "hello");
        let ruling = Ruling::Choose(Choice::All { seen: 1 });
        assert_eq!(code(world.decide(approval, ruling)), "approval.not_offered");
    });
}

#[test]
fn a_cancelled_write_leaves_the_card_to_the_others() {
    everywhere(|world| {
        let (all, approval) = tripped(world);
        world.wait(world.store.cancel(all[2], agent("clerk"))).unwrap();
        let Ok(Decided::Now { allowed, .. }) = world.decide(approval, Ruling::Choose(Choice::All { seen: 6 })) else {
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
        world.decide(approval, Ruling::Allow { answer: Answer::Once, note: None }).unwrap();
        let waiting = world.held("clerk", "waiting");
        let heavy = world.admit(Admission { weight: 5, ..world.mail("clerk", "heavy") });
        assert!(matches!(heavy, Admitted::Awaiting { batch: true, .. }));
        assert_eq!((world.state(approved), world.state(waiting)), ("held", "awaiting_approval"));
    });
}

#[test]
fn another_agent_and_another_service_have_windows_of_their_own() {
    everywhere(|world| {
        tripped(world);
        world.held("scout", "hello");
        let elsewhere = Admission { service: crate::engines::service("calendar"), ..world.mail("clerk", "elsewhere") };
        assert!(matches!(world.admit(elsewhere), Admitted::Held { .. }));
    });
}

#[test]
fn silence_ends_a_whole_card_and_the_next_write_gets_a_new_one() {
    everywhere(|world| {
        let expiry = Span::from_mins(2);
        let heavy = |text: &str| Admission { weight: 6, expiry, ..world.mail("clerk", text) };
        let Admitted::Awaiting { hold: first, approval: old, .. } = world.admit(heavy("one")) else { panic!() };
        world.clock.advance(expiry);
        // No sweep came by.
        let Admitted::Awaiting { hold, approval, expires_at, .. } = world.admit(heavy("two")) else { panic!() };
        assert_ne!(old, approval);
        assert_eq!(
            (expires_at, world.state(first), world.state(hold)),
            (world.now() + expiry, "expired", "awaiting_approval")
        );
    });
}

#[test]
fn a_write_that_needs_a_yes_anyway_joins_the_card_too() {
    everywhere(|world| {
        let (_, approval) = tripped(world);
        let mail = Admission { tier: Tier::ApprovalRequired, ..world.mail("clerk", "asked") };
        assert!(
            matches!(world.admit(mail), Admitted::Awaiting { approval: same, batch: true, .. } if same == approval)
        );
    });
}
