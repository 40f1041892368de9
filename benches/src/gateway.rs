//! The gateway over HTTP: admission of held writes compared with an axum handler with one insert, reads compared with
//! hello-world, ten thousand pending writes, and the cost of an idle gateway.
//!
//! Every server is a process of its own, and only its processor time is counted; the clients run here. Promise: both
//! sides get the same requests over the same kind of connections, in turns.

pub mod client;
pub mod folder;
mod pending;
pub mod server;

use std::sync::Arc;

use anyhow::Context as _;
use client::{ClientConnections, ClientRun};
use folder::{BenchEngine, GatewayFolder};
use serde_json::json;
use server::ServerProcess;

use crate::load;
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{self, PairedRounds, RunTimes, in_turns, median};

const ROUNDS: usize = 7;
/// Requests in one round, by all clients together.
const REQUESTS: usize = 2_560;
const CLIENTS: [usize; 2] = [32, 64];

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let runtime = load::runtime()?;
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let engines = [BenchEngine::file()?].into_iter().chain(BenchEngine::server());
    for engine in engines {
        let folder = GatewayFolder::new(&runtime, &engine)?;
        let ours = ServerProcess::gateway(folder.path())?;
        let floor = ServerProcess::floor(&engine)?;
        for clients in CLIENTS {
            let (more, note) = admissions(&runtime, clients, &engine, &folder, &ours, &floor)?;
            rows.extend(more);
            notes.push(note);
        }
        if engine.is_file() {
            let (more, note) = reads(&runtime, &folder, &ours, &floor)?;
            rows.extend(more);
            notes.push(note);
        }
    }
    if rows.iter().all(|row| !row.what.contains("PostgreSQL")) {
        notes.push("PostgreSQL was not measured: there was no server.".into());
    }
    rows.extend(pending::measure(&runtime, &mut notes)?);
    notes.push(format!("Load average of the machine at the end: {}.", load_average()));
    let how = format!(
        "A gateway and an axum server, each a process of its own whose processor time alone is counted, answer the same requests of \
         clients that keep their connection and wait for each answer; {REQUESTS} requests in each of {ROUNDS} rounds. A held write \
         is `alerts.send` with an idempotency key: credential, schema, two policy layers, batch counter, hold, audit entry and key, \
         durable before the answer. The axum handler inserts the request's body as one row, durable before the answer, and does \
         nothing else: one writer thread with group commit on SQLite, as many connections as clients on PostgreSQL."
    );
    let [_, _, _, _, _, _, _, _, title, ..] = ORDER;
    Ok(ReportSection { name: "gateway", title, how, rows, notes })
}

/// Admission of held writes, compared with one insert.
fn admissions(
    runtime: &tokio::runtime::Runtime,
    clients: usize,
    engine: &BenchEngine,
    folder: &GatewayFolder,
    ours: &ServerProcess,
    floor: &ServerProcess,
) -> anyhow::Result<(Vec<ReportLine>, String)> {
    let numbers = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let body = move || {
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let text = format!(
            "Number {number} of {clients} clients at once. It is as long as a short message is: two lines or three, a greeting, \
             and one question at the end. Would Tuesday suit you?"
        );
        json!({
            "capability": "alerts.send", "arguments": {"message": text, "severity": "info"},
            "idempotency_key": format!("key-{clients}-{number}"),
        })
        .to_string()
    };
    let mut gate = ClientConnections::connect(runtime, ours.address(), clients)?;
    let mut axum = ClientConnections::connect(runtime, floor.address(), clients)?;
    let (mut gate_runs, mut axum_runs) = (Vec::new(), Vec::new());
    let token = folder.agent_key().to_owned();
    let pair = in_turns(
        ROUNDS,
        || {
            let requests = (0..REQUESTS).map(|_| client::post("/v1/calls", &token, &body())).collect();
            one_round(runtime, &mut gate, ours, requests, 202, &mut gate_runs)
        },
        || {
            let requests = (0..REQUESTS).map(|_| client::post("/insert", &token, &body())).collect();
            one_round(runtime, &mut axum, floor, requests, 202, &mut axum_runs)
        },
    )?;
    let name = engine.name();
    let rows = vec![
        ReportLine {
            what: format!("held writes admitted, {clients} clients, {name}"),
            ours: per_second(&pair.ours),
            against: "axum with one insert".into(),
            floor: per_second(&pair.floor),
            ratio: pair.ratio(RunTimes::per_second),
            target: RatioTarget::AtLeast(0.7),
        },
        processor(&format!("processor time for each, {clients} clients, {name}"), &pair, RatioTarget::AtMost(1.5)),
    ];
    let note = format!(
        "{name}, {clients} clients: p50 {} ms, p99 {} ms; axum p50 {} ms, p99 {} ms.",
        figure(at(&gate_runs, 0.5)),
        figure(at(&gate_runs, 0.99)),
        figure(at(&axum_runs, 0.5)),
        figure(at(&axum_runs, 0.99)),
    );
    Ok((rows, note))
}

/// A read with its audit entry, compared with hello-world.
fn reads(
    runtime: &tokio::runtime::Runtime,
    folder: &GatewayFolder,
    ours: &ServerProcess,
    floor: &ServerProcess,
) -> anyhow::Result<(Vec<ReportLine>, String)> {
    const CLIENTS: usize = 32;
    let token = folder.agent_key();
    let read = json!({"capability": "state.persistent.get", "arguments": {"key": "plan"}}).to_string();
    let call = client::post("/v1/calls", token, &read);
    let hello = client::get("/", token);
    let mut gate = ClientConnections::connect(runtime, ours.address(), CLIENTS)?;
    let mut axum = ClientConnections::connect(runtime, floor.address(), CLIENTS)?;
    let (mut gate_runs, mut axum_runs) = (Vec::new(), Vec::new());
    let pair = in_turns(
        ROUNDS,
        || one_round(runtime, &mut gate, ours, vec![call.clone(); REQUESTS], 200, &mut gate_runs),
        || one_round(runtime, &mut axum, floor, vec![hello.clone(); REQUESTS * 4], 200, &mut axum_runs),
    )?;
    let rows = vec![
        ReportLine {
            what: format!("`state.persistent.get` with its audit entry, {CLIENTS} clients, SQLite"),
            ours: per_second(&pair.ours),
            against: "axum that says hello".into(),
            floor: per_second(&pair.floor),
            ratio: pair.ratio(RunTimes::per_second),
            target: RatioTarget::None,
        },
        processor("processor time for each read", &pair, RatioTarget::None),
    ];
    let note = format!(
        "Reads: p50 {} ms, p99 {} ms; a read is durable in the record before it is answered, hello-world touches no disk.",
        figure(at(&gate_runs, 0.5)),
        figure(at(&gate_runs, 0.99)),
    );
    Ok((rows, note))
}

pub fn one_round(
    runtime: &tokio::runtime::Runtime,
    crowd: &mut ClientConnections,
    child: &ServerProcess,
    requests: Vec<Vec<u8>>,
    wanted: u16,
    runs: &mut Vec<f64>,
) -> anyhow::Result<RunTimes> {
    let count = requests.len() as u64;
    let before = child.processor()?;
    let ClientRun { wall, millis } = crowd.run(runtime, requests, wanted)?;
    let cpu = child.processor()?.saturating_sub(before);
    runs.extend(millis);
    Ok(RunTimes { count, wall, cpu })
}

pub fn per_second(side: &[RunTimes]) -> String {
    format!("{} /s", figure(rounds::of(side, RunTimes::per_second)))
}

pub fn processor(what: &str, pair: &PairedRounds, target: RatioTarget) -> ReportLine {
    let micros = |side| format!("{} µs", figure(rounds::of(side, RunTimes::cpu_nanos) / 1_000.0));
    ReportLine {
        what: what.to_owned(),
        ours: micros(&pair.ours),
        against: "the same".into(),
        floor: micros(&pair.floor),
        ratio: pair.ratio(RunTimes::cpu_nanos),
        target,
    }
}

/// A figure that is compared with a bound instead of another program.
pub fn bounded(what: &str, unit: &str, figures: Vec<f64>, bound: f64, against: &str) -> ReportLine {
    let found = median(figures);
    let part = |number: f64| number / bound;
    ReportLine {
        what: what.to_owned(),
        ours: format!("{} {unit}", figure(found.middle)),
        against: against.to_owned(),
        floor: format!("{} {unit}", figure(bound)),
        ratio: rounds::MedianRange { middle: part(found.middle), low: part(found.low), high: part(found.high) },
        target: RatioTarget::AtMost(1.0),
    }
}

/// The value below which this share of the figures is.
pub fn at(figures: &[f64], share: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(", ")
}

/// Starts the role of `bench role …`, and serves until its standard input closes.
pub fn role(words: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["gateway", folder] => server::gateway(std::path::Path::new(folder), None),
        ["gateway", folder, workers] => {
            server::gateway(std::path::Path::new(folder), Some(std::path::Path::new(workers)))
        }
        ["floor", engine] => server::floor(engine),
        ["stub"] => crate::mcp::stub(),
        ["hop", address] => crate::mcp::hop(address.parse()?),
        ["minutes", folder] => pending::ten_minutes(std::path::Path::new(folder)),
        other => None.with_context(|| format!("there is no role {other:?}")),
    }
}
