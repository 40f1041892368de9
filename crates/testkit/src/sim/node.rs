//! A simulated node: what it does in one turn, and the duties it keeps around the store.
//!
//! Each of these duties is left out by some planted bug, or was found missing by a failing seed. Recovery and grace
//! come before the first dispatch, and again after any gap in which the node was not awake. The time of a claim is
//! measured by the time since boot, from before the claim, and nothing is sent in its last seconds. A clock that jumps
//! stops dispatch, and conclusions from leases, for the length of a lease; waiting and settling are then measured by
//! the time since boot. A node that has just started concludes nothing from leases, or from uncertain outcomes older
//! than itself, for the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::ids::{MessageId, RollbackId};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{ApprovalId, Clock as _, HoldId, Millis, NodeName, UtcMillis};
use sluice_store::{
    AbandonedClaims, ArmWrite, AttemptOutcome as Ending, ClaimDueWrites, ClaimItem, FinishAttempt, LookupEvidence,
    PolicyRecheck, ResolveDoubt, StateBeforeWrite, Store, StoreError, WriteClaimOutcome,
};

use crate::clock::ManualClock;
use crate::provider::{ProviderLookup, ProviderReply, ProviderRequest};
use crate::sim::{PlantedBug, SimResult, Simulation, at_once};
use crate::test_store::LEASE;

/// Nothing is sent in the last part of a lease.
const MARGIN: Millis = Millis::from_secs(5);
/// A jump of the wall clock that is more than drift.
const STEP_MS: i64 = 5_000;
/// A gap after which a node behaves like a new one.
const GAP: Millis = Millis::from_secs(30);
/// A write with this text crashes every node that prepares it.
const POISON: u64 = 7;
/// Attempts that a node works on at once.
const JOBS: usize = 4;

pub(super) struct SimNode {
    pub name: NodeName,
    pub clock: ManualClock,
    pub paused_until: Millis,
    life: Option<NodeLife>,
}

/// The state that a crash loses.
struct NodeLife {
    store: Arc<Store>,
    opening: NodeStartPhase,
    jobs: Vec<NodeJob>,
    /// The time since boot before which a waiting write must not be touched.
    watch: BTreeMap<(HoldId, UtcMillis), Millis>,
    /// Nothing is sent before this time since boot: the clock jumped.
    suspect_until: Millis,
    /// A write crashed the node.
    struck: bool,
    /// Nothing is concluded from other nodes' leases before this time since boot.
    leases_from: Millis,
    wall: UtcMillis,
    boot: Millis,
}

enum NodeStartPhase {
    Recover,
    Grace,
    Open,
}

/// What an idle node can look for.
enum NodeDuty {
    Release,
    Reconcile,
    TakeUp,
    Expire,
}

/// One attempt or one lookup, with its progress.
enum NodeJob {
    Due(Vec<Hold>),
    Claimed { hold: Box<Hold>, until: Millis },
    Prepared { hold: Box<Hold>, until: Millis, handle: Option<String> },
    Armed { hold: Box<Hold>, until: Millis, permit: Permit },
    Sent { hold: Box<Hold>, reply: ProviderReply, at: Millis },
    Report { hold: Box<Hold>, ending: Ending },
    Doubt(Box<Hold>),
    Looked { hold: Box<Hold>, evidence: LookupEvidence },
}

impl SimNode {
    pub fn new(name: NodeName, clock: ManualClock) -> Self {
        Self { name, clock, paused_until: Millis::ZERO, life: None }
    }

    pub fn is_down(&self) -> bool {
        self.life.is_none()
    }

    pub fn is_idle(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.jobs.is_empty() && matches!(life.opening, NodeStartPhase::Open))
    }

    pub fn store(&self) -> Option<Arc<Store>> {
        self.life.as_ref().map(|life| Arc::clone(&life.store))
    }

    /// Loses the state. Returns whether there was any.
    pub fn crash(&mut self) -> bool {
        self.paused_until = Millis::ZERO;
        self.life.take().is_some()
    }
}

fn signed(span: Millis) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

impl Simulation {
    pub(super) fn start(&mut self, at: usize) -> SimResult {
        if !self.node(at).is_down() {
            return Ok(());
        }
        let (name, clock) = (self.node(at).name.clone(), self.node(at).clock.clone());
        let store = Store::in_memory(&self.memory, name.clone(), Arc::new(clock.clone()));
        let store = store.map_err(|error| format!("{name} does not start: {error}"))?;
        at_once(store.record_start("sim")).map_err(|error| format!("{name} cannot record its start: {error}"))?;
        let (wall, boot) = (clock.now(), clock.since_boot());
        let mut life = NodeLife {
            store: Arc::new(store),
            opening: NodeStartPhase::Recover,
            jobs: Vec::new(),
            watch: BTreeMap::new(),
            suspect_until: Millis::ZERO,
            struck: false,
            leases_from: boot + LEASE,
            wall,
            boot,
        };
        // The wall clock may have been set while the node was down.
        life.measure_doubts()?;
        self.note(format!("{name} starts"));
        self.node_mut(at).life = Some(life);
        Ok(())
    }

    /// Runs one step of one node.
    pub(super) fn turn(&mut self, at: usize) -> SimResult {
        self.with_life(at, |sim, life| {
            let name = life.store.node().clone();
            match life.opening {
                NodeStartPhase::Recover => sim.recover_own(life),
                NodeStartPhase::Grace => sim.grace(life),
                NodeStartPhase::Open if sim.healed => sim.work_through(life),
                NodeStartPhase::Open if life.jobs.len() >= JOBS || (!life.jobs.is_empty() && !sim.one_in(4)) => {
                    let job = life.jobs.swap_remove(sim.below(life.jobs.len()));
                    sim.advance(life, job).map(|next| life.jobs.extend(next))
                }
                NodeStartPhase::Open => {
                    let errand = match sim.random.below(10) {
                        0..5 => NodeDuty::Release,
                        5..8 => NodeDuty::Reconcile,
                        8 => NodeDuty::TakeUp,
                        _ => NodeDuty::Expire,
                    };
                    sim.take_work(life, errand)
                }
            }
            .map_err(|what| format!("{name}: {what}"))
        })
    }

    /// The node checks its clock and does nothing else.
    pub(super) fn awake(&mut self, at: usize) -> SimResult {
        self.with_life(at, |_, _| Ok(()))
    }

    /// A healthy node without obstacles: finishes all its jobs, or does everything there is to do.
    fn work_through(&mut self, life: &mut NodeLife) -> SimResult {
        if !life.jobs.is_empty() {
            for job in std::mem::take(&mut life.jobs) {
                let next = self.advance(life, job)?;
                life.jobs.extend(next);
            }
            return Ok(());
        }
        for errand in [NodeDuty::TakeUp, NodeDuty::Reconcile, NodeDuty::Expire, NodeDuty::Release] {
            self.take_work(life, errand)?;
        }
        Ok(())
    }

    fn with_life(&mut self, at: usize, work: impl FnOnce(&mut Self, &mut NodeLife) -> SimResult) -> SimResult {
        if self.node(at).paused_until > self.elapsed {
            return Ok(());
        }
        let clock = self.node(at).clock.clone();
        let Some(mut life) = self.node_mut(at).life.take() else { return Ok(()) };
        let (wall, boot) = (clock.now(), clock.since_boot());
        self.book.note_awake(self.elapsed, wall);
        let result = life.tick(wall, boot).and_then(|()| work(self, &mut life));
        if life.struck {
            self.note(format!("{} is taken down by a write", life.store.node()));
        }
        self.node_mut(at).life = (!life.struck).then_some(life);
        result
    }

    fn recover_own(&mut self, life: &mut NodeLife) -> SimResult {
        let message = MessageId::mint(&self.ids);
        let moved = at_once(life.store.recover(AbandonedClaims::Own, 3, message))
            .map_err(|error| format!("recover: {error}"))?;
        self.note(format!("{} recovers {moved:?}", life.store.node()));
        self.look_after(life, &moved)?;
        if moved.is_empty() {
            life.opening = NodeStartPhase::Grace;
        }
        Ok(())
    }

    /// Checks what happened to claims that were recovered.
    fn look_after(&mut self, life: &NodeLife, moved: &[HoldId]) -> SimResult {
        for id in moved {
            let hold = at_once(life.store.hold(*id)).map_err(|error| format!("{id} cannot be read: {error}"))?;
            if let Some(hold) = hold {
                self.book.check_take_up(&hold, self.elapsed)?;
            }
        }
        Ok(())
    }

    fn grace(&mut self, life: &mut NodeLife) -> SimResult {
        if self.plan.bug == Some(PlantedBug::NoGrace) {
            life.opening = NodeStartPhase::Open;
            return Ok(());
        }
        let message = MessageId::mint(&self.ids);
        let late = at_once(life.store.apply_grace_rule(4, message)).map_err(|error| format!("overdue: {error}"))?;
        if late.reheld.is_empty() && late.stale.is_empty() {
            life.opening = NodeStartPhase::Open;
        } else {
            late.reheld.iter().for_each(|id| self.book.window_opened(*id, self.elapsed));
            self.note(format!("{} finds late: again {:?}, stale {:?}", life.store.node(), late.reheld, late.stale));
        }
        Ok(())
    }

    /// Looks for work.
    fn take_work(&mut self, life: &mut NodeLife, errand: NodeDuty) -> SimResult {
        let read = |error: StoreError| format!("nothing can be read: {error}");
        let believes = self.plan.bug == Some(PlantedBug::WallClockOnly);
        match errand {
            NodeDuty::Release if believes || life.boot >= life.suspect_until => {
                let limit = 1 + u32::try_from(self.random.below(4)).unwrap_or(0);
                let mut due = at_once(life.store.due_holds(life.wall, limit)).map_err(read)?;
                due.retain(|hold| believes || life.may_touch(hold));
                if !due.is_empty() {
                    life.jobs.push(NodeJob::Due(due));
                }
            }
            NodeDuty::Reconcile => {
                let hasty = self.plan.bug == Some(PlantedBug::AbsentBeforeSettle);
                let now = if hasty { life.wall + EffectClass::Findable.settle() } else { life.wall };
                let doubtful = at_once(life.store.doubtful_holds(now, 2)).map_err(read)?;
                let known = |hold: &Hold| life.jobs.iter().any(|job| job.looks_for(hold));
                let fresh: Vec<NodeJob> = doubtful
                    .into_iter()
                    .filter(|hold| (hasty || life.may_touch(hold)) && !known(hold))
                    .map(|hold| NodeJob::Doubt(Box::new(hold)))
                    .collect();
                life.jobs.extend(fresh);
            }
            NodeDuty::TakeUp if life.boot >= life.leases_from => {
                let message = MessageId::mint(&self.ids);
                let found = at_once(life.store.recover(AbandonedClaims::Expired, 3, message));
                let moved = found.map_err(|error| format!("recover: {error}"))?;
                if !moved.is_empty() {
                    self.note(format!("{} takes up {moved:?}", life.store.node()));
                    self.look_after(life, &moved)?;
                }
            }
            NodeDuty::Expire => {
                let ended = at_once(life.store.expire_approvals(3)).map_err(|error| format!("expire: {error}"))?;
                at_once(life.store.expire_rollbacks(3)).map_err(|error| format!("expire rollbacks: {error}"))?;
                if !ended.is_empty() {
                    self.note(format!("{} ends {ended:?}", life.store.node()));
                }
            }
            NodeDuty::Release | NodeDuty::TakeUp => {}
        }
        Ok(())
    }

    /// Runs one step of one job; gives the jobs that remain.
    fn advance(&mut self, life: &mut NodeLife, job: NodeJob) -> SimResult<Vec<NodeJob>> {
        let one = |job| Ok(vec![job]);
        match job {
            NodeJob::Due(due) => self.claim(life, &due),
            NodeJob::Claimed { hold, until } => {
                if hold.action.arguments().get("text") == Some(&POISON.into()) {
                    life.struck = true;
                    return Ok(Vec::new());
                }
                if self.random.below(25) == 0 {
                    return one(NodeJob::Report { hold, ending: Ending::GivenBack });
                }
                if hold.class != EffectClass::ConsumeOnce || hold.handle.is_some() {
                    return one(NodeJob::Prepared { hold, until, handle: None });
                }
                match self.provider.create_handle() {
                    Some(handle) => one(NodeJob::Prepared { hold, until, handle: Some(handle) }),
                    None => {
                        one(NodeJob::Report { hold, ending: Ending::NotDone { code: "execute.unreachable".into() } })
                    }
                }
            }
            NodeJob::Prepared { hold, until, handle } => self.arm(life, hold, until, handle),
            NodeJob::Armed { hold, until, permit } => self.send(life, hold, until, &permit),
            NodeJob::Sent { hold, reply, at } if life.boot < at => one(NodeJob::Sent { hold, reply, at }),
            NodeJob::Sent { hold, reply, .. } => {
                let unclear = match self.plan.bug {
                    Some(PlantedBug::RetryOnTimeout) => Ending::NotDone { code: "bug.retry_on_timeout".into() },
                    _ => Ending::Unclear,
                };
                let ending = match reply {
                    ProviderReply::Done => {
                        let after = (hold.class == EffectClass::Absolute).then(|| ObjectFingerprint::of(b"after"));
                        let receipt = format!("receipt of {}", hold.id);
                        Ending::Done { receipt, after, service_until: None, result: None }
                    }
                    ProviderReply::Later => Ending::NotDone { code: "execute.later".into() },
                    ProviderReply::Never => Ending::Refused { code: "execute.refused".into() },
                    ProviderReply::Broken | ProviderReply::Silence | ProviderReply::Gone => unclear,
                };
                one(NodeJob::Report { hold, ending })
            }
            NodeJob::Report { hold, ending } => self.report(life, &hold, ending),
            NodeJob::Doubt(hold) => {
                let sight = self.provider.look(&request(&hold, hold.handle.as_deref()), self.elapsed);
                self.note(format!("{} looks for {}: {sight:?}", life.store.node(), hold.id));
                let evidence = match sight {
                    // The planted bug: an uncertain write goes back to waiting, without a lookup.
                    _ if self.plan.bug == Some(PlantedBug::NaiveRescue) => LookupEvidence::Absent,
                    ProviderLookup::There => LookupEvidence::Applied {
                        receipt: format!("found {}", hold.id),
                        result: None,
                        after: None,
                        service_until: None,
                    },
                    ProviderLookup::NotThere => LookupEvidence::Absent,
                    ProviderLookup::Unavailable => LookupEvidence::Inconclusive,
                };
                one(NodeJob::Looked { hold, evidence })
            }
            NodeJob::Looked { hold, evidence } => self.resolve(life, &hold, evidence),
        }
    }

    fn claim(&mut self, life: &NodeLife, due: &[Hold]) -> SimResult<Vec<NodeJob>> {
        let items = due.iter().map(|hold| ClaimItem {
            hold: hold.id,
            version: hold.version,
            recheck: self.recheck(),
            approval: ApprovalId::mint(&self.ids),
            message: MessageId::mint(&self.ids),
        });
        let claims = ClaimDueWrites { items: items.collect(), lease: LEASE, expiry: Millis::from_hours(1) };
        let claimed = at_once(life.store.claim(claims)).map_err(|error| format!("claim: {error}"))?;
        let rows = life.rows()?;
        let mut ours = Vec::new();
        for (before, claimed) in due.iter().zip(claimed) {
            self.note(match &claimed {
                WriteClaimOutcome::Ours(hold) => {
                    format!("{} claims {} (epoch {})", life.store.node(), hold.id, hold.epoch)
                }
                other => format!("{} claims in vain: {other:?}", life.store.node()),
            });
            if let WriteClaimOutcome::Ours(hold) = claimed {
                self.book.check_claim(before, &hold, &rows, self.elapsed)?;
                ours.push(NodeJob::Claimed {
                    hold,
                    until: life.boot + Millis::from_millis(LEASE.as_millis() - MARGIN.as_millis()),
                });
            }
        }
        Ok(ours)
    }

    /// Policy's second judgement.
    fn recheck(&mut self) -> PolicyRecheck {
        match self.random.below(30) {
            0 if !self.healed => PolicyRecheck::Block { code: "policy.blocked".into() },
            1 if !self.healed => {
                let (code, expiry) = ("policy.stricter".into(), Millis::from_mins(30));
                PolicyRecheck::Ask { code, expiry, reasons: Vec::new(), action: None }
            }
            _ => PolicyRecheck::Stands,
        }
    }

    fn arm(
        &mut self,
        life: &NodeLife,
        hold: Box<Hold>,
        until: Millis,
        handle: Option<String>,
    ) -> SimResult<Vec<NodeJob>> {
        if life.boot >= until {
            return Ok(vec![NodeJob::Report { hold, ending: Ending::GivenBack }]);
        }
        let before = (hold.class == EffectClass::Absolute).then(|| StateBeforeWrite {
            id: RollbackId::mint(&self.ids),
            content: b"before".to_vec(),
            print: ObjectFingerprint::of(b"before"),
        });
        let arming = ArmWrite { hold: hold.id, epoch: hold.epoch, wire: hold.action.digest(), handle, before };
        match at_once(life.store.arm(arming)) {
            Ok(permit) => {
                self.note(format!("{} arms {}", life.store.node(), hold.id));
                Ok(vec![NodeJob::Armed { hold, until, permit }])
            }
            Err(StoreError::Frozen { .. }) => Ok(vec![NodeJob::Report { hold, ending: Ending::GivenBack }]),
            Err(StoreError::Fenced) => {
                self.note(format!("{} is fenced from arming {}", life.store.node(), hold.id));
                Ok(Vec::new())
            }
            Err(error) => Err(format!("arm {}: {error}", hold.id)),
        }
    }

    fn send(&mut self, life: &NodeLife, hold: Box<Hold>, until: Millis, permit: &Permit) -> SimResult<Vec<NodeJob>> {
        if life.boot >= until {
            let ending = Ending::NotDone { code: "execute.out_of_time".into() };
            return Ok(vec![NodeJob::Report { hold, ending }]);
        }
        let own = match self.plan.bug {
            Some(PlantedBug::NewHandlePerRetry) if hold.class == EffectClass::ConsumeOnce => {
                self.provider.create_handle()
            }
            _ => None,
        };
        let handle = own.as_deref().or(permit.handle());
        let mut request = request(&hold, handle);
        request.digest = permit.action().digest();
        let happened = self.provider.effects(hold.id).len();
        let (reply, after) = self.provider.perform(&request, self.elapsed);
        self.note(format!("{} sends {} ({}): {reply:?}", life.store.node(), hold.id, hold.class.as_str()));
        if self.provider.effects(hold.id).len() > happened {
            self.book.check_effect(&hold)?;
        }
        Ok(vec![NodeJob::Sent { hold, reply, at: life.boot + after }])
    }

    fn report(&mut self, life: &NodeLife, hold: &Hold, ending: Ending) -> SimResult<Vec<NodeJob>> {
        let message = MessageId::mint(&self.ids);
        let word = format!("{ending:?}");
        match at_once(life.store.finish(FinishAttempt {
            hold: hold.id,
            epoch: hold.epoch,
            outcome: ending,
            service_words: None,
            message,
        })) {
            Ok(after) => {
                self.book.note_report(hold.id);
                self.note(format!("{} reports {} {word}: {}", life.store.node(), hold.id, after.state.word()));
            }
            Err(StoreError::Fenced) => self.note(format!("{} is fenced from reporting {}", life.store.node(), hold.id)),
            Err(error) => return Err(format!("finish {} with {word}: {error}", hold.id)),
        }
        Ok(Vec::new())
    }

    fn resolve(&mut self, life: &mut NodeLife, hold: &Hold, evidence: LookupEvidence) -> SimResult<Vec<NodeJob>> {
        if self.plan.bug == Some(PlantedBug::AbsentBeforeSettle) {
            // The clock jumps ahead a little, at a bad moment, and the node trusts it.
            self.nodes.iter().for_each(|node| node.clock.jump(node.clock.now() + hold.class.settle()));
            self.book.clocks_jumped(true);
            self.book.forget_windows();
        }
        let message = MessageId::mint(&self.ids);
        let resolve = ResolveDoubt { hold: hold.id, version: hold.version, evidence, lookups: 3, message };
        match at_once(life.store.resolve(resolve)) {
            Ok(after) => {
                self.book.note_report(hold.id);
                self.note(format!("{} resolves {}: {}", life.store.node(), hold.id, after.state.word()));
            }
            Err(StoreError::Conflict) => self.note(format!("{} resolves {} too late", life.store.node(), hold.id)),
            Err(error) => return Err(format!("resolve {}: {error}", hold.id)),
        }
        Ok(Vec::new())
    }
}

/// The request for the service, from a held write.
fn request<'a>(hold: &'a Hold, handle: Option<&'a str>) -> ProviderRequest<'a> {
    let (class, digest, object) = (hold.class, hold.action.digest(), hold.object_key.as_deref());
    ProviderRequest { hold: hold.id, class, digest, handle, object }
}

impl NodeJob {
    fn looks_for(&self, hold: &Hold) -> bool {
        matches!(self, Self::Doubt(seen) | Self::Looked { hold: seen, .. } if seen.id == hold.id)
    }
}

impl NodeLife {
    /// Compares the wall clock with the time since boot since the last turn.
    fn tick(&mut self, wall: UtcMillis, boot: Millis) -> SimResult {
        let aged = boot.as_millis() - self.boot.as_millis();
        let step = wall.as_millis() - self.wall.as_millis() - signed(Millis::from_millis(aged));
        (self.wall, self.boot) = (wall, boot);
        if Millis::from_millis(aged) > GAP {
            self.opening = match self.opening {
                NodeStartPhase::Recover => NodeStartPhase::Recover,
                NodeStartPhase::Grace | NodeStartPhase::Open => NodeStartPhase::Grace,
            };
        }
        if step.abs() > STEP_MS {
            (self.suspect_until, self.leases_from) = (boot + LEASE, boot + LEASE);
            self.measure_windows(UtcMillis::from_millis(wall.as_millis() - step))?;
            self.measure_doubts()?;
        }
        Ok(())
    }

    /// The rest of every window before the clock jumped is still left.
    fn measure_windows(&mut self, before: UtcMillis) -> SimResult {
        for hold in self.rows()? {
            let (HoldState::Held { not_before } | HoldState::Ready { not_before }) = hold.state else { continue };
            self.watch.entry((hold.id, not_before)).or_insert(self.boot + not_before.since(before));
        }
        Ok(())
    }

    /// An uncertain write settles from now on: how long it has settled cannot be read from the wall clock.
    fn measure_doubts(&mut self) -> SimResult {
        for hold in self.rows()? {
            let HoldState::InDoubt { since, .. } = hold.state else { continue };
            self.watch.entry((hold.id, since)).or_insert(self.boot + hold.class.settle());
        }
        Ok(())
    }

    fn may_touch(&self, hold: &Hold) -> bool {
        let at = match hold.state {
            HoldState::Held { not_before } | HoldState::Ready { not_before } => not_before,
            HoldState::InDoubt { since, .. } => since,
            _ => return true,
        };
        self.watch.get(&(hold.id, at)).is_none_or(|&until| self.boot >= until)
    }

    fn rows(&self) -> SimResult<Vec<Hold>> {
        at_once(self.store.holds(None, 10_000)).map_err(|error| format!("held writes cannot be read: {error}"))
    }
}
