//! Calls that end at once, who is notified of writes, what agents are told, and what is deleted.

use sluice_core::approval::ApprovalAnswer;
use sluice_core::audit::AuditEntry;
use sluice_core::batch::SlidingWindow;
use sluice_core::ids::SessionId;
use sluice_core::{AgentName, CallId, Clock, Digest, Millis, Tier, UtcMillis};
use sluice_store::{
    Admission, ApprovalRuling, AttemptOutcome, CallEnding, CloseCall, ListRefusedCalls, LookupEvidence,
    MessageSeverity, OutboxMessage, RateLimitCounter,
};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::done;

use crate::checker;
use crate::engines::{
    WINDOW, across_restarts, agent, armed, asked, doubtful, everywhere, message, messages, operator, question,
    recorded, resolve, service, with_two_nodes,
};

fn closed(world: &TestStore, outcome: CallEnding) -> CloseCall {
    CloseCall {
        call: CallId::mint(world.ids.as_ref()),
        agent: AgentName::new("clerk").unwrap(),
        session: Some(SessionId::from_bits(5)),
        capability: "email.search".parse().unwrap(),
        digest: Some(Digest::of(b"action")),
        tier: Some(Tier::Autonomous),
        policy: "p1".into(),
        rule: Some("agents/clerk.yaml:3".into()),
        outcome,
        rates: Vec::new(),
        notify: None,
        door: None,
        findings: None,
        origins: None,
        kept: None,
        observed: Vec::new(),
        read: None,
    }
}

fn read(world: &TestStore, call: CallId) -> Vec<AuditEntry> {
    let found = world.wait(world.store.call_entries(call)).unwrap();
    found.iter().map(|(_, sealed)| serde_json::from_slice(&sealed.body).unwrap()).collect()
}

fn kinds(world: &TestStore, call: CallId) -> Vec<String> {
    read(world, call).into_iter().map(|entry| entry.fact.kind).collect()
}

#[test]
fn a_call_that_ends_at_once_has_one_entry_that_says_how_and_why() {
    everywhere(|world| {
        let endings = [
            (CallEnding::Answered, "call.answered", None),
            (CallEnding::Refused { code: "policy.blocked".into() }, "call.refused", Some("policy.blocked")),
            (CallEnding::Allowed { unless_frozen: Some(service("email")) }, "call.allowed", None),
        ];
        for (ending, kind, code) in endings {
            let case = closed(world, ending);
            world.wait(world.store.close_call(case.clone())).unwrap();
            let [entry] = read(world, case.call).try_into().unwrap();
            let fact = entry.fact;
            assert_eq!((fact.kind.as_str(), fact.code.as_deref(), &fact.actor), (kind, code, &agent("clerk")));
            assert_eq!((fact.call, fact.digest, fact.policy.as_deref()), (Some(case.call), case.digest, Some("p1")));
            let detail = |name: &str| fact.detail[name].clone();
            assert_eq!((detail("capability"), detail("tier")), ("email.search".into(), "autonomous".into()));
            assert_eq!(detail("rule"), "agents/clerk.yaml:3");
            assert_eq!(detail("session"), SessionId::from_bits(5).to_string());
        }
        assert!(world.wait(world.store.holds(None, 9)).unwrap().is_empty());
    });
}

#[test]
fn nothing_is_recorded_as_allowed_while_it_is_frozen() {
    use sluice_store::FreezeTarget;
    let clerk = || AgentName::new("clerk").unwrap();
    for scope in [FreezeTarget::All, FreezeTarget::Agent(clerk()), FreezeTarget::Service(service("email"))] {
        everywhere(|world| {
            world.wait(world.store.freeze(scope.clone(), operator(), String::new())).unwrap();
            let mail = closed(world, CallEnding::Allowed { unless_frozen: Some(service("email")) });
            assert_eq!(crate::engines::code(world.wait(world.store.close_call(mail.clone()))), "freeze.active");
            assert!(kinds(world, mail.call).is_empty());
            let local = closed(world, CallEnding::Allowed { unless_frozen: None });
            world.wait(world.store.close_call(local)).unwrap();
            world.wait(world.store.unfreeze(scope.clone(), operator())).unwrap();
            world.wait(world.store.close_call(mail)).unwrap();
        });
    }
    everywhere(|world| {
        world.wait(world.store.freeze(FreezeTarget::Service(service("calendar")), operator(), String::new())).unwrap();
        let mail = closed(world, CallEnding::Allowed { unless_frozen: Some(service("email")) });
        world.wait(world.store.close_call(mail)).unwrap();
    });
}

#[test]
fn refused_calls_are_listed_the_latest_first_page_by_page_and_no_further_than_the_bound() {
    everywhere(|world| {
        let blocked = || CallEnding::Refused { code: "policy.blocked".into() };
        let mut calls = Vec::new();
        for n in 0..5 {
            world.clock.advance(Millis::from_secs(1));
            let mut case = closed(world, if n == 2 { CallEnding::Answered } else { blocked() });
            if n == 4 {
                case.agent = AgentName::new("other").unwrap();
            }
            world.wait(world.store.close_call(case.clone())).unwrap();
            calls.push(case.call);
        }
        let all = ListRefusedCalls {
            since: UtcMillis::default(),
            agent: None,
            service: None,
            session: None,
            before: None,
            limit: 10,
            bound: 10_000,
        };
        let find = |which: ListRefusedCalls| {
            let found = world.wait(world.store.refusals(which)).unwrap();
            (found.calls.iter().map(|call| call.call).collect::<Vec<_>>(), found.is_all)
        };
        assert_eq!(find(all.clone()), (vec![calls[4], calls[3], calls[1], calls[0]], true));
        assert_eq!(find(ListRefusedCalls { limit: 2, ..all.clone() }), (vec![calls[4], calls[3]], true));
        assert_eq!(find(ListRefusedCalls { before: Some(calls[3]), ..all.clone() }), (vec![calls[1], calls[0]], true));
        assert_eq!(find(ListRefusedCalls { since: world.now(), ..all.clone() }), (vec![calls[4]], true));
        let clerk = AgentName::new("clerk").ok();
        assert_eq!(find(ListRefusedCalls { agent: clerk, ..all.clone() }), (vec![calls[3], calls[1], calls[0]], true));
        assert_eq!(find(ListRefusedCalls { service: "email".parse().ok(), ..all.clone() }).0.len(), 4);
        assert_eq!(find(ListRefusedCalls { service: "calendar".parse().ok(), ..all.clone() }), (vec![], true));
        assert_eq!(find(ListRefusedCalls { session: Some(SessionId::from_bits(6)), ..all.clone() }), (vec![], true));
        assert!(!find(ListRefusedCalls { bound: 0, ..all.clone() }).1, "a search that stopped says so");
        let found = world.wait(world.store.refusals(all)).unwrap().calls;
        let first = &found[0];
        assert_eq!((first.capability.as_str(), first.code.as_str()), ("email.search", "policy.blocked"));
        assert_eq!((first.rule.as_deref(), first.tier.as_deref()), (Some("agents/clerk.yaml:3"), Some("autonomous")));
    });
}

#[test]
fn what_was_refused_is_kept_once_under_its_digest_and_for_a_month() {
    everywhere(|world| {
        let action = world.mail("clerk", "hello").action;
        for _ in 0..3 {
            world.clock.advance(Millis::from_secs(1));
            let ending = CallEnding::Refused { code: "policy.blocked".into() };
            let (digest, kept) = (Some(action.digest()), Some(action.clone()));
            world.wait(world.store.close_call(CloseCall { digest, kept, ..closed(world, ending) })).unwrap();
        }
        let kept = || world.wait(world.store.refused_action(action.digest())).unwrap();
        assert_eq!(kept(), Some(action.clone()));
        assert_eq!(world.wait(world.store.refused_action(Digest::of(b"another"))).unwrap(), None);
        world.clock.advance(Millis::from_hours(30 * 24 - 1));
        world.wait(world.store.prune(world.now(), 100)).unwrap();
        assert!(kept().is_some(), "a month from when it was last asked");
        world.clock.advance(Millis::from_hours(1));
        world.wait(world.store.prune(world.now(), 100)).unwrap();
        assert_eq!(kept(), None);
    });
}

#[test]
fn a_read_counts_for_its_rates_and_leaves_its_message() {
    everywhere(|world| {
        let window = SlidingWindow { limit: 100, span: Millis::from_hours(1) };
        let rates = vec![
            RateLimitCounter { rule: "a:1".into(), window, on_exceed: None },
            RateLimitCounter { rule: "a:2".into(), window, on_exceed: None },
        ];
        let told = OutboxMessage {
            id: message(world),
            topic: "call.notify".into(),
            severity: MessageSeverity::Info,
            body: serde_json::json!({}),
        };
        let case =
            CloseCall { rates: rates.clone(), notify: Some(told.clone()), ..closed(world, CallEnding::Answered) };
        world.wait(world.store.close_call(case)).unwrap();
        world.wait(world.store.close_call(CloseCall { rates, ..closed(world, CallEnding::Answered) })).unwrap();
        let clerk = || AgentName::new("clerk").unwrap();
        for rule in ["a:1", "a:2"] {
            assert_eq!(world.wait(world.store.rate_used(clerk(), rule, &window, world.now())).unwrap(), 2);
        }
        assert_eq!(messages(world, "call.notify"), [told]);
        world.admit_held("clerk", "the latch is made once");
    });
}

#[test]
fn every_entry_of_a_held_call_is_found_in_whatever_log_it_is() {
    with_two_nodes(|one, two| {
        let (hold, approval) = asked(one, "clerk", "hello");
        asked(one, "scout", "another's");
        one.clock.advance(Millis::from_mins(59));
        two.decide(approval, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }).unwrap();
        let call = one.hold(hold).call;
        let found = kinds(one, call);
        assert_eq!(found.iter().filter(|kind| kind.as_str() == "approval.pending").count(), 1, "{found:?}");
        assert!(found.contains(&"approval.approved".to_owned()), "{found:?}");
        assert!(found.contains(&"hold.awaiting_approval".to_owned()) && found.contains(&"hold.held".to_owned()));
        assert_eq!(found, kinds(two, call));
        assert!(kinds(one, CallId::from_bits(12345)).is_empty());
        let times: Vec<_> = read(one, call).into_iter().map(|entry| entry.at).collect();
        assert!(times.is_sorted());
    });
}

#[test]
fn the_entries_of_a_late_call_are_found_behind_many_that_came_before() {
    everywhere(|world| {
        for n in 0..600_u64 {
            if n % 20 == 0 {
                world.clock.advance(Millis::from_mins(5));
            }
            world.wait(world.store.close_call(closed(world, CallEnding::Answered))).unwrap();
        }
        // Like real ids: milliseconds first.
        let bits = u128::from(u64::try_from(world.clock.now().as_millis()).unwrap()) << 80;
        let case =
            CloseCall { call: CallId::from_bits(bits), ..closed(world, CallEnding::Allowed { unless_frozen: None }) };
        world.wait(world.store.close_call(case.clone())).unwrap();
        assert_eq!(kinds(world, case.call), ["call.allowed"]);
    });
}

#[test]
fn people_are_told_of_a_write_of_tier_notify_and_of_no_other() {
    everywhere(|world| {
        let mail = world.mail("clerk", "hello");
        let (id, hold, call) = (mail.message, mail.hold, mail.call);
        world.admit(mail);
        let told = messages(world, "call.notify");
        assert_eq!((told.len(), told[0].id, told[0].severity), (1, id, MessageSeverity::Info));
        let body = serde_json::json!({
            "call": call, "hold": hold, "agent": "clerk", "capability": "custom:mail", "targets": [],
        });
        assert_eq!(told[0].body, body, "who did what to whom, and nothing of what it says");
        world.admit(Admission { tier: Tier::Autonomous, ..world.mail("scout", "quiet") });
        world.admit(question(world, "scribe", "asked"));
        world.admit(Admission { tier: Tier::Blocked, ..world.mail("scout", "blocked") });
        assert_eq!(messages(world, "call.notify").len(), 1);
    });
}

#[test]
fn the_record_names_who_really_asked() {
    everywhere(|world| {
        let mail = Admission { by: Some(operator()), ..world.mail("clerk", "take it back") };
        let call = mail.call;
        world.admit(mail);
        assert_eq!(read(world, call)[0].fact.actor, operator());
        let mail = world.mail("clerk", "its own");
        let call = mail.call;
        world.admit(mail);
        assert_eq!(read(world, call)[0].fact.actor, agent("clerk"));
    });
}

fn result_of(world: &TestStore, id: sluice_core::HoldId) -> Option<String> {
    world.wait(world.store.hold_result(id)).unwrap()
}

#[test]
fn what_the_agent_is_told_is_kept_for_seven_days() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let told = |text: &str| match done("r") {
            AttemptOutcome::Done { receipt, after, service_until, .. } => {
                AttemptOutcome::Done { receipt, after, service_until, result: Some(text.into()) }
            }
            other => other,
        };
        let id = world.admit_held("clerk", "told");
        let hold = armed(&world);
        world.finish(id, hold.epoch, told(r#"{"id":"m1"}"#)).unwrap();
        let unclear = doubtful(&world, sluice_core::capability::EffectClass::Findable);
        let evidence = LookupEvidence::Applied {
            receipt: "r".into(),
            result: Some("[2]".into()),
            after: None,
            service_until: None,
        };
        place.clock.advance(Millis::from_mins(2));
        resolve(&world, &unclear, evidence).unwrap();
        let silent = world.admit_held("scout", "silent");
        let hold = armed(&world);
        world.finish(silent, hold.epoch, done("r")).unwrap();
        drop(world);
        let world = place.open("gw-1");
        assert_eq!(result_of(&world, id).as_deref(), Some(r#"{"id":"m1"}"#));
        assert_eq!((result_of(&world, unclear.id).as_deref(), result_of(&world, silent)), (Some("[2]"), None));
        place.clock.advance(Millis::from_mins(7 * 24 * 60 - 4));
        world.wait(world.store.prune(world.now(), 100)).unwrap();
        assert!(result_of(&world, id).is_some() && result_of(&world, unclear.id).is_some());
        place.clock.advance(Millis::from_mins(5));
        world.wait(world.store.prune(world.now(), 100)).unwrap();
        assert!(result_of(&world, id).is_none() && result_of(&world, unclear.id).is_none());
        world
    });
}

#[test]
fn only_what_is_over_is_forgotten_and_never_more_than_asked_for() {
    everywhere(|world| {
        let keyed = |n: u32| Admission {
            idempotency_key: Some(format!("k{n}")),
            tier: Tier::Autonomous,
            ..world.mail(&format!("agent-{n}"), "hello")
        };
        for n in 0..5 {
            world.admit(keyed(n));
        }
        let prune = |now: UtcMillis, limit: u32| world.wait(world.store.prune(now, limit)).unwrap();
        assert_eq!(prune(world.now(), 100), 0);
        assert_eq!(recorded(world, "store.pruned"), 0, "nothing to say");
        let far = world.now() + Millis::from_hours(10_000);
        assert_eq!(prune(far, 100), 0);
        let used = |n: u32| {
            let agent = AgentName::new(format!("agent-{n}")).unwrap();
            let service = crate::engines::service("email");
            world.wait(world.store.batch_used(agent, &service, &SlidingWindow::default(), world.now())).unwrap()
        };
        assert_eq!(used(0), 1, "a caller whose clock is ahead forgets nothing");
        assert!(matches!(world.admit(keyed(0)), sluice_store::AdmissionOutcome::Again { .. }));
        world.clock.advance(Millis::from_mins(21));
        assert_eq!(prune(world.now(), 3), 3, "three of five slots");
        assert_eq!(prune(world.now(), 3), 2, "the other two; the latches stay");
        assert_eq!(prune(world.now(), 3), 0);
        world.clock.advance(Millis::from_hours(30 * 24));
        assert_eq!(prune(world.now(), 100), 5, "the keys");
        assert!(matches!(
            world.admit(Admission { allow_duplicate: true, ..keyed(0) }),
            sluice_store::AdmissionOutcome::Held { .. }
        ));
    });
}

#[test]
fn a_delivered_message_is_forgotten_after_thirty_days_and_an_undelivered_one_never() {
    everywhere(|world| {
        asked(world, "clerk", "one");
        asked(world, "scout", "two");
        let due = world.wait(world.store.due_messages(world.now(), 9)).unwrap();
        world.wait(world.store.mark_delivered(due[0].message.id)).unwrap();
        world.clock.advance(Millis::from_millis(30 * 24 * 3_600_000 - 1));
        world.wait(world.store.prune(world.now(), 100)).unwrap();
        let pruned = || {
            let entries = checker::entries(world);
            entries.iter().filter_map(|entry| entry.fact.detail.get("outbox").cloned()).collect::<Vec<_>>()
        };
        assert!(pruned().is_empty());
        world.clock.advance(Millis::from_millis(1));
        world.wait(world.store.prune(world.now(), 100)).unwrap();
        assert_eq!(pruned(), ["1"]);
        let left = world.wait(world.store.due_messages(world.now(), 9)).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].message.id, due[1].message.id);
    });
}

#[test]
fn a_write_that_came_due_leaves_no_second_notice() {
    everywhere(|world| {
        world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        world.claim_due();
        assert_eq!(messages(world, "call.notify").len(), 1);
    });
}
