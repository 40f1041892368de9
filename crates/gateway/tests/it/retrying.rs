//! Writes that are tried again: what people and agents are told of them, and what people can do about them.

use serde_json::{Value, json};
use sluice_core::Millis;

use crate::http::{OpenTestGateway, ask, open};
use crate::test_gateway::TestGatewayPlan;

/// A gateway whose one way out leads to a port at which nobody listens.
async fn unreachable() -> (OpenTestGateway, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "batch: {{services: {{network: off}}}}\nholds: {{delays: {{\"network.*\": 0s}}}}\negress:\n  connections:\n    \
         web: {{hosts: [127.0.0.1], ports: [{port}], http: true, methods: [GET, POST], allow_addresses: [127.0.0.1], \
         agents: [clerk]}}\n"
    );
    (open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await, format!("http://127.0.0.1:{port}/pay"))
}

async fn operator(open: &OpenTestGateway, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let answer = ask(open.main, method, path, &open.house.operator_token, body).await;
    (answer.status, answer.json())
}

/// A write that was tried once, in vain. Gives the ids of its call and its hold.
async fn tried_once(open: &mut OpenTestGateway, url: &str) -> (String, String) {
    let arguments = json!({"url": url, "method": "POST", "body": "1"});
    let call =
        json!({"capability": "network.http_request", "arguments": arguments, "wait_ms": 0, "allow_duplicate": true});
    let answer = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await.json();
    open.house.let_go().await;
    let id = |name: &str| answer[name].as_str().unwrap().to_owned();
    (id("call_id"), id("buffer_id"))
}

#[tokio::test]
async fn a_retrying_write_says_which_attempt_comes_when_and_why_at_every_door() {
    let (mut open, url) = unreachable().await;
    let (call, hold) = tried_once(&mut open, &url).await;
    let next = (open.house.gw.now() + Millis::from_mins(1)).to_string();
    let paths = [format!("/v1/calls/{call}"), format!("/v1/holds/{hold}")];
    let agents = ask(open.main, "GET", &paths[0], &open.house.agent_key, None).await.json();
    let people = [operator(&open, "GET", &paths[0], None).await.1, operator(&open, "GET", &paths[1], None).await.1];
    let listed = operator(&open, "GET", "/v1/holds?state=retrying", None).await.1["data"][0].clone();
    let status = operator(&open, "GET", "/v1/status", None).await.1;
    for told in people.iter().chain([&agents, &listed, &status["retrying"][0]]) {
        assert_eq!(told["status"], "retrying", "{told}");
        assert_eq!(told["retry"], json!({"attempt": 1, "of": 5, "next_at": next}), "{told}");
        let error = &told["last_error"];
        assert_eq!(
            (&error["code"], &error["text"]),
            (&json!("egress.connect"), &json!("the host could not be reached"))
        );
    }
    assert_eq!((&people[1]["state"], &listed["state"]), (&json!("retrying"), &json!("retrying")));
    assert_eq!(status["holds"], json!({"retrying": 1}));
    assert_eq!(operator(&open, "GET", "/v1/holds?state=preparing", None).await.1["data"], json!([]));
    // The next attempt fails as well: the number and the time move on.
    open.house.pass(Millis::from_mins(1));
    open.house.let_go().await;
    let told = operator(&open, "GET", &paths[1], None).await.1;
    let next = (open.house.gw.now() + Millis::from_mins(2)).to_string();
    assert_eq!(told["retry"], json!({"attempt": 2, "of": 5, "next_at": next}), "{told}");
}

#[tokio::test]
async fn a_person_tries_a_retrying_write_now_or_gives_it_up() {
    let (mut open, url) = unreachable().await;
    for (path, body) in [("settle", Some("again")), ("send-now", None)] {
        let (_, hold) = tried_once(&mut open, &url).await;
        let before = operator(&open, "GET", &format!("/v1/holds/{hold}"), None).await.1;
        let body = body.map(|word| json!({"word": word, "version": before["version"]}));
        let (status, told) = operator(&open, "POST", &format!("/v1/holds/{hold}/{path}"), body.as_ref()).await;
        assert_eq!((status, &told["status"]), (200, &json!("retrying")), "{told}");
        open.house.let_go().await;
        let after = operator(&open, "GET", &format!("/v1/holds/{hold}"), None).await.1;
        assert_eq!(after["attempts"], 2, "tried at once: {after}");
        let body = json!({"word": "give_up", "version": after["version"]});
        let (status, told) = operator(&open, "POST", &format!("/v1/holds/{hold}/settle"), Some(&body)).await;
        assert_eq!((status, &told["state"]), (200, &json!("discarded")), "{told}");
        // Given up is given up.
        open.house.pass(Millis::from_hours(1));
        open.house.let_go().await;
        assert_eq!(operator(&open, "GET", &format!("/v1/holds/{hold}"), None).await.1["attempts"], 2);
    }
    // Who gave a write up knows it.
    let alerts = operator(&open, "GET", "/v1/alerts", None).await.1;
    assert!(!alerts.to_string().contains("hold.dead"), "{alerts}");
}

#[tokio::test]
async fn a_write_that_used_up_its_attempts_is_a_critical_alert() {
    let (mut open, url) = unreachable().await;
    let (_, hold) = tried_once(&mut open, &url).await;
    for minutes in [1, 2, 4, 8, 16] {
        open.house.pass(Millis::from_mins(minutes));
        open.house.let_go().await;
    }
    let told = operator(&open, "GET", &format!("/v1/dead-letters/{hold}"), None).await.1;
    assert_eq!((&told["state"], &told["last_error"]["code"]), (&json!("dead"), &json!("egress.connect")), "{told}");
    assert_eq!(told.get("retry"), None, "{told}");
    let alerts = operator(&open, "GET", "/v1/alerts", None).await.1;
    let dead = alerts["data"].as_array().unwrap().iter().find(|alert| alert["topic"] == "hold.dead").unwrap();
    assert_eq!(dead["severity"], "critical", "{alerts}");
}
