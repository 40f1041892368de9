//! The runaway: an agent asks for a thousand writes.

use serde_json::json;
use sluice_core::Millis;
use sluice_gateway::corridor::CallOutcome;
use sluice_store::{ApprovalRuling, BatchChoice, DecideApproval, DecisionOutcome};

use super::test_gateway::{TestGateway, TestGatewayPlan, ana};

/// A thousand files asked for within seconds; the writes wait half a minute each.
async fn thousand() -> TestGateway {
    let config = "holds: {delays: {\"filesystem.*\": 30s}}\nbatch: {services: {filesystem: {limit: 5, window: 10m}}}\n";
    let mut house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    for n in 0..1000 {
        house.pass(Millis::from_millis(1));
        let arguments = json!({"path": house.path(&format!("{n:04}")), "content": n.to_string()});
        let answer = house.call("filesystem.write", arguments).await.unwrap();
        match answer {
            CallOutcome::Held { .. } => assert!(n < 5, "{n}"),
            CallOutcome::Awaiting { batch, .. } => assert!(batch && n >= 5, "{n}"),
            other => panic!("{other:?}"),
        }
    }
    house.pass(Millis::from_secs(60));
    assert_eq!(house.let_go().await, 0, "none takes effect");
    assert_eq!(std::fs::read_dir(house.work()).unwrap().count(), 0);
    house
}

async fn decide(house: &TestGateway, ruling: ApprovalRuling) -> DecisionOutcome {
    let open = house.gw.store.open_approvals(10).await.unwrap();
    assert_eq!(open.len(), 1, "one card");
    assert_eq!(open[0].items, 1000, "the first five were pulled back");
    let decision = DecideApproval {
        approval: open[0].id,
        by: ana(),
        channel: "test".into(),
        ruling,
        shown: Vec::new(),
        allowance: None,
    };
    house.gw.store.decide(decision).await.unwrap()
}

fn files(house: &TestGateway) -> Vec<String> {
    let entries = std::fs::read_dir(house.work()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with(".sluice"));
    names.sort();
    names
}

#[tokio::test]
async fn a_no_ends_all_thousand() {
    let mut house = thousand().await;
    let DecisionOutcome::Now { denied, .. } = decide(&house, ApprovalRuling::Deny { note: None }).await else {
        panic!()
    };
    assert_eq!(denied.len(), 1000);
    house.pass(Millis::from_mins(5));
    assert_eq!(house.let_go().await, 0);
    assert!(files(&house).is_empty());
}

#[tokio::test]
async fn a_yes_to_the_first_three_lets_exactly_three_through() {
    let mut house = thousand().await;
    let DecisionOutcome::Now { allowed, denied, .. } =
        decide(&house, ApprovalRuling::Choose(BatchChoice::First(3))).await
    else {
        panic!()
    };
    assert_eq!((allowed.len(), denied.len()), (3, 997));
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 3);
    assert_eq!(files(&house), ["0000", "0001", "0002"]);
    house.pass(Millis::from_hours(1));
    assert_eq!(house.let_go().await, 0);
}
