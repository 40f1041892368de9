//! Carrying a plan out, finding out whether it was, and taking it back.
//!
//! Takes a plan and what is there now; gives what happened. Promise: nothing is touched unless every
//! object is as the plan says; several files change together or not at all, unless the machine dies in
//! between, and then the look afterwards says which; an undo never overwrites what came later.

use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, HoldId};

use super::open::{refusal, same_object, untouched};
use super::plan::{self, Kind, Object, Plan, Working, check_empty, new_content};
use super::print::Print;
use super::put::{Putting, Staged, UNFINISHED, rename_new, trouble};
use super::roots::{Place, Scope};
use super::screen::Screen;
use super::trash;
use crate::services::{Found, Performed, Trouble};

/// Permissions of a folder that was not there before.
const NEW_FOLDER: u32 = 0o755;

/// The name a new file of a write has until it is complete.
fn beside(hold: HoldId, n: usize) -> String {
    format!(".sluice-new-{hold}-{n}")
}

/// Does what the plan says.
pub(crate) fn perform(working: Working<'_>, plan: &Plan, screen: Option<&Screen<'_>>) -> Result<Performed, Trouble> {
    // Worked out while the old text is still there: people are shown what changed.
    let shown = match working.action.capability().as_str() {
        "filesystem.edit" => {
            let now = plan.look(working.scope).map_err(trouble)?;
            if plan.with(&now) != plan.before() {
                return Err(Trouble::refused(Code::FilesChanged));
            }
            Some(working.edit().map_err(trouble)?.answer("full", screen))
        }
        _ => None,
    };
    match plan.kind {
        Kind::Put => put(working, plan)?,
        Kind::Rename => rename(working.scope, plan)?,
    }
    let result = shown.unwrap_or_else(|| plan::answer(plan, working.action));
    Ok(done(working.action, plan, result))
}

fn done(action: &Action, plan: &Plan, result: Value) -> Performed {
    let undo_until = (action.capability().as_str() == "filesystem.delete").then_some(plan.until);
    Performed { receipt: format!("after {}", plan.after()), result, after: Some(plan.after()), undo_until }
}

/// New content for every object.
fn put(working: Working<'_>, plan: &Plan) -> Result<(), Trouble> {
    let scope = working.scope;
    let folders = Folders::make(scope, plan)?;
    let mut staged = Vec::with_capacity(plan.objects.len());
    for (n, object) in plan.objects.iter().enumerate() {
        staged.push(stage(working, object, beside(plan.hold, n)).map_err(trouble)?);
    }
    place_all(staged)?;
    folders.stay();
    Ok(())
}

/// Checks an object against the plan and writes what it will be beside it.
fn stage(working: Working<'_>, object: &Object, beside: String) -> Result<Staged, Refusal> {
    let place = object.place(working.scope)?;
    working.scope.writable(&place)?;
    let seen = working.scope.see(&place, true)?;
    if seen.print != object.before {
        return Err(Refusal::new(Code::FilesChanged));
    }
    let content = new_content(working, seen.content.as_deref())?;
    let mode = object.after.mode().unwrap_or(0o600);
    // A copy whose source changed since, above all.
    if Print::file(mode, &content) != object.after {
        return Err(Refusal::new(Code::FilesChanged));
    }
    Staged::new(working.scope, Putting { place: &place, beside, content: &content, mode, replaces: seen.stat })
}

/// Gives every file its name, or takes back those that have it when one cannot.
pub(super) fn place_all(mut staged: Vec<Staged>) -> Result<(), Trouble> {
    for n in 0..staged.len() {
        let Some(Err(why)) = staged.get_mut(n).map(Staged::place) else { continue };
        let mut placed: Vec<&mut Staged> = staged.iter_mut().take(n).collect();
        while let Some(one) = placed.pop() {
            one.take_back()?;
        }
        return Err(why);
    }
    staged.into_iter().try_for_each(Staged::settle)
}

/// Folders made for a new file; removed again unless they stay.
struct Folders<'s> {
    scope: &'s Scope,
    made: Vec<Place>,
}

impl<'s> Folders<'s> {
    fn make(scope: &'s Scope, plan: &Plan) -> Result<Self, Trouble> {
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

impl Drop for Folders<'_> {
    fn drop(&mut self) {
        for place in self.made.iter().rev() {
            remove_empty(self.scope, place);
        }
    }
}

/// Removes a folder if it is empty.
fn remove_empty(scope: &Scope, place: &Place) {
    if let Ok((parent, name)) = scope.parent(place) {
        let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }
}

/// The first object becomes the second.
fn rename(scope: &Scope, plan: &Plan) -> Result<(), Trouble> {
    let [first, second] = plan.objects.as_slice() else { return Err(Trouble::refused(Code::FilesFailed)) };
    let (from, to) = (first.place(scope).map_err(trouble)?, second.place(scope).map_err(trouble)?);
    for place in [&from, &to] {
        scope.writable(place).map_err(trouble)?;
    }
    let seen = scope.see(&from, false).map_err(trouble)?;
    let there = scope.see(&to, false).map_err(trouble)?;
    if seen.print != first.before || there.print != second.before {
        return Err(Trouble::refused(Code::FilesChanged));
    }
    let stat = seen.stat.ok_or_else(|| Trouble::refused(Code::FilesNotFound))?;
    shift(scope, Shift { from: &from, to: &to, stat: &stat, replace: !second.before.is_absent() })
}

/// A change of place.
struct Shift<'a> {
    from: &'a Place,
    to: &'a Place,
    /// What is moved, as it was when it was looked at.
    stat: &'a Stat,
    replace: bool,
}

/// Moves an object in one step, and back if it was not the one that was looked at.
fn shift(scope: &Scope, shift: Shift<'_>) -> Result<(), Trouble> {
    let (from, name) = scope.parent(shift.from).map_err(trouble)?;
    let (to, new) = scope.parent(shift.to).map_err(trouble)?;
    let renamed = match shift.replace {
        true => rustix::fs::renameat(&from, name, &to, new),
        false => rename_new(&from, name, &to, new),
    };
    renamed.map_err(|errno| match errno {
        Errno::EXIST | Errno::NOENT => Trouble::refused(Code::FilesChanged),
        Errno::XDEV => Trouble::Refused(
            Refusal::new(Code::FilesFailed)
                .with_text("source and destination are on different disks: copy, then delete"),
        ),
        other => trouble(refusal(other)),
    })?;
    // SECURITY: the bytes that arrive must be the bytes that were hashed; a rename leaves the time of the last write.
    let is_folder = super::open::kind(shift.stat) == rustix::fs::FileType::Directory;
    let is_same = |now: &Stat| if is_folder { same_object(now, shift.stat) } else { untouched(now, shift.stat) };
    let is_ours = rustix::fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|now| is_same(&now));
    // A folder is moved only while it is empty, which can be said for certain only where nobody reaches it.
    let still_empty = !is_folder || check_empty(scope, shift.to).is_ok();
    if !is_ours || !still_empty {
        if shift.replace || rename_new(&to, new, &from, name).is_err() {
            return Err(Trouble::Unclear);
        }
        return Err(Trouble::refused(if is_ours { Code::FilesNotEmpty } else { Code::FilesChanged }));
    }
    for folder in [&to, &from] {
        rustix::fs::fsync(folder).map_err(|_| Trouble::Unclear)?;
    }
    Ok(())
}

/// Finds out whether the plan was carried out.
pub(crate) fn look_up(scope: &Scope, action: &Action, plan: &Plan) -> Found {
    let Ok(now) = plan.look(scope) else { return Found::Unknown };
    let pairs = || plan.objects.iter().zip(&now);
    if displaced(scope, plan, &now) {
        return Found::Unknown;
    }
    if pairs().all(|(object, now)| *now == object.after) {
        let result = match action.capability().as_str() {
            "filesystem.edit" => edited(plan, action, None),
            _ => plan::answer(plan, action),
        };
        return Found::Applied(done(action, plan, result));
    }
    if pairs().all(|(object, now)| *now == object.before) {
        return Found::Absent;
    }
    // The machine died between two files of one edit. Which ones were changed can be told, and undone.
    if plan.kind == Kind::Put && pairs().all(|(object, now)| *now == object.after || *now == object.before) {
        let after = plan.with(&now);
        let result = edited(plan, action, Some(&now));
        return Found::Applied(Performed {
            receipt: format!("after {after}"),
            result,
            after: Some(after),
            undo_until: None,
        });
    }
    Found::Unknown
}

/// Finds out whether the plan was taken back.
pub(crate) fn look_up_undo(scope: &Scope, plan: &Plan) -> Found {
    let Ok(now) = plan.look(scope) else { return Found::Unknown };
    let pairs = || plan.objects.iter().zip(&now);
    if pairs().all(|(object, now)| *now == object.before) {
        return Found::Applied(undone(plan, &now));
    }
    // Taking back is repeated safely: what is back already is left alone.
    let between = |(object, now): (&Object, &Print)| *now == object.after || *now == object.before || now.is_absent();
    if pairs().all(between) { Found::Absent } else { Found::Unknown }
}

/// Whether the machine died while somebody's newer file lay beside ours.
fn displaced(scope: &Scope, plan: &Plan, now: &[Print]) -> bool {
    plan.kind == Kind::Put
        && plan.objects.iter().zip(now).enumerate().any(|(n, (object, now))| {
            let left = object.place(scope).and_then(|place| leftover(scope, &place, plan.hold, n));
            left.is_ok_and(|left| *now == object.after && !is_ours(&left, object))
        })
}

fn leftover(scope: &Scope, place: &Place, hold: HoldId, n: usize) -> Result<Print, Refusal> {
    let way = place.split().map_or("", |(way, _)| way);
    let way = if way.is_empty() { beside(hold, n) } else { format!("{way}/{}", beside(hold, n)) };
    scope.print(&scope.within(&scope.ground(place)?.path, &way)?)
}

/// Whether what lies beside an object is the old or the new file, or one that was never finished.
fn is_ours(left: &Print, object: &Object) -> bool {
    left.is_absent() || *left == object.before || *left == object.after || left.mode() == Some(UNFINISHED)
}

/// The answer of an edit.
fn edited(plan: &Plan, action: &Action, now: Option<&[Print]>) -> Value {
    let is_changed = |n: usize, object: &Object| now.is_none_or(|now| now.get(n) == Some(&object.after));
    let changed: Vec<&Object> = plan
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

/// Takes a plan back.
pub(crate) fn undo(scope: &Scope, plan: &Plan) -> Result<Performed, Trouble> {
    match plan.kind {
        Kind::Put => put_back(scope, plan)?,
        Kind::Rename => rename_back(scope, plan)?,
    }
    let now = plan.look(scope).map_err(|_| Trouble::Unclear)?;
    Ok(undone(plan, &now))
}

fn undone(plan: &Plan, now: &[Print]) -> Performed {
    let after = plan.with(now);
    let paths: Vec<String> =
        plan.objects.iter().map(Object::path).filter(|path| !path.contains(trash::TRASH)).collect();
    Performed {
        receipt: format!("undone {after}"),
        result: json!({"undone": true, "paths": paths}),
        after: Some(after),
        undo_until: None,
    }
}

fn conflict() -> Trouble {
    Trouble::refused(Code::RollbackConflict)
}

/// Old contents back, or nothing where nothing was.
fn put_back(scope: &Scope, plan: &Plan) -> Result<(), Trouble> {
    let mut staged = Vec::new();
    for (n, object) in plan.objects.iter().enumerate() {
        let place = object.place(scope).map_err(trouble)?;
        scope.writable(&place).map_err(trouble)?;
        let seen = scope.see(&place, false).map_err(trouble)?;
        if seen.print == object.before {
            continue;
        }
        if seen.print != object.after {
            return Err(conflict());
        }
        let Some(kept) = &object.kept else {
            // Only a write of one file makes a new one.
            return take_away(scope, plan, (&place, seen.stat));
        };
        let content = kept_content(scope, plan, object, kept)?;
        let beside = format!(".sluice-old-{}-{n}", plan.hold);
        let mode = object.before.mode().unwrap_or(0o600);
        let putting = Putting { place: &place, beside, content: &content, mode, replaces: seen.stat };
        staged.push(Staged::new(scope, putting).map_err(trouble)?);
    }
    place_all(staged).map_err(as_conflict)
}

/// The old content of an object, if it is still the one that was kept.
fn kept_content(scope: &Scope, plan: &Plan, object: &Object, kept: &str) -> Result<Vec<u8>, Trouble> {
    let place = scope.within(&object.root, &trash::way(plan.hold, kept)).map_err(trouble)?;
    let seen = scope.see(&place, true).map_err(trouble)?;
    let damaged = || Trouble::Refused(Refusal::new(Code::FilesFailed).with_text("the old content is no longer whole"));
    if seen.print.checksum() != object.before.checksum() {
        return Err(damaged());
    }
    seen.content.ok_or_else(damaged)
}

/// Removes a file that was new, by way of the trash, so that nothing else is removed by mistake.
fn take_away(scope: &Scope, plan: &Plan, (place, stat): (&Place, Option<Stat>)) -> Result<(), Trouble> {
    let stat = stat.ok_or_else(conflict)?;
    let ground = scope.writable(place).map_err(trouble)?;
    let folder = trash::folder(ground, plan.hold).map_err(trouble)?;
    // What a crash left of an earlier try.
    let _ = rustix::fs::unlinkat(&folder, "undone", AtFlags::empty());
    let away = scope.within(&ground.path, &trash::way(plan.hold, "undone")).map_err(trouble)?;
    shift(scope, Shift { from: place, to: &away, stat: &stat, replace: false }).map_err(as_conflict)?;
    for way in plan.folders.iter().rev() {
        if let Ok(folder) = scope.within(&ground.path, way) {
            remove_empty(scope, &folder);
        }
    }
    Ok(())
}

/// The second object becomes the first again, and what it replaced comes back.
fn rename_back(scope: &Scope, plan: &Plan) -> Result<(), Trouble> {
    let [first, second] = plan.objects.as_slice() else { return Err(Trouble::refused(Code::FilesFailed)) };
    let (from, to) = (first.place(scope).map_err(trouble)?, second.place(scope).map_err(trouble)?);
    for place in [&from, &to] {
        scope.writable(place).map_err(trouble)?;
    }
    let before = scope.see(&from, false).map_err(trouble)?;
    let there = scope.see(&to, false).map_err(trouble)?;
    if before.print == first.after && there.print == second.after {
        let stat = there.stat.ok_or_else(conflict)?;
        if from.way.starts_with(trash::TRASH) {
            // Undoing a restore: the folder in the trash may have been tidied away meanwhile.
            let hold = from.way.split('/').nth(1).and_then(|id| id.parse().ok()).ok_or_else(conflict)?;
            trash::folder(scope.writable(&from).map_err(trouble)?, hold).map_err(trouble)?;
        }
        shift(scope, Shift { from: &to, to: &from, stat: &stat, replace: false }).map_err(as_conflict)?;
    } else if before.print != first.before || !(there.print.is_absent() || there.print == second.before) {
        return Err(conflict());
    }
    let Some(kept) = &second.kept else { return Ok(()) };
    if scope.print(&to).map_err(trouble)? == second.before {
        return Ok(());
    }
    let content = kept_content(scope, plan, second, kept)?;
    let mode = second.before.mode().unwrap_or(0o600);
    let beside = format!(".sluice-old-{}-1", plan.hold);
    let putting = Putting { place: &to, beside, content: &content, mode, replaces: None };
    // The file is back under its first name already; from here on only a look can tell.
    let staged = Staged::new(scope, putting).map_err(|_| Trouble::Unclear)?;
    place_all(vec![staged]).map_err(|_| Trouble::Unclear)
}

/// What changed under an undo is newer work.
fn as_conflict(why: Trouble) -> Trouble {
    match why {
        Trouble::Refused(refusal) if matches!(refusal.code(), Code::FilesChanged | Code::FilesNotEmpty) => conflict(),
        other @ (Trouble::Refused(_) | Trouble::NotDone(_) | Trouble::Unclear | Trouble::UnclearSaying(_)) => other,
    }
}

/// Removes what was kept to go back to, and what a crash left beside a file.
pub(crate) fn forget(scope: &Scope, plan: &Plan) -> Result<(), Refusal> {
    for (n, object) in plan.objects.iter().enumerate() {
        let place = object.place(scope)?;
        if plan.kind == Kind::Put && leftover(scope, &place, plan.hold, n).is_ok_and(|left| is_ours(&left, object)) {
            let (folder, _) = scope.parent(&place)?;
            let _ = rustix::fs::unlinkat(&folder, beside(plan.hold, n).as_str(), AtFlags::empty());
        }
        trash::forget(scope.ground(&place)?, plan.hold)?;
    }
    Ok(())
}
