//! The workspace of a proxy: logs, relations and drafts in a folder that outlives its tasks.
//!
//! Only the gateway writes here; a task gets a little of it at its start and proposes additions. Promise: tasks that
//! end at the same moment write one after the other; at every end of a task, its log lines are flushed, then its crash
//! report is written, then its drafts are marked; no credential is ever written; a quarantine keeps the remains and
//! restores the last good copy.

mod counterparties;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::crash::CrashReport;
use sluice_core::ids::JobId;
use sluice_core::{Millis, UtcMillis, proxy};

pub use counterparties::{CounterpartyRecord, NamedProxyDraft, RefusedProposal};
pub use sluice_core::proxy::PastExchange;

/// Most bytes of a log before it is rotated.
const LOG_BYTES: u64 = 4 * 1024 * 1024;
/// Most exchanges kept per relation.
const KEPT: usize = 200;
/// Most drafts that have ended and are kept; the oldest are removed at twice this number.
const ENDED: usize = 200;
/// The states of a draft.
pub(super) const IN_PROGRESS: &str = "IN_PROGRESS";
const SENT: &str = "SENT";
const ABANDONED: &str = "ABANDONED";

/// The folder of one proxy.
#[derive(Debug, Clone)]
pub struct ProxyWorkspace {
    /// The folder of all proxies.
    root: PathBuf,
    name: String,
    /// Held while the folder changes.
    turn: Arc<Mutex<()>>,
}

/// A draft: a message that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyDraft {
    /// `IN_PROGRESS`, `SENT` or `ABANDONED`.
    pub state: String,
    /// The operation it belongs to.
    pub operation: String,
    /// Since when it is in this state.
    pub at: String,
    /// Its arguments, or the fields kept in it.
    pub arguments: Value,
    /// The name that calls use, if it outlives the task that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A folder that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchivedWorkspace {
    /// Its name.
    pub name: String,
    /// The number of files in it.
    pub files: usize,
}

impl ProxyWorkspace {
    /// The workspace of a proxy below the folder for all of them. Creates nothing.
    #[must_use]
    pub fn new(root: &Path, name: &str) -> Option<Self> {
        proxy::is_name(name).then(|| Self { root: root.to_path_buf(), name: name.to_owned(), turn: Arc::default() })
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    fn good(&self) -> PathBuf {
        self.root.join(".good").join(&self.name)
    }

    fn archives(&self) -> PathBuf {
        self.root.join(".archive").join(&self.name)
    }

    /// Creates the folders, only for their owner.
    ///
    /// # Errors
    /// When they cannot be created.
    pub fn make(&self) -> io::Result<()> {
        let _turn = self.turn();
        self.folders()
    }

    fn folders(&self) -> io::Result<()> {
        for part in ["logs", "relations", "drafts"] {
            private_dir(&self.path().join(part))?;
        }
        Ok(())
    }

    /// Appends lines to `logs/audit.jsonl`, and waits until they are on the disk.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn log(&self, lines: &[Value]) -> io::Result<()> {
        let _turn = self.turn();
        let path = self.path().join("logs/audit.jsonl");
        if fs::metadata(&path).is_ok_and(|about| about.len() > LOG_BYTES) {
            fs::rename(&path, path.with_extension("jsonl.1"))?;
        }
        append(&path, lines)
    }

    /// Writes `logs/crash-<time>.json`. Gives the name of the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_crash_report(&self, report: &CrashReport) -> io::Result<String> {
        let _turn = self.turn();
        let name = format!("{}.json", report.crash_id().replace(':', "-"));
        let text = serde_json::to_vec_pretty(report)?;
        whole(&self.path().join("logs").join(&name), &text)?;
        Ok(name)
    }

    /// The last exchanges with this side, newest last.
    #[must_use]
    pub fn recent(&self, relation: &str, most: usize) -> Vec<PastExchange> {
        let text = fs::read_to_string(self.relation(relation)).unwrap_or_default();
        let mut found: Vec<PastExchange> =
            text.lines().rev().filter_map(|line| serde_json::from_str(line).ok()).take(most).collect();
        found.reverse();
        found
    }

    /// Adds one exchange with this side.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remember(&self, relation: &str, exchange: &PastExchange) -> io::Result<()> {
        let _turn = self.turn();
        self.make_room(relation)?;
        let path = self.relation(relation);
        let text = fs::read_to_string(&path).unwrap_or_default();
        if text.lines().count() >= 2 * KEPT {
            let kept: Vec<&str> = text.lines().rev().take(KEPT).collect();
            let kept: String = kept.into_iter().rev().flat_map(|line| [line, "\n"]).collect();
            whole(&path, kept.as_bytes())?;
        }
        append(&path, &[serde_json::to_value(exchange)?])?;
        self.record_contact(relation, &exchange.at)
    }

    fn relation(&self, relation: &str) -> PathBuf {
        self.path().join("relations").join(format!("{}.jsonl", filed(relation)))
    }

    /// Stores a draft of what is about to be sent.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn draft(&self, task: JobId, operation: &str, arguments: Value, at: UtcMillis) -> io::Result<()> {
        let _turn = self.turn();
        self.thin_out()?;
        let (state, operation, at) = (IN_PROGRESS.into(), operation.to_owned(), at.to_string());
        let draft = ProxyDraft { state, operation, at, arguments, name: None };
        whole(&self.draft_path(task), &serde_json::to_vec_pretty(&draft)?)
    }

    /// Marks a draft as sent.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn mark_sent(&self, task: JobId) -> io::Result<()> {
        let _turn = self.turn();
        self.mark(&self.draft_path(task), SENT)
    }

    /// Marks a draft as abandoned: its task ended without sending it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn abandon(&self, task: JobId) -> io::Result<()> {
        let _turn = self.turn();
        self.mark(&self.draft_path(task), ABANDONED)
    }

    /// Stores what a dying worker said about itself, next to the report but separate: none of it is trusted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn last_words(&self, report: &CrashReport, words: &Value) -> io::Result<()> {
        let _turn = self.turn();
        let name = format!("{}.words.json", report.crash_id().replace(':', "-"));
        whole(&self.path().join("logs").join(name), &serde_json::to_vec_pretty(words)?)
    }

    /// Marks every draft in progress as abandoned: no task is left that could send one. Gives how many there were.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn abandon_drafts(&self) -> io::Result<usize> {
        let _turn = self.turn();
        self.abandon_where(|_| true)
    }

    fn abandon_where(&self, meant: impl Fn(&ProxyDraft) -> bool) -> io::Result<usize> {
        let mut marked = 0;
        for path in files(&self.path().join("drafts")) {
            if read_draft(&path).is_some_and(|draft| draft.state == IN_PROGRESS && meant(&draft)) {
                self.mark(&path, ABANDONED)?;
                marked += 1;
            }
        }
        Ok(marked)
    }

    /// Removes the oldest drafts that have ended, once there are many: the start of each task reads them all.
    fn thin_out(&self) -> io::Result<()> {
        let paths = files(&self.path().join("drafts"));
        if paths.len() < 2 * ENDED {
            return Ok(());
        }
        let read = |path: PathBuf| read_draft(&path).filter(|draft| draft.state != IN_PROGRESS).map(|d| (d.at, path));
        let mut ended: Vec<(String, PathBuf)> = paths.into_iter().filter_map(read).collect();
        ended.sort();
        let many = ended.len().saturating_sub(ENDED);
        ended.iter().take(many).try_for_each(|(_, path)| fs::remove_file(path))
    }

    fn mark(&self, path: &Path, state: &str) -> io::Result<()> {
        let Some(mut draft) = read_draft(path) else { return Ok(()) };
        draft.state = state.to_owned();
        whole(path, &serde_json::to_vec_pretty(&draft)?)
    }

    fn draft_path(&self, task: JobId) -> PathBuf {
        self.path().join("drafts").join(format!("{task}.json"))
    }

    /// The drafts, by file name.
    #[must_use]
    pub fn drafts(&self) -> Vec<(String, ProxyDraft)> {
        let name = |path: &Path| path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let paths = files(&self.path().join("drafts"));
        paths.iter().filter_map(|path| Some((name(path), read_draft(path)?))).collect()
    }

    /// Stores a copy of the workspace as it is now, as the last good one.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn keep_good(&self) -> io::Result<()> {
        let _turn = self.turn();
        let next = self.good().with_extension("next");
        remove(&next)?;
        copy(&self.path(), &next)?;
        put_in_place(&next, &self.good())
    }

    /// Whether a good copy is kept.
    #[must_use]
    pub fn has_good(&self) -> bool {
        self.good().is_dir()
    }

    /// Sets the workspace aside as evidence and restores the last good copy. Gives the archive's name.
    ///
    /// # Errors
    /// When a folder cannot be moved.
    pub fn archive(&self, at: UtcMillis) -> io::Result<String> {
        let _turn = self.turn();
        private_dir(&self.archives())?;
        // Two may be set aside at the same moment.
        let names = (0..).map(|later| (at + Millis::from_millis(later)).to_string().replace(':', "-"));
        let name = names.take(1_000).find(|name| !self.archives().join(name).exists()).unwrap_or_default();
        fs::rename(self.path(), self.archives().join(&name))?;
        if self.has_good() {
            self.bring_back(None)?;
        }
        self.folders()?;
        // A draft that was in progress when the copy was made no longer is.
        self.abandon_where(|_| true)?;
        Ok(name)
    }

    /// Restores the last good copy, or an archive by name. Replaces the current content.
    ///
    /// # Errors
    /// When there is no such copy, or it cannot be copied.
    pub fn restore(&self, archive: Option<&str>) -> io::Result<()> {
        let _turn = self.turn();
        self.bring_back(archive)
    }

    fn bring_back(&self, archive: Option<&str>) -> io::Result<()> {
        let from = match archive {
            Some(name) => {
                let known = self.archived().into_iter().any(|archived| archived.name == name);
                let known = known.then(|| self.archives().join(name));
                known.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such archive"))?
            }
            None if self.has_good() => self.good(),
            None => return Err(io::Error::new(io::ErrorKind::NotFound, "no good copy is kept yet")),
        };
        let next = self.root.join(".next").join(&self.name);
        remove(&next)?;
        copy(&from, &next)?;
        put_in_place(&next, &self.path())?;
        self.folders()
    }

    /// The folders that were set aside, oldest first.
    #[must_use]
    pub fn archived(&self) -> Vec<ArchivedWorkspace> {
        let Ok(entries) = fs::read_dir(self.archives()) else { return Vec::new() };
        let mut found: Vec<ArchivedWorkspace> = entries
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .map(|entry| ArchivedWorkspace {
                name: entry.file_name().to_string_lossy().into_owned(),
                files: count(&entry.path()),
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

/// The file name for text from outside is a hash: a name must not become a path.
fn filed(name: &str) -> String {
    Sha256::digest(name.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The files of a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    found.sort();
    found
}

fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

fn read_draft(path: &Path) -> Option<ProxyDraft> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn append(path: &Path, lines: &[Value]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Writes a file so that it appears complete or not at all.
fn whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Replaces one folder by another, and removes the old one. At every moment one of them is in place.
fn put_in_place(next: &Path, place: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    if !place.exists() {
        return fs::rename(next, place);
    }
    match renameat_with(CWD, next, CWD, place, RenameFlags::EXCHANGE) {
        Ok(()) => remove(next),
        // A file system that cannot exchange the two in one step.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            remove(place)?;
            fs::rename(next, place)
        }
        Err(error) => Err(error.into()),
    }
}

/// Copies folders and regular files; nothing else is expected here, and links are not followed.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    private_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, place) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &place)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_core::crash::{CrashCause, CrashContext};

    use super::*;

    const NOW: UtcMillis = UtcMillis::from_millis(1_730_000_000_123);

    fn workspace(folder: &tempfile::TempDir) -> ProxyWorkspace {
        let workspace = ProxyWorkspace::new(folder.path(), "moltbook").unwrap();
        workspace.make().unwrap();
        workspace
    }

    fn exchange(n: usize) -> PastExchange {
        PastExchange {
            at: NOW.to_string(),
            operation: "feed".into(),
            outcome: "clean".into(),
            answer_bytes: n as u64,
            answer_hash: "00".into(),
        }
    }

    #[test]
    fn a_name_from_outside_never_becomes_a_path() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ProxyWorkspace::new(folder.path(), "../up").is_none());
        let workspace = workspace(&folder);
        workspace.remember("../../etc/passwd", &exchange(1)).unwrap();
        assert_eq!(workspace.recent("../../etc/passwd", 5), [exchange(1)]);
        assert_eq!(files(&workspace.path().join("relations")).len(), 2, "who, and what was exchanged");
    }

    #[test]
    fn drafts_that_ended_long_ago_are_forgotten_and_those_in_progress_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        let task = |n: usize| JobId::from_bits(n as u128);
        for n in 0..2 * ENDED + 1 {
            let at = NOW + Millis::from_secs(n as u64);
            workspace.draft(task(n), "reply", json!({}), at).unwrap();
            if n != 3 {
                workspace.mark_sent(task(n)).unwrap();
            }
        }
        let left = workspace.drafts();
        assert_eq!(left.len(), ENDED + 2, "the newest that ended, the one in progress, and the one just begun");
        assert_eq!(left.iter().filter(|(_, draft)| draft.state == IN_PROGRESS).count(), 1);
        assert!(workspace.draft_path(task(2 * ENDED)).exists() && !workspace.draft_path(task(4)).exists());
    }

    #[test]
    fn without_a_good_copy_nothing_is_restored_and_an_archive_leaves_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        workspace.remember("ana", &exchange(1)).unwrap();
        assert_eq!(workspace.restore(None).unwrap_err().kind(), io::ErrorKind::NotFound);
        let (one, other) = (workspace.archive(NOW).unwrap(), workspace.archive(NOW).unwrap());
        assert_ne!(one, other, "two at one moment");
        assert_eq!(workspace.recent("ana", 5), []);
        workspace.restore(Some(&one)).unwrap();
        assert_eq!(workspace.recent("ana", 5), [exchange(1)]);
    }

    #[test]
    fn a_folder_takes_the_place_of_another_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (next, place) = (folder.path().join("next"), folder.path().join("place"));
        for round in ["one", "two"] {
            fs::create_dir(&next).unwrap();
            fs::write(next.join(round), "").unwrap();
            put_in_place(&next, &place).unwrap();
            assert!(place.join(round).exists() && !next.exists());
            assert_eq!(files(&place).len(), 1);
        }
    }

    #[test]
    fn the_last_exchanges_of_one_side_are_told_and_the_file_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        (0..2 * KEPT + 3).for_each(|n| workspace.remember("ana", &exchange(n)).unwrap());
        workspace.remember("ben", &exchange(7)).unwrap();
        let recent: Vec<u64> = workspace.recent("ana", 3).iter().map(|exchange| exchange.answer_bytes).collect();
        assert_eq!(recent, [400, 401, 402]);
        assert!(workspace.recent("ana", 1000).len() <= KEPT + 3);
    }

    #[test]
    fn drafts_in_progress_are_abandoned_and_sent_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        for n in 1..=3 {
            workspace.draft(JobId::from_bits(n), "reply", json!({"text": "hi"}), NOW).unwrap();
        }
        workspace.mark_sent(JobId::from_bits(1)).unwrap();
        assert_eq!(workspace.abandon_drafts().unwrap(), 2);
        let states: Vec<String> = workspace.drafts().into_iter().map(|(_, draft)| draft.state).collect();
        assert_eq!(states, ["SENT", "ABANDONED", "ABANDONED"]);
        assert_eq!(workspace.abandon_drafts().unwrap(), 0);
    }

    #[test]
    fn a_quarantine_keeps_the_remains_and_brings_back_the_last_good_copy() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        workspace.remember("ana", &exchange(1)).unwrap();
        workspace.keep_good().unwrap();
        workspace.remember("ana", &exchange(666)).unwrap();
        let scene = CrashContext {
            at: NOW,
            cause: CrashCause::Injection { findings: 1 },
            last_action: None,
            requests: 1,
            content: None,
            files: &[],
        };
        let name = workspace.write_crash_report(&CrashReport::new(&scene)).unwrap();
        assert_eq!(name, "crash-2024-10-27T03-33-20.123Z.json");
        let archive = workspace.archive(NOW).unwrap();
        assert_eq!(workspace.recent("ana", 9), [exchange(1)]);
        assert_eq!(workspace.archived(), [ArchivedWorkspace { name: archive.clone(), files: 3 }]);
        workspace.restore(Some(&archive)).unwrap();
        assert_eq!(workspace.recent("ana", 9).len(), 2);
        assert!(workspace.restore(Some("../../etc")).is_err());
    }

    #[test]
    fn a_proxy_without_a_good_copy_starts_anew() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        workspace.remember("ana", &exchange(666)).unwrap();
        workspace.archive(NOW).unwrap();
        assert_eq!(workspace.recent("ana", 9), []);
    }

    #[test]
    fn a_full_log_is_turned_over() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder);
        let line = json!({"x": "y".repeat(1024 * 1024)});
        (0..6).for_each(|_| workspace.log(std::slice::from_ref(&line)).unwrap());
        assert_eq!(files(&workspace.path().join("logs")).len(), 2);
    }
}
