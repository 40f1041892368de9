//! The runaway: an agent asks for a thousand writes.

use serde_json::json;
use sluice_core::Span;
use sluice_gateway::corridor::Answer;
use sluice_store::{Choice, Decided, Decision, Ruling};

use super::house::{House, Plan, ana};

/// A thousand files asked for within seconds; the writes wait half a minute each.
async fn thousand() -> House {
    let config = "holds: {delays: {\"filesystem.*\": 30s}}\nbatch: {services: {filesystem: {limit: 5, window: 10m}}}\n";
    let mut house = House::new(Plan { config: config.into(), ..Plan::default() }).await;
    for n in 0..1000 {
        house.pass(Span::from_millis(1));
        let arguments = json!({"path": house.path(&format!("{n:04}")), "content": n.to_string()});
        let answer = house.call("filesystem.write", arguments).await.unwrap();
        match answer {
            Answer::Held { .. } => assert!(n < 5, "{n}"),
            Answer::Awaiting { batch, .. } => assert!(batch && n >= 5, "{n}"),
            other => panic!("{other:?}"),
        }
    }
    house.pass(Span::from_secs(60));
    assert_eq!(house.let_go().await, 0, "none takes effect");
    assert_eq!(std::fs::read_dir(house.work()).unwrap().count(), 0);
    house
}

async fn decide(house: &House, ruling: Ruling) -> Decided {
    let open = house.gw.store.open_approvals(10).await.unwrap();
    assert_eq!(open.len(), 1, "one card");
    assert_eq!(open[0].items, 1000, "the first five were pulled back");
    let decision = Decision {
        approval: open[0].id,
        by: ana(),
        channel: "test".into(),
        ruling,
        shown: Vec::new(),
        allowance: None,
    };
    house.gw.store.decide(decision).await.unwrap()
}

fn files(house: &House) -> Vec<String> {
    let entries = std::fs::read_dir(house.work()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with(".sluice"));
    names.sort();
    names
}

#[tokio::test]
async fn a_no_ends_all_thousand() {
    let mut house = thousand().await;
    let Decided::Now { denied, .. } = decide(&house, Ruling::Deny { note: None }).await else { panic!() };
    assert_eq!(denied.len(), 1000);
    house.pass(Span::from_mins(5));
    assert_eq!(house.let_go().await, 0);
    assert!(files(&house).is_empty());
}

#[tokio::test]
async fn a_yes_to_the_first_three_lets_exactly_three_through() {
    let mut house = thousand().await;
    let Decided::Now { allowed, denied, .. } = decide(&house, Ruling::Choose(Choice::First(3))).await else { panic!() };
    assert_eq!((allowed.len(), denied.len()), (3, 997));
    house.pass(Span::from_secs(31));
    assert_eq!(house.let_go().await, 3);
    assert_eq!(files(&house), ["0000", "0001", "0002"]);
    house.pass(Span::from_hours(1));
    assert_eq!(house.let_go().await, 0);
}
