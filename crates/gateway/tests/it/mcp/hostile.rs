//! What a hostile client gets at the MCP door.

use sluice_gateway::rooms::identity;

use crate::http::ask;

use super::*;

#[tokio::test]
async fn the_handles_of_others_do_not_exist() {
    let open = open(held()).await;
    let arguments = json!({"path": open.house.path("a"), "content": "x"});
    let mine = McpTestClient::newest(&open).call("filesystem_write", arguments, 1).await["structuredContent"].clone();
    let key = open.house.another("stranger").await;
    let stranger = McpTestClient { key, ..McpTestClient::newest(&open) };
    for tool in ["sluice_status", "sluice_wait", "sluice_cancel"] {
        for id in [&mine["call_id"], &mine["buffer_id"], &json!("call_1"), &json!(7)] {
            let result = stranger.call(tool, json!({"call_id": id}), 2).await;
            assert_eq!(result["structuredContent"]["code"], "call.not_found", "{tool} {id}: {result}");
        }
    }
    let status = McpTestClient::newest(&open).call("sluice_status", json!({"call_id": mine["buffer_id"]}), 3).await;
    assert_eq!(status["structuredContent"]["status"], "held");
}

#[tokio::test]
async fn a_session_is_no_credential_and_belongs_to_its_agent() {
    let open = open(TestGatewayPlan::default()).await;
    let client = McpTestClient::older(&open, "2025-11-25").await;
    let nobody = McpTestClient { key: "nothing".into(), ..client.clone() };
    assert_eq!(nobody.send("tools/list", &json!({}), 1, &[]).await.status, 401);
    let key = open.house.another("stranger").await;
    let stranger = McpTestClient { key, ..client.clone() };
    assert_eq!(stranger.send("tools/list", &json!({}), 1, &[]).await.status, 404);
    let unknown = McpTestClient { session: Some(format!("sess_{:032x}", 9)), ..client.clone() };
    assert_eq!(unknown.send("tools/list", &json!({}), 1, &[]).await.status, 404);
    let ending = format!("DELETE /mcp HTTP/1.1\r\n{}connection: close\r\n\r\n", client.head("x", None, &[]));
    assert_eq!(raw(open.main, ending.as_bytes()).await.status, 204);
    assert_eq!(client.send("tools/list", &json!({}), 2, &[]).await.status, 404, "it is over");
}

#[tokio::test]
async fn a_session_that_ends_while_a_body_takes_its_time_is_over_for_that_body() {
    let open = open(TestGatewayPlan::default()).await;
    let client = McpTestClient::older(&open, "2025-11-25").await;
    let call = json!({"name": "system_info", "arguments": {}});
    let request = client.request("tools/call", &call, 1, &[("expect", "100-continue")]);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut slow = TcpStream::connect(open.main).await.unwrap();
    slow.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    // The head was taken in; whatever is looked at before the body has been looked at.
    until(&mut slow, "100 Continue").await;
    let ending = format!("DELETE /mcp HTTP/1.1\r\n{}connection: close\r\n\r\n", client.head("x", None, &[]));
    assert_eq!(raw(open.main, ending.as_bytes()).await.status, 204);
    slow.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test]
async fn a_key_that_is_revoked_while_a_body_takes_its_time_opens_nothing_at_either_door() {
    let open = open(TestGatewayPlan::default()).await;
    let gw = &open.house.gw;
    let call = json!({"name": "system_info", "arguments": {}});
    let client = McpTestClient::newest(&open);
    let plain = json!({"capability": "system.info", "arguments": {}}).to_string();
    let length = plain.len();
    let plain = format!(
        "POST /v1/calls HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\nconnection: \
         close\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n{plain}",
        open.main, client.key
    );
    let requests = [client.request("tools/call", &call, 1, &[("expect", "100-continue")]), plain];
    let mut slow = Vec::new();
    for request in &requests {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let mut line = TcpStream::connect(open.main).await.unwrap();
        line.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
        until(&mut line, "100 Continue").await;
        slow.push((line, body));
    }
    let key = identity::principal(gw, &client.key).unwrap().key();
    gw.store.revoke_key(key, ana()).await.unwrap();
    gw.keyring.refresh(&gw.store).await.unwrap();
    for (mut line, body) in slow {
        line.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        line.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_looks_for_a_sign_in_after_a_wrong_key_is_told_that_the_key_is_wrong() {
    let open = open(TestGatewayPlan::default()).await;
    for path in ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server", "/register"] {
        let answer = ask(open.main, "GET", path, "", None).await;
        assert_eq!((answer.status, answer.body.contains("no OAuth sign-in")), (404, true), "{path}: {answer:?}");
    }
    let other = ask(open.main, "GET", "/registers", "", None).await;
    assert!(other.status == 404 && !other.body.contains("OAuth"), "{other:?}");
}

#[tokio::test]
async fn only_keys_of_agents_of_this_gateway_open_the_door() {
    let open = open(TestGatewayPlan::default()).await;
    let house = &open.house;
    let own = McpTestClient::newest(&open);
    let other_gateway = crate::test_gateway::TestGateway::new(TestGatewayPlan::default()).await.another("clerk2").await;
    for key in [&house.operator_token, &house.viewer_token, &house.inbox_key] {
        let answer = McpTestClient { key: key.clone(), ..own.clone() }.send("tools/list", &json!({}), 1, &[]).await;
        assert_eq!((answer.status, answer.code()), (403, "identity.wrong_kind".to_owned()));
    }
    let answer = McpTestClient { key: other_gateway, ..own.clone() }.send("tools/list", &json!({}), 1, &[]).await;
    assert_eq!(answer.status, 401);
    assert_eq!(header(&answer, "www-authenticate").as_deref(), Some("bearer"), "no other place to get a token from");
}

#[tokio::test]
async fn foreign_hosts_and_pages_do_not_get_in() {
    let open = open(TestGatewayPlan::default()).await;
    let client = McpTestClient::newest(&open);
    let own = format!("http://{}", open.main);
    assert_eq!(client.send("tools/list", &json!({}), 1, &[("origin", &own)]).await.status, 200);
    for origin in ["http://evil.example", "null", "http://localhost:1", "http://127.0.0.1"] {
        let answer = client.send("tools/list", &json!({}), 1, &[("origin", origin)]).await;
        assert_eq!((answer.status, answer.code()), (403, "door.origin".to_owned()), "{origin}");
    }
    let twice = client.send("tools/list", &json!({}), 1, &[("origin", &own), ("origin", "http://evil.example")]).await;
    assert_eq!(twice.status, 403);
    let request = client.request("tools/list", &json!({}), 1, &[]);
    let request = request.replace(&format!("host: {}", open.main), "host: evil.example");
    assert_eq!(raw(open.main, request.as_bytes()).await.status, 403);
}

#[tokio::test]
async fn headers_and_body_must_agree() {
    let open = open(TestGatewayPlan::default()).await;
    let client = McpTestClient::newest(&open);
    let call = json!({"name": "system_info", "arguments": {}});
    let good = client.request("tools/call", &call, 1, &[]);
    for (what, with) in [
        ("mcp-method: tools/call", "mcp-method: tools/list"),
        ("mcp-name: system_info", "mcp-name: system_time"),
        ("mcp-protocol-version: 2026-07-28", "mcp-protocol-version: 2025-11-25"),
        ("mcp-method: tools/call", "mcp-method: tools/call\r\nmcp-method: tools/list"),
        ("mcp-method: tools/call\r\n", ""),
    ] {
        assert!(good.contains(what));
        let answer = raw(open.main, good.replace(what, with).as_bytes()).await;
        assert_eq!(answer.status, 400, "{with}: {answer:?}");
    }
    assert_eq!(raw(open.main, good.as_bytes()).await.status, 200);
    let calls = open.house.record().await.into_iter().filter(|kind| kind.starts_with("call.")).count();
    assert_eq!(calls, 1, "only the good one was a call");
}

#[tokio::test]
async fn floods_batches_and_nonsense_end_at_the_door() {
    let open = open(TestGatewayPlan::default()).await;
    let client = McpTestClient::newest(&open);
    let post = |body: String| {
        let head = client.head("tools/list", None, &[]);
        format!("POST /mcp HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let one = client.body("tools/list", &json!({}), 1);
    for (body, status) in [
        (format!("[{one},{one}]"), 400),
        ("{\"jsonrpc\":".into(), 400),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"tools/list\"}".into(), 400),
        (format!("{{\"x\":\"{}\"}}", "y".repeat(1 << 21)), 413),
        (format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000)), 400),
        ("7".into(), 400),
    ] {
        let answer = raw(open.main, post(body).as_bytes()).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let unknown = client.send("files/erase", &json!({}), 1, &[]).await;
    assert_eq!(unknown.json()["error"]["code"], -32601);
    for nothing in ["prompts/list", "resources/list", "resources/templates/list", "completion/complete"] {
        let params = json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}});
        let answer = client.send(nothing, &params, 1, &[]).await;
        assert_eq!(answer.json()["error"]["code"], -32601, "what is not announced is not answered: {answer:?}");
    }
    let missing = client.send("tools/call", &json!({"name": "no_such_tool", "arguments": {}}), 1, &[]).await;
    assert_eq!(missing.json()["error"]["code"], -32602);
}

#[tokio::test]
async fn neither_a_batch_of_a_thousand_writes_nor_giant_arguments_leave_anything_behind() {
    let open = open(held()).await;
    let client = McpTestClient::newest(&open);
    let write = |content: &str| {
        let arguments = json!({"path": open.house.path("a"), "content": content});
        json!({"name": "filesystem_write", "arguments": arguments})
    };
    let one = client.body("tools/call", &write("x"), 1);
    let many = format!("[{}]", vec![one; 1_000].join(","));
    let head = client.head("tools/call", Some("filesystem_write"), &[]);
    let flood =
        format!("POST /mcp HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {}\r\n\r\n{many}", many.len());
    assert_eq!(raw(open.main, flood.as_bytes()).await.status, 400);
    // Within what a body may have, but deeper than anything is read.
    let deep = format!("{}1{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    let body = client.body("tools/call", &write("DEEP"), 1).replace("\"DEEP\"", &deep);
    let deep = format!("POST /mcp HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(raw(open.main, deep.as_bytes()).await.status, 400);
    assert!(open.house.gw.store.holds(None, 10).await.unwrap().is_empty(), "nothing is held");
    assert!(!open.house.record().await.iter().any(|kind| kind.starts_with("call.")), "nothing was a call");
    let good = client.call("filesystem_write", write("x")["arguments"].clone(), 2).await;
    assert_eq!(good["structuredContent"]["status"], "held", "the same is held when it is asked once: {good}");
}
