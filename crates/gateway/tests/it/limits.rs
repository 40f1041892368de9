//! How much an agent may do: budgets of a day, and checks that are no writes.

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_core::approval::ApprovalSubject;
use sluice_core::refusal::Code;
use sluice_gateway::corridor::CallOutcome;

use super::http::{ask, open};
use super::test_gateway::{TestGateway, TestGatewayPlan};

const ASKS: &str = "rules: [{capability: \"custom:*\", tier: approval_required}]\n";

async fn write(house: &TestGateway, name: &str) -> CallOutcome {
    let arguments = json!({"path": house.path(name), "content": name});
    house.call("filesystem.write", arguments).await.unwrap()
}

fn check(tool: &str, n: u32) -> Value {
    let arguments = json!({"file_path": format!("/srv/app/src/{n}.rs"), "content": "x"});
    json!({"capability": format!("custom:{tool}"), "arguments": arguments, "mode": "check", "wait_ms": 0})
}

#[tokio::test]
async fn a_slow_drip_of_writes_ends_in_questions_and_the_next_day_begins_anew() {
    let config = "budgets: {writes_per_local_service: 20}\n";
    let mut house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    let (mut went, mut asked) = (0, 0);
    // One write every ten minutes of a simulated day: the batch window never sees two.
    for n in 0..140 {
        match write(&house, &format!("{n}")).await {
            CallOutcome::Awaiting { batch, .. } => {
                assert!(!batch, "the budget asks, not the batch window");
                asked += 1;
            }
            CallOutcome::Held { .. } | CallOutcome::Done { .. } | CallOutcome::Under { .. } => went += 1,
            other => panic!("{other:?}"),
        }
        if n == 10 {
            house = house.restart(Millis::from_secs(1)).await;
        }
        house.pass(Millis::from_mins(10));
    }
    assert_eq!((went, asked), (20, 120));
    let entries = house.entries().await;
    let questions = entries.iter().filter(|entry| entry["fact"]["kind"] == "approval.pending");
    let reasons: Vec<&Value> = questions.map(|entry| &entry["fact"]["code"]).collect();
    assert_eq!((reasons.len(), reasons.iter().all(|code| **code == "budget.account")), (120, true), "{reasons:?}");
    house.pass(Millis::from_hours(24));
    assert!(!matches!(write(&house, "tomorrow").await, CallOutcome::Awaiting { .. }));
}

#[tokio::test]
async fn the_status_shows_what_of_each_budget_is_used() {
    let open = open(TestGatewayPlan::default()).await;
    write(&open.house, "a").await;
    write(&open.house, "b").await;
    let status = ask(open.main, "GET", "/v1/status", &open.house.operator_token, None).await.json();
    assert_eq!(
        status["budgets"],
        json!([
            {"budget": "gateway", "used": 0, "limit": 2000},
            {"budget": "account", "agent": "clerk", "service": "filesystem", "used": 2, "limit": 2000},
        ])
    );
}

#[tokio::test]
async fn a_service_without_a_window_is_not_counted() {
    let config = "budgets: {writes_per_local_service: 0}\nbatch: {services: {filesystem: off}}\n";
    let house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    assert!(!matches!(write(&house, "a").await, CallOutcome::Awaiting { .. }));
    let config = "budgets: {writes_per_local_service: 0}\n";
    let house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    assert!(matches!(write(&house, "a").await, CallOutcome::Awaiting { .. }), "none at all asks about each");
}

#[tokio::test]
async fn five_project_writes_checked_by_a_coding_hook_do_not_trip_the_batch_window() {
    let house = TestGateway::new(TestGatewayPlan { agent: ASKS.into(), ..TestGatewayPlan::default() }).await;
    let mut questions = std::collections::BTreeSet::new();
    for n in 0..12 {
        match house.wish(check("write", n)).await.unwrap() {
            CallOutcome::Awaiting { batch, approval, .. } => {
                assert!(!batch, "{n}");
                questions.insert(approval);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(questions.len(), 12, "each is a question of its own");
    for open in house.gw.store.open_approvals(50).await.unwrap() {
        assert_eq!((open.subject, open.items), (ApprovalSubject::Write, 1), "no card about many that covers one");
    }
    // And the window of real writes is as it was.
    assert!(!matches!(write(&house, "a").await, CallOutcome::Awaiting { .. }));
}

#[tokio::test]
async fn blocked_calls_count_in_no_window_of_writes() {
    let rules =
        "rules: [{capability: \"filesystem.delete\", tier: blocked}, {capability: \"custom:*\", tier: blocked}]\n";
    let config = "batch: {services: {filesystem: {limit: 3, window: 10m}}}\n";
    let house =
        TestGateway::new(TestGatewayPlan { agent: rules.into(), config: config.into(), ..TestGatewayPlan::default() })
            .await;
    for n in 0..10 {
        let no = house.call("filesystem.delete", json!({"path": house.path(&format!("{n}"))})).await.unwrap_err();
        assert_eq!(no.refusal.code(), Code::PolicyBlocked);
        assert_eq!(house.wish(check("write", n)).await.unwrap_err().refusal.code(), Code::PolicyBlocked);
    }
    for n in 0..3 {
        assert!(!matches!(write(&house, &format!("{n}")).await, CallOutcome::Awaiting { .. }), "{n}");
    }
}

#[tokio::test]
async fn a_flood_of_checks_is_told_when_to_come_again() {
    let config = "budgets: {questions_from_checks: 4}\n";
    let open = open(TestGatewayPlan { agent: ASKS.into(), config: config.into(), ..TestGatewayPlan::default() }).await;
    let post = async |n: u32| ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&check("bash", n))).await;
    for n in 0..4 {
        assert_eq!(post(n).await.status, 202);
    }
    let flood = post(4).await;
    assert_eq!((flood.status, flood.code().as_str()), (429, "check.flood"), "{flood:?}");
    let after = flood.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).expect("a time");
    let after: u64 = after.trim().parse().unwrap();
    assert!((1..=660).contains(&after), "{after}");
    assert_eq!(open.house.gw.store.open_approvals(50).await.unwrap().len(), 4, "and no question was put");
    open.house.pass(Millis::from_secs(after));
    assert_eq!(post(5).await.status, 202, "at that time it is taken");
}
