//! An HTTP client for tests: one plain HTTP/1.0 request per connection, blocking, with the response in one piece.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use sluice_adapters::net::{ExchangePhase, Net, NetError, NetRequest, NetResponse};
use sluice_core::UtcMillis;
use sluice_testkit::clock::ManualClock;

use super::super::{GmailEmulator, serve};
use crate::demo::messages;

/// The current time in these tests.
pub const NOW: i64 = 1_790_000_000_000;

/// A running service, and a client for it.
pub struct RunningEmulator {
    pub upstream: Arc<GmailEmulator>,
    pub net: EmulatorConnection,
    pub clock: ManualClock,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl RunningEmulator {
    /// A service with this many generated messages.
    pub fn with_mail(count: u64) -> Self {
        let clock = ManualClock::at(UtcMillis::from_millis(NOW));
        let upstream = Arc::new(GmailEmulator::new(messages::mailbox(count, NOW - 60_000), Arc::new(clock.clone())));
        let (tell, address) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let served = Arc::clone(&upstream);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! { () = serve(served, listener) => {}, _ = stopped => {} }
            });
        });
        let net = EmulatorConnection { address: address.recv().unwrap(), token: upstream.token(), seen: Vec::new() };
        Self { upstream, net, clock, stop: Some(stop), thread: Some(thread) }
    }

    /// Receives a message; returns its id.
    pub fn receive(&self, subject: &str) -> String {
        let raw = format!(
            "From: Li <li@northpeak.example>\r\nTo: {}\r\nSubject: {subject}\r\nMessage-ID: <{subject}@x.example>\r\n\r\nHello\r\n",
            messages::OWNER
        );
        self.upstream.as_owner(|mailbox, now| mailbox.receive(raw.into_bytes(), &["INBOX", "UNREAD"], now, None))
    }
}

impl Drop for RunningEmulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The client.
pub struct EmulatorConnection {
    address: SocketAddr,
    pub token: String,
    pub seen: Vec<NetRequest>,
}

impl EmulatorConnection {
    /// A client for another service.
    pub fn at(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned(), seen: Vec::new() }
    }

    /// Sends a request without the adapter.
    pub fn plain(&self, method: &str, path: &str, body: &str) -> NetResponse {
        self.talk(method, path, &[], body.as_bytes()).unwrap()
    }

    fn talk(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Result<NetResponse, NetError> {
        let mut stream = TcpStream::connect(self.address).map_err(|_| NetError::Broken(ExchangePhase::Connect))?;
        let mut head = format!(
            "{method} {path} HTTP/1.0\r\nhost: upstream\r\nauthorization: Bearer {}\r\nconnection: close\r\ncontent-length: {}\r\n",
            self.token,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).map_err(|_| NetError::Broken(ExchangePhase::BeforeFirstByte))?;
        stream.write_all(body).map_err(|_| NetError::Broken(ExchangePhase::BeforeFirstByte))?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(|_| NetError::Broken(ExchangePhase::Reply))?;
        read(&answer).ok_or(NetError::Broken(ExchangePhase::Reply))
    }
}

fn read(answer: &[u8]) -> Option<NetResponse> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()));
    Some(NetResponse { status, headers: headers.collect(), body: answer[end + 4..].to_vec() })
}

impl Net for EmulatorConnection {
    fn exchange(&mut self, request: NetRequest) -> Result<NetResponse, NetError> {
        self.seen.push(request.clone());
        self.talk(request.method.as_str(), &request.path, &request.headers, &request.body)
    }
}
