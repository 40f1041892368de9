//! Ten thousand pending writes: how late they leave, what they cost, and whether people can still stop one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use sluice_core::batch::SlidingWindow;
use sluice_core::budget::DailyBudgetLimits;
use sluice_core::capability::{Catalogue, EffectClass};
use sluice_core::hold::HoldState;
use sluice_core::ids::MessageId;
use sluice_core::{Action, ApprovalId, CallId, CapabilityName, Clock, HoldId, Millis, ServiceName, Tier};
use sluice_gateway::loops::{self, release::ReleaseLoop};
use sluice_gateway::open::open;
use sluice_store::{Admission, AdmissionOutcome, Store};
use sluice_testkit::clock::ManualClock;
use tokio::runtime::Runtime;

use super::folder::{BenchEngine, FixedClock, GatewayFolder, clerk};
use super::server::{RealIds, ServerProcess, config, memory_of, world};
use super::{at, bounded, client};
use crate::load::{self, WallClock};
use crate::report::{ReportLine, figure};

const PENDING: usize = 10_000;
/// How often the loop runs without a hint.
const TICK: u64 = 200;
const MINUTES: u64 = 10;
const CANCELS: usize = 300;

/// Measures all of it.
pub fn measure(runtime: &Runtime, notes: &mut Vec<String>) -> anyhow::Result<Vec<ReportLine>> {
    let mut rows = idle(runtime)?;
    rows.extend(at_once(runtime, notes)?);
    rows.extend(over_minutes(runtime, notes)?);
    Ok(rows)
}

fn idle(runtime: &Runtime) -> anyhow::Result<Vec<ReportLine>> {
    let folder = GatewayFolder::new(runtime, &BenchEngine::file()?)?;
    let child = ServerProcess::gateway(folder.path())?;
    std::thread::sleep(Duration::from_secs(3));
    let memory = child.memory("VmRSS")?;
    Ok(vec![bounded("memory of an idle gateway", "MB", vec![memory], 60.0, "the bound")])
}

/// All due at one instant: started, then cancelled while they leave.
fn at_once(runtime: &Runtime, notes: &mut Vec<String>) -> anyhow::Result<Vec<ReportLine>> {
    const UNTIL_DUE: Millis = Millis::from_secs(25);
    let folder = GatewayFolder::new(runtime, &BenchEngine::file()?)?;
    let now = WallClock.now();
    let holds = {
        let store = GatewayFolder::store_at(folder.path(), Arc::new(FixedClock(now)))?;
        seed(runtime, Arc::new(store), |_| UNTIL_DUE)?
    };
    let mut starts = Vec::new();
    for _ in 0..3 {
        starts.push(ServerProcess::gateway(folder.path())?.ready.as_secs_f64());
    }
    let child = ServerProcess::gateway(folder.path())?;
    starts.push(child.ready.as_secs_f64());
    let due = now + UNTIL_DUE;
    anyhow::ensure!(WallClock.now() < due, "the gateways took too long to start: the writes fell due meanwhile");
    std::thread::sleep(Duration::from_millis(due.since(WallClock.now()).as_millis() + 500));
    // From the far end: those leave last.
    let began = Instant::now();
    let millis = runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(child.stop_address()).await?;
        stream.set_nodelay(true)?;
        let (mut millis, mut buffer) = (Vec::new(), Vec::new());
        for hold in holds.iter().rev().take(CANCELS) {
            let call = CallId::from_bits(hold.bits());
            let request = client::post(&format!("/v1/calls/{call}/cancel"), folder.operator_token(), "");
            let asked = Instant::now();
            let status = client::exchange(&mut stream, &request, &mut buffer).await?;
            millis.push(asked.elapsed().as_secs_f64() * 1e3);
            anyhow::ensure!(status == 200, "a cancel was answered {status}: {}", String::from_utf8_lossy(&buffer));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(millis)
    })?;
    let took = began.elapsed().as_secs_f64() + 0.5;
    let memory = child.memory("VmHWM")?;
    drop(child);
    let store = GatewayFolder::store_at(folder.path(), Arc::new(WallClock))?;
    let done = runtime.block_on(count_done(&store, &holds))?;
    anyhow::ensure!(done > 0, "nothing left: {:?}", runtime.block_on(store.holds_by_state())?);
    let pace = done as f64 / took;
    notes.push(format!(
        "{PENDING} writes due at one instant left at {} /s (the pace is 50 /s for each service), while {CANCELS} others were cancelled over the \
         stop lane: p50 {} ms, p99 {} ms, slowest {} ms.",
        figure(pace),
        figure(at(&millis, 0.5)),
        figure(at(&millis, 0.99)),
        figure(at(&millis, 1.0)),
    ));
    anyhow::ensure!(pace < 75.0, "not paced: {pace} /s");
    Ok(vec![
        bounded("start to ready with 10,000 pending writes", "s", starts, 1.0, "the bound"),
        bounded("cancel while 10,000 are due at once, p99", "ms", vec![at(&millis, 0.99)], 250.0, "the bound"),
        bounded("memory with 10,000 pending writes, all due", "MB", vec![memory], 300.0, "the bound"),
    ])
}

/// Counts them one by one: the count by state leaves out those that have ended.
async fn count_done(store: &Store, holds: &[HoldId]) -> anyhow::Result<usize> {
    let mut done = 0;
    for hold in holds {
        let hold = store.hold(*hold).await?.context("a write is gone")?;
        done += usize::from(matches!(hold.state, HoldState::Done { .. }));
    }
    Ok(done)
}

/// Ten simulated minutes, in a process of its own that measures its own memory.
fn over_minutes(runtime: &Runtime, notes: &mut Vec<String>) -> anyhow::Result<Vec<ReportLine>> {
    let folder = GatewayFolder::new(runtime, &BenchEngine::file()?)?;
    let said = std::process::Command::new(std::env::current_exe()?)
        .args(["role", "minutes"])
        .arg(folder.path())
        .stderr(std::process::Stdio::inherit())
        .output()?;
    anyhow::ensure!(said.status.success(), "the simulation failed");
    let text = String::from_utf8(said.stdout)?;
    let figures: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [middle, late, worst, memory, real] = figures.as_slice() else { anyhow::bail!("said {text}") };
    notes.push(format!(
        "{PENDING} writes due over ten minutes: late by {} ms in the middle, {} ms at most. Time is simulated: the clock moves by what each \
         step of the release loop really took, then on to its next tick of {TICK} ms; the whole took {} s of real time.",
        figure(*middle),
        figure(*worst),
        figure(*real),
    ));
    Ok(vec![
        bounded("lateness of 10,000 writes due over ten minutes, p99", "ms", vec![*late], 1_000.0, "the bound"),
        bounded("memory meanwhile", "MB", vec![*memory], 300.0, "the bound"),
    ])
}

/// The role: simulates, and prints lateness (p50, p99, maximum; ms), maximum memory (MB) and real time (s).
pub fn ten_minutes(folder: &Path) -> anyhow::Result<()> {
    let runtime = load::runtime()?;
    let clock = ManualClock::at(WallClock.now());
    let began = clock.now();
    let spread = |place: usize| Millis::from_millis(60_000 + place as u64 * MINUTES * 60_000 / PENDING as u64);
    let (gw, _) = runtime.block_on(open(config(folder)?, &world(Arc::new(clock.clone()))))?;
    let holds = seed(&runtime, Arc::clone(&gw.store), spread)?;
    let real = Instant::now();
    let late = runtime.block_on(async {
        loops::start(&gw, "0.0.0").await.map_err(|no| anyhow::anyhow!("{no:?}"))?;
        let mut release = ReleaseLoop::new(&gw);
        let mut late = Vec::with_capacity(PENDING);
        while late.len() < PENDING {
            let step = Instant::now();
            let started = release.step(&gw).await.map_err(|no| anyhow::anyhow!("{no:?}"))?;
            release.finish().await;
            let took = u64::try_from(step.elapsed().as_millis())? + 1;
            let now = clock.now() + Millis::from_millis(took);
            // They leave in the order in which they are due.
            for _ in 0..started {
                let due = began + spread(late.len());
                late.push(now.since(due).as_millis() as f64);
            }
            clock.advance(Millis::from_millis(took.div_ceil(TICK) * TICK));
            anyhow::ensure!(clock.now().since(began) < Millis::from_hours(2), "only {} of {PENDING} left", late.len());
        }
        anyhow::ensure!(count_done(&gw.store, &holds).await? == PENDING, "not all that left is done");
        anyhow::Ok(late)
    })?;
    let memory = memory_of("self", "VmHWM")?;
    println!("{} {} {} {memory} {}", at(&late, 0.5), at(&late, 0.99), at(&late, 1.0), real.elapsed().as_secs_f64());
    Ok(())
}

/// Admits all of them, as the gateway would.
fn seed(runtime: &Runtime, store: Arc<Store>, delay: impl Fn(usize) -> Millis) -> anyhow::Result<Vec<HoldId>> {
    let catalogue = Catalogue::builtin().map_err(|error| anyhow::anyhow!("{error}"))?;
    let name: CapabilityName = "alerts.send".parse()?;
    let spec = catalogue.get(&name).context("alerts can be sent")?;
    let mut admissions = Vec::with_capacity(PENDING);
    for place in 0..PENDING {
        let arguments = json!({"message": format!("number {place} of many"), "severity": "info"});
        let hold = HoldId::mint(&RealIds);
        admissions.push(Admission {
            named: false,
            call: CallId::from_bits(hold.bits()),
            hold,
            approval: ApprovalId::mint(&RealIds),
            message: MessageId::mint(&RealIds),
            record_key: [7; 32],
            action: Action::new(spec, clerk()?, None, arguments)?,
            session: None,
            service: ServiceName::new("alerts")?,
            class: EffectClass::Absolute,
            object_key: None,
            weight: 1,
            delay: delay(place),
            tier: Tier::Autonomous,
            policy: "sha256:0000000000000000000000000000000000000000000000000000000000000000".into(),
            rule: None,
            door: None,
            targets: Vec::new(),
            reason: None,
            reasons: Vec::new(),
            rates: Vec::new(),
            budgets: DailyBudgetLimits::default(),
            checks: None,
            window: SlidingWindow { limit: u32::MAX, ..SlidingWindow::default() },
            idempotency_key: None,
            allow_duplicate: true,
            allowance: None,
            expiry: Millis::from_hours(1),
            reverses: None,
            by: None,
        });
    }
    let holds = admissions.iter().map(|admission| admission.hold).collect();
    let work = |admission| {
        let store = Arc::clone(&store);
        async move {
            let admitted = store.admit(admission).await?;
            anyhow::ensure!(matches!(admitted, AdmissionOutcome::Held { .. }), "not held but {admitted:?}");
            Ok(())
        }
    };
    load::all_at_once(runtime, load::dealt(256, admissions), work)?;
    Ok(holds)
}
