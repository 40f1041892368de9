//! Watching: changes below a folder, as they happen.
//!
//! Takes a folder; gives a watch whose changes are fetched by number. Promise: a watch belongs to one
//! agent, holds a bounded number of changes and says when it dropped some, never tells of what the
//! gateway keeps for itself or of what the rules in force hide from its agent, and looks through the descriptor
//! that was opened and not through a path.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{CreateKind, ModifyKind, RemoveKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use rustix::fs::FileType;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{AgentName, Clock, Timestamp};
use tokio::sync::Notify;

use super::arguments::{Arguments, Glob, odd};
use super::open::{kind, open_below};
use super::roots::{Place, Scope, is_own};
use super::sight::Sight;
use super::walk::Walk;

/// Changes a watch holds.
const HELD: usize = 256;
/// Watches of one agent.
const PER_AGENT: usize = 16;
/// Folders below one watch.
const FOLDERS: usize = 8_192;

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It appeared.
    Create,
    /// Its content or status changed.
    Modify,
    /// It disappeared.
    Delete,
    /// It got or lost its name by a rename.
    Rename,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Change {
    /// Counts the changes of the watch, from one.
    pub number: u64,
    /// What happened.
    pub kind: ChangeKind,
    /// To what.
    pub path: String,
    /// When we heard of it.
    #[serde(serialize_with = "in_words")]
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// What a watch saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Changes {
    /// In order.
    pub events: Vec<Change>,
    /// Whether changes after the number asked for were dropped because there were too many.
    pub overflow: bool,
    /// The number to go on after.
    pub last: u64,
}

/// All watches.
pub(crate) struct Watches {
    clock: Arc<dyn Clock>,
    table: Mutex<BTreeMap<String, Watch>>,
    /// Something changed somewhere.
    pub heard: Arc<Notify>,
}

/// A watch to begin.
#[derive(Debug)]
pub(crate) struct Begin<'a> {
    pub agent: &'a AgentName,
    pub place: Place,
    pub watch_id: String,
    pub arguments: Arguments<'a>,
    /// What its agent may see below the folder.
    pub sight: Sight,
}

#[derive(Debug)]
struct Watch {
    agent: AgentName,
    sight: Sight,
    seen: Arc<Mutex<Seen>>,
    /// Its own: the kernel gives one folder only one number, so shared watchers would take each other's changes.
    _watcher: RecommendedWatcher,
}

/// What a watch saw, and how it looks.
#[derive(Debug)]
struct Seen {
    path: String,
    /// The folder itself; as long as it is open, `through` is it and nothing else.
    folder: OwnedFd,
    through: PathBuf,
    kinds: Option<Vec<ChangeKind>>,
    glob: Option<Glob>,
    changes: VecDeque<Change>,
    last: u64,
    /// The highest number that was dropped.
    dropped: u64,
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("table", &lock(&self.table)).finish_non_exhaustive()
    }
}

impl Watches {
    /// No watches yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, table: Mutex::default(), heard: Arc::default() }
    }

    /// Begins a watch.
    pub fn begin(&self, scope: &Scope, begin: Begin<'_>) -> Result<Value, Refusal> {
        let (place, arguments) = (&begin.place, begin.arguments);
        let recursive = arguments.flag("recursive");
        let kinds = arguments.texts("event_types").map(|words| words.into_iter().map(kind_of).collect()).transpose()?;
        let glob = arguments.glob("pattern")?;
        let folder = scope.folder(place)?;
        if recursive {
            let mut walk = Walk::below(scope, place, None, true)?;
            let folders = walk.by_ref().filter(|found| kind(&found.stat) == FileType::Directory).count();
            if walk.cut || folders > FOLDERS {
                let words = "there are too many folders below this one to watch them all";
                return Err(Refusal::new(Code::FilesTooManyWatches).with_text(words));
            }
        }
        // SECURITY: the kernel's own name for this descriptor, so that nothing can be swapped in between.
        // With the dot it is the folder itself; without, a link to it, which a recursive watch leaves out.
        let through = PathBuf::from(format!("/proc/self/fd/{}/.", folder.as_raw_fd()));
        let seen = Seen {
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
        let watcher = watcher.map_err(|error| Refusal::new(Code::FilesFailed).because(error))?;
        table.insert(
            begin.watch_id.clone(),
            Watch { agent: begin.agent.clone(), sight: begin.sight, seen, _watcher: watcher },
        );
        Ok(json!({"watch_id": begin.watch_id, "path": place.path, "recursive": recursive}))
    }

    fn watcher(&self, seen: Arc<Mutex<Seen>>) -> Result<RecommendedWatcher, notify::Error> {
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

    /// What a watch of this agent saw after a number, as far as the rules in force let it see that.
    pub fn changes(&self, scope: &Scope, agent: &AgentName, watch_id: &str, after: u64) -> Option<Changes> {
        let table = lock(&self.table);
        let watch = table.get(watch_id).filter(|watch| watch.agent == *agent)?;
        let sight = watch.sight.renewed(scope, self.clock.now());
        let seen = lock(&watch.seen);
        let later = seen.changes.iter().filter(|change| change.number > after);
        let events = later.filter(|change| sight.sees(&change.path)).cloned().collect();
        Some(Changes { events, overflow: seen.dropped > after, last: seen.last.max(after) })
    }

    /// Ends a watch of this agent.
    pub fn end(&self, agent: &AgentName, watch_id: &str) -> bool {
        let mut table = lock(&self.table);
        let is_theirs = table.get(watch_id).is_some_and(|watch| watch.agent == *agent);
        is_theirs && table.remove(watch_id).is_some()
    }
}

impl Seen {
    fn take(&mut self, event: &Event, now: Timestamp) {
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
            self.changes.push_back(Change { number: self.last, kind, path, at: now });
            if self.changes.len() > HELD {
                self.dropped = self.changes.pop_front().map_or(self.dropped, |change| change.number);
            }
        }
    }

    /// The way from the watched folder, if an agent may hear of it.
    fn way(&self, path: &Path) -> Option<String> {
        let way = path.strip_prefix(&self.through).ok()?.to_str()?;
        if way.split('/').any(is_own) {
            return None;
        }
        // Below a folder that was swapped for a link, names are none of the agent's business.
        if let Some((folder, _)) = way.rsplit_once('/') {
            open_below(&self.folder, folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).ok()?;
        }
        Some(way.to_owned())
    }

    /// The kernel lost count: so did we.
    fn lose(&mut self) {
        self.last += 1;
        self.dropped = self.last;
    }
}

fn change_kind(kind: &EventKind) -> Option<ChangeKind> {
    match kind {
        EventKind::Create(CreateKind::Any | CreateKind::File | CreateKind::Folder | CreateKind::Other) => {
            Some(ChangeKind::Create)
        }
        // A rename is told twice, once for each name, and once more for both.
        EventKind::Modify(ModifyKind::Name(notify::event::RenameMode::Both)) => None,
        EventKind::Modify(ModifyKind::Name(_)) => Some(ChangeKind::Rename),
        EventKind::Modify(_) => Some(ChangeKind::Modify),
        EventKind::Remove(RemoveKind::Any | RemoveKind::File | RemoveKind::Folder | RemoveKind::Other) => {
            Some(ChangeKind::Delete)
        }
        EventKind::Any | EventKind::Access(_) | EventKind::Other => None,
    }
}

fn in_words<S: serde::Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(at)
}

fn kind_of(word: &str) -> Result<ChangeKind, Refusal> {
    match word {
        "create" => Ok(ChangeKind::Create),
        "modify" => Ok(ChangeKind::Modify),
        "delete" => Ok(ChangeKind::Delete),
        "rename" => Ok(ChangeKind::Rename),
        _ => Err(odd("event_types", "a list of `create`, `modify`, `delete` and `rename`")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
