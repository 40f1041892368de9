//! A simulated installation: nodes, agents, people and a service, all driven by one seed.
//!
//! Takes a [`SimPlan`]; gives a [`SimReport`], or the [`SimFailure`] with everything needed to reproduce it. One thread, no real
//! time: each turn moves one party by one step, and a crash, a pause or a jump of the clock can fall between any two
//! steps. Promise: the same plan gives the same trace, with the same hash. These nodes keep the duties that a real node
//! must keep around the store; `node.rs` lists them, and each planted bug leaves one out.

mod node;
mod oracle;
mod people;

use std::collections::BTreeMap;
use std::fmt;

use futures_util::FutureExt as _;
use sha2::{Digest as _, Sha256};
use sluice_core::batch::SlidingWindow;
use sluice_core::hold::diagram::LifecycleEdge;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{Clock as _, Millis, NodeName, UtcMillis};
use sluice_store::{MemoryDatabase, Store};

use crate::clock::ManualClock;
use crate::history::{self, CheckedHistory};
use crate::ids::{SeededIds, SplitMix};
use crate::provider::SimulatedProvider;
use node::SimNode;
use oracle::SimOracle;

/// What to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimPlan {
    /// Everything is derived from it.
    pub seed: u64,
    /// Turns before all faults are healed.
    pub turns: u32,
    /// A duty that the nodes leave out.
    pub bug: Option<PlantedBug>,
}

/// Negative controls: mistakes a node could make around a correct store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// An uncertain write simply goes back to waiting, without a lookup at the service.
    NaiveRescue,
    /// A missing reply is taken for "nothing happened".
    RetryOnTimeout,
    /// Every attempt consumes a new handle.
    NewHandlePerRetry,
    /// A due write is sent, however late it is noticed.
    NoGrace,
    /// The wall clock alone says whether an undo window has closed.
    WallClockOnly,
    /// The wall clock alone says whether a service has settled.
    AbsentBeforeSettle,
}

/// The observations of a run without a failure.
#[derive(Debug)]
pub struct SimReport {
    /// SHA-256 over the trace.
    pub hash: String,
    /// Steps of held writes that were taken.
    pub taken: BTreeMap<LifecycleEdge, u32>,
    /// Steps of approval requests that were taken.
    pub asked: BTreeMap<LifecycleEdge, u32>,
    /// The number of held writes.
    pub holds: usize,
    /// The number of effects at the service.
    pub effects: usize,
}

/// A promise that was broken.
#[derive(Debug)]
pub struct SimFailure {
    /// The plan that failed.
    pub plan: SimPlan,
    /// The promise, and how it was broken.
    pub what: String,
    /// The end of the trace.
    pub trace: Vec<String>,
}

impl fmt::Display for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimPlan { seed, turns, bug } = self.plan;
        writeln!(f, "seed {seed} ({turns} turns, bug {bug:?}): {}", self.what)?;
        writeln!(f, "again: SLUICE_SEED={seed} cargo test -p sluice-testkit --test sim one_seed -- --nocapture")?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// The batch window of every agent and service.
pub(crate) const WINDOW: SlidingWindow = SlidingWindow { limit: 9, span: Millis::from_mins(10) };
/// How far a node's clock may be from the others'.
const SKEW_MS: u64 = 900;
/// How many lines of a trace are shown.
const TAIL: usize = 120;

type SimResult<T = ()> = Result<T, String>;

pub(crate) struct Simulation {
    plan: SimPlan,
    random: SplitMix,
    ids: SeededIds,
    memory: MemoryDatabase,
    /// Real time, which no party in the simulation can read.
    elapsed: Millis,
    jumps_left: u32,
    nodes: Vec<SimNode>,
    provider: SimulatedProvider,
    book: SimOracle,
    trace: SimTrace,
    healed: bool,
}

#[derive(Default)]
struct SimTrace {
    hash: Sha256,
    lines: Vec<String>,
}

/// Runs a plan to its end and checks everything.
///
/// # Errors
/// The first promise that was broken.
pub fn run(plan: &SimPlan) -> Result<SimReport, SimFailure> {
    let mut sim = Simulation::new(plan);
    // A panic inside the store is also a broken promise, and its seed must be reported.
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.play()));
    let what = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
    };
    match played.unwrap_or_else(|panic| Err(format!("panicked: {}", what(panic)))) {
        Ok(report) => Ok(report),
        Err(what) => {
            let skip = sim.trace.lines.len().saturating_sub(TAIL);
            Err(SimFailure { plan: *plan, what, trace: sim.trace.lines.split_off(skip) })
        }
    }
}

/// A future of the store in memory is ready when it is first polled.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    future.now_or_never().unwrap_or_else(|| panic!("the store in memory never waits"))
}

impl Simulation {
    fn new(plan: &SimPlan) -> Self {
        let mut random = SplitMix::new(plan.seed);
        let memory = MemoryDatabase::new().unwrap_or_else(|error| panic!("no database in memory: {error}"));
        // For one seed in six, the index of the service is slower than the settle time.
        let slowest = Millis::from_secs(if random.below(6) == 0 { 300 } else { oracle::PROMPT_INDEX_S });
        let provider = SimulatedProvider::new(random.draw(), slowest);
        let count = 1 + random.below(3);
        let start = UtcMillis::from_millis(1_730_000_000_000);
        let nodes = (1..=count)
            .map(|number| {
                let name = NodeName::new(format!("gw-{number}")).unwrap_or_else(|error| panic!("{error}"));
                SimNode::new(name, ManualClock::at(start + Millis::from_millis(random.below(SKEW_MS))))
            })
            .collect();
        Self {
            plan: *plan,
            ids: SeededIds::new(random.draw()),
            random,
            memory,
            elapsed: Millis::ZERO,
            jumps_left: 2,
            nodes,
            provider,
            book: SimOracle::default(),
            trace: SimTrace::default(),
            healed: false,
        }
    }

    fn play(&mut self) -> SimResult<SimReport> {
        for at in 0..self.nodes.len() {
            self.start(at)?;
        }
        for _ in 0..self.plan.turns {
            match self.random.below(100) {
                0..58 => {
                    let at = self.any_node();
                    self.turn(at)?;
                }
                58..70 => {
                    let span = match self.random.below(12) {
                        0..8 => 1 + self.random.below(8),
                        8..11 => 10 + self.random.below(15),
                        _ => 26 + self.random.below(90),
                    };
                    self.pass(Millis::from_secs(span));
                }
                70..82 => self.agent_acts()?,
                82..94 => self.person_acts()?,
                _ => self.fault()?,
            }
        }
        self.check_record()?;
        self.drain()?;
        self.judge()
    }

    /// Breaks something, or repairs it.
    fn fault(&mut self) -> SimResult {
        let at = self.any_node();
        if let Some(down) = self.nodes.iter().position(SimNode::is_down)
            && !self.one_in(3)
        {
            return self.start(down);
        }
        match self.random.below(20) {
            0..9 => self.crash(at),
            9..14 => {
                let span = Millis::from_secs(20 + self.random.below(300));
                self.note(format!("{} pauses for {} s", self.node(at).name, span.as_secs()));
                let until = self.elapsed + span;
                self.node_mut(at).paused_until = until;
            }
            14..17 => return self.jump(),
            17 => {
                let span = [20, 300, 3 * 3600].get(self.below(3)).copied().unwrap_or(20);
                self.note(format!("everything sleeps for {span} s"));
                self.pass(Millis::from_secs(span));
            }
            18 => {
                let span = [20, 300, 3 * 3600, 3 * 86_400].get(self.below(4)).copied().unwrap_or(20);
                (0..self.nodes.len()).for_each(|at| self.crash(at));
                self.note(format!("nobody is there for {span} s"));
                self.pass(Millis::from_secs(span));
                for at in 0..self.nodes.len() {
                    self.start(at)?;
                }
            }
            _ => {
                self.crash(at);
                self.note(format!("{} is switched off and on", self.node(at).name));
                self.node(at).clock.restart(Millis::ZERO);
            }
        }
        Ok(())
    }

    fn crash(&mut self, at: usize) {
        if self.node_mut(at).crash() {
            self.note(format!("{} dies", self.node(at).name));
        }
    }

    /// Sets all wall clocks together: several nodes represent several clients of one database server, which has one
    /// clock.
    fn jump(&mut self) -> SimResult {
        if self.jumps_left == 0 {
            return Ok(());
        }
        self.jumps_left -= 1;
        let span = Millis::from_hours(if self.random.below(2) == 0 { 1 } else { 24 });
        let back = self.random.below(2) == 0;
        self.note(format!("all clocks jump {} {} s", if back { "back" } else { "ahead" }, span.as_secs()));
        for node in &self.nodes {
            let now = node.clock.now();
            node.clock.jump(if back { now - span } else { now + span });
        }
        self.book.clocks_jumped(back);
        // A running node checks its clock every second.
        (0..self.nodes.len()).try_for_each(|at| self.awake(at))
    }

    /// Heals all faults and runs until everything has ended.
    fn drain(&mut self) -> SimResult {
        self.healed = true;
        self.provider.heal();
        self.note("everything heals".into());
        self.nodes.iter_mut().for_each(|node| node.paused_until = Millis::ZERO);
        for round in 0..300 {
            for at in 0..self.nodes.len() {
                self.start(at)?;
                self.turn(at)?;
                let mut left = 12;
                while left > 0 && !self.node(at).is_idle() {
                    self.turn(at)?;
                    left -= 1;
                }
                self.start(at)?;
            }
            self.unfreeze_all()?;
            let open: Vec<Hold> = self.holds()?.into_iter().filter(|hold| !hold.state.is_final()).collect();
            if open.is_empty() && self.nodes.iter().all(SimNode::is_idle) {
                return Ok(());
            }
            self.people_settle(&open, round)?;
            self.wait_for(&open)?;
        }
        let left: Vec<String> = self
            .holds()?
            .iter()
            .filter(|hold| !hold.state.is_final())
            .map(|hold| format!("{} {:?}", hold.id, hold.state))
            .collect();
        Err(format!("never ended: {}", left.join("; ")))
    }

    /// Waits until something can happen to one of these, with every node awake meanwhile.
    fn wait_for(&mut self, open: &[Hold]) -> SimResult {
        let now = self.nodes.iter().map(|node| node.clock.now()).min().unwrap_or_default();
        let next = open.iter().filter_map(|hold| match &hold.state {
            HoldState::Held { not_before } | HoldState::Ready { not_before } => Some(*not_before),
            HoldState::Executing { claim, .. } => Some(claim.lease_until),
            HoldState::InDoubt { since, .. } => Some(*since + hold.class.settle()),
            _ => None,
        });
        let soon = now + Millis::from_secs(2);
        // Nothing is due on the wall clock: a node still measures something by the time since boot.
        let next = next.filter(|at| *at > now).min().unwrap_or(now + Millis::from_hours(1));
        let next = if self.nodes.iter().all(SimNode::is_idle) { next } else { soon };
        // Idle nodes still check their clocks; nothing else is needed from them here.
        let mut left = next.since(now).as_millis() + 2 * SKEW_MS;
        while left > 0 {
            let piece = left.min(20_000);
            self.pass(Millis::from_millis(piece));
            (0..self.nodes.len()).try_for_each(|at| self.awake(at))?;
            left -= piece;
        }
        Ok(())
    }

    /// Lets real time pass.
    fn pass(&mut self, span: Millis) {
        self.elapsed = self.elapsed + span;
        self.nodes.iter().for_each(|node| node.clock.advance(span));
    }

    /// The audit log must be correct at any time, not only at the end.
    fn check_record(&self) -> SimResult<Option<CheckedHistory>> {
        let Some(store) = self.any_store() else { return Ok(None) };
        let checked = at_once(history::check(&store, &WINDOW));
        checked.map(Some).map_err(|flaw| format!("the record: {flaw}"))
    }

    fn judge(&mut self) -> SimResult<SimReport> {
        let history = self.check_record()?.ok_or("nobody is there at the end")?;
        self.book.judge(&self.provider, &history)?;
        let hash = self.trace.hash.clone().finalize();
        Ok(SimReport {
            hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            taken: history.taken,
            asked: history.asked,
            holds: history.holds.len(),
            effects: self.provider.touched().count(),
        })
    }

    fn holds(&self) -> SimResult<Vec<Hold>> {
        let store = self.any_store().ok_or("nobody is there to ask")?;
        at_once(store.holds(None, 10_000)).map_err(|error| format!("held writes cannot be read: {error}"))
    }

    /// The store of any node that is running.
    fn any_store(&self) -> Option<std::sync::Arc<Store>> {
        self.nodes.iter().find_map(SimNode::store)
    }

    fn note(&mut self, line: String) {
        let line = format!("{:>9} {line}", self.elapsed.as_millis());
        self.trace.hash.update(line.as_bytes());
        self.trace.hash.update(b"\n");
        self.trace.lines.push(line);
    }

    fn any_node(&mut self) -> usize {
        self.below(self.nodes.len())
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).unwrap_or(0)
    }

    /// Returns true once in this many cases.
    fn one_in(&mut self, many: u64) -> bool {
        self.random.below(many) == 0
    }

    #[expect(clippy::indexing_slicing, reason = "places come from `any_node` and from counting the nodes")]
    fn node(&self, at: usize) -> &SimNode {
        &self.nodes[at]
    }

    #[expect(clippy::indexing_slicing, reason = "places come from `any_node` and from counting the nodes")]
    fn node_mut(&mut self, at: usize) -> &mut SimNode {
        &mut self.nodes[at]
    }
}
