//! Workers: from spawn to reap, compared with the smallest possible process, and with bubblewrap.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::json;
use sluice_core::{Clock, Millis, UtcMillis};
use sluice_sandbox::parent::{
    NamespacesMode, RefusingWorkerHost, Spawner, WorkerCancel, WorkerEnd, WorkerLimits, WorkerProgram, WorkerTask,
};
use sluice_protocol::{WorkerJob, WorkerJobOutcome};
use sluice_sandbox::{JailLayerName, JailMode};

use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{MedianRange, median};

const ROUNDS: usize = 7;
/// Processes of each sort in one round, taken in turns.
const EACH: usize = 60;
/// The number of worker lifetimes in a row after which leftovers are counted.
const LIVES: usize = 500;

const SMALL: &str = "`posix_spawn` of a small static program";
const BOXED: &str = "`bwrap --unshare-all` of that program";

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let folder = tempfile::tempdir()?;
    let small = smallest(folder.path())?;
    let program = worker()?;
    let spawner = |namespaces| {
        anyhow::Ok(Spawner::new(WorkerProgram::at(&program)?, Arc::new(SpawnClock))?.namespaces(namespaces))
    };
    let (plain, full) = (spawner(NamespacesMode::Off)?, spawner(NamespacesMode::WhereAllowed)?);
    ensure!(has_namespaces(&full)?, "this system allows no user namespaces: nothing to hold against bubblewrap");
    let boxed = || bubblewrap(folder.path());
    boxed().context("bubblewrap (Debian package `bubblewrap`)")?;
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        let mut these = [const { Vec::new() }; 4];
        for _ in 0..EACH {
            let [floor, ours, walled, peer] = &mut these;
            floor.push(millis(|| run(Command::new(&small).env_clear()))?);
            ours.push(millis(|| live(&plain))?);
            walled.push(millis(|| live(&full))?);
            peer.push(millis(boxed)?);
        }
        // The first round warms up.
        if round > 0 {
            times.iter_mut().zip(these).for_each(|(all, these)| all.push(SpawnTimes::of(these)));
        }
    }
    let [floor, ours, walled, peer] = &times;
    let mut work = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        let these = [
            processor(|| run(Command::new(&small).env_clear()))?,
            processor(|| live(&plain))?,
            processor(|| live(&full))?,
            processor(boxed)?,
        ];
        if round > 0 {
            work.iter_mut().zip(these).for_each(|(all, this)| all.push(SpawnTimes { p50: this, p99: this }));
        }
    }
    let [floor_work, our_work, walled_work, peer_work] = &work;
    let (before, after) = leaks(&full)?;
    let rows = vec![
        row("Landlock and seccomp, processor time", our_work, SMALL, floor_work, p50, RatioTarget::AtMost(3.0)),
        row(
            "and all namespaces, processor time, as a share of",
            walled_work,
            BOXED,
            peer_work,
            p50,
            RatioTarget::AtMost(0.5),
        ),
        row("Landlock and seccomp, p50", ours, SMALL, floor, p50, RatioTarget::AtMost(3.0)),
        row("Landlock and seccomp, p99", ours, SMALL, floor, p99, RatioTarget::None),
        row("and all namespaces, p50, as a share of", walled, BOXED, peer, p50, RatioTarget::AtMost(0.5)),
        row("and all namespaces, p99, as a share of", walled, BOXED, peer, p99, RatioTarget::None),
    ];
    let how = format!(
        "`sluice worker`, release build: spawn, lock in, take a job (`echo`), report, exit, reap. Processor time is that of the child \
         and of the parent, over {EACH} in a row. The other rows are wall time, one process after the other, in turns with those it is \
         held against. {ROUNDS} rounds of {EACH} each."
    );
    let notes = vec![
        format!(
            "{LIVES} lives in a row left {} descriptors more than before and {} KB more memory in the parent; none was left unburied.",
            after.descriptors - before.descriptors,
            figure((after.memory - before.memory) as f64)
        ),
        "bubblewrap unshares what we unshare and binds one folder as its root; it sets no Landlock rules and no filter here.".to_owned(),
    ];
    let [_, _, _, _, title, ..] = ORDER;
    Ok(ReportSection { name: "spawn", title, how, rows, notes })
}

/// Percentiles of one round, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct SpawnTimes {
    p50: f64,
    p99: f64,
}

impl SpawnTimes {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at =
            |share: f64| times.get((times.len() as f64 * share) as usize).or(times.last()).copied().unwrap_or(f64::NAN);
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

fn p50(times: &SpawnTimes) -> f64 {
    times.p50
}

fn p99(times: &SpawnTimes) -> f64 {
    times.p99
}

fn row(
    what: &str,
    ours: &[SpawnTimes],
    against: &str,
    floor: &[SpawnTimes],
    figure_of: fn(&SpawnTimes) -> f64,
    target: RatioTarget,
) -> ReportLine {
    let middle = |side: &[SpawnTimes]| format!("{} ms", figure(median(side.iter().map(figure_of).collect()).middle));
    let ratios = ours.iter().zip(floor).map(|(ours, floor)| figure_of(ours) / figure_of(floor));
    let ratio: MedianRange = median(ratios.collect());
    ReportLine {
        what: format!("a worker's life: {what}"),
        ours: middle(ours),
        against: against.into(),
        floor: middle(floor),
        ratio,
        target,
    }
}

fn millis(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}

/// Milliseconds of processor time for one of them: of this process and of the children that it has reaped.
fn processor(work: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    /// The unit of the kernel's counter.
    const TICK: f64 = 10.0;
    let spent = || {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        // After the name, which may contain anything: own user and system time, then those of children.
        let (_, fields) = stat.rsplit_once(") ").context("stat")?;
        let ticks = fields.split(' ').skip(11).take(4).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
        anyhow::Ok(ticks * TICK)
    };
    let before = spent()?;
    (0..EACH).try_for_each(|_| work())?;
    Ok((spent()? - before) / EACH as f64)
}

/// One lifetime of a worker, checked to have done its job while locked in.
fn live(spawner: &Spawner) -> anyhow::Result<()> {
    let job = WorkerJob { kind: "echo".into(), payload: json!(7), attachments: Vec::new() };
    let task = WorkerTask { job, limits: WorkerLimits::default(), mode: JailMode::Required, scratch: None };
    match spawner.run(task, &mut RefusingWorkerHost, &WorkerCancel::new()?)? {
        WorkerEnd::Clean(done) if done.report.outcome == WorkerJobOutcome::Done(json!(7)) => Ok(()),
        other => anyhow::bail!("the worker ended as {other:?}"),
    }
}

fn has_namespaces(spawner: &Spawner) -> anyhow::Result<bool> {
    let job = WorkerJob { kind: "echo".into(), payload: json!(null), attachments: Vec::new() };
    let task = WorkerTask { job, limits: WorkerLimits::default(), mode: JailMode::Required, scratch: None };
    match spawner.run(task, &mut RefusingWorkerHost, &WorkerCancel::new()?)? {
        WorkerEnd::Clean(done) => {
            Ok(done.layers.has(JailLayerName::Namespaces) && done.layers.has(JailLayerName::EmptyRoot))
        }
        other => anyhow::bail!("the worker ended as {other:?}"),
    }
}

/// The release build of our program.
fn worker() -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/sluice");
    ensure!(path.is_file(), "{} is missing: cargo build --release -p sluice", path.display());
    Ok(path)
}

/// The smallest possible process: static, and it ends at once.
fn smallest(folder: &Path) -> anyhow::Result<PathBuf> {
    let (source, program) = (folder.join("small.rs"), folder.join("small"));
    std::fs::write(&source, "fn main() {}\n")?;
    let mut compiler = Command::new("rustc");
    compiler.args(["-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"]).arg(&program).arg(&source);
    run(&mut compiler)?;
    Ok(program)
}

fn bubblewrap(folder: &Path) -> anyhow::Result<()> {
    run(Command::new("bwrap").args(["--unshare-all", "--ro-bind"]).arg(folder).args(["/", "/small"]).env_clear())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

/// The resources that this process holds.
#[derive(Debug, Clone, Copy)]
struct HeldResources {
    descriptors: i64,
    memory: i64,
}

impl HeldResources {
    fn now() -> anyhow::Result<Self> {
        let pages = std::fs::read_to_string("/proc/self/statm")?;
        let pages: i64 = pages.split(' ').nth(1).context("statm")?.parse()?;
        Ok(Self { descriptors: i64::try_from(std::fs::read_dir("/proc/self/fd")?.count())?, memory: pages * 4 })
    }
}

fn leaks(spawner: &Spawner) -> anyhow::Result<(HeldResources, HeldResources)> {
    let before = HeldResources::now()?;
    (0..LIVES).try_for_each(|_| live(spawner))?;
    let after = HeldResources::now()?;
    let children = std::fs::read_to_string("/proc/thread-self/children")?;
    ensure!(children.trim().is_empty(), "children are left: {children}");
    ensure!(after.descriptors == before.descriptors, "descriptors are left: {before:?} {after:?}");
    Ok((before, after))
}

/// The machine's clock.
#[derive(Debug)]
struct SpawnClock;

impl Clock for SpawnClock {
    fn now(&self) -> UtcMillis {
        UtcMillis::from_millis(0)
    }

    fn since_boot(&self) -> Millis {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Millis::from_millis(u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0))
    }
}
