//! A person who takes their time between two requests of one command.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_testkit::ids::SeededEntropy;

/// The head and body of one request, as far as they came; nothing if the connection ended.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// A gateway that has closed every connection by the time a second request comes over it: what is sent there is lost.
#[test]
fn a_connection_that_the_gateway_closed_meanwhile_is_not_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let shared = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), Arc::clone(&shared));
            std::thread::spawn(move || {
                let Some(text) = request(&mut stream) else { return };
                let plan = text.contains("\"plan_only\":true");
                seen.lock().unwrap().push(text);
                let body = if plan {
                    r#"{"steps":[{"buffer_id":"buf_1","capability":"email.delete","possible":true}],"buffer_ids":[]}"#
                } else {
                    r#"{"steps":[],"buffer_ids":["buf_2"]}"#
                };
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
                stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
                // A second request over this connection is neither read to its end nor answered.
                let _lost = stream.read(&mut [0; 1]);
            });
        }
    });
    let token = tempfile::NamedTempFile::new().unwrap();
    let value = KeyToken::generate(TokenKind::Operator, &SeededEntropy::new(1));
    std::fs::write(token.path(), value.expose()).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["rollback", "--url", &url, "--agent", "clerk", "--since", "2h", "--yes"])
        .env_clear()
        .env("SLUICE_TOKEN_FILE", token.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && String::from_utf8_lossy(&run.stdout).contains("buf_2"), "{stderr}");
    assert_eq!(seen.lock().unwrap().len(), 2, "each request arrived once");
}
