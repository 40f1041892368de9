//! The filesystem service: files below the folders an operator opened.
//!
//! Takes reads and permitted writes on absolute paths; answers from the disk itself. Promise: nothing
//! outside an opened root is ever read, listed or written, whatever a path looks like and whoever swaps
//! names meanwhile; a write is whole or absent; what it replaced is kept until it can no longer be
//! undone; and a write that was cut off is settled by looking, not by asking a person.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use sluice_core::hold::{Hold, Permit};
use sluice_core::policy::LivePolicy;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Action, AgentName, CapabilityName, Clock, HoldId, Span};
use sluice_store::{Store, WrittenFiles};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::arguments::Arguments;
use self::plan::{Plan, Working};
use self::put::trouble;
use self::roots::{Place, Scope};
use self::screen::{Screen, Screening};
use self::sight::Sight;
use self::watch::Watches;
use super::{Ask, Found, Performed, Prepared, ReadSource, Service, Trouble, Work};
use crate::intake::{Intake, Reader};

mod arguments;
mod carry;
pub(crate) mod client_files;
mod content;
mod edit;
mod found;
mod hosting;
mod open;
mod plan;
pub(crate) mod print;
mod put;
mod read;
pub(crate) mod roots;
mod screen;
mod search;
mod sight;
mod trash;
mod walk;
mod watch;

pub(crate) use hosting::{HostedFolder, HostedText};
pub use roots::{Agents, Root, Roots, StartError};
pub use watch::{Change, ChangeKind, Changes};

/// How many calls are worked on at the same time. Each may hold a file or two in memory.
const AT_ONCE: usize = 4;

/// The service.
#[derive(Debug, Clone)]
pub struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    scope: Scope,
    watches: Watches,
    clock: Shared,
    /// Bounds the memory and the threads of this service.
    turns: Arc<Semaphore>,
    /// Writes of this gateway check and replace one at a time.
    writing: Mutex<()>,
    /// Screens what agents are shown; nothing where the files are only worked on.
    screening: Option<Screening>,
}

/// A clock that can stand in a struct that is printed.
struct Shared(Arc<dyn Clock>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Files {
    /// Opens every root.
    ///
    /// # Errors
    /// When a root cannot be opened or the kernel cannot confine paths to it.
    pub fn new(roots: Roots, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        Ok(Self::start(Scope::open(roots)?, clock, None))
    }

    /// Opens every root; what lies below a folder is judged by these rules, too, and what agents are shown of files
    /// that are not the person's own passes this way in.
    ///
    /// # Errors
    /// As [`Files::new`].
    pub fn screened(
        (policy, intake, store): (Arc<LivePolicy>, Arc<Intake>, Arc<Store>),
        roots: Roots,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        Ok(Self::start(Scope::open(roots)?.judged_by(policy), clock, Some(Screening::new(intake, store))))
    }

    fn start(scope: Scope, clock: Arc<dyn Clock>, screening: Option<Screening>) -> Self {
        let watches = Watches::new(Arc::clone(&clock));
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let writing = Mutex::new(());
        Self(Arc::new(Inner { scope, watches, clock: Shared(clock), turns, writing, screening }))
    }

    /// The changes of a watch without the names that are kept from agents.
    ///
    /// # Errors
    /// When they cannot be screened.
    pub async fn screen_changes(&self, reader: Reader, mut changes: Changes) -> Result<Changes, Refusal> {
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

    /// The one absolute spelling of a path, for policy to judge. Looks at no file.
    ///
    /// # Errors
    /// When it is not a path below a root that is open to the agent.
    pub fn normalise(&self, agent: &AgentName, text: &str) -> Result<String, Refusal> {
        self.0.scope.normalise(agent, text)
    }

    /// The roots open to an agent, and whether each is only read.
    #[must_use]
    pub fn roots_of(&self, agent: &AgentName) -> Vec<(String, bool)> {
        self.0.scope.open_to(agent).map(|ground| (ground.path.clone(), ground.read_only)).collect()
    }

    /// What a watch of this agent saw after a number; nothing if it has no such watch.
    #[must_use]
    pub fn changes(&self, agent: &AgentName, watch_id: &str, after: u64) -> Option<Changes> {
        self.0.watches.changes(&self.0.scope, agent, watch_id, after)
    }

    /// As [`Files::changes`], but waits for the first one, at most so long.
    pub async fn changes_within(&self, agent: &AgentName, watch_id: &str, after: u64, wait: Span) -> Option<Changes> {
        let look = async {
            loop {
                let mut heard = std::pin::pin!(self.0.watches.heard.notified());
                // From here on nothing that happens is missed.
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
        let look = |inner: &Inner| {
            let now = inner.clock.0.now();
            let all = inner.scope.grounds.iter().map(|ground| trash::kept(ground, now).unwrap_or_default());
            all.flatten().collect()
        };
        self.blocking(look).await.unwrap_or_default()
    }

    /// Removes what was kept for a write that can no longer be undone.
    pub async fn sweep(&self, hold: HoldId) {
        let sweep = move |inner: &Inner| {
            inner
                .scope
                .grounds
                .iter()
                .filter(|ground| !ground.read_only)
                .try_for_each(|ground| trash::forget(ground, hold))
        };
        if let Some(Err(refusal)) = self.blocking(sweep).await {
            tracing::warn!(hold.id = %hold, code = refusal.code().as_str(), "what was kept for {hold} could not be removed");
        }
    }

    /// Ends a watch of this agent; whether there was one.
    pub fn unwatch(&self, agent: &AgentName, watch_id: &str) -> bool {
        self.0.watches.end(agent, watch_id)
    }

    /// Runs work that blocks, on a thread that may. Gives nothing if the work itself broke down.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> T + Send + 'static) -> Option<T> {
        let turn = Arc::clone(&self.0.turns).acquire_owned().await.ok()?;
        let inner = Arc::clone(&self.0);
        let work = move || {
            // Given back when the work ends, even if nobody waits for it any more.
            let _turn = turn;
            work(&inner)
        };
        tokio::task::spawn_blocking(work).await.ok()
    }
}

impl Inner {
    /// What the rules in force let this call see below a folder.
    fn sight(&self, ask: &Asked, place: &Place) -> Sight {
        Sight::of(&self.scope, &ask.action, place, self.clock.0.now())
    }

    /// The screen of a call, if what agents are shown is screened.
    fn screen(&self, runtime: Handle, reader: Reader) -> Result<Option<Screen<'_>>, Refusal> {
        self.screening
            .as_ref()
            .map(|screening| screening.of(&self.scope, (runtime, reader), self.clock.0.now()))
            .transpose()
    }

    fn answer(&self, ask: &Asked, runtime: Handle) -> Result<Value, Refusal> {
        let arguments = Arguments(ask.action.arguments());
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
        ask: &Asked,
        (arguments, place): (Arguments<'_>, Place),
        screen: Option<&Screen<'_>>,
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
                self.watches.begin(&self.scope, watch::Begin { agent, place, watch_id, arguments, sight })
            }
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    fn prepare(&self, hold: &Hold, runtime: &Handle) -> Result<Prepared, Refusal> {
        let Some(plan) = plan::make(&self.scope, hold, self.clock.0.now())? else { return Ok(Prepared::default()) };
        self.note_written(hold, &plan, runtime)?;
        Ok(Prepared { handle: None, before: Some((plan.write()?, plan.before())) })
    }

    /// Remembers what an agent is about to write into a trusted folder: whoever reads it reads the agent's words.
    fn note_written(&self, hold: &Hold, plan: &Plan, runtime: &Handle) -> Result<(), Refusal> {
        let Some(screening) = &self.screening else { return Ok(()) };
        // What is only copied or moved from one trusted folder to another stays whose it was.
        let source =
            Arguments(hold.action.arguments()).text("source").map(|path| self.scope.locate(hold.agent(), path));
        if let Some(Ok(source)) = source
            && self.scope.ground(&source)?.trusted
        {
            return Ok(());
        }
        let is_trusted = |root: &str| self.scope.grounds.iter().any(|ground| ground.path == root && ground.trusted);
        let written = plan.objects.iter().filter(|object| is_trusted(&object.root) && !object.is_in_trash());
        let files: Vec<(String, String)> =
            written.filter_map(|object| Some((object.path(), object.after.checksum()?.to_owned()))).collect();
        if files.is_empty() || hold.action.capability().as_str() == "filesystem.restore" {
            return Ok(());
        }
        let written = WrittenFiles { hold: hold.id, agent: hold.agent().clone(), files };
        let noted = runtime.block_on(screening.store().note_written(written));
        noted.map_err(|error| Refusal::new(Code::FilesFailed).because(error))
    }

    fn perform(&self, permit: Permit, before: Option<&[u8]>, call: (Handle, Reader)) -> Result<Performed, Trouble> {
        let working = Working {
            keeps: true,
            scope: &self.scope,
            hold: permit.hold(),
            action: permit.action(),
            now: self.clock.0.now(),
        };
        let screen = self.screen(call.0, call.1).map_err(trouble)?;
        let Some(before) = before else { return show(working, screen.as_ref()) };
        let plan = Plan::read(before).map_err(trouble)?;
        if plan.hold != permit.hold() {
            return Err(Trouble::refused(Code::ExecuteRefusedMismatch));
        }
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        carry::perform(working, &plan, screen.as_ref())
    }

    fn undo(&self, done: &Hold, before: &[u8]) -> Result<Performed, Trouble> {
        let plan = Plan::read(before).map_err(trouble)?;
        if plan.hold != done.id {
            return Err(Trouble::refused(Code::ExecuteRefusedMismatch));
        }
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        carry::undo(&self.scope, &plan)
    }

    fn look_up(&self, hold: &Hold, before: Option<&[u8]>) -> Found {
        // A call that only shows leaves nothing, and can be repeated.
        let Some(before) = before else { return Found::Absent };
        match Plan::read(before) {
            Ok(plan) if hold.reverses.is_some() => carry::look_up_undo(&self.scope, &plan),
            Ok(plan) => carry::look_up(&self.scope, &hold.action, &plan),
            Err(_) => Found::Unknown,
        }
    }

    fn present(&self, before: &[u8]) -> Result<Fingerprint, Refusal> {
        let plan = Plan::read(before)?;
        plan.look(&self.scope).map(|now| plan.with(&now))
    }
}

/// What is needed of a read once it is on another thread.
struct Asked {
    action: Action,
    call: sluice_core::CallId,
    reader: Reader,
}

/// Lists in answers, and where in an entry the name is.
const LISTS: [(&str, &str); 5] =
    [("entries", "name"), ("matches", "path"), ("groups", "key"), ("counts", "key"), ("files", "")];

/// Takes names out of an answer that are kept from agents: a name can be an attack as well as a content.
fn hide_names(screen: &Screen<'_>, place: &Place, answer: &mut Value) -> Result<(), Refusal> {
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

/// An edit that is only shown.
fn show(working: Working<'_>, screen: Option<&Screen<'_>>) -> Result<Performed, Trouble> {
    if working.action.capability().as_str() != "filesystem.edit" || !working.arguments().flag("dry_run") {
        return Err(Trouble::Refused(Refusal::new(Code::FilesFailed).because("a write without its plan")));
    }
    let edit = working.edit().map_err(trouble)?;
    Ok(Performed { receipt: "shown".into(), result: edit.answer("preview", screen), after: None, undo_until: None })
}

impl Service for Files {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("filesystem.")
    }

    fn described(&self, action: &Action) -> Vec<String> {
        action.found().to_vec()
    }

    /// Says no early, too: the write is worked out for it.
    fn found<'a>(&'a self, action: &'a Action) -> Work<'a, Result<Vec<String>, Refusal>> {
        if !changes_files(action.capability()) {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        Box::pin(async move {
            let action = action.clone();
            let seen = self.blocking(move |inner| found::lines(&inner.scope, &action, inner.clock.0.now()));
            seen.await.unwrap_or_else(|| Err(broken()))
        })
    }

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(async move {
            let asked = Asked { action: ask.action.clone(), call: ask.call, reader: Reader::of(ask) };
            let runtime = Handle::current();
            self.blocking(move |inner| inner.answer(&asked, runtime)).await.unwrap_or_else(|| Err(broken()))
        })
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
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
    ) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async move {
            let (before, call) = (before.map(<[u8]>::to_vec), (Handle::current(), Reader::of_write(hold)));
            let performed = self.blocking(move |inner| inner.perform(permit, before.as_deref(), call)).await;
            performed.unwrap_or(Err(Trouble::Unclear))
        })
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, before: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(async move {
            let (hold, before) = (hold.clone(), before.map(<[u8]>::to_vec));
            self.blocking(move |inner| inner.look_up(&hold, before.as_deref())).await.unwrap_or(Found::Unknown)
        })
    }

    fn present<'a>(&'a self, _done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>> {
        Box::pin(async move {
            let before = before.to_vec();
            let present = self.blocking(move |inner| inner.present(&before)).await;
            present.unwrap_or_else(|| Err(broken())).map_err(trouble)
        })
    }

    fn undo<'a>(&'a self, permit: Permit, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async move {
            let (done, before) = (done.clone(), before.to_vec());
            let undone = self.blocking(move |inner| {
                // Spent here, on the thread that does the work.
                let _spent = permit;
                inner.undo(&done, &before)
            });
            undone.await.unwrap_or(Err(Trouble::Unclear))
        })
    }

    fn forget<'a>(&'a self, before: &'a [u8]) -> Work<'a, ()> {
        Box::pin(async move {
            let before = before.to_vec();
            let forgotten =
                self.blocking(move |inner| Plan::read(&before).and_then(|plan| carry::forget(&inner.scope, &plan)));
            if let Some(Err(refusal)) = forgotten.await {
                tracing::warn!(code = refusal.code().as_str(), "old contents of a write could not be removed");
            }
        })
    }
}

/// Whether a capability changes files. What only reads them depends on no state that an approval could be bound to.
fn changes_files(capability: &CapabilityName) -> bool {
    let verb = capability.as_str().strip_prefix("filesystem.").unwrap_or_default();
    ["write", "append", "edit", "copy", "move", "delete", "restore"].contains(&verb)
}

fn broken() -> Refusal {
    Refusal::new(Code::FilesFailed).because("the work broke down")
}

#[cfg(test)]
mod tests;
