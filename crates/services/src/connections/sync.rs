//! Syncs the replica: first page by page, then the changes, and a fresh replica beside the old one when the cursor has
//! expired.
//!
//! Takes a connection, brings its replica up to date with the service. Promise: rows and cursor move together; after
//! any failure, the next round continues where this one stopped; reads are answered all the while, from the old replica
//! until the new one is complete.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use sluice_core::connection::{ConnectionState, ConnectionStep};
use sluice_core::refusal::Code;
use sluice_core::{Millis, ServiceName, UtcMillis};
use sluice_protocol::{AdapterJobRequest, SyncCursor, WireSyncPage};
use sluice_store::replica::{Replica, ReplicaBatch, ReplicaChange, ReplicaFreshness, ShadowReplica};
use sluice_store::{MessageSeverity, MoveConnection, OutboxMessage};

use super::answer::{AdapterFailure, SyncStepError};
use super::job::{AdapterJob, AdapterJobResult};
use super::manifest::AdapterStep;
use super::view::SyncProgressView;
use super::{ConnectionHandle, ServiceConnections};
use crate::CallError;

/// The shortest wait after a round that failed.
const AGAIN: Millis = Millis::from_secs(30);
/// How many times a message may crash its worker before it is set aside.
const TRIES: u32 = 2;
/// Most messages set aside in one round. If there are more, the messages are not the cause.
const MOST_ASIDE: usize = 25;
/// The longest wait after a round that failed.
const LONGEST: Millis = Millis::from_mins(15);

/// The state of a connection's sync.
#[derive(Debug, Default)]
pub(super) struct SyncPacing {
    /// When the next round is due, in time since boot; at once if not set.
    next: Option<Millis>,
    running: bool,
    /// Consecutive rounds that failed.
    failed: u32,
    error: Option<String>,
    /// The start of this round: time since boot, and messages at that time.
    began: Option<(Millis, u64)>,
    /// The progress of a fresh replica, while one is being made.
    beside: Option<(u64, Option<u64>)>,
}

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncSummary {
    /// Pages that were read.
    pub pages: u64,
    /// Changes that were applied.
    pub changes: u64,
    /// Whether a fresh replica replaced the old one.
    pub made_anew: bool,
    /// Messages that crashed each worker that opened them, and were set aside.
    pub set_aside: u64,
    /// Messages that were set aside before and could be opened now.
    pub recovered: u64,
}

/// The extent of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncMode {
    /// Only what changed.
    Changes,
    /// What changed, and messages that were set aside are tried again.
    Whole,
    /// Everything, into a fresh replica.
    Afresh,
}

/// Why a round ended early.
enum SyncStopReason {
    /// The service no longer knows the cursor of the replica.
    Expired,
    /// A temporary failure: try later.
    Later(String, Option<Millis>),
    /// A person must act first. A failure of the credential is already in the audit log.
    Stopped(String),
    /// The connection is no longer at work.
    Over,
    /// The worker crashed on this message.
    Broke(String, String),
}

/// Where pages are written.
#[derive(Clone)]
enum SyncTarget {
    Copy(Arc<Replica>),
    Beside(Arc<ShadowReplica>),
}

impl SyncTarget {
    fn cursor(&self) -> Result<Option<String>, sluice_store::StoreError> {
        match self {
            Self::Copy(copy) => copy.cursor(),
            Self::Beside(shadow) => shadow.cursor(),
        }
    }

    fn apply(&self, batch: &ReplicaBatch) -> Result<(), sluice_store::StoreError> {
        match self {
            Self::Copy(copy) => copy.apply(batch),
            Self::Beside(shadow) => shadow.apply(batch),
        }
    }
}

impl ServiceConnections {
    /// Brings a replica up to date now. A second caller waits until the first has finished, and then syncs again.
    ///
    /// # Errors
    /// When there is no such connection at work, or the service refuses.
    pub async fn sync_now(&self, name: &ServiceName) -> Result<SyncSummary, CallError> {
        self.sync(name, SyncMode::Changes).await
    }

    /// Like [`Self::sync_now`], and tries to open the messages that were set aside.
    ///
    /// # Errors
    /// As for [`Self::sync_now`].
    pub async fn sync_whole(&self, name: &ServiceName) -> Result<SyncSummary, CallError> {
        self.sync(name, SyncMode::Whole).await
    }

    /// Makes a fresh replica beside the old one, which answers until the new one is complete; a replica whose key is
    /// gone is deleted first.
    ///
    /// # Errors
    /// As for [`Self::sync_now`].
    pub async fn sync_afresh(&self, name: &ServiceName) -> Result<SyncSummary, CallError> {
        self.sync(name, SyncMode::Afresh).await
    }

    async fn sync(&self, name: &ServiceName, how: SyncMode) -> Result<SyncSummary, CallError> {
        let line = self.find_or_open(name).await?;
        line.require_replica()?;
        if !line.state().is_at_work() {
            let text = format!("the connection `{name}` is {}", line.state());
            return Err(CallError::with_text(Code::ExecuteReconnect, &text));
        }
        let _turn = line.turn.lock().await;
        let mut how = how;
        if line.locked.load(Ordering::SeqCst) {
            if how != SyncMode::Afresh {
                return Err(line.no_copy().into());
            }
            self.give_up_locked(&line).await?;
            how = SyncMode::Changes;
        }
        line.wanted.store(false, Ordering::SeqCst);
        let mut done = self.round(&line, how).await;
        if let (SyncMode::Whole, Ok(synced)) = (how, &mut done)
            && let Err(stop) = self.try_aside(&line, synced).await
        {
            done = Err(stop);
        }
        self.note(&line, done.as_ref().err());
        match done {
            Ok(synced) => {
                self.mark_live_if_syncing(&line).await?;
                Ok(synced)
            }
            Err(SyncStopReason::Later(text, _) | SyncStopReason::Broke(text, _)) => {
                Err(CallError::with_text(Code::ExecuteUnavailable, &text))
            }
            Err(SyncStopReason::Stopped(text)) => Err(CallError::with_text(Code::ExecuteReconnect, &text)),
            Err(SyncStopReason::Expired | SyncStopReason::Over) => Err(CallError::new(Code::ExecuteReconnect)),
        }
    }

    /// Connections whose sync is due, without those whose service a person froze.
    pub fn due(&self, every: Millis, frozen: impl Fn(&ServiceName) -> bool) -> Vec<ServiceName> {
        let boot = self.deps.clock.since_boot();
        let mut due = Vec::new();
        for line in self.all() {
            let row = line.row();
            if frozen(&row.name) || frozen(&row.service) {
                continue;
            }
            let mut pace = line.pace.lock();
            let wanted = line.wanted.swap(false, Ordering::SeqCst);
            if wanted && pace.running {
                line.wanted.store(true, Ordering::SeqCst);
            }
            let ready = wanted || pace.next.is_none_or(|next| next <= boot);
            // A person has just signed in, and the replica is not open yet.
            let stands = line.state().is_at_work() && line.copy().is_some();
            if stands && ready && !pace.running {
                pace.running = true;
                pace.next = Some(boot + every);
                due.push(row.name);
            }
        }
        due
    }

    /// The names by which a freeze can cover a connection: its own name, and that of its service.
    pub fn names_of(&self, name: &ServiceName) -> Vec<ServiceName> {
        let service = self.known(name).map(|line| line.row().service);
        std::iter::once(name.clone()).chain(service).collect()
    }

    /// One round of the loop, until a person freezes the service.
    pub async fn keep_up(&self, name: &ServiceName, frozen: impl Future<Output = ()>) {
        tokio::select! {
            synced = self.sync_now(name) => if let Err(no) = synced {
                let code = no.refusal.code().as_str();
                tracing::warn!(connection = %name, code, "{name} was not synced: {}", no.refusal);
            },
            // The page in flight is given up; the next round continues after the page before it.
            () = frozen => tracing::warn!(connection = %name, "{name} is frozen and not synced until that is lifted"),
        }
        if let Some(line) = self.known(name) {
            line.pace.lock().running = false;
        }
    }

    /// Waits until someone requests a sync.
    pub async fn wait_for_wake(&self) {
        self.wake.notified().await;
    }

    /// Requests a sync: the replica lacks what we changed ourselves.
    pub(super) fn request_sync(&self, line: &ConnectionHandle) {
        line.wanted.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    async fn round(&self, line: &Arc<ConnectionHandle>, how: SyncMode) -> Result<SyncSummary, SyncStopReason> {
        let copy = line.copy().ok_or(SyncStopReason::Over)?;
        let begins = |done: u64| {
            let mut pace = line.pace.lock();
            (pace.began, pace.beside) = (Some((self.deps.clock.since_boot(), done)), None);
        };
        begins(copy.freshness().done);
        let mut synced = SyncSummary::default();
        if how != SyncMode::Afresh {
            match self.pages(line, &SyncTarget::Copy(Arc::clone(&copy)), &mut synced).await {
                Err(SyncStopReason::Expired) => {}
                ended => return ended.map(|()| synced),
            }
        }
        // The old replica answers until the new one is complete. A fresh replica that was begun before is continued,
        // unless it is too old.
        for first in [true, false] {
            let shadow = Arc::new(copy.shadow().map_err(|error| SyncStopReason::Later(error.to_string(), None))?);
            // It counts from its own position, not from that of the old one.
            begins(shadow.freshness().done);
            let filled = self.pages(line, &SyncTarget::Beside(Arc::clone(&shadow)), &mut synced).await;
            let shadow = Arc::into_inner(shadow).ok_or(SyncStopReason::Over)?;
            match filled {
                Ok(()) => {
                    let whole = Arc::clone(&copy);
                    let swapped = tokio::task::spawn_blocking(move || whole.swap(shadow)).await;
                    swapped
                        .map_err(|error| SyncStopReason::Later(error.to_string(), None))?
                        .map_err(|error| SyncStopReason::Later(error.to_string(), None))?;
                    synced.made_anew = true;
                    return Ok(synced);
                }
                Err(SyncStopReason::Expired) if first => copy.abandon(shadow),
                Err(stop) => return Err(stop),
            }
        }
        Err(SyncStopReason::Later("the service's change history expires faster than a sync takes".into(), None))
    }

    /// Reads pages until there are no more.
    async fn pages(
        &self,
        line: &Arc<ConnectionHandle>,
        into: &SyncTarget,
        synced: &mut SyncSummary,
    ) -> Result<(), SyncStopReason> {
        let broken = |error: sluice_store::StoreError| SyncStopReason::Later(error.to_string(), None);
        let (mut broke, mut aside): (HashMap<String, u32>, Vec<String>) = (HashMap::new(), Vec::new());
        loop {
            if !line.state().is_at_work() {
                return Err(SyncStopReason::Over);
            }
            let since = into.cursor().map_err(broken)?;
            let asked_at = self.deps.clock.now();
            let job = AdapterJobRequest::Sync { since: since.map(SyncCursor), aside: aside.clone() };
            let (page, changes) = match self.page(line, job).await {
                Err(SyncStopReason::Broke(text, id)) => {
                    let times = broke.entry(id.clone()).or_default();
                    *times += 1;
                    if aside.contains(&id) || aside.len() >= MOST_ASIDE {
                        return Err(SyncStopReason::Later(text, None));
                    }
                    if *times >= TRIES {
                        aside.push(id);
                    }
                    continue;
                }
                other => other?,
            };
            synced.pages += 1;
            synced.changes += page.changes as u64;
            let batch = batch(page, changes, asked_at);
            let more = batch.synced_at.is_none();
            let unopened: Vec<String> = batch.changes.iter().filter_map(unopened).collect();
            if let (SyncTarget::Beside(_), Some(far)) = (into, batch.progress) {
                line.pace.lock().beside = Some(far);
            }
            // The replica may have been ended while the page was in flight; then there is nothing to write into.
            let (place, held) = (into.clone(), Arc::clone(line));
            let applied =
                tokio::task::spawn_blocking(move || if held.copy().is_some() { place.apply(&batch) } else { Ok(()) });
            applied.await.map_err(|error| SyncStopReason::Later(error.to_string(), None))?.map_err(broken)?;
            synced.set_aside += self.tell_aside(line, &unopened).await;
            if !more {
                return Ok(());
            }
        }
    }

    /// Notifies people of each message that was set aside.
    async fn tell_aside(&self, line: &ConnectionHandle, ids: &[String]) -> u64 {
        let name = line.row().name;
        for id in ids {
            tracing::error!(connection = %name, message = %id, "message {id} of {name} crashes its worker and was set aside");
            let body = json!({"connection": name, "message_id": id});
            let severity = MessageSeverity::Warning;
            let message = OutboxMessage { id: self.message(), topic: "mail.set_aside".into(), severity, body };
            if let Err(error) = self.deps.store.alert(message, self.node()).await {
                tracing::error!(code = error.code(), "an alert about {name} could not be recorded: {error}");
            }
        }
        if let (false, Ok(context)) = (ids.is_empty(), self.context()) {
            context.signals.events.notify_written();
            context.signals.letters.notify_one();
        }
        ids.len() as u64
    }

    /// Tries to open messages that were set aside, each in its own worker. Those that crash again stay set aside.
    async fn try_aside(&self, line: &Arc<ConnectionHandle>, synced: &mut SyncSummary) -> Result<(), SyncStopReason> {
        let copy = line.copy().ok_or(SyncStopReason::Over)?;
        let broken = |error: sluice_store::StoreError| SyncStopReason::Later(error.to_string(), None);
        for id in copy.set_aside_ids().map_err(broken)? {
            let (_, changes) = match self.page(line, AdapterJobRequest::Fetch { ids: vec![id] }).await {
                Err(SyncStopReason::Broke(..)) => continue,
                other => other?,
            };
            // This does not change the cursor of the replica.
            let cursor = copy.cursor().map_err(broken)?.unwrap_or_default();
            let batch = ReplicaBatch { changes, cursor, synced_at: None, progress: None };
            let place = Arc::clone(&copy);
            let applied = tokio::task::spawn_blocking(move || place.apply(&batch)).await;
            applied.map_err(|error| SyncStopReason::Later(error.to_string(), None))?.map_err(broken)?;
            synced.recovered += 1;
        }
        Ok(())
    }

    async fn page(
        &self,
        line: &ConnectionHandle,
        job: AdapterJobRequest,
    ) -> Result<(WireSyncPage, Vec<ReplicaChange>), SyncStopReason> {
        let capability = format!("{}.sync", line.manifest.service);
        let assignment = AdapterJob {
            capability: &capability,
            by: self.node(),
            step: AdapterStep::Look,
            job,
            copies: true,
            files: Vec::new(),
        };
        let asked = self.run_job(line, &assignment).await;
        let AdapterJobResult { answer, changes, counted, .. } =
            asked.map_err(|not| match (not.refusal.code(), not.opening) {
                (Code::ExecuteReconnect, _) => SyncStopReason::Stopped(not.refusal.to_string()),
                (_, Some(id)) => SyncStopReason::Broke(not.refusal.to_string(), id),
                (_, None) => SyncStopReason::Later(not.refusal.to_string(), None),
            })?;
        match answer.page() {
            Ok(page) if page.changes == counted => {
                let changes = self.judged(line, changes).map_err(|_| SyncStopReason::Over)?;
                Ok((page, changes))
            }
            Ok(_) | Err(SyncStepError::Nonsense) => {
                Err(SyncStopReason::Later("the worker reported nonsense".into(), None))
            }
            Err(SyncStepError::Expired) => Err(SyncStopReason::Expired),
            Err(SyncStepError::Later(AdapterFailure { text, retry_after, .. })) => {
                Err(SyncStopReason::Later(text, retry_after))
            }
            Err(SyncStepError::Stopped(why)) => Err(SyncStopReason::Stopped(why.text)),
        }
    }

    /// The replica is complete: a syncing connection becomes live.
    pub(super) async fn mark_live_if_syncing(&self, line: &ConnectionHandle) -> Result<(), CallError> {
        let row = line.row();
        if row.state != ConnectionState::Syncing {
            return Ok(());
        }
        let step = MoveConnection {
            name: row.name,
            step: ConnectionStep::Copied,
            reason: None,
            account: None,
            by: self.node(),
            message: self.message(),
        };
        line.keep(self.deps.store.move_connection(step).await?.now);
        if let Ok(context) = self.context() {
            context.signals.events.notify_written();
        }
        Ok(())
    }

    fn note(&self, line: &ConnectionHandle, stop: Option<&SyncStopReason>) {
        let boot = self.deps.clock.since_boot();
        let mut pace = line.pace.lock();
        (pace.began, pace.beside) = (None, None);
        let (text, after) = match stop {
            None => {
                (pace.failed, pace.error) = (0, None);
                return;
            }
            Some(SyncStopReason::Over) => return,
            Some(SyncStopReason::Expired) => ("the service no longer knows the replica's position".to_owned(), None),
            Some(SyncStopReason::Later(text, after)) => (text.clone(), *after),
            Some(SyncStopReason::Broke(text, _)) => (text.clone(), None),
            Some(SyncStopReason::Stopped(text)) => (text.clone(), None),
        };
        let doubled = Millis::from_secs(AGAIN.as_secs() << pace.failed.min(10)).min(LONGEST);
        let wait = after.map_or(doubled, |asked| doubled.max(asked));
        pace.failed = pace.failed.saturating_add(1);
        pace.next = Some(boot + wait);
        pace.error = Some(text);
    }

    /// The progress of a first or fresh replica, and the last error.
    pub(super) fn progress(
        &self,
        line: &ConnectionHandle,
        fresh: &ReplicaFreshness,
    ) -> (Option<SyncProgressView>, Option<String>) {
        let pace = line.pace.lock();
        let (done, total) = match pace.beside {
            Some(far) => far,
            None if fresh.complete => return (None, pace.error.clone()),
            None => (fresh.done, fresh.total),
        };
        let boot = self.deps.clock.since_boot();
        let per_s = pace.began.and_then(|(since, had)| {
            let millis = boot.as_millis().saturating_sub(since.as_millis());
            let many = u32::try_from(done.saturating_sub(had)).ok()?;
            let millis = u32::try_from(millis).ok().filter(|millis| *millis > 0)?;
            Some(f64::from(many) * 1000.0 / f64::from(millis)).filter(|rate| *rate > 0.0)
        });
        let left = total.map(|total| total.saturating_sub(done)).and_then(|left| u32::try_from(left).ok());
        let eta_s = left.zip(per_s).map(|(left, rate)| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of seconds")]
            let seconds = (f64::from(left) / rate).ceil() as u64;
            seconds
        });
        (Some(SyncProgressView { done, total, per_s, eta_s }), pace.error.clone())
    }
}

/// A message that was not opened.
fn unopened(change: &ReplicaChange) -> Option<String> {
    match change {
        ReplicaChange::Aside(mail) => Some(mail.id.clone()),
        ReplicaChange::Put(_)
        | ReplicaChange::File { .. }
        | ReplicaChange::Labels { .. }
        | ReplicaChange::Gone { .. }
        | ReplicaChange::LabelNames(_) => None,
    }
}

fn batch(page: WireSyncPage, changes: Vec<ReplicaChange>, asked_at: UtcMillis) -> ReplicaBatch {
    ReplicaBatch {
        changes,
        cursor: page.next,
        // The service was asked at that time; later changes come in the next round.
        synced_at: (!page.more).then_some(asked_at),
        progress: page.progress.map(|progress| (progress.done, progress.total)),
    }
}
