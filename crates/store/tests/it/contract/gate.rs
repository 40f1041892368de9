//! Requests of the approval API, changed actions, second approvers, and where approval requests were shown.

use sluice_core::approval::allowance::{
    Allowance, AllowanceBounds, AllowanceCoverage, AllowanceScope, AllowanceSession, AllowanceState, ApprovalRequester,
};
use sluice_core::approval::{ApprovalAnswer, ApprovalState};
use sluice_core::ids::{AllowanceId, MessageId, RuleId};
use sluice_core::{Actor, AgentName, ApprovalId, CallId, HoldId, Millis, PersonName, ServiceName, Tier};
use sluice_store::{
    Admission, AmendApproval, AmendmentOutcome, ApprovalRuling, ClientApprovalRequest, ClientRequestOutcome,
    DecideApproval, DecisionOutcome, FiledClientRequest, JointDecisionOutcome, ProposedAnswer, SubmitClientRequest,
};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::{ana, decision};

use crate::engines::{WINDOW, agent, asked, claimed, code, everywhere, operator};

pub(super) fn wish(session: &str, preview: &str) -> ClientApprovalRequest {
    ClientApprovalRequest {
        client: "0123456789ab".into(),
        session: session.into(),
        action_type: "exec_cmd".into(),
        title: "Run".into(),
        preview: preview.into(),
        options: Vec::new(),
        channel: Some("telegram".into()),
        place: Some("1".into()),
    }
}

fn new(world: &TestStore, request: ClientApprovalRequest, name: Option<&str>) -> SubmitClientRequest {
    SubmitClientRequest {
        approval: ApprovalId::mint(world.ids.as_ref()),
        message: MessageId::mint(world.ids.as_ref()),
        agent: AgentName::new("clerk").unwrap(),
        service: ServiceName::new("approvals").unwrap(),
        request,
        name: name.map(str::to_owned),
        expiry: Millis::from_mins(10),
    }
}

pub(super) fn file(world: &TestStore, request: ClientApprovalRequest) -> FiledClientRequest {
    match world.wait(world.store.submit_client_request(new(world, request, None))).unwrap() {
        ClientRequestOutcome::Asked(filed) => filed,
        other => panic!("{other:?}"),
    }
}

fn always(world: &TestStore) -> Allowance {
    Allowance {
        id: AllowanceId::mint(world.ids.as_ref()),
        scope: AllowanceScope::Standing { rule: RuleId::mint(world.ids.as_ref()) },
        asker: ApprovalRequester::Client("0123456789ab".into()),
        covers: AllowanceCoverage::ActionType("exec_cmd".into()),
        bounds: AllowanceBounds::default(),
        given_at: world.now(),
        used: Default::default(),
        standing: AllowanceState::Active,
    }
}

#[test]
fn a_request_is_asked_once_and_answered_once() {
    everywhere(|world| {
        let filed = file(world, wish("s", "one"));
        let again = world.wait(world.store.submit_client_request(new(world, wish("s", "one"), None))).unwrap();
        assert_eq!(again, ClientRequestOutcome::Again(filed.clone()));
        let id = filed.approval.id;
        let Ok(DecisionOutcome::Now { approval, .. }) = world.decide(id, ApprovalRuling::Reword("npm test".into()))
        else {
            panic!()
        };
        assert!(matches!(approval.state, ApprovalState::Approved { answer: ApprovalAnswer::Amend, .. }));
        let kept = world.wait(world.store.client_request(id)).unwrap().unwrap();
        assert_eq!((kept.reworded.as_deref(), kept.approval.state), (Some("npm test"), approval.state));
        assert!(matches!(world.decide(id, ApprovalRuling::Deny { note: None }), Ok(DecisionOutcome::Already(_))));
        assert_ne!(file(world, wish("s", "one")).approval.id, id, "an approval given once does not cover the next");
    });
}

#[test]
fn a_name_is_one_request_for_good() {
    everywhere(|world| {
        let ClientRequestOutcome::Asked(first) =
            world.wait(world.store.submit_client_request(new(world, wish("s", "a"), Some("k")))).unwrap()
        else {
            panic!()
        };
        world.decide(first.approval.id, ApprovalRuling::Deny { note: None }).unwrap();
        let ClientRequestOutcome::Again(again) =
            world.wait(world.store.submit_client_request(new(world, wish("s", "a"), Some("k")))).unwrap()
        else {
            panic!()
        };
        assert_eq!((again.approval.id, again.approval.state.word()), (first.approval.id, "denied"));
        let other = world.wait(world.store.submit_client_request(new(world, wish("s", "b"), Some("k"))));
        assert_eq!(code(other), "call.key_reuse");
    });
}

#[test]
fn what_was_approved_is_not_repeated_as_approved_while_it_is_frozen() {
    everywhere(|world| {
        let ask = |preview: &str, name: Option<&str>| {
            world.wait(world.store.submit_client_request(new(world, wish("s", preview), name)))
        };
        let ClientRequestOutcome::Asked(first) = ask("a", Some("k")).unwrap() else { panic!() };
        let ClientRequestOutcome::Asked(open) = ask("b", None).unwrap() else { panic!() };
        world.decide(first.approval.id, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }).unwrap();
        let scope = sluice_store::FreezeTarget::All;
        world.wait(world.store.freeze(scope.clone(), operator(), String::new())).unwrap();
        assert_eq!(code(ask("a", Some("k"))), "freeze.active");
        assert!(
            matches!(ask("b", None), Ok(ClientRequestOutcome::Again(filed)) if filed.approval.id == open.approval.id)
        );
        world.wait(world.store.unfreeze(scope, operator())).unwrap();
        assert!(matches!(ask("a", Some("k")), Ok(ClientRequestOutcome::Again(filed)) if filed.is_approved()));
    });
}

#[test]
fn a_rule_answers_before_a_session_and_until_it_is_revoked() {
    everywhere(|world| {
        let filed = file(world, wish("s", "a"));
        let session = Allowance {
            id: AllowanceId::mint(world.ids.as_ref()),
            scope: AllowanceScope::Session { session: AllowanceSession::Claimed("s".into()) },
            ..always(world)
        };
        let ruling = ApprovalRuling::Allow { answer: ApprovalAnswer::Session, note: None };
        let given = DecideApproval { allowance: Some(session), ..decision(filed.approval.id, ruling) };
        world.wait(world.store.decide(given)).unwrap();
        let answer = |session: &str, preview: &str| {
            let taken =
                world.wait(world.store.submit_client_request(new(world, wish(session, preview), None))).unwrap();
            match taken {
                ClientRequestOutcome::Answered(filed) => match filed.approval.state {
                    ApprovalState::Approved { answer, .. } => answer.code(),
                    other => panic!("{other:?}"),
                },
                ClientRequestOutcome::Asked(_) | ClientRequestOutcome::Again(_) => "asked",
            }
        };
        assert_eq!((answer("s", "b"), answer("t", "b")), ("2", "asked"));
        let rule = always(world);
        assert_eq!(code(world.wait(world.store.grant(rule.clone(), agent("clerk")))), "approval.not_an_approver");
        world.wait(world.store.grant(rule.clone(), operator())).unwrap();
        assert_eq!((answer("s", "c"), answer("t", "c")), ("6", "6"));
        let AllowanceScope::Standing { rule } = rule.scope else { panic!() };
        let stranger = Some(ApprovalRequester::Client("ffffffffffff".into()));
        assert_eq!(code(world.wait(world.store.revoke_rule(rule, stranger, agent("x")))), "store.not_found");
        world
            .wait(world.store.revoke_rule(rule, Some(ApprovalRequester::Client("0123456789ab".into())), agent("clerk")))
            .unwrap();
        assert_eq!(code(world.wait(world.store.revoke_rule(rule, None, operator()))), "store.not_found");
        assert_eq!((answer("s", "d"), answer("t", "d")), ("2", "asked"));
        let choice = ClientApprovalRequest { options: vec!["A".into()], ..wish("s", "e") };
        let taken = world.wait(world.store.submit_client_request(new(world, choice, None))).unwrap();
        assert!(matches!(taken, ClientRequestOutcome::Asked(_)), "a choice cannot be answered in advance");
    });
}

#[test]
fn two_different_people_are_two_and_one_no_is_enough() {
    everywhere(|world| {
        let yes = || ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None };
        let (hold, approval) = asked(world, "clerk", "x");
        let by = |by: Actor| DecideApproval { by, ..decision(approval, yes()) };
        let jointly = |decision: DecideApproval| world.wait(world.store.decide_jointly(decision, 2)).unwrap();
        for _ in 0..2 {
            assert!(matches!(jointly(by(ana())), JointDecisionOutcome::Waiting { have: 1, need: 2, .. }));
        }
        let Actor::Person(name) = ana() else { panic!() };
        assert!(
            matches!(jointly(by(Actor::Operator(name))), JointDecisionOutcome::Waiting { .. }),
            "the same person, another way"
        );
        assert_eq!(world.state(hold), "awaiting_approval");
        let dan = Actor::Person(PersonName::new("dan").unwrap());
        assert!(matches!(jointly(by(dan)), JointDecisionOutcome::Settled(DecisionOutcome::Now { .. })));
        assert_eq!(world.state(hold), "held");
        assert!(matches!(jointly(by(ana())), JointDecisionOutcome::Settled(DecisionOutcome::Already(_))));
        let (hold, approval) = asked(world, "clerk", "y");
        let no = decision(approval, ApprovalRuling::Deny { note: None });
        assert!(matches!(jointly(no), JointDecisionOutcome::Settled(DecisionOutcome::Now { .. })));
        assert_eq!(world.state(hold), "denied");
    });
}

#[test]
fn a_changed_action_takes_the_place_of_the_one_asked_about() {
    everywhere(|world| {
        let (old, approval) = asked(world, "clerk", "first words");
        let changed = |world: &TestStore| {
            let call = CallId::mint(world.ids.as_ref());
            Admission {
                call,
                hold: HoldId::from_bits(call.bits()),
                tier: Tier::ApprovalRequired,
                ..world.mail("clerk", "other words")
            }
        };
        let amendment = |by: Actor| AmendApproval { approval, by, channel: "cli".into(), changed: changed(world) };
        assert_eq!(code(world.wait(world.store.amend(amendment(agent("clerk"))))), "approval.not_an_approver");
        let done = world.wait(world.store.amend(amendment(ana()))).unwrap();
        let AmendmentOutcome::Now { old: ended, new } = done else { panic!("{done:?}") };
        assert_eq!((ended, world.state(old), world.state(new.id)), (old, "denied", "held"));
        assert_eq!(new.call, world.hold(old).call, "it belongs to the same call");
        let card = world.wait(world.store.approval(approval)).unwrap().unwrap();
        let ApprovalState::Superseded { replacement, .. } = card.approval.state else { panic!("{card:?}") };
        assert_eq!(new.consent, Some(replacement));
        assert!(matches!(world.wait(world.store.amend(amendment(ana()))), Ok(AmendmentOutcome::Already(_))));
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        assert_eq!((hold.id, hold.action.digest()), (new.id, new.action.digest()));
        world.arm(&hold).unwrap();
    });
}

#[test]
fn a_letter_keeps_why_it_was_not_taken_and_an_answer_waits_to_be_confirmed() {
    everywhere(|world| {
        let filed = file(world, wish("s", "a"));
        let (id, store) = (filed.approval.id, &world.store);
        let last = |world: &TestStore| world.wait(store.deliveries(id)).unwrap().pop().unwrap();
        let letter = world.wait(store.open_delivery(id, ("email", "a@b.c"), [1; 32], &[])).unwrap();
        let next = world.now() + Millis::from_secs(4);
        world.wait(store.record_delivery_failed(letter.clone(), "not reached", next)).unwrap();
        let kept = last(world);
        assert_eq!(
            (kept.shown.as_str(), kept.reason.as_deref(), kept.next_at),
            ("failed", Some("not reached"), Some(next))
        );
        world.wait(store.record_delivery_refused(letter.clone(), "refused (550)")).unwrap();
        let kept = last(world);
        assert_eq!(
            (kept.shown.as_str(), kept.reason.as_deref(), kept.next_at),
            ("refused", Some("refused (550)"), None)
        );
        world.wait(store.record_delivery_sent(letter, "m".into())).unwrap();
        assert_eq!((last(world).reason, last(world).shown.as_str()), (None, "pending"));
        let answer = |n: u128| ProposedAnswer {
            id: MessageId::from_bits(n),
            approval: id,
            channel: "email".into(),
            place: "a@b.c".into(),
            code: "5".into(),
            words: "kubectl delete pod x\n--dry-run".into(),
            made_at: world.now(),
        };
        for n in 0..5 {
            assert!(world.wait(store.propose_answer(answer(900 + n))).unwrap());
        }
        assert!(!world.wait(store.propose_answer(answer(905))).unwrap(), "a loop of two programs ends");
        let found = world.wait(store.proposed_answer(MessageId::from_bits(902))).unwrap().unwrap();
        assert_eq!(found, answer(902));
        let due = world.wait(store.due_messages(world.now(), 99)).unwrap();
        assert_eq!(due.iter().filter(|due| due.message.topic == "approval.confirm").count(), 5, "each is sent back");
        assert!(due.iter().all(|due| !due.message.body.to_string().contains("kubectl")), "without its words");
        let back = (&[][..], Some(found.id));
        world.wait(store.open_confirmation_delivery(id, ("email", "a@b.c"), [2; 32], back)).unwrap();
        assert_eq!(world.wait(store.delivery_by_secret([2; 32])).unwrap().unwrap().proposal, Some(found.id));
        assert_eq!(world.wait(store.proposed_answer(MessageId::from_bits(905))).unwrap(), None);
    });
}

#[test]
fn an_attempt_to_show_a_question_is_found_by_its_secret_and_its_name() {
    everywhere(|world| {
        let filed = file(world, wish("s", "a"));
        let (id, store) = (filed.approval.id, &world.store);
        let first = world.wait(store.open_delivery(id, ("telegram", "1"), [1; 32], &[])).unwrap();
        let second = world.wait(store.open_delivery(id, ("telegram", "1"), [2; 32], &[])).unwrap();
        assert_eq!((first.attempt, second.attempt), (0, 1));
        world.wait(store.record_delivery_sent(second.clone(), "77".into())).unwrap();
        let found = world.wait(store.delivery_by_secret([1; 32])).unwrap().unwrap();
        assert_eq!((found.attempt, found.message), (0, None), "what was sent before a crash still works");
        let found = world.wait(store.delivery_by_message("telegram", "1", "77")).unwrap().unwrap();
        assert_eq!((found.approval, found.attempt), (id, 1));
        for (channel, place, name) in [("telegram", "2", "77"), ("email", "1", "77"), ("telegram", "1", "78")] {
            assert_eq!(world.wait(store.delivery_by_message(channel, place, name)).unwrap(), None);
        }
        assert_eq!(world.wait(store.delivery_by_secret([3; 32])).unwrap(), None);
        assert!(world.wait(store.stale_deliveries(9)).unwrap().is_empty());
        world.decide(id, ApprovalRuling::Deny { note: None }).unwrap();
        let stale = world.wait(store.stale_deliveries(9)).unwrap();
        assert_eq!(stale.len(), 1);
        world.wait(store.record_delivery_shown(stale[0].clone(), "denied")).unwrap();
        assert!(world.wait(store.stale_deliveries(9)).unwrap().is_empty());
        assert_eq!(
            world.wait(store.count_shown_since("telegram", "1", world.now() - Millis::from_hours(1))).unwrap(),
            2
        );
    });
}

#[test]
fn a_message_is_taken_by_one() {
    everywhere(|world| {
        file(world, wish("s", "a"));
        let due = world.wait(world.store.due_messages(world.now(), 9)).unwrap();
        let (id, until) = (due[0].message.id, world.now() + Millis::from_mins(1));
        assert!(world.wait(world.store.claim_outbox_message(id, 0, until)).unwrap());
        assert!(!world.wait(world.store.claim_outbox_message(id, 0, until)).unwrap());
        assert!(world.wait(world.store.due_messages(world.now(), 9)).unwrap().is_empty(), "another node has taken it");
        world.clock.advance(Millis::from_mins(1));
        assert_eq!(world.wait(world.store.due_messages(world.now(), 9)).unwrap()[0].attempts, 1, "until they fail");
        world.wait(world.store.mark_delivered(id)).unwrap();
        assert!(!world.wait(world.store.claim_outbox_message(id, 1, until)).unwrap());
    });
}

#[test]
fn the_same_news_are_heard_once() {
    everywhere(|world| {
        let store = &world.store;
        assert!(!world.wait(store.has_channel_news("telegram", "update:1")).unwrap());
        world.wait(store.record_channel_news("telegram", "update:1", None)).unwrap();
        world.wait(store.record_channel_news("telegram", "update:1", None)).unwrap();
        assert!(world.wait(store.has_channel_news("telegram", "update:1")).unwrap());
        assert!(!world.wait(store.has_channel_news("email", "update:1")).unwrap());
        world.wait(store.set_channel_mark("telegram", "2@0".into())).unwrap();
        world.wait(store.set_channel_mark("telegram", "3@0".into())).unwrap();
        assert_eq!(world.wait(store.channel_mark("telegram")).unwrap().as_deref(), Some("3@0"));
        assert_eq!(world.wait(store.channel_mark("email")).unwrap(), None);
    });
}
