//! Things that happen at the same moment, or in the wrong order: limits, removals, chains of taking back.

use serde_json::json;
use sluice_core::refusal::Code;
use sluice_core::{HoldId, Millis};
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::rooms::rollback;

use super::test_gateway::{TestGateway, TestGatewayPlan, ana, clerk};

fn limited(capability: &str, max: u32, on_exceed: &str) -> TestGatewayPlan {
    let agent = format!(
        "rules:\n  - {{capability: {capability}, tier: autonomous, conditions: {{rate_limit: {{max: {max}, window: 1h, on_exceed: {on_exceed}}}}}}}\n"
    );
    let config = "holds: {delays: {\"state.*\": 30s}}\n".into();
    TestGatewayPlan { agent, config, ..TestGatewayPlan::default() }
}

#[tokio::test]
async fn of_many_writes_at_once_only_as_many_as_the_rule_allows_pass_unasked() {
    let house = TestGateway::new(limited("state.persistent.set", 5, "approval_required")).await;
    let calls = (0..20).map(|n| house.call("state.persistent.set", json!({"key": format!("k{n}"), "value": n})));
    let answers = futures_util::future::join_all(calls).await;
    let held = answers.iter().filter(|answer| matches!(answer, Ok(CallOutcome::Held { .. }))).count();
    let asked = answers.iter().filter(|answer| matches!(answer, Ok(CallOutcome::Awaiting { .. }))).count();
    assert_eq!((held, asked), (5, 15), "{answers:?}");
}

#[tokio::test]
async fn a_write_beyond_a_limit_that_blocks_is_blocked_and_recorded_once() {
    let house = TestGateway::new(limited("state.persistent.set", 2, "blocked")).await;
    let calls = (0..8).map(|n| house.call("state.persistent.set", json!({"key": format!("k{n}"), "value": n})));
    let answers = futures_util::future::join_all(calls).await;
    let held = answers.iter().filter(|answer| matches!(answer, Ok(CallOutcome::Held { .. }))).count();
    let blocked = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert_eq!(held, 2, "{answers:?}");
    assert!(blocked.clone().all(|no| no.refusal.code() == Code::PolicyBlocked));
    assert_eq!(blocked.count(), 6);
    let record = house.record().await;
    let said_no = record.iter().filter(|kind| ["call.blocked", "call.refused"].contains(&kind.as_str())).count();
    assert_eq!(said_no, 6, "{record:?}");
}

#[tokio::test]
async fn of_many_reads_at_once_none_beyond_the_limit_is_answered() {
    let house = TestGateway::new(limited("system.info", 3, "blocked")).await;
    let answers = futures_util::future::join_all((0..12).map(|_| house.call("system.info", json!({})))).await;
    let done = answers.iter().filter(|answer| matches!(answer, Ok(CallOutcome::Done { .. }))).count();
    assert_eq!(done, 3, "{answers:?}");
    let codes = answers.iter().filter_map(|answer| answer.as_ref().err()).map(|no| no.refusal.code());
    assert!(codes.clone().all(|code| [Code::PolicyBlocked, Code::PolicyRateLimit].contains(&code)));
    assert_eq!(house.call("system.info", json!({})).await.unwrap_err().refusal.code(), Code::PolicyBlocked);
}

#[tokio::test]
async fn what_a_removed_agent_asked_for_does_not_leave() {
    let agent = "rules: [{capability: filesystem.delete, tier: approval_required}]\n".into();
    let config = "holds: {delays: {\"filesystem.*\": 30s}}\n".into();
    let mut house = TestGateway::new(TestGatewayPlan { agent, config, ..TestGatewayPlan::default() }).await;
    std::fs::write(house.work().join("precious"), "x").unwrap();
    let CallOutcome::Held { hold: held, .. } =
        house.call("filesystem.write", json!({"path": house.path("a"), "content": "x"})).await.unwrap()
    else {
        panic!()
    };
    let CallOutcome::Awaiting { hold: asked, approval, .. } =
        house.call("filesystem.delete", json!({"path": house.path("precious")})).await.unwrap()
    else {
        panic!()
    };
    let stopped = house.gw.store.remove_agent(clerk(), ana()).await.unwrap();
    assert_eq!(stopped.len(), 2);
    for hold in [held, asked] {
        assert_eq!(house.gw.store.hold(hold).await.unwrap().unwrap().state.word(), "cancelled");
    }
    let card = house.gw.store.approval(approval).await.unwrap().unwrap();
    assert_eq!(card.approval.state.word(), "withdrawn");
    house.pass(Millis::from_secs(60));
    assert_eq!(house.let_go().await, 0);
    assert!(!house.work().join("a").exists() && house.work().join("precious").exists());
    let record = house.record().await;
    assert_eq!(record.iter().filter(|kind| *kind == "hold.cancelled").count(), 2, "{record:?}");
}

/// Makes writes, one after the other, each carried out before the next.
async fn done(house: &mut TestGateway, capability: &str, all: Vec<serde_json::Value>) -> Vec<sluice_core::hold::Hold> {
    let mut holds = Vec::new();
    for arguments in all {
        let CallOutcome::Held { hold, .. } = house.call(capability, arguments).await.unwrap() else { panic!() };
        house.let_go().await;
        house.pass(Millis::from_millis(5));
        holds.push(hold);
    }
    let mut rows = Vec::new();
    for hold in holds {
        rows.push(house.gw.store.hold(hold).await.unwrap().unwrap());
    }
    rows
}

async fn words(house: &TestGateway, holds: &[HoldId]) -> Vec<String> {
    let mut words = Vec::new();
    for hold in holds {
        words.push(house.gw.store.hold(*hold).await.unwrap().unwrap().state.word().to_owned());
    }
    words
}

#[tokio::test]
async fn several_writes_to_one_file_are_taken_back_newest_first_in_one_plan() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    std::fs::write(house.work().join("a"), "old").unwrap();
    let path = house.path("a");
    let all = ["one", "two", "three"].map(|text| json!({"path": path, "content": text})).to_vec();
    let holds = done(&mut house, "filesystem.write", all).await;
    let steps = rollback::plan(&house.gw, &holds).await.unwrap();
    assert!(steps.iter().all(|step| step.possible), "{steps:?}");
    let order: Vec<_> = steps.iter().map(|step| (step.buffer_id, step.after)).collect();
    let expected = vec![(holds[2].id, None), (holds[1].id, Some(holds[2].id)), (holds[0].id, Some(holds[1].id))];
    assert_eq!(order, expected);
    let lone = rollback::plan(&house.gw, &holds[..2]).await.unwrap();
    assert!(lone.iter().all(|step| step.code == Some("rollback.conflict")), "without the newest: {lone:?}");
    let (_, made) = rollback::take_all_back(&house.gw, &only(&holds), &ana()).await.unwrap();
    house.pass(Millis::from_secs(6));
    house.let_go().await;
    assert_eq!(words(&house, &made).await, ["done", "done", "done"]);
    assert_eq!(std::fs::read_to_string(house.work().join("a")).unwrap(), "old");
}

#[tokio::test]
async fn a_chain_whose_newest_link_was_worked_on_is_left_alone() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    std::fs::write(house.work().join("a"), "old").unwrap();
    let path = house.path("a");
    let all = ["one", "two"].map(|text| json!({"path": path, "content": text})).to_vec();
    let holds = done(&mut house, "filesystem.write", all).await;
    let (_, made) = rollback::take_all_back(&house.gw, &only(&holds), &ana()).await.unwrap();
    assert_eq!(made.len(), 2);
    std::fs::write(house.work().join("a"), "somebody's work").unwrap();
    house.pass(Millis::from_secs(6));
    house.let_go().await;
    assert!(!words(&house, &made).await.contains(&"done".to_owned()));
    assert_eq!(std::fs::read_to_string(house.work().join("a")).unwrap(), "somebody's work");
}

#[tokio::test]
async fn several_writes_of_one_key_are_taken_back_in_one_plan() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    let all = [1, 2, 3].map(|value| json!({"key": "plan", "value": value})).to_vec();
    let holds = done(&mut house, "state.persistent.set", all).await;
    let (steps, made) = rollback::take_all_back(&house.gw, &only(&holds), &ana()).await.unwrap();
    assert!(steps.iter().all(|step| step.possible), "{steps:?}");
    house.pass(Millis::from_secs(6));
    house.let_go().await;
    assert_eq!(words(&house, &made).await, ["done", "done", "done"]);
    let CallOutcome::Done { result, .. } = house.call("state.persistent.get", json!({"key": "plan"})).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(result["found"], false, "{result}");
}

#[tokio::test]
async fn what_was_left_in_the_trash_is_swept_once_it_cannot_be_undone() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    std::fs::write(house.work().join("a"), "old").unwrap();
    let all = vec![json!({"path": house.path("a"), "content": "new"})];
    let holds = done(&mut house, "filesystem.write", all).await;
    let trash = house.work().join(".sluice-trash").join(holds[0].id.to_string());
    sluice_gateway::loops::housekeeping::sweep(&house.gw).await.unwrap();
    assert!(trash.exists(), "it can still be undone");
    house.pass(Millis::from_hours(73));
    // The gateway dies between writing down that it is over and removing the old content.
    house.gw.store.expire_rollbacks(10).await.unwrap();
    assert!(trash.exists());
    sluice_gateway::loops::housekeeping::sweep(&house.gw).await.unwrap();
    assert!(!trash.exists());
}

/// Held writes and nothing else.
fn only(holds: &[sluice_core::hold::Hold]) -> rollback::RollbackSelection {
    rollback::RollbackSelection { holds: holds.to_vec(), ..rollback::RollbackSelection::default() }
}
