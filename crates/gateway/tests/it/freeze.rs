//! Freeze: when it returns nothing starts, also across a restart.

use serde_json::json;
use sluice_core::refusal::Code;
use sluice_core::{Millis, ServiceName};
use sluice_store::FreezeTarget;

use super::test_gateway::{TestGateway, TestGatewayPlan, ana, clerk};

#[tokio::test]
async fn nothing_starts_after_a_freeze_not_even_after_a_restart() {
    let config = "holds: {delays: {\"filesystem.*\": 30s}}\n";
    let mut house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    for name in ["a", "b", "c"] {
        house.call("filesystem.write", json!({"path": house.path(name), "content": "x"})).await.unwrap();
    }
    assert!(house.gw.store.freeze(FreezeTarget::All, ana(), "stop".into()).await.unwrap().is_empty());
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 0);
    let no = house.call("filesystem.write", json!({"path": house.path("d"), "content": "x"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::FreezeActive);
    let mut house = house.restart(Millis::from_secs(1)).await;
    house.pass(Millis::from_secs(10));
    assert_eq!(house.let_go().await, 0);
    assert!(!house.work().join("a").exists());
    house.gw.store.unfreeze(FreezeTarget::All, ana()).await.unwrap();
    assert!(house.let_go().await > 0);
    assert!(house.work().join("a").exists());
}

#[tokio::test]
async fn a_freeze_of_one_agent_or_service_leaves_the_others_alone() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    let files = FreezeTarget::Service(ServiceName::new("filesystem").unwrap());
    house.gw.store.freeze(files.clone(), ana(), String::new()).await.unwrap();
    let no = house.call("filesystem.write", json!({"path": house.path("a"), "content": "x"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::FreezeActive);
    house.call("state.persistent.set", json!({"key": "a", "value": 1})).await.unwrap();
    assert_eq!(house.let_go().await, 1);
    house.gw.store.unfreeze(files, ana()).await.unwrap();
    house.gw.store.freeze(FreezeTarget::Agent(clerk()), ana(), String::new()).await.unwrap();
    let no = house.call("state.persistent.set", json!({"key": "b", "value": 1})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::FreezeActive);
}

/// Many writes of one service are due, then one of another.
async fn a_queue_and_one_behind_it() -> TestGateway {
    let config = "batch: {services: {filesystem: off}}\nrelease: {paces: {filesystem: 50/s}}\nholds: {delays: {\"filesystem.*\": 30s, \"state.*\": 40s}}\n";
    let house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    for n in 0..200 {
        house.call("filesystem.write", json!({"path": house.path(&format!("f{n}")), "content": "x"})).await.unwrap();
    }
    house.call("state.persistent.set", json!({"key": "a", "value": 1})).await.unwrap();
    house.pass(Millis::from_secs(41));
    house
}

#[tokio::test]
async fn writes_that_are_frozen_do_not_stand_in_the_way_of_others() {
    let mut house = a_queue_and_one_behind_it().await;
    let files = FreezeTarget::Service(ServiceName::new("filesystem").unwrap());
    house.gw.store.freeze(files, ana(), String::new()).await.unwrap();
    assert_eq!(house.let_go().await, 1, "the other service's");
}

#[tokio::test]
async fn a_service_that_has_used_up_its_pace_does_not_stand_in_the_way_of_others() {
    let mut house = a_queue_and_one_behind_it().await;
    assert_eq!(house.let_go().await, 51, "as many as may leave in a second, and the other service's");
}
