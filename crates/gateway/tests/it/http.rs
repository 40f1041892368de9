//! The HTTP door: a real listener, real connections.

mod open_gateway;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_api::http::route::{CredentialKind, RouteAccess};
use sluice_api::http::{openapi, routes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use self::open_gateway::{OpenTestGateway, RawHttpAnswer, ask, doors, open, raw};
use super::test_gateway::TestGatewayPlan;

#[tokio::test]
async fn a_call_over_http_is_answered_with_its_result() {
    let open = open(TestGatewayPlan::default()).await;
    let call = json!({"capability": "system.info", "arguments": {}});
    let answer = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    assert_eq!((body["status"].as_str(), body["result"]["name"].as_str()), (Some("done"), Some("Sluicegate")));
    assert!(answer.head.contains("x-request-id: req_") && answer.head.contains("cache-control: no-store"));
    let id = body["call_id"].as_str().unwrap();
    let again = ask(open.main, "GET", &format!("/v1/calls/{id}"), &open.house.agent_key, None).await;
    assert_eq!(again.json()["status"], "done", "{again:?}");
}

#[tokio::test]
async fn a_blocked_call_is_a_decision_with_its_rule() {
    let plan = TestGatewayPlan {
        agent: "rules: [{capability: \"system.*\", tier: blocked}]\n".into(),
        ..TestGatewayPlan::default()
    };
    let open = open(plan).await;
    let call = json!({"capability": "system.info"});
    let answer = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
    assert_eq!(answer.status, 403);
    let body = answer.json();
    assert_eq!((body["status"].as_str(), body["code"].as_str()), (Some("blocked"), Some("policy.blocked")));
    assert!(body["rule"].as_str().unwrap().ends_with("agents/clerk.yaml:1"));
}

#[tokio::test]
async fn no_credential_opens_a_route_of_another_kind() {
    let open = open(TestGatewayPlan::default()).await;
    let house = &open.house;
    for route in routes::all().filter(|route| route.access != RouteAccess::Open) {
        let path = route.path.replace("{call_id}", &format!("call_{:032x}", 1)).replace("{name}", "clerk");
        let path = path.replace("{buffer_id}", &format!("buf_{:032x}", 1));
        let path = path.replace("{approval_id}", &format!("appr_{:032x}", 1));
        let path = path.replace("{session_id}", &format!("sess_{:032x}", 1));
        let path =
            path.replace("{key_id}", &format!("key_{:032x}", 1)).replace("{alert_id}", &format!("msg_{:032x}", 1));
        let path = path.replace("{allowance_id}", &format!("alw_{:032x}", 1));
        let path = path.replace("{rule_id}", &format!("rule_{:032x}", 1));
        let path = path.replace("{finding_id}", &format!("fnd_{:032x}", 1));
        let path = path.replace("{dashboard_session_id}", &format!("dash_{:032x}", 1));
        let path = path.replace("{watch_id}", &format!("watch_{:032x}", 1));
        let path = path.replace("{finding_id}", &format!("fnd_{:032x}", 1));
        assert!(!path.contains('{'), "{path}");
        let body = route.body.map(|_| json!({}));
        // Which kinds a route is for, written down here once more: an access that lets in one more kind fails.
        let (agent, inbox, task, operator) = match route.access {
            RouteAccess::Open => continue,
            RouteAccess::Agent => (true, false, false, false),
            RouteAccess::Inbox => (false, true, false, false),
            RouteAccess::Operator(_) => (false, false, false, true),
            RouteAccess::Either(_) => (true, false, false, true),
            RouteAccess::Task(_) => (false, false, true, true),
            RouteAccess::Sessions(_) => (true, false, true, true),
        };
        for (kind, token, may) in [
            ("nobody", "", false),
            ("agent", house.agent_key.as_str(), agent),
            ("inbox", house.inbox_key.as_str(), inbox),
            ("task", house.task_key.as_str(), task),
            ("operator", house.operator_token.as_str(), operator),
        ] {
            if may {
                continue;
            }
            let answer = ask(open.main, route.method, &path, token, body.as_ref()).await;
            let expected = if kind == "nobody" { "identity.missing" } else { "identity.wrong_kind" };
            assert_eq!(answer.code(), expected, "{kind} at {} {path}: {answer:?}", route.method);
        }
        if route.access.least().is_some_and(|least| least > sluice_store::OperatorRole::Viewer) {
            let answer = ask(open.main, route.method, &path, &house.viewer_token, body.as_ref()).await;
            assert_eq!(answer.code(), "identity.not_allowed", "a viewer at {} {path}", route.method);
        }
    }
    let sessions = routes::all()
        .filter(|route| route.access != RouteAccess::Open && route.access.takes(CredentialKind::Task))
        .map(|route| route.path);
    assert_eq!(sessions.collect::<Vec<_>>(), ["/v1/sessions", "/v1/sessions/{session_id}/task"]);
    for token in [&house.task_key, &house.inbox_key, &house.operator_token] {
        let answer = ask(open.main, "POST", "/mcp", token, Some(&json!({}))).await;
        assert_eq!(answer.code(), "identity.wrong_kind", "{answer:?}");
    }
}

#[tokio::test]
async fn revoked_expired_and_unknown_credentials_are_told_apart_and_refused() {
    let open = open(TestGatewayPlan::default()).await;
    let admin = &open.house.operator_token;
    let made = ask(open.main, "POST", "/v1/keys", admin, Some(&json!({"agent": "clerk", "ttl_s": 60}))).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (token, id) = (made.json()["token"].clone(), made.json()["key_id"].clone());
    let token = token.as_str().unwrap();
    let who = |token: &str| {
        let token = token.to_owned();
        async move { ask(open.main, "GET", "/v1/whoami", &token, None).await }
    };
    assert_eq!(who(token).await.json()["name"], "clerk");
    open.house.pass(sluice_core::Millis::from_secs(61));
    assert_eq!(who(token).await.code(), "identity.expired");
    let gone = ask(open.main, "DELETE", &format!("/v1/keys/{}", id.as_str().unwrap()), admin, None).await;
    assert_eq!(gone.status, 204, "{gone:?}");
    assert_eq!(who(token).await.code(), "identity.revoked");
    assert_eq!(who("sga_nonsense").await.code(), "identity.unknown");
    let listed = ask(open.main, "GET", "/v1/keys", admin, None).await;
    assert!(!listed.body.contains(token), "a token is shown once");
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_turned_away() {
    let open = open(TestGatewayPlan::default()).await;
    let request =
        |host: &str, extra: &str| format!("GET /livez HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{extra}\r\n");
    for (host, extra, status) in [
        ("127.0.0.1", "", 200),
        ("localhost:7420", "", 200),
        ("[::1]:7420", "", 200),
        ("evil.example", "", 403),
        ("127.0.0.1.evil.example", "", 403),
        ("localhost", "origin: http://evil.example\r\n", 403),
        ("localhost", "origin: null\r\n", 403),
        ("localhost", "host: evil.example\r\n", 400),
    ] {
        let answer = raw(open.main, request(host, extra).as_bytes()).await;
        assert_eq!(answer.status, status, "{host} {extra:?}: {answer:?}");
    }
}

#[tokio::test]
async fn bodies_too_large_too_slow_or_not_json_are_refused_with_their_code() {
    let plan = TestGatewayPlan {
        config: "limits: {body_timeout: 300ms, head_timeout: 300ms}\n".into(),
        ..TestGatewayPlan::default()
    };
    let open = open(plan).await;
    let key = &open.house.agent_key;
    let post = |kind: &str, length: usize, body: &str| {
        format!(
            "POST /v1/calls HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
             content-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let big = format!("{{\"capability\":\"{}\"}}", "x".repeat(2 << 20));
    let answer = raw(open.main, post("application/json", big.len(), &big).as_bytes()).await;
    assert_eq!(answer.code(), "door.too_large");
    let answer = raw(open.main, post("application/json", 100, "{").as_bytes()).await;
    assert_eq!(answer.code(), "door.too_slow");
    let answer = raw(open.main, post("text/plain", 2, "{}").as_bytes()).await;
    assert_eq!(answer.code(), "door.media_type");
    for (body, code) in [
        ("{", "json.syntax"),
        ("{\"capability\":\"a\",\"capability\":\"b\"}", "json.duplicate_key"),
        ("{\"capability\":\"system.time\",\"colour\":1}", "schema.wrong_type"),
        ("[]", "schema.wrong_type"),
        ("{\"capability\":\"system.time\",\"wait_ms\":123456789012345678901}", "json.lossy_number"),
    ] {
        let answer = raw(open.main, post("application/json", body.len(), body).as_bytes()).await;
        assert_eq!(answer.code(), code, "{body}");
    }
    // A head that never ends is cut off.
    let mut stream = TcpStream::connect(open.main).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: local").await.unwrap();
    let mut rest = Vec::new();
    let cut = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "the connection is closed");
}

#[tokio::test]
async fn a_crowd_of_idle_connections_leaves_the_stop_lane_free() {
    let plan = TestGatewayPlan { config: "limits: {connections: 64}\n".into(), ..TestGatewayPlan::default() };
    let open = open(plan).await;
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(TcpStream::connect(open.main).await.unwrap());
    }
    let answer = raw(open.main, b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "door.overloaded"), "{answer:?}");
    let admin = &open.house.operator_token;
    let frozen = ask(open.stop, "POST", "/v1/freezes", admin, Some(&json!({"reason": "enough"}))).await;
    assert_eq!(frozen.status, 201, "{frozen:?}");
    let status = ask(open.stop, "GET", "/v1/status", admin, None).await;
    assert_eq!(status.json()["freezes"][0]["scope"], "all");
}

#[tokio::test]
async fn the_stop_lane_serves_stopping_and_nothing_that_starts() {
    let open = open(TestGatewayPlan::default()).await;
    let answer =
        ask(open.stop, "POST", "/v1/calls", &open.house.agent_key, Some(&json!({"capability": "system.time"}))).await;
    assert_eq!(answer.code(), "door.method");
    for route in routes::all().filter(|route| route.stops && route.method == "GET" && !route.path.contains('{')) {
        let answer = ask(open.stop, "GET", route.path, &open.house.operator_token, None).await;
        assert_eq!(answer.status, 200, "{}: {answer:?}", route.path);
    }
}

#[tokio::test]
async fn foreign_calls_do_not_exist() {
    let open = open(TestGatewayPlan {
        config: "holds: {delays: {\"filesystem.*\": 30s}}\n".into(),
        ..TestGatewayPlan::default()
    })
    .await;
    let admin = &open.house.operator_token;
    ask(open.main, "POST", "/v1/agents", admin, Some(&json!({"name": "other"}))).await;
    let made = ask(open.main, "POST", "/v1/keys", admin, Some(&json!({"agent": "other"}))).await;
    let other = made.json()["token"].as_str().unwrap().to_owned();
    let write = json!({"capability": "filesystem.write", "arguments": {"path": open.house.path("a"), "content": "x"}});
    let held = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&write)).await;
    assert_eq!(held.status, 202, "{held:?}");
    let id = held.json()["call_id"].as_str().unwrap().to_owned();
    for (method, path) in [("GET", format!("/v1/calls/{id}")), ("POST", format!("/v1/calls/{id}/cancel"))] {
        assert_eq!(ask(open.main, method, &path, &other, None).await.code(), "call.not_found", "{method}");
    }
    let own = ask(open.main, "POST", &format!("/v1/calls/{id}/cancel"), &open.house.agent_key, None).await;
    assert_eq!(own.json()["state"], "cancelled", "{own:?}");
}

#[tokio::test]
async fn events_resume_where_they_were_left() {
    let open = open(TestGatewayPlan::default()).await;
    for _ in 0..3 {
        let call = json!({"capability": "system.time"});
        ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
    }
    let read = |after: String, wanted: usize| {
        let (main, key) = (open.main, open.house.operator_token.clone());
        async move {
            let mut stream = TcpStream::connect(main).await.unwrap();
            let request = format!(
                "GET /v1/events?types=call.answered HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
                 last-event-id: {after}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while text.matches("event: call.answered").count() < wanted {
                let n = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.unwrap().unwrap();
                assert!(n > 0, "{text}");
                text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
            }
            text
        }
    };
    let first = read("test:0".into(), 3).await;
    let ids: Vec<&str> = first.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids.len(), 3);
    let rest = read(ids[0].to_owned(), 2).await;
    let again: Vec<&str> = rest.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(again, ids[1..]);
    let listening = read(ids[2].to_owned(), 1);
    let call = json!({"capability": "system.time"});
    let (live, _) = tokio::join!(listening, ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)));
    assert!(live.contains("event: call.answered"));
}

#[tokio::test]
async fn a_key_has_four_streams_and_gets_a_place_back_when_one_ends() {
    let open = open(TestGatewayPlan::default()).await;
    let key = &open.house.viewer_token;
    let request = format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n");
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(open.main).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        streams.push(stream);
    }
    assert_eq!(ask(open.main, "GET", "/v1/events", key, None).await.code(), "door.too_many");
    let events = &open.house.gw.signals.events;
    let own = sluice_core::ids::KeyId::from_bits(1);
    let (first, second) = (events.reserve_slot(own, 1000, 1), events.reserve_slot(own, 1000, 1));
    assert!(first.is_some() && second.is_none());
    drop(first);
    assert!(events.reserve_slot(own, 1000, 1).is_some() && events.reserve_slot(own, 4, 1).is_none());
}

#[test]
fn the_api_description_is_what_the_routes_say() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let printed = serde_json::to_string_pretty(&openapi::document()).unwrap() + "\n";
    #[expect(clippy::disallowed_methods, reason = "the switch of this test is its edge; nothing else reads it")]
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    if update {
        std::fs::write(&path, &printed).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == printed, "docs/openapi.json is stale: run this test with UPDATE_DOCS=1");
}

#[test]
fn every_route_names_its_answers_and_refusals() {
    for route in routes::all() {
        assert!(!route.answers.is_empty(), "{} {}", route.method, route.path);
        assert!(route.about.ends_with('.'), "{}", route.path);
        assert!(!route.codes().is_empty(), "{}", route.path);
        assert!(route.method != "GET" || route.body.is_none(), "{}", route.path);
    }
}

#[tokio::test]
async fn a_watch_is_read_over_http_and_hides_what_the_rules_hide() {
    let open = open(TestGatewayPlan::default()).await;
    let house = &open.house;
    std::fs::create_dir(house.work().join("secret")).unwrap();
    let root = house.work().display().to_string();
    let call = json!({"capability": "filesystem.watch", "arguments": {"path": root, "recursive": true}});
    let begun = ask(open.main, "POST", "/v1/calls", &house.agent_key, Some(&call)).await;
    let id = begun.json()["result"]["watch_id"].as_str().unwrap().to_owned();
    let rules = format!(
        "rules:\n  - {{capability: filesystem.read, tier: blocked, conditions: {{path_prefix: \"{root}/secret/\"}}}}\n"
    );
    std::fs::write(house.folder.path().join("policies/agents/clerk.yaml"), rules).unwrap();
    sluice_gateway::loops::policy::reload(&house.gw, crate::test_gateway::ana())
        .await
        .unwrap()
        .expect("another version");
    std::fs::write(house.work().join("secret/key.txt"), "7").unwrap();
    std::fs::write(house.work().join("open.txt"), "x").unwrap();
    let address = format!("/v1/watches/{id}?wait_ms=20000");
    let mut seen = ask(open.main, "GET", &address, &house.agent_key, None).await;
    while !seen.body.contains("open.txt") {
        let after = seen.json()["last"].as_u64().unwrap();
        seen = ask(open.main, "GET", &format!("{address}&after={after}"), &house.agent_key, None).await;
        assert_eq!(seen.status, 200, "{seen:?}");
    }
    let all = ask(open.main, "GET", &format!("/v1/watches/{id}"), &house.agent_key, None).await;
    assert!(all.body.contains("open.txt") && !all.body.contains("key.txt"), "{all:?}");
    assert_eq!(ask(open.main, "DELETE", &format!("/v1/watches/{id}"), &house.agent_key, None).await.status, 204);
    let gone = ask(open.main, "GET", &format!("/v1/watches/{id}"), &house.agent_key, None).await;
    assert_eq!(gone.code(), "filesystem.no_watch");
}

#[tokio::test]
async fn a_watch_of_shared_values_tells_names_and_versions_to_its_agent_alone() {
    let mut open = open(TestGatewayPlan::default()).await;
    let call = json!({"capability": "state.shared.watch", "arguments": {"prefix": "plan/"}});
    let begun = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
    let id = begun.json()["result"]["subscription_id"].as_str().unwrap().to_owned();
    for key in ["plan/a", "other"] {
        let set = json!({"key": key, "value": "hush", "expected_version": 0});
        open.house.call("state.shared.set", set).await.unwrap();
        open.house.let_go().await;
    }
    let address = format!("/v1/watches/{id}");
    let seen = ask(open.main, "GET", &address, &open.house.agent_key, None).await;
    let events = seen.json()["events"].clone();
    assert_eq!(events, json!([{"number": 1, "kind": "set", "key": "plan/a", "version": 1}]), "{seen:?}");
    let admin = &open.house.operator_token;
    ask(open.main, "POST", "/v1/agents", admin, Some(&json!({"name": "other"}))).await;
    let made = ask(open.main, "POST", "/v1/keys", admin, Some(&json!({"agent": "other"}))).await;
    let other = made.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(ask(open.main, "GET", &address, &other, None).await.code(), "filesystem.no_watch");
    assert_eq!(ask(open.main, "DELETE", &address, &other, None).await.code(), "filesystem.no_watch");
    assert_eq!(ask(open.main, "DELETE", &address, &open.house.agent_key, None).await.status, 204);
}

/// Reads on until this was said.
async fn hear(line: &mut TcpStream, words: &str) {
    let mut heard = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&heard).contains(words) {
            heard.push(line.read_u8().await.expect("the line is open"));
        }
    };
    // Less than the silence after which a stream gives a sign of life.
    tokio::time::timeout(Duration::from_secs(10), read).await.expect("it is said in time");
}

#[tokio::test]
async fn a_gateway_that_stops_ends_its_streams_at_once() {
    let open = open(TestGatewayPlan::default()).await;
    let mut line = TcpStream::connect(open.main).await.unwrap();
    let (host, token) = (open.main, &open.house.operator_token);
    let request = format!("GET /v1/events HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n");
    line.write_all(request.as_bytes()).await.unwrap();
    hear(&mut line, ": listening").await;
    open.house.gw.enter(sluice_gateway::GatewayPhase::Stopping);
    // The last chunk of the answer.
    hear(&mut line, "\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn rules_that_come_back_are_in_the_history_twice() {
    let open = open(TestGatewayPlan::default()).await;
    let token = &open.house.operator_token;
    let mut versions = Vec::new();
    for tier in ["notify", "blocked", "notify"] {
        let files = json!({"files": {"org.yaml": format!("defaults: {{tier: {tier}}}\n")}});
        let applied = ask(open.main, "PUT", "/v1/policy", token, Some(&files)).await;
        versions.insert(0, applied.json()["version"].clone());
    }
    let history = ask(open.main, "GET", "/v1/policy/history?limit=3", token, None).await.json();
    let told: Vec<Value> = history["data"].as_array().unwrap().iter().map(|line| line["version"].clone()).collect();
    assert_eq!(told, versions, "{history}");
    // One version, however often it was in force.
    let start = versions[1].as_str().unwrap().get(.."sha256:".len() + 12).unwrap();
    let reverted = ask(open.main, "POST", "/v1/policy/revert", token, Some(&json!({"version": start}))).await;
    assert_eq!(reverted.json()["version"], versions[1], "{reverted:?}");
    let start = versions[0].as_str().unwrap().get(.."sha256:".len() + 12).unwrap();
    let reverted = ask(open.main, "POST", "/v1/policy/revert", token, Some(&json!({"version": start}))).await;
    assert_eq!(reverted.json()["version"], versions[0], "{reverted:?}");
}

#[tokio::test]
async fn rules_an_operator_puts_in_force_are_recorded_as_theirs() {
    let open = open(TestGatewayPlan::default()).await;
    let (_ends, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(sluice_gateway::loops::policy::run(Arc::clone(&open.house.gw), stopped));
    for tier in ["notify", "approval_required", "autonomous", "blocked"] {
        let files = json!({"files": {"org.yaml": format!("defaults: {{tier: {tier}}}\n")}});
        open.house.clock.advance(sluice_core::Millis::from_secs(1));
        let applied = ask(open.main, "PUT", "/v1/policy", &open.house.operator_token, Some(&files)).await;
        assert_eq!((applied.status, applied.json()["changed"].as_bool()), (200, Some(true)), "{applied:?}");
        let history = open.house.gw.store.policy_history(1).await.unwrap();
        assert_eq!(history[0].by, crate::test_gateway::ana());
    }
}

#[tokio::test]
async fn the_limit_of_a_head_is_held_to_the_byte() {
    let open = open(TestGatewayPlan::default()).await;
    let most = usize::try_from(open.house.gw.config.limits.head.as_bytes()).unwrap();
    let with = |size: usize| {
        let line = format!("GET /livez HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", open.main);
        // Counted as sent: a name, a colon and a blank, the value, and the end of the line.
        let counted = "/livez".len() + "host: ".len() + open.main.to_string().len() + 2 + "connection: close\r\n".len();
        format!("{line}x-pad: {}\r\n\r\n", "x".repeat(size - counted - "x-pad: \r\n".len()))
    };
    assert_eq!(raw(open.main, with(most).as_bytes()).await.status, 200);
    let refused = raw(open.main, with(most + 1).as_bytes()).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (431, Some("door.head_too_large")), "{refused:?}");
    // What the reader itself cannot take has no words, but is refused as well.
    let many: String = (0..300).map(|n| format!("x-{n}: 1\r\n")).collect();
    let many = format!("GET /livez HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{many}\r\n", open.main);
    assert_eq!(raw(open.main, many.as_bytes()).await.status, 431);
    for trick in ["content-length: 1\r\ncontent-length: 2\r\n", "x: a\r\n folded\r\n", "no colon\r\n", "a b: c\r\n"] {
        let bytes = format!("POST /v1/calls HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{trick}\r\n", open.main);
        let status = raw(open.main, bytes.as_bytes()).await.status;
        assert!((400..500).contains(&status), "{trick:?}: {status}");
    }
}

#[tokio::test]
async fn a_parameter_nobody_knows_is_refused_and_not_passed_over() {
    let open = open(TestGatewayPlan::default()).await;
    let answer = ask(open.main, "GET", "/v1/approvals?statsu=pending", &open.house.operator_token, None).await;
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.body.contains("`statsu`") && answer.body.contains("state"), "{answer:?}");
}

#[tokio::test]
async fn a_change_that_a_room_refuses_is_refused_as_a_call_would_be() {
    let agent = "rules:\n  - {capability: filesystem.delete, tier: approval_required}\n".into();
    let open = open(TestGatewayPlan { agent, ..TestGatewayPlan::default() }).await;
    std::fs::write(open.house.path("a"), "x").unwrap();
    let call = json!({"capability": "filesystem.delete", "arguments": {"path": open.house.path("a")}});
    let asked = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await.json();
    let path = format!("/v1/approvals/{}/decision", asked["approval_id"].as_str().unwrap());
    for (arguments, code) in [
        (json!({"path": "/nowhere/passwd"}), "filesystem.out_of_scope"),
        (json!({"path": open.house.path("a"), "more": 1}), "schema.unknown_argument"),
        (json!([]), "schema.not_an_object"),
    ] {
        let changed = json!({"decision": "modify", "arguments": arguments});
        let answer = ask(open.main, "POST", &path, &open.house.operator_token, Some(&changed)).await;
        assert_eq!(answer.code(), code, "{answer:?}");
    }
}

#[tokio::test]
async fn a_key_is_made_within_bounds_or_not_at_all() {
    let open = open(TestGatewayPlan::default()).await;
    for body in [
        json!({"agent": "clerk", "label": "x".repeat(101)}),
        json!({"agent": "clerk", "ttl_s": 0}),
        json!({"agent": "clerk", "ttl_s": 9_007_199_254_740_991_u64}),
    ] {
        let answer = ask(open.main, "POST", "/v1/keys", &open.house.operator_token, Some(&body)).await;
        assert_eq!(answer.code(), "door.parameter", "{answer:?}");
    }
}

#[tokio::test]
async fn calls_go_on_beside_two_thousand_idle_connections() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() || limit.maximum.is_some_and(|most| most < 4_500) {
        return sluice_testkit::skip("a process may have too few files open here");
    }
    let plan = TestGatewayPlan {
        config: "limits: {connections: 2100, connections_per_peer: 2100, head_timeout: 60s}\n".into(),
        ..TestGatewayPlan::default()
    };
    let open = open(plan).await;
    let mut crowd = Vec::new();
    for _ in 0..2_000 {
        crowd.push(TcpStream::connect(open.main).await.unwrap());
    }
    for _ in 0..20 {
        let call = json!({"capability": "system.time"});
        let answer = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(crowd.len(), 2_000);
}
