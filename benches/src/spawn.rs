//! Workers: from spawn to burial, beside the plainest process there is, and beside bubblewrap.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::json;
use sluice_core::{Clock, Span, Timestamp};
use sluice_sandbox::parent::{Alone, Cancel, End, Limits, Namespaces, Program, Spawner, Task};
use sluice_sandbox::protocol::{Job, Outcome};
use sluice_sandbox::{LayerName, Mode};

use crate::report::{ORDER, Row, Section, Target, figure};
use crate::rounds::{Median, median};

const ROUNDS: usize = 7;
/// Processes of each sort in one round, taken in turns.
const EACH: usize = 60;
/// Lives in a row whose remains are counted.
const LIVES: usize = 500;

/// Measures the section.
pub fn measure() -> anyhow::Result<Section> {
    let folder = tempfile::tempdir()?;
    let small = smallest(folder.path())?;
    let program = worker()?;
    let spawner = |namespaces| anyhow::Ok(Spawner::new(Program::at(&program)?, Arc::new(Now))?.namespaces(namespaces));
    let (plain, full) = (spawner(Namespaces::Off)?, spawner(Namespaces::WhereAllowed)?);
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
            times.iter_mut().zip(these).for_each(|(all, these)| all.push(Times::of(these)));
        }
    }
    let [floor, ours, walled, peer] = &times;
    let (before, after) = leaks(&full)?;
    let rows = vec![
        row("Landlock and seccomp, p50", ours, "`posix_spawn` of a small static program", floor, p50, Target::AtMost(3.0)),
        row("Landlock and seccomp, p99", ours, "`posix_spawn` of a small static program", floor, p99, Target::None),
        row("and all namespaces, p50, as a share of", walled, "`bwrap --unshare-all` of that program", peer, p50, Target::AtMost(0.5)),
        row("and all namespaces, p99, as a share of", walled, "`bwrap --unshare-all` of that program", peer, p99, Target::None),
    ];
    let how = format!(
        "`sluice worker`, release build: spawn, lock in, take a job (`echo`), report, exit, reap. Wall time, one after the other, in turns with the \
         processes it is held against; {ROUNDS} rounds of {EACH} each."
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
    Ok(Section { name: "spawn", title, how, rows, notes })
}

/// Percentiles of one round, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    p50: f64,
    p99: f64,
}

impl Times {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).or(times.last()).copied().unwrap_or(f64::NAN);
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

fn p50(times: &Times) -> f64 {
    times.p50
}

fn p99(times: &Times) -> f64 {
    times.p99
}

fn row(what: &str, ours: &[Times], against: &str, floor: &[Times], figure_of: fn(&Times) -> f64, target: Target) -> Row {
    let middle = |side: &[Times]| format!("{} ms", figure(median(side.iter().map(figure_of).collect()).middle));
    let ratios = ours.iter().zip(floor).map(|(ours, floor)| figure_of(ours) / figure_of(floor));
    let ratio: Median = median(ratios.collect());
    Row { what: format!("a worker's life: {what}"), ours: middle(ours), against: against.into(), floor: middle(floor), ratio, target }
}

fn millis(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}

/// One life of a worker, checked to have done its job behind its locks.
fn live(spawner: &Spawner) -> anyhow::Result<()> {
    let job = Job { kind: "echo".into(), payload: json!(7), attachments: Vec::new() };
    let task = Task { job, limits: Limits::default(), mode: Mode::Required, scratch: None };
    match spawner.run(task, &mut Alone, &Cancel::new()?)? {
        End::Clean(done) if done.report.outcome == Outcome::Done(json!(7)) => Ok(()),
        other => anyhow::bail!("the worker ended as {other:?}"),
    }
}

fn has_namespaces(spawner: &Spawner) -> anyhow::Result<bool> {
    let job = Job { kind: "echo".into(), payload: json!(null), attachments: Vec::new() };
    let task = Task { job, limits: Limits::default(), mode: Mode::Required, scratch: None };
    match spawner.run(task, &mut Alone, &Cancel::new()?)? {
        End::Clean(done) => Ok(done.layers.has(LayerName::Namespaces) && done.layers.has(LayerName::EmptyRoot)),
        other => anyhow::bail!("the worker ended as {other:?}"),
    }
}

/// The release build of our program.
fn worker() -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/sluice");
    ensure!(path.is_file(), "{} is missing: cargo build --release -p sluice", path.display());
    Ok(path)
}

/// The plainest process there is: static, and it ends at once.
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

/// What this process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: i64,
    memory: i64,
}

impl Held {
    fn now() -> anyhow::Result<Self> {
        let pages = std::fs::read_to_string("/proc/self/statm")?;
        let pages: i64 = pages.split(' ').nth(1).context("statm")?.parse()?;
        Ok(Self { descriptors: i64::try_from(std::fs::read_dir("/proc/self/fd")?.count())?, memory: pages * 4 })
    }
}

fn leaks(spawner: &Spawner) -> anyhow::Result<(Held, Held)> {
    let before = Held::now()?;
    (0..LIVES).try_for_each(|_| live(spawner))?;
    let after = Held::now()?;
    let children = std::fs::read_to_string("/proc/thread-self/children")?;
    ensure!(children.trim().is_empty(), "children are left: {children}");
    ensure!(after.descriptors == before.descriptors, "descriptors are left: {before:?} {after:?}");
    Ok((before, after))
}

/// The machine's clock.
#[derive(Debug)]
struct Now;

impl Clock for Now {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn since_boot(&self) -> Span {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Span::from_millis(u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0))
    }
}
