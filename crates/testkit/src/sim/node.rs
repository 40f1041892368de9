//! A node: what it does in one turn, and the duties it keeps around the store.
//!
//! The duties, each of them left out by some planted bug or found missing by a failing seed:
//! recovery and grace come before the first dispatch, and again after any gap in which the node was
//! not awake; a claim's time is measured by the machine's age from before the claim, and nothing is
//! sent in its last seconds; a clock that steps stops dispatch and conclusions from leases for the
//! length of a lease, and whatever waits or settles is measured on by the machine's age; a node that
//! has just started concludes nothing from leases, or from doubts older than itself, for as long.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::ids::{MessageId, RollbackId};
use sluice_core::rollback::Fingerprint;
use sluice_core::{ApprovalId, Clock as _, HoldId, NodeName, Span, Timestamp};
use sluice_store::{
    Abandoned, Arming, Before, ClaimItem, Claimed, Claims, Evidence, Finish, Outcome as Ending, Recheck, Resolve,
    Store, StoreError,
};

use crate::clock::ManualClock;
use crate::provider::{Reply, Request, Sight};
use crate::sim::{Bug, Outcome, Sim, at_once};
use crate::world::LEASE;

/// Nothing is sent in the last part of a lease.
const MARGIN: Span = Span::from_secs(5);
/// A step of the wall clock that is more than drift.
const STEP_MS: i64 = 5_000;
/// A gap after which a node is as good as new.
const GAP: Span = Span::from_secs(30);
/// A write with this text takes down every node that prepares it.
const POISON: u64 = 7;
/// Attempts a node works on at once.
const JOBS: usize = 4;

pub(super) struct Node {
    pub name: NodeName,
    pub clock: ManualClock,
    pub paused_until: Span,
    life: Option<Life>,
}

/// What a crash forgets.
struct Life {
    store: Arc<Store>,
    opening: Opening,
    jobs: Vec<Job>,
    /// The machine's age before which something that waits until then must not be touched.
    watch: BTreeMap<(HoldId, Timestamp), Span>,
    /// Nothing is sent before the machine is this old: the clock stepped.
    suspect_until: Span,
    /// A write took the node down with it.
    struck: bool,
    /// Nothing is concluded from others' leases before the machine is this old.
    leases_from: Span,
    wall: Timestamp,
    boot: Span,
}

enum Opening {
    Recover,
    Grace,
    Open,
}

/// What a node can look for when it has nothing in hand.
enum Errand {
    Release,
    Reconcile,
    TakeUp,
    Expire,
}

/// One attempt or one lookup, and how far it has come.
enum Job {
    Due(Vec<Hold>),
    Claimed { hold: Box<Hold>, until: Span },
    Prepared { hold: Box<Hold>, until: Span, handle: Option<String> },
    Armed { hold: Box<Hold>, until: Span, permit: Permit },
    Sent { hold: Box<Hold>, reply: Reply, at: Span },
    Report { hold: Box<Hold>, ending: Ending },
    Doubt(Box<Hold>),
    Looked { hold: Box<Hold>, evidence: Evidence },
}

impl Node {
    pub fn new(name: NodeName, clock: ManualClock) -> Self {
        Self { name, clock, paused_until: Span::ZERO, life: None }
    }

    pub fn is_down(&self) -> bool {
        self.life.is_none()
    }

    pub fn is_idle(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.jobs.is_empty() && matches!(life.opening, Opening::Open))
    }

    pub fn store(&self) -> Option<Arc<Store>> {
        self.life.as_ref().map(|life| Arc::clone(&life.store))
    }

    /// Forgets everything. Says whether there was anything to forget.
    pub fn crash(&mut self) -> bool {
        self.paused_until = Span::ZERO;
        self.life.take().is_some()
    }
}

fn signed(span: Span) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

impl Sim {
    pub(super) fn start(&mut self, at: usize) -> Outcome {
        if !self.node(at).is_down() {
            return Ok(());
        }
        let (name, clock) = (self.node(at).name.clone(), self.node(at).clock.clone());
        let store = Store::in_memory(&self.memory, name.clone(), Arc::new(clock.clone()));
        let store = store.map_err(|error| format!("{name} does not start: {error}"))?;
        at_once(store.started("sim")).map_err(|error| format!("{name} cannot record its start: {error}"))?;
        let (wall, boot) = (clock.now(), clock.since_boot());
        let mut life = Life {
            store: Arc::new(store),
            opening: Opening::Recover,
            jobs: Vec::new(),
            watch: BTreeMap::new(),
            suspect_until: Span::ZERO,
            struck: false,
            leases_from: boot + LEASE,
            wall,
            boot,
        };
        // The wall clock may have been set while nobody looked.
        life.measure_doubts()?;
        self.note(format!("{name} starts"));
        self.node_mut(at).life = Some(life);
        Ok(())
    }

    /// One step of one node.
    pub(super) fn turn(&mut self, at: usize) -> Outcome {
        self.with_life(at, |sim, life| {
            let name = life.store.node().clone();
            match life.opening {
                Opening::Recover => sim.recover_own(life),
                Opening::Grace => sim.grace(life),
                Opening::Open if sim.healed => sim.work_through(life),
                Opening::Open if life.jobs.len() >= JOBS || (!life.jobs.is_empty() && !sim.one_in(4)) => {
                    let job = life.jobs.swap_remove(sim.below(life.jobs.len()));
                    sim.advance(life, job).map(|next| life.jobs.extend(next))
                }
                Opening::Open => {
                    let errand = match sim.random.below(10) {
                        0..5 => Errand::Release,
                        5..8 => Errand::Reconcile,
                        8 => Errand::TakeUp,
                        _ => Errand::Expire,
                    };
                    sim.take_work(life, errand)
                }
            }
            .map_err(|what| format!("{name}: {what}"))
        })
    }

    /// A node looks at its clock and does nothing else.
    pub(super) fn awake(&mut self, at: usize) -> Outcome {
        self.with_life(at, |_, _| Ok(()))
    }

    /// A healthy node with nothing in its way: everything it has in hand, or everything there is.
    fn work_through(&mut self, life: &mut Life) -> Outcome {
        if !life.jobs.is_empty() {
            for job in std::mem::take(&mut life.jobs) {
                let next = self.advance(life, job)?;
                life.jobs.extend(next);
            }
            return Ok(());
        }
        for errand in [Errand::TakeUp, Errand::Reconcile, Errand::Expire, Errand::Release] {
            self.take_work(life, errand)?;
        }
        Ok(())
    }

    fn with_life(&mut self, at: usize, work: impl FnOnce(&mut Self, &mut Life) -> Outcome) -> Outcome {
        if self.node(at).paused_until > self.elapsed {
            return Ok(());
        }
        let clock = self.node(at).clock.clone();
        let Some(mut life) = self.node_mut(at).life.take() else { return Ok(()) };
        let (wall, boot) = (clock.now(), clock.since_boot());
        self.book.someone_awake(self.elapsed, wall);
        let result = life.tick(wall, boot).and_then(|()| work(self, &mut life));
        if life.struck {
            self.note(format!("{} is taken down by a write", life.store.node()));
        }
        self.node_mut(at).life = (!life.struck).then_some(life);
        result
    }

    fn recover_own(&mut self, life: &mut Life) -> Outcome {
        let message = MessageId::mint(&self.ids);
        let moved =
            at_once(life.store.recover(Abandoned::Own, 3, message)).map_err(|error| format!("recover: {error}"))?;
        self.note(format!("{} recovers {moved:?}", life.store.node()));
        self.look_after(life, &moved)?;
        if moved.is_empty() {
            life.opening = Opening::Grace;
        }
        Ok(())
    }

    /// Looks at what became of claims that were taken up.
    fn look_after(&mut self, life: &Life, moved: &[HoldId]) -> Outcome {
        for id in moved {
            let hold = at_once(life.store.hold(*id)).map_err(|error| format!("{id} cannot be read: {error}"))?;
            if let Some(hold) = hold {
                self.book.taken_up(&hold, self.elapsed)?;
            }
        }
        Ok(())
    }

    fn grace(&mut self, life: &mut Life) -> Outcome {
        if self.plan.bug == Some(Bug::NoGrace) {
            life.opening = Opening::Open;
            return Ok(());
        }
        let message = MessageId::mint(&self.ids);
        let late = at_once(life.store.overdue(4, message)).map_err(|error| format!("overdue: {error}"))?;
        if late.reheld.is_empty() && late.stale.is_empty() {
            life.opening = Opening::Open;
        } else {
            late.reheld.iter().for_each(|id| self.book.window_opened(*id, self.elapsed));
            self.note(format!("{} finds late: again {:?}, stale {:?}", life.store.node(), late.reheld, late.stale));
        }
        Ok(())
    }

    /// Looks for something to do.
    fn take_work(&mut self, life: &mut Life, errand: Errand) -> Outcome {
        let read = |error: StoreError| format!("nothing can be read: {error}");
        let believes = self.plan.bug == Some(Bug::WallClockOnly);
        match errand {
            Errand::Release if believes || life.boot >= life.suspect_until => {
                let limit = 1 + u32::try_from(self.random.below(4)).unwrap_or(0);
                let mut due = at_once(life.store.due(life.wall, limit)).map_err(read)?;
                due.retain(|hold| believes || life.may_touch(hold));
                if !due.is_empty() {
                    life.jobs.push(Job::Due(due));
                }
            }
            Errand::Reconcile => {
                let hasty = self.plan.bug == Some(Bug::AbsentBeforeSettle);
                let now = if hasty { life.wall + EffectClass::Findable.settle() } else { life.wall };
                let doubtful = at_once(life.store.doubtful(now, 2)).map_err(read)?;
                let known = |hold: &Hold| life.jobs.iter().any(|job| job.looks_for(hold));
                let fresh: Vec<Job> = doubtful
                    .into_iter()
                    .filter(|hold| (hasty || life.may_touch(hold)) && !known(hold))
                    .map(|hold| Job::Doubt(Box::new(hold)))
                    .collect();
                life.jobs.extend(fresh);
            }
            Errand::TakeUp if life.boot >= life.leases_from => {
                let message = MessageId::mint(&self.ids);
                let found = at_once(life.store.recover(Abandoned::Expired, 3, message));
                let moved = found.map_err(|error| format!("recover: {error}"))?;
                if !moved.is_empty() {
                    self.note(format!("{} takes up {moved:?}", life.store.node()));
                    self.look_after(life, &moved)?;
                }
            }
            Errand::Expire => {
                let ended = at_once(life.store.expire_approvals(3)).map_err(|error| format!("expire: {error}"))?;
                at_once(life.store.expire_rollbacks(3)).map_err(|error| format!("expire rollbacks: {error}"))?;
                if !ended.is_empty() {
                    self.note(format!("{} ends {ended:?}", life.store.node()));
                }
            }
            Errand::Release | Errand::TakeUp => {}
        }
        Ok(())
    }

    /// One step of one job; what is left of it.
    fn advance(&mut self, life: &mut Life, job: Job) -> Outcome<Vec<Job>> {
        let one = |job| Ok(vec![job]);
        match job {
            Job::Due(due) => self.claim(life, &due),
            Job::Claimed { hold, until } => {
                if hold.action.arguments().get("text") == Some(&POISON.into()) {
                    life.struck = true;
                    return Ok(Vec::new());
                }
                if self.random.below(25) == 0 {
                    return one(Job::Report { hold, ending: Ending::GivenBack });
                }
                if hold.class != EffectClass::ConsumeOnce || hold.handle.is_some() {
                    return one(Job::Prepared { hold, until, handle: None });
                }
                match self.provider.create_handle() {
                    Some(handle) => one(Job::Prepared { hold, until, handle: Some(handle) }),
                    None => one(Job::Report { hold, ending: Ending::NotDone { code: "execute.unreachable".into() } }),
                }
            }
            Job::Prepared { hold, until, handle } => self.arm(life, hold, until, handle),
            Job::Armed { hold, until, permit } => self.send(life, hold, until, &permit),
            Job::Sent { hold, reply, at } if life.boot < at => one(Job::Sent { hold, reply, at }),
            Job::Sent { hold, reply, .. } => {
                let unclear = match self.plan.bug {
                    Some(Bug::RetryOnTimeout) => Ending::NotDone { code: "bug.retry_on_timeout".into() },
                    _ => Ending::Unclear,
                };
                let ending = match reply {
                    Reply::Done => {
                        let after = (hold.class == EffectClass::Absolute).then(|| Fingerprint::of(b"after"));
                        let receipt = format!("receipt of {}", hold.id);
                        Ending::Done { receipt, after, service_until: None, result: None }
                    }
                    Reply::Later => Ending::NotDone { code: "execute.later".into() },
                    Reply::Never => Ending::Refused { code: "execute.refused".into() },
                    Reply::Broken | Reply::Silence | Reply::Gone => unclear,
                };
                one(Job::Report { hold, ending })
            }
            Job::Report { hold, ending } => self.report(life, &hold, ending),
            Job::Doubt(hold) => {
                let sight = self.provider.look(&request(&hold, hold.handle.as_deref()), self.elapsed);
                self.note(format!("{} looks for {}: {sight:?}", life.store.node(), hold.id));
                let evidence = match sight {
                    // The planted bug: whatever is in doubt goes back to waiting, without a look.
                    _ if self.plan.bug == Some(Bug::NaiveRescue) => Evidence::Absent,
                    Sight::There => Evidence::Applied {
                        receipt: format!("found {}", hold.id),
                        result: None,
                        after: None,
                        service_until: None,
                    },
                    Sight::NotThere => Evidence::Absent,
                    Sight::Unavailable => Evidence::Inconclusive,
                };
                one(Job::Looked { hold, evidence })
            }
            Job::Looked { hold, evidence } => self.resolve(life, &hold, evidence),
        }
    }

    fn claim(&mut self, life: &Life, due: &[Hold]) -> Outcome<Vec<Job>> {
        let items = due.iter().map(|hold| ClaimItem {
            hold: hold.id,
            version: hold.version,
            recheck: self.recheck(),
            approval: ApprovalId::mint(&self.ids),
            message: MessageId::mint(&self.ids),
        });
        let claims = Claims { items: items.collect(), lease: LEASE, expiry: Span::from_hours(1) };
        let claimed = at_once(life.store.claim(claims)).map_err(|error| format!("claim: {error}"))?;
        let rows = life.rows()?;
        let mut ours = Vec::new();
        for (before, claimed) in due.iter().zip(claimed) {
            self.note(match &claimed {
                Claimed::Ours(hold) => format!("{} claims {} (epoch {})", life.store.node(), hold.id, hold.epoch),
                other => format!("{} claims in vain: {other:?}", life.store.node()),
            });
            if let Claimed::Ours(hold) = claimed {
                self.book.claimed(before, &hold, &rows, self.elapsed)?;
                ours.push(Job::Claimed {
                    hold,
                    until: life.boot + Span::from_millis(LEASE.as_millis() - MARGIN.as_millis()),
                });
            }
        }
        Ok(ours)
    }

    /// Policy's second look.
    fn recheck(&mut self) -> Recheck {
        match self.random.below(30) {
            0 if !self.healed => Recheck::Block { code: "policy.blocked".into() },
            1 if !self.healed => {
                let (code, expiry) = ("policy.stricter".into(), Span::from_mins(30));
                Recheck::Ask { code, expiry, reasons: Vec::new(), action: None }
            }
            _ => Recheck::Stands,
        }
    }

    fn arm(&mut self, life: &Life, hold: Box<Hold>, until: Span, handle: Option<String>) -> Outcome<Vec<Job>> {
        if life.boot >= until {
            return Ok(vec![Job::Report { hold, ending: Ending::GivenBack }]);
        }
        let before = (hold.class == EffectClass::Absolute).then(|| Before {
            id: RollbackId::mint(&self.ids),
            content: b"before".to_vec(),
            print: Fingerprint::of(b"before"),
        });
        let arming = Arming { hold: hold.id, epoch: hold.epoch, wire: hold.action.digest(), handle, before };
        match at_once(life.store.arm(arming)) {
            Ok(permit) => {
                self.note(format!("{} arms {}", life.store.node(), hold.id));
                Ok(vec![Job::Armed { hold, until, permit }])
            }
            Err(StoreError::Frozen { .. }) => Ok(vec![Job::Report { hold, ending: Ending::GivenBack }]),
            Err(StoreError::Fenced) => {
                self.note(format!("{} is fenced from arming {}", life.store.node(), hold.id));
                Ok(Vec::new())
            }
            Err(error) => Err(format!("arm {}: {error}", hold.id)),
        }
    }

    fn send(&mut self, life: &Life, hold: Box<Hold>, until: Span, permit: &Permit) -> Outcome<Vec<Job>> {
        if life.boot >= until {
            let ending = Ending::NotDone { code: "execute.out_of_time".into() };
            return Ok(vec![Job::Report { hold, ending }]);
        }
        let own = match self.plan.bug {
            Some(Bug::NewHandlePerRetry) if hold.class == EffectClass::ConsumeOnce => self.provider.create_handle(),
            _ => None,
        };
        let handle = own.as_deref().or(permit.handle());
        let mut request = request(&hold, handle);
        request.digest = permit.action().digest();
        let happened = self.provider.effects(hold.id).len();
        let (reply, after) = self.provider.perform(&request, self.elapsed);
        self.note(format!("{} sends {} ({}): {reply:?}", life.store.node(), hold.id, hold.class.as_str()));
        if self.provider.effects(hold.id).len() > happened {
            self.book.happened(&hold)?;
        }
        Ok(vec![Job::Sent { hold, reply, at: life.boot + after }])
    }

    fn report(&mut self, life: &Life, hold: &Hold, ending: Ending) -> Outcome<Vec<Job>> {
        let message = MessageId::mint(&self.ids);
        let word = format!("{ending:?}");
        match at_once(life.store.finish(Finish {
            hold: hold.id,
            epoch: hold.epoch,
            outcome: ending,
            service_words: None,
            message,
        })) {
            Ok(after) => {
                self.book.reported(hold.id);
                self.note(format!("{} reports {} {word}: {}", life.store.node(), hold.id, after.state.word()));
            }
            Err(StoreError::Fenced) => self.note(format!("{} is fenced from reporting {}", life.store.node(), hold.id)),
            Err(error) => return Err(format!("finish {} with {word}: {error}", hold.id)),
        }
        Ok(Vec::new())
    }

    fn resolve(&mut self, life: &mut Life, hold: &Hold, evidence: Evidence) -> Outcome<Vec<Job>> {
        if self.plan.bug == Some(Bug::AbsentBeforeSettle) {
            // The clock is a little ahead, at a bad moment, and the node believes it.
            self.nodes.iter().for_each(|node| node.clock.jump(node.clock.now() + hold.class.settle()));
            self.book.clocks_jumped(true);
            self.book.forget_windows();
        }
        let message = MessageId::mint(&self.ids);
        let resolve = Resolve { hold: hold.id, version: hold.version, evidence, lookups: 3, message };
        match at_once(life.store.resolve(resolve)) {
            Ok(after) => {
                self.book.reported(hold.id);
                self.note(format!("{} resolves {}: {}", life.store.node(), hold.id, after.state.word()));
            }
            Err(StoreError::Conflict) => self.note(format!("{} resolves {} too late", life.store.node(), hold.id)),
            Err(error) => return Err(format!("resolve {}: {error}", hold.id)),
        }
        Ok(Vec::new())
    }
}

/// What goes to the service for a held write.
fn request<'a>(hold: &'a Hold, handle: Option<&'a str>) -> Request<'a> {
    let (class, digest, object) = (hold.class, hold.action.digest(), hold.object_key.as_deref());
    Request { hold: hold.id, class, digest, handle, object }
}

impl Job {
    fn looks_for(&self, hold: &Hold) -> bool {
        matches!(self, Self::Doubt(seen) | Self::Looked { hold: seen, .. } if seen.id == hold.id)
    }
}

impl Life {
    /// Compares the wall clock with the machine's age since the last turn.
    fn tick(&mut self, wall: Timestamp, boot: Span) -> Outcome {
        let aged = boot.as_millis() - self.boot.as_millis();
        let step = wall.as_millis() - self.wall.as_millis() - signed(Span::from_millis(aged));
        (self.wall, self.boot) = (wall, boot);
        if Span::from_millis(aged) > GAP {
            self.opening = match self.opening {
                Opening::Recover => Opening::Recover,
                Opening::Grace | Opening::Open => Opening::Grace,
            };
        }
        if step.abs() > STEP_MS {
            (self.suspect_until, self.leases_from) = (boot + LEASE, boot + LEASE);
            self.measure_windows(Timestamp::from_millis(wall.as_millis() - step))?;
            self.measure_doubts()?;
        }
        Ok(())
    }

    /// What was left of every window before the clock stepped is still left.
    fn measure_windows(&mut self, before: Timestamp) -> Outcome {
        for hold in self.rows()? {
            let (HoldState::Held { not_before } | HoldState::Ready { not_before }) = hold.state else { continue };
            self.watch.entry((hold.id, not_before)).or_insert(self.boot + not_before.since(before));
        }
        Ok(())
    }

    /// A doubt settles from now on: how long it has done so cannot be told from the wall clock.
    fn measure_doubts(&mut self) -> Outcome {
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

    fn rows(&self) -> Outcome<Vec<Hold>> {
        at_once(self.store.holds(None, 10_000)).map_err(|error| format!("held writes cannot be read: {error}"))
    }
}
