//! The approval gate: requests created and read over HTTP compared with a plain insert and a plain read, and how soon a
//! decision reaches the waiting client.
//!
//! Another gate with the same protocol is measured beside ours if it is configured: `SLUICE_BENCH_GATE` is its address
//! (`127.0.0.1:8000`), `SLUICE_BENCH_GATE_KEY` its key. Promise: both sides get the same requests over the same kind of
//! connections, in turns.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::gateway::client::{self, ClientConnections, ClientRun};
use crate::gateway::folder::{BenchEngine, GatewayFolder};
use crate::gateway::server::ServerProcess;
use crate::gateway::{at, bounded, load_average, per_second, processor};
use crate::load;
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{RunTimes, in_turns, median};

const ROUNDS: usize = 7;
const CLIENTS: usize = 32;
/// Requests created and read in one round.
const PAIRS: usize = 1_280;
/// The same for another gate, which may be slow.
const PEER_PAIRS: usize = 96;
const DECISIONS: usize = 300;

/// Makes names that no two requests share.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let runtime = load::runtime()?;
    let engine = BenchEngine::file()?;
    let folder = GatewayFolder::new(&runtime, &engine)?;
    let (ours, floor) = (ServerProcess::gateway(folder.path())?, ServerProcess::floor(&engine)?);
    let mut notes = Vec::new();
    let mut rows = pairs(&runtime, &folder, (&ours, &floor), &mut notes)?;
    match peer()? {
        Some((address, key)) => rows.extend(beside_peer(&runtime, &folder, &ours, (address, &key))?),
        None => notes.push("No other gate was measured: `SLUICE_BENCH_GATE` names none.".into()),
    }
    rows.push(decisions(&runtime, &folder, &ours, &mut notes)?);
    notes.push(format!("Load average of the machine at the end: {}.", load_average()));
    let how = format!(
        "`POST /v1/approvals` and then `GET /v1/approvals/{{id}}` by {CLIENTS} clients that keep their connection and wait for each \
         answer, {PAIRS} of both in each of {ROUNDS} rounds, SQLite. A request is durable with its audit entry and its message to \
         people before it is answered. The axum server inserts the same body as one row, durable before the answer, and reads it \
         by its id; it does nothing else. Each server is a process of its own whose processor time alone is counted."
    );
    let [_, _, _, _, _, _, _, _, _, title, ..] = ORDER;
    Ok(ReportSection { name: "approvals", title, how, rows, notes })
}

/// A request body as clients of such gates send it.
fn wish() -> String {
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    json!({
        "session_id": format!("sess_{}", number % 64), "action_type": "exec_cmd", "title": format!("Run command {number}"),
        "preview": format!("rm -rf ./build-{number} && npm run build"), "expires_in_sec": 600,
    })
    .to_string()
}

/// The value of a member in an answer.
fn member<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = answer.split_once(name)?;
    rest.trim_start_matches(['"', ':', ' ']).split('"').next()
}

/// The key for both sides. The read of a request is built from its answer alone.
static KEY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
static PEER_KEY: std::sync::OnceLock<String> = std::sync::OnceLock::new();

fn look(answer: &str) -> Option<Vec<u8>> {
    Some(client::get(&format!("/v1/approvals/{}", member(answer, "\"approval_id\"")?), KEY.get()?))
}

fn look_at_peer(answer: &str) -> Option<Vec<u8>> {
    Some(client::get(&format!("/v1/approvals/{}", member(answer, "\"approval_id\"")?), PEER_KEY.get()?))
}

fn look_at_row(answer: &str) -> Option<Vec<u8>> {
    Some(client::get(&format!("/rows/{}", member(answer, "\"id\"")?), KEY.get()?))
}

/// One side of the comparison.
struct GateSide<'a> {
    path: &'static str,
    key: &'a str,
    wanted: u16,
    pairs: usize,
    then: fn(&str) -> Option<Vec<u8>>,
}

impl GateSide<'_> {
    fn round(
        &self,
        runtime: &Runtime,
        crowd: &mut ClientConnections,
        child: Option<&ServerProcess>,
    ) -> anyhow::Result<(RunTimes, Vec<f64>)> {
        let requests = (0..self.pairs).map(|_| client::post(self.path, self.key, &wish())).collect();
        let spent = || child.map_or(Ok(Duration::ZERO), ServerProcess::processor);
        let before = spent()?;
        let ClientRun { wall, millis } = crowd.talk(runtime, requests, self.wanted, self.then)?;
        anyhow::ensure!(millis.len() == 2 * self.pairs, "not every request could be looked at");
        Ok((RunTimes { count: self.pairs as u64, wall, cpu: spent()?.saturating_sub(before) }, millis))
    }
}

fn pairs(
    runtime: &Runtime,
    folder: &GatewayFolder,
    (ours, floor): (&ServerProcess, &ServerProcess),
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<ReportLine>> {
    let key = KEY.get_or_init(|| folder.agent_key().to_owned());
    let gate = GateSide { path: "/v1/approvals", key, wanted: 200, pairs: PAIRS, then: look };
    let rows = GateSide { path: "/insert", key, wanted: 202, pairs: PAIRS, then: look_at_row };
    let mut crowds = (
        ClientConnections::connect(runtime, ours.address(), CLIENTS)?,
        ClientConnections::connect(runtime, floor.address(), CLIENTS)?,
    );
    let (mut gate_millis, mut rows_millis) = (Vec::new(), Vec::new());
    let pair = in_turns(
        ROUNDS,
        || {
            let (took, millis) = gate.round(runtime, &mut crowds.0, Some(ours))?;
            gate_millis.extend(millis);
            Ok(took)
        },
        || {
            let (took, millis) = rows.round(runtime, &mut crowds.1, Some(floor))?;
            rows_millis.extend(millis);
            Ok(took)
        },
    )?;
    notes.push(format!(
        "Of the requests, half of them puts and half looks: p50 {} ms, p99 {} ms; axum p50 {} ms, p99 {} ms.",
        figure(at(&gate_millis, 0.5)),
        figure(at(&gate_millis, 0.99)),
        figure(at(&rows_millis, 0.5)),
        figure(at(&rows_millis, 0.99)),
    ));
    Ok(vec![
        ReportLine {
            what: format!("requests put and looked at, {CLIENTS} clients"),
            ours: per_second(&pair.ours),
            against: "axum with one insert and one read".into(),
            floor: per_second(&pair.floor),
            ratio: pair.ratio(RunTimes::per_second),
            target: RatioTarget::AtLeast(0.7),
        },
        processor("processor time for both", &pair, RatioTarget::AtMost(1.5)),
    ])
}

/// The other gate, if one is configured.
fn peer() -> anyhow::Result<Option<(SocketAddr, String)>> {
    let Ok(address) = std::env::var("SLUICE_BENCH_GATE") else { return Ok(None) };
    let key = std::env::var("SLUICE_BENCH_GATE_KEY").context("SLUICE_BENCH_GATE_KEY is not set")?;
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    Ok(Some((address.parse().with_context(|| format!("`{address}` is no address and port"))?, key)))
}

fn beside_peer(
    runtime: &Runtime,
    folder: &GatewayFolder,
    ours: &ServerProcess,
    (address, peer_key): (SocketAddr, &str),
) -> anyhow::Result<Vec<ReportLine>> {
    let key = KEY.get_or_init(|| folder.agent_key().to_owned());
    let peer_key = PEER_KEY.get_or_init(|| peer_key.to_owned());
    let gate = GateSide { path: "/v1/approvals", key, wanted: 200, pairs: PAIRS, then: look };
    let peer = GateSide { path: "/v1/approvals", key: peer_key, wanted: 200, pairs: PEER_PAIRS, then: look_at_peer };
    let mut crowds = (
        ClientConnections::connect(runtime, ours.address(), CLIENTS)?,
        ClientConnections::connect(runtime, address, CLIENTS)?,
    );
    let (mut slow, mut theirs_slow) = (Vec::new(), Vec::new());
    let pair = in_turns(
        3,
        || {
            let (took, millis) = gate.round(runtime, &mut crowds.0, None)?;
            slow.push(at(&millis, 0.99));
            Ok(took)
        },
        || {
            let (took, millis) = peer.round(runtime, &mut crowds.1, None)?;
            theirs_slow.push(at(&millis, 0.99));
            Ok(took)
        },
    )?;
    let (slow, theirs_slow) = (slow.split_off(1), theirs_slow.split_off(1));
    let times = median(theirs_slow.iter().zip(&slow).map(|(theirs, own)| theirs / own).collect());
    Ok(vec![
        ReportLine {
            what: format!("requests put and looked at, {CLIENTS} clients: how much faster"),
            ours: per_second(&pair.ours),
            against: "the other gate".into(),
            floor: per_second(&pair.floor),
            ratio: pair.ratio(RunTimes::per_second),
            target: RatioTarget::AtLeast(50.0),
        },
        ReportLine {
            what: "p99 of a request: how much lower".into(),
            ours: format!("{} ms", figure(median(slow).middle)),
            against: "the other gate".into(),
            floor: format!("{} ms", figure(median(theirs_slow).middle)),
            ratio: times,
            target: RatioTarget::AtLeast(50.0),
        },
    ])
}

/// The time from sending a person's decision until the waiting client has it.
fn decisions(
    runtime: &Runtime,
    folder: &GatewayFolder,
    ours: &ServerProcess,
    notes: &mut Vec<String>,
) -> anyhow::Result<ReportLine> {
    let millis = runtime.block_on(async {
        let connect = async || {
            let stream = TcpStream::connect(ours.address()).await?;
            stream.set_nodelay(true)?;
            anyhow::Ok(stream)
        };
        let (mut agent, mut person) = (connect().await?, connect().await?);
        let (mut heard, mut said, mut millis) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..DECISIONS {
            let request = client::post("/v1/approvals", folder.agent_key(), &wish());
            let status = client::exchange(&mut agent, &request, &mut heard).await?;
            let text = String::from_utf8_lossy(&heard).into_owned();
            anyhow::ensure!(status == 200, "{text}");
            let id = member(&text, "\"approval_id\"").context("no id")?;
            let waits = client::get(&format!("/v1/approvals/{id}?wait_ms=30000"), folder.agent_key());
            let body = json!({"decision": "approve"}).to_string();
            let decides = client::post(&format!("/v1/approvals/{id}/decision"), folder.operator_token(), &body);
            let waiting = async {
                let status = client::exchange(&mut agent, &waits, &mut heard).await?;
                anyhow::Ok((status, Instant::now()))
            };
            let deciding = async {
                // Long enough for the other client to be waiting.
                tokio::time::sleep(Duration::from_millis(15)).await;
                let sent = Instant::now();
                let status = client::exchange(&mut person, &decides, &mut said).await?;
                anyhow::ensure!(
                    status == 200,
                    "the decision was answered {status}: {}",
                    String::from_utf8_lossy(&said)
                );
                anyhow::Ok(sent)
            };
            let ((status, told), sent) = tokio::try_join!(waiting, deciding)?;
            let text = String::from_utf8_lossy(&heard);
            let body: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap_or_default())?;
            anyhow::ensure!(status == 200 && body.get("status") == Some(&json!("approved")), "heard {text}");
            millis.push(told.saturating_duration_since(sent).as_secs_f64() * 1e3);
        }
        anyhow::Ok(millis)
    })?;
    notes.push(format!(
        "{DECISIONS} decisions, from being sent to being heard by whoever waits, durable in between: p50 {} ms, p99 {} ms, slowest {} ms.",
        figure(at(&millis, 0.5)),
        figure(at(&millis, 0.99)),
        figure(at(&millis, 1.0)),
    ));
    Ok(bounded("a decision reaches whoever waits for it, p99", "ms", vec![at(&millis, 0.99)], 50.0, "the bound"))
}
