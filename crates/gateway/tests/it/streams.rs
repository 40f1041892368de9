//! Streams of events live as long as the credential that opened them.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::Millis;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::http::{OpenTestGateway, ask, open};
use super::test_gateway::TestGatewayPlan;

/// Opens a stream and reads as far as it is live.
async fn listen(address: SocketAddr, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.contains(": listening") {
        let n = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(n > 0, "{text}");
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    stream
}

/// Everything that still comes, up to the end of the stream.
async fn rest(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut read)).await;
    ended.expect("the stream ends").unwrap();
    String::from_utf8(read).unwrap()
}

/// Makes a credential; gives its id and itself.
async fn made(open: &OpenTestGateway, body: Value) -> (String, String) {
    let made = ask(open.main, "POST", "/v1/keys", &open.house.operator_token, Some(&body)).await;
    assert_eq!(made.status, 201, "{made:?}");
    let text = |name: &str| made.json()[name].as_str().unwrap().to_owned();
    (text("key_id"), text("token"))
}

async fn something_happens(open: &OpenTestGateway) {
    let call = json!({"capability": "system.time"});
    ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
}

#[tokio::test]
async fn a_stream_ends_when_its_credential_is_revoked() {
    let open = open(TestGatewayPlan::default()).await;
    let admin = &open.house.operator_token;
    for whose in [json!({"operator": "vera", "role": "viewer"}), json!({"agent": "clerk"})] {
        let (id, token) = made(&open, whose).await;
        let stream = listen(open.main, &token).await;
        assert_eq!(ask(open.main, "DELETE", &format!("/v1/keys/{id}"), admin, None).await.status, 204);
        something_happens(&open).await;
        let seen = rest(stream).await;
        assert!(!seen.contains("event:"), "it was shown what happened after it was revoked: {seen}");
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_credential_expires() {
    let open = open(TestGatewayPlan::default()).await;
    let (_, token) = made(&open, json!({"operator": "vera", "role": "viewer", "ttl_s": 60})).await;
    let mut stream = listen(open.main, &token).await;
    something_happens(&open).await;
    let mut buffer = [0; 4096];
    let n = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.unwrap().unwrap();
    assert!(std::str::from_utf8(&buffer[..n]).unwrap().contains("event: "), "as long as it works it sees");
    open.house.pass(Millis::from_secs(60));
    something_happens(&open).await;
    let seen = rest(stream).await;
    assert!(!seen.contains("event: call.answered"), "{seen}");
}
