//! Connections between two requests: a person may take their time.

use std::time::Duration;

use sluice_core::Millis;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http::open;
use crate::test_gateway::TestGatewayPlan;

/// One request on a connection that stays open; whether it was answered.
async fn asks(stream: &mut TcpStream) -> bool {
    if stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_err() {
        return false;
    }
    let mut text = Vec::new();
    let mut piece = [0; 1024];
    while !String::from_utf8_lossy(&text).contains("\"ok\"") {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return false,
            Ok(n) => text.extend_from_slice(&piece[..n]),
        }
    }
    true
}

/// Whether the server leaves the connection open for so long, on which nothing is asked.
async fn rests(stream: &mut TcpStream, span: Duration) -> bool {
    tokio::time::timeout(span, stream.read(&mut [0; 1])).await.is_err()
}

fn plan() -> TestGatewayPlan {
    TestGatewayPlan { config: "limits: {head_timeout: 200ms, idle_timeout: 3s}\n".into(), ..TestGatewayPlan::default() }
}

#[tokio::test]
async fn the_time_between_two_requests_is_not_that_of_a_head() {
    let open = open(plan()).await;
    let mut stream = TcpStream::connect(open.main).await.unwrap();
    assert!(asks(&mut stream).await);
    assert!(rests(&mut stream, Duration::from_secs(1)).await, "longer than a head may take");
    assert!(asks(&mut stream).await, "the connection is still good");
    assert!(!rests(&mut stream, Duration::from_secs(30)).await, "and ends after the idle limit");
    let by_default = crate::http::open(TestGatewayPlan::default()).await;
    assert!(by_default.house.gw.config.limits.idle_timeout > Millis::from_mins(15), "a person signs in somewhere else");
}

#[tokio::test]
async fn a_head_that_has_begun_is_still_cut_off_soon() {
    let config = "limits: {head_timeout: 200ms, idle_timeout: 1h}\n".into();
    let open = open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    for request_before in [false, true] {
        let mut stream = TcpStream::connect(open.main).await.unwrap();
        if request_before {
            assert!(asks(&mut stream).await);
        }
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: local").await.unwrap();
        assert!(!rests(&mut stream, Duration::from_secs(30)).await, "after a request before: {request_before}");
    }
    // Whoever connects and says nothing is not waited for either.
    let mut silent = TcpStream::connect(open.main).await.unwrap();
    assert!(!rests(&mut silent, Duration::from_secs(30)).await);
}
