//! A test gateway with its HTTP doors open, and a plain client for them.
//!
//! Takes the plan of a test gateway; gives the addresses of its listeners, and the answers to requests, read whole. The
//! listeners are real and end with the value.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_api::http::route::ListenerLane;
use sluice_api::http::{HttpDoor, serve};
use sluice_gateway::Gateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// A house with its doors open.
pub(crate) struct OpenTestGateway {
    pub(crate) house: TestGateway,
    pub(crate) main: SocketAddr,
    pub(crate) stop: SocketAddr,
    ends: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct RawHttpAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl RawHttpAnswer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) async fn open(plan: TestGatewayPlan) -> OpenTestGateway {
    let mut open = doors(plan).await;
    open.tasks.spawn(sluice_gateway::loops::events::run(Arc::clone(&open.house.gw), open.ends.subscribe()));
    open
}

/// The same with nothing in it that reads the database by itself.
pub(crate) async fn doors(plan: TestGatewayPlan) -> OpenTestGateway {
    let house = TestGateway::new(plan).await;
    let (ends, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut addresses = Vec::new();
    for lane in [ListenerLane::Main, ListenerLane::Stop] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        let gw: Arc<Gateway> = Arc::clone(&house.gw);
        tasks.spawn(serve(HttpDoor::new(gw, lane).unwrap(), listener, None, stopped.clone()));
    }
    OpenTestGateway { house, main: addresses[0], stop: addresses[1], ends, tasks }
}

impl OpenTestGateway {
    /// Another main listener of the same gateway, whose doors remember nothing.
    pub(crate) async fn anew(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = HttpDoor::new(Arc::clone(&self.house.gw), ListenerLane::Main).unwrap();
        self.tasks.spawn(serve(door, listener, None, self.ends.subscribe()));
        address
    }
}

/// Sends bytes and reads until the other side closes or the answer is whole.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> RawHttpAnswer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut read = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut read)).await.expect("an answer").unwrap();
    let text = String::from_utf8_lossy(&read).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    RawHttpAnswer { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub(crate) async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: &str,
    body: Option<&Value>,
) -> RawHttpAnswer {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let auth = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{auth}{kind}content-length: {length}\r\n\r\n{body}"
    );
    raw(address, request.as_bytes()).await
}
