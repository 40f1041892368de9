//! Carries a plan out, finds out whether it was carried out, and undoes it.
//!
//! Takes a plan and the current state; gives what happened. Promise: nothing is changed unless every object is as the
//! plan says; several files change together or not at all, unless the machine dies in between, and then a later check
//! finds out which; an undo never overwrites newer changes.

use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, HoldId};

use super::fingerprint::FileFingerprint;
use super::open::{refusal, same_object, untouched};
use super::plan::{self, FilePlan, FilePlanContext, FilePlanKind, FilePlanObject, check_empty, new_content};
use super::roots::{OpenedRoots, RootedPath};
use super::screen::CallFileScreen;
use super::staged_file::{FilePlacement, StagedFile, UNFINISHED, rename_new, trouble};
use super::trash;
use crate::{CompletedWrite, LookupOutcome, WriteError};

/// The permissions of a new folder.
const NEW_FOLDER: u32 = 0o755;

/// The temporary name of a new file until it is complete.
fn beside(hold: HoldId, n: usize) -> String {
    format!(".sluice-new-{hold}-{n}")
}

/// Carries the plan out.
pub fn perform(
    working: FilePlanContext<'_>,
    plan: &FilePlan,
    screen: Option<&CallFileScreen<'_>>,
) -> Result<CompletedWrite, WriteError> {
    // Computed while the old text is still there: people are shown what changed.
    let shown = match working.action.capability().as_str() {
        "filesystem.edit" => {
            let now = plan.look(working.scope).map_err(trouble)?;
            if plan.with(&now) != plan.before() {
                return Err(WriteError::refused(Code::FilesChanged));
            }
            Some(working.edit().map_err(trouble)?.answer("full", screen))
        }
        _ => None,
    };
    match plan.kind {
        FilePlanKind::Put => put(working, plan)?,
        FilePlanKind::Rename => rename(working.scope, plan)?,
    }
    let result = shown.unwrap_or_else(|| plan::answer(plan, working.action));
    Ok(done(working.action, plan, result))
}

fn done(action: &Action, plan: &FilePlan, result: Value) -> CompletedWrite {
    let undo_until = (action.capability().as_str() == "filesystem.delete").then_some(plan.until);
    CompletedWrite { receipt: format!("after {}", plan.after()), result, after: Some(plan.after()), undo_until }
}

/// Writes new content for every object.
fn put(working: FilePlanContext<'_>, plan: &FilePlan) -> Result<(), WriteError> {
    let scope = working.scope;
    let folders = CreatedFolders::make(scope, plan)?;
    let mut staged = Vec::with_capacity(plan.objects.len());
    for (n, object) in plan.objects.iter().enumerate() {
        staged.push(stage(working, object, beside(plan.hold, n)).map_err(trouble)?);
    }
    place_all(staged)?;
    folders.stay();
    Ok(())
}

/// Checks an object against the plan and writes its new content to a temporary file next to it.
fn stage(working: FilePlanContext<'_>, object: &FilePlanObject, beside: String) -> Result<StagedFile, Refusal> {
    let place = object.place(working.scope)?;
    working.scope.writable(&place)?;
    let seen = working.scope.snapshot(&place, true)?;
    if seen.print != object.before {
        return Err(Refusal::new(Code::FilesChanged));
    }
    let content = new_content(working, seen.content.as_deref())?;
    let mode = object.after.mode().unwrap_or(0o600);
    // Mainly a copy whose source changed since.
    if FileFingerprint::file(mode, &content) != object.after {
        return Err(Refusal::new(Code::FilesChanged));
    }
    StagedFile::new(
        working.scope,
        FilePlacement { place: &place, beside, content: &content, mode, replaces: seen.stat },
    )
}

/// Gives every file its final name; if one fails, restores those that were already replaced.
pub(super) fn place_all(mut staged: Vec<StagedFile>) -> Result<(), WriteError> {
    for n in 0..staged.len() {
        let Some(Err(why)) = staged.get_mut(n).map(StagedFile::place) else { continue };
        let mut placed: Vec<&mut StagedFile> = staged.iter_mut().take(n).collect();
        while let Some(one) = placed.pop() {
            one.take_back()?;
        }
        return Err(why);
    }
    staged.into_iter().try_for_each(StagedFile::settle)
}

/// Folders created for a new file; removed again unless they are kept.
struct CreatedFolders<'s> {
    scope: &'s OpenedRoots,
    made: Vec<RootedPath>,
}

impl<'s> CreatedFolders<'s> {
    fn make(scope: &'s OpenedRoots, plan: &FilePlan) -> Result<Self, WriteError> {
        let mut folders = Self { scope, made: Vec::new() };
        let root = plan.objects.first().map_or("", |object| object.root.as_str());
        for way in &plan.folders {
            let place = scope.within(root, way).map_err(trouble)?;
            let (parent, name) = scope.parent(&place).map_err(trouble)?;
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(NEW_FOLDER)) {
                Ok(()) => {
                    rustix::fs::fsync(&parent).map_err(|errno| trouble(refusal(errno)))?;
                    folders.made.push(place);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(trouble(refusal(errno))),
            }
        }
        Ok(folders)
    }

    fn stay(mut self) {
        self.made.clear();
    }
}

impl Drop for CreatedFolders<'_> {
    fn drop(&mut self) {
        for place in self.made.iter().rev() {
            remove_empty(self.scope, place);
        }
    }
}

/// Removes a folder if it is empty.
fn remove_empty(scope: &OpenedRoots, place: &RootedPath) {
    if let Ok((parent, name)) = scope.parent(place) {
        let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }
}

/// Renames the first object to the second.
fn rename(scope: &OpenedRoots, plan: &FilePlan) -> Result<(), WriteError> {
    let [first, second] = plan.objects.as_slice() else { return Err(WriteError::refused(Code::FilesFailed)) };
    let (from, to) = (first.place(scope).map_err(trouble)?, second.place(scope).map_err(trouble)?);
    for place in [&from, &to] {
        scope.writable(place).map_err(trouble)?;
    }
    let seen = scope.snapshot(&from, false).map_err(trouble)?;
    let there = scope.snapshot(&to, false).map_err(trouble)?;
    if seen.print != first.before || there.print != second.before {
        return Err(WriteError::refused(Code::FilesChanged));
    }
    let stat = seen.stat.ok_or_else(|| WriteError::refused(Code::FilesNotFound))?;
    shift(scope, FileMove { from: &from, to: &to, stat: &stat, replace: !second.before.is_absent() })
}

/// A rename from one place to another.
struct FileMove<'a> {
    from: &'a RootedPath,
    to: &'a RootedPath,
    /// The status of the moved object, as it was when it was checked.
    stat: &'a Stat,
    replace: bool,
}

/// Moves an object in one step, and back if it was not the object that was checked.
fn shift(scope: &OpenedRoots, shift: FileMove<'_>) -> Result<(), WriteError> {
    let (from, name) = scope.parent(shift.from).map_err(trouble)?;
    let (to, new) = scope.parent(shift.to).map_err(trouble)?;
    let renamed = match shift.replace {
        true => rustix::fs::renameat(&from, name, &to, new),
        false => rename_new(&from, name, &to, new),
    };
    renamed.map_err(|errno| match errno {
        Errno::EXIST | Errno::NOENT => WriteError::refused(Code::FilesChanged),
        Errno::XDEV => WriteError::Refused(
            Refusal::new(Code::FilesFailed)
                .with_text("source and destination are on different disks: copy, then delete"),
        ),
        other => trouble(refusal(other)),
    })?;
    // SECURITY: the bytes that arrive must be the bytes that were hashed; a rename keeps the time of the last write.
    let is_folder = super::open::kind(shift.stat) == rustix::fs::FileType::Directory;
    let is_same = |now: &Stat| if is_folder { same_object(now, shift.stat) } else { untouched(now, shift.stat) };
    let is_ours = rustix::fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|now| is_same(&now));
    // A folder is moved only while it is empty, which is certain only where no other program can reach it.
    let still_empty = !is_folder || check_empty(scope, shift.to).is_ok();
    if !is_ours || !still_empty {
        if shift.replace || rename_new(&to, new, &from, name).is_err() {
            return Err(WriteError::Unclear);
        }
        return Err(WriteError::refused(if is_ours { Code::FilesNotEmpty } else { Code::FilesChanged }));
    }
    for folder in [&to, &from] {
        rustix::fs::fsync(folder).map_err(|_| WriteError::Unclear)?;
    }
    Ok(())
}

/// Finds out whether the plan was carried out.
pub fn look_up(scope: &OpenedRoots, action: &Action, plan: &FilePlan) -> LookupOutcome {
    let Ok(now) = plan.look(scope) else { return LookupOutcome::Unknown };
    let pairs = || plan.objects.iter().zip(&now);
    if displaced(scope, plan, &now) {
        return LookupOutcome::Unknown;
    }
    if pairs().all(|(object, now)| *now == object.after) {
        let result = match action.capability().as_str() {
            "filesystem.edit" => edited(plan, action, None),
            _ => plan::answer(plan, action),
        };
        return LookupOutcome::Applied(done(action, plan, result));
    }
    if pairs().all(|(object, now)| *now == object.before) {
        return LookupOutcome::Absent;
    }
    // The machine died between two files of one edit. The files that were changed are known and can be undone.
    if plan.kind == FilePlanKind::Put && pairs().all(|(object, now)| *now == object.after || *now == object.before) {
        let after = plan.with(&now);
        let result = edited(plan, action, Some(&now));
        return LookupOutcome::Applied(CompletedWrite {
            receipt: format!("after {after}"),
            result,
            after: Some(after),
            undo_until: None,
        });
    }
    LookupOutcome::Unknown
}

/// Finds out whether the plan was undone.
pub fn look_up_undo(scope: &OpenedRoots, plan: &FilePlan) -> LookupOutcome {
    let Ok(now) = plan.look(scope) else { return LookupOutcome::Unknown };
    let pairs = || plan.objects.iter().zip(&now);
    if pairs().all(|(object, now)| *now == object.before) {
        return LookupOutcome::Applied(undone(plan, &now));
    }
    // An undo can be repeated safely: restored objects are left alone.
    let between = |(object, now): (&FilePlanObject, &FileFingerprint)| {
        *now == object.after || *now == object.before || now.is_absent()
    };
    if pairs().all(between) { LookupOutcome::Absent } else { LookupOutcome::Unknown }
}

/// Whether the machine died while another program's newer file was still under our temporary name.
fn displaced(scope: &OpenedRoots, plan: &FilePlan, now: &[FileFingerprint]) -> bool {
    plan.kind == FilePlanKind::Put
        && plan.objects.iter().zip(now).enumerate().any(|(n, (object, now))| {
            let left = object.place(scope).and_then(|place| leftover(scope, &place, plan.hold, n));
            left.is_ok_and(|left| *now == object.after && !is_ours(&left, object))
        })
}

fn leftover(scope: &OpenedRoots, place: &RootedPath, hold: HoldId, n: usize) -> Result<FileFingerprint, Refusal> {
    let way = place.split().map_or("", |(way, _)| way);
    let way = if way.is_empty() { beside(hold, n) } else { format!("{way}/{}", beside(hold, n)) };
    scope.fingerprint(&scope.within(&scope.opened_root(place)?.path, &way)?)
}

/// Whether the file next to an object is the old or the new file, or an unfinished one.
fn is_ours(left: &FileFingerprint, object: &FilePlanObject) -> bool {
    left.is_absent() || *left == object.before || *left == object.after || left.mode() == Some(UNFINISHED)
}

/// The answer to an edit.
fn edited(plan: &FilePlan, action: &Action, now: Option<&[FileFingerprint]>) -> Value {
    let is_changed = |n: usize, object: &FilePlanObject| now.is_none_or(|now| now.get(n) == Some(&object.after));
    let changed: Vec<&FilePlanObject> = plan
        .objects
        .iter()
        .enumerate()
        .filter(|(n, object)| is_changed(*n, object))
        .map(|(_, object)| object)
        .collect();
    let per_file: Vec<Value> =
        changed.iter().map(|object| json!({"path": object.path(), "replacements": object.places})).collect();
    let skipped: Vec<Value> = (plan.objects.iter().enumerate())
        .filter(|(n, object)| !is_changed(*n, object))
        .map(|(_, object)| json!({"path": object.path(), "reason": "execute.in_doubt"}))
        .collect();
    let path = action.arguments().get("path");
    json!({
        "path": path,
        "applied": if skipped.is_empty() { "full" } else { "partial" },
        "total_replacements": changed.iter().map(|object| object.places).sum::<u64>(),
        "files_changed": changed.len(),
        "per_file": per_file,
        "skipped": skipped,
    })
}

/// Undoes a plan.
pub fn undo(scope: &OpenedRoots, plan: &FilePlan) -> Result<CompletedWrite, WriteError> {
    match plan.kind {
        FilePlanKind::Put => put_back(scope, plan)?,
        FilePlanKind::Rename => rename_back(scope, plan)?,
    }
    let now = plan.look(scope).map_err(|_| WriteError::Unclear)?;
    Ok(undone(plan, &now))
}

fn undone(plan: &FilePlan, now: &[FileFingerprint]) -> CompletedWrite {
    let after = plan.with(now);
    let paths: Vec<String> =
        plan.objects.iter().map(FilePlanObject::path).filter(|path| !path.contains(trash::TRASH)).collect();
    CompletedWrite {
        receipt: format!("undone {after}"),
        result: json!({"undone": true, "paths": paths}),
        after: Some(after),
        undo_until: None,
    }
}

fn conflict() -> WriteError {
    WriteError::refused(Code::RollbackConflict)
}

/// Restores old contents, and removes files that did not exist before.
fn put_back(scope: &OpenedRoots, plan: &FilePlan) -> Result<(), WriteError> {
    let mut staged = Vec::new();
    for (n, object) in plan.objects.iter().enumerate() {
        let place = object.place(scope).map_err(trouble)?;
        scope.writable(&place).map_err(trouble)?;
        let seen = scope.snapshot(&place, false).map_err(trouble)?;
        if seen.print == object.before {
            continue;
        }
        if seen.print != object.after {
            return Err(conflict());
        }
        let Some(kept) = &object.kept else {
            // Only a write of a single file creates a new one.
            return take_away(scope, plan, (&place, seen.stat));
        };
        let content = kept_content(scope, plan, object, kept)?;
        let beside = format!(".sluice-old-{}-{n}", plan.hold);
        let mode = object.before.mode().unwrap_or(0o600);
        let putting = FilePlacement { place: &place, beside, content: &content, mode, replaces: seen.stat };
        staged.push(StagedFile::new(scope, putting).map_err(trouble)?);
    }
    place_all(staged).map_err(as_conflict)
}

/// The old content of an object, if it is unchanged since it was kept.
fn kept_content(
    scope: &OpenedRoots,
    plan: &FilePlan,
    object: &FilePlanObject,
    kept: &str,
) -> Result<Vec<u8>, WriteError> {
    let place = scope.within(&object.root, &trash::way(plan.hold, kept)).map_err(trouble)?;
    let seen = scope.snapshot(&place, true).map_err(trouble)?;
    let damaged = || WriteError::Refused(Refusal::new(Code::FilesFailed).with_text("the kept old content is damaged"));
    if seen.print.checksum() != object.before.checksum() {
        return Err(damaged());
    }
    seen.content.ok_or_else(damaged)
}

/// Removes a file that was new. It goes through the trash, so that no other file is removed by mistake.
fn take_away(
    scope: &OpenedRoots,
    plan: &FilePlan,
    (place, stat): (&RootedPath, Option<Stat>),
) -> Result<(), WriteError> {
    let stat = stat.ok_or_else(conflict)?;
    let opened_root = scope.writable(place).map_err(trouble)?;
    let folder = trash::folder(opened_root, plan.hold).map_err(trouble)?;
    // Left behind by a crash of an earlier attempt.
    let _ = rustix::fs::unlinkat(&folder, "undone", AtFlags::empty());
    let away = scope.within(&opened_root.path, &trash::way(plan.hold, "undone")).map_err(trouble)?;
    shift(scope, FileMove { from: place, to: &away, stat: &stat, replace: false }).map_err(as_conflict)?;
    for way in plan.folders.iter().rev() {
        if let Ok(folder) = scope.within(&opened_root.path, way) {
            remove_empty(scope, &folder);
        }
    }
    Ok(())
}

/// Renames the second object back to the first, and restores what it replaced.
fn rename_back(scope: &OpenedRoots, plan: &FilePlan) -> Result<(), WriteError> {
    let [first, second] = plan.objects.as_slice() else { return Err(WriteError::refused(Code::FilesFailed)) };
    let (from, to) = (first.place(scope).map_err(trouble)?, second.place(scope).map_err(trouble)?);
    for place in [&from, &to] {
        scope.writable(place).map_err(trouble)?;
    }
    let before = scope.snapshot(&from, false).map_err(trouble)?;
    let there = scope.snapshot(&to, false).map_err(trouble)?;
    if before.print == first.after && there.print == second.after {
        let stat = there.stat.ok_or_else(conflict)?;
        if from.way.starts_with(trash::TRASH) {
            // Undoing a restore: the folder in the trash may have been removed meanwhile.
            let hold = from.way.split('/').nth(1).and_then(|id| id.parse().ok()).ok_or_else(conflict)?;
            trash::folder(scope.writable(&from).map_err(trouble)?, hold).map_err(trouble)?;
        }
        shift(scope, FileMove { from: &to, to: &from, stat: &stat, replace: false }).map_err(as_conflict)?;
    } else if before.print != first.before || !(there.print.is_absent() || there.print == second.before) {
        return Err(conflict());
    }
    let Some(kept) = &second.kept else { return Ok(()) };
    if scope.fingerprint(&to).map_err(trouble)? == second.before {
        return Ok(());
    }
    let content = kept_content(scope, plan, second, kept)?;
    let mode = second.before.mode().unwrap_or(0o600);
    let beside = format!(".sluice-old-{}-1", plan.hold);
    let putting = FilePlacement { place: &to, beside, content: &content, mode, replaces: None };
    // The file is back under its first name already; from here on only a lookup can tell the outcome.
    let staged = StagedFile::new(scope, putting).map_err(|_| WriteError::Unclear)?;
    place_all(vec![staged]).map_err(|_| WriteError::Unclear)
}

/// A change during an undo is newer work, so it is a conflict.
fn as_conflict(why: WriteError) -> WriteError {
    match why {
        WriteError::Refused(refusal) if matches!(refusal.code(), Code::FilesChanged | Code::FilesNotEmpty) => {
            conflict()
        }
        other @ (WriteError::Refused(_)
        | WriteError::NotDone(_)
        | WriteError::Unclear
        | WriteError::UnclearSaying(_)) => other,
    }
}

/// Deletes what was kept for a rollback, and temporary files that a crash left behind.
pub fn forget(scope: &OpenedRoots, plan: &FilePlan) -> Result<(), Refusal> {
    for (n, object) in plan.objects.iter().enumerate() {
        let place = object.place(scope)?;
        if plan.kind == FilePlanKind::Put
            && leftover(scope, &place, plan.hold, n).is_ok_and(|left| is_ours(&left, object))
        {
            let (folder, _) = scope.parent(&place)?;
            let _ = rustix::fs::unlinkat(&folder, beside(plan.hold, n).as_str(), AtFlags::empty());
        }
        trash::forget(scope.opened_root(&place)?, plan.hold)?;
    }
    Ok(())
}
