//! Steadiness: what one agent's writes take while another agent floods the gateway and a service hangs, and how soon
//! people can stop things while 400 connections ask for more.
//!
//! Promise: idle and flooded rounds take turns at one gateway, and only writes that were carried out are counted.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::gateway::client::{delete, exchange, post};
use crate::gateway::folder::{BenchEngine, GatewayFolder};
use crate::gateway::server::ServerProcess;
use crate::gateway::{at, bounded, load_average};
use crate::load;
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::median;

const ROUNDS: usize = 3;
/// Writes of the agent that is measured, one after another, in each half of a round.
const WRITES: usize = 60;
/// Connections of the agent that floods.
const FLOOD: usize = 300;
/// Writes to a service that never answers, under way or waiting for their turn during the flood.
const HANGING: usize = 100;
/// Connections while people stop things, and how often they do.
const CONNECTIONS: usize = 400;
const STOPS: usize = 100;

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let runtime = load::runtime()?;
    let folder = GatewayFolder::new(&runtime, &BenchEngine::file()?)?;
    let flooder = folder.another(&runtime, "flooder")?;
    let silent = runtime.block_on(silent_service())?;
    declare(folder.path(), silent)?;
    let child = ServerProcess::gateway(folder.path())?;
    let (mut idle, mut flooded, mut ratios, mut notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let number = Arc::new(AtomicU64::new(0));
    let work = folder.path().join("work").display().to_string();
    let mut refused = 0;
    for round in 0..=ROUNDS {
        let quiet = runtime.block_on(writes(child.address(), folder.agent_key(), &work, &number))?;
        let (loud, passed_by) = runtime.block_on(async {
            let flood = Flood::start(child.address(), &flooder, FLOOD, &work, &number).await?;
            let loud = writes(child.address(), folder.agent_key(), &work, &number).await?;
            anyhow::Ok((loud, flood.stop().await?))
        })?;
        if round > 0 {
            ratios.push(at(&loud, 0.99) / at(&quiet, 0.99));
            idle.push(at(&quiet, 0.99));
            flooded.push(at(&loud, 0.99));
            refused += passed_by.refused;
            notes.push(format!(
                "Round {round}: idle p50 {} ms, p99 {} ms; flooded p50 {} ms, p99 {} ms, while the other agent had {} writes taken and {} refused.",
                figure(at(&quiet, 0.5)),
                figure(at(&quiet, 0.99)),
                figure(at(&loud, 0.5)),
                figure(at(&loud, 0.99)),
                passed_by.taken,
                passed_by.refused
            ));
        }
    }
    let stops = runtime.block_on(async {
        let flood = Flood::start(child.address(), &flooder, CONNECTIONS, &work, &number).await?;
        let stops = stops(child.stop_address(), folder.operator_token()).await?;
        flood.stop().await?;
        anyhow::Ok(stops)
    })?;
    notes.push(format!("Writes of the flood that were refused with a time to come back: {refused}."));
    notes.push(format!("Stop lane: p50 {} ms, slowest {} ms.", figure(at(&stops, 0.5)), figure(at(&stops, 1.0))));
    notes.push(format!("Load average of the machine at the end: {}.", load_average()));
    let rows = vec![
        ReportLine {
            what: "a write carried out while another agent floods and a service hangs, p99".into(),
            ours: format!("{} ms", figure(median(flooded).middle)),
            against: "the same on an idle gateway".into(),
            floor: format!("{} ms", figure(median(idle).middle)),
            ratio: median(ratios),
            target: RatioTarget::AtMost(3.0),
        },
        bounded(
            "freeze and lift over the stop lane under 400 connections, p99",
            "ms",
            vec![at(&stops, 0.99)],
            100.0,
            "the bound",
        ),
    ];
    let how = format!(
        "One gateway, one agent that writes {WRITES} files one after another, each until it is done. In every second half of a round another \
         agent writes files over {FLOOD} connections as fast as it is answered, beside {HANGING} writes to a service that takes connections and \
         never answers. Clients and gateway share the machine. {ROUNDS} rounds."
    );
    let [.., title] = ORDER;
    Ok(ReportSection { name: "steady", title, how, rows, notes })
}

/// The configuration of the gateway that is measured: no hold, no batch window, no limit of files.
fn declare(root: &Path, silent: SocketAddr) -> anyhow::Result<()> {
    std::fs::create_dir_all(root.join("work"))?;
    std::fs::create_dir_all(root.join("declared"))?;
    std::fs::write(
        root.join("policies/org.yaml"),
        "defaults: {tier: autonomous}\noverrides:\n- {capability: \"silent.*\", tier: autonomous}\n",
    )?;
    std::fs::write(root.join("policies/agents/clerk.yaml"), "rules:\n  - {capability: \"*\", tier: autonomous}\n")?;
    std::fs::write(
        root.join("declared/silent.ask.yaml"),
        format!(
            "summary: Asks a service that never answers.\neffect: write\nclass: absolute\nhold_seconds: 0\n\
             base_url: http://{silent}\nallow_addresses: [127.0.0.1]\n\
             limits: {{per_minute: 1000000, per_hour: 100000000, burn: 100000000, timeout_seconds: 30}}\n\
             arguments:\n  mark: {{type: text, required: true, max: 60}}\n\
             request:\n  method: POST\n  path: /ask\n  body: {{mark: \"{{mark}}\"}}\n"
        ),
    )?;
    let config = "node: bench\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\ndata: data\npolicies: policies\nlog: {level: error}\n\
         sandbox: degraded\ncapabilities: declared\ndisk: {low: 1MB/0%, stop: 1MB/0%}\nlimits: {connections: 1000, connections_per_peer: 1000}\n\
         holds: {delays: {\"filesystem.*\": 0s}}\nbatch: {services: {filesystem: off, custom.silent: off}}\n\
         filesystem:\n  roots:\n    - {path: work, agents: all}\n";
    Ok(std::fs::write(root.join("sluice.yaml"), config)?)
}

/// A service that takes every connection and answers nothing.
async fn silent_service() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    Ok(address)
}

/// One file, written.
fn write(key: &str, name: &str, number: &AtomicU64, wait_ms: u64) -> Vec<u8> {
    let number = number.fetch_add(1, Ordering::Relaxed);
    let body = json!({
        "capability": "filesystem.write",
        "arguments": {"path": format!("{name}.txt"), "content": format!("Number {number}.\n")},
        "idempotency_key": format!("steady-{number}"),
        "wait_ms": wait_ms,
    });
    post("/v1/calls", key, &body.to_string())
}

async fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The writes that are measured: each from its call until it was carried out, in milliseconds.
async fn writes(address: SocketAddr, key: &str, work: &str, number: &AtomicU64) -> anyhow::Result<Vec<f64>> {
    let mut stream = connect(address).await?;
    let (mut millis, mut buffer) = (Vec::new(), Vec::new());
    for n in 0..WRITES {
        let request = write(key, &format!("{work}/measured-{}", n % 10), number, 30_000);
        let began = Instant::now();
        let status = exchange(&mut stream, &request, &mut buffer).await?;
        millis.push(began.elapsed().as_secs_f64() * 1e3);
        let text = String::from_utf8_lossy(&buffer);
        anyhow::ensure!(status == 200 && text.contains("\"done\""), "a write was answered {status}: {text}");
    }
    Ok(millis)
}

/// An agent that asks for more than its share.
struct Flood {
    over: Arc<AtomicBool>,
    clients: JoinSet<anyhow::Result<Answered>>,
}

/// How a flood was answered.
#[derive(Default)]
struct Answered {
    taken: u64,
    refused: u64,
}

impl Flood {
    async fn start(
        address: SocketAddr,
        key: &str,
        connections: usize,
        work: &str,
        number: &Arc<AtomicU64>,
    ) -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut stream = connect(address).await?;
        let mut buffer = Vec::new();
        for _ in 0..HANGING {
            let mark = number.fetch_add(1, Ordering::Relaxed);
            let body = json!({"capability": "silent.ask", "arguments": {"mark": mark.to_string()},
                "idempotency_key": format!("silent-{mark}")});
            let status = exchange(&mut stream, &post("/v1/calls", key, &body.to_string()), &mut buffer).await?;
            let text = String::from_utf8_lossy(&buffer);
            anyhow::ensure!(matches!(status, 202 | 429), "a hanging write was answered {status}: {text}");
        }
        let mut clients = JoinSet::new();
        for client in 0..connections {
            let (over, number) = (Arc::clone(&over), Arc::clone(number));
            let (key, work) = (key.to_owned(), work.to_owned());
            clients.spawn(async move {
                let mut stream = connect(address).await?;
                let (mut answered, mut buffer) = (Answered::default(), Vec::new());
                while !over.load(Ordering::Relaxed) {
                    let request = write(&key, &format!("{work}/flood-{client}"), &number, 0);
                    match exchange(&mut stream, &request, &mut buffer).await? {
                        200 | 202 => answered.taken += 1,
                        429 => answered.refused += 1,
                        status => {
                            anyhow::bail!("the flood was answered {status}: {}", String::from_utf8_lossy(&buffer))
                        }
                    }
                }
                Ok(answered)
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(Self { over, clients })
    }

    async fn stop(mut self) -> anyhow::Result<Answered> {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Answered::default();
        while let Some(ended) = self.clients.join_next().await {
            let ended = ended??;
            all.taken += ended.taken;
            all.refused += ended.refused;
        }
        Ok(all)
    }
}

/// Freezes and lifts, one after another, in milliseconds each.
async fn stops(address: SocketAddr, token: &str) -> anyhow::Result<Vec<f64>> {
    let mut stream = connect(address).await?;
    let (mut millis, mut buffer) = (Vec::new(), Vec::new());
    for n in 0..STOPS {
        let request = if n % 2 == 0 {
            post("/v1/freezes", token, &json!({"service": "elsewhere", "reason": "measured"}).to_string())
        } else {
            delete("/v1/freezes?service=elsewhere", token)
        };
        let began = Instant::now();
        let status = exchange(&mut stream, &request, &mut buffer).await?;
        millis.push(began.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(matches!(status, 201 | 204), "answered {status}: {}", String::from_utf8_lossy(&buffer));
    }
    Ok(millis)
}
