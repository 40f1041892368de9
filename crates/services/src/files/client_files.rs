//! Files that a coding client changes itself: kept before the change, restored when a person wants that.
//!
//! Takes the paths that a call names and the folders of its agent; gives the previous content, and restores it.
//! Promise: nothing outside those folders is read or written, links are not followed, and a file is restored only while
//! it is as the call left it, or as it was shown to the person who confirmed the overwrite. Files of one call change
//! together.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::policy::ChangedFiles;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{AgentName, CallId};

use super::fingerprint::{FileFingerprint, FileSnapshot};
use super::open::{kind, refusal, size, untouched};
use super::perform::place_all;
use super::roots::{AgentRoot, AgentRoots, OpenedRoots, RootAgents, RootedPath};
use super::staged_file::{FilePlacement, StagedFile, rename_new, trouble, write_own};
use crate::WriteError;

/// The permissions of a folder that has to be created again.
const NEW_FOLDER: u32 = 0o755;
/// The most names that are read in one folder.
const NAMES: usize = 10_000;
/// The deepest subfolder that is read below a folder that a call names.
const DEPTH: usize = 32;
/// The longest difference that is shown of one file, in bytes.
const DIFF: usize = 4_000;

/// The limits of what is kept.
#[derive(Debug, Clone, Copy)]
pub struct ClientBackupLimits {
    /// The largest file, in bytes.
    pub file: u64,
    /// The most files of one call.
    pub files: usize,
    /// What is left of the daily limit, in bytes.
    pub left: u64,
}

/// One file of a call, as it was before and as the call left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFileBackup {
    /// The folder of the agent that it lies in; empty for a file outside.
    pub root: String,
    /// The path inside that folder, or the absolute path.
    pub way: String,
    /// Its state before the call.
    pub before: Option<FileFingerprint>,
    /// The name under which its content is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The states in which the call may leave it: derived from its arguments, or read when the client was done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<FileFingerprint>,
    /// Why it cannot be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What was kept for one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCallBackup {
    /// The files that were kept.
    pub files: Vec<ClientFileBackup>,
    /// Why the call may have changed other files as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclear: Option<String>,
}

/// The current state of a file of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFileState {
    /// As before the call: nothing has to be done.
    Before,
    /// As the call left it.
    After,
    /// Neither, or it is not known how the call left it.
    Other(FileFingerprint),
}

impl ClientFileBackup {
    /// The absolute path.
    pub fn path(&self) -> String {
        if self.root.is_empty() { self.way.clone() } else { format!("{}/{}", self.root, self.way) }
    }

    fn lost(path: &str, why: impl Into<String>) -> Self {
        let (root, way) = (String::new(), path.to_owned());
        Self { root, way, before: None, kept: None, after: Vec::new(), why: Some(why.into()) }
    }

    fn place(&self, scope: &OpenedRoots) -> Result<RootedPath, Refusal> {
        scope.within(&self.root, &self.way)
    }

    /// The current state. `present` is the fingerprint now, or after earlier steps of the rollback.
    pub fn now(&self, present: FileFingerprint) -> ClientFileState {
        match &self.before {
            Some(before) if *before == present => ClientFileState::Before,
            // Created folders stay: they may hold other work.
            Some(before) if before.is_absent() && present.is_folder() => ClientFileState::Before,
            _ if self.after.iter().any(|after| after.is_same(&present)) => ClientFileState::After,
            _ => ClientFileState::Other(present),
        }
    }
}

/// The folders in which files of an agent are kept and restored, opened. Folders that cannot be opened are left out.
pub fn scope_of(agent: &AgentName, folders: &[String], allow_hard_links: bool) -> OpenedRoots {
    let mut all = OpenedRoots { opened_roots: Vec::new(), hard_links: allow_hard_links, rules: None };
    for folder in folders {
        let path = folder.trim_end_matches('/').to_owned();
        if all.opened_roots.iter().any(|opened_root| opened_root.path == path) {
            continue;
        }
        let root = AgentRoot { path, agents: RootAgents::Named(vec![agent.clone()]), read_only: false, trusted: false };
        if let Ok(one) = OpenedRoots::open(AgentRoots { list: vec![root], allow_hard_links }) {
            all.opened_roots.extend(one.opened_roots);
        }
    }
    all
}

/// Reads the files that a call names and keeps their content. Returns the number of bytes kept.
#[derive(Debug)]
pub struct ClientFileRecorder<'a> {
    /// The folders opened to agents.
    pub scope: &'a OpenedRoots,
    /// The agent that calls.
    pub agent: &'a AgentName,
    /// The folder for kept contents; created when it is needed.
    pub data: &'a Path,
    /// The call.
    pub call: CallId,
    /// How much is kept.
    pub limits: ClientBackupLimits,
    /// Folders of the gateway itself, which are never kept.
    pub own: &'a [String],
}

impl ClientFileRecorder<'_> {
    /// Keeps the files; `arguments` say how the call will leave them, where that can be derived.
    pub fn keep(&self, named: &ChangedFiles, arguments: &Value) -> (ClientCallBackup, u64) {
        let mut kept = ClientCallBackup { files: Vec::new(), unclear: named.unclear.map(str::to_owned) };
        let mut places: BTreeMap<String, RootedPath> = BTreeMap::new();
        for file in &named.files {
            match self.scope.locate(self.agent, &file.path) {
                Err(_) if is_scratch(&file.path) => {}
                Err(_) => {
                    kept.files.push(ClientFileBackup::lost(&file.path, "it lies outside the folders of the agent"))
                }
                Ok(place) if file.is_pattern => self.expand(&place, file.with_content, &mut places, &mut kept),
                Ok(place) => self.collect(place, file.with_content, 0, (&mut places, &mut kept)),
            }
        }
        let (mut bytes, mut folder) = (0, None);
        for (n, place) in places.into_values().enumerate() {
            let content = self.file(&place, self.limits.left.saturating_sub(bytes));
            let file = content.and_then(|seen| {
                let (root, way) = (self.scope.opened_root(&place)?.path.clone(), place.way.clone());
                let after = predicted(arguments, &place.path, &seen).into_iter().collect();
                let mut file = ClientFileBackup { root, way, before: Some(seen.print), kept: None, after, why: None };
                if let Some(content) = &seen.content {
                    let name = n.to_string();
                    let folder = match &folder {
                        Some(folder) => folder,
                        None => folder.insert(own_folder(self.data, self.call)?),
                    };
                    write_own(folder, &name, content)?;
                    bytes += content.len() as u64;
                    file.kept = Some(name);
                }
                Ok(file)
            });
            kept.files.push(file.unwrap_or_else(|why| ClientFileBackup::lost(&place.path, why.text())));
        }
        (kept, bytes)
    }

    /// The content of one file, if it is small enough.
    fn file(&self, place: &RootedPath, left: u64) -> Result<FileSnapshot, Refusal> {
        if self.own.iter().any(|own| place.path == *own || place.path.starts_with(&format!("{own}/"))) {
            return Err(Refusal::new(Code::FilesOutOfScope).with_text("it is one of the gateway's own files"));
        }
        let stat = match self.scope.look(place) {
            // A parent folder is missing, or is a file: then the file itself does not exist either.
            Err(no) if no.code() == Code::FilesNotAFolder => None,
            other => other?,
        };
        let Some(stat) = stat else {
            return Ok(FileSnapshot { print: FileFingerprint::absent(), stat: None, content: None });
        };
        if kind(&stat) == FileType::Directory {
            return Ok(FileSnapshot { print: FileFingerprint::folder(), stat: Some(stat), content: None });
        }
        let large = |text: String| Refusal::new(Code::FilesTooLarge).with_text(&text);
        if size(&stat) > self.limits.file {
            return Err(large(format!("it is larger than {} bytes (filesystem.undo_file)", self.limits.file)));
        }
        if size(&stat) > left {
            return Err(large("the daily limit for kept content is used up (filesystem.undo_day)".to_owned()));
        }
        self.scope.snapshot(place, true)
    }

    /// Collects one path, or everything below it.
    fn collect(
        &self,
        place: RootedPath,
        with_content: bool,
        depth: usize,
        (places, kept): (&mut BTreeMap<String, RootedPath>, &mut ClientCallBackup),
    ) {
        let is_folder = matches!(self.scope.look(&place), Ok(Some(stat)) if kind(&stat) == FileType::Directory);
        if is_folder && with_content {
            let listed = self.scope.folder(&place).and_then(|folder| self.scope.entries(&folder, NAMES));
            match listed {
                Ok((entries, false)) if depth < DEPTH => {
                    for entry in entries {
                        self.collect(place.child(&entry.name), true, depth + 1, (&mut *places, &mut *kept));
                    }
                }
                Ok(_) => mark_unclear(kept, "a folder holds too many files to be kept"),
                Err(_) => mark_unclear(kept, "a folder could not be read"),
            }
        } else if places.len() < self.limits.files {
            places.insert(place.path.clone(), place);
        } else if !places.contains_key(&place.path) {
            mark_unclear(kept, &format!("it changes more than {} files (filesystem.undo_files)", self.limits.files));
        }
    }

    /// The files that currently match a file name pattern.
    fn expand(
        &self,
        pattern: &RootedPath,
        with_content: bool,
        places: &mut BTreeMap<String, RootedPath>,
        kept: &mut ClientCallBackup,
    ) {
        if pattern.way.contains(['{', '}']) {
            return mark_unclear(kept, "the command does not say which files it changes");
        }
        let Ok(opened_root) = self.scope.opened_root(pattern) else { return };
        let mut found =
            vec![RootedPath { opened_root: pattern.opened_root, path: opened_root.path.clone(), way: String::new() }];
        for part in pattern.way.split('/') {
            if !part.contains(['*', '?', '[']) {
                found = found.iter().map(|place| place.child(part)).collect();
                continue;
            }
            let mut next = Vec::new();
            for place in &found {
                let Ok(folder) = self.scope.folder(place) else { continue };
                let Ok((entries, more)) = self.scope.entries(&folder, NAMES) else { continue };
                if more {
                    mark_unclear(kept, "a folder holds too many files to be kept");
                }
                let fits = entries.iter().filter(|entry| is_match(part.as_bytes(), entry.name.as_bytes()));
                next.extend(fits.map(|entry| place.child(&entry.name)));
            }
            found = next;
        }
        for place in found {
            self.collect(place, with_content, 0, (&mut *places, &mut *kept));
        }
    }
}

fn mark_unclear(kept: &mut ClientCallBackup, why: &str) {
    kept.unclear.get_or_insert_with(|| why.to_owned());
}

/// Whether a path lies in a folder for temporary files, which are not kept.
fn is_scratch(path: &str) -> bool {
    path.starts_with("/tmp/") || path.starts_with("/var/tmp/")
}

/// Whether a name matches one part of a file name pattern. A character class matches any character: more files are kept
/// than the command changes.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            is_match(rest, name) || name.split_first().is_some_and(|(_, name)| is_match(pattern, name))
        }
        (Some((b'[', rest)), Some((_, name))) => {
            let end = rest.iter().position(|byte| *byte == b']').map_or(rest.len(), |at| at + 1);
            is_match(rest.get(end..).unwrap_or_default(), name)
        }
        (Some((b'?', rest)), Some((_, name))) => is_match(rest, name),
        (Some((one, rest)), Some((other, name))) => one == other && is_match(rest, name),
        _ => false,
    }
}

/// The state in which the tool will leave its file, if its arguments say so.
fn predicted(arguments: &Value, path: &str, seen: &FileSnapshot) -> Option<FileFingerprint> {
    let word = |name: &str| arguments.get(name).and_then(Value::as_str);
    let named = ["path", "file_path"].iter().find_map(|name| word(name))?;
    // Another file of the same call, or a path that must be resolved first.
    if named != path && !path.ends_with(&format!("/{}", named.trim_start_matches("./"))) {
        return None;
    }
    if let Some(content) = word("content") {
        return Some(FileFingerprint::of_content(content.as_bytes()));
    }
    let text = std::str::from_utf8(seen.content.as_deref()?).ok()?;
    let edits = match arguments.get("edits").and_then(Value::as_array) {
        Some(edits) => edits.iter().collect(),
        None => vec![arguments],
    };
    let mut text = text.to_owned();
    for edit in edits {
        let (old, new) = (edit.get("old_string")?.as_str()?, edit.get("new_string")?.as_str()?);
        let all = edit.get("replace_all").and_then(Value::as_bool).unwrap_or(false);
        if old.is_empty() || !text.contains(old) {
            return None;
        }
        text = if all { text.replace(old, new) } else { text.replacen(old, new, 1) };
    }
    Some(FileFingerprint::of_content(text.as_bytes()))
}

/// The folder of a call in the data folder, created if needed.
fn own_folder(data: &Path, call: CallId) -> Result<OwnedFd, Refusal> {
    let name = call.to_string();
    for path in [data.to_path_buf(), data.join(&name)] {
        match rustix::fs::mkdirat(CWD, &path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(refusal(errno)),
        }
    }
    open_own(data, call)
}

fn open_own(data: &Path, call: CallId) -> Result<OwnedFd, Refusal> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, data.join(call.to_string()), flags, Mode::empty()).map_err(refusal)
}

/// The current state of a file that can be restored.
pub fn look(scope: &OpenedRoots, file: &ClientFileBackup) -> Result<FileFingerprint, Refusal> {
    let place = file.place(scope)?;
    match scope.fingerprint(&place) {
        Err(no) if matches!(no.code(), Code::FilesNotAFolder | Code::FilesNotFound) => Ok(FileFingerprint::absent()),
        other => other,
    }
}

/// Records the current state of the files as the state in which the call left them.
pub fn note_after(scope: &OpenedRoots, kept: &mut ClientCallBackup) {
    for file in kept.files.iter_mut().filter(|file| file.before.is_some()) {
        match look(scope, file) {
            // The actual state replaces the one derived from the arguments.
            Ok(print) => file.after = vec![print],
            Err(why) => file.why = Some(why.text().to_owned()),
        }
    }
}

/// Restores the files of a call. `overwrites` holds the states that a person saw and allowed to overwrite.
pub fn put_back(
    scope: &OpenedRoots,
    (data, call): (&Path, CallId),
    kept: &ClientCallBackup,
    overwrites: &BTreeMap<String, FileFingerprint>,
) -> Result<Vec<String>, WriteError> {
    let conflict = || WriteError::refused(Code::RollbackConflict);
    let (mut staged, mut away, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for (n, file) in kept.files.iter().enumerate() {
        let Some(before) = file.before.as_ref().filter(|_| file.why.is_none()) else { continue };
        let place = file.place(scope).map_err(trouble)?;
        let present = look(scope, file).map_err(trouble)?;
        let may = match file.now(present.clone()) {
            ClientFileState::Before => continue,
            ClientFileState::After => true,
            ClientFileState::Other(print) => overwrites.get(&file.path()) == Some(&print),
        };
        if !may || present.is_folder() || before.is_folder() {
            return Err(conflict());
        }
        let seen = match present.is_absent() {
            true => FileSnapshot { print: present, stat: None, content: None },
            false => scope.snapshot(&place, false).map_err(trouble)?,
        };
        changed.push(file.path());
        let Some(name) = &file.kept else {
            away.push((place, seen.stat.ok_or_else(conflict)?, n));
            continue;
        };
        let content = content(data, call, name, before)?;
        make_folders(scope, &place).map_err(trouble)?;
        let beside = format!(".sluice-old-{call}-{n}");
        let mode = before.mode().unwrap_or(0o600);
        let putting = FilePlacement { place: &place, beside, content: &content, mode, replaces: seen.stat };
        staged.push(StagedFile::new(scope, putting).map_err(trouble)?);
    }
    place_all(staged)?;
    for (place, stat, n) in away {
        let (folder, name) = scope.parent(&place).map_err(trouble)?;
        let beside = format!(".sluice-old-{call}-{n}");
        rename_new(&folder, name, &folder, &beside).map_err(|errno| trouble(refusal(errno)))?;
        let taken = rustix::fs::statat(&folder, beside.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        if !taken.is_ok_and(|taken| untouched(&taken, &stat)) {
            rename_new(&folder, &beside, &folder, name).map_err(|_| WriteError::Unclear)?;
            return Err(conflict());
        }
        rustix::fs::unlinkat(&folder, beside.as_str(), AtFlags::empty()).map_err(|_| WriteError::Unclear)?;
        rustix::fs::fsync(&folder).map_err(|_| WriteError::Unclear)?;
    }
    Ok(changed)
}

/// A kept content, if it is unchanged since it was kept.
fn content(data: &Path, call: CallId, name: &str, before: &FileFingerprint) -> Result<Vec<u8>, WriteError> {
    let damaged = || WriteError::Refused(Refusal::new(Code::FilesFailed).with_text("the kept old content is damaged"));
    if name.contains('/') {
        return Err(damaged());
    }
    let bytes = std::fs::read(data.join(call.to_string()).join(name)).map_err(|_| damaged())?;
    let mode = before.mode().unwrap_or(0);
    if FileFingerprint::file(mode, &bytes) == *before { Ok(bytes) } else { Err(damaged()) }
}

/// Creates missing parent folders of a file.
fn make_folders(scope: &OpenedRoots, place: &RootedPath) -> Result<(), Refusal> {
    let root = scope.opened_root(place)?.path.clone();
    for (end, _) in place.way.match_indices('/') {
        let folder = scope.within(&root, place.way.get(..end).unwrap_or_default())?;
        if scope.look(&folder)?.is_none() {
            let (parent, name) = scope.parent(&folder)?;
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(NEW_FOLDER)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(refusal(errno)),
            }
        }
    }
    Ok(())
}

/// What restoring a file would change, for people: removed and added lines.
pub fn difference(scope: &OpenedRoots, (data, call): (&Path, CallId), file: &ClientFileBackup) -> Option<String> {
    let before = match (&file.kept, &file.before) {
        (Some(name), Some(before)) => content(data, call, name, before).ok()?,
        _ => Vec::new(),
    };
    let present = scope.snapshot(&file.place(scope).ok()?, true).ok()?.content.unwrap_or_default();
    let (Ok(before), Ok(present)) = (std::str::from_utf8(&before), std::str::from_utf8(&present)) else {
        return Some("(not text)".to_owned());
    };
    let (old, new): (Vec<&str>, Vec<&str>) = (present.lines().collect(), before.lines().collect());
    let start = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let (old, new) = (old.get(start..)?, new.get(start..)?);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old, new) = (old.get(..old.len() - end)?, new.get(..new.len() - end)?);
    let mut shown = format!("@@ line {} @@\n", start + 1);
    for line in old.iter().map(|line| format!("-{line}\n")).chain(new.iter().map(|line| format!("+{line}\n"))) {
        if shown.len() + line.len() > DIFF {
            shown.push_str("(the rest is not shown)\n");
            break;
        }
        shown.push_str(&line);
    }
    Some(shown)
}

/// Deletes what was kept for a call.
pub fn forget(data: &Path, call: CallId) {
    match std::fs::remove_dir_all(data.join(call.to_string())) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(call.id = %call, "what was kept for {call} could not be removed: {}", error.kind())
        }
    }
}

/// The calls for which content is kept.
pub fn kept_calls(data: &Path) -> Vec<CallId> {
    let Ok(entries) = std::fs::read_dir(data) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
