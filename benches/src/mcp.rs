//! Mounted servers: a tool behind the gate compared with the same tool called directly, with a byte-copying hop in
//! between as the least possible cost of any proxy; a read of the gateway itself through `/mcp`; and a thousand idle
//! clients.
//!
//! The server of the tool is a small one of ours that answers at once. Promise: the gate is the whole corridor with
//! policy, audit and content stages on; every answer is checked to contain what the tool said.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::gateway::client::{self, ClientConnections, ClientRun};
use crate::gateway::folder::{BenchEngine, GatewayFolder};
use crate::gateway::server::{ServerProcess, say, until_closed};
use crate::gateway::{at, bounded, load_average};
use crate::load;
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{MedianRange, median};

const ROUNDS: usize = 5;
/// Calls of one client in a round, one after the other.
const ALONE: usize = 150;
/// Concurrent clients, and their calls in a round.
const AT_ONCE: usize = 16;
const TOGETHER: usize = 480;
/// Calls of a round through a proxy that is slow for each call.
const PROXIED: usize = 20;
const IDLE: usize = 1_000;

static MADE: AtomicU64 = AtomicU64::new(1);

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let runtime = load::runtime()?;
    let server = ServerProcess::start(&["stub"])?;
    let hop = ServerProcess::start(&["hop", &server.address().to_string()])?;
    let mount = format!(
        "{{url: \"http://{}/mcp\", http: true, allow_addresses: [127.0.0.1/32], per_minute: 1000000, at_once: 64",
        server.address()
    );
    let more = format!(
        "sandbox: degraded\nlimits: {{connections: 3000, streams: 2000, streams_per_key: 1000}}\nmounts:\n  stub: {mount}}}\n  \
         kept: {mount}, keep_reader: true}}\n"
    );
    let folder = GatewayFolder::with(&runtime, &BenchEngine::file()?, &more)?;
    let rules = "rules:\n  - {capability: \"stub.*\", tier: autonomous}\n  - {capability: \"kept.*\", tier: autonomous}\n  - \
                 {capability: \"state.*\", tier: autonomous}\n";
    std::fs::write(folder.path().join("policies/agents/clerk.yaml"), rules)?;
    let gate = ServerProcess::gateway_with(folder.path(), &workers()?)?;
    for mount in ["stub", "kept"] {
        until_open(&runtime, &folder, &gate, mount)?;
    }
    let of = |tool: &'static str, has| ToolRoute { child: &gate, key: folder.agent_key(), tool, has };
    let direct = ToolRoute { child: &server, key: "", tool: "echo", has: "echo number" };
    let ways = [
        direct,
        ToolRoute { child: &hop, ..direct },
        of("stub_echo", "echo number"),
        of("kept_echo", "echo number"),
        of("state_persistent_get", "structuredContent"),
    ];
    let proxy = proxy(&runtime, &server)?;
    let peer = proxy.as_ref().map(|child| ToolRoute { child, ..direct });
    let (mut found, mut proxied): ([Vec<ToolRouteRound>; 5], Vec<ToolRouteRound>) = Default::default();
    for round in 0..=ROUNDS {
        for (way, all) in ways.iter().zip(&mut found) {
            let measured = way.round(&runtime)?;
            if round > 0 {
                all.push(measured);
            }
        }
        if let Some(peer) = &peer {
            let measured = ToolRouteRound { p50: peer.alone(&runtime, PROXIED)?, micros: 0.0, per_second: 0.0 };
            if round > 0 {
                proxied.push(measured);
            }
        }
    }
    let [direct, hopped, tool, kept, read] = &found;
    let alone = |rounds: &[ToolRouteRound]| figure(median(rounds.iter().map(|round| round.p50).collect()).middle);
    let mut rows = rows_of("a mounted tool", tool, (direct, hopped));
    rows.extend(rows_of("a mounted tool with `keep_reader`", kept, (direct, hopped)));
    rows.extend(rows_of("`state.persistent.get` through `/mcp`", read, (direct, hopped)));
    if peer.is_some() {
        rows.extend([("a mounted tool", tool), ("a mounted tool with `keep_reader`", kept)].map(|(what, ours)| {
            ReportLine {
                what: format!("{what}: p50 of one client, as a share of"),
                ours: format!("{} ms", alone(ours)),
                against: "the proxy of FastMCP 4.1.2".into(),
                floor: format!("{} ms", alone(&proxied)),
                ratio: median(ours.iter().zip(&proxied).map(|(ours, peer)| ours.p50 / peer.p50).collect()),
                target: RatioTarget::AtMost(1.0),
            }
        }));
    }
    let (before, after) = idle(&runtime, &folder, &gate)?;
    rows.push(bounded("memory of the gateway with 1,000 idle clients", "MB", vec![after], 100.0, "the bound"));
    let notes = vec![
        format!(
            "One client, p50: directly {} ms, through the hop {} ms, through the gate {} ms, with `keep_reader` {} ms, the \
             gateway's own read {} ms.",
            alone(direct),
            alone(hopped),
            alone(tool),
            alone(kept),
            alone(read)
        ),
        "Processor time through the gate is that of the gateway and of its workers. Every answer of a mounted server is read by a \
         locked-in process of its own that ends with it, a copy of one that is ready, so a call costs at least a copy; with \
         `keep_reader` one process reads the answers of one server to one conversation."
            .to_owned(),
        match &peer {
            Some(_) => "The proxy of FastMCP passes the call on and decides nothing.".to_owned(),
            None => "FastMCP could not be installed, so there is no row of its proxy.".to_owned(),
        },
        format!("An idle client has initialized a session and keeps its stream open; the gateway had {} MB before they came.", figure(before)),
        format!("Load average of the machine at the end: {}.", load_average()),
    ];
    let how = format!(
        "`tools/call` over streamable HTTP on kept connections. One client: {ALONE} calls in each of {ROUNDS} rounds; {AT_ONCE} \
         clients: {TOGETHER}. The gate judges, records durably and, for the mounted tool, leak-scans the arguments, asks the \
         server through egress and takes the answer in through the six stages. Every answer is looked at. SQLite."
    );
    let [_, _, _, _, _, _, _, _, _, _, title, ..] = ORDER;
    Ok(ReportSection { name: "mcp", title, how, rows, notes })
}

/// The proxy of FastMCP before the server; `None` where it is not installed.
fn proxy(runtime: &Runtime, server: &ServerProcess) -> anyhow::Result<Option<ServerProcess>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/counterparts/pypi/venv/bin/python");
    if !python.is_file() {
        return Ok(None);
    }
    let mut command = std::process::Command::new(python);
    command.arg(root.join("xtask/counterparts/fastmcp_proxy.py")).arg(format!("http://{}/mcp", server.address()));
    let child = ServerProcess::of(command)?;
    until_answered(runtime, &ToolRoute { child: &child, key: "", tool: "echo", has: "echo number" })?;
    Ok(Some(child))
}

/// It prints its listen address before it listens.
fn until_answered(runtime: &Runtime, way: &ToolRoute<'_>) -> anyhow::Result<()> {
    let began = Instant::now();
    while let Err(error) = way.alone(runtime, 1) {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(60), "the proxy does not answer: {error:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// One way to a tool.
#[derive(Clone, Copy)]
struct ToolRoute<'a> {
    child: &'a ServerProcess,
    key: &'a str,
    tool: &'a str,
    /// The text that every answer must contain.
    has: &'static str,
}

/// The result of one round of one way.
#[derive(Debug, Clone, Copy)]
struct ToolRouteRound {
    /// The median of one client, in milliseconds.
    p50: f64,
    /// Processor time of everything in between, for each call, in microseconds.
    micros: f64,
    per_second: f64,
}

impl ToolRoute<'_> {
    fn request(&self) -> Vec<u8> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let arguments = match self.tool {
            "state_persistent_get" => json!({"key": "plan"}),
            _ => json!({"text": format!("number {number} of many")}),
        };
        let params = json!({"name": self.tool, "arguments": arguments});
        post_mcp(self.key, &json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}))
    }

    /// Calls of one client, one after the other: the median, in milliseconds.
    fn alone(&self, runtime: &Runtime, calls: usize) -> anyhow::Result<f64> {
        let mut one = ClientConnections::connect(runtime, self.child.address(), 1)?.expecting(self.has);
        let ClientRun { millis, .. } = one.run(runtime, (0..calls).map(|_| self.request()).collect(), 200)?;
        Ok(at(&millis, 0.5))
    }

    fn round(&self, runtime: &Runtime) -> anyhow::Result<ToolRouteRound> {
        let p50 = self.alone(runtime, ALONE)?;
        let mut many = ClientConnections::connect(runtime, self.child.address(), AT_ONCE)?.expecting(self.has);
        let before = self.child.processor_of_all()?;
        let ClientRun { wall, .. } = many.run(runtime, (0..TOGETHER).map(|_| self.request()).collect(), 200)?;
        // A process that is reaped a moment later counts, too.
        std::thread::sleep(Duration::from_millis(50));
        let spent = self.child.processor_of_all()?.saturating_sub(before);
        let micros = spent.as_secs_f64() * 1e6 / TOGETHER as f64;
        Ok(ToolRouteRound { p50, micros, per_second: TOGETHER as f64 / wall.as_secs_f64() })
    }
}

fn rows_of(
    what: &str,
    ours: &[ToolRouteRound],
    (direct, hop): (&[ToolRouteRound], &[ToolRouteRound]),
) -> Vec<ReportLine> {
    let both = |one: &[ToolRouteRound],
                other: &[ToolRouteRound],
                of: fn(&ToolRouteRound, &ToolRouteRound) -> f64|
     -> MedianRange { median(one.iter().zip(other).map(|(one, other)| of(one, other)).collect()) };
    let middle = |rounds: &[ToolRouteRound], of: fn(&ToolRouteRound) -> f64| {
        figure(median(rounds.iter().map(of).collect()).middle)
    };
    let added = both(ours, direct, |ours, direct| ours.p50 - direct.p50);
    let part = |number: f64| number / 0.3;
    vec![
        ReportLine {
            what: format!("{what}: added to p50 of one client"),
            ours: format!("{} ms", figure(added.middle)),
            against: "the bound".into(),
            floor: "0.3 ms".into(),
            ratio: MedianRange { middle: part(added.middle), low: part(added.low), high: part(added.high) },
            target: RatioTarget::AtMost(1.0),
        },
        ReportLine {
            what: format!("{what}: processor time in between for each call, {AT_ONCE} clients"),
            ours: format!("{} µs", middle(ours, |round| round.micros)),
            against: "a byte-copying hop".into(),
            floor: format!("{} µs", middle(hop, |round| round.micros)),
            ratio: both(ours, hop, |ours, hop| ours.micros / hop.micros.max(0.1)),
            target: RatioTarget::AtMost(12.0),
        },
        ReportLine {
            what: format!("{what}: calls, {AT_ONCE} clients"),
            ours: format!("{} /s", middle(ours, |round| round.per_second)),
            against: "the tool asked directly".into(),
            floor: format!("{} /s", middle(direct, |round| round.per_second)),
            ratio: both(ours, direct, |ours, direct| ours.per_second / direct.per_second),
            target: RatioTarget::AtLeast(1.0 / 3.0),
        },
    ]
}

/// The program that runs the workers: our release build, or this one, which has the role as well.
fn workers() -> anyhow::Result<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/sluice");
    if built.is_file() { Ok(built) } else { Ok(std::env::current_exe()?) }
}

fn post_mcp(key: &str, message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\naccept: \
         application/json, text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Waits until the mount's tools can be called.
fn until_open(runtime: &Runtime, folder: &GatewayFolder, gate: &ServerProcess, mount: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    runtime.block_on(async {
        let mut stream = TcpStream::connect(gate.address()).await?;
        let mut buffer = Vec::new();
        loop {
            let request = client::get(&format!("/v1/mounts/{mount}"), folder.operator_token());
            client::exchange(&mut stream, &request, &mut buffer).await?;
            let text = String::from_utf8_lossy(&buffer);
            if text.contains("\"state\":\"open\"") {
                // Its tool only reads, which a person must accept: until then it would be measured as a write.
                let digest = text.split("\"accepted_digest\":\"").nth(1).and_then(|rest| rest.split('"').next());
                let digest = digest.ok_or_else(|| anyhow::anyhow!("the mount has no tool: {text}"))?;
                let body = json!({"tools": [{"tool": "echo", "digest": digest}], "read_only": true}).to_string();
                let request = client::post(&format!("/v1/mounts/{mount}/accept"), folder.operator_token(), &body);
                let status = client::exchange(&mut stream, &request, &mut buffer).await?;
                anyhow::ensure!(status == 200, "it is not accepted: {}", String::from_utf8_lossy(&buffer));
                return Ok(());
            }
            anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "the mount did not open: {text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// A thousand clients that have initialized a session and listen. Gives the gateway's memory before and after, in MB.
fn idle(runtime: &Runtime, folder: &GatewayFolder, gate: &ServerProcess) -> anyhow::Result<(f64, f64)> {
    let before = gate.memory("VmRSS")?;
    let streams = runtime.block_on(async {
        let mut streams = Vec::with_capacity(IDLE);
        let mut buffer = Vec::new();
        for number in 0..IDLE {
            let mut stream = TcpStream::connect(gate.address()).await?;
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "idle", "version": "1"}});
            let hello = json!({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params});
            let status = client::exchange(&mut stream, &post_mcp(folder.agent_key(), &hello), &mut buffer).await?;
            let text = String::from_utf8_lossy(&buffer).into_owned();
            anyhow::ensure!(status == 200, "{text}");
            let session = text.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).context("no session")?;
            let listen = format!(
                "GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\naccept: text/event-stream\r\n\
                 mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n\r\n",
                folder.agent_key()
            );
            stream.write_all(listen.as_bytes()).await?;
            buffer.clear();
            stream.read_buf(&mut buffer).await?;
            anyhow::ensure!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer));
            streams.push(stream);
        }
        anyhow::Ok(streams)
    })?;
    std::thread::sleep(Duration::from_secs(1));
    let after = gate.memory("VmRSS")?;
    drop(streams);
    Ok((before, after))
}

/// The role of the tool's server.
pub fn stub() -> anyhow::Result<()> {
    load::runtime()?.block_on(async {
        let app = Router::new().route("/mcp", post(answer));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        say(&format!("{address} {address}"))?;
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
        tokio::select! {
            served = async { axum::serve(listener, app).await } => served?,
            _ = tokio::task::spawn_blocking(until_closed) => {}
        }
        Ok(())
    })
}

async fn answer(body: Bytes) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(id) = message.get("id") else { return (StatusCode::ACCEPTED, JSON, String::new()) };
    let text = |pointer: &str| message.pointer(pointer).cloned().unwrap_or_default();
    let result = match message.get("method").and_then(Value::as_str) {
        Some("initialize") => json!({
            "protocolVersion": text("/params/protocolVersion"), "capabilities": {"tools": {}},
            "serverInfo": {"name": "stub", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{
            "name": "echo", "description": "Says the same again.", "annotations": {"readOnlyHint": true},
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        }]}),
        Some("tools/call") => {
            let said = format!("echo {}", text("/params/arguments/text").as_str().unwrap_or_default());
            json!({"content": [{"type": "text", "text": said}]})
        }
        _ => json!({}),
    };
    (StatusCode::OK, JSON, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

/// The role of the hop: copies bytes from one side to the other, and nothing else.
pub fn hop(to: SocketAddr) -> anyhow::Result<()> {
    load::runtime()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        say(&format!("{address} {address}"))?;
        let copying = async {
            loop {
                let (mut near, _) = listener.accept().await?;
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(to).await?;
                    near.set_nodelay(true)?;
                    far.set_nodelay(true)?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        };
        tokio::select! {
            ended = copying => ended,
            _ = tokio::task::spawn_blocking(until_closed) => anyhow::Ok(()),
        }
    })
}
