//! Lists for people: writes, approval requests, alerts; and the heartbeat.

use sluice_core::ids::{MessageId, SessionId};
use sluice_core::{AgentName, CallId, HoldId};
use sluice_store::{
    Admission, AlertFilter, ApprovalFilter, ApprovalRuling, HoldFilter, MessageSeverity, OutboxMessage,
};
use sluice_testkit::TestStore;

use crate::engines::{
    across_restarts, agent, asked, claimed, code, everywhere, message, operator, recorded, refused, service,
};

fn name(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

fn page(world: &TestStore, filter: HoldFilter, after: Option<HoldId>, limit: u32) -> Vec<HoldId> {
    let page = world.wait(world.store.holds_page(filter, after, limit)).unwrap();
    page.into_iter().map(|hold| hold.id).collect()
}

#[test]
fn writes_are_found_by_agent_service_session_and_state_from_either_end() {
    everywhere(|world| {
        let dead = world.admit_held("clerk", "dead");
        world.clock.advance(crate::engines::WINDOW);
        let hold = claimed(world);
        world.finish(dead, hold.epoch, refused()).unwrap();
        let in_session = world.mail("clerk", "in a session");
        let (sixth, session) = (in_session.hold, SessionId::from_bits(6));
        world.admit(Admission { session: Some(session), ..in_session });
        let elsewhere = world.mail("scout", "elsewhere");
        let third = elsewhere.hold;
        world.admit(Admission { service: service("calendar"), ..elsewhere });
        let (asked, _) = asked(world, "scout", "asked");
        let all = [dead, sixth, third, asked];
        let any = HoldFilter::default;
        assert_eq!(page(world, any(), None, 9), all);
        assert_eq!(page(world, HoldFilter { newest_first: true, ..any() }, None, 9), [asked, third, sixth, dead]);
        assert_eq!(page(world, HoldFilter { newest_first: true, ..any() }, Some(third), 1), [sixth]);
        assert_eq!(page(world, any(), Some(sixth), 1), [third]);
        assert_eq!(page(world, HoldFilter { agent: Some(name("scout")), ..any() }, None, 9), [third, asked]);
        assert_eq!(page(world, HoldFilter { service: Some(service("calendar")), ..any() }, None, 9), [third]);
        assert_eq!(page(world, HoldFilter { session: Some(session), ..any() }, None, 9), [sixth]);
        let in_states = |states: &[&'static str]| HoldFilter { states: states.to_vec(), ..any() };
        assert_eq!(page(world, in_states(&["dead"]), None, 9), [dead]);
        assert_eq!(page(world, in_states(&["dead", "awaiting_approval"]), None, 9), [dead, asked]);
        assert_eq!(page(world, in_states(&["done"]), None, 9), []);
        let both = HoldFilter { agent: Some(name("clerk")), ..in_states(&["held"]) };
        assert_eq!(page(world, both, None, 9), [sixth]);
        let now = world.now();
        let ended = |ended_since| HoldFilter { ended_since: Some(ended_since), ..any() };
        assert_eq!(page(world, ended(now - crate::engines::WINDOW), None, 9), [dead], "only what is over");
        assert_eq!(page(world, ended(now + sluice_core::Millis::from_millis(1)), None, 9), []);
    });
}

#[test]
fn the_writes_of_a_call_are_found_by_it() {
    everywhere(|world| {
        let time = 1_790_000_000_000_u128 << 80;
        let mail = world.mail("clerk", "hello");
        let (call, hold) = (CallId::from_bits(time + 1), HoldId::from_bits((40_000 << 80) + time));
        world.admit(Admission { call, hold, ..mail });
        world.admit(Admission { hold: HoldId::from_bits(time + 3), ..world.mail("scout", "another's") });
        let found = |call| world.wait(world.store.holds_of_call(call)).unwrap();
        assert_eq!(found(call).iter().map(|hold| hold.id).collect::<Vec<_>>(), [hold]);
        assert_eq!(found(CallId::from_bits(time + 2)), []);
        let early = world.mail("scribe", "ids without a time");
        let (call, hold) = (early.call, early.hold);
        world.admit(early);
        assert_eq!(found(call)[0].id, hold);
    });
}

#[test]
fn questions_are_listed_newest_first_by_state_and_agent() {
    everywhere(|world| {
        let ids = [("clerk", "one"), ("scout", "two"), ("clerk", "three")].map(|(who, text)| asked(world, who, text).1);
        world.decide(ids[0], ApprovalRuling::Deny { note: None }).unwrap();
        let page = |state, agent: Option<&str>, after, limit| {
            let filter = ApprovalFilter { state, agent: agent.map(name) };
            let page = world.wait(world.store.approvals_page(filter, after, limit)).unwrap();
            page.into_iter().map(|approval| approval.id).collect::<Vec<_>>()
        };
        assert_eq!(page(None, None, None, 9), [ids[2], ids[1], ids[0]]);
        assert_eq!(page(None, None, Some(ids[2]), 1), [ids[1]]);
        assert_eq!(page(Some("pending"), None, None, 9), [ids[2], ids[1]]);
        assert_eq!(page(Some("denied"), None, None, 9), [ids[0]]);
        assert_eq!(page(Some("pending"), Some("clerk"), None, 9), [ids[2]]);
    });
}

fn told(world: &TestStore, severity: MessageSeverity) -> OutboxMessage {
    OutboxMessage { id: message(world), topic: "agent.alert".into(), severity, body: serde_json::json!({"n": 1}) }
}

#[test]
fn alerts_are_listed_newest_first_until_someone_has_seen_to_them() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let sent =
            [MessageSeverity::Info, MessageSeverity::Critical, MessageSeverity::Warning].map(|loud| told(&world, loud));
        for (message, by) in sent.iter().zip([agent("clerk"), agent("scout"), agent("clerk")]) {
            world.wait(world.store.alert(message.clone(), by)).unwrap();
        }
        world.wait(world.store.alert(sent[0].clone(), agent("scout"))).unwrap();
        drop(world);
        let world = place.open("gw-1");
        let page = |filter: AlertFilter, after, limit| world.wait(world.store.alerts(filter, after, limit)).unwrap();
        let ids =
            |filter, after, limit| page(filter, after, limit).into_iter().map(|a| a.message.id).collect::<Vec<_>>();
        let [one, two, three] = sent.clone().map(|message| message.id);
        let all = AlertFilter::default;
        assert_eq!(ids(all(), None, 9), [three, two, one]);
        assert_eq!(ids(all(), Some(three), 1), [two]);
        assert_eq!(ids(AlertFilter { severity_at_least: MessageSeverity::Warning, ..all() }, None, 9), [three, two]);
        assert_eq!(ids(AlertFilter { agent: Some(name("clerk")), ..all() }, None, 9), [three, one], "the first sender");
        world.wait(world.store.acknowledge(two, operator())).unwrap();
        let at = world.now();
        place.clock.advance(sluice_core::Millis::from_secs(1));
        world.wait(world.store.acknowledge(two, agent("scout"))).unwrap();
        assert_eq!(ids(AlertFilter { open_only: true, ..all() }, None, 9), [three, one]);
        let seen = page(all(), Some(three), 1).remove(0);
        assert_eq!(
            (seen.message, seen.acknowledged),
            (sent[1].clone(), Some((operator(), at))),
            "the first one counts"
        );
        assert_eq!(seen.sent_by, Some(agent("scout")));
        assert_eq!((recorded(&world, "alert.sent"), recorded(&world, "alert.acknowledged")), (3, 1));
        assert_eq!(crate::engines::messages(&world, "agent.alert").len(), 3, "they are delivered like any message");
        world
    });
}

#[test]
fn an_agent_acknowledges_its_own_alerts_only() {
    everywhere(|world| {
        let (own, theirs) = (told(world, MessageSeverity::Critical), told(world, MessageSeverity::Critical));
        world.wait(world.store.alert(own.clone(), agent("clerk"))).unwrap();
        world.wait(world.store.alert(theirs.clone(), agent("scout"))).unwrap();
        let (_, _) = asked(world, "clerk", "the gateway's own");
        let gateways = crate::engines::messages(world, "approval.asked").remove(0).id;
        let acknowledge = |id, by| world.wait(world.store.acknowledge(id, by));
        for id in [theirs.id, gateways, MessageId::from_bits(99)] {
            assert_eq!(code(acknowledge(id, agent("clerk"))), "store.not_found");
        }
        let open = AlertFilter { open_only: true, ..AlertFilter::default() };
        assert_eq!(world.wait(world.store.alerts(open, None, 9)).unwrap().len(), 3);
        acknowledge(own.id, agent("clerk")).unwrap();
        acknowledge(gateways, operator()).unwrap();
    });
}

#[test]
fn a_beat_moves_the_time_a_node_was_last_alive_and_leaves_no_entry() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        world.wait(world.store.record_start("0.1.0")).unwrap();
        place.clock.advance(sluice_core::Millis::from_mins(3));
        let before = crate::checker::entries(&world).len();
        world.wait(world.store.record_heartbeat()).unwrap();
        let beat = world.now();
        assert_eq!(crate::checker::entries(&world).len(), before);
        place.clock.advance(sluice_core::Millis::from_mins(3));
        drop(world);
        let world = place.open("gw-1");
        assert_eq!(world.store.last_alive(), Some(beat));
        world
    });
}
