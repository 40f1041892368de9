//! Plans: what a write will do, worked out before it does it.
//!
//! Takes the frozen action; gives, for each object, its print before and the print it will have after.
//! The plan is what the store keeps with the hold. Promise: whoever holds a plan can tell from the files
//! alone whether the write happened, and has what it takes to go back.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::hold::Hold;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::{Fingerprint, RETENTION};
use sluice_core::{Action, HoldId, Timestamp};

use super::arguments::Arguments;
use super::edit;
use super::open::WHOLE;
use super::print::{Print, Seen, fingerprint};
use super::roots::{Place, Scope, check_new_name};
use super::sight::Sight;
use super::trash::{self, Origin};

/// Permissions of a file that was not there before.
const NEW_FILE: u32 = 0o644;

/// How the objects change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Each object gets new content.
    Put,
    /// The first object becomes the second.
    Rename,
}

/// One object of a write.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Object {
    /// The root it is in.
    pub root: String,
    /// The way from there.
    pub way: String,
    /// What it is before.
    pub before: Print,
    /// What it will be.
    pub after: Print,
    /// Under which name its old content is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// How many places change in it.
    #[serde(default)]
    pub places: u64,
}

/// A write, worked out.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub v: u8,
    pub hold: HoldId,
    pub kind: Kind,
    pub objects: Vec<Object>,
    /// Folders that will be made, outermost first, as ways from the first object's root.
    #[serde(default)]
    pub folders: Vec<String>,
    /// Until when what is deleted can be brought back.
    pub until: Timestamp,
}

impl Plan {
    /// Reads what the store kept.
    pub fn read(before: &[u8]) -> Result<Self, Refusal> {
        let plan: Self =
            serde_json::from_slice(before).map_err(|error| Refusal::new(Code::FilesFailed).because(error))?;
        if plan.v != 1 || plan.objects.is_empty() || (plan.kind == Kind::Rename && plan.objects.len() != 2) {
            return Err(Refusal::new(Code::FilesFailed).because("a plan of another form"));
        }
        Ok(plan)
    }

    /// As the store keeps it.
    pub fn write(&self) -> Result<Vec<u8>, Refusal> {
        serde_json::to_vec(self).map_err(|error| Refusal::new(Code::FilesFailed).because(error))
    }

    /// The print of all objects before.
    pub fn before(&self) -> Fingerprint {
        let paths = self.paths();
        fingerprint(paths.iter().map(String::as_str).zip(self.objects.iter().map(|object| &object.before)))
    }

    /// The print of all objects after.
    pub fn after(&self) -> Fingerprint {
        let paths = self.paths();
        fingerprint(paths.iter().map(String::as_str).zip(self.objects.iter().map(|object| &object.after)))
    }

    /// The print of all objects with the prints they have now.
    pub fn with(&self, now: &[Print]) -> Fingerprint {
        let paths = self.paths();
        fingerprint(paths.iter().map(String::as_str).zip(now))
    }

    fn paths(&self) -> Vec<String> {
        self.objects.iter().map(Object::path).collect()
    }

    /// What is at each object now.
    pub fn look(&self, scope: &Scope) -> Result<Vec<Print>, Refusal> {
        self.objects.iter().map(|object| scope.print(&object.place(scope)?)).collect()
    }
}

impl Object {
    fn new(scope: &Scope, place: &Place, before: Print, after: Print) -> Result<Self, Refusal> {
        let root = scope.ground(place)?.path.clone();
        Ok(Self { root, way: place.way.clone(), before, after, kept: None, places: 0 })
    }

    /// Where it is.
    pub fn place(&self, scope: &Scope) -> Result<Place, Refusal> {
        scope.within(&self.root, &self.way)
    }

    /// Whether it lies in the trash.
    pub fn is_in_trash(&self) -> bool {
        self.way.starts_with(trash::TRASH)
    }

    /// Its absolute path.
    pub fn path(&self) -> String {
        format!("{}/{}", self.root, self.way)
    }

    /// Keeps its old content.
    fn keep(&mut self, scope: &Scope, hold: HoldId, n: usize, content: &[u8]) -> Result<(), Refusal> {
        let name = trash::kept_name(n);
        trash::keep(scope.ground(&self.place(scope)?)?, hold, &name, content)?;
        self.kept = Some(name);
        Ok(())
    }
}

/// What is to be worked out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Working<'a> {
    pub scope: &'a Scope,
    pub hold: HoldId,
    pub action: &'a Action,
    pub now: Timestamp,
    /// Whether what it takes to go back is kept; not while only looking ahead.
    pub keeps: bool,
}

/// Works a write out and keeps what it takes to go back. Nothing for a call that only shows.
pub(crate) fn make(scope: &Scope, hold: &Hold, now: Timestamp) -> Result<Option<Plan>, Refusal> {
    let working = Working { scope, hold: hold.id, action: &hold.action, now, keeps: true };
    if hold.consent.is_some() {
        // SECURITY: looked at before anything is kept. The plan that is kept is compared once more below.
        let ahead = match work_out(Working { keeps: false, ..working })? {
            Some(plan) => plan,
            None => working.edited_plan(&working.edit()?)?,
        };
        check_bound(hold, &ahead)?;
    }
    let plan = work_out(working)?;
    plan.iter().filter(|_| hold.consent.is_some()).try_for_each(|plan| check_bound(hold, plan))?;
    Ok(plan)
}

/// Refuses a plan that is not the one a person approved. The write is asked about again before its next attempt.
fn check_bound(hold: &Hold, plan: &Plan) -> Result<(), Refusal> {
    if plan.is_bound_to(&hold.action) { Ok(()) } else { Err(Refusal::new(Code::FilesNotAsApproved)) }
}

pub(crate) fn work_out(working: Working<'_>) -> Result<Option<Plan>, Refusal> {
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

impl<'a> Working<'a> {
    /// The arguments.
    pub fn arguments(self) -> Arguments<'a> {
        Arguments(self.action.arguments())
    }

    /// What a path argument means.
    pub fn place(self, name: &str) -> Result<Place, Refusal> {
        self.scope.locate(self.action.agent(), self.arguments().need(name)?)
    }

    /// An edit, worked out.
    pub fn edit(self) -> Result<edit::Edit, Refusal> {
        let place = self.place("path")?;
        let sight = Sight::of(self.scope, self.action, &place, self.now);
        edit::work_out(self.scope, &place, sight, self.arguments())
    }

    /// Keeps the old content of an object, unless this only looks ahead.
    fn keep(self, object: &mut Object, n: usize, content: &[u8]) -> Result<(), Refusal> {
        if self.keeps { object.keep(self.scope, self.hold, n, content) } else { Ok(()) }
    }

    fn plan(self, kind: Kind, objects: Vec<Object>) -> Plan {
        Plan { v: 1, hold: self.hold, kind, objects, folders: Vec::new(), until: self.now + RETENTION }
    }

    /// `write` and `append`.
    fn content(self) -> Result<Plan, Refusal> {
        let place = self.place("path")?;
        self.scope.writable(&place)?;
        let seen = file_or_nothing(self.scope.see(&place, true)?)?;
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
        Ok(Plan { folders, ..self.plan(Kind::Put, vec![object]) })
    }

    /// `edit`.
    fn editing(self) -> Result<Plan, Refusal> {
        self.scope.ground(&self.place("path")?)?;
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

    /// The plan of an edit. Nothing is kept, and whether the files may be written to is not asked.
    pub fn edited_plan(self, edit: &edit::Edit) -> Result<Plan, Refusal> {
        let mut objects = Vec::with_capacity(edit.files.len());
        for file in &edit.files {
            let mode = mode_after(&file.seen.print, NEW_FILE);
            let mut object = self.put(&file.place, &file.seen, mode, file.text.as_bytes())?;
            object.places = file.places;
            objects.push(object);
        }
        Ok(self.plan(Kind::Put, objects))
    }

    /// `copy`.
    fn copying(self) -> Result<Plan, Refusal> {
        let (source, destination) = (self.place("source")?, self.place("destination")?);
        self.scope.writable(&destination)?;
        let from = self.scope.see(&source, true)?;
        let content = from.content.as_deref().ok_or_else(|| no_file(&from.print))?;
        let seen = self.destination(&source, &destination)?;
        let source_mode = from.print.mode().unwrap_or(NEW_FILE) & 0o777;
        let mut object = self.put(&destination, &seen, mode_after(&seen.print, source_mode), content)?;
        if let Some(old) = &seen.content {
            self.keep(&mut object, 0, old)?;
        }
        Ok(self.plan(Kind::Put, vec![object]))
    }

    /// `move`.
    fn moving(self) -> Result<Plan, Refusal> {
        let (source, destination) = (self.place("source")?, self.place("destination")?);
        self.scope.writable(&source)?;
        self.scope.writable(&destination)?;
        let from = self.scope.print(&source)?;
        if from.is_absent() || from.is_folder() {
            return Err(no_file(&from));
        }
        let seen = self.destination(&source, &destination)?;
        let first = Object::new(self.scope, &source, from.clone(), Print::absent())?;
        let mut second = Object::new(self.scope, &destination, seen.print, from)?;
        if let Some(old) = &seen.content {
            self.keep(&mut second, 1, old)?;
        }
        Ok(self.plan(Kind::Rename, vec![first, second]))
    }

    /// `delete`.
    fn deleting(self) -> Result<Plan, Refusal> {
        let place = self.place("path")?;
        let ground = self.scope.writable(&place)?;
        let print = self.scope.print(&place)?;
        if print.is_absent() {
            return Err(Refusal::new(Code::FilesNotFound));
        }
        if print.is_folder() {
            check_empty(self.scope, &place)?;
        }
        let plan = self.plan(Kind::Rename, Vec::new());
        if self.keeps {
            trash::note(ground, self.hold, &Origin { path: place.path.clone(), at: self.now, until: plan.until })?;
        }
        let item = self.scope.within(&ground.path, &trash::way(self.hold, place.name()))?;
        let first = Object::new(self.scope, &place, print.clone(), Print::absent())?;
        let second = Object::new(self.scope, &item, Print::absent(), print)?;
        Ok(Plan { objects: vec![first, second], ..plan })
    }

    /// `restore`.
    fn restoring(self) -> Result<Plan, Refusal> {
        let place = self.place("path")?;
        self.scope.writable(&place)?;
        if self.scope.look(&place)?.is_some() {
            return Err(Refusal::new(Code::FilesExists));
        }
        let item = trash::find(self.scope, &place, self.arguments().text("trash_path"), self.now)?;
        let print = self.scope.print(&item)?;
        let first = Object::new(self.scope, &item, print.clone(), Print::absent())?;
        let second = Object::new(self.scope, &place, Print::absent(), print)?;
        self.scope.parent(&place)?;
        Ok(self.plan(Kind::Rename, vec![first, second]))
    }

    fn put(self, place: &Place, seen: &Seen, mode: u32, content: &[u8]) -> Result<Object, Refusal> {
        if content.len() as u64 > WHOLE {
            return Err(Refusal::new(Code::FilesTooLarge));
        }
        Object::new(self.scope, place, seen.print.clone(), Print::file(mode, content))
    }

    /// What is at the destination of a copy or a move, if it may be there.
    fn destination(self, source: &Place, destination: &Place) -> Result<Seen, Refusal> {
        if source == destination {
            return Err(Refusal::new(Code::FilesExists).with_text("source and destination are the same"));
        }
        if self.scope.look(destination)?.is_none() {
            check_new_name(destination.name())?;
            self.scope.parent(destination)?;
        } else if !self.arguments().flag("overwrite") {
            return Err(Refusal::new(Code::FilesExists));
        }
        file_or_nothing(self.scope.see(destination, true)?)
    }

    /// Folders that are missing on the way to a new file, outermost first.
    fn missing_folders(self, place: &Place) -> Result<Vec<String>, Refusal> {
        match self.scope.parent(place) {
            Ok(_) => return Ok(Vec::new()),
            Err(missing) if missing.code() == Code::FilesNotFound && self.arguments().flag("create_parents") => {}
            Err(other) => return Err(other),
        }
        let root = &self.scope.ground(place)?.path;
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

/// What a file will contain. The same old content always gives the same new one.
pub(crate) fn new_content(working: Working<'_>, old: Option<&[u8]>) -> Result<Vec<u8>, Refusal> {
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
            let from = working.scope.see(&working.place("source")?, true)?;
            from.content.ok_or_else(|| no_file(&from.print))
        }
        _ => Err(Refusal::new(Code::GatewayUnsupported)),
    }
}

/// What the agent is told when the write has happened.
pub(crate) fn answer(plan: &Plan, action: &Action) -> Value {
    let (first, last) = (plan.objects.first(), plan.objects.last());
    let path = first.map(Object::path);
    let after = last.map(|object| &object.after);
    let (size, checksum) = (after.and_then(Print::size), after.and_then(Print::checksum));
    let trash_path = |object: Option<&Object>| object.map(|object| trash::shown(&object.way));
    match action.capability().as_str() {
        "filesystem.append" => json!({"path": path, "new_size": size}),
        "filesystem.copy" => {
            let source = Arguments(action.arguments()).text("source");
            json!({"source": source, "destination": path, "size": size, "checksum": checksum})
        }
        "filesystem.move" => json!({"source": path, "destination": last.map(Object::path), "size": size}),
        "filesystem.delete" => json!({
            "deleted_path": path,
            "trash_path": trash_path(last),
            "recoverable_until": plan.until.to_string(),
        }),
        "filesystem.restore" => {
            json!({"path": last.map(Object::path), "trash_path": trash_path(first), "size": size, "checksum": checksum})
        }
        _ => json!({"path": path, "size": size, "checksum": checksum}),
    }
}

/// Whether a folder is empty.
pub(crate) fn check_empty(scope: &Scope, place: &Place) -> Result<(), Refusal> {
    let folder = scope.folder(place)?;
    // Counted by hand: names that agents do not see are names, too.
    for entry in rustix::fs::Dir::read_from(&folder).map_err(super::open::refusal)? {
        let entry = entry.map_err(super::open::refusal)?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Err(Refusal::new(Code::FilesNotEmpty));
        }
    }
    Ok(())
}

/// The permissions a file keeps, or those of a new one.
fn mode_after(before: &Print, new: u32) -> u32 {
    before.mode().unwrap_or(new) & 0o777
}

fn file_or_nothing(seen: Seen) -> Result<Seen, Refusal> {
    if seen.print.is_folder() { Err(Refusal::new(Code::FilesNotAFile)) } else { Ok(seen) }
}

pub(crate) fn no_file(print: &Print) -> Refusal {
    Refusal::new(if print.is_absent() { Code::FilesNotFound } else { Code::FilesNotAFile })
}
