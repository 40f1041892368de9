//! The MCP door: every revision over a real listener, and what a hostile client gets.

mod hostile;
mod lists;

use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_gateway::loops;
use sluice_store::{ApprovalRuling, DecideApproval};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http::{OpenTestGateway, RawHttpAnswer, open, raw};
use crate::test_gateway::{TestGatewayPlan, ana};

const NEWEST: &str = "2026-07-28";

/// A client of one revision, with its key and session.
#[derive(Clone)]
pub(crate) struct McpTestClient<'o> {
    open: &'o OpenTestGateway,
    key: String,
    revision: &'static str,
    session: Option<String>,
    capabilities: Value,
}

impl<'o> McpTestClient<'o> {
    pub(crate) fn newest(open: &'o OpenTestGateway) -> Self {
        let key = open.house.agent_key.clone();
        Self { open, key, revision: NEWEST, session: None, capabilities: json!({}) }
    }

    /// A client that has shaken hands.
    async fn older(open: &'o OpenTestGateway, revision: &'static str) -> Self {
        let mut client = Self { revision, ..Self::newest(open) };
        let params = json!({
            "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "test-client", "version": "1"},
        });
        let answer = client.send("initialize", &params, 0, &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["result"]["protocolVersion"], revision);
        client.session = Some(header(&answer, "mcp-session-id").expect("a session"));
        client
    }

    fn head(&self, method: &str, name: Option<&str>, more: &[(&str, &str)]) -> String {
        let address = self.open.main;
        let mut head = format!("host: {address}\r\nauthorization: Bearer {}\r\n", self.key);
        head += "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n";
        if method != "initialize" {
            head += &format!("mcp-protocol-version: {}\r\n", self.revision);
        }
        if self.revision == NEWEST {
            head += &format!("mcp-method: {method}\r\n");
            head += &name.map(|name| format!("mcp-name: {name}\r\n")).unwrap_or_default();
        }
        head += &self.session.as_ref().map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
        for (name, value) in more {
            head += &format!("{name}: {value}\r\n");
        }
        head
    }

    fn body(&self, method: &str, params: &Value, id: u64) -> String {
        let mut params = params.clone();
        if self.revision == NEWEST {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": NEWEST,
                "io.modelcontextprotocol/clientInfo": {"name": "test-client", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            });
            let merged = params["_meta"].as_object().cloned().unwrap_or_default();
            params["_meta"] = meta;
            params["_meta"].as_object_mut().unwrap().extend(merged);
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    }

    fn request(&self, method: &str, params: &Value, id: u64, more: &[(&str, &str)]) -> String {
        let name = params["name"].as_str().or_else(|| params["taskId"].as_str());
        let (head, body) = (self.head(method, name, more), self.body(method, params, id));
        format!("POST /mcp HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    async fn send(&self, method: &str, params: &Value, id: u64, more: &[(&str, &str)]) -> RawHttpAnswer {
        raw(self.open.main, self.request(method, params, id, more).as_bytes()).await
    }

    async fn result(&self, method: &str, params: Value, id: u64) -> Value {
        let answer = self.send(method, &params, id, &[]).await;
        let value = answer.json();
        assert!(value["error"].is_null(), "{value}");
        value["result"].clone()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value, id: u64) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments}), id).await
    }

    pub(crate) async fn tools(&self) -> Vec<String> {
        let listed = self.result("tools/list", json!({}), 90).await;
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn header(answer: &RawHttpAnswer, name: &str) -> Option<String> {
    answer.head.lines().find_map(|line| Some(line.split_once(": ").filter(|(n, _)| *n == name)?.1.to_owned()))
}

fn rules(rules: &str) -> TestGatewayPlan {
    TestGatewayPlan { agent: format!("rules:\n{rules}"), ..TestGatewayPlan::default() }
}

fn held() -> TestGatewayPlan {
    TestGatewayPlan { config: "holds: {delays: {filesystem.write: 30s}}\n".into(), ..TestGatewayPlan::default() }
}

async fn decide(open: &OpenTestGateway, approval: &str, ruling: ApprovalRuling) {
    let approval = approval.parse().unwrap();
    let decision =
        DecideApproval { approval, by: ana(), channel: "test".into(), ruling, shown: Vec::new(), allowance: None };
    open.house.gw.store.decide(decision).await.unwrap();
}

fn yes() -> ApprovalRuling {
    ApprovalRuling::Allow { answer: sluice_core::approval::ApprovalAnswer::Once, note: None }
}

#[tokio::test]
async fn every_revision_reads_through_the_corridor() {
    let open = open(TestGatewayPlan::default()).await;
    std::fs::write(open.house.work().join("notes"), "milk").unwrap();
    let path = open.house.path("notes");
    let clients = [
        McpTestClient::older(&open, "2025-06-18").await,
        McpTestClient::older(&open, "2025-11-25").await,
        McpTestClient::newest(&open),
    ];
    for client in clients {
        assert!(client.tools().await.contains(&"filesystem_read".to_owned()));
        let result = client.call("filesystem_read", json!({"path": path}), 2).await;
        assert_eq!(result["isError"], false, "{result}");
        assert_eq!(result["structuredContent"]["result"]["content"], "milk");
        assert_eq!(result["content"][0]["text"], "`filesystem_read` is done.");
        assert_eq!(result["resultType"].is_null(), client.revision != NEWEST);
    }
    let entries = open.house.entries().await;
    let by_door = entries.iter().filter(|entry| entry["fact"]["detail"]["door"] == "mcp");
    assert_eq!(by_door.filter(|entry| entry["fact"]["kind"] == "call.answered").count(), 3);
}

#[tokio::test]
async fn the_newest_revision_is_discovered_without_a_handshake() {
    let open = open(TestGatewayPlan::default()).await;
    let found = McpTestClient::newest(&open).result("server/discover", json!({}), 1).await;
    assert_eq!(found["supportedVersions"], json!(["2025-06-18", "2025-11-25", "2026-07-28"]));
    assert_eq!(found["capabilities"]["tools"]["listChanged"], true);
}

#[tokio::test]
async fn what_no_arguments_can_make_possible_is_not_listed_and_its_refusal_is_a_result() {
    let list = "  - {capability: filesystem.delete, tier: blocked, reason: keep it}\n  - {capability: filesystem.write, tier: notify, conditions: {path_prefix: /x}}\n  - {capability: filesystem.write, tier: blocked}\n";
    let open = open(rules(list)).await;
    let client = McpTestClient::newest(&open);
    let tools = client.tools().await;
    assert!(!tools.contains(&"filesystem_delete".to_owned()));
    assert!(tools.contains(&"filesystem_write".to_owned()), "with the right path it is possible");
    let result = client.call("filesystem_delete", json!({"path": open.house.path("a")}), 3).await;
    assert_eq!((result["isError"].clone(), &result["structuredContent"]["status"]), (json!(true), &json!("blocked")));
    // No path of this machine, no name of another door, and no other way to the same effect.
    assert_eq!(result["structuredContent"]["rule"], "agents/clerk.yaml:2");
    let said = result["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("What to do:") && said.contains("agents/clerk.yaml:2"), "{said}");
    assert!(
        !said.contains("filesystem.delete") && !said.contains(open.house.folder.path().to_str().unwrap()),
        "{said}"
    );
    let instead = result["structuredContent"]["alternatives"].as_array().unwrap();
    assert!(instead.len() > 1, "{result}");
    for write in ["write", "move", "copy", "append", "edit", "mkdir", "delete"] {
        assert!(!instead.iter().any(|tool| tool.as_str().unwrap().contains(write)), "{instead:?}");
    }
}

#[tokio::test]
async fn a_held_write_outlives_its_connection_and_can_be_cancelled() {
    let mut open = open(held()).await;
    let (main, path) = (open.main, open.house.path("a"));
    let client = McpTestClient::newest(&open);
    let arguments = json!({"name": "filesystem_write", "arguments": {"path": path, "content": "x"}});
    let mut line = TcpStream::connect(main).await.unwrap();
    line.write_all(client.request("tools/call", &arguments, 1, &[]).as_bytes()).await.unwrap();
    let mut first = [0; 12];
    line.read_exact(&mut first).await.unwrap();
    drop(line);
    let writes = client.call("sluice_status", json!({}), 2).await["structuredContent"]["writes"].clone();
    assert_eq!((writes.as_array().unwrap().len(), &writes[0]["status"]), (1, &json!("held")));
    let other = client.call("filesystem_write", json!({"path": open.house.path("b"), "content": "y"}), 3).await;
    let told = other["structuredContent"].clone();
    assert_eq!(told["status"], "held");
    assert_eq!(told["cancel"]["tool"], "sluice_cancel");
    let stopped = client.call("sluice_cancel", json!({"call_id": told["call_id"]}), 4).await;
    assert_eq!(stopped["structuredContent"]["status"], "cancelled");
    open.house.pass(Millis::from_secs(31));
    assert_eq!(open.house.let_go().await, 1, "the one that was not cancelled");
    assert!(open.house.work().join("a").exists() && !open.house.work().join("b").exists());
}

#[tokio::test]
async fn a_call_made_again_does_not_act_twice() {
    let open = open(held()).await;
    let arguments = json!({"path": open.house.path("a"), "content": "x"});
    let client = McpTestClient::older(&open, "2025-11-25").await;
    let first = client.call("filesystem_write", arguments.clone(), 7).await;
    let again = client.call("filesystem_write", arguments.clone(), 7).await;
    assert_eq!(first["structuredContent"]["call_id"], again["structuredContent"]["call_id"]);
    let later = client.call("filesystem_write", arguments.clone(), 8).await;
    assert_eq!(later["structuredContent"]["code"], "call.possible_duplicate");
    let newest = McpTestClient::newest(&open);
    let marked = json!({"name": "filesystem_write", "arguments": {"path": open.house.path("b"), "content": "x"},
        "_meta": {"claudecode/toolUseId": "toolu_1"}});
    let first = newest.result("tools/call", marked.clone(), 1).await;
    let again = newest.result("tools/call", marked, 2).await;
    assert_eq!(first["structuredContent"]["call_id"], again["structuredContent"]["call_id"]);
    let meant = json!({"path": open.house.path("a"), "content": "x", "sluice_allow_duplicate": true});
    let meant = newest.call("filesystem_write", meant, 3).await;
    assert_eq!(meant["structuredContent"]["status"], "held");
}

#[tokio::test]
async fn a_call_made_again_is_the_same_call_while_it_is_on_its_way_and_after_a_restart() {
    let mut open = open(held()).await;
    let arguments = json!({"path": open.house.path("a"), "content": "x", "sluice_allow_duplicate": true});
    let params = json!({"name": "filesystem_write", "arguments": arguments});
    let (id, request) = {
        let client = McpTestClient::older(&open, "2025-11-25").await;
        let made = || client.call("filesystem_write", arguments.clone(), 7);
        let (first, twin) = tokio::join!(made(), made());
        let id = first["structuredContent"]["call_id"].clone();
        assert_eq!(first["structuredContent"]["status"], "held", "{first}");
        assert_eq!(twin["structuredContent"]["call_id"], id, "{twin}");
        (id, client.request("tools/call", &params, 7, &[]))
    };
    let before = open.main.to_string();
    let address = open.anew().await;
    let again = raw(address, request.replace(&before, &address.to_string()).as_bytes()).await.json();
    assert_eq!(again["result"]["structuredContent"]["call_id"], id, "{again}");
    open.house.pass(Millis::from_secs(31));
    assert_eq!(open.house.let_go().await, 1, "one write, however often it was asked for");
}

#[tokio::test]
async fn a_prefix_does_not_make_a_tool_ours() {
    let open = open(rules("  - {capability: \"custom:*\", tier: blocked}\n")).await;
    let client = McpTestClient::newest(&open);
    let asked = |tool: &'static str| {
        let call = client.call("sluice_permission_prompt", json!({"tool_name": tool, "input": {}}), 1);
        async move { call.await["content"][0]["text"].as_str().unwrap().to_owned() }
    };
    assert!(asked("mcp__sluice__filesystem_write").await.contains("\"allow\""));
    assert!(asked("mcp__sluice__sluice_wait").await.contains("\"allow\""));
    for tool in
        ["mcp__sluice__evil__x", "mcp__sluice__nothing", "mcp_sluice_filesystem_write", "MCP:sluice:sluice_wait"]
    {
        let said = asked(tool).await;
        assert!(said.contains("\"deny\""), "{tool}: {said}");
    }
}

#[tokio::test]
async fn a_permission_prompt_is_answered_as_its_client_reads_it_and_only_a_yes_is_one() {
    let rule = "  - {capability: \"custom:exec_cmd\", tier: approval_required}\n  - {capability: \"custom:*\", tier: blocked}\n";
    let open = open(rules(rule)).await;
    let client = McpTestClient::newest(&open);
    let prompt = |tool: &str, input: Value, id: &str| {
        json!({"name": "sluice_permission_prompt", "arguments": {
        "tool_name": tool, "input": input, "tool_use_id": id}})
    };
    let verdict = |answer: &Value| -> Value {
        let content = answer["content"].as_array().unwrap();
        assert_eq!((content.len(), &content[0]["type"]), (1, &json!("text")), "one text and nothing else: {answer}");
        serde_json::from_str(content[0]["text"].as_str().unwrap()).unwrap()
    };
    // Blocked, and what is no question at all: a no with words, and never a protocol error.
    for arguments in [
        prompt("WebFetch2", json!({"url": "https://example.org"}), "t1"),
        json!({"name": "sluice_permission_prompt", "arguments": {}}),
        json!({"name": "sluice_permission_prompt", "arguments": {"tool_name": 7, "input": []}}),
    ] {
        let said = verdict(&client.result("tools/call", arguments.clone(), 1).await);
        assert_eq!(said["behavior"], "deny", "{arguments}: {said}");
        assert!(
            said["message"].as_str().is_some_and(|why| !why.is_empty()) && said.get("updatedInput").is_none(),
            "{said}"
        );
    }
    // A person's word decides; while there is none, nothing is said.
    let asked = [("make", "t3"), ("make clean", "t4")].map(|(command, id)| {
        client.request("tools/call", &prompt("Bash", json!({"command": command, "timeout": 5}), id), 2, &[])
    });
    let mut lines = Vec::new();
    for (n, request) in asked.iter().enumerate() {
        let mut line = TcpStream::connect(open.main).await.unwrap();
        line.write_all(request.as_bytes()).await.unwrap();
        let mut waiting = Value::Null;
        for _ in 0..2_000 {
            waiting = client.call("sluice_approvals", json!({}), 3).await["structuredContent"]["waiting"].clone();
            if waiting.as_array().is_some_and(|list| list.len() == n + 1) {
                break;
            }
        }
        let ids: Vec<String> =
            waiting.as_array().unwrap().iter().map(|one| one["approval_id"].as_str().unwrap().to_owned()).collect();
        lines.push((line, ids));
    }
    let first = lines[0].1[0].clone();
    let second = lines[1].1.iter().find(|id| **id != first).unwrap().clone();
    decide(&open, &first, yes()).await;
    decide(&open, &second, ApprovalRuling::Deny { note: Some("not now".into()) }).await;
    let house = &mut { open }.house;
    house.let_go().await;
    let mut said = Vec::new();
    for (mut line, _) in lines {
        let mut text = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), line.read_to_string(&mut text)).await;
        read.expect("an answer").unwrap();
        let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        said.push(verdict(&answer["result"]));
    }
    assert_eq!(said[0], json!({"behavior": "allow", "updatedInput": {"command": "make", "timeout": 5}}));
    assert_eq!(said[1]["behavior"], "deny");
    assert!(said[1]["message"].as_str().unwrap().contains("not now"), "{}", said[1]);
}

#[tokio::test]
async fn the_permission_prompt_is_listed_to_the_client_that_asks_and_to_no_other() {
    let open = open(TestGatewayPlan::default()).await;
    for (name, listed) in
        [("claude-code", true), ("Claude-Code", true), ("codex-mcp-client", false), ("not-claude-code", false)]
    {
        let newest = McpTestClient::newest(&open);
        let request = newest.request("tools/list", &json!({}), 1, &[]).replace("test-client", name);
        let length = request.split_once("\r\n\r\n").unwrap().1.len();
        let said = newest.body("tools/list", &json!({}), 1).len();
        let request = request.replace(&format!("content-length: {said}"), &format!("content-length: {length}"));
        let answer = raw(open.main, request.as_bytes()).await;
        assert_eq!(answer.body.contains("sluice_permission_prompt"), listed, "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn what_can_never_work_is_not_offered_and_what_was_stopped_stays_stopped() {
    let open = open(held()).await;
    let (older, newest) = (McpTestClient::older(&open, "2025-11-25").await, McpTestClient::newest(&open));
    let of_a_session = |tools: Vec<String>| tools.iter().filter(|tool| tool.starts_with("state_session_")).count();
    assert!(of_a_session(older.tools().await) > 0);
    assert_eq!(of_a_session(newest.tools().await), 0);
    let held = newest.call("filesystem_write", json!({"path": open.house.path("a"), "content": "x"}), 1).await;
    let id = held["structuredContent"]["call_id"].clone();
    for n in 2..4 {
        let stopped = newest.call("sluice_cancel", json!({"call_id": id}), n).await;
        assert_eq!(
            (&stopped["isError"], &stopped["structuredContent"]["status"]),
            (&json!(false), &json!("cancelled"))
        );
    }
    let params = json!({"name": "filesystem_write", "arguments": []});
    for client in [&older, &newest] {
        let answer = client.send("tools/call", &params, 9, &[]).await.json();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32602), &json!(9)), "{answer}");
    }
}

#[tokio::test]
async fn whoami_does_not_call_a_tool_blocked_that_some_arguments_open() {
    let rule = "  - {capability: filesystem.write, tier: notify, conditions: {path_prefix: /x}}\n  - {capability: filesystem.write, tier: blocked}\n";
    let open = open(rules(rule)).await;
    let said = McpTestClient::newest(&open).call("sluice_whoami", json!({}), 1).await;
    let tier = said["structuredContent"]["tiers"]["filesystem_write"].as_str().unwrap().to_owned();
    assert_eq!(tier, "notify to blocked, depending on the arguments", "{said}");
}

/// A client that knows the tasks extension.
fn tasks(open: &OpenTestGateway) -> McpTestClient<'_> {
    McpTestClient {
        capabilities: json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
        ..McpTestClient::newest(open)
    }
}

#[tokio::test]
async fn a_client_that_knows_tasks_gets_one_and_a_persons_no_is_its_result() {
    let mut open = open(rules("  - {capability: filesystem.write, tier: approval_required}\n")).await;
    let mut made = Vec::new();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let arguments = json!({"path": open.house.path(name), "content": "x"});
        let task = tasks(&open).call("filesystem_write", arguments, n as u64).await;
        assert_eq!((task["resultType"].as_str(), task["status"].as_str()), (Some("task"), Some("working")), "{task}");
        made.push(task["taskId"].as_str().unwrap().to_owned());
    }
    let waiting = tasks(&open).call("sluice_approvals", json!({}), 8).await["structuredContent"]["waiting"].clone();
    let approval = |id: &str| {
        let found = waiting.as_array().unwrap().iter().find(|write| write["call_id"] == id).unwrap();
        found["approval_id"].as_str().unwrap().to_owned()
    };
    decide(&open, &approval(&made[0]), yes()).await;
    decide(&open, &approval(&made[1]), ApprovalRuling::Deny { note: Some("wrong file".into()) }).await;
    tasks(&open).result("tasks/cancel", json!({"taskId": made[2]}), 9).await;
    open.house.let_go().await;
    let mut ends = Vec::new();
    for id in &made {
        ends.push(tasks(&open).result("tasks/get", json!({"taskId": id}), 10).await);
    }
    assert_eq!(ends[0]["status"], "completed", "{}", ends[0]);
    assert_eq!(ends[0]["result"]["structuredContent"]["status"], "done");
    assert_eq!((&ends[1]["status"], &ends[1]["result"]["isError"]), (&json!("completed"), &json!(false)));
    assert_eq!(ends[1]["result"]["structuredContent"]["status"], "denied");
    assert!(ends[1]["result"]["content"][0]["text"].as_str().unwrap().contains("wrong file"));
    assert_eq!(ends[2]["status"], "cancelled");
    assert!(open.house.work().join("a").exists() && !open.house.work().join("b").exists());
    let key = open.house.another("stranger").await;
    let stranger = McpTestClient { key, ..tasks(&open) };
    for method in ["tasks/get", "tasks/cancel"] {
        let answer = stranger.send(method, &json!({"taskId": made[0]}), 1, &[]).await;
        assert_eq!(answer.json()["error"]["code"], -32602, "{answer:?}");
    }
}

#[tokio::test]
async fn a_client_that_can_show_an_address_gets_one_that_decides_nothing() {
    let config = "approvals: {page: \"https://gate.example\", elicit: true}\n".to_owned();
    let plan = rules("  - {capability: filesystem.write, tier: approval_required}\n");
    let mut open = open(TestGatewayPlan { config, ..plan }).await;
    let arguments =
        |open: &OpenTestGateway, name: &str| json!({"path": open.house.path(name), "content": "secret words"});
    let mut asked = Vec::new();
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let shows = McpTestClient { capabilities: json!({"elicitation": {"url": {}}}), ..McpTestClient::newest(&open) };
        let one = shows.call("filesystem_write", arguments(&open, name), n as u64).await;
        assert_eq!(one["resultType"], "input_required", "{one}");
        let request = &one["inputRequests"]["look"];
        assert_eq!((&request["method"], &request["params"]["mode"]), (&json!("elicitation/create"), &json!("url")));
        let url = request["params"]["url"].as_str().unwrap();
        let path = url.strip_prefix("https://gate.example").unwrap().to_owned();
        asked.push((path, one["requestState"].clone()));
    }
    let address = open.main;
    let visit = async |method: &str, path: &str, body: &str| {
        let kind = "content-type: application/x-www-form-urlencoded\r\norigin: https://gate.example\r\n";
        let head = format!("{method} {path} HTTP/1.1\r\nhost: gate.example\r\nconnection: close\r\n{kind}");
        raw(address, format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await
    };
    // The agent has the address as well, and does with it what it can.
    let page = visit("GET", &asked[0].0, "").await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("filesystem.write") && page.body.contains("waits for a person"), "{}", page.body);
    assert!(!page.body.contains("<form") && !page.body.contains("secret words"), "{}", page.body);
    for body in ["answer=1", "page=0.x&answer=yes&words=", "page=&answer=1++Allow+once", ""] {
        let tried = visit("POST", &asked[0].0, body).await;
        assert!([400, 404, 415, 422].contains(&tried.status), "{tried:?}");
    }
    let shows = McpTestClient { capabilities: json!({"elicitation": {"url": {}}}), ..McpTestClient::newest(&open) };
    let waiting = shows.call("sluice_approvals", json!({}), 8).await["structuredContent"]["waiting"].clone();
    assert_eq!(waiting.as_array().map(Vec::len), Some(2), "both still wait: {waiting}");
    let approval = |path: &str| {
        let found = waiting.as_array().unwrap().iter().find(|one| path.ends_with(one["call_id"].as_str().unwrap()));
        found.unwrap()["approval_id"].as_str().unwrap().to_owned()
    };
    // What the client says to the address is no answer: the person's no counts.
    let again = |name: &str, state: &Value| {
        json!({
            "name": "filesystem_write", "arguments": arguments(&open, name), "requestState": state,
            "inputResponses": {"look": {"action": "accept"}},
        })
    };
    let no = approval(&asked[0].0);
    let (denied, ()) = tokio::join!(
        shows.result("tools/call", again("a", &asked[0].1), 10),
        decide(&open, &no, ApprovalRuling::Deny { note: None })
    );
    let code = &denied["structuredContent"]["code"];
    assert_eq!((&denied["isError"], code), (&json!(false), &json!("approval.denied")), "{denied}");
    // A state does not carry other arguments, and none of another agent.
    let wrong = shows.send("tools/call", &again("c", &asked[1].1), 11, &[]).await;
    assert_eq!(wrong.json()["error"]["code"], -32602, "{wrong:?}");
    decide(&open, &approval(&asked[1].0), yes()).await;
    let params = again("b", &asked[1].1);
    let key = open.house.another("stranger").await;
    open.house.let_go().await;
    let shows = McpTestClient { capabilities: json!({"elicitation": {"url": {}}}), ..McpTestClient::newest(&open) };
    let stranger = McpTestClient { key, ..shows.clone() }.send("tools/call", &params, 12, &[]).await;
    assert_eq!(stranger.json()["error"]["code"], -32602, "{stranger:?}");
    let done = shows.result("tools/call", params, 13).await;
    assert_eq!(done["structuredContent"]["status"], "done", "{done}");
    assert!(open.house.work().join("b").exists() && !open.house.work().join("a").exists());
}

#[tokio::test]
async fn a_client_with_a_progress_token_hears_that_its_call_waits_and_then_the_outcome() {
    let open = open(rules("  - {capability: system.info, tier: approval_required}\n")).await;
    let client = McpTestClient::older(&open, "2025-11-25").await;
    let params = json!({"name": "system_info", "arguments": {}, "_meta": {"progressToken": "p1"}});
    let mut line = TcpStream::connect(open.main).await.unwrap();
    line.write_all(client.request("tools/call", &params, 1, &[]).as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("notifications/progress") {
        assert!(line.read_buf(&mut read).await.unwrap() > 0, "{}", String::from_utf8_lossy(&read));
    }
    let waiting = client.call("sluice_approvals", json!({}), 2).await["structuredContent"]["waiting"].clone();
    decide(&open, waiting[0]["approval_id"].as_str().unwrap(), yes()).await;
    let mut house = open.house;
    house.let_go().await;
    tokio::time::timeout(Duration::from_secs(20), line.read_to_end(&mut read)).await.expect("an outcome").unwrap();
    let text = String::from_utf8_lossy(&read);
    assert!(text.contains("waiting for a person") && text.contains("Sluicegate"), "{text}");
}

#[tokio::test]
async fn those_who_listen_hear_when_their_tools_change_and_only_then() {
    let open = open(TestGatewayPlan::default()).await;
    let older = McpTestClient::older(&open, "2025-11-25").await;
    let newest = McpTestClient::newest(&open);
    let get = format!("GET /mcp HTTP/1.1\r\n{}\r\n", older.head("x", None, &[]));
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let listen = newest.request("subscriptions/listen", &listen, 1, &[]);
    let mut lines = Vec::new();
    for (request, sign) in [(get, ": listening"), (listen, "acknowledged")] {
        let mut line = TcpStream::connect(open.main).await.unwrap();
        line.write_all(request.as_bytes()).await.unwrap();
        until(&mut line, sign).await;
        lines.push(line);
    }
    let house = &open.house;
    loops::tools::step(&house.gw).await;
    loops::tools::step(&house.gw).await;
    let stranger = sluice_core::AgentName::new("stranger").unwrap();
    house.gw.store.freeze(sluice_store::FreezeTarget::Agent(stranger), ana(), "no".into()).await.unwrap();
    loops::tools::step(&house.gw).await;
    for line in &mut lines {
        let heard = tokio::time::timeout(Duration::from_millis(200), line.read_u8()).await;
        assert!(heard.is_err(), "nothing changed for this agent");
    }
    let rules = house.folder.path().join("policies/agents/clerk.yaml");
    std::fs::write(rules, "rules: [{capability: \"state.*\", tier: blocked}]\n").unwrap();
    loops::policy::reload(&house.gw, ana()).await.unwrap();
    loops::tools::step(&house.gw).await;
    for line in &mut lines {
        until(line, "notifications/tools/list_changed").await;
    }
    house.gw.store.freeze(sluice_store::FreezeTarget::All, ana(), "stop".into()).await.unwrap();
    loops::tools::step(&house.gw).await;
    for line in &mut lines {
        until(line, "notifications/tools/list_changed").await;
    }
    assert!(!newest.tools().await.iter().any(|tool| tool.starts_with("state_")));
}

/// Reads until a text has come.
async fn until(line: &mut TcpStream, text: &str) {
    let mut read = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&read).contains(text) {
            assert!(line.read_buf(&mut read).await.unwrap() > 0, "{}", String::from_utf8_lossy(&read));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap_or_else(|_| panic!("no {text}"));
}
