//! Watches: changes inside a folder, as they happen.
//!
//! Takes a folder; gives a watch whose changes are fetched by number. Promise: a watch belongs to one agent, holds a
//! limited number of changes and says when it dropped some, never reports files that the gateway keeps for itself or
//! that the rules in force hide from its agent, and watches through the opened descriptor and not through a path.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{CreateKind, ModifyKind, RemoveKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FileType, Mode, OFlags};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{AgentName, Clock, UtcMillis};
use tokio::sync::Notify;

use super::arguments::{FileArguments, NameGlob, odd};
use super::open::{kind, open_below};
use super::roots::{OpenedRoots, RootedPath, is_own};
use super::visibility::FolderVisibility;
use super::walk::FolderWalk;

/// The most changes that a watch holds.
const HELD: usize = 256;
/// The most watches of one agent.
const PER_AGENT: usize = 16;
/// The most folders below one watch.
const FOLDERS: usize = 8_192;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// The name appeared.
    Create,
    /// The content or status changed.
    Modify,
    /// The name disappeared.
    Delete,
    /// The name was given or removed by a rename.
    Rename,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FileChange {
    /// The number of the change in its watch, from one.
    pub number: u64,
    /// The kind of the change.
    pub kind: FileChangeKind,
    /// The path that changed.
    pub path: String,
    /// When the gateway received the change.
    #[serde(serialize_with = "in_words")]
    #[schemars(with = "String")]
    pub at: UtcMillis,
}

/// The changes of a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FileChanges {
    /// The changes in order.
    pub events: Vec<FileChange>,
    /// Whether changes after the requested number were dropped because there were too many.
    pub overflow: bool,
    /// The number to continue after.
    pub last: u64,
}

/// All watches.
pub struct FileWatchTable {
    clock: Arc<dyn Clock>,
    table: Mutex<BTreeMap<String, FileWatch>>,
    /// Notified when any watch sees a change.
    pub heard: Arc<Notify>,
}

/// The parameters of a new watch.
#[derive(Debug)]
pub struct NewFileWatch<'a> {
    pub agent: &'a AgentName,
    pub place: RootedPath,
    pub watch_id: String,
    pub arguments: FileArguments<'a>,
    /// What its agent may see inside the folder.
    pub sight: FolderVisibility,
}

#[derive(Debug)]
struct FileWatch {
    agent: AgentName,
    sight: FolderVisibility,
    seen: Arc<Mutex<FileWatchState>>,
    /// A watcher of its own: the kernel gives one folder only one number, so shared watchers would take each other's
    /// changes.
    _watcher: RecommendedWatcher,
}

/// The state of a watch.
#[derive(Debug)]
struct FileWatchState {
    path: String,
    /// The folder itself; as long as it is open, `through` leads to it and to nothing else.
    folder: OwnedFd,
    through: PathBuf,
    kinds: Option<Vec<FileChangeKind>>,
    glob: Option<NameGlob>,
    changes: VecDeque<FileChange>,
    last: u64,
    /// The highest number that was dropped.
    dropped: u64,
}

impl fmt::Debug for FileWatchTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("table", &lock(&self.table)).finish_non_exhaustive()
    }
}

impl FileWatchTable {
    /// No watches yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, table: Mutex::default(), heard: Arc::default() }
    }

    /// Starts a watch.
    pub fn begin(&self, scope: &OpenedRoots, begin: NewFileWatch<'_>) -> Result<Value, Refusal> {
        let (place, arguments) = (&begin.place, begin.arguments);
        let recursive = arguments.flag("recursive");
        let kinds = arguments.texts("event_types").map(|words| words.into_iter().map(kind_of).collect()).transpose()?;
        let glob = arguments.glob("pattern")?;
        let folder = scope.folder(place)?;
        if recursive {
            let mut walk = FolderWalk::below(scope, place, None, true)?;
            let folders = walk.by_ref().filter(|found| kind(&found.stat) == FileType::Directory).count();
            if walk.cut || folders > FOLDERS {
                let words = "there are too many folders below this one to watch them all";
                return Err(Refusal::new(Code::FilesTooManyWatches).with_text(words));
            }
        }
        // SECURITY: the kernel's own name for this descriptor, so that nothing can be swapped in between. With the dot
        // it is the folder itself; without it, a link to the folder, which a recursive watch leaves out.
        let through = PathBuf::from(format!("/proc/self/fd/{}/.", folder.as_raw_fd()));
        let seen = FileWatchState {
            path: place.path.clone(),
            folder,
            through: through.clone(),
            kinds,
            glob,
            changes: VecDeque::new(),
            last: 0,
            dropped: 0,
        };
        let seen = Arc::new(Mutex::new(seen));
        let mut table = lock(&self.table);
        if table.values().filter(|watch| watch.agent == *begin.agent).count() >= PER_AGENT {
            return Err(Refusal::new(Code::FilesTooManyWatches));
        }
        let mode = if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        let watcher = self.watcher(Arc::clone(&seen)).and_then(|mut watcher| {
            watcher.watch(&through, mode)?;
            Ok(watcher)
        });
        let watcher = watcher.map_err(|error| Refusal::new(Code::FilesFailed).with_source(error))?;
        table.insert(
            begin.watch_id.clone(),
            FileWatch { agent: begin.agent.clone(), sight: begin.sight, seen, _watcher: watcher },
        );
        Ok(json!({"watch_id": begin.watch_id, "path": place.path, "recursive": recursive}))
    }

    fn watcher(&self, seen: Arc<Mutex<FileWatchState>>) -> Result<RecommendedWatcher, notify::Error> {
        let (clock, heard) = (Arc::clone(&self.clock), Arc::clone(&self.heard));
        let take = move |event: Result<Event, notify::Error>| {
            match event {
                Ok(event) if !event.need_rescan() => lock(&seen).take(&event, clock.now()),
                Ok(_) | Err(_) => lock(&seen).lose(),
            }
            heard.notify_waiters();
        };
        RecommendedWatcher::new(take, notify::Config::default().with_follow_symlinks(false))
    }

    /// The changes of this agent's watch after a number, as far as the rules in force let it see them.
    pub fn changes(&self, scope: &OpenedRoots, agent: &AgentName, watch_id: &str, after: u64) -> Option<FileChanges> {
        let table = lock(&self.table);
        let watch = table.get(watch_id).filter(|watch| watch.agent == *agent)?;
        let sight = watch.sight.renewed(scope, self.clock.now());
        let seen = lock(&watch.seen);
        let later = seen.changes.iter().filter(|change| change.number > after);
        let events = later.filter(|change| sight.sees(&change.path)).cloned().collect();
        Some(FileChanges { events, overflow: seen.dropped > after, last: seen.last.max(after) })
    }

    /// Ends a watch of this agent.
    pub fn end(&self, agent: &AgentName, watch_id: &str) -> bool {
        let mut table = lock(&self.table);
        let is_theirs = table.get(watch_id).is_some_and(|watch| watch.agent == *agent);
        is_theirs && table.remove(watch_id).is_some()
    }
}

impl FileWatchState {
    fn take(&mut self, event: &Event, now: UtcMillis) {
        let Some(kind) = change_kind(&event.kind) else { return };
        if self.kinds.as_ref().is_some_and(|kinds| !kinds.contains(&kind)) {
            return;
        }
        for path in &event.paths {
            let Some(way) = self.way(path) else { continue };
            if self.glob.as_ref().is_some_and(|glob| !glob.takes(&way)) {
                continue;
            }
            self.last += 1;
            let path = if way.is_empty() { self.path.clone() } else { format!("{}/{way}", self.path) };
            self.changes.push_back(FileChange { number: self.last, kind, path, at: now });
            if self.changes.len() > HELD {
                self.dropped = self.changes.pop_front().map_or(self.dropped, |change| change.number);
            }
        }
    }

    /// The path from the watched folder, if the agent may be told of it.
    fn way(&self, path: &Path) -> Option<String> {
        let way = path.strip_prefix(&self.through).ok()?.to_str()?;
        if way.split('/').any(is_own) {
            return None;
        }
        // Inside a folder that was replaced by a link, names must not be shown to the agent.
        if let Some((folder, _)) = way.rsplit_once('/') {
            open_below(&self.folder, folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).ok()?;
        }
        Some(way.to_owned())
    }

    /// The kernel lost events, so this watch did too.
    fn lose(&mut self) {
        self.last += 1;
        self.dropped = self.last;
    }
}

fn change_kind(kind: &EventKind) -> Option<FileChangeKind> {
    match kind {
        EventKind::Create(CreateKind::Any | CreateKind::File | CreateKind::Folder | CreateKind::Other) => {
            Some(FileChangeKind::Create)
        }
        // A rename is reported twice, once for each name, and once more for both.
        EventKind::Modify(ModifyKind::Name(notify::event::RenameMode::Both)) => None,
        EventKind::Modify(ModifyKind::Name(_)) => Some(FileChangeKind::Rename),
        EventKind::Modify(_) => Some(FileChangeKind::Modify),
        EventKind::Remove(RemoveKind::Any | RemoveKind::File | RemoveKind::Folder | RemoveKind::Other) => {
            Some(FileChangeKind::Delete)
        }
        EventKind::Any | EventKind::Access(_) | EventKind::Other => None,
    }
}

fn in_words<S: serde::Serializer>(at: &UtcMillis, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(at)
}

fn kind_of(word: &str) -> Result<FileChangeKind, Refusal> {
    match word {
        "create" => Ok(FileChangeKind::Create),
        "modify" => Ok(FileChangeKind::Modify),
        "delete" => Ok(FileChangeKind::Delete),
        "rename" => Ok(FileChangeKind::Rename),
        _ => Err(odd("event_types", "a list of `create`, `modify`, `delete` and `rename`")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
