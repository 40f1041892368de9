//! Release: what is due leaves.
//!
//! One step: look for due writes, ask policy about each a second time, claim what stands, carry it out.
//! Promise: nothing leaves while the clock is suspect, before its window has closed by both clocks, or
//! faster than the pace; a freeze, a stricter rule or a lapsed yes stops it at the last moment. A gateway that
//! slept, with its machine or alone, is as good as newly started: what came due meanwhile is announced again.
//! Leases and doubts are measured by the machine's age, which nobody can set.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::approval::Subject;
use sluice_core::approval::reason::AskReason;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::timekeeping::{Reading, Watch};
use sluice_core::{Action, ApprovalId, HoldId, ServiceName, Span, Tier, Timestamp};
use sluice_store::{Abandoned, ClaimItem, Claimed, Claims, Message, Recheck, Severity};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{announce_late, tick};
use crate::gateway::{Phase, Room};
use crate::rooms::{execute, policy};
use crate::{Gateway, No};

/// Most writes claimed in one step.
const PAGE: u32 = 100;
/// Most writes under way at once.
const AT_ONCE: usize = 64;
/// How often it looks by itself.
const EVERY: Duration = Duration::from_millis(200);
/// A gap after which writes leave slowly at first.
const GAP: Span = Span::from_secs(30);
/// How long a pace lasts before it doubles.
const DOUBLES: Span = Span::from_secs(30);
/// Writes per second and service at full pace.
const FULL_PACE: u32 = 50;
/// After everything: every doubt there is has settled by then.
const EVER: Timestamp = Timestamp::from_millis(i64::MAX);
/// Most doubts that are measured anew.
const ALL_DOUBTS: u32 = 10_000;

/// What the loop remembers from step to step.
#[derive(Debug)]
pub struct Release {
    watch: Watch,
    pace: Pace,
    under_way: JoinSet<()>,
    recovered_at: Span,
    /// It slept, and what came due meanwhile has not been announced again yet.
    slept: bool,
    /// Nothing is concluded from others' leases before the machine is this old.
    leases_from: Span,
    /// Doubts that are older than this process or than a jump of the clock: how long they have settled cannot be told
    /// from the wall clock, so they settle once more.
    unsettled: Option<HashMap<(HoldId, Timestamp), Span>>,
}

/// How fast writes leave, per service: slowly after a gap, then faster.
#[derive(Debug)]
struct Pace {
    /// Since when this gateway has been at it, in time since boot; nothing if there was no gap.
    slow_since: Option<Span>,
    left: HashMap<ServiceName, (Span, u32)>,
}

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut release = Release::new(&gw);
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
    release.finish().await;
}

impl Release {
    /// Starts with the clocks as they are.
    #[must_use]
    pub fn new(gw: &Gateway) -> Self {
        let gap = gw.store.last_alive().map_or(Span::ZERO, |then| gw.now().since(then));
        let boot = gw.clock.since_boot();
        gw.awake(boot);
        Self {
            watch: Watch::start(gw.now(), boot),
            pace: Pace { slow_since: (gap > GAP).then_some(boot), left: HashMap::new() },
            under_way: JoinSet::new(),
            recovered_at: Span::ZERO,
            slept: false,
            leases_from: boot + execute::LEASE,
            unsettled: None,
        }
    }

    /// Lets go what is due. Gives how many writes were claimed.
    ///
    /// # Errors
    /// When the database cannot be read or written.
    pub async fn step(&mut self, gw: &Arc<Gateway>) -> Result<usize, No> {
        while self.under_way.try_join_next().is_some() {}
        self.look_at_clock(gw).await?;
        self.look_for_gap(gw);
        if gw.phase() != Phase::Open || gw.clock_is_suspect() || gw.room() == Room::None {
            return Ok(0);
        }
        if self.slept {
            announce_late(gw).await?;
            self.slept = false;
        }
        self.recover(gw).await?;
        let mut started = 0;
        // Services whose pace is used up: what they have due must not keep others from their turn.
        let mut waiting: Vec<ServiceName> = Vec::new();
        loop {
            let free = AT_ONCE.saturating_sub(self.under_way.len());
            let limit = u32::try_from(free).unwrap_or(0).min(PAGE);
            if limit == 0 {
                break;
            }
            let due = gw.store.due_except(gw.now(), limit, waiting.clone()).await?;
            let full_page = due.len() >= limit as usize;
            let already_waiting = waiting.len();
            let mut items = Vec::with_capacity(due.len());
            for hold in due {
                if !is_closed(gw, &hold) {
                    continue;
                }
                if self.pace.allows(&hold.service, gw.clock.since_boot()) {
                    items.push(item(gw, &hold).await?);
                } else if !waiting.contains(&hold.service) {
                    waiting.push(hold.service);
                }
            }
            let mut moved = waiting.len() > already_waiting;
            // Taken before the claim: the lease has not begun earlier than this.
            let until = execute::until(gw);
            let claims = Claims { items, lease: execute::LEASE, expiry: gw.config.approvals.expiry };
            for claimed in gw.store.claim(claims).await? {
                match claimed {
                    Claimed::Ours(hold) => {
                        started += 1;
                        moved = true;
                        let gw = Arc::clone(gw);
                        self.under_way.spawn(async move { execute::run(&gw, *hold, until).await });
                    }
                    Claimed::Asked(hold, _) | Claimed::Blocked(hold) => {
                        moved = true;
                        gw.moved(hold);
                    }
                    Claimed::Lost(_) | Claimed::Frozen(_) => {}
                }
            }
            // The next look would find the same again.
            if !full_page || !moved {
                break;
            }
        }
        Ok(started)
    }

    /// Waits until everything under way has ended.
    pub async fn finish(&mut self) {
        while self.under_way.join_next().await.is_some() {}
    }

    /// Nothing is sent for a while after a jump of the clock.
    async fn look_at_clock(&mut self, gw: &Gateway) -> Result<(), No> {
        match self.watch.look(gw.now(), gw.clock.since_boot()) {
            Reading::Steady => gw.suspect_clock(false),
            Reading::Suspect { .. } => gw.suspect_clock(true),
            Reading::Stepped { by, forward } => {
                gw.suspect_clock(true);
                self.leases_from = gw.clock.since_boot() + execute::LEASE;
                self.unsettled = None;
                let way = if forward { "ahead" } else { "back" };
                tracing::error!("the clock jumped {way} by {by}; nothing is sent for a minute");
                let body = serde_json::json!({"by_ms": by.as_millis(), "forward": forward});
                let id = MessageId::mint(gw.ids.as_ref());
                let node = sluice_core::Actor::Node(gw.store.node().clone());
                let alert = Message { id, topic: "gateway.clock".into(), severity: Severity::Warning, body };
                gw.store.alert(alert, node).await?;
            }
        }
        Ok(())
    }

    /// After a sleep of half a minute the loop is where a newly started one is.
    fn look_for_gap(&mut self, gw: &Gateway) {
        let boot = gw.clock.since_boot();
        let asleep = gw.slept(boot);
        gw.awake(boot);
        if asleep > GAP {
            tracing::warn!("this gateway was not awake for {} s", asleep.as_secs());
            self.slept = true;
            self.pace = Pace { slow_since: Some(boot), left: HashMap::new() };
            self.leases_from = boot + execute::LEASE;
        }
    }

    /// Takes up what other nodes left, and looks up what is unclear.
    async fn recover(&mut self, gw: &Arc<Gateway>) -> Result<(), No> {
        let boot = gw.clock.since_boot();
        if boot.as_millis().saturating_sub(self.recovered_at.as_millis()) < 1_000 {
            return Ok(());
        }
        self.recovered_at = boot;
        if boot >= self.leases_from {
            gw.store.recover(Abandoned::Expired, PAGE, MessageId::mint(gw.ids.as_ref())).await?;
        }
        if self.unsettled.is_none() {
            let all = gw.store.doubtful(EVER, ALL_DOUBTS).await?;
            let settles = all.into_iter().filter_map(|hold| Some((doubt_of(&hold)?, boot + hold.class.settle())));
            self.unsettled = Some(settles.collect());
        }
        for hold in gw.store.doubtful(gw.now(), PAGE).await? {
            let unsettled = self.unsettled.get_or_insert_default();
            if doubt_of(&hold).and_then(|doubt| unsettled.get(&doubt)).is_none_or(|until| boot >= *until) {
                execute::look_up(gw, &hold).await?;
            }
        }
        Ok(())
    }
}

/// One doubt of one write.
fn doubt_of(hold: &Hold) -> Option<(HoldId, Timestamp)> {
    match hold.state {
        HoldState::InDoubt { since, .. } => Some((hold.id, since)),
        _ => None,
    }
}

/// Whether the undo window has closed by both clocks.
fn is_closed(gw: &Gateway, hold: &Hold) -> bool {
    match hold.state {
        HoldState::Held { not_before } => gw.window_closed(hold.id, not_before),
        // An operator closed it, or it has been tried before.
        _ => true,
    }
}

/// Policy's second look, as the store takes it.
async fn item(gw: &Gateway, hold: &Hold) -> Result<ClaimItem, No> {
    if hold.reverses.is_none() && !gw.keyring.knows(hold.agent()) {
        // It may have been added on another node a moment ago.
        gw.keyring.refresh(&gw.store).await?;
    }
    // Taking something back was asked for by a person, who is not subject to the rules for agents.
    let (stricter, reasons) = match hold.reverses {
        Some(_) => (None, Vec::new()),
        // It was on its way in while its agent was removed.
        None if !gw.keyring.knows(hold.agent()) => (Some(Tier::Blocked), Vec::new()),
        None => {
            let opinion = policy::look_again(gw, hold).await?;
            let asks = opinion.asks_alone() && is_approved_with_others(gw, hold).await?;
            let asks = asks.then_some(Tier::ApprovalRequired);
            (policy::stricter(hold, &opinion).or(asks), opinion.reasons)
        }
    };
    let expiry = gw.config.approvals.expiry;
    let recheck = match stricter {
        Some(Tier::Blocked) => Recheck::Block { code: "policy.blocked".into() },
        Some(_) => {
            let stricter = AskReason::new("policy.stricter");
            let reasons = std::iter::once(stricter).chain(reasons).collect();
            Recheck::Ask { code: "policy.stricter".into(), expiry, reasons, action: changed(gw, hold).await }
        }
        // What a person approved is the state they were shown.
        None if hold.consent.is_some() => match changed(gw, hold).await {
            Some(action) => {
                let code = Code::FilesNotAsApproved.as_str();
                let reasons = std::iter::once(AskReason::new(code)).chain(reasons).collect();
                Recheck::Ask { code: code.into(), expiry, reasons, action: Some(action) }
            }
            None => Recheck::Stands,
        },
        None => Recheck::Stands,
    };
    Ok(ClaimItem {
        hold: hold.id,
        version: hold.version,
        recheck,
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
    })
}

/// Whether the yes to a write was one to many at once: it answers the batch window and nothing else.
async fn is_approved_with_others(gw: &Gateway, hold: &Hold) -> Result<bool, No> {
    let Some(consent) = hold.consent else { return Ok(false) };
    Ok(gw.store.approval(consent).await?.is_some_and(|card| card.approval.subject == Subject::Batch))
}

/// The write bound to the state its objects are in now, if that is another one than it was bound to. Where the state
/// cannot be found out, the attempt says why.
async fn changed(gw: &Gateway, hold: &Hold) -> Option<Box<Action>> {
    if hold.action.found().is_empty() {
        return None;
    }
    let service = gw.services.for_service(&hold.service).ok()?;
    let action = hold.action.with_found(service.found(&hold.action).await.ok()?);
    (action.digest() != hold.action.digest()).then(|| Box::new(action))
}

impl Pace {
    /// Whether one more write of this service may leave within this second.
    fn allows(&mut self, service: &ServiceName, boot: Span) -> bool {
        let most = self.most(boot);
        let second = boot.as_secs();
        let entry = self.left.entry(service.clone()).or_insert((Span::from_secs(second), 0));
        if entry.0.as_secs() != second {
            *entry = (Span::from_secs(second), 0);
        }
        if entry.1 >= most {
            return false;
        }
        entry.1 += 1;
        true
    }

    /// Writes per second: one after a gap, twice as many every half minute.
    fn most(&mut self, boot: Span) -> u32 {
        let Some(since) = self.slow_since else { return FULL_PACE };
        let passed = boot.as_millis().saturating_sub(since.as_millis()) / DOUBLES.as_millis();
        let most = 1_u32.checked_shl(u32::try_from(passed).unwrap_or(u32::MAX)).unwrap_or(FULL_PACE);
        if most >= FULL_PACE {
            self.slow_since = None;
        }
        most.min(FULL_PACE)
    }
}

/// When a waiting write may leave.
#[must_use]
pub fn due_at(hold: &Hold) -> Option<Timestamp> {
    match hold.state {
        HoldState::Held { not_before } | HoldState::Ready { not_before } => Some(not_before),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_gap_writes_leave_one_by_one_and_then_faster() {
        let service = ServiceName::new("email").unwrap();
        let mut pace = Pace { slow_since: Some(Span::ZERO), left: HashMap::new() };
        let sent_in =
            |pace: &mut Pace, second: u64| (0..1000).filter(|_| pace.allows(&service, Span::from_secs(second))).count();
        assert_eq!(sent_in(&mut pace, 0), 1);
        assert_eq!(sent_in(&mut pace, 1), 1);
        assert_eq!(sent_in(&mut pace, 30), 2);
        assert_eq!(sent_in(&mut pace, 91), 8);
        assert_eq!(sent_in(&mut pace, 300), 50);
        assert_eq!(pace.slow_since, None);
    }
}
