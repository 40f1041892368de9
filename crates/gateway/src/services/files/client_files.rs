//! Files that a coding client changes itself: kept before it does, put back when a person wants them back.
//!
//! Takes the paths a call names and the folders its agent works in; gives what was there, and puts it back. Promise:
//! nothing outside those folders is read or written, links are not followed, and a file is put back only while it is as
//! the call left it, or as the person saw it who said that it may be overwritten. Files of one call change together.

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

use super::carry::place_all;
use super::open::{kind, refusal, size, untouched};
use super::print::{Print, Seen};
use super::put::{Putting, Staged, rename_new, trouble, write_own};
use super::roots::{Agents, Place, Root, Roots, Scope};
use crate::services::Trouble;

/// Permissions of a folder that has to be made again.
const NEW_FOLDER: u32 = 0o755;
/// Most names that are looked at in one folder.
const NAMES: usize = 10_000;
/// Deepest folder that is looked into below one that a call names.
const DEPTH: usize = 32;
/// Longest difference that is shown of one file, in bytes.
const DIFF: usize = 4_000;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepLimits {
    /// The largest file, in bytes.
    pub file: u64,
    /// The most files of one call.
    pub files: usize,
    /// What is left of the day's total, in bytes.
    pub left: u64,
}

/// One file of a call, as it was before and as the call left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientFile {
    /// The folder of the agent that it lies in; empty for one outside.
    pub root: String,
    /// The way from there, or its whole path.
    pub way: String,
    /// What it was before.
    pub before: Option<Print>,
    /// Under which name its content is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// States that the call is known to leave it in: worked out from its arguments, or found when the client was done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Print>,
    /// Why it cannot be put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What was kept for a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptFiles {
    pub files: Vec<ClientFile>,
    /// Why the call may have changed other files as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclear: Option<String>,
}

/// How a file of a call is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileNow {
    /// As before the call: there is nothing to do.
    Before,
    /// As the call left it.
    After,
    /// Neither, or nobody knows what the call left.
    Other(Print),
}

impl ClientFile {
    /// Where it lies.
    pub fn path(&self) -> String {
        if self.root.is_empty() { self.way.clone() } else { format!("{}/{}", self.root, self.way) }
    }

    fn lost(path: &str, why: impl Into<String>) -> Self {
        let (root, way) = (String::new(), path.to_owned());
        Self { root, way, before: None, kept: None, after: Vec::new(), why: Some(why.into()) }
    }

    fn place(&self, scope: &Scope) -> Result<Place, Refusal> {
        scope.within(&self.root, &self.way)
    }

    /// How it is now; with the state it will be in then, if others are put back first.
    pub fn now(&self, present: Print) -> FileNow {
        match &self.before {
            Some(before) if *before == present => FileNow::Before,
            // Folders that were made stay: there may be work in them.
            Some(before) if before.is_absent() && present.is_folder() => FileNow::Before,
            _ if self.after.iter().any(|after| after.is_same(&present)) => FileNow::After,
            _ => FileNow::Other(present),
        }
    }
}

/// The folders in which files of an agent are kept and put back, opened. What cannot be opened is left out.
pub(crate) fn scope_of(agent: &AgentName, folders: &[String], allow_hard_links: bool) -> Scope {
    let mut all = Scope { grounds: Vec::new(), hard_links: allow_hard_links, rules: None };
    for folder in folders {
        let path = folder.trim_end_matches('/').to_owned();
        if all.grounds.iter().any(|ground| ground.path == path) {
            continue;
        }
        let root = Root { path, agents: Agents::Named(vec![agent.clone()]), read_only: false, trusted: false };
        if let Ok(one) = Scope::open(Roots { list: vec![root], allow_hard_links }) {
            all.grounds.extend(one.grounds);
        }
    }
    all
}

/// Looks at the files that a call names, and keeps what is in them. Gives the bytes that were kept.
pub(crate) struct Keeper<'a> {
    pub scope: &'a Scope,
    pub agent: &'a AgentName,
    /// The folder contents are kept in; made when there is one to keep.
    pub data: &'a Path,
    pub call: CallId,
    pub limits: KeepLimits,
    /// Folders that are the gateway's own and never kept.
    pub own: &'a [String],
}

impl Keeper<'_> {
    /// Keeps the files; `arguments` say what the call will leave in them, where that can be worked out.
    pub fn keep(&self, named: &ChangedFiles, arguments: &Value) -> (KeptFiles, u64) {
        let mut kept = KeptFiles { files: Vec::new(), unclear: named.unclear.map(str::to_owned) };
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        for file in &named.files {
            match self.scope.locate(self.agent, &file.path) {
                Err(_) if is_scratch(&file.path) => {}
                Err(_) => kept.files.push(ClientFile::lost(&file.path, "it lies outside the folders of the agent")),
                Ok(place) if file.is_pattern => self.expand(&place, file.with_content, &mut places, &mut kept),
                Ok(place) => self.collect(place, file.with_content, 0, (&mut places, &mut kept)),
            }
        }
        let (mut bytes, mut folder) = (0, None);
        for (n, place) in places.into_values().enumerate() {
            let content = self.file(&place, self.limits.left.saturating_sub(bytes));
            let file = content.and_then(|seen| {
                let (root, way) = (self.scope.ground(&place)?.path.clone(), place.way.clone());
                let after = predicted(arguments, &place.path, &seen).into_iter().collect();
                let mut file = ClientFile { root, way, before: Some(seen.print), kept: None, after, why: None };
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
            kept.files.push(file.unwrap_or_else(|why| ClientFile::lost(&place.path, why.text())));
        }
        (kept, bytes)
    }

    /// The content of one file, if it is small enough.
    fn file(&self, place: &Place, left: u64) -> Result<Seen, Refusal> {
        if self.own.iter().any(|own| place.path == *own || place.path.starts_with(&format!("{own}/"))) {
            return Err(Refusal::new(Code::FilesOutOfScope).with_text("it is one of the gateway's own files"));
        }
        let stat = match self.scope.look(place) {
            // A folder on the way is missing, or is a file: then the file itself is not there either.
            Err(no) if no.code() == Code::FilesNotAFolder => None,
            other => other?,
        };
        let Some(stat) = stat else { return Ok(Seen { print: Print::absent(), stat: None, content: None }) };
        if kind(&stat) == FileType::Directory {
            return Ok(Seen { print: Print::folder(), stat: Some(stat), content: None });
        }
        let large = |text: String| Refusal::new(Code::FilesTooLarge).with_text(&text);
        if size(&stat) > self.limits.file {
            return Err(large(format!("it is larger than {} bytes (filesystem.undo_file)", self.limits.file)));
        }
        if size(&stat) > left {
            return Err(large("as much as may be kept was kept today (filesystem.undo_day)".to_owned()));
        }
        self.scope.see(place, true)
    }

    /// One place, or everything below it.
    fn collect(
        &self,
        place: Place,
        with_content: bool,
        depth: usize,
        (places, kept): (&mut BTreeMap<String, Place>, &mut KeptFiles),
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
                Ok(_) => is_unclear(kept, "a folder holds too much to be kept"),
                Err(_) => is_unclear(kept, "a folder could not be read"),
            }
        } else if places.len() < self.limits.files {
            places.insert(place.path.clone(), place);
        } else if !places.contains_key(&place.path) {
            is_unclear(kept, &format!("it changes more than {} files (filesystem.undo_files)", self.limits.files));
        }
    }

    /// The files that a file name pattern means now.
    fn expand(&self, pattern: &Place, with_content: bool, places: &mut BTreeMap<String, Place>, kept: &mut KeptFiles) {
        if pattern.way.contains(['{', '}']) {
            return is_unclear(kept, "the command does not say which files it changes");
        }
        let Ok(ground) = self.scope.ground(pattern) else { return };
        let mut found = vec![Place { ground: pattern.ground, path: ground.path.clone(), way: String::new() }];
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
                    is_unclear(kept, "a folder holds too much to be kept");
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

fn is_unclear(kept: &mut KeptFiles, why: &str) {
    kept.unclear.get_or_insert_with(|| why.to_owned());
}

/// Whether a path lies where programs put what nobody keeps.
fn is_scratch(path: &str) -> bool {
    path.starts_with("/tmp/") || path.starts_with("/var/tmp/")
}

/// Whether a name fits one part of a file name pattern. A class of characters is taken for any one: more files are kept
/// than change.
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

/// What the tool will leave in its file, where its arguments say so.
fn predicted(arguments: &Value, path: &str, seen: &Seen) -> Option<Print> {
    let word = |name: &str| arguments.get(name).and_then(Value::as_str);
    let named = ["path", "file_path"].iter().find_map(|name| word(name))?;
    // Another file of the same call, or a path that has to be worked out first.
    if named != path && !path.ends_with(&format!("/{}", named.trim_start_matches("./"))) {
        return None;
    }
    if let Some(content) = word("content") {
        return Some(Print::of_content(content.as_bytes()));
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
    Some(Print::of_content(text.as_bytes()))
}

/// The folder of a call in the data folder, made if need be.
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

/// The files as they are now, for those that can be put back.
pub(crate) fn look(scope: &Scope, file: &ClientFile) -> Result<Print, Refusal> {
    let place = file.place(scope)?;
    match scope.print(&place) {
        Err(no) if matches!(no.code(), Code::FilesNotAFolder | Code::FilesNotFound) => Ok(Print::absent()),
        other => other,
    }
}

/// Notes how the files are now as what the call left.
pub(crate) fn note_after(scope: &Scope, kept: &mut KeptFiles) {
    for file in kept.files.iter_mut().filter(|file| file.before.is_some()) {
        match look(scope, file) {
            // What was worked out from the arguments counts no longer: this is what is there.
            Ok(print) => file.after = vec![print],
            Err(why) => file.why = Some(why.text().to_owned()),
        }
    }
}

/// Puts the files of a call back. `overwrites` holds the states that a person saw and gave up.
pub(crate) fn put_back(
    scope: &Scope,
    (data, call): (&Path, CallId),
    kept: &KeptFiles,
    overwrites: &BTreeMap<String, Print>,
) -> Result<Vec<String>, Trouble> {
    let conflict = || Trouble::refused(Code::RollbackConflict);
    let (mut staged, mut away, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for (n, file) in kept.files.iter().enumerate() {
        let Some(before) = file.before.as_ref().filter(|_| file.why.is_none()) else { continue };
        let place = file.place(scope).map_err(trouble)?;
        let present = look(scope, file).map_err(trouble)?;
        let may = match file.now(present.clone()) {
            FileNow::Before => continue,
            FileNow::After => true,
            FileNow::Other(print) => overwrites.get(&file.path()) == Some(&print),
        };
        if !may || present.is_folder() || before.is_folder() {
            return Err(conflict());
        }
        let seen = match present.is_absent() {
            true => Seen { print: present, stat: None, content: None },
            false => scope.see(&place, false).map_err(trouble)?,
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
        let putting = Putting { place: &place, beside, content: &content, mode, replaces: seen.stat };
        staged.push(Staged::new(scope, putting).map_err(trouble)?);
    }
    place_all(staged)?;
    for (place, stat, n) in away {
        let (folder, name) = scope.parent(&place).map_err(trouble)?;
        let beside = format!(".sluice-old-{call}-{n}");
        rename_new(&folder, name, &folder, &beside).map_err(|errno| trouble(refusal(errno)))?;
        let taken = rustix::fs::statat(&folder, beside.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        if !taken.is_ok_and(|taken| untouched(&taken, &stat)) {
            rename_new(&folder, &beside, &folder, name).map_err(|_| Trouble::Unclear)?;
            return Err(conflict());
        }
        rustix::fs::unlinkat(&folder, beside.as_str(), AtFlags::empty()).map_err(|_| Trouble::Unclear)?;
        rustix::fs::fsync(&folder).map_err(|_| Trouble::Unclear)?;
    }
    Ok(changed)
}

/// A content that was kept, if it is still the one that was.
fn content(data: &Path, call: CallId, name: &str, before: &Print) -> Result<Vec<u8>, Trouble> {
    let damaged = || Trouble::Refused(Refusal::new(Code::FilesFailed).with_text("the old content is no longer whole"));
    if name.contains('/') {
        return Err(damaged());
    }
    let bytes = std::fs::read(data.join(call.to_string()).join(name)).map_err(|_| damaged())?;
    let mode = before.mode().unwrap_or(0);
    if Print::file(mode, &bytes) == *before { Ok(bytes) } else { Err(damaged()) }
}

/// Makes the folders on the way to a file, if they are gone.
fn make_folders(scope: &Scope, place: &Place) -> Result<(), Refusal> {
    let root = scope.ground(place)?.path.clone();
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

/// What putting a file back would change, for people: lines that go and lines that come.
pub(crate) fn difference(scope: &Scope, (data, call): (&Path, CallId), file: &ClientFile) -> Option<String> {
    let before = match (&file.kept, &file.before) {
        (Some(name), Some(before)) => content(data, call, name, before).ok()?,
        _ => Vec::new(),
    };
    let present = scope.see(&file.place(scope).ok()?, true).ok()?.content.unwrap_or_default();
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

/// Removes what was kept for a call.
pub(crate) fn forget(data: &Path, call: CallId) {
    match std::fs::remove_dir_all(data.join(call.to_string())) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(call.id = %call, "what was kept for {call} could not be removed: {}", error.kind())
        }
    }
}

/// The calls for which something is kept.
pub(crate) fn kept_calls(data: &Path) -> Vec<CallId> {
    let Ok(entries) = std::fs::read_dir(data) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
