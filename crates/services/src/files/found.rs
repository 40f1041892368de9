//! The state in which a write finds its objects: shown to people, and bound to their approval.
//!
//! Takes an action; gives one line for each object (size and hash before and after), the beginning of content that
//! would be copied, moved or deleted, the difference that an edit makes, and last the binding: one hash over all of it.
//! Promise: two bindings are equal exactly if the same bytes would be read, replaced and written; every line describes
//! the bytes of the binding.

use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, HoldId, UtcMillis};

use super::edit::FileEdit;
use super::fingerprint::{FileFingerprint, fingerprint};
use super::plan::{FilePlan, FilePlanContext, FilePlanObject, no_file, work_out};
use super::roots::{OpenedRoots, RootedPath};

/// The most characters of a file that are shown.
const EXCERPT: usize = 400;
/// The most lines of a difference that are shown.
const DIFF_LINES: usize = 200;
/// The most characters of one line of a difference.
const DIFF_LINE: usize = 500;
/// The beginning of the last line.
const BINDING: &str = "state of all files: sha256 ";

/// The lines for an action. Refuses an action that is impossible now.
pub fn lines(scope: &OpenedRoots, action: &Action, now: UtcMillis) -> Result<Vec<String>, Refusal> {
    let working = FilePlanContext { scope, hold: HoldId::from_bits(0), action, now, keeps: false };
    if action.capability().as_str() == "filesystem.edit" {
        return of_edit(working);
    }
    let plan = work_out(working)?.ok_or_else(|| Refusal::new(Code::GatewayUnsupported))?;
    let mut lines = Vec::new();
    match (action.capability().as_str(), plan.objects.as_slice()) {
        ("filesystem.copy", [destination]) => {
            let source = working.place("source")?;
            lines.push(format!("source {}: {}", source.path, state(&destination.after)));
            lines.extend(excerpt(scope, &source, &destination.after)?);
            lines.push(format!("destination {}: {}", destination.path(), state(&destination.before)));
        }
        ("filesystem.move", [source, destination]) => {
            lines.push(format!("source {}: {}", source.path(), state(&source.before)));
            lines.extend(excerpt(scope, &source.place(scope)?, &source.before)?);
            lines.push(format!("destination {}: {}", destination.path(), state(&destination.before)));
        }
        ("filesystem.delete", [deleted, _]) => {
            lines.push(format!("deletes {}: {}", deleted.path(), state(&deleted.before)));
            lines.extend(excerpt(scope, &deleted.place(scope)?, &deleted.before)?);
        }
        ("filesystem.restore", [item, restored]) => {
            lines.push(format!("restores {}: {}", restored.path(), state(&restored.after)));
            lines.extend(excerpt(scope, &item.place(scope)?, &restored.after)?);
        }
        (_, objects) => {
            for object in objects {
                lines.push(format!("{} now: {}", object.path(), state(&object.before)));
                lines.push(format!("{} after: {}", object.path(), state(&object.after)));
            }
        }
    }
    lines.push(plan.binding());
    Ok(lines)
}

fn of_edit(working: FilePlanContext<'_>) -> Result<Vec<String>, Refusal> {
    let edit = working.edit()?;
    let plan = working.edited_plan(&edit)?;
    let mut lines: Vec<String> = Vec::with_capacity(plan.objects.len() + 2);
    for object in &plan.objects {
        let (path, places) = (object.path(), object.places);
        lines.push(format!("{path}: {places} places, now {}, after {}", state(&object.before), state(&object.after)));
    }
    lines.extend(difference(&edit));
    lines.push(plan.binding());
    Ok(lines)
}

fn difference(edit: &FileEdit) -> Vec<String> {
    let cut = |line: &str| line.chars().take(DIFF_LINE).collect::<String>();
    let mut lines: Vec<String> = edit.diff.lines().take(DIFF_LINES).map(cut).collect();
    let more = edit.diff.lines().skip(DIFF_LINES).count();
    if more > 0 {
        lines.push(format!("({more} more lines of the difference are not shown)"));
    }
    lines
}

/// The state of one object as text.
fn state(print: &FileFingerprint) -> String {
    if print.is_absent() {
        return "nothing is there".into();
    }
    if print.is_folder() {
        return "an empty folder".into();
    }
    let size = print.size().unwrap_or(0);
    match print.checksum() {
        Some(checksum) => format!("{size} bytes, sha256 {checksum}"),
        None => format!("{size} bytes, too large to hash, known by its inode and time of change"),
    }
}

/// The beginning of a file, if it is text and unchanged since it was hashed.
fn excerpt(scope: &OpenedRoots, place: &RootedPath, print: &FileFingerprint) -> Result<Option<String>, Refusal> {
    let Some(checksum) = print.checksum() else { return Ok(None) };
    let seen = scope.snapshot(place, true)?;
    let content = seen.content.as_deref().ok_or_else(|| no_file(&seen.print))?;
    // SECURITY: the excerpt must be the beginning of exactly the bytes that the hash names.
    if seen.print.checksum() != Some(checksum) {
        return Err(Refusal::new(Code::FilesChanged));
    }
    let Ok(text) = std::str::from_utf8(content) else { return Ok(Some("its content is not text".into())) };
    let shown: String = text.chars().take(EXCERPT).collect();
    let rest = text.chars().skip(EXCERPT).count();
    Ok(Some(match rest {
        0 => format!("all of it: {shown}"),
        rest => format!("it begins: {shown} ({rest} more characters)"),
    }))
}

impl FilePlan {
    /// One line that is equal exactly if every object has the same state before and after. The trash is left out,
    /// because the id of the write decides where an object lies in it.
    pub fn binding(&self) -> String {
        let outside = |object: &&FilePlanObject| !object.is_in_trash();
        let paths: Vec<String> = self.objects.iter().filter(outside).map(FilePlanObject::path).collect();
        let prints = |object: &'_ FilePlanObject| [object.before.clone(), object.after.clone()];
        let prints: Vec<[FileFingerprint; 2]> = self.objects.iter().filter(outside).map(prints).collect();
        let pairs =
            paths.iter().zip(&prints).flat_map(|(path, prints)| prints.iter().map(move |print| (path.as_str(), print)));
        format!("{BINDING}{}", fingerprint(pairs))
    }

    /// Whether this is the state that the approved action was bound to.
    pub fn is_bound_to(&self, action: &Action) -> bool {
        action.found().last().is_none_or(|binding| *binding == self.binding())
    }
}
