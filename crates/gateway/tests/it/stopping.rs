//! Stopping asks the database over connections of its own: ordinary work may hold every other one.

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::http::{OpenTestGateway, ask, doors, open};
use super::test_gateway::TestGatewayPlan;

/// Writes wait half a minute, deletions for a person.
fn plan() -> TestGatewayPlan {
    TestGatewayPlan {
        config: "holds: {delays: {\"filesystem.*\": 30s}}\n".into(),
        agent: "rules:\n  - {capability: filesystem.delete, tier: approval_required}\n".into(),
        ..TestGatewayPlan::default()
    }
}

/// One write that waits and one that is asked about: their ids.
async fn two(open: &OpenTestGateway, name: &str) -> (Value, Value) {
    let path = open.house.path(name);
    std::fs::write(&path, "x").unwrap();
    let call = |capability: &str, arguments: Value| {
        let body = json!({"capability": capability, "arguments": arguments});
        async move { ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&body)).await }
    };
    let held = call("filesystem.append", json!({"path": path, "content": "y"})).await;
    let asked = call("filesystem.delete", json!({"path": path})).await;
    assert_eq!((held.status, asked.status), (202, 202), "{held:?} {asked:?}");
    (held.json(), asked.json())
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap().to_owned()
}

// Whoever asks over an ordinary connection here waits for ever, and with it the thread that serves it.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn whatever_stops_or_shows_works_while_every_ordinary_connection_is_taken() {
    let open = doors(plan()).await;
    let (admin, agent) = (open.house.operator_token.clone(), open.house.agent_key.clone());
    let (held, asked) = two(&open, "a").await;
    let (other_held, other_asked) = two(&open, "b").await;
    let (_, third) = two(&open, "c").await;
    let taken = open.house.gw.store.occupy_readers();

    let question = text(&asked, "approval_id");
    for path in [
        "/livez".to_owned(),
        "/readyz".to_owned(),
        "/v1/status".to_owned(),
        "/v1/freezes".to_owned(),
        "/v1/holds".to_owned(),
        "/v1/calls".to_owned(),
        "/v1/alerts".to_owned(),
        "/v1/approvals?state=pending".to_owned(),
        format!("/v1/approvals/{question}"),
        format!("/v1/holds/{}", text(&held, "buffer_id")),
        format!("/v1/calls/{}", text(&held, "call_id")),
    ] {
        let seen = ask(open.stop, "GET", &path, &admin, None).await;
        assert_eq!(seen.status, 200, "{path}: {seen:?}");
    }
    assert_eq!(ask(open.stop, "GET", "/v1/status", &admin, None).await.json()["busy"], false, "and it is whole");

    let no = json!({"decision": "deny", "note": "not this one"});
    for (lane, question) in [(open.stop, question), (open.main, text(&other_asked, "approval_id"))] {
        let denied = ask(lane, "POST", &format!("/v1/approvals/{question}/decision"), &admin, Some(&no)).await;
        assert_eq!((denied.status, denied.json()["status"].as_str()), (200, Some("denied")), "{denied:?}");
    }
    let stop = format!("/v1/holds/{}/cancel", text(&held, "buffer_id"));
    assert_eq!(ask(open.stop, "POST", &stop, &admin, None).await.json()["state"], "cancelled");
    let stop = format!("/v1/calls/{}/cancel", text(&other_held, "call_id"));
    assert_eq!(ask(open.main, "POST", &stop, &agent, None).await.json()["state"], "cancelled", "its own agent");
    let frozen = ask(open.stop, "POST", "/v1/freezes", &admin, Some(&json!({"reason": "enough"}))).await;
    assert_eq!(frozen.status, 201, "{frozen:?}");
    let shown = ask(open.stop, "GET", &format!("/v1/calls/{}", text(&third, "call_id")), &agent, None).await;
    assert_eq!(shown.json()["status"], "awaiting_approval", "{shown:?}");
    drop(taken);
}

#[tokio::test]
async fn a_crowd_at_the_stop_lane_itself_keeps_nobody_from_stopping_things() {
    let open = open(plan()).await;
    let (_, asked) = two(&open, "a").await;
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(TcpStream::connect(open.stop).await.unwrap());
    }
    let frozen =
        ask(open.stop, "POST", "/v1/freezes", &open.house.operator_token, Some(&json!({"reason": "enough"}))).await;
    assert_eq!(frozen.status, 201, "{frozen:?}");
    // An agent that waits for something holds no place there either.
    let path = format!("/v1/calls/{}?wait_ms=60000", text(&asked, "call_id"));
    let seen = ask(open.stop, "GET", &path, &open.house.agent_key, None).await;
    assert_eq!(seen.json()["status"], "awaiting_approval", "{seen:?}");
    drop(crowd);
}
