//! A revoked key, a paused or removed agent: refused by every node as soon as one of them has answered.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use sluice_core::ids::RequestId;
use sluice_core::{HoldId, Millis};
use sluice_gateway::corridor::{self, CallOutcome};
use sluice_gateway::loops::{self, release::ReleaseLoop};
use sluice_gateway::rooms::identity::{CallRequest, principal};
use sluice_store::FreezeTarget;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{TwoTestNodes, called, mcp_body, mcp_head, tool_called};
use crate::http::ask;
use crate::test_gateway::{TestGatewayPlan, ana, clerk};

#[tokio::test]
async fn what_ends_a_credential_on_one_node_holds_on_every_node_when_it_is_answered() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let b = nodes.b[0];
    for name in ["revoked", "paused", "removed"] {
        assert_eq!(nodes.admin("POST", "/v1/agents", Some(json!({"name": name}))).await.status, 201);
        let (id, key) = nodes.made(json!({"agent": name})).await;
        assert_eq!(
            (called(b, &key).await, tool_called(b, &key).await),
            (None, None),
            "a new key opens every node at once"
        );
        let (done, code) = match name {
            "revoked" => (nodes.admin("DELETE", &format!("/v1/keys/{id}"), None).await, "identity.revoked"),
            "paused" => {
                let body = Some(json!({"reason": "odd mails"}));
                (nodes.admin("POST", "/v1/agents/paused/pause", body).await, "identity.paused")
            }
            _ => (nodes.admin("DELETE", "/v1/agents/removed", None).await, "identity.revoked"),
        };
        assert!(done.status < 300, "{done:?}");
        assert_eq!(called(b, &key).await.as_deref(), Some(code), "{name} over HTTP");
        assert_eq!(tool_called(b, &key).await.as_deref(), Some(code), "{name} over MCP");
        if name == "paused" {
            assert_eq!(nodes.admin("POST", "/v1/agents/paused/resume", None).await.status, 200);
            assert_eq!(
                (called(b, &key).await, tool_called(b, &key).await),
                (None, None),
                "and so does what ends a pause"
            );
        }
    }
}

#[tokio::test]
async fn every_kind_of_credential_ends_at_every_door_of_every_node() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let kinds = [
        (json!({"agent": "clerk"}), "GET", "/v1/whoami", vec![nodes.b[0]]),
        (json!({"operator": "vera", "role": "viewer"}), "GET", "/v1/status", nodes.b.to_vec()),
        (json!({"operator": "adam", "role": "admin"}), "GET", "/v1/freezes", nodes.b.to_vec()),
        (json!({"inbox": "mail"}), "POST", "/v1/inbox/email-reply", vec![nodes.b[0]]),
        (json!({"task_for": "clerk"}), "POST", "/v1/sessions", vec![nodes.b[0]]),
    ];
    for (whose, method, path, doors) in kinds {
        let (id, key) = nodes.made(whose.clone()).await;
        let body = (method == "POST").then(|| json!({}));
        for door in &doors {
            let before = ask(*door, method, path, &key, body.as_ref()).await;
            assert_ne!(before.status, 401, "{whose} at {path}: {before:?}");
        }
        assert_eq!(nodes.admin("DELETE", &format!("/v1/keys/{id}"), None).await.status, 204);
        for door in &doors {
            let after = ask(*door, method, path, &key, body.as_ref()).await;
            assert_eq!((after.status, after.code().as_str()), (401, "identity.revoked"), "{whose} at {path}");
        }
    }
}

#[tokio::test]
async fn nobody_is_let_in_by_credentials_that_cannot_be_asked_for() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let key = nodes.house.agent_key.clone();
    assert_eq!(ask(nodes.b[0], "GET", "/v1/whoami", &key, None).await.status, 200);
    nodes.house.database().unwrap().go_away();
    // It needs nothing of the database but who asks.
    let refused = ask(nodes.b[0], "GET", "/v1/whoami", &key, None).await;
    nodes.house.database().unwrap().come_back();
    assert_eq!(refused.status, 503, "{refused:?}");
}

/// Opens a stream and reads until it says that it is live.
async fn listen(at: SocketAddr, request: String, sign: &str) -> TcpStream {
    let mut line = TcpStream::connect(at).await.unwrap();
    line.write_all(request.as_bytes()).await.unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.contains(sign) {
        let n = tokio::time::timeout(Duration::from_secs(10), line.read(&mut buffer)).await.unwrap().unwrap();
        assert!(n > 0, "{text}");
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    line
}

/// Everything that still comes, up to its end.
async fn rest(mut line: TcpStream) -> String {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), line.read_to_end(&mut read)).await;
    ended.expect("the stream ends").unwrap();
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_stream_on_another_node_ends_with_the_credential_that_opened_it() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let (at, key) = (nodes.b[0], "authorization: Bearer");
    for whose in [json!({"operator": "vera", "role": "viewer"}), json!({"agent": "clerk"})] {
        let (id, token) = nodes.made(whose).await;
        let request = format!("GET /v1/events HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n{key} {token}\r\n\r\n");
        let stream = listen(at, request, ": listening").await;
        assert_eq!(nodes.admin("DELETE", &format!("/v1/keys/{id}"), None).await.status, 204);
        assert_eq!(called(nodes.a[0], &nodes.house.agent_key).await, None);
        let seen = rest(stream).await;
        assert!(!seen.contains("event:"), "it was shown what happened after it was revoked: {seen}");
    }
    let (id, token) = nodes.made(json!({"agent": "clerk"})).await;
    let body = mcp_body("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let head = mcp_head(at, &token, "subscriptions/listen");
    let request =
        format!("POST /mcp HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let stream = listen(at, request, "acknowledged").await;
    loops::tools::step(&nodes.other).await;
    assert_eq!(nodes.admin("DELETE", &format!("/v1/keys/{id}"), None).await.status, 204);
    nodes.house.gw.store.freeze(FreezeTarget::Agent(clerk()), ana(), "look".into()).await.unwrap();
    // The freeze wakes it; that its key is gone it has to find out itself.
    loops::tools::step(&nodes.other).await;
    let seen = rest(stream).await;
    assert!(!seen.contains("list_changed"), "{seen}");
}

/// A write that the agent asks for on the second node, by a visit that began before `meanwhile`.
async fn written(nodes: &TwoTestNodes, name: &str, meanwhile: impl AsyncFnOnce()) -> HoldId {
    let gw = &nodes.other;
    let path = nodes.house.folder.path().join("other/work").join(name);
    let wish = json!({"capability": "filesystem.write", "arguments": {"path": path, "content": "x"}, "wait_ms": 0});
    let principal = principal(gw, &nodes.house.agent_key).unwrap();
    meanwhile().await;
    let request = RequestId::mint(gw.ids.as_ref());
    let call_request =
        CallRequest { principal, door: "test", request, session: None, wish: serde_json::from_value(wish).unwrap() };
    match corridor::walk(gw, call_request).await.unwrap() {
        CallOutcome::Held { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_node_carries_out_nothing_of_an_agent_that_another_node_removed() {
    let plan =
        TestGatewayPlan { config: "holds: {delays: {filesystem.write: 30s}}\n".into(), ..TestGatewayPlan::default() };
    let Some(nodes) = TwoTestNodes::open(plan).await else { return };
    let (first, gw) = (&nodes.house.gw, &nodes.other);
    let mut release = ReleaseLoop::new(gw);
    // A pause ends new calls, not what was asked for before it.
    let before = written(&nodes, "paused", async || ()).await;
    first.store.pause_agent(clerk(), ana(), "odd".into()).await.unwrap();
    nodes.house.pass(Millis::from_secs(31));
    gw.record_awake(gw.clock.since_boot());
    release.step(gw).await.unwrap();
    assert_eq!(release.finish().await, 1);
    assert_eq!(gw.store.hold(before).await.unwrap().unwrap().state.word(), "done");
    first.store.resume_agent(clerk(), ana()).await.unwrap();
    gw.keyring.refresh(&gw.store).await.unwrap();
    // On its way in while its agent is removed: nothing in the database stops it but the second look.
    let late = written(&nodes, "removed", async || {
        first.store.remove_agent(clerk(), ana()).await.unwrap();
    })
    .await;
    nodes.house.pass(Millis::from_secs(31));
    gw.record_awake(gw.clock.since_boot());
    release.step(gw).await.unwrap();
    assert_eq!(release.finish().await, 0);
    assert!(!nodes.house.folder.path().join("other/work/removed").exists());
    assert_eq!(gw.store.hold(late).await.unwrap().unwrap().state.word(), "blocked");
}
