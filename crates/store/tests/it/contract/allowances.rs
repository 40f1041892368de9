//! Standing approvals: created by answers 2 and 6, used by admissions, revoked by people.

use sluice_core::approval::ApprovalAnswer;
use sluice_core::approval::allowance::{
    Allowance, AllowanceBounds, AllowanceCoverage, AllowanceScope, AllowanceSession, AllowanceState, AllowanceUsage,
    ApprovalRequester,
};
use sluice_core::approval::bound::BoundedCall;
use sluice_core::ids::{AllowanceId, RuleId, SessionId};
use sluice_core::{AgentName, Millis};
use sluice_store::{Admission, AdmissionOutcome, AllowanceUse, ApprovalRuling, DecideApproval};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::{ana, decision};

use crate::engines::{across_restarts, asked, code, everywhere, messages, question};

fn asker() -> ApprovalRequester {
    ApprovalRequester::Agent(AgentName::new("clerk").unwrap())
}

pub(super) fn always(world: &TestStore, uses_left: Option<u32>) -> Allowance {
    Allowance {
        id: AllowanceId::mint(world.ids.as_ref()),
        scope: AllowanceScope::Standing { rule: RuleId::mint(world.ids.as_ref()) },
        asker: asker(),
        covers: AllowanceCoverage::Capability("custom:mail".parse().unwrap()),
        bounds: AllowanceBounds {
            expires_at: Some(world.now() + Millis::from_hours(24)),
            uses_left,
            target: bounded(&question(world, "clerk", "any")).offers().into_iter().next(),
        },
        given_at: world.now(),
        used: AllowanceUsage::default(),
        standing: AllowanceState::Active,
    }
}

fn bounded(asked: &Admission) -> BoundedCall {
    BoundedCall::of(asked.action.capability(), None, &asked.action, &[])
}

pub(super) fn using(id: AllowanceId, asked: Admission) -> Admission {
    let call = bounded(&asked);
    Admission { allowance: Some(AllowanceUse { id, call }), ..asked }
}

pub(super) fn give(world: &TestStore, answer: ApprovalAnswer, allowance: &Allowance) {
    let (_, approval) = asked(world, "clerk", &format!("question {}", allowance.id));
    let ruling = ApprovalRuling::Allow { answer, note: None };
    let given = DecideApproval { allowance: Some(allowance.clone()), ..decision(approval, ruling) };
    world.wait(world.store.decide(given)).unwrap();
}

fn admitted_under(world: &TestStore, allowance: &Allowance, text: &str) -> AdmissionOutcome {
    world.admit(using(allowance.id, question(world, "clerk", text)))
}

#[test]
fn only_session_and_always_leave_a_standing_yes() {
    everywhere(|world| {
        for answer in [ApprovalAnswer::Once, ApprovalAnswer::Note] {
            give(world, answer, &always(world, None));
        }
        assert!(world.wait(world.store.allowances(9)).unwrap().is_empty());
        let session = AllowanceSession::Issued(SessionId::from_bits(7));
        let for_session = Allowance { scope: AllowanceScope::Session { session }, ..always(world, Some(20)) };
        give(world, ApprovalAnswer::Session, &for_session);
        let standing = always(world, None);
        give(world, ApprovalAnswer::Always, &standing);
        assert_eq!(world.wait(world.store.allowances_of(asker())).unwrap(), [for_session, standing]);
    });
}

#[test]
fn a_standing_yes_answers_as_often_as_it_says_across_restarts() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let allowance = always(&world, Some(2));
        give(&world, ApprovalAnswer::Always, &allowance);
        assert!(matches!(admitted_under(&world, &allowance, "one"), AdmissionOutcome::Held { .. }));
        drop(world);
        let world = place.open("gw-1");
        assert!(matches!(admitted_under(&world, &allowance, "two"), AdmissionOutcome::Held { .. }));
        assert!(matches!(admitted_under(&world, &allowance, "three"), AdmissionOutcome::Awaiting { batch: false, .. }));
        world
    });
}

#[test]
fn a_yes_for_one_session_is_none_for_another() {
    everywhere(|world| {
        let session = |bits| Some(SessionId::from_bits(bits));
        let scope = AllowanceScope::Session { session: AllowanceSession::Issued(SessionId::from_bits(7)) };
        let allowance = Allowance { scope, ..always(world, None) };
        give(world, ApprovalAnswer::Session, &allowance);
        for (n, (session, yes)) in [(session(7), true), (session(8), false), (None, false)].into_iter().enumerate() {
            let asked = question(world, "clerk", &format!("mail {n}"));
            let admitted = world.admit(using(allowance.id, Admission { session, ..asked }));
            assert_eq!(matches!(admitted, AdmissionOutcome::Held { .. }), yes, "{session:?}");
        }
    });
}

#[test]
fn a_yes_that_ran_out_or_is_anothers_answers_nothing() {
    everywhere(|world| {
        let allowance = always(world, None);
        give(world, ApprovalAnswer::Always, &allowance);
        let theirs = using(allowance.id, question(world, "scout", "hello"));
        assert!(matches!(world.admit(theirs), AdmissionOutcome::Awaiting { .. }));
        let unknown = using(AllowanceId::from_bits(99), question(world, "clerk", "unknown"));
        assert!(matches!(world.admit(unknown), AdmissionOutcome::Awaiting { .. }));
        world.clock.advance(Millis::from_hours(24));
        assert!(matches!(admitted_under(world, &allowance, "late"), AdmissionOutcome::Awaiting { .. }));
    });
}

#[test]
fn each_use_is_counted_and_the_record_names_the_allowance_and_the_call() {
    everywhere(|world| {
        let allowance = always(world, Some(2));
        give(world, ApprovalAnswer::Always, &allowance);
        let asked = using(allowance.id, question(world, "clerk", "one"));
        let (call, hold) = (asked.call, asked.hold);
        assert!(matches!(world.admit(asked), AdmissionOutcome::Held { .. }));
        let kept = world.wait(world.store.allowances_of(asker())).unwrap();
        assert_eq!(kept[0].used, AllowanceUsage { times: 1, last: Some(world.now()) });
        let mut used = Vec::new();
        for (log, head) in world.wait(world.store.logs()).unwrap() {
            for sealed in world.wait(world.store.entries(log, 0, u32::try_from(head.size).unwrap())).unwrap() {
                let entry: serde_json::Value = serde_json::from_slice(&sealed.body).unwrap();
                if entry["fact"]["kind"] == "allowance.used" {
                    used.push(entry["fact"].clone());
                }
            }
        }
        assert_eq!(used.len(), 1, "{used:#?}");
        assert_eq!(used[0]["detail"]["allowance"], allowance.id.to_string());
        assert_eq!(
            (used[0]["call"].as_str(), used[0]["hold"].as_str()),
            (Some(&*call.to_string()), Some(&*hold.to_string()))
        );
    });
}

#[test]
fn a_call_outside_the_bound_or_without_one_is_asked_about() {
    everywhere(|world| {
        let allowance = always(world, None);
        give(world, ApprovalAnswer::Always, &allowance);
        let asked = question(world, "clerk", "hello");
        let arguments = serde_json::json!({"to": "billing@evil.example", "text": "hello"});
        let agent = AgentName::new("clerk").unwrap();
        let action = sluice_core::Action::custom("custom:mail".parse().unwrap(), agent, arguments).unwrap();
        assert!(matches!(
            world.admit(using(allowance.id, Admission { action, ..asked })),
            AdmissionOutcome::Awaiting { .. }
        ));
        let unbounded = Allowance {
            id: AllowanceId::mint(world.ids.as_ref()),
            scope: AllowanceScope::Standing { rule: RuleId::mint(world.ids.as_ref()) },
            bounds: AllowanceBounds::default(),
            ..always(world, None)
        };
        give(world, ApprovalAnswer::Always, &unbounded);
        assert!(matches!(admitted_under(world, &unbounded, "two"), AdmissionOutcome::Awaiting { .. }));
    });
}

#[test]
fn a_revoked_yes_answers_nothing_and_is_revoked_once() {
    everywhere(|world| {
        let allowance = always(world, None);
        give(world, ApprovalAnswer::Always, &allowance);
        world.wait(world.store.revoke_allowance(allowance.id, ana())).unwrap();
        assert!(matches!(admitted_under(world, &allowance, "one"), AdmissionOutcome::Awaiting { .. }));
        assert!(world.wait(world.store.allowances_of(asker())).unwrap().is_empty());
        let all = world.wait(world.store.allowances(9)).unwrap();
        assert_eq!(all[0].standing, AllowanceState::Revoked { by: ana(), at: world.now() });
        assert_eq!(code(world.wait(world.store.revoke_allowance(allowance.id, ana()))), "store.not_found");
        assert_eq!(
            code(world.wait(world.store.revoke_allowance(AllowanceId::from_bits(99), ana()))),
            "store.not_found"
        );
    });
}

#[test]
fn a_standing_yes_never_answers_the_batch_window() {
    everywhere(|world| {
        let allowance = always(world, Some(20));
        give(world, ApprovalAnswer::Always, &allowance);
        let mut held = Vec::new();
        for n in 0..4 {
            let admitted = admitted_under(world, &allowance, &format!("mail {n}"));
            let AdmissionOutcome::Held { hold, .. } = admitted else { panic!("{admitted:?}") };
            held.push(hold);
        }
        // A rule requires approval for each of them: each has its own approval request, also those that still waited.
        assert!(matches!(
            admitted_under(world, &allowance, "one too many"),
            AdmissionOutcome::Awaiting { batch: false, .. }
        ));
        assert!(held.iter().all(|hold| world.state(*hold) == "awaiting_approval"));
        let open = world.wait(world.store.open_approvals(9)).unwrap();
        assert_eq!((open.len(), open.iter().all(|open| open.items == 1)), (5, true));
        assert_eq!(messages(world, "approval.asked").len(), 1 + 5, "the request behind it, and these");
        let kept = world.wait(world.store.allowances_of(asker())).unwrap();
        assert_eq!(kept[0].bounds.uses_left, Some(16), "and it was not used for it");
    });
}
