//! Crowds at the door that hold no credential: whoever only takes places leaves one for everybody else.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::http::{OpenTestGateway, ask, open, raw};
use crate::test_gateway::TestGatewayPlan;

/// As often as an ordinary caller tries again, and how often at most.
const AGAIN: Duration = Duration::from_millis(50);
const TRIES: usize = 300;

/// A connection from an address of this machine, which takes in as little as possible.
async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sockets that ask for much, again and again, and read nothing.
async fn unread(from: &str, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let requests = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(400);
    let mut crowd = Vec::new();
    for _ in 0..count {
        let mut socket = connect(from, to).await;
        // One that was turned away takes nothing any more, and one that is inside takes as much as its buffer holds.
        let _taken = timeout(Duration::from_millis(200), socket.write_all(&requests)).await;
        crowd.push(socket);
    }
    crowd
}

/// Whether an ordinary caller gets in within a bounded number of tries.
async fn gets_in(open: &OpenTestGateway) -> bool {
    let mut pause = interval(AGAIN);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..TRIES {
        pause.tick().await;
        let call = json!({"capability": "system.time"});
        if ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await.status == 200 {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_crowd_that_reads_no_answers_leaves_a_place_for_an_ordinary_caller_and_for_stopping() {
    // The deadline alone would free the places after ten minutes: those that do not read have to go before.
    let limits = "limits: {connections: 48, connections_per_peer: 48, head_timeout: 5m, write_timeout: 10m}\n";
    let open = open(TestGatewayPlan { config: limits.into(), ..TestGatewayPlan::default() }).await;
    let crowd = unread("127.0.0.1", open.main, 60).await;
    let stopping = unread("127.0.0.1", open.stop, 300).await;
    let reason = json!({"reason": "enough"});
    let frozen = ask(open.stop, "POST", "/v1/freezes", &open.house.operator_token, Some(&reason)).await;
    assert_eq!(frozen.status, 201, "{frozen:?}");
    assert!(gets_in(&open).await, "an ordinary caller never gets in beside {} sockets", crowd.len());
    drop((crowd, stopping));
}

#[tokio::test]
async fn a_connection_that_does_not_take_its_answers_is_closed_in_time() {
    let limits = "limits: {connections: 8, connections_per_peer: 8, head_timeout: 5m, write_timeout: 100ms}\n";
    let open = open(TestGatewayPlan { config: limits.into(), ..TestGatewayPlan::default() }).await;
    let crowd = unread("127.0.0.1", open.main, 8).await;
    assert!(gets_in(&open).await);
    // All of them were closed, not only one that had to go for the caller: eight more fit in beside each other.
    let mut pause = interval(AGAIN);
    for tries in 0.. {
        pause.tick().await;
        let more: Vec<TcpStream> = {
            let mut more = Vec::new();
            for _ in 0..7 {
                more.push(connect("127.0.0.1", open.main).await);
            }
            more
        };
        let answer = raw(open.main, b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        drop(more);
        if answer.status == 200 {
            break;
        }
        assert!(tries < TRIES, "places stay taken: {answer:?}");
    }
    drop(crowd);
}

#[tokio::test]
async fn one_peer_cannot_take_every_place() {
    let limits = "limits: {connections: 32, connections_per_peer: 24, head_timeout: 5m}\n";
    let open = open(TestGatewayPlan { config: limits.into(), ..TestGatewayPlan::default() }).await;
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(connect("127.0.0.2", open.main).await);
    }
    for _ in 0..3 {
        let call = json!({"capability": "system.time"});
        let answer = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&call)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    drop(crowd);
}

#[tokio::test]
async fn requests_sent_ahead_of_unread_answers_are_not_worked_on() {
    // Answers of this many requests are several times what the system keeps for a connection (4 MiB, as it is usually
    // set), and the requests themselves are one read.
    const AHEAD: usize = 64;
    let limits = "limits: {connections: 8, connections_per_peer: 8, head_timeout: 5m, write_timeout: 1s}\n";
    let open = open(TestGatewayPlan { config: limits.into(), ..TestGatewayPlan::default() }).await;
    // A window that stays as it is, and is large enough to be read quickly afterwards.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(1 << 18).unwrap();
    let mut socket = socket.connect(open.main).await.unwrap();
    let requests = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(AHEAD);
    socket.write_all(&requests).await.unwrap();
    // The door is at work meanwhile: it answers others, for longer than it waits for this one.
    let mut pause = interval(AGAIN);
    for _ in 0..40 {
        pause.tick().await;
        let alive = raw(open.main, b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        assert_eq!(alive.status, 200, "{alive:?}");
    }
    let mut text = Vec::new();
    // It ends: what was written can still be read, perhaps not all of it, and nothing was made beyond.
    let read = timeout(Duration::from_secs(60), socket.read_to_end(&mut text)).await;
    let _reset_or_end = read.expect("the connection is closed");
    let answered = String::from_utf8_lossy(&text).matches("HTTP/1.1 200").count();
    assert!(answered < AHEAD, "{answered} answers were made for nobody");
}
