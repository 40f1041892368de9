//! Clients: kept connections, each waiting for its answer before the next request.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Texts that only the refusal of a tool contains.
const REFUSED: [&str; 2] = ["\"isError\":true", "\"error\":"];

/// Connections to one server.
pub struct ClientConnections {
    streams: Vec<TcpStream>,
    /// The text that every answer must contain, if one is set.
    has: Option<&'static str>,
}

/// The duration of a run of requests.
pub struct ClientRun {
    /// From the first request to the last answer.
    pub wall: Duration,
    /// Each request, in milliseconds.
    pub millis: Vec<f64>,
}

/// A request with a body.
pub fn post(path: &str, token: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A request without one.
pub fn get(path: &str, token: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n").into_bytes()
}

/// The same, to delete something.
pub fn delete(path: &str, token: &str) -> Vec<u8> {
    format!("DELETE {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n").into_bytes()
}

impl ClientConnections {
    /// Connects this many clients.
    pub fn connect(runtime: &Runtime, address: SocketAddr, clients: usize) -> anyhow::Result<Self> {
        let streams = runtime.block_on(async {
            let mut streams = Vec::new();
            for _ in 0..clients {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                streams.push(stream);
            }
            anyhow::Ok(streams)
        })?;
        Ok(Self { streams, has: None })
    }

    /// Checks every answer of a tool: it must contain this text and must not be a refusal, which has the same status.
    pub fn expecting(mut self, has: &'static str) -> Self {
        self.has = Some(has);
        self
    }

    /// Sends all requests; any status except the expected one is an error.
    pub fn run(&mut self, runtime: &Runtime, requests: Vec<Vec<u8>>, wanted: u16) -> anyhow::Result<ClientRun> {
        self.talk(runtime, requests, wanted, |_| None)
    }

    /// The same; where `then` makes a second request from an answer, it is sent next on the same connection and must be
    /// answered with 200. Every request is timed separately.
    pub fn talk(
        &mut self,
        runtime: &Runtime,
        requests: Vec<Vec<u8>>,
        wanted: u16,
        then: fn(&str) -> Option<Vec<u8>>,
    ) -> anyhow::Result<ClientRun> {
        let queue = Arc::new(Mutex::new(VecDeque::from(requests)));
        let streams = std::mem::take(&mut self.streams);
        let has = self.has;
        let began = Instant::now();
        let (streams, millis) = runtime.block_on(async {
            let mut clients = JoinSet::new();
            for mut stream in streams {
                let queue = Arc::clone(&queue);
                clients.spawn(async move {
                    let mut millis = Vec::new();
                    let mut buffer = Vec::with_capacity(4096);
                    loop {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(request) = next else { return anyhow::Ok((stream, millis)) };
                        let asked = Instant::now();
                        let status = exchange(&mut stream, &request, &mut buffer).await?;
                        millis.push(asked.elapsed().as_secs_f64() * 1e3);
                        let text = String::from_utf8_lossy(&buffer).into_owned();
                        anyhow::ensure!(status == wanted, "answered {status} instead of {wanted}: {text}");
                        let fine =
                            has.is_none_or(|has| text.contains(has) && !REFUSED.iter().any(|no| text.contains(no)));
                        anyhow::ensure!(fine, "answered {text}");
                        let Some(request) = then(&text) else { continue };
                        let asked = Instant::now();
                        let status = exchange(&mut stream, &request, &mut buffer).await?;
                        millis.push(asked.elapsed().as_secs_f64() * 1e3);
                        let text = String::from_utf8_lossy(&buffer);
                        anyhow::ensure!(status == 200, "then answered {status}: {text}");
                    }
                });
            }
            let (mut streams, mut all) = (Vec::new(), Vec::new());
            while let Some(ended) = clients.join_next().await {
                let (stream, millis) = ended??;
                streams.push(stream);
                all.extend(millis);
            }
            anyhow::Ok((streams, all))
        })?;
        self.streams = streams;
        Ok(ClientRun { wall: began.elapsed(), millis })
    }
}

/// One request and its complete answer; gives the status.
pub async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> anyhow::Result<u16> {
    stream.write_all(request).await?;
    buffer.clear();
    loop {
        let read = stream.read_buf(buffer).await?;
        anyhow::ensure!(read > 0, "the server closed: {}", String::from_utf8_lossy(buffer));
        let Some(end) = buffer.windows(4).position(|part| part == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(buffer.get(..end).unwrap_or_default())?.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let whole = match length {
            Some(length) => buffer.len() >= end + 4 + length.trim().parse::<usize>()?,
            // A chunked answer: the last chunk is empty.
            None => buffer.ends_with(b"\r\n0\r\n\r\n"),
        };
        if whole {
            return Ok(head.split(' ').nth(1).context("no status")?.parse()?);
        }
    }
}
