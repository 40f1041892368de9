//! Plans: what a write will do, computed before it does it.
//!
//! Takes the frozen action; gives, for each object, its fingerprint before and the one it will have after. The store
//! keeps the plan with the hold. Promise: with a plan, the files alone show whether the write happened, and the plan
//! holds what a rollback needs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::hold::Hold;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::{ObjectFingerprint, RETENTION};
use sluice_core::{Action, HoldId, UtcMillis};

use super::arguments::FileArguments;
use super::edit;
use super::fingerprint::{FileFingerprint, FileSnapshot, fingerprint};
use super::open::WHOLE;
use super::roots::{OpenedRoots, RootedPath, check_new_name};
use super::trash::{self, TrashOrigin};
use super::visibility::FolderVisibility;

/// The permissions of a new file.
const NEW_FILE: u32 = 0o644;

/// How the objects change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePlanKind {
    /// Each object gets new content.
    Put,
    /// The first object is renamed to the second.
    Rename,
}

/// One object of a write.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePlanObject {
    /// The root that it is in.
    pub root: String,
    /// The path from the root.
    pub way: String,
    /// Its state before.
    pub before: FileFingerprint,
    /// Its state after.
    pub after: FileFingerprint,
    /// The name under which its old content is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The number of changed places in it.
    #[serde(default)]
    pub places: u64,
}

/// A computed write.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePlan {
    pub v: u8,
    pub hold: HoldId,
    pub kind: FilePlanKind,
    pub objects: Vec<FilePlanObject>,
    /// Folders that will be created, outermost first, as paths from the first object's root.
    #[serde(default)]
    pub folders: Vec<String>,
    /// Until when a deleted object can be restored.
    pub until: UtcMillis,
}

impl FilePlan {
    /// Parses the stored form.
    pub fn read(before: &[u8]) -> Result<Self, Refusal> {
        let plan: Self =
            serde_json::from_slice(before).map_err(|error| Refusal::new(Code::FilesFailed).with_source(error))?;
        if plan.v != 1 || plan.objects.is_empty() || (plan.kind == FilePlanKind::Rename && plan.objects.len() != 2) {
            return Err(Refusal::new(Code::FilesFailed).with_source("a plan with an unknown format"));
        }
        Ok(plan)
    }

    /// The stored form.
    pub fn write(&self) -> Result<Vec<u8>, Refusal> {
        serde_json::to_vec(self).map_err(|error| Refusal::new(Code::FilesFailed).with_source(error))
    }

    /// The fingerprint of all objects before.
    pub fn before(&self) -> ObjectFingerprint {
        let paths = self.paths();
        fingerprint(paths.iter().map(String::as_str).zip(self.objects.iter().map(|object| &object.before)))
    }

    /// The fingerprint of all objects after.
    pub fn after(&self) -> ObjectFingerprint {
        let paths = self.paths();
        fingerprint(paths.iter().map(String::as_str).zip(self.objects.iter().map(|object| &object.after)))
    }

    /// The fingerprint of all objects with the given current states.
    pub fn with(&self, now: &[FileFingerprint]) -> ObjectFingerprint {
        let paths = self.paths();
        fingerprint(paths.iter().map(String::as_str).zip(now))
    }

    fn paths(&self) -> Vec<String> {
        self.objects.iter().map(FilePlanObject::path).collect()
    }

    /// The current state of each object.
    pub fn look(&self, scope: &OpenedRoots) -> Result<Vec<FileFingerprint>, Refusal> {
        self.objects.iter().map(|object| scope.fingerprint(&object.place(scope)?)).collect()
    }
}

impl FilePlanObject {
    fn new(
        scope: &OpenedRoots,
        place: &RootedPath,
        before: FileFingerprint,
        after: FileFingerprint,
    ) -> Result<Self, Refusal> {
        let root = scope.opened_root(place)?.path.clone();
        Ok(Self { root, way: place.way.clone(), before, after, kept: None, places: 0 })
    }

    /// The place of the object.
    pub fn place(&self, scope: &OpenedRoots) -> Result<RootedPath, Refusal> {
        scope.within(&self.root, &self.way)
    }

    /// Whether it lies in the trash.
    pub fn is_in_trash(&self) -> bool {
        self.way.starts_with(trash::TRASH)
    }

    /// The absolute path.
    pub fn path(&self) -> String {
        format!("{}/{}", self.root, self.way)
    }

    /// Keeps the old content.
    fn keep(&mut self, scope: &OpenedRoots, hold: HoldId, n: usize, content: &[u8]) -> Result<(), Refusal> {
        let name = trash::kept_name(n);
        trash::keep(scope.opened_root(&self.place(scope)?)?, hold, &name, content)?;
        self.kept = Some(name);
        Ok(())
    }
}

/// The input for computing a plan.
#[derive(Debug, Clone, Copy)]
pub struct FilePlanContext<'a> {
    pub scope: &'a OpenedRoots,
    pub hold: HoldId,
    pub action: &'a Action,
    pub now: UtcMillis,
    /// Whether the content for a rollback is kept; not during a preview.
    pub keeps: bool,
}

/// Computes a write and keeps what a rollback needs. Nothing for a dry run.
pub fn make(scope: &OpenedRoots, hold: &Hold, now: UtcMillis) -> Result<Option<FilePlan>, Refusal> {
    let working = FilePlanContext { scope, hold: hold.id, action: &hold.action, now, keeps: true };
    if hold.consent.is_some() {
        // SECURITY: compared before anything is kept. The plan that is kept is compared again below.
        let ahead = match work_out(FilePlanContext { keeps: false, ..working })? {
            Some(plan) => plan,
            None => working.edited_plan(&working.edit()?)?,
        };
        check_bound(hold, &ahead)?;
    }
    let plan = work_out(working)?;
    plan.iter().filter(|_| hold.consent.is_some()).try_for_each(|plan| check_bound(hold, plan))?;
    Ok(plan)
}

/// Refuses a plan that differs from the approved one. A person is asked again before the next attempt.
fn check_bound(hold: &Hold, plan: &FilePlan) -> Result<(), Refusal> {
    if plan.is_bound_to(&hold.action) { Ok(()) } else { Err(Refusal::new(Code::FilesNotAsApproved)) }
}

pub fn work_out(working: FilePlanContext<'_>) -> Result<Option<FilePlan>, Refusal> {
    match working.action.capability().as_str() {
        "filesystem.write" | "filesystem.append" => working.content().map(Some),
        "filesystem.edit" if working.arguments().flag("dry_run") => {
            working.edit().map(drop)?;
            Ok(None)
        }
        "filesystem.edit" => working.editing().map(Some),
        "filesystem.copy" => working.copying().map(Some),
        "filesystem.move" => working.moving().map(Some),
        "filesystem.delete" => working.deleting().map(Some),
        "filesystem.restore" => working.restoring().map(Some),
        _ => Err(Refusal::new(Code::GatewayUnsupported)),
    }
}

impl<'a> FilePlanContext<'a> {
    /// The arguments.
    pub fn arguments(self) -> FileArguments<'a> {
        FileArguments(self.action.arguments())
    }

    /// The place that a path argument names.
    pub fn place(self, name: &str) -> Result<RootedPath, Refusal> {
        self.scope.locate(self.action.agent(), self.arguments().need(name)?)
    }

    /// The computed edit.
    pub fn edit(self) -> Result<edit::FileEdit, Refusal> {
        let place = self.place("path")?;
        let sight = FolderVisibility::of(self.scope, self.action, &place, self.now);
        edit::work_out(self.scope, &place, sight, self.arguments())
    }

    /// Keeps the old content of an object, unless this is a preview.
    fn keep(self, object: &mut FilePlanObject, n: usize, content: &[u8]) -> Result<(), Refusal> {
        if self.keeps { object.keep(self.scope, self.hold, n, content) } else { Ok(()) }
    }

    fn plan(self, kind: FilePlanKind, objects: Vec<FilePlanObject>) -> FilePlan {
        FilePlan { v: 1, hold: self.hold, kind, objects, folders: Vec::new(), until: self.now + RETENTION }
    }

    /// `write` and `append`.
    fn content(self) -> Result<FilePlan, Refusal> {
        let place = self.place("path")?;
        self.scope.writable(&place)?;
        let seen = file_or_nothing(self.scope.snapshot(&place, true)?)?;
        let mut folders = Vec::new();
        if seen.print.is_absent() {
            check_new_name(place.name())?;
            folders = self.missing_folders(&place)?;
        }
        let content = new_content(self, seen.content.as_deref())?;
        let mut object = self.put(&place, &seen, mode_after(&seen.print, NEW_FILE), &content)?;
        if let Some(old) = &seen.content {
            self.keep(&mut object, 0, old)?;
        }
        Ok(FilePlan { folders, ..self.plan(FilePlanKind::Put, vec![object]) })
    }

    /// `edit`.
    fn editing(self) -> Result<FilePlan, Refusal> {
        self.scope.opened_root(&self.place("path")?)?;
        let edit = self.edit()?;
        let mut plan = self.edited_plan(&edit)?;
        for (n, (file, object)) in edit.files.iter().zip(&mut plan.objects).enumerate() {
            self.scope.writable(&file.place)?;
            self.keep(object, n, file.seen.content.as_deref().unwrap_or_default())?;
        }
        if plan.objects.is_empty() {
            return Err(Refusal::new(Code::FilesCount));
        }
        Ok(plan)
    }

    /// The plan of an edit. Keeps nothing, and does not check whether the files may be written to.
    pub fn edited_plan(self, edit: &edit::FileEdit) -> Result<FilePlan, Refusal> {
        let mut objects = Vec::with_capacity(edit.files.len());
        for file in &edit.files {
            let mode = mode_after(&file.seen.print, NEW_FILE);
            let mut object = self.put(&file.place, &file.seen, mode, file.text.as_bytes())?;
            object.places = file.places;
            objects.push(object);
        }
        Ok(self.plan(FilePlanKind::Put, objects))
    }

    /// `copy`.
    fn copying(self) -> Result<FilePlan, Refusal> {
        let (source, destination) = (self.place("source")?, self.place("destination")?);
        self.scope.writable(&destination)?;
        let from = self.scope.snapshot(&source, true)?;
        let content = from.content.as_deref().ok_or_else(|| no_file(&from.print))?;
        let seen = self.destination(&source, &destination)?;
        let source_mode = from.print.mode().unwrap_or(NEW_FILE) & 0o777;
        let mut object = self.put(&destination, &seen, mode_after(&seen.print, source_mode), content)?;
        if let Some(old) = &seen.content {
            self.keep(&mut object, 0, old)?;
        }
        Ok(self.plan(FilePlanKind::Put, vec![object]))
    }

    /// `move`.
    fn moving(self) -> Result<FilePlan, Refusal> {
        let (source, destination) = (self.place("source")?, self.place("destination")?);
        self.scope.writable(&source)?;
        self.scope.writable(&destination)?;
        let from = self.scope.fingerprint(&source)?;
        if from.is_absent() || from.is_folder() {
            return Err(no_file(&from));
        }
        let seen = self.destination(&source, &destination)?;
        let first = FilePlanObject::new(self.scope, &source, from.clone(), FileFingerprint::absent())?;
        let mut second = FilePlanObject::new(self.scope, &destination, seen.print, from)?;
        if let Some(old) = &seen.content {
            self.keep(&mut second, 1, old)?;
        }
        Ok(self.plan(FilePlanKind::Rename, vec![first, second]))
    }

    /// `delete`.
    fn deleting(self) -> Result<FilePlan, Refusal> {
        let place = self.place("path")?;
        let opened_root = self.scope.writable(&place)?;
        let print = self.scope.fingerprint(&place)?;
        if print.is_absent() {
            return Err(Refusal::new(Code::FilesNotFound));
        }
        if print.is_folder() {
            check_empty(self.scope, &place)?;
        }
        let plan = self.plan(FilePlanKind::Rename, Vec::new());
        if self.keeps {
            trash::note(
                opened_root,
                self.hold,
                &TrashOrigin { path: place.path.clone(), at: self.now, until: plan.until },
            )?;
        }
        let item = self.scope.within(&opened_root.path, &trash::way(self.hold, place.name()))?;
        let first = FilePlanObject::new(self.scope, &place, print.clone(), FileFingerprint::absent())?;
        let second = FilePlanObject::new(self.scope, &item, FileFingerprint::absent(), print)?;
        Ok(FilePlan { objects: vec![first, second], ..plan })
    }

    /// `restore`.
    fn restoring(self) -> Result<FilePlan, Refusal> {
        let place = self.place("path")?;
        self.scope.writable(&place)?;
        if self.scope.look(&place)?.is_some() {
            return Err(Refusal::new(Code::FilesExists));
        }
        let item = trash::find(self.scope, &place, self.arguments().text("trash_path"), self.now)?;
        let print = self.scope.fingerprint(&item)?;
        let first = FilePlanObject::new(self.scope, &item, print.clone(), FileFingerprint::absent())?;
        let second = FilePlanObject::new(self.scope, &place, FileFingerprint::absent(), print)?;
        self.scope.parent(&place)?;
        Ok(self.plan(FilePlanKind::Rename, vec![first, second]))
    }

    fn put(
        self,
        place: &RootedPath,
        seen: &FileSnapshot,
        mode: u32,
        content: &[u8],
    ) -> Result<FilePlanObject, Refusal> {
        if content.len() as u64 > WHOLE {
            return Err(Refusal::new(Code::FilesTooLarge));
        }
        FilePlanObject::new(self.scope, place, seen.print.clone(), FileFingerprint::file(mode, content))
    }

    /// The state of the destination of a copy or move, if it may exist.
    fn destination(self, source: &RootedPath, destination: &RootedPath) -> Result<FileSnapshot, Refusal> {
        if source == destination {
            return Err(Refusal::new(Code::FilesExists).with_text("source and destination are the same"));
        }
        if self.scope.look(destination)?.is_none() {
            check_new_name(destination.name())?;
            self.scope.parent(destination)?;
        } else if !self.arguments().flag("overwrite") {
            return Err(Refusal::new(Code::FilesExists));
        }
        file_or_nothing(self.scope.snapshot(destination, true)?)
    }

    /// The missing parent folders of a new file, outermost first.
    fn missing_folders(self, place: &RootedPath) -> Result<Vec<String>, Refusal> {
        match self.scope.parent(place) {
            Ok(_) => return Ok(Vec::new()),
            Err(missing) if missing.code() == Code::FilesNotFound && self.arguments().flag("create_parents") => {}
            Err(other) => return Err(other),
        }
        let root = &self.scope.opened_root(place)?.path;
        let mut missing = Vec::new();
        for (end, _) in place.way.match_indices('/') {
            let way = place.way.get(..end).unwrap_or_default();
            let folder = self.scope.within(root, way)?;
            if self.scope.look(&folder)?.is_none() {
                check_new_name(folder.name())?;
                missing.push(way.to_owned());
            }
        }
        Ok(missing)
    }
}

/// The new content of a file. The same old content always gives the same new one.
pub fn new_content(working: FilePlanContext<'_>, old: Option<&[u8]>) -> Result<Vec<u8>, Refusal> {
    let arguments = working.arguments();
    match working.action.capability().as_str() {
        "filesystem.write" => arguments.content(),
        "filesystem.append" => {
            let mut content = old.unwrap_or_default().to_vec();
            content.extend(arguments.content()?);
            Ok(content)
        }
        "filesystem.edit" => edit::again(arguments, old.unwrap_or_default().to_vec()),
        "filesystem.copy" => {
            let from = working.scope.snapshot(&working.place("source")?, true)?;
            from.content.ok_or_else(|| no_file(&from.print))
        }
        _ => Err(Refusal::new(Code::GatewayUnsupported)),
    }
}

/// The answer to the agent when the write has happened.
pub fn answer(plan: &FilePlan, action: &Action) -> Value {
    let (first, last) = (plan.objects.first(), plan.objects.last());
    let path = first.map(FilePlanObject::path);
    let after = last.map(|object| &object.after);
    let (size, checksum) = (after.and_then(FileFingerprint::size), after.and_then(FileFingerprint::checksum));
    let trash_path = |object: Option<&FilePlanObject>| object.map(|object| trash::shown(&object.way));
    match action.capability().as_str() {
        "filesystem.append" => json!({"path": path, "new_size": size}),
        "filesystem.copy" => {
            let source = FileArguments(action.arguments()).text("source");
            json!({"source": source, "destination": path, "size": size, "checksum": checksum})
        }
        "filesystem.move" => json!({"source": path, "destination": last.map(FilePlanObject::path), "size": size}),
        "filesystem.delete" => json!({
            "deleted_path": path,
            "trash_path": trash_path(last),
            "recoverable_until": plan.until.to_string(),
        }),
        "filesystem.restore" => {
            json!({"path": last.map(FilePlanObject::path), "trash_path": trash_path(first), "size": size, "checksum": checksum})
        }
        _ => json!({"path": path, "size": size, "checksum": checksum}),
    }
}

/// Whether a folder is empty.
pub fn check_empty(scope: &OpenedRoots, place: &RootedPath) -> Result<(), Refusal> {
    let folder = scope.folder(place)?;
    // Counted without filtering: names that agents do not see count, too.
    for entry in rustix::fs::Dir::read_from(&folder).map_err(super::open::refusal)? {
        let entry = entry.map_err(super::open::refusal)?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Err(Refusal::new(Code::FilesNotEmpty));
        }
    }
    Ok(())
}

/// The permissions that a file keeps, or those of a new one.
fn mode_after(before: &FileFingerprint, new: u32) -> u32 {
    before.mode().unwrap_or(new) & 0o777
}

fn file_or_nothing(seen: FileSnapshot) -> Result<FileSnapshot, Refusal> {
    if seen.print.is_folder() { Err(Refusal::new(Code::FilesNotAFile)) } else { Ok(seen) }
}

pub fn no_file(print: &FileFingerprint) -> Refusal {
    Refusal::new(if print.is_absent() { Code::FilesNotFound } else { Code::FilesNotAFile })
}
