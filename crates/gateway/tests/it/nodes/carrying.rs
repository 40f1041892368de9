//! A node carries out what it can, and leaves the rest to the node that can.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use sluice_core::hold::HoldState;
use sluice_core::ids::RequestId;
use sluice_core::{HoldId, Millis};
use sluice_gateway::Gateway;
use sluice_gateway::corridor::{self, CallOutcome};
use sluice_gateway::loops::housekeeping;
use sluice_gateway::loops::release::ReleaseLoop;
use sluice_gateway::nodes;
use sluice_gateway::rooms::identity::{CallRequest, principal};
use sluice_store::{AlertFilter, ApprovalRuling, DecideApproval, MessageSeverity};

use super::TwoTestNodes;
use crate::steady::{GatedTestService, offered_by};
use crate::test_gateway::{TestGatewayPlan, ana};

/// A round of housekeeping that beats and does nothing else now and then.
const BEATS: u64 = 5;
/// The states of a write that nobody has claimed.
const WAITS: [&str; 2] = ["held", "ready"];

/// The agent asks a node for a write of a service.
async fn told(gw: &Gateway, key: &str, service: &str) -> HoldId {
    let wish = json!({"capability": format!("{service}.tell"), "arguments": {}, "wait_ms": 0, "allow_duplicate": true});
    let (principal, request) = (principal(gw, key).unwrap(), RequestId::mint(gw.ids.as_ref()));
    let call_request =
        CallRequest { principal, door: "test", request, session: None, wish: serde_json::from_value(wish).unwrap() };
    match corridor::walk(gw, call_request).await.unwrap() {
        CallOutcome::Held { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

/// One step of a node's release loop, with everything that it starts. Gives how many writes it claimed.
async fn step(gw: &Arc<Gateway>, release: &mut ReleaseLoop) -> usize {
    gw.record_awake(gw.clock.since_boot());
    release.step(gw).await.unwrap();
    release.finish().await
}

async fn state(gw: &Gateway, hold: HoldId) -> &'static str {
    gw.store.hold(hold).await.unwrap().unwrap().state.word()
}

#[tokio::test]
async fn a_due_write_is_left_to_the_node_that_has_its_service() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let (a, b) = (&nodes.house.gw, &nodes.other);
    let (mut on_a, mut on_b) = (ReleaseLoop::new(a), ReleaseLoop::new(b));
    // Not here, and here but still being started.
    let mut starting = GatedTestService::open();
    starting.is_up = false;
    offered_by(a, "slow", "opaque", starting).await;
    for service in ["letters", "slow"] {
        let there = offered_by(b, service, "opaque", GatedTestService::open()).await;
        nodes::report(b).await.unwrap();
        let hold = told(b, &nodes.house.agent_key, service).await;
        for _ in 0..5 {
            assert_eq!(step(a, &mut on_a).await, 0, "{service} is not for this node");
            nodes.house.pass(Millis::from_secs(20));
            housekeeping::step(a, BEATS).await.unwrap();
            housekeeping::step(b, BEATS).await.unwrap();
        }
        assert!(WAITS.contains(&state(a, hold).await), "{service}");
        assert_eq!(step(b, &mut on_b).await, 1);
        assert_eq!((state(a, hold).await, there.agents().len()), ("done", 1));
    }
}

#[tokio::test]
async fn what_no_live_node_can_carry_out_for_a_minute_ends_as_on_one_node_and_people_hear_of_it() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let (a, b) = (&nodes.house.gw, &nodes.other);
    let mut on_a = ReleaseLoop::new(a);
    offered_by(b, "letters", "opaque", GatedTestService::open()).await;
    nodes::report(b).await.unwrap();
    let hold = told(b, &nodes.house.agent_key, "letters").await;
    assert_eq!(step(a, &mut on_a).await, 0);
    // The node that has it says nothing any more: a minute until it counts as gone, and another one for somebody else.
    let mut waited = 0;
    while WAITS.contains(&state(a, hold).await) {
        nodes.house.pass(Millis::from_secs(10));
        waited += 10;
        housekeeping::step(a, BEATS).await.unwrap();
        step(a, &mut on_a).await;
        assert!(waited <= 180, "{}", state(a, hold).await);
    }
    assert!(waited > 120, "after {waited} s");
    // This node knows nothing of what was asked, so a person decides; and what was approved still cannot be carried out.
    let HoldState::AwaitingApproval { approval, .. } = a.store.hold(hold).await.unwrap().unwrap().state else {
        panic!("{}", state(a, hold).await);
    };
    let ruling = ApprovalRuling::Allow { answer: sluice_core::approval::ApprovalAnswer::Once, note: None };
    let (by, channel) = (ana(), "test".to_owned());
    a.store.decide(DecideApproval { approval, by, channel, ruling, shown: Vec::new(), allowance: None }).await.unwrap();
    for _ in 0..10 {
        nodes.house.pass(Millis::from_secs(10));
        step(a, &mut on_a).await;
    }
    assert_eq!(state(a, hold).await, "dead");
    let all = AlertFilter { open_only: false, severity_at_least: MessageSeverity::Info, agent: None };
    let alerts = a.store.alerts(all, None, 100).await.unwrap();
    let dead = alerts.iter().find(|alert| alert.message.topic == "hold.dead").unwrap();
    assert_eq!(
        (&dead.message.body["service"], &dead.message.body["code"]),
        (&json!("letters"), &json!("gateway.unsupported"))
    );
}

#[tokio::test]
async fn a_doubt_is_looked_up_by_the_node_that_has_its_service() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let (a, b) = (&nodes.house.gw, &nodes.other);
    let (mut on_a, mut on_b) = (ReleaseLoop::new(a), ReleaseLoop::new(b));
    let there = offered_by(b, "letters", "findable", GatedTestService::unclear()).await;
    nodes::report(b).await.unwrap();
    let hold = told(b, &nodes.house.agent_key, "letters").await;
    assert_eq!(step(b, &mut on_b).await, 1);
    assert_eq!(state(a, hold).await, "in_doubt");
    let rounds = async || a.store.doubts(9).await.unwrap()[0].rounds;
    for _ in 0..30 {
        nodes.house.pass(Millis::from_secs(20));
        housekeeping::step(a, BEATS).await.unwrap();
        housekeeping::step(b, BEATS).await.unwrap();
        step(a, &mut on_a).await;
    }
    assert_eq!(rounds().await, 0, "a lookup by a node that cannot look uses nothing up");
    step(b, &mut on_b).await;
    step(b, &mut on_b).await;
    assert_eq!((there.looked.load(Ordering::SeqCst), rounds().await), (1, 1));
}
