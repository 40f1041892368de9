//! Several gateways on one PostgreSQL: what is decided on one holds on all, and each knows of the others.

mod carrying;
mod credentials;
mod listing;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::http::route::ListenerLane;
use sluice_api::http::{HttpDoor, serve};
use sluice_gateway::{Gateway, loops};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::http::{RawHttpAnswer, ask};
use crate::test_gateway::{OnPostgresServer, TestGatewayOn, TestGatewayPlan};

/// Two gateways on one database, each with both of its doors open. Nothing runs in the background but what tells listeners
/// about the record: a node learns of the other only by what it asks itself.
pub(crate) struct TwoTestNodes {
    pub(crate) house: TestGatewayOn<OnPostgresServer>,
    pub(crate) other: Arc<Gateway>,
    /// Main and stop listener of the first.
    pub(crate) a: [SocketAddr; 2],
    /// Those of the second.
    pub(crate) b: [SocketAddr; 2],
    _ends: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl TwoTestNodes {
    /// Nothing where there is no server.
    pub(crate) async fn open(plan: TestGatewayPlan) -> Option<Self> {
        let house = TestGatewayOn::<OnPostgresServer>::new(plan).await;
        let other = house.beside("other").await?;
        let (ends, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut addresses = Vec::new();
        for gw in [&house.gw, &other] {
            for lane in [ListenerLane::Main, ListenerLane::Stop] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                addresses.push(listener.local_addr().unwrap());
                tasks.spawn(serve(HttpDoor::new(Arc::clone(gw), lane).unwrap(), listener, None, stopped.clone()));
            }
            tasks.spawn(loops::events::run(Arc::clone(gw), stopped.clone()));
        }
        let [a, a_stop, b, b_stop] = addresses[..] else { unreachable!() };
        Some(Self { house, other, a: [a, a_stop], b: [b, b_stop], _ends: ends, _tasks: tasks })
    }

    /// An admin asks the first node.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: Option<Value>) -> RawHttpAnswer {
        ask(self.a[0], method, path, &self.house.operator_token, body.as_ref()).await
    }

    /// A credential made on the first node; its id and itself.
    pub(crate) async fn made(&self, body: Value) -> (String, String) {
        let made = self.admin("POST", "/v1/keys", Some(body)).await;
        assert_eq!(made.status, 201, "{made:?}");
        let text = |name: &str| made.json()[name].as_str().unwrap().to_owned();
        (text("key_id"), text("token"))
    }
}

/// A call over HTTP, and the code it is refused with.
pub(crate) async fn called(at: SocketAddr, key: &str) -> Option<String> {
    let answer = ask(at, "POST", "/v1/calls", key, Some(&json!({"capability": "system.time"}))).await;
    (answer.status != 200).then(|| answer.code())
}

/// The head of a request to the MCP door.
pub(crate) fn mcp_head(at: SocketAddr, key: &str, method: &str) -> String {
    format!(
        "host: {at}\r\nauthorization: Bearer {key}\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n"
    )
}

/// The body of a request in the newest revision of MCP.
pub(crate) fn mcp_body(method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test-client", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// A tool call over MCP, and the code it is refused with.
pub(crate) async fn tool_called(at: SocketAddr, key: &str) -> Option<String> {
    let body = mcp_body("tools/call", json!({"name": "system_time", "arguments": {}}));
    let head = mcp_head(at, key, "tools/call") + "mcp-name: system_time\r\n";
    let length = body.len();
    let request = format!("POST /mcp HTTP/1.1\r\n{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    let answer = crate::http::raw(at, request.as_bytes()).await;
    if answer.status != 200 {
        return Some(answer.code());
    }
    let result = answer.json()["result"].clone();
    (result["isError"] != false).then(|| result["structuredContent"]["code"].as_str().unwrap().to_owned())
}
