//! Memory outside the database: what this node last knew to be durable, in a state file of its own.
//!
//! Takes positions of the audit logs; gives them back at the next start, where [`start`] compares them with the
//! database. Promise: before an effect can leave and before a stop is acknowledged, the state file remembers the entry
//! that says so; so a database that lacks it is noticed. Positions are reserved in blocks ahead of time, so that what a
//! crash leaves behind is never taken for a restore.
//!
//! Who waits for the file shares one write with everyone who waits at the same time. Calls that neither arm an effect
//! nor stop one do not wait at all.

pub mod decide;
pub mod place;
pub mod start;
pub(crate) mod state_file;
pub mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_core::audit::note::Note;
use sluice_core::ids::MessageId;
use sluice_core::recovery::{
    DatabaseFacts, Finding, GatewayState, LogMark, RESERVED, Remembered, SignedMark, Suspicion, still_has,
};
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId, NodeName};
use sluice_store::{Message, RememberedLog, ServerChange, Severity, Store, StoreError};
use tokio::sync::watch;

use crate::gateway::Lost;
use crate::loops::tick;
use crate::{Gateway, No};

/// How often the file follows the database by itself.
const EVERY: Duration = Duration::from_millis(500);
/// How long a stop waits for the file.
const STOP_WAITS: Duration = Duration::from_secs(2);
/// Writes that are left to a person in one transaction.
const PAGE: u32 = 500;

/// Where the files lie.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub state: PathBuf,
    pub checkpoints: PathBuf,
    /// Whether there was no better place than the data folder itself.
    pub in_data: bool,
}

/// What a node remembers outside its database.
#[derive(Debug)]
pub struct Recovery {
    files: Files,
    own: Vec<NodeName>,
    /// Counts those who asked for the file to be written.
    asked: AtomicU64,
    kept: tokio::sync::Mutex<Kept>,
    suspected: AtomicBool,
    /// Whether the last write of the file failed.
    failing: AtomicBool,
    /// The last signed checkpoint of this node's own log.
    latest: Mutex<Option<Arc<str>>>,
}

/// The content of the file, and how many of those who asked it covers.
#[derive(Debug)]
struct Kept {
    state: GatewayState,
    served: u64,
}

/// Why the file was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Forgot {
    #[error("the database is not trusted")]
    Suspected,
    #[error("the database lost what was remembered")]
    Regressed(Vec<Finding>),
    #[error("the state file cannot be written: {0}")]
    File(std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Recovery {
    fn new(files: Files, own: Vec<NodeName>, state: GatewayState) -> Self {
        let suspected = AtomicBool::new(state.suspicion.is_some());
        let signed = own.first().and_then(|log| state.logs.get(log)?.checkpoint.as_ref());
        let latest = Mutex::new(signed.map(|signed| Arc::from(signed.note.as_str())));
        Self {
            files,
            own,
            asked: AtomicU64::new(0),
            kept: tokio::sync::Mutex::new(Kept { state, served: 0 }),
            suspected,
            failing: AtomicBool::new(false),
            latest,
        }
    }

    /// Whether the database is not trusted: nothing is sent and nothing is signed.
    #[must_use]
    pub fn is_suspected(&self) -> bool {
        self.suspected.load(Ordering::SeqCst)
    }

    /// The last signed checkpoint of this node's log, for people to keep.
    #[must_use]
    pub fn latest_checkpoint(&self) -> Option<Arc<str>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes down what is durable now. What was committed before this was called is in the file when it returns.
    async fn remember(&self, store: &Store) -> Result<(), Forgot> {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut kept = self.kept.lock().await;
        if let Some(findings) = store.missing_ground() {
            return Err(Forgot::Regressed(findings));
        }
        if self.is_suspected() {
            return Err(Forgot::Suspected);
        }
        if kept.served >= ticket {
            return Ok(());
        }
        // Whoever has a ticket by now committed before the positions are read.
        let covers = self.asked.load(Ordering::SeqCst);
        let next = self.followed(store, &kept.state).await?;
        if next != kept.state {
            self.write(&mut kept, next).await?;
        }
        kept.served = covers;
        Ok(())
    }

    /// Notes that a checkpoint was signed and kept in the database.
    async fn signed(&self, store: &Store, log: &NodeName, size: u64, note: &Note) -> Result<(), Forgot> {
        let text = note.to_string();
        let (path, line) = (self.files.checkpoints.clone(), text.clone());
        let length = blocking(move || state_file::append_checkpoint(&path, &line)).await.map_err(Forgot::File)?;
        let mut kept = self.kept.lock().await;
        let mut next = self.followed(store, &kept.state).await?;
        next.checkpoints_length = length;
        if let Some(mark) = next.logs.get_mut(log) {
            mark.checkpoint = Some(SignedMark { size, note: text.clone() });
        }
        self.write(&mut kept, next).await?;
        if self.own.first() == Some(log) {
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
        }
        Ok(())
    }

    /// What the file should say now.
    async fn followed(&self, store: &Store, state: &GatewayState) -> Result<GatewayState, Forgot> {
        let own = |log: &&NodeName| self.own.contains(log);
        let asked = state.logs.keys().filter(own).map(|log| (log.clone(), remembered(state, log)));
        // Over the connection that nothing else keeps busy: a stop waits for this too.
        let facts = store.asked_to_stop().recovery_facts(state.node.clone(), asked.collect()).await?;
        let mut findings = Vec::new();
        for (log, mark) in &state.logs {
            let there = facts.logs.get(log);
            let size = there.map_or(0, |there| there.size);
            if self.own.contains(log) || size < mark.size {
                findings.extend(still_has(log, mark, there).err());
            }
        }
        if !findings.is_empty() {
            return Err(Forgot::Regressed(findings));
        }
        Ok(GatewayState { logs: marks(&self.own, Some(state), &facts), ..state.clone() })
    }

    async fn write(&self, kept: &mut Kept, next: GatewayState) -> Result<(), Forgot> {
        let (path, content) = (self.files.state.clone(), next.clone());
        blocking(move || state_file::write(&path, &content)).await.map_err(Forgot::File)?;
        kept.state = next;
        Ok(())
    }
}

/// Every log of the database, with a reservation for those of this node.
fn marks(own: &[NodeName], state: Option<&GatewayState>, facts: &DatabaseFacts) -> BTreeMap<NodeName, LogMark> {
    let mark = |(log, there): (&NodeName, &sluice_core::recovery::LogFacts)| {
        let before = state.and_then(|state| state.logs.get(log));
        let is_own = own.contains(log);
        let reserved = is_own.then_some(there.size + RESERVED);
        let checkpoint = before.and_then(|mark| mark.checkpoint.clone());
        (log.clone(), LogMark { size: there.size, hash: there.hash, reserved, checkpoint })
    };
    facts.logs.iter().map(mark).collect()
}

/// What the file knows of a log, as a question to the database.
fn remembered(state: &GatewayState, log: &NodeName) -> RememberedLog {
    let mark = state.logs.get(log);
    RememberedLog {
        size: mark.map_or(0, |mark| mark.size),
        checkpoint: mark.and_then(|mark| mark.checkpoint.as_ref()).map(|signed| signed.size),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

/// Writes down what is durable now: called before an effect may leave and before a stop is acknowledged.
///
/// # Errors
/// When the file cannot be written, or the database is not trusted: then nothing may leave.
pub(crate) async fn remember(gw: &Gateway) -> Result<(), No> {
    let failed = match gw.recovery.remember(&gw.store).await {
        Ok(()) => {
            gw.recovery.failing.store(false, Ordering::SeqCst);
            return Ok(());
        }
        Err(failed) => failed,
    };
    match failed {
        Forgot::Suspected => Err(No::new(Code::RecoveryRequired)),
        Forgot::Regressed(findings) => {
            suspect(gw, findings).await?;
            Err(No::new(Code::RecoveryRequired))
        }
        Forgot::Store(error) => Err(error.into()),
        Forgot::File(error) => {
            unwritable(gw, &error).await;
            Err(No::new(Code::RecoveryStateFile))
        }
    }
}

/// The same for a stop that has happened: it stays, whatever becomes of the file, and is not kept waiting by a slow disk.
pub(crate) async fn remember_stop(gw: &Gateway) {
    match tokio::time::timeout(STOP_WAITS, remember(gw)).await {
        Ok(Ok(())) => {}
        Ok(Err(no)) => {
            tracing::warn!(code = no.refusal.code().as_str(), "a stop is not in the state file yet: {}", no.refusal);
        }
        Err(_) => tracing::warn!("a stop is not in the state file yet: writing it takes too long"),
    }
}

/// Notes a signed checkpoint outside the database.
///
/// # Errors
/// When the file cannot be written or the database is not trusted.
pub(crate) async fn signed(gw: &Gateway, log: &NodeName, size: u64, note: &Note) -> Result<(), No> {
    match gw.recovery.signed(&gw.store, log, size, note).await {
        Ok(()) => Ok(()),
        Err(Forgot::Suspected) => Err(No::new(Code::RecoveryRequired)),
        Err(Forgot::Regressed(findings)) => suspect(gw, findings).await,
        Err(Forgot::Store(error)) => Err(error.into()),
        Err(Forgot::File(error)) => {
            unwritable(gw, &error).await;
            Err(No::new(Code::RecoveryStateFile))
        }
    }
}

/// Writes the state file again where somebody removed or changed it. Gives its path if that was so.
pub(crate) async fn restored_file(gw: &Gateway) -> Option<PathBuf> {
    let mut kept = gw.recovery.kept.lock().await;
    let path = gw.recovery.files.state.clone();
    let read = path.clone();
    let found = blocking(move || Ok(state_file::read(&read))).await.ok()?;
    if matches!(&found, Remembered::State(found) if **found == kept.state) {
        return None;
    }
    let next = kept.state.clone();
    let written = gw.recovery.write(&mut kept, next).await;
    drop(kept);
    match written {
        Ok(()) => Some(path),
        Err(Forgot::File(error)) => {
            unwritable(gw, &error).await;
            None
        }
        Err(_) => None,
    }
}

/// Nothing leaves while the file cannot be written, and people are told once.
async fn unwritable(gw: &Gateway, error: &std::io::Error) {
    if !gw.recovery.failing.swap(true, Ordering::SeqCst) {
        tracing::error!("the state file cannot be written, so nothing is sent: {error}");
        let body = serde_json::json!({
            "text": "The state file outside the database cannot be written, so nothing is sent. Look at \
                `recovery.state_file` and the disk it is on.",
        });
        let topic = "recovery.state_file".into();
        let message = Message { id: MessageId::mint(gw.ids.as_ref()), topic, severity: Severity::Critical, body };
        if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
            tracing::error!(code = error.code(), "an alert could not be kept");
        }
    }
    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) {
        // A disk that fails is no full disk: nothing on it can be believed, and the database may be next.
        return gw.give_up(Lost::Record);
    }
    let used_up = {
        let kept = gw.recovery.kept.lock().await;
        let logs = gw.store.logs().await.unwrap_or_default();
        logs.iter().any(|(log, head)| {
            let reserved = kept.state.logs.get(log).and_then(|mark| mark.reserved);
            reserved.is_some_and(|reserved| head.size + RESERVED / 10 > reserved)
        })
    };
    if used_up {
        // Beyond the reservation the next start would call it tampering, and be wrong.
        gw.give_up(Lost::Record);
    }
}

/// Another server answers, and has everything that this node knows of. People are told, because what other nodes had
/// acknowledged in the last moments is for those to say.
async fn tell_of_change(gw: &Gateway, change: &ServerChange) {
    let word = |part: &Option<String>| part.clone().unwrap_or_else(|| "unknown".to_owned());
    let (before, now) = (&change.before, &change.now);
    let text = format!(
        "Another PostgreSQL server answers: system {} timeline {}, before system {} timeline {}. Everything that this node \
         had acknowledged is there.",
        word(&now.system),
        word(&now.timeline),
        word(&before.system),
        word(&before.timeline)
    );
    tracing::warn!("{text}");
    let id = MessageId::mint(gw.ids.as_ref());
    let body = serde_json::json!({ "text": text });
    let message = Message { id, topic: "store.failover".into(), severity: Severity::Warning, body };
    if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
        tracing::error!(code = error.code(), "an alert could not be kept");
    }
    gw.letters.notify_one();
}

/// Freezes everything, leaves every open write to a person and tells people: this database is not to be trusted.
///
/// # Errors
/// When it cannot be recorded. It is frozen in this process all the same.
pub(crate) async fn suspect(gw: &Gateway, findings: Vec<Finding>) -> Result<(), No> {
    gw.recovery.suspected.store(true, Ordering::SeqCst);
    let mut kept = gw.recovery.kept.lock().await;
    let before = kept.state.suspicion.clone();
    let mut all = before.as_ref().map(|before| before.findings.clone()).unwrap_or_default();
    all.extend(findings.into_iter().filter(|finding| !before.iter().any(|known| known.findings.contains(finding))));
    let suspicion = Suspicion {
        at: before.as_ref().map_or_else(|| gw.now(), |before| before.at),
        findings: all.clone(),
        investigating: before.is_some_and(|before| before.investigating),
    };
    let next = GatewayState { suspicion: Some(suspicion), ..kept.state.clone() };
    if let Err(error) = gw.recovery.write(&mut kept, next).await {
        tracing::error!("the state file does not say that the database is suspected: {error}");
    }
    drop(kept);
    let moved = freeze(&gw.store, all, MessageId::mint(gw.ids.as_ref())).await?;
    moved.into_iter().for_each(|hold| gw.moved(hold));
    gw.events.wrote();
    gw.letters.notify_one();
    Ok(())
}

/// Marks a database that was just put back from a backup: frozen, on record, every open write left to a person. Whoever
/// starts on it finds it suspected, whatever the state file of that machine remembers.
///
/// # Errors
/// When it cannot be recorded.
pub async fn mark_restored(store: &Store, finding: Finding, message: MessageId) -> Result<Vec<HoldId>, StoreError> {
    freeze(store, vec![finding], message).await
}

/// The freeze, the alert, and every open write left to a person.
async fn freeze(store: &Store, findings: Vec<Finding>, message: MessageId) -> Result<Vec<HoldId>, StoreError> {
    for finding in &findings {
        tracing::error!(code = finding.kind.code(), "the database was restored or changed: {finding}");
    }
    tracing::error!("everything is frozen until an admin runs `sluice recover`");
    store.suspect(findings, message).await?;
    set_open_aside(store).await
}

/// Leaves every open write to a person.
async fn set_open_aside(store: &Store) -> Result<Vec<HoldId>, StoreError> {
    let (mut moved, mut after) = (Vec::new(), HoldId::from_bits(0));
    loop {
        let page = store.after_restore(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(moved) };
        after = *last;
        moved.extend(page);
    }
}

/// Keeps the file close behind the database.
pub(crate) async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    while tick(&mut stop, EVERY, std::future::pending()).await {
        step(&gw).await;
    }
    // The last word of an orderly end: a copy made before it is behind.
    step(&gw).await;
}

/// One look: the file follows the database. What a server lacks after a reconnect is put on record, as often as it takes.
pub async fn step(gw: &Gateway) {
    if gw.recovery.is_suspected() && gw.store.missing_ground().is_none() {
        return;
    }
    if let Some(change) = gw.store.take_server_change() {
        tell_of_change(gw, &change).await;
    }
    if let Err(no) = remember(gw).await
        && no.refusal.code() != Code::RecoveryStateFile
    {
        tracing::warn!(
            code = no.refusal.code().as_str(),
            "the state file does not follow the database: {}",
            no.refusal
        );
    }
}
