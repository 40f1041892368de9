//! Dead letters: by what they died of, tried again, given up, or put anew through the corridor.

use serde_json::{Value, json};
use sluice_core::Millis;

use crate::http::{OpenTestGateway, ask, open};
use crate::test_gateway::TestGatewayPlan;

/// Writes that cannot happen: their place is taken by a folder before they leave.
async fn dead(open: &mut OpenTestGateway, names: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for name in names {
        // Ids of one millisecond are in no order.
        open.house.pass(Millis::from_millis(1));
        let arguments = json!({"path": open.house.path(name), "content": "milk"});
        let call = json!({"capability": "filesystem.write", "arguments": arguments, "wait_ms": 0});
        let answer = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        ids.push(answer.json()["buffer_id"].as_str().unwrap().to_owned());
        std::fs::create_dir(open.house.path(name)).unwrap();
    }
    open.house.pass(Millis::from_mins(10));
    open.house.let_go().await;
    for id in &ids {
        assert_eq!(state(open, id).await, "dead");
    }
    ids
}

async fn operator(open: &OpenTestGateway, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let answer = ask(open.main, method, path, &open.house.operator_token, body).await;
    (answer.status, answer.json())
}

async fn hold(open: &OpenTestGateway, id: &str) -> Value {
    operator(open, "GET", &format!("/v1/holds/{id}"), None).await.1
}

async fn state(open: &OpenTestGateway, id: &str) -> String {
    hold(open, id).await["state"].as_str().unwrap().to_owned()
}

fn slow() -> TestGatewayPlan {
    let config = "holds: {delays: {filesystem.write: 5m}}\nbatch: {services: {filesystem: off}}\n".into();
    let agent =
        "rules: [{capability: filesystem.write, conditions: {path_glob: \"/**/secret*\"}, tier: blocked}]\n".into();
    TestGatewayPlan { config, agent, ..TestGatewayPlan::default() }
}

#[tokio::test]
async fn dead_letters_are_told_apart_by_their_cause_and_settled_by_it() {
    let mut open = open(slow()).await;
    let ids = dead(&mut open, &["a", "b", "c"]).await;
    let (_, list) = operator(&open, "GET", "/v1/dead-letters", None).await;
    let group = &list["data"][0];
    assert_eq!((group["count"].as_u64(), group["buffer_ids"].as_array().unwrap().len()), (Some(3), 3), "{list}");
    assert_eq!(group["buffer_ids"][0], ids[0].as_str(), "the oldest first");
    let cause = group["cause"].as_str().unwrap();
    assert!(cause.starts_with("filesystem.write:filesystem."), "{cause}");
    let (_, none) = operator(&open, "GET", "/v1/dead-letters?agent=nobody", None).await;
    assert_eq!(none["data"], json!([]));
    // One of them is tried, to see whether it works now; the reason it did not is gone.
    std::fs::remove_dir(open.house.path("a")).unwrap();
    let (status, tried) =
        operator(&open, "POST", "/v1/dead-letters/retry", Some(&json!({"cause": cause, "probe": true}))).await;
    assert_eq!((status, tried["data"].as_array().unwrap().len()), (200, 1), "{tried}");
    assert_eq!((state(&open, &ids[0]).await.as_str(), state(&open, &ids[1]).await.as_str()), ("held", "dead"));
    open.house.pass(Millis::from_mins(10));
    open.house.let_go().await;
    assert_eq!(state(&open, &ids[0]).await, "done");
    let (status, _) = operator(&open, "POST", "/v1/dead-letters/discard", Some(&json!({"cause": cause}))).await;
    assert_eq!(status, 200);
    assert_eq!(
        (state(&open, &ids[1]).await.as_str(), state(&open, &ids[2]).await.as_str()),
        ("discarded", "discarded")
    );
    let (status, _) = operator(&open, "POST", "/v1/dead-letters/discard", Some(&json!({"cause": cause}))).await;
    assert_eq!(status, 404, "there are none left");
    let (status, _) = operator(&open, "POST", &format!("/v1/dead-letters/{}/retry", ids[0]), None).await;
    assert_eq!(status, 404, "what is done is no dead letter");
}

#[tokio::test]
async fn an_edited_dead_letter_is_a_new_call_and_the_rules_judge_it() {
    let mut open = open(slow()).await;
    let ids = dead(&mut open, &["a"]).await;
    let place = format!("/v1/dead-letters/{}", ids[0]);
    let (_, shown) = operator(&open, "GET", &place, None).await;
    let version = shown["version"].as_u64().unwrap();
    assert_eq!(shown["arguments"]["content"], "milk");
    let work = open.house.path("");
    let edit = |name: &str, version: u64| json!({"arguments": {"path": format!("{work}{name}"), "content": "bread"}, "version": version});
    // What the rules block stays blocked, whoever words it; the dead letter is as it was.
    let (status, no) = operator(&open, "POST", &format!("{place}/edit"), Some(&edit("secret.txt", version))).await;
    assert_eq!((status, no["code"].as_str()), (403, Some("policy.blocked")), "{no}");
    let (status, _) =
        operator(&open, "POST", &format!("{place}/edit"), Some(&json!({"arguments": {"pth": 1}, "version": version})))
            .await;
    assert_eq!(status, 422, "the schema is checked");
    let (status, _) = operator(&open, "POST", &format!("{place}/edit"), Some(&edit("b.txt", version + 1))).await;
    assert_eq!(status, 409, "somebody else was faster");
    assert_eq!(state(&open, &ids[0]).await, "dead");
    // A good one is held like any write, and leaves when its window has closed.
    let (status, edited) = operator(&open, "POST", &format!("{place}/edit"), Some(&edit("b.txt", version))).await;
    assert_eq!((status, edited["call"]["status"].as_str()), (202, Some("held")), "{edited}");
    assert_eq!(edited["replaced"]["state"], "discarded");
    let new = edited["call"]["buffer_id"].as_str().unwrap().to_owned();
    assert_ne!(new, ids[0]);
    assert_eq!(
        (hold(&open, &new).await["agent"].as_str(), state(&open, &ids[0]).await.as_str()),
        (Some("clerk"), "discarded")
    );
    assert!(!std::path::Path::new(&open.house.path("b.txt")).exists());
    open.house.pass(Millis::from_mins(10));
    open.house.let_go().await;
    assert_eq!(std::fs::read_to_string(open.house.path("b.txt")).unwrap(), "bread");
    let (status, _) = operator(&open, "POST", &format!("{place}/edit"), Some(&edit("c.txt", version))).await;
    assert_eq!(status, 404, "it is settled");
    let viewer = ask(open.main, "POST", &format!("{place}/retry"), &open.house.viewer_token, None).await;
    assert_eq!(viewer.status, 403);
}

#[tokio::test]
async fn everything_an_agent_did_since_then_counts_from_when_it_was_done() {
    let mut open = open(slow()).await;
    let write = |name: &str| {
        let arguments = json!({"path": open.house.path(name), "content": name});
        json!({"capability": "filesystem.write", "arguments": arguments, "wait_ms": 0})
    };
    let (first, second) = (write("early.txt"), write("late.txt"));
    let key = open.house.agent_key.clone();
    ask(open.main, "POST", "/v1/calls", &key, Some(&first)).await;
    open.house.pass(Millis::from_mins(4));
    let later = ask(open.main, "POST", "/v1/calls", &key, Some(&second)).await.json();
    open.house.pass(Millis::from_mins(2));
    open.house.let_go().await;
    assert!(std::path::Path::new(&open.house.path("early.txt")).exists());
    // Asked for before this moment, done after it.
    let since = open.house.gw.now().as_millis() + 1;
    open.house.pass(Millis::from_mins(5));
    open.house.let_go().await;
    let body = json!({"agent": "clerk", "since_ms": since, "plan_only": true});
    let (status, plan) = operator(&open, "POST", "/v1/rollbacks", Some(&body)).await;
    assert_eq!(status, 200);
    let steps: Vec<&str> = plan["steps"].as_array().unwrap().iter().map(|s| s["buffer_id"].as_str().unwrap()).collect();
    assert_eq!(steps, [later["buffer_id"].as_str().unwrap()], "{plan}");
    let (_, all) =
        operator(&open, "POST", "/v1/rollbacks", Some(&json!({"agent": "clerk", "since_ms": 0, "plan_only": true})))
            .await;
    assert_eq!(all["steps"].as_array().unwrap().len(), 2);
}
