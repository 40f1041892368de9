//! A simulated installation: nodes, agents, people and a service, all driven by one seed.
//!
//! Takes a [`Plan`]; gives a [`Report`], or the [`Failure`] with everything needed to see it again.
//! One thread, no real time: each turn moves one party by one step, and a crash, a pause or a jump of
//! the clock can fall between any two steps. Promise: the same plan gives the same trace, to the hash.
//! The nodes here keep the duties a real node must keep around the store; they are written down in
//! `node.rs`, and leaving one out is what the planted bugs do.

mod node;
mod oracle;
mod people;

use std::collections::BTreeMap;
use std::fmt;

use futures_util::FutureExt as _;
use sha2::{Digest as _, Sha256};
use sluice_core::batch::Window;
use sluice_core::hold::diagram::Edge;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{Clock as _, NodeName, Span, Timestamp};
use sluice_store::{Memory, Store};

use crate::clock::ManualClock;
use crate::history::{self, History};
use crate::ids::{SeededIds, SplitMix};
use crate::provider::Provider;
use node::Node;
use oracle::Book;

/// What to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Turns before the world heals.
    pub turns: u32,
    /// A duty the nodes leave out.
    pub bug: Option<Bug>,
}

/// Negative controls: mistakes a node could make around a correct store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// What is in doubt simply goes back to waiting, without a look at the service.
    NaiveRescue,
    /// No reply is taken for "nothing happened".
    RetryOnTimeout,
    /// Every attempt consumes a handle of its own.
    NewHandlePerRetry,
    /// A due write is a due write, however late it is noticed.
    NoGrace,
    /// The wall clock alone says whether an undo window has closed.
    WallClockOnly,
    /// The wall clock alone says whether a service has settled.
    AbsentBeforeSettle,
}

/// What a run that went well has seen.
#[derive(Debug)]
pub struct Report {
    /// SHA-256 over the trace.
    pub hash: String,
    /// Steps of held writes that were taken.
    pub taken: BTreeMap<Edge, u32>,
    /// Steps of questions that were taken.
    pub asked: BTreeMap<Edge, u32>,
    /// Held writes there were.
    pub holds: usize,
    /// Writes that really happened at the service.
    pub effects: usize,
}

/// A promise that was broken.
#[derive(Debug)]
pub struct Failure {
    /// Which plan.
    pub plan: Plan,
    /// Which promise, and by what.
    pub what: String,
    /// What happened, the end of it.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, turns, bug } = self.plan;
        writeln!(f, "seed {seed} ({turns} turns, bug {bug:?}): {}", self.what)?;
        writeln!(f, "again: SLUICE_SEED={seed} cargo test -p sluice-testkit --test sim one_seed -- --nocapture")?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// The batch window of every agent and service.
pub(crate) const WINDOW: Window = Window { limit: 9, span: Span::from_mins(10) };
/// How far a node's clock may be from the others'.
const SKEW_MS: u64 = 900;
/// What the end of a trace shows.
const TAIL: usize = 120;

type Outcome<T = ()> = Result<T, String>;

pub(crate) struct Sim {
    plan: Plan,
    random: SplitMix,
    ids: SeededIds,
    memory: Memory,
    /// Real time, which nobody in the simulation can read.
    elapsed: Span,
    jumps_left: u32,
    nodes: Vec<Node>,
    provider: Provider,
    book: Book,
    trace: Trace,
    healed: bool,
}

#[derive(Default)]
struct Trace {
    hash: Sha256,
    lines: Vec<String>,
}

/// Runs a plan to its end and checks everything.
///
/// # Errors
/// The first promise that was broken.
pub fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut sim = Sim::new(plan);
    // A panic inside the store is a broken promise as well, and its seed must be known.
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.play()));
    let what = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
    };
    match played.unwrap_or_else(|panic| Err(format!("panicked: {}", what(panic)))) {
        Ok(report) => Ok(report),
        Err(what) => {
            let skip = sim.trace.lines.len().saturating_sub(TAIL);
            Err(Failure { plan: *plan, what, trace: sim.trace.lines.split_off(skip) })
        }
    }
}

/// A future of the store in memory is done when it is first asked.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    future.now_or_never().unwrap_or_else(|| panic!("the store in memory never waits"))
}

impl Sim {
    fn new(plan: &Plan) -> Self {
        let mut random = SplitMix::new(plan.seed);
        let memory = Memory::new().unwrap_or_else(|error| panic!("no database in memory: {error}"));
        // One seed in six has a service whose index is slower than we wait for it.
        let slowest = Span::from_secs(if random.below(6) == 0 { 300 } else { oracle::PROMPT_INDEX_S });
        let provider = Provider::new(random.draw(), slowest);
        let count = 1 + random.below(3);
        let start = Timestamp::from_millis(1_730_000_000_000);
        let nodes = (1..=count)
            .map(|number| {
                let name = NodeName::new(format!("gw-{number}")).unwrap_or_else(|error| panic!("{error}"));
                Node::new(name, ManualClock::at(start + Span::from_millis(random.below(SKEW_MS))))
            })
            .collect();
        Self {
            plan: *plan,
            ids: SeededIds::new(random.draw()),
            random,
            memory,
            elapsed: Span::ZERO,
            jumps_left: 2,
            nodes,
            provider,
            book: Book::default(),
            trace: Trace::default(),
            healed: false,
        }
    }

    fn play(&mut self) -> Outcome<Report> {
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
                    self.pass(Span::from_secs(span));
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

    /// Something breaks, or is repaired.
    fn fault(&mut self) -> Outcome {
        let at = self.any_node();
        if let Some(down) = self.nodes.iter().position(Node::is_down)
            && !self.one_in(3)
        {
            return self.start(down);
        }
        match self.random.below(20) {
            0..9 => self.crash(at),
            9..14 => {
                let span = Span::from_secs(20 + self.random.below(300));
                self.note(format!("{} pauses for {} s", self.node(at).name, span.as_secs()));
                let until = self.elapsed + span;
                self.node_mut(at).paused_until = until;
            }
            14..17 => return self.jump(),
            17 => {
                let span = [20, 300, 3 * 3600].get(self.below(3)).copied().unwrap_or(20);
                self.note(format!("everything sleeps for {span} s"));
                self.pass(Span::from_secs(span));
            }
            18 => {
                let span = [20, 300, 3 * 3600, 3 * 86_400].get(self.below(4)).copied().unwrap_or(20);
                (0..self.nodes.len()).for_each(|at| self.crash(at));
                self.note(format!("nobody is there for {span} s"));
                self.pass(Span::from_secs(span));
                for at in 0..self.nodes.len() {
                    self.start(at)?;
                }
            }
            _ => {
                self.crash(at);
                self.note(format!("{} is switched off and on", self.node(at).name));
                self.node(at).clock.restart(Span::ZERO);
            }
        }
        Ok(())
    }

    fn crash(&mut self, at: usize) {
        if self.node_mut(at).crash() {
            self.note(format!("{} dies", self.node(at).name));
        }
    }

    /// All wall clocks are set, together: several nodes stand for several clients of one database
    /// server, whose clock it is.
    fn jump(&mut self) -> Outcome {
        if self.jumps_left == 0 {
            return Ok(());
        }
        self.jumps_left -= 1;
        let span = Span::from_hours(if self.random.below(2) == 0 { 1 } else { 24 });
        let back = self.random.below(2) == 0;
        self.note(format!("all clocks jump {} {} s", if back { "back" } else { "ahead" }, span.as_secs()));
        for node in &self.nodes {
            let now = node.clock.now();
            node.clock.jump(if back { now - span } else { now + span });
        }
        self.book.clocks_jumped(back);
        // A node that runs looks at its clock every second.
        (0..self.nodes.len()).try_for_each(|at| self.awake(at))
    }

    /// Heals everything and lets it come to an end.
    fn drain(&mut self) -> Outcome {
        self.healed = true;
        self.provider.heal();
        self.note("everything heals".into());
        self.nodes.iter_mut().for_each(|node| node.paused_until = Span::ZERO);
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
            if open.is_empty() && self.nodes.iter().all(Node::is_idle) {
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

    /// Waits until something can happen to one of these, with every node awake all the while.
    fn wait_for(&mut self, open: &[Hold]) -> Outcome {
        let now = self.nodes.iter().map(|node| node.clock.now()).min().unwrap_or_default();
        let next = open.iter().filter_map(|hold| match &hold.state {
            HoldState::Held { not_before } | HoldState::Ready { not_before } => Some(*not_before),
            HoldState::Executing { claim, .. } => Some(claim.lease_until),
            HoldState::InDoubt { since, .. } => Some(*since + hold.class.settle()),
            _ => None,
        });
        let soon = now + Span::from_secs(2);
        // Nothing ahead on the wall clock: a node still measures something by the machine's age.
        let next = next.filter(|at| *at > now).min().unwrap_or(now + Span::from_hours(1));
        let next = if self.nodes.iter().all(Node::is_idle) { next } else { soon };
        // Idle nodes still look at their clocks; nothing else of them is needed here.
        let mut left = next.since(now).as_millis() + 2 * SKEW_MS;
        while left > 0 {
            let piece = left.min(20_000);
            self.pass(Span::from_millis(piece));
            (0..self.nodes.len()).try_for_each(|at| self.awake(at))?;
            left -= piece;
        }
        Ok(())
    }

    /// Real time passes.
    fn pass(&mut self, span: Span) {
        self.elapsed = self.elapsed + span;
        self.nodes.iter().for_each(|node| node.clock.advance(span));
    }

    /// The record must be true at any time, not only at the end.
    fn check_record(&self) -> Outcome<Option<History>> {
        let Some(store) = self.any_store() else { return Ok(None) };
        let checked = at_once(history::check(&store, &WINDOW));
        checked.map(Some).map_err(|flaw| format!("the record: {flaw}"))
    }

    fn judge(&mut self) -> Outcome<Report> {
        let history = self.check_record()?.ok_or("nobody is there at the end")?;
        self.book.judge(&self.provider, &history)?;
        let hash = self.trace.hash.clone().finalize();
        Ok(Report {
            hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            taken: history.taken,
            asked: history.asked,
            holds: history.holds.len(),
            effects: self.provider.touched().count(),
        })
    }

    fn holds(&self) -> Outcome<Vec<Hold>> {
        let store = self.any_store().ok_or("nobody is there to ask")?;
        at_once(store.holds(None, 10_000)).map_err(|error| format!("held writes cannot be read: {error}"))
    }

    /// The store of some node that is up.
    fn any_store(&self) -> Option<std::sync::Arc<Store>> {
        self.nodes.iter().find_map(Node::store)
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

    /// A chance of one in so many.
    fn one_in(&mut self, many: u64) -> bool {
        self.random.below(many) == 0
    }

    #[expect(clippy::indexing_slicing, reason = "places come from `any_node` and from counting the nodes")]
    fn node(&self, at: usize) -> &Node {
        &self.nodes[at]
    }

    #[expect(clippy::indexing_slicing, reason = "places come from `any_node` and from counting the nodes")]
    fn node_mut(&mut self, at: usize) -> &mut Node {
        &mut self.nodes[at]
    }
}
