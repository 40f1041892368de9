//! What agents keep, when there is a lot of it: nothing is cut short without saying so.

use futures_util::future::join_all;
use serde_json::{Value, json};
use sluice_core::HoldId;
use sluice_gateway::corridor::CallOutcome;
use sluice_store::{SetState, StateScope};

use crate::test_gateway::{TestGateway, TestGatewayPlan, clerk};

/// Puts values on a shelf, by keys that sort as they are numbered.
async fn fill(house: &TestGateway, shelf: &StateScope, keys: impl Iterator<Item = String>, value: &str) {
    let set = |key: String| SetState {
        hold: HoldId::from_bits(house.gw.ids.mint()),
        shelf: shelf.clone(),
        key,
        value: json!(value).to_string(),
        by: clerk(),
        expected: None,
        quota: u64::MAX,
    };
    for done in join_all(keys.map(|key| house.gw.store.state_set(set(key)))).await {
        done.unwrap();
    }
}

async fn read(house: &TestGateway, capability: &str, arguments: Value) -> Value {
    match house.call(capability, arguments).await {
        Ok(CallOutcome::Done { result, .. }) => result,
        other => panic!("{other:?}"),
    }
}

/// Everything a list gives, page by page, and how many pages that took.
async fn whole(house: &TestGateway, capability: &str, prefix: &str) -> (Vec<String>, usize) {
    let (mut keys, mut pages) = (Vec::new(), 0);
    loop {
        let mut arguments = json!({"prefix": prefix});
        if let Some(last) = keys.last() {
            arguments["after"] = json!(last);
        }
        let page = read(house, capability, arguments).await;
        let named = |entry: &Value| entry["key"].as_str().or(entry.as_str()).unwrap().to_owned();
        keys.extend(page["entries"].as_array().or(page["keys"].as_array()).unwrap().iter().map(named));
        pages += 1;
        if page["truncated"] == json!(false) {
            return (keys, pages);
        }
    }
}

#[tokio::test]
async fn a_list_that_is_cut_short_says_so_and_goes_on_where_it_stopped() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let keys = || (0..1_001).map(|n| format!("k{n:04}"));
    for (shelf, list) in
        [(StateScope::Persistent(clerk()), "state.persistent.list"), (StateScope::Shared, "state.shared.list")]
    {
        fill(&house, &shelf, keys(), "x").await;
        let (found, pages) = whole(&house, list, "k").await;
        assert_eq!((found, pages), (keys().collect(), 2), "{list}");
        assert_eq!(read(&house, list, json!({"prefix": "k00"})).await["truncated"], false);
    }
    assert_eq!(whole(&house, "state.persistent.query", "k").await.0.len(), 1_001);
}

#[tokio::test]
async fn values_are_given_up_to_a_size_and_the_rest_on_asking() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let keys = || (0..12).map(|n| format!("k{n:02}"));
    fill(&house, &StateScope::Persistent(clerk()), keys(), &"x".repeat((1 << 20) - 2)).await;
    let first = read(&house, "state.persistent.query", json!({"prefix": "k"})).await;
    assert_eq!((first["truncated"].as_bool(), first["count"].as_u64()), (Some(true), Some(4)));
    assert_eq!(whole(&house, "state.persistent.query", "k").await, (keys().collect(), 3));
}

#[tokio::test]
async fn a_watch_sees_every_key_below_its_prefix() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    fill(&house, &StateScope::Shared, (0..1_500).map(|n| format!("k{n:05}")), "x").await;
    let watch = read(&house, "state.shared.watch", json!({"prefix": "k"})).await;
    let id = watch["subscription_id"].as_str().unwrap();
    // One before all others, and the very last.
    fill(&house, &StateScope::Shared, ["k".to_owned(), "k01499".to_owned()].into_iter(), "y").await;
    let state = house.gw.services.state().unwrap();
    let seen = state.changes(&clerk(), id, 0).await.unwrap().unwrap();
    let events: Vec<_> = seen.events.iter().map(|change| (change.kind, change.key.as_str())).collect();
    assert_eq!((events, seen.overflow), (vec![("set", "k"), ("set", "k01499")], false));
}

#[tokio::test]
async fn what_can_only_be_refused_is_refused_before_it_is_held() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    for (arguments, code) in [
        (json!({"key": "", "value": 1}), "state.key"),
        (json!({"key": "k".repeat(513), "value": 1}), "state.key"),
        (json!({"key": "k", "value": "x".repeat((1 << 20) - 1)}), "state.quota"),
    ] {
        let no = house.call("state.persistent.set", arguments).await.unwrap_err();
        assert_eq!(no.refusal.code().as_str(), code);
    }
    let no = house.call("state.persistent.delete", json!({"key": "a\u{7}b"})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "state.key");
    assert!(house.gw.store.holds(None, 10).await.unwrap().is_empty(), "no dead letter, and nobody is called");
}
