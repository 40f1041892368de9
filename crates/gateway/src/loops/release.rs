//! Release: sends held writes that are due.
//!
//! One step: finds due writes, gives each to the lane of its service, and starts what the lane gives back, in a task of
//! its own (`claim`); finds writes with an uncertain outcome, and starts the lookups that are due (`lookups`). The step
//! itself reads and writes the database and waits for no service. Promise: nothing leaves while the clock is suspect,
//! before its window has closed by both clocks, or faster than the pace of its service; a service that hangs delays its
//! own writes only, and an agent with many writes only its own. A gateway that slept, with its machine or alone,
//! behaves like a newly started one: writes that came due meanwhile are announced again. Leases and uncertain outcomes
//! are timed by the machine's age, which nobody can set.

mod claim;
mod lookups;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::lane::{LaneTerms, ServiceLane};
use sluice_core::pace::SlowStart;
use sluice_core::timekeeping::{ClockAgreement, ClockWatch};
use sluice_core::{HoldId, Millis, ServiceName, UtcMillis};
use sluice_services::CallError;
use sluice_services::timer::tick;
use sluice_store::{AbandonedClaims, DueWrite, MessageSeverity, OutboxMessage};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;

use self::lookups::LookupScheduler;
use super::announce_late;
use crate::Gateway;
use crate::gateway::{DiskSpace, GatewayPhase};
use crate::rooms::execute;

/// Most abandoned claims that one step takes up.
const PAGE: u32 = 100;
/// Most due writes that one step reads, and most of one agent at one service.
const LOOKED_AT: u32 = 2_000;
const OF_ONE_AGENT: u32 = 300;
/// How often the loop runs without a wake.
const EVERY: Duration = Duration::from_millis(200);
/// A pause of the gateway after which writes leave slowly at first.
const GAP: Millis = Millis::from_secs(30);
/// How long a list of due writes stays valid.
const FRESH: Millis = Millis::from_millis(500);
/// How often waiting writes are counted, to decide whether a queue is too long.
const COUNTED: Millis = Millis::from_secs(1);

/// What the loop remembers from step to step.
#[derive(Debug)]
pub struct ReleaseLoop {
    watch: ClockWatch,
    start: SlowStart,
    /// Writes admitted before this time piled up while the gateway was not running.
    back_since: UtcMillis,
    lanes: HashMap<ServiceName, ServiceLane<DueWrite>>,
    /// When the queue of each service was last read, in time since boot.
    looked_at: HashMap<ServiceName, Millis>,
    /// Writes under way, each in a task of its own that gives whether it was claimed.
    under_way: JoinSet<bool>,
    running: HashMap<Id, (ServiceName, HoldId)>,
    lookups: LookupScheduler,
    /// Writes that were claimed since the count was last read.
    claimed: usize,
    recovered_at: Millis,
    counted_at: Option<Millis>,
    /// The gateway slept, and writes that came due meanwhile have not been announced again yet.
    slept: bool,
    /// Leases of other nodes are not judged before the machine is this old.
    leases_from: Millis,
}

/// Runs the loop, and lets writes under way end within the grace.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut release = ReleaseLoop::new(&gw);
    let mut failing = false;
    while tick(&mut stop, EVERY, gw.due.notified()).await {
        match release.step(&gw).await {
            Ok(_) => failing = false,
            Err(no) if failing => drop(no),
            Err(no) => {
                failing = true;
                tracing::error!(code = no.refusal.code().as_str(), "nothing can be released: {}", no.refusal);
            }
        }
    }
    release.end(gw.config.limits.stop_grace).await;
}

impl ReleaseLoop {
    /// Starts with the clocks as they are.
    #[must_use]
    pub fn new(gw: &Gateway) -> Self {
        let gap = gw.store.last_alive().map_or(Millis::ZERO, |then| gw.now().since(then));
        let boot = gw.clock.since_boot();
        gw.record_awake(boot);
        let start = if gap > GAP { SlowStart::at(boot) } else { SlowStart::none() };
        gw.start_slowly(start);
        Self {
            watch: ClockWatch::start(gw.now(), boot),
            start,
            back_since: gw.now(),
            lanes: HashMap::new(),
            looked_at: HashMap::new(),
            under_way: JoinSet::new(),
            running: HashMap::new(),
            lookups: LookupScheduler::default(),
            claimed: 0,
            recovered_at: Millis::ZERO,
            counted_at: None,
            slept: false,
            leases_from: boot + execute::LEASE,
        }
    }

    /// Starts the writes that are due. Returns how many were started: whether each could be claimed shows in its task.
    ///
    /// # Errors
    /// When the database cannot be read or written.
    pub async fn step(&mut self, gw: &Arc<Gateway>) -> Result<usize, CallError> {
        while let Some(ended) = self.under_way.try_join_next_with_id() {
            self.note(ended);
        }
        self.lookups.gather(gw).await;
        self.look_at_clock(gw).await?;
        self.look_for_gap(gw);
        if gw.phase() != GatewayPhase::Open || gw.clock_is_suspect() || gw.disk_space() == DiskSpace::None {
            return Ok(0);
        }
        if self.slept {
            announce_late(gw).await?;
            self.slept = false;
        }
        self.recover(gw).await?;
        self.count(gw).await?;
        self.start_due_writes(gw).await
    }

    /// Waits until everything under way has ended. Returns how many writes were claimed since the last call.
    pub async fn finish(&mut self) -> usize {
        while let Some(ended) = self.under_way.join_next_with_id().await {
            self.note(ended);
        }
        self.lookups.finish().await;
        std::mem::take(&mut self.claimed)
    }

    /// Waits until every write under way has ended, at most for the grace. Lookups change nothing and are made again.
    async fn end(&mut self, grace: Millis) {
        let left = self.under_way.len();
        if left > 0 {
            tracing::info!("{left} writes are under way and have {grace} to end");
        }
        let ended = timeout(grace.as_duration(), async { while self.under_way.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            let left = self.under_way.len();
            tracing::warn!("{left} writes had not ended after {grace}; they are looked up after the next start");
        }
        self.under_way.abort_all();
        self.lookups.abort();
    }

    fn note(&mut self, ended: Result<(Id, bool), JoinError>) {
        let (id, claimed) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The claim expires, and the write is looked up.
                tracing::error!("the task of a write ended unexpectedly: {error}");
                (error.id(), false)
            }
        };
        self.claimed += usize::from(claimed);
        if let Some((service, hold)) = self.running.remove(&id)
            && let Some(lane) = self.lanes.get_mut(&service)
        {
            lane.end(hold);
        }
    }

    /// Gives due writes to the lanes, and starts the writes that they give back.
    async fn start_due_writes(&mut self, gw: &Arc<Gateway>) -> Result<usize, CallError> {
        let boot = gw.clock.since_boot();
        // Services without a free place are skipped; so are those whose due writes were read a moment ago and still
        // wait: a long queue is not read in full for each write that leaves.
        let passed = |service: &ServiceName, lane: &ServiceLane<DueWrite>| {
            let since = self.looked_at.get(service).map(|at| boot.as_millis().saturating_sub(at.as_millis()));
            let is_fresh = lane.has_waiting() && since.is_some_and(|since| since < FRESH.as_millis());
            is_fresh || !lane.has_place(self.terms(gw, service).places)
        };
        let passed: Vec<ServiceName> =
            self.lanes.iter().filter(|(service, lane)| passed(service, lane)).map(|(name, _)| name.clone()).collect();
        let left = gw.nodes.recently_left_services(boot);
        self.lanes.iter_mut().filter(|(service, _)| left.contains(service)).for_each(|(_, lane)| lane.clear());
        let passed: Vec<ServiceName> = passed.into_iter().chain(left).collect();
        for (service, lane) in self.lanes.iter_mut().filter(|(service, _)| !passed.contains(service)) {
            lane.clear();
            self.looked_at.insert(service.clone(), boot);
        }
        for due in gw.store.due_by_agent(gw.now(), (OF_ONE_AGENT, LOOKED_AT), passed).await? {
            if due.window.is_none_or(|not_before| gw.is_undo_window_closed(due.hold, not_before)) {
                self.looked_at.entry(due.service.clone()).or_insert(boot);
                let lane = self.lanes.entry(due.service.clone()).or_default();
                let is_backlog = due.admitted_at < self.back_since;
                lane.offer(due.agent.clone(), (due.hold, is_backlog), due);
            }
        }
        let services: Vec<ServiceName> =
            self.lanes.iter().filter(|(_, lane)| lane.has_waiting()).map(|(service, _)| service.clone()).collect();
        let mut started = 0;
        for service in services {
            let terms = self.terms(gw, &service);
            while let Some((hold, due)) = self.lanes.get_mut(&service).and_then(|lane| lane.take(boot, &terms)) {
                started += 1;
                let more = self.lanes.get(&service).is_some_and(ServiceLane::has_waiting);
                let task = self.under_way.spawn(carry_out(Arc::clone(gw), due, more));
                self.running.insert(task.id(), (service.clone(), hold));
            }
        }
        if started > 0 {
            tracing::trace!("{started} writes started, {} under way", self.under_way.len());
        }
        self.lanes.retain(|_, lane| lane.under_way() > 0 || lane.has_turns());
        Ok(started)
    }

    /// The terms on which writes of a service leave now.
    fn terms(&self, gw: &Gateway, service: &ServiceName) -> LaneTerms {
        let known = gw.services.for_service(service).ok();
        // A service that this node does not carry out sends nothing.
        let is_local = known.as_ref().is_none_or(|known| known.is_local());
        let most = gw.config.release.at_once as usize;
        let places = known.and_then(|known| known.max_concurrent_writes()).map_or(most, |places| places.clamp(1, most));
        LaneTerms { places, rate: gw.config.release.pace_of(service, is_local), start: self.start }
    }

    /// Counts waiting writes, to decide whether a queue is too long.
    async fn count(&mut self, gw: &Gateway) -> Result<(), CallError> {
        let boot = gw.clock.since_boot();
        let fresh = |at: Millis| boot.as_millis().saturating_sub(at.as_millis()) < COUNTED.as_millis();
        if self.counted_at.is_some_and(fresh) {
            return Ok(());
        }
        self.counted_at = Some(boot);
        gw.queues.replace_counts(gw.store.waiting_writes().await?);
        Ok(())
    }

    /// Stops sending for a while after the clock jumped.
    async fn look_at_clock(&mut self, gw: &Gateway) -> Result<(), CallError> {
        match self.watch.observe(gw.now(), gw.clock.since_boot()) {
            ClockAgreement::Steady => gw.suspect_clock(false),
            ClockAgreement::Suspect { .. } => gw.suspect_clock(true),
            ClockAgreement::Stepped { by, forward } => {
                gw.suspect_clock(true);
                self.leases_from = gw.clock.since_boot() + execute::LEASE;
                self.lookups.distrust();
                let way = if forward { "ahead" } else { "back" };
                tracing::error!("the clock jumped {way} by {by}; nothing is sent for a minute");
                let body = serde_json::json!({"by_ms": by.as_millis(), "forward": forward});
                let id = MessageId::mint(gw.ids.as_ref());
                let node = sluice_core::Actor::Node(gw.store.node().clone());
                let alert =
                    OutboxMessage { id, topic: "gateway.clock".into(), severity: MessageSeverity::Warning, body };
                gw.store.alert(alert, node).await?;
            }
        }
        Ok(())
    }

    /// After a sleep of half a minute the loop starts again like a new one.
    fn look_for_gap(&mut self, gw: &Gateway) {
        let boot = gw.clock.since_boot();
        let asleep = gw.time_asleep(boot);
        gw.record_awake(boot);
        if asleep > GAP {
            tracing::warn!("this gateway was not awake for {} s", asleep.as_secs());
            self.slept = true;
            self.start = SlowStart::at(boot);
            self.back_since = gw.now();
            gw.start_slowly(self.start);
            self.leases_from = boot + execute::LEASE;
        }
    }

    /// Takes up claims that other nodes left, and starts lookups of uncertain outcomes.
    async fn recover(&mut self, gw: &Arc<Gateway>) -> Result<(), CallError> {
        let boot = gw.clock.since_boot();
        if boot.as_millis().saturating_sub(self.recovered_at.as_millis()) < 1_000 {
            return Ok(());
        }
        self.recovered_at = boot;
        if boot >= self.leases_from {
            gw.store.recover(AbandonedClaims::Expired, PAGE, MessageId::mint(gw.ids.as_ref())).await?;
        }
        self.lookups.step(gw).await
    }
}

/// Carries out one write in its own task. Returns whether it was claimed.
async fn carry_out(gw: Arc<Gateway>, due: DueWrite, more: bool) -> bool {
    let claimed = match claim::release(&gw, &due).await {
        Ok(claimed) => claimed,
        Err(no) => {
            let (id, code) = (due.hold, no.refusal.code().as_str());
            tracing::error!(hold.id = %id, code, "{id} cannot be released: {}", no.refusal);
            false
        }
    };
    if more {
        // Its place is free for the next write of this service.
        gw.due.notify_one();
    }
    claimed
}

/// When a waiting write may leave.
#[must_use]
pub fn due_at(hold: &Hold) -> Option<UtcMillis> {
    match hold.state {
        HoldState::Held { not_before } | HoldState::Ready { not_before } => Some(not_before),
        _ => None,
    }
}
