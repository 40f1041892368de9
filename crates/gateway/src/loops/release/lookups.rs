//! Lookups: find out what happened to a write whose outcome is uncertain.
//!
//! Takes the uncertain outcomes of the database; looks each up when its schedule says so, in a task of its own, a few
//! at once for each service, agents in turn. Promise: a lookup that hangs delays lookups of its service only; one that
//! did not reach the service does not count as an attempt, and the service is left alone for a while; people are
//! notified when that lasts.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_core::ids::MessageId;
use sluice_core::lane::{LaneTerms, ServiceLane};
use sluice_core::lookup_schedule::unreached_pause;
use sluice_core::pace::SlowStart;
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId, Millis, ServiceName, UtcMillis};
use sluice_services::CallError;
use sluice_store::{HoldInDoubt, MessageSeverity, OutboxMessage};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;

use crate::Gateway;
use crate::rooms::execute::{self, LookupAttempt};

/// Lookups at once for each service.
const AT_ONCE: usize = 4;
/// How long one lookup may take. A lookup that takes longer did not reach its service.
const LONGEST: Millis = Millis::from_secs(60);
/// Most uncertain outcomes that one step reads.
const ALL_DOUBTS: u32 = 10_000;
/// People are notified after so long without a lookup.
const TOLD: Millis = Millis::from_mins(30);

/// What is remembered about lookups from step to step.
#[derive(Debug, Default)]
pub(super) struct LookupScheduler {
    lanes: HashMap<ServiceName, LookupLane>,
    under_way: JoinSet<LookupAttempt>,
    running: HashMap<Id, (ServiceName, HoldId)>,
    /// Uncertain outcomes that are older than this process or than a jump of the clock: the wall clock cannot say how
    /// long they have settled, so they settle once more.
    unsettled: Option<HashMap<(HoldId, UtcMillis), Millis>>,
    /// Services that were unreachable for so long that people must be notified.
    silent: Vec<(ServiceName, Millis)>,
    /// When the last step ran, in time since boot.
    stepped_at: Millis,
}

/// The lookups of one service.
#[derive(Debug, Default)]
struct LookupLane {
    lane: ServiceLane<HoldInDoubt>,
    /// How often in a row it could not be reached, and since when, in time since boot.
    unreached: u32,
    unreached_since: Option<Millis>,
    /// The service is left alone until then.
    not_before: Millis,
    told: bool,
}

impl LookupScheduler {
    /// The wall clock jumped: its times of uncertain outcomes no longer count.
    pub(super) fn distrust(&mut self) {
        self.unsettled = None;
    }

    /// Starts the lookups that are due.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(super) async fn step(&mut self, gw: &Arc<Gateway>) -> Result<(), CallError> {
        let (boot, now) = (gw.clock.since_boot(), gw.now());
        self.stepped_at = boot;
        let doubts = gw.store.doubts(ALL_DOUBTS).await?;
        let schedule = gw.config.release.lookups.schedule();
        let unsettled = self.unsettled.get_or_insert_with(|| {
            let settles = |doubt: &HoldInDoubt| ((doubt.hold, doubt.since), boot + doubt.class.settle());
            doubts.iter().map(settles).collect()
        });
        self.lanes.values_mut().for_each(|lane| lane.lane.clear());
        for doubt in doubts {
            let settled = unsettled.get(&(doubt.hold, doubt.since)).is_none_or(|until| boot >= *until);
            if settled && now >= schedule.due(doubt.since, doubt.class, doubt.rounds) {
                let lane = self.lanes.entry(doubt.service.clone()).or_default();
                lane.lane.offer(doubt.agent.clone(), (doubt.hold, false), doubt);
            }
        }
        let terms = LaneTerms { places: AT_ONCE, rate: None, start: SlowStart::none() };
        for (service, lane) in &mut self.lanes {
            if boot < lane.not_before {
                continue;
            }
            while let Some((hold, doubt)) = lane.lane.take(boot, &terms) {
                let task = self.under_way.spawn(look_up(Arc::clone(gw), doubt));
                self.running.insert(task.id(), (service.clone(), hold));
                // One lookup is enough to find out whether the service can be reached again.
                if lane.unreached > 0 {
                    break;
                }
            }
        }
        self.lanes.retain(|_, lane| lane.unreached > 0 || lane.lane.under_way() > 0 || lane.lane.has_turns());
        Ok(())
    }

    /// Records the results of lookups that have ended.
    pub(super) async fn gather(&mut self, gw: &Gateway) {
        while let Some(ended) = self.under_way.try_join_next_with_id() {
            self.note(ended, gw.clock.since_boot());
        }
        for (service, span) in std::mem::take(&mut self.silent) {
            tell(gw, &service, span).await;
        }
    }

    /// Waits until every lookup under way has ended, as of the last step.
    pub(super) async fn finish(&mut self) {
        while let Some(ended) = self.under_way.join_next_with_id().await {
            self.note(ended, self.stepped_at);
        }
    }

    /// Aborts lookups under way: they change nothing.
    pub(super) fn abort(&mut self) {
        self.under_way.abort_all();
    }

    fn note(&mut self, ended: Result<(Id, LookupAttempt), JoinError>, boot: Millis) {
        let (id, looked) = ended.unwrap_or_else(|error| {
            tracing::error!("the task of a lookup ended unexpectedly: {error}");
            (error.id(), LookupAttempt::PutOff)
        });
        let Some((service, hold)) = self.running.remove(&id) else { return };
        let Some(lane) = self.lanes.get_mut(&service) else { return };
        lane.lane.end(hold);
        match looked {
            LookupAttempt::PutOff => {}
            LookupAttempt::Made => (lane.unreached, lane.unreached_since, lane.told) = (0, None, false),
            LookupAttempt::NotMade => {
                lane.unreached = lane.unreached.saturating_add(1);
                lane.not_before = boot + unreached_pause(lane.unreached);
                let since = *lane.unreached_since.get_or_insert(boot);
                let silent = Millis::from_millis(boot.as_millis().saturating_sub(since.as_millis()));
                if silent >= TOLD && !lane.told {
                    lane.told = true;
                    self.silent.push((service, silent));
                }
            }
        }
    }
}

/// Makes one lookup in its own task.
async fn look_up(gw: Arc<Gateway>, doubt: HoldInDoubt) -> LookupAttempt {
    let id = doubt.hold;
    let looked = timeout(LONGEST.as_duration(), async {
        let hold = gw.store.hold(id).await?.filter(|hold| hold.version == doubt.version);
        match hold {
            Some(hold) => execute::look_up(&gw, &hold).await,
            // The outcome was found out elsewhere.
            None => Ok(LookupAttempt::PutOff),
        }
    });
    match looked.await {
        Ok(Ok(looked)) => looked,
        // The outcome was found out elsewhere meanwhile.
        Ok(Err(no)) if no.refusal.code() == Code::StoreConflict => LookupAttempt::PutOff,
        Ok(Err(no)) => {
            let code = no.refusal.code().as_str();
            tracing::error!(hold.id = %id, code, "the result of a lookup of {id} cannot be recorded: {}", no.refusal);
            LookupAttempt::PutOff
        }
        Err(_) => LookupAttempt::NotMade,
    }
}

/// Notifies people that uncertain outcomes cannot be looked up. Once, until the service was reached again.
async fn tell(gw: &Gateway, service: &ServiceName, span: Millis) {
    let minutes = span.as_secs() / 60;
    let text = format!(
        "writes at `{service}` are in doubt and it has not been reached for {minutes} min: look there yourself and say how \
         they ended with sluice holds settle --service {service}, or wait until it can be reached"
    );
    tracing::warn!(service = %service, "{text}");
    let body = serde_json::json!({"service": service, "minutes": minutes, "text": text});
    let id = MessageId::mint(gw.ids.as_ref());
    let alert = OutboxMessage { id, topic: "hold.not_looked".into(), severity: MessageSeverity::Warning, body };
    if let Err(error) = gw.store.alert(alert, Actor::Node(gw.store.node().clone())).await {
        tracing::warn!(code = error.code(), "the alert that `{service}` cannot be reached could not be stored");
    }
}
