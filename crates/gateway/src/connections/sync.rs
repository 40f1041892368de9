//! Keeping the copy: a first one page by page, then what changed, and a fresh one beside it where the service forgot.
//!
//! Takes a connection, brings its copy to where the service is. Promise: rows and cursor move together; whatever
//! breaks, the next round goes on where this one stopped; reads are answered all the while, by the old copy until the
//! new one is whole.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use serde_json::json;
use sluice_core::connection::{ConnectionState, ConnectionStep};
use sluice_core::refusal::Code;
use sluice_core::{ServiceName, Span, Timestamp};
use sluice_store::replica::{Batch, Change, Freshness, Replica, Shadow};
use sluice_store::{ConnectionMove, Message, Severity};

use super::answer::{LONGEST_WAIT, PageSaid, SyncNo, Why};
use super::job::{Errand, Given};
use super::manifest::Step;
use super::view::Progress;
use super::{Connections, Line};
use crate::No;

/// The least that is waited after a round that failed.
const AGAIN: Span = Span::from_secs(30);
/// Times a message may break its worker before it is set aside.
const TRIES: u32 = 2;
/// Messages set aside in one round. With more of them it is not the messages that are broken.
const MOST_ASIDE: usize = 25;
/// The most.
const LONGEST: Span = Span::from_mins(15);

/// How a connection's copying goes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the next round is due, in time since boot; at once if nothing is said.
    next: Option<Span>,
    running: bool,
    /// Rounds that failed in a row.
    failed: u32,
    error: Option<String>,
    /// Where this round began: time since boot, and messages then.
    began: Option<(Span, u64)>,
    /// How far a copy beside is, while it is being made.
    beside: Option<(u64, Option<u64>)>,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Synced {
    /// Pages.
    pub pages: u64,
    /// Changes.
    pub changes: u64,
    /// Whether a fresh copy took the place of the old one.
    pub made_anew: bool,
    /// Messages that broke each worker that opened them, and were set aside.
    pub set_aside: u64,
    /// Messages that had been set aside and could be opened now.
    pub recovered: u64,
}

/// How thorough a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// What changed.
    Changes,
    /// And what was set aside is tried again.
    Whole,
    /// Everything, into a fresh copy.
    Afresh,
}

/// Why a round ended early.
enum Stop {
    /// The service forgot where the copy stands.
    Expired,
    /// Not now.
    Later(String, Option<u64>),
    /// Not before a person did something. It is on record already if it is about the credential.
    Stopped(String),
    /// The connection is not at work any more.
    Over,
    /// The worker broke over this message.
    Broke(String, String),
}

/// Where pages go.
#[derive(Clone)]
enum Into {
    Copy(Arc<Replica>),
    Beside(Arc<Shadow>),
}

impl Into {
    fn cursor(&self) -> Result<Option<String>, sluice_store::StoreError> {
        match self {
            Self::Copy(copy) => copy.cursor(),
            Self::Beside(shadow) => shadow.cursor(),
        }
    }

    fn apply(&self, batch: &Batch) -> Result<(), sluice_store::StoreError> {
        match self {
            Self::Copy(copy) => copy.apply(batch),
            Self::Beside(shadow) => shadow.apply(batch),
        }
    }
}

impl Connections {
    /// Brings a copy to where the service is, now. Whoever comes while that goes on waits for it and goes once more.
    ///
    /// # Errors
    /// When there is no such connection at work, or the service does not let us.
    pub async fn sync_now(&self, name: &ServiceName) -> Result<Synced, No> {
        self.sync(name, How::Changes).await
    }

    /// As [`Self::sync_now`], and tries to open what was set aside.
    ///
    /// # Errors
    /// As there.
    pub async fn sync_whole(&self, name: &ServiceName) -> Result<Synced, No> {
        self.sync(name, How::Whole).await
    }

    /// Makes a copy anew beside the old one, which answers until the new one is whole; one whose key is gone is deleted
    /// first.
    ///
    /// # Errors
    /// As there.
    pub async fn sync_afresh(&self, name: &ServiceName) -> Result<Synced, No> {
        self.sync(name, How::Afresh).await
    }

    async fn sync(&self, name: &ServiceName, how: How) -> Result<Synced, No> {
        let line = self.line(name).await?;
        line.has_a_copy()?;
        if !line.state().is_at_work() {
            let text = format!("the connection `{name}` is {}", line.state());
            return Err(No::saying(Code::ExecuteReconnect, &text));
        }
        let _turn = line.turn.lock().await;
        let mut how = how;
        if line.locked.load(Ordering::SeqCst) {
            if how != How::Afresh {
                return Err(line.no_copy().into());
            }
            self.give_up_locked(&line).await?;
            how = How::Changes;
        }
        line.wanted.store(false, Ordering::SeqCst);
        let mut done = self.round(&line, how).await;
        if let (How::Whole, Ok(synced)) = (how, &mut done)
            && let Err(stop) = self.try_aside(&line, synced).await
        {
            done = Err(stop);
        }
        self.note(&line, done.as_ref().err());
        match done {
            Ok(synced) => {
                self.copied(&line).await?;
                Ok(synced)
            }
            Err(Stop::Later(text, _) | Stop::Broke(text, _)) => Err(No::saying(Code::ExecuteUnavailable, &text)),
            Err(Stop::Stopped(text)) => Err(No::saying(Code::ExecuteReconnect, &text)),
            Err(Stop::Expired | Stop::Over) => Err(No::new(Code::ExecuteReconnect)),
        }
    }

    /// Connections whose copy is due, without those whose service a person froze.
    pub(crate) fn due(&self, every: Span, frozen: impl Fn(&ServiceName) -> bool) -> Vec<ServiceName> {
        let boot = self.ground.clock.since_boot();
        let mut due = Vec::new();
        for line in self.all() {
            let row = line.row();
            if frozen(&row.name) || frozen(&row.service) {
                continue;
            }
            let mut pace = line.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = line.wanted.swap(false, Ordering::SeqCst);
            if wanted && pace.running {
                line.wanted.store(true, Ordering::SeqCst);
            }
            let ready = wanted || pace.next.is_none_or(|next| next <= boot);
            // Somebody has just signed in, and the copy is not open yet.
            let stands = line.state().is_at_work() && line.copy().is_some();
            if stands && ready && !pace.running {
                pace.running = true;
                pace.next = Some(boot + every);
                due.push(row.name);
            }
        }
        due
    }

    /// What freezes can call a connection: its own name, and that of its service.
    pub(crate) fn names_of(&self, name: &ServiceName) -> Vec<ServiceName> {
        let service = self.known(name).map(|line| line.row().service);
        std::iter::once(name.clone()).chain(service).collect()
    }

    /// One round of the loop, until a person freezes the service.
    pub(crate) async fn keep_up(&self, name: &ServiceName, frozen: impl Future<Output = ()>) {
        tokio::select! {
            synced = self.sync_now(name) => if let Err(no) = synced {
                let code = no.refusal.code().as_str();
                tracing::warn!(connection = %name, code, "{name} was not copied: {}", no.refusal);
            },
            // The page on its way is given up; the next round goes on from the one before.
            () = frozen => tracing::warn!(connection = %name, "{name} is frozen: it is not copied until that is lifted"),
        }
        if let Some(line) = self.known(name) {
            line.pace.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        }
    }

    /// Waits until someone wants a copy brought up to date.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The copy is behind by what we did ourselves.
    pub(super) fn want(&self, line: &Line) {
        line.wanted.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    async fn round(&self, line: &Arc<Line>, how: How) -> Result<Synced, Stop> {
        let copy = line.copy().ok_or(Stop::Over)?;
        let begins = |done: u64| {
            let mut pace = line.pace.lock().unwrap_or_else(PoisonError::into_inner);
            (pace.began, pace.beside) = (Some((self.ground.clock.since_boot(), done)), None);
        };
        begins(copy.freshness().done);
        let mut synced = Synced::default();
        if how != How::Afresh {
            match self.pages(line, &Into::Copy(Arc::clone(&copy)), &mut synced).await {
                Err(Stop::Expired) => {}
                ended => return ended.map(|()| synced),
            }
        }
        // The old copy answers until the new one is whole. One that was begun before goes on, unless it is too old itself.
        for first in [true, false] {
            let shadow = Arc::new(copy.shadow().map_err(|error| Stop::Later(error.to_string(), None))?);
            // It counts from where it stands itself, not from the old one.
            begins(shadow.freshness().done);
            let filled = self.pages(line, &Into::Beside(Arc::clone(&shadow)), &mut synced).await;
            let shadow = Arc::into_inner(shadow).ok_or(Stop::Over)?;
            match filled {
                Ok(()) => {
                    let whole = Arc::clone(&copy);
                    let swapped = tokio::task::spawn_blocking(move || whole.swap(shadow)).await;
                    swapped
                        .map_err(|error| Stop::Later(error.to_string(), None))?
                        .map_err(|error| Stop::Later(error.to_string(), None))?;
                    synced.made_anew = true;
                    return Ok(synced);
                }
                Err(Stop::Expired) if first => copy.abandon(shadow),
                Err(stop) => return Err(stop),
            }
        }
        Err(Stop::Later("the service forgets faster than it can be copied".into(), None))
    }

    /// Pages until there are no more.
    async fn pages(&self, line: &Arc<Line>, into: &Into, synced: &mut Synced) -> Result<(), Stop> {
        let broken = |error: sluice_store::StoreError| Stop::Later(error.to_string(), None);
        let (mut broke, mut aside): (HashMap<String, u32>, Vec<String>) = (HashMap::new(), Vec::new());
        loop {
            if !line.state().is_at_work() {
                return Err(Stop::Over);
            }
            let since = into.cursor().map_err(broken)?;
            let asked_at = self.ground.clock.now();
            let (page, changes) = match self.page(line, json!({"job": "sync", "since": since, "aside": aside})).await {
                Err(Stop::Broke(text, id)) => {
                    let times = broke.entry(id.clone()).or_default();
                    *times += 1;
                    if aside.contains(&id) || aside.len() >= MOST_ASIDE {
                        return Err(Stop::Later(text, None));
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
            if let (Into::Beside(_), Some(far)) = (into, batch.progress) {
                line.pace.lock().unwrap_or_else(PoisonError::into_inner).beside = Some(far);
            }
            // The copy may have been ended while the page was on its way; then there is nothing to write into.
            let (place, held) = (into.clone(), Arc::clone(line));
            let applied =
                tokio::task::spawn_blocking(move || if held.copy().is_some() { place.apply(&batch) } else { Ok(()) });
            applied.await.map_err(|error| Stop::Later(error.to_string(), None))?.map_err(broken)?;
            synced.set_aside += self.tell_aside(line, &unopened).await;
            if !more {
                return Ok(());
            }
        }
    }

    /// People hear of each message that was set aside.
    async fn tell_aside(&self, line: &Line, ids: &[String]) -> u64 {
        let name = line.row().name;
        for id in ids {
            tracing::error!(connection = %name, message = %id, "the message {id} of {name} breaks its worker and was set aside");
            let body = json!({"connection": name, "message_id": id});
            let severity = Severity::Warning;
            let message = Message { id: self.message(), topic: "mail.set_aside".into(), severity, body };
            if let Err(error) = self.ground.store.alert(message, self.node()).await {
                tracing::error!(code = error.code(), "an alert about {name} could not be recorded: {error}");
            }
        }
        if let (false, Ok(gw)) = (ids.is_empty(), self.gateway()) {
            gw.events.wrote();
            gw.letters.notify_one();
        }
        ids.len() as u64
    }

    /// Tries to open what was set aside, each message in a worker of its own. What breaks again stays where it is.
    async fn try_aside(&self, line: &Arc<Line>, synced: &mut Synced) -> Result<(), Stop> {
        let copy = line.copy().ok_or(Stop::Over)?;
        let broken = |error: sluice_store::StoreError| Stop::Later(error.to_string(), None);
        for id in copy.aside().map_err(broken)? {
            let (_, changes) = match self.page(line, json!({"job": "fetch", "ids": [id]})).await {
                Err(Stop::Broke(..)) => continue,
                other => other?,
            };
            // Where the copy stands does not change by it.
            let cursor = copy.cursor().map_err(broken)?.unwrap_or_default();
            let batch = Batch { changes, cursor, synced_at: None, progress: None };
            let place = Arc::clone(&copy);
            let applied = tokio::task::spawn_blocking(move || place.apply(&batch)).await;
            applied.map_err(|error| Stop::Later(error.to_string(), None))?.map_err(broken)?;
            synced.recovered += 1;
        }
        Ok(())
    }

    async fn page(&self, line: &Line, job: serde_json::Value) -> Result<(PageSaid, Vec<Change>), Stop> {
        let capability = format!("{}.sync", line.manifest.service);
        let errand =
            Errand { capability: &capability, by: self.node(), step: Step::Look, job, copies: true, files: Vec::new() };
        let asked = self.ask(line, &errand).await;
        let Given { answer, changes, counted, .. } = asked.map_err(|not| match (not.refusal.code(), not.opening) {
            (Code::ExecuteReconnect, _) => Stop::Stopped(not.refusal.to_string()),
            (_, Some(id)) => Stop::Broke(not.refusal.to_string(), id),
            (_, None) => Stop::Later(not.refusal.to_string(), None),
        })?;
        match answer.page() {
            Ok(page) if page.changes == counted => {
                let changes = self.judged(line, changes).map_err(|_| Stop::Over)?;
                Ok((page, changes))
            }
            Ok(_) | Err(SyncNo::Nonsense) => Err(Stop::Later("the worker reported nonsense".into(), None)),
            Err(SyncNo::Expired) => Err(Stop::Expired),
            Err(SyncNo::Later(Why { text, retry_after_s, .. })) => Err(Stop::Later(text, retry_after_s)),
            Err(SyncNo::Stopped(why)) => Err(Stop::Stopped(why.text)),
        }
    }

    /// The copy is whole: what was syncing is live.
    pub(super) async fn copied(&self, line: &Line) -> Result<(), No> {
        let row = line.row();
        if row.state != ConnectionState::Syncing {
            return Ok(());
        }
        let step = ConnectionMove {
            name: row.name,
            step: ConnectionStep::Copied,
            reason: None,
            account: None,
            by: self.node(),
            message: self.message(),
        };
        line.keep(self.ground.store.move_connection(step).await?.now);
        if let Ok(gw) = self.gateway() {
            gw.events.wrote();
        }
        Ok(())
    }

    fn note(&self, line: &Line, stop: Option<&Stop>) {
        let boot = self.ground.clock.since_boot();
        let mut pace = line.pace.lock().unwrap_or_else(PoisonError::into_inner);
        (pace.began, pace.beside) = (None, None);
        let (text, after) = match stop {
            None => {
                (pace.failed, pace.error) = (0, None);
                return;
            }
            Some(Stop::Over) => return,
            Some(Stop::Expired) => ("the service forgot where the copy stands".to_owned(), None),
            Some(Stop::Later(text, after)) => (text.clone(), *after),
            Some(Stop::Broke(text, _)) => (text.clone(), None),
            Some(Stop::Stopped(text)) => (text.clone(), None),
        };
        let doubled = Span::from_secs(AGAIN.as_secs() << pace.failed.min(10)).min(LONGEST);
        let wait = after.map_or(doubled, |asked| doubled.max(Span::from_secs(asked).min(LONGEST_WAIT)));
        pace.failed = pace.failed.saturating_add(1);
        pace.next = Some(boot + wait);
        pace.error = Some(text);
    }

    /// How far a first or fresh copy is, and what went wrong last.
    pub(super) fn progress(&self, line: &Line, fresh: &Freshness) -> (Option<Progress>, Option<String>) {
        let pace = line.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, total) = match pace.beside {
            Some(far) => far,
            None if fresh.complete => return (None, pace.error.clone()),
            None => (fresh.done, fresh.total),
        };
        let boot = self.ground.clock.since_boot();
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
        (Some(Progress { done, total, per_s, eta_s }), pace.error.clone())
    }
}

/// A message that was not opened.
fn unopened(change: &Change) -> Option<String> {
    match change {
        Change::Aside(mail) => Some(mail.id.clone()),
        Change::Put(_) | Change::File { .. } | Change::Labels { .. } | Change::Gone { .. } | Change::LabelNames(_) => {
            None
        }
    }
}

fn batch(page: PageSaid, changes: Vec<Change>, asked_at: Timestamp) -> Batch {
    Batch {
        changes,
        cursor: page.next,
        // The service was asked at that moment; what came later is in the next round.
        synced_at: (!page.more).then_some(asked_at),
        progress: page.progress.map(|progress| (progress.done, progress.total)),
    }
}
