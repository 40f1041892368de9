//! The filesystem service: files inside the folders that an operator opened.
//!
//! Takes reads and permitted writes on absolute paths; answers from the disk itself. Promise: nothing outside an opened
//! root is read, listed or written, however a path is written and even if names are swapped meanwhile; a write is
//! complete or absent; the replaced content is kept until it can no longer be undone; and the outcome of an interrupted
//! write is read from the disk, without asking a person.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use sluice_core::hold::{Hold, Permit};
use sluice_core::policy::LivePolicy;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, AgentName, BoxedFuture, CapabilityName, Clock, HoldId, Millis};
use sluice_store::{RecordWrittenFiles, Store};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::arguments::FileArguments;
use self::plan::{FilePlan, FilePlanContext};
use self::roots::{OpenedRoots, RootedPath};
use self::screen::{CallFileScreen, FileScreener};
use self::staged_file::trouble;
use self::visibility::FolderVisibility;
use self::watch::FileWatchTable;
use super::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};
use crate::intake::{ContentRecipient, Intake};

mod arguments;
pub mod client_files;
mod content;
mod edit;
pub mod fingerprint;
mod found;
mod hosting;
mod open;
mod perform;
mod plan;
mod read;
pub mod roots;
mod screen;
mod search;
mod staged_file;
mod trash;
mod visibility;
mod walk;
mod watch;

pub use hosting::{HostedFolder, HostedTextOutcome};
pub use roots::{AgentRoot, AgentRoots, FilesystemOpenError, RootAgents};
pub use watch::{FileChange, FileChangeKind, FileChanges};

/// How many calls are processed at the same time. Each may hold a file or two in memory.
const AT_ONCE: usize = 4;

/// The service.
#[derive(Debug, Clone)]
pub struct FilesystemService(Arc<FilesystemInner>);

#[derive(Debug)]
struct FilesystemInner {
    scope: OpenedRoots,
    watches: FileWatchTable,
    clock: SharedClock,
    /// Bounds the memory and the threads of this service.
    turns: Arc<Semaphore>,
    /// A lock: writes of this gateway check and replace one at a time.
    writing: Mutex<()>,
    /// Screens what agents are shown; none if no agent is shown anything.
    screening: Option<FileScreener>,
}

/// A clock inside a struct that implements `Debug`.
struct SharedClock(Arc<dyn Clock>);

impl std::fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl FilesystemService {
    /// Opens every root.
    ///
    /// # Errors
    /// When a root cannot be opened or the kernel cannot confine paths to it.
    pub fn new(roots: AgentRoots, clock: Arc<dyn Clock>) -> Result<Self, FilesystemOpenError> {
        Ok(Self::start(OpenedRoots::open(roots)?, clock, None))
    }

    /// Opens every root. Entries inside a folder are judged by these rules too, and file content that is not the
    /// person's own passes through this intake before agents see it.
    ///
    /// # Errors
    /// As [`FilesystemService::new`].
    pub fn screened(
        (policy, intake, store): (Arc<LivePolicy>, Arc<Intake>, Arc<Store>),
        roots: AgentRoots,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, FilesystemOpenError> {
        Ok(Self::start(OpenedRoots::open(roots)?.judged_by(policy), clock, Some(FileScreener::new(intake, store))))
    }

    fn start(scope: OpenedRoots, clock: Arc<dyn Clock>, screening: Option<FileScreener>) -> Self {
        let watches = FileWatchTable::new(Arc::clone(&clock));
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let writing = Mutex::new(());
        Self(Arc::new(FilesystemInner { scope, watches, clock: SharedClock(clock), turns, writing, screening }))
    }

    /// The changes of a watch without the names that are withheld from agents.
    ///
    /// # Errors
    /// When they cannot be screened.
    pub async fn screen_changes(
        &self,
        reader: ContentRecipient,
        mut changes: FileChanges,
    ) -> Result<FileChanges, Refusal> {
        let runtime = Handle::current();
        let screened = self.blocking(move |inner| {
            let Some(first) = changes.events.first() else { return Ok(changes) };
            let place = inner.scope.locate(&reader.agent, &first.path)?;
            let Some(screen) = inner.screen(runtime, reader)? else { return Ok(changes) };
            let names: Vec<String> = changes.events.iter().map(|change| change.path.clone()).collect();
            let mut may = screen.names(&place, &names)?.into_iter();
            changes.events.retain(|_| may.next().unwrap_or(false));
            Ok(changes)
        });
        screened.await.unwrap_or_else(|| Err(broken()))
    }

    /// The only absolute spelling of a path, for policy to judge. Does not access the disk.
    ///
    /// # Errors
    /// When it is not a path inside a root that is open to the agent.
    pub fn normalise(&self, agent: &AgentName, text: &str) -> Result<String, Refusal> {
        self.0.scope.normalise(agent, text)
    }

    /// The roots open to an agent, and whether each is read-only.
    #[must_use]
    pub fn roots_of(&self, agent: &AgentName) -> Vec<(String, bool)> {
        self.0.scope.open_to(agent).map(|opened_root| (opened_root.path.clone(), opened_root.read_only)).collect()
    }

    /// The changes of this agent's watch after a number; nothing if there is no such watch.
    #[must_use]
    pub fn changes(&self, agent: &AgentName, watch_id: &str, after: u64) -> Option<FileChanges> {
        self.0.watches.changes(&self.0.scope, agent, watch_id, after)
    }

    /// Like [`FilesystemService::changes`], but waits for the first change, up to the given time.
    pub async fn changes_within(
        &self,
        agent: &AgentName,
        watch_id: &str,
        after: u64,
        wait: Millis,
    ) -> Option<FileChanges> {
        let look = async {
            loop {
                let mut heard = std::pin::pin!(self.0.watches.heard.notified());
                // From here on no change is missed.
                heard.as_mut().enable();
                let changes = self.changes(agent, watch_id, after)?;
                if !changes.events.is_empty() || changes.overflow {
                    return Some(changes);
                }
                heard.await;
            }
        };
        match tokio::time::timeout(wait.as_duration(), look).await {
            Ok(changes) => changes,
            Err(_) => self.changes(agent, watch_id, after),
        }
    }

    /// The writes for which old contents lie in a trash.
    pub async fn kept(&self) -> Vec<HoldId> {
        let look = |inner: &FilesystemInner| {
            let now = inner.clock.0.now();
            let all =
                inner.scope.opened_roots.iter().map(|opened_root| trash::kept(opened_root, now).unwrap_or_default());
            all.flatten().collect()
        };
        self.blocking(look).await.unwrap_or_default()
    }

    /// Deletes what was kept for a write that can no longer be undone.
    pub async fn sweep(&self, hold: HoldId) {
        let sweep = move |inner: &FilesystemInner| {
            inner
                .scope
                .opened_roots
                .iter()
                .filter(|opened_root| !opened_root.read_only)
                .try_for_each(|opened_root| trash::forget(opened_root, hold))
        };
        if let Some(Err(refusal)) = self.blocking(sweep).await {
            tracing::warn!(hold.id = %hold, code = refusal.code().as_str(), "what was kept for {hold} could not be removed");
        }
    }

    /// Ends a watch of this agent. Returns whether there was one.
    pub fn unwatch(&self, agent: &AgentName, watch_id: &str) -> bool {
        self.0.watches.end(agent, watch_id)
    }

    /// Runs blocking work on a thread for it. Returns nothing if the work panicked.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FilesystemInner) -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.0.turns).acquire_owned().await.ok()?;
        let inner = Arc::clone(&self.0);
        let work = move || {
            // Released when the work ends, even if nobody waits for it any more.
            let _turn = turn;
            work(&inner)
        };
        tokio::task::spawn_blocking(work).await.ok()
    }
}

impl FilesystemInner {
    /// The part of a folder that the rules in force let this call see.
    fn sight(&self, ask: &FilesystemRead, place: &RootedPath) -> FolderVisibility {
        FolderVisibility::of(&self.scope, &ask.action, place, self.clock.0.now())
    }

    /// The screen for a call, if content is screened.
    fn screen(&self, runtime: Handle, reader: ContentRecipient) -> Result<Option<CallFileScreen<'_>>, Refusal> {
        self.screening
            .as_ref()
            .map(|screening| screening.of(&self.scope, (runtime, reader), self.clock.0.now()))
            .transpose()
    }

    fn answer(&self, ask: &FilesystemRead, runtime: Handle) -> Result<Value, Refusal> {
        let arguments = FileArguments(ask.action.arguments());
        let place = self.scope.locate(ask.action.agent(), arguments.need("path")?)?;
        let screen = self.screen(runtime, ask.reader.clone())?;
        let mut answer = self.found(ask, (arguments, place.clone()), screen.as_ref())?;
        if let Some(screen) = &screen {
            hide_names(screen, &place, &mut answer)?;
        }
        Ok(answer)
    }

    fn found(
        &self,
        ask: &FilesystemRead,
        (arguments, place): (FileArguments<'_>, RootedPath),
        screen: Option<&CallFileScreen<'_>>,
    ) -> Result<Value, Refusal> {
        match ask.action.capability().as_str() {
            "filesystem.read" => read::read(&self.scope, &place, arguments, screen),
            "filesystem.list" => read::list(&self.scope, &place, &self.sight(ask, &place), arguments),
            "filesystem.stat" => read::stat(&self.scope, &place),
            "filesystem.search" => search::search(&self.scope, &place, self.sight(ask, &place), arguments),
            "filesystem.search_content" => {
                content::search_content(&self.scope, &place, self.sight(ask, &place), arguments, screen)
            }
            "filesystem.watch" => {
                let watch_id = format!("watch_{:032x}", ask.call.bits());
                let (agent, sight) = (ask.action.agent(), self.sight(ask, &place));
                self.watches.begin(&self.scope, watch::NewFileWatch { agent, place, watch_id, arguments, sight })
            }
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    fn prepare(&self, hold: &Hold, runtime: &Handle) -> Result<PreparedWrite, Refusal> {
        let Some(plan) = plan::make(&self.scope, hold, self.clock.0.now())? else {
            return Ok(PreparedWrite::default());
        };
        self.note_written(hold, &plan, runtime)?;
        Ok(PreparedWrite { handle: None, before: Some((plan.write()?, plan.before())) })
    }

    /// Remembers what an agent is about to write into a trusted folder: for a later reader, this content comes from an
    /// agent.
    fn note_written(&self, hold: &Hold, plan: &FilePlan, runtime: &Handle) -> Result<(), Refusal> {
        let Some(screening) = &self.screening else { return Ok(()) };
        // A copy or move from one trusted folder to another does not change the author.
        let source =
            FileArguments(hold.action.arguments()).text("source").map(|path| self.scope.locate(hold.agent(), path));
        if let Some(Ok(source)) = source
            && self.scope.opened_root(&source)?.trusted
        {
            return Ok(());
        }
        let is_trusted = |root: &str| {
            self.scope.opened_roots.iter().any(|opened_root| opened_root.path == root && opened_root.trusted)
        };
        let written = plan.objects.iter().filter(|object| is_trusted(&object.root) && !object.is_in_trash());
        let files: Vec<(String, String)> =
            written.filter_map(|object| Some((object.path(), object.after.checksum()?.to_owned()))).collect();
        if files.is_empty() || hold.action.capability().as_str() == "filesystem.restore" {
            return Ok(());
        }
        let written = RecordWrittenFiles { hold: hold.id, agent: hold.agent().clone(), files };
        let noted = runtime.block_on(screening.store().record_written_files(written));
        noted.map_err(|error| Refusal::new(Code::FilesFailed).with_source(error))
    }

    fn perform(
        &self,
        permit: Permit,
        before: Option<&[u8]>,
        call: (Handle, ContentRecipient),
    ) -> Result<CompletedWrite, WriteError> {
        let working = FilePlanContext {
            keeps: true,
            scope: &self.scope,
            hold: permit.hold(),
            action: permit.action(),
            now: self.clock.0.now(),
        };
        let screen = self.screen(call.0, call.1).map_err(trouble)?;
        let Some(before) = before else { return show(working, screen.as_ref()) };
        let plan = FilePlan::read(before).map_err(trouble)?;
        if plan.hold != permit.hold() {
            return Err(WriteError::refused(Code::ExecuteRefusedMismatch));
        }
        let _alone = self.writing.lock();
        perform::perform(working, &plan, screen.as_ref())
    }

    fn undo(&self, done: &Hold, before: &[u8]) -> Result<CompletedWrite, WriteError> {
        let plan = FilePlan::read(before).map_err(trouble)?;
        if plan.hold != done.id {
            return Err(WriteError::refused(Code::ExecuteRefusedMismatch));
        }
        let _alone = self.writing.lock();
        perform::undo(&self.scope, &plan)
    }

    fn look_up(&self, hold: &Hold, before: Option<&[u8]>) -> LookupOutcome {
        // A dry run has no effect and can be repeated.
        let Some(before) = before else { return LookupOutcome::Absent };
        match FilePlan::read(before) {
            Ok(plan) if hold.reverses.is_some() => perform::look_up_undo(&self.scope, &plan),
            Ok(plan) => perform::look_up(&self.scope, &hold.action, &plan),
            Err(_) => LookupOutcome::Unknown,
        }
    }

    fn present(&self, before: &[u8]) -> Result<ObjectFingerprint, Refusal> {
        let plan = FilePlan::read(before)?;
        plan.look(&self.scope).map(|now| plan.with(&now))
    }
}

/// The part of a read that its worker thread needs.
struct FilesystemRead {
    action: Action,
    call: sluice_core::CallId,
    reader: ContentRecipient,
}

/// The lists in answers, and the field of an entry that holds its name.
const LISTS: [(&str, &str); 5] =
    [("entries", "name"), ("matches", "path"), ("groups", "key"), ("counts", "key"), ("files", "")];

/// Removes names from an answer that are withheld from agents: a name can be an attack, like content.
fn hide_names(screen: &CallFileScreen<'_>, place: &RootedPath, answer: &mut Value) -> Result<(), Refusal> {
    let Some(answer) = answer.as_object_mut() else { return Ok(()) };
    for (list, key) in LISTS {
        let Some(entries) = answer.get_mut(list).and_then(Value::as_array_mut) else { continue };
        let name =
            |entry: &Value| if key.is_empty() { entry.as_str() } else { entry.get(key)?.as_str() }.map(str::to_owned);
        let names: Vec<String> = entries.iter().map(|entry| name(entry).unwrap_or_default()).collect();
        let may = screen.names(place, &names)?;
        let withheld = may.iter().filter(|may| !**may).count();
        let mut may = may.into_iter();
        entries.retain(|_| may.next().unwrap_or(false));
        if withheld > 0 {
            answer.insert("names_withheld".into(), withheld.into());
        }
    }
    Ok(())
}

/// An edit as a dry run.
fn show(working: FilePlanContext<'_>, screen: Option<&CallFileScreen<'_>>) -> Result<CompletedWrite, WriteError> {
    if working.action.capability().as_str() != "filesystem.edit" || !working.arguments().flag("dry_run") {
        return Err(WriteError::Refused(Refusal::new(Code::FilesFailed).with_source("a write has no plan")));
    }
    let edit = working.edit().map_err(trouble)?;
    Ok(CompletedWrite {
        receipt: "shown".into(),
        result: edit.answer("preview", screen),
        after: None,
        undo_until: None,
    })
}

impl Service for FilesystemService {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("filesystem.")
    }

    fn describe_targets(&self, action: &Action) -> Vec<String> {
        action.found().to_vec()
    }

    /// Also refuses early, because it computes the write.
    fn describe_current_state<'a>(&'a self, action: &'a Action) -> BoxedFuture<'a, Result<Vec<String>, Refusal>> {
        if !changes_files(action.capability()) {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        Box::pin(async move {
            let action = action.clone();
            let seen = self.blocking(move |inner| found::lines(&inner.scope, &action, inner.clock.0.now()));
            seen.await.unwrap_or_else(|| Err(broken()))
        })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async move {
            let asked =
                FilesystemRead { action: ask.action.clone(), call: ask.call, reader: ContentRecipient::of(ask) };
            let runtime = Handle::current();
            self.blocking(move |inner| inner.answer(&asked, runtime)).await.unwrap_or_else(|| Err(broken()))
        })
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async move {
            let (hold, runtime) = (hold.clone(), Handle::current());
            let prepared = self.blocking(move |inner| inner.prepare(&hold, &runtime)).await;
            prepared.unwrap_or_else(|| Err(broken())).map_err(trouble)
        })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        before: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            let (before, call) = (before.map(<[u8]>::to_vec), (Handle::current(), ContentRecipient::of_write(hold)));
            let performed = self.blocking(move |inner| inner.perform(permit, before.as_deref(), call)).await;
            performed.unwrap_or(Err(WriteError::Unclear))
        })
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, before: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(async move {
            let (hold, before) = (hold.clone(), before.map(<[u8]>::to_vec));
            self.blocking(move |inner| inner.look_up(&hold, before.as_deref())).await.unwrap_or(LookupOutcome::Unknown)
        })
    }

    fn current_fingerprint<'a>(
        &'a self,
        _done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(async move {
            let before = before.to_vec();
            let present = self.blocking(move |inner| inner.present(&before)).await;
            present.unwrap_or_else(|| Err(broken())).map_err(trouble)
        })
    }

    fn undo<'a>(
        &'a self,
        permit: Permit,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            let (done, before) = (done.clone(), before.to_vec());
            let undone = self.blocking(move |inner| {
                // Spent here, on the thread that does the work.
                let _spent = permit;
                inner.undo(&done, &before)
            });
            undone.await.unwrap_or(Err(WriteError::Unclear))
        })
    }

    fn discard_undo_data<'a>(&'a self, before: &'a [u8]) -> BoxedFuture<'a, ()> {
        Box::pin(async move {
            let before = before.to_vec();
            let forgotten = self
                .blocking(move |inner| FilePlan::read(&before).and_then(|plan| perform::forget(&inner.scope, &plan)));
            if let Some(Err(refusal)) = forgotten.await {
                tracing::warn!(code = refusal.code().as_str(), "old contents of a write could not be removed");
            }
        })
    }
}

/// Whether a capability changes files. A capability that only reads has no state that an approval could be bound to.
fn changes_files(capability: &CapabilityName) -> bool {
    let verb = capability.as_str().strip_prefix("filesystem.").unwrap_or_default();
    ["write", "append", "edit", "copy", "move", "delete", "restore"].contains(&verb)
}

fn broken() -> Refusal {
    Refusal::new(Code::FilesFailed).with_source("the work on the files failed unexpectedly")
}

#[cfg(test)]
mod tests;
