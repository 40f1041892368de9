//! Recovery: what this node last knew to be durable, kept in a state file outside the database.
//!
//! Takes positions of the audit logs; gives them back at the next start, where [`start`] compares them with the
//! database. Promise: before an effect can leave and before a stop is acknowledged, the state file holds the position
//! of its audit entry, so a database that lacks the entry is detected. Positions are reserved in blocks ahead of time,
//! so that the effects of a crash are never taken for a restore.
//!
//! Callers that wait for the file at the same time share one write. Calls that neither arm an effect nor stop one do
//! not wait at all.

pub mod decide;
pub mod place;
pub mod start;
pub(crate) mod state_file;
pub mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::audit::note::SignedNote;
use sluice_core::ids::MessageId;
use sluice_core::recovery::{
    DatabaseFacts, DatabaseSuspicion, GatewayState, LoadedStateFile, LogMark, RESERVED, RecoveryFinding, SignedMark,
    check_log_unchanged,
};
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId, NodeName};
use sluice_services::CallError;
use sluice_services::timer::tick;
use sluice_store::{MessageSeverity, OutboxMessage, RememberedLog, ServerChange, Store, StoreError};
use tokio::sync::watch;

use crate::Gateway;
use crate::gateway::FatalGatewayError;

/// How often the file is updated without a request.
const EVERY: Duration = Duration::from_millis(500);
/// How long a stop waits for the file.
const STOP_WAITS: Duration = Duration::from_secs(2);
/// Writes that are set aside for a person in one transaction.
const PAGE: u32 = 500;

/// The paths of the files.
#[derive(Debug, Clone)]
pub(crate) struct RecoveryFiles {
    pub state: PathBuf,
    pub checkpoints: PathBuf,
    /// Whether the files lie in the data folder, because no better place was available.
    pub in_data: bool,
}

/// The state of a node that is kept outside its database.
#[derive(Debug)]
pub struct RecoveryMemory {
    files: RecoveryFiles,
    own: Vec<NodeName>,
    /// Counts the requests to write the file.
    asked: AtomicU64,
    kept: tokio::sync::Mutex<RememberedStateFile>,
    suspected: AtomicBool,
    /// Whether the last write of the file failed.
    failing: AtomicBool,
    /// The last signed checkpoint of this node's own log.
    latest: Mutex<Option<Arc<str>>>,
}

/// The content of the file, and the number of requests it covers.
#[derive(Debug)]
struct RememberedStateFile {
    state: GatewayState,
    served: u64,
}

/// Why the file was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateFileWriteError {
    #[error("the database is not trusted")]
    Suspected,
    #[error("the database lost entries that the state file remembers")]
    Regressed(Vec<RecoveryFinding>),
    #[error("the state file cannot be written: {0}")]
    File(std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RecoveryMemory {
    fn new(files: RecoveryFiles, own: Vec<NodeName>, state: GatewayState) -> Self {
        let suspected = AtomicBool::new(state.suspicion.is_some());
        let signed = own.first().and_then(|log| state.logs.get(log)?.checkpoint.as_ref());
        let latest = Mutex::new(signed.map(|signed| Arc::from(signed.note.as_str())));
        Self {
            files,
            own,
            asked: AtomicU64::new(0),
            kept: tokio::sync::Mutex::new(RememberedStateFile { state, served: 0 }),
            suspected,
            failing: AtomicBool::new(false),
            latest,
        }
    }

    /// Whether the database is not trusted: then nothing is sent or signed.
    #[must_use]
    pub fn is_suspected(&self) -> bool {
        self.suspected.load(Ordering::SeqCst)
    }

    /// The last signed checkpoint of this node's log, for people to store elsewhere.
    #[must_use]
    pub fn latest_checkpoint(&self) -> Option<Arc<str>> {
        self.latest.lock().clone()
    }

    /// Writes the current durable positions. Everything committed before the call is in the file when it returns.
    async fn remember(&self, store: &Store) -> Result<(), StateFileWriteError> {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut kept = self.kept.lock().await;
        if let Some(findings) = store.missing_acknowledged() {
            return Err(StateFileWriteError::Regressed(findings));
        }
        if self.is_suspected() {
            return Err(StateFileWriteError::Suspected);
        }
        if kept.served >= ticket {
            return Ok(());
        }
        // Every caller with a ticket has committed before the positions are read.
        let covers = self.asked.load(Ordering::SeqCst);
        let next = self.followed(store, &kept.state).await?;
        if next != kept.state {
            self.write(&mut kept, next).await?;
        }
        kept.served = covers;
        Ok(())
    }

    /// Notes that a checkpoint was signed and stored in the database.
    async fn remember_checkpoint(
        &self,
        store: &Store,
        log: &NodeName,
        size: u64,
        note: &SignedNote,
    ) -> Result<(), StateFileWriteError> {
        let text = note.to_string();
        let (path, line) = (self.files.checkpoints.clone(), text.clone());
        let length =
            blocking(move || state_file::append_checkpoint(&path, &line)).await.map_err(StateFileWriteError::File)?;
        let mut kept = self.kept.lock().await;
        let mut next = self.followed(store, &kept.state).await?;
        next.checkpoints_length = length;
        if let Some(mark) = next.logs.get_mut(log) {
            mark.checkpoint = Some(SignedMark { size, note: text.clone() });
        }
        self.write(&mut kept, next).await?;
        if self.own.first() == Some(log) {
            *self.latest.lock() = Some(text.into());
        }
        Ok(())
    }

    /// The new content of the file.
    async fn followed(&self, store: &Store, state: &GatewayState) -> Result<GatewayState, StateFileWriteError> {
        let own = |log: &&NodeName| self.own.contains(log);
        let asked = state.logs.keys().filter(own).map(|log| (log.clone(), remembered(state, log)));
        // Over a connection that is free of other work: a stop waits for this too.
        let facts = store.with_stop_reads().recovery_facts(state.node.clone(), asked.collect()).await?;
        let mut findings = Vec::new();
        for (log, mark) in &state.logs {
            let there = facts.logs.get(log);
            let size = there.map_or(0, |there| there.size);
            if self.own.contains(log) || size < mark.size {
                findings.extend(check_log_unchanged(log, mark, there).err());
            }
        }
        if !findings.is_empty() {
            return Err(StateFileWriteError::Regressed(findings));
        }
        Ok(GatewayState { logs: marks(&self.own, Some(state), &facts), ..state.clone() })
    }

    async fn write(&self, kept: &mut RememberedStateFile, next: GatewayState) -> Result<(), StateFileWriteError> {
        let (path, content) = (self.files.state.clone(), next.clone());
        blocking(move || state_file::write(&path, &content)).await.map_err(StateFileWriteError::File)?;
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

/// What the file knows about a log, as a query to the database.
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

/// Writes the current durable positions: called before an effect may leave and before a stop is acknowledged.
///
/// # Errors
/// When the file cannot be written, or the database is not trusted: then nothing may leave.
pub(crate) async fn remember(gw: &Gateway) -> Result<(), CallError> {
    let failed = match gw.recovery.remember(&gw.store).await {
        Ok(()) => {
            gw.recovery.failing.store(false, Ordering::SeqCst);
            return Ok(());
        }
        Err(failed) => failed,
    };
    match failed {
        StateFileWriteError::Suspected => Err(CallError::new(Code::RecoveryRequired)),
        StateFileWriteError::Regressed(findings) => {
            suspect(gw, findings).await?;
            Err(CallError::new(Code::RecoveryRequired))
        }
        StateFileWriteError::Store(error) => Err(error.into()),
        StateFileWriteError::File(error) => {
            unwritable(gw, &error).await;
            Err(CallError::new(Code::RecoveryStateFile))
        }
    }
}

/// The same for a stop that has happened: it holds even if the file cannot be written, and does not wait for a slow
/// disk.
pub async fn remember_stop(gw: &Gateway) {
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
pub(crate) async fn remember_signed_checkpoint(
    gw: &Gateway,
    log: &NodeName,
    size: u64,
    note: &SignedNote,
) -> Result<(), CallError> {
    match gw.recovery.remember_checkpoint(&gw.store, log, size, note).await {
        Ok(()) => Ok(()),
        Err(StateFileWriteError::Suspected) => Err(CallError::new(Code::RecoveryRequired)),
        Err(StateFileWriteError::Regressed(findings)) => suspect(gw, findings).await,
        Err(StateFileWriteError::Store(error)) => Err(error.into()),
        Err(StateFileWriteError::File(error)) => {
            unwritable(gw, &error).await;
            Err(CallError::new(Code::RecoveryStateFile))
        }
    }
}

/// Writes the state file again if it was removed or changed. Returns its path in that case.
pub(crate) async fn restore_state_file(gw: &Gateway) -> Option<PathBuf> {
    let mut kept = gw.recovery.kept.lock().await;
    let path = gw.recovery.files.state.clone();
    let read = path.clone();
    let found = blocking(move || Ok(state_file::read(&read))).await.ok()?;
    if matches!(&found, LoadedStateFile::State(found) if **found == kept.state) {
        return None;
    }
    let next = kept.state.clone();
    let written = gw.recovery.write(&mut kept, next).await;
    drop(kept);
    match written {
        Ok(()) => Some(path),
        Err(StateFileWriteError::File(error)) => {
            unwritable(gw, &error).await;
            None
        }
        Err(_) => None,
    }
}

/// Stops all sending while the file cannot be written, and notifies people once.
async fn unwritable(gw: &Gateway, error: &std::io::Error) {
    if !gw.recovery.failing.swap(true, Ordering::SeqCst) {
        tracing::error!("the state file cannot be written, so nothing is sent: {error}");
        let body = serde_json::json!({
            "text": "The state file outside the database cannot be written, so nothing is sent. Look at \
                `recovery.state_file` and the disk it is on.",
        });
        let topic = "recovery.state_file".into();
        let message =
            OutboxMessage { id: MessageId::mint(gw.ids.as_ref()), topic, severity: MessageSeverity::Critical, body };
        if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
            tracing::error!(code = error.code(), "an alert could not be stored");
        }
    }
    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) {
        // A failing disk is worse than a full one: nothing on it can be trusted, and the database may fail next.
        return gw.give_up(FatalGatewayError::Record);
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
        // Beyond the reservation the next start would wrongly report tampering.
        gw.give_up(FatalGatewayError::Record);
    }
}

/// Notifies people that another server answers and has everything that this node knows of. Only the other nodes know
/// what they had acknowledged in the last moments.
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
    let message = OutboxMessage { id, topic: "store.failover".into(), severity: MessageSeverity::Warning, body };
    if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
        tracing::error!(code = error.code(), "an alert could not be stored");
    }
    gw.signals.letters.notify_one();
}

/// Freezes everything, sets every open write aside for a person and notifies people: the database is not trusted.
///
/// # Errors
/// When it cannot be recorded. This process is frozen in any case.
pub(crate) async fn suspect(gw: &Gateway, findings: Vec<RecoveryFinding>) -> Result<(), CallError> {
    gw.recovery.suspected.store(true, Ordering::SeqCst);
    let mut kept = gw.recovery.kept.lock().await;
    let before = kept.state.suspicion.clone();
    let mut all = before.as_ref().map(|before| before.findings.clone()).unwrap_or_default();
    all.extend(findings.into_iter().filter(|finding| !before.iter().any(|known| known.findings.contains(finding))));
    let suspicion = DatabaseSuspicion {
        at: before.as_ref().map_or_else(|| gw.now(), |before| before.at),
        findings: all.clone(),
        investigating: before.is_some_and(|before| before.investigating),
    };
    let next = GatewayState { suspicion: Some(suspicion), ..kept.state.clone() };
    if let Err(error) = gw.recovery.write(&mut kept, next).await {
        tracing::error!("could not note in the state file that the database is suspected: {error}");
    }
    drop(kept);
    let moved = freeze(&gw.store, all, MessageId::mint(gw.ids.as_ref())).await?;
    moved.into_iter().for_each(|hold| gw.notify_hold_changed(hold));
    gw.signals.events.notify_written();
    gw.signals.letters.notify_one();
    Ok(())
}

/// Marks a database that was just restored from a backup: frozen, recorded, every open write set aside for a person.
/// The gateway that starts on it finds it suspected, whatever the state file of that machine says.
///
/// # Errors
/// When it cannot be recorded.
pub async fn mark_restored(
    store: &Store,
    finding: RecoveryFinding,
    message: MessageId,
) -> Result<Vec<HoldId>, StoreError> {
    freeze(store, vec![finding], message).await
}

/// Places the freeze, sends the alert, and sets every open write aside for a person.
async fn freeze(store: &Store, findings: Vec<RecoveryFinding>, message: MessageId) -> Result<Vec<HoldId>, StoreError> {
    for finding in &findings {
        tracing::error!(code = finding.kind.code(), "the database was restored or changed: {finding}");
    }
    tracing::error!("everything is frozen until an admin runs `sluice recover`");
    store.suspect(findings, message).await?;
    set_open_aside(store).await
}

/// Sets every open write aside for a person.
async fn set_open_aside(store: &Store) -> Result<Vec<HoldId>, StoreError> {
    let (mut moved, mut after) = (Vec::new(), HoldId::from_bits(0));
    loop {
        let page = store.require_person_after_restore(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(moved) };
        after = *last;
        moved.extend(page);
    }
}

/// Keeps the file up to date with the database.
pub(crate) async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    while tick(&mut stop, EVERY, std::future::pending()).await {
        step(&gw).await;
    }
    // The last update at an orderly shutdown: a database copy made before it is older than the file.
    step(&gw).await;
}

/// One step: updates the file from the database. Entries that a server lacks after a reconnect are recorded, with
/// retries.
pub async fn step(gw: &Gateway) {
    if gw.recovery.is_suspected() && gw.store.missing_acknowledged().is_none() {
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
            "the state file could not be updated from the database: {}",
            no.refusal
        );
    }
}
