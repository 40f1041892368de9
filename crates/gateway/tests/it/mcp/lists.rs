//! Lists of tools: which an agent is shown in which client, what it finds, and when it is told of a change.

use sluice_gateway::GatewayPhase;

use super::*;
use crate::http::ask;

impl<'o> McpTestClient<'o> {
    /// A client program with this name that has shaken hands.
    async fn named(open: &'o OpenTestGateway, name: &str) -> Self {
        let mut client = Self { revision: "2025-11-25", ..Self::newest(open) };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": name, "version": "1"},
        });
        let answer = client.send("initialize", &params, 0, &[]).await;
        client.session = Some(header(&answer, "mcp-session-id").expect("a session"));
        client
    }

    async fn find(&self, query: &str) -> Value {
        self.call("sluice_find_tools", json!({"query": query}), 50).await["structuredContent"].clone()
    }
}

fn has(tools: &[String], name: &str) -> bool {
    tools.iter().any(|tool| tool == name)
}

#[tokio::test]
async fn a_coding_client_is_shown_few_tools_and_finds_the_others() {
    let open = open(rules("  - {capability: filesystem.delete, tier: blocked}\n")).await;
    std::fs::write(open.house.work().join("notes"), "milk").unwrap();
    let coding = McpTestClient::named(&open, "claude-code").await;
    let other = McpTestClient::named(&open, "codex-mcp-client").await;
    let before = coding.tools().await;
    assert!(before.len() <= 12 && before.iter().all(|tool| tool.starts_with("sluice_")), "{before:?}");
    assert!(McpTestClient::named(&open, "my script").await.tools().await.len() > 30, "others see everything");
    // A tool that is not listed works all the same: the rules decide.
    let read = coding.call("filesystem_read", json!({"path": open.house.path("notes")}), 2).await;
    assert_eq!(read["structuredContent"]["status"], "done", "{read}");
    let overview = coding.find("").await;
    assert!(overview["services"]["filesystem"].as_u64().unwrap() > 5, "{overview}");
    let found = coding.find("read a file").await;
    assert_eq!(found["tools"][0]["name"], "filesystem_read", "{found}");
    assert!(found["tools"][0]["arguments"]["properties"]["path"].is_object(), "{found}");
    assert!(found["tools"].as_array().unwrap().len() <= 8 && found["more"].as_u64().is_some());
    let blocked = coding.find("filesystem delete").await.to_string();
    assert!(!blocked.contains("filesystem_delete"), "what the rules block is not found: {blocked}");
    assert!(has(&coding.tools().await, "filesystem_read"), "what was found is listed from then on");
    assert_eq!(
        other.tools().await.len(),
        before.len() - 1,
        "and in no other conversation, which has no permission prompt"
    );
}

#[tokio::test]
async fn an_agents_own_toolset_counts_in_every_client() {
    let config = "tools: {agents: {clerk: [files, \"state.persistent.*\"]}}\n".to_owned();
    let open = open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    for name in ["claude-code", "my script"] {
        let tools = McpTestClient::named(&open, name).await.tools().await;
        assert!(has(&tools, "filesystem_read") && has(&tools, "state_persistent_get"), "{name}: {tools:?}");
        assert!(!has(&tools, "state_shared_get") && has(&tools, "sluice_find_tools"), "{name}: {tools:?}");
    }
}

#[tokio::test]
async fn a_client_that_follows_changes_searches_a_long_list_and_any_other_has_it_whole() {
    let config = "tools: {search_above: 10, clients: {claude-code: all}}\n".to_owned();
    let open = open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    let follows = McpTestClient::named(&open, "claude-code").await;
    let before = follows.tools().await;
    assert!(before.iter().all(|tool| tool.starts_with("sluice_")), "{before:?}");
    assert_eq!(follows.find("set shared state").await["status"], "done");
    assert!(has(&follows.tools().await, "state_shared_set"));
    let plain = McpTestClient::named(&open, "my script").await.tools().await;
    assert!(plain.len() > 30 && has(&plain, "sluice_find_tools"), "{plain:?}");
}

#[tokio::test]
async fn every_listed_tool_is_short_and_says_nothing_about_the_form_of_its_answer() {
    let open = open(TestGatewayPlan::default()).await;
    let listed = McpTestClient::newest(&open).result("tools/list", json!({}), 1).await;
    for tool in listed["tools"].as_array().unwrap() {
        let about = tool["description"].as_str().unwrap();
        assert!(about.chars().count() <= 300, "{tool}");
        assert!(tool["outputSchema"].is_null(), "{tool}");
    }
    assert!(listed["nextCursor"].is_null(), "one page");
    let wrong = McpTestClient::newest(&open).send("tools/list", &json!({"cursor": "x"}), 2, &[]).await;
    assert_eq!(wrong.json()["error"]["code"], -32602, "{wrong:?}");
}

#[tokio::test]
async fn what_a_list_costs_is_shown_with_the_agent() {
    let open = open(TestGatewayPlan::default()).await;
    let shown = ask(open.main, "GET", "/v1/agents/clerk", &open.house.operator_token, None).await.json();
    let lists = shown["tools"].as_array().unwrap();
    assert_eq!((&lists[0]["toolset"], &lists[0]["clients"]), (&json!("all"), &json!([])), "{shown}");
    assert_eq!(lists[1]["toolset"], "minimal");
    assert!(lists[1]["clients"].as_array().unwrap().contains(&json!("claude-code")), "{shown}");
    let tokens = |n: usize| lists[n]["tokens"].as_u64().unwrap();
    assert!(tokens(1) < 1_000 && tokens(0) < 10_000 && tokens(0) > 2 * tokens(1), "{shown}");
    let page = ask(open.main, "GET", "/v1/agents", &open.house.operator_token, None).await.json();
    assert!(page["data"][0]["tools"].is_null(), "a list of agents does not compute them");
}

#[tokio::test]
async fn a_waiting_call_gets_its_call_id_when_the_gateway_stops() {
    let open = open(rules("  - {capability: filesystem.write, tier: approval_required}\n")).await;
    let client = McpTestClient::older(&open, "2025-11-25").await;
    let write = |name: &str, meta: Value| {
        let arguments = json!({"path": open.house.path(name), "content": "x"});
        json!({"name": "filesystem_write", "arguments": arguments, "_meta": meta})
    };
    let mut lines = Vec::new();
    for (n, params) in [write("a", json!({})), write("b", json!({"progressToken": "p"}))].into_iter().enumerate() {
        let mut line = TcpStream::connect(open.main).await.unwrap();
        line.write_all(client.request("tools/call", &params, n as u64 + 1, &[]).as_bytes()).await.unwrap();
        for _ in 0..2_000 {
            let waiting = client.call("sluice_approvals", json!({}), 9).await;
            if waiting["structuredContent"]["waiting"].as_array().is_some_and(|list| list.len() == n + 1) {
                break;
            }
        }
        lines.push(line);
    }
    open.house.gw.enter(GatewayPhase::Stopping);
    for mut line in lines {
        let mut text = String::new();
        // Shorter than the patience of a call.
        let read = tokio::time::timeout(Duration::from_secs(15), line.read_to_string(&mut text)).await;
        read.expect("an answer before the gateway is gone").unwrap();
        assert!(text.contains("\"status\":\"awaiting_approval\"") && text.contains("\"call_id\":\"call_"), "{text}");
    }
}

#[tokio::test]
async fn a_client_that_comes_back_is_told_if_its_list_is_another_one() {
    let mut open = open(TestGatewayPlan::default()).await;
    let (get, id, same) = {
        let client = McpTestClient::older(&open, "2025-11-25").await;
        client.tools().await;
        let get = |more: &str| format!("GET /mcp HTTP/1.1\r\n{}{more}\r\n", client.head("x", None, &[]));
        let mut line = TcpStream::connect(open.main).await.unwrap();
        line.write_all(get("").as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains("\nid: ") {
            assert!(line.read_buf(&mut read).await.unwrap() > 0);
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        let id = text.split("\nid: ").nth(1).unwrap().lines().next().unwrap().trim().to_owned();
        (get(""), id.clone(), get(&format!("last-event-id: {id}\r\n")))
    };
    assert_eq!(id.len(), 64, "{id}");
    // The same list: nothing to say.
    let mut line = TcpStream::connect(open.main).await.unwrap();
    line.write_all(same.as_bytes()).await.unwrap();
    until(&mut line, ": listening").await;
    let heard = tokio::time::timeout(Duration::from_millis(300), line.read_u8()).await;
    assert!(heard.is_err(), "nothing changed");
    let rules = open.house.folder.path().join("policies/agents/clerk.yaml");
    std::fs::write(rules, "rules: [{capability: \"state.*\", tier: blocked}]\n").unwrap();
    loops::policy::reload(&open.house.gw, ana()).await.unwrap();
    // While it was away; the first door remembers its list, the second one goes by what the client says.
    let (before, fresh) = (open.main.to_string(), open.anew().await);
    for (address, request) in [(open.main, get), (fresh, same)] {
        let mut line = TcpStream::connect(address).await.unwrap();
        line.write_all(request.replace(&before, &address.to_string()).as_bytes()).await.unwrap();
        until(&mut line, "notifications/tools/list_changed").await;
    }
}
