//! The trash: deleted objects, and old contents kept for a rollback.
//!
//! `<root>/.sluice-trash/<hold id>/` holds the deleted object under its own name, or the old contents that a write
//! replaced (`before`, `before-1`, …). `<hold id>.origin` next to it says where a deleted object came from. Promise:
//! same file system, so that moving in and out is one step; accessible to the gateway only; no agent can name or see
//! it.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{HoldId, UtcMillis};

use super::open::{open_below, refusal, refusal_of};
use super::roots::{OpenedRoot, OpenedRoots, RootedPath};
use super::staged_file::write_own;

/// The name of the folder in each root.
pub const TRASH: &str = ".sluice-trash";
/// The most deleted objects that are searched for one to restore.
const LOOKED_THROUGH: usize = 10_000;
/// The largest note, in bytes.
const NOTE: u64 = 64 << 10;

/// The origin of a deleted object.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashOrigin {
    /// The absolute path.
    pub path: String,
    /// When it was deleted.
    pub at: UtcMillis,
    /// Until when it can be restored.
    pub until: UtcMillis,
}

/// The trash folder of a write, as a path from the root.
pub fn way(hold: HoldId, name: &str) -> String {
    format!("{TRASH}/{hold}/{name}")
}

/// The name of the n-th old content of a write.
pub fn kept_name(n: usize) -> String {
    if n == 0 { "before".into() } else { format!("before-{n}") }
}

/// The text for an agent: not a path, but enough to choose among several deleted versions.
pub fn shown(way: &str) -> String {
    way.strip_prefix(TRASH).unwrap_or_default().trim_start_matches('/').to_owned()
}

/// The folder of a write, created if needed.
pub fn folder(opened_root: &OpenedRoot, hold: HoldId) -> Result<OwnedFd, Refusal> {
    let root = open_folder(&opened_root.folder, ".")?;
    let trash = own_folder(&root, TRASH)?;
    own_folder(&trash, &hold.to_string())
}

/// Keeps an old content.
pub fn keep(opened_root: &OpenedRoot, hold: HoldId, name: &str, content: &[u8]) -> Result<(), Refusal> {
    write_own(&folder(opened_root, hold)?, name, content)
}

/// Notes the origin of an object that is about to be deleted.
pub fn note(opened_root: &OpenedRoot, hold: HoldId, origin: &TrashOrigin) -> Result<(), Refusal> {
    folder(opened_root, hold)?;
    let text = serde_json::to_vec(origin).map_err(|error| Refusal::new(Code::FilesFailed).with_source(error))?;
    write_own(&open_folder(&opened_root.folder, TRASH)?, &origin_name(hold), &text)
}

/// The deleted object that came from a path: the named one, or the one deleted last.
pub fn find(
    scope: &OpenedRoots,
    from: &RootedPath,
    named: Option<&str>,
    now: UtcMillis,
) -> Result<RootedPath, Refusal> {
    let nothing = || Refusal::new(Code::FilesNotFound).with_text("no deleted file can be restored to this path");
    let opened_root = scope.opened_root(from)?;
    let trash = match open_below(&opened_root.folder, TRASH, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Err(nothing()),
        other => other.map_err(refusal)?,
    };
    let mut latest: Option<(UtcMillis, HoldId, RootedPath)> = None;
    for entry in Dir::read_from(&trash).map_err(refusal)?.take(LOOKED_THROUGH) {
        let entry = entry.map_err(refusal)?;
        let hold = entry.file_name().to_str().ok().and_then(|name| name.strip_suffix(".origin")?.parse().ok());
        let Some(hold) = hold else { continue };
        let Some(origin) = read_note(&trash, hold).filter(|origin| origin.path == from.path && origin.until > now)
        else {
            continue;
        };
        let item = scope.within(&opened_root.path, &way(hold, from.name()))?;
        let later = latest.as_ref().is_none_or(|(at, id, _)| (*at, *id) < (origin.at, hold));
        if later && named.is_none_or(|named| named == shown(&item.way)) && scope.look(&item)?.is_some() {
            latest = Some((origin.at, hold, item));
        }
    }
    latest.map(|(_, _, item)| item).ok_or_else(nothing)
}

/// The writes for which old contents are kept, without those that an agent may still restore.
pub fn kept(opened_root: &OpenedRoot, now: UtcMillis) -> Result<Vec<HoldId>, Refusal> {
    let Ok(trash) = open_folder(&opened_root.folder, TRASH) else { return Ok(Vec::new()) };
    let mut holds = BTreeSet::new();
    for entry in Dir::read_from(&trash).map_err(refusal)?.take(LOOKED_THROUGH) {
        let entry = entry.map_err(refusal)?;
        let name = entry.file_name().to_str().unwrap_or_default();
        holds.extend(name.strip_suffix(".origin").unwrap_or(name).parse::<HoldId>().ok());
    }
    holds.retain(|hold| read_note(&trash, *hold).is_none_or(|origin| origin.until <= now));
    Ok(holds.into_iter().collect())
}

/// Deletes everything that was kept for a write.
pub fn forget(opened_root: &OpenedRoot, hold: HoldId) -> Result<(), Refusal> {
    let Ok(trash) = open_folder(&opened_root.folder, TRASH) else { return Ok(()) };
    let name = hold.to_string();
    if let Ok(folder) = open_folder(&trash, &name) {
        for entry in Dir::read_from(&folder).map_err(refusal)? {
            let entry = entry.map_err(refusal)?;
            let inside = entry.file_name();
            if matches!(inside.to_bytes(), b"." | b"..") {
                continue;
            }
            match rustix::fs::unlinkat(&folder, inside, AtFlags::empty()) {
                Err(Errno::ISDIR) => rustix::fs::unlinkat(&folder, inside, AtFlags::REMOVEDIR).map_err(refusal)?,
                other => other.map_err(refusal)?,
            }
        }
        rustix::fs::unlinkat(&trash, name.as_str(), AtFlags::REMOVEDIR).map_err(refusal)?;
    }
    match rustix::fs::unlinkat(&trash, origin_name(hold).as_str(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(refusal(errno)),
    }
}

fn origin_name(hold: HoldId) -> String {
    format!("{hold}.origin")
}

fn read_note(trash: &OwnedFd, hold: HoldId) -> Option<TrashOrigin> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = open_below(trash, &origin_name(hold), flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    std::fs::File::from(file).take(NOTE).read_to_end(&mut text).map_err(|error| refusal_of(&error)).ok()?;
    serde_json::from_slice(&text).ok()
}

fn open_folder(below: &OwnedFd, name: &str) -> Result<OwnedFd, Refusal> {
    open_below(below, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map_err(refusal)
}

/// A folder that only the gateway may enter, created and made durable if needed.
fn own_folder(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Refusal> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => rustix::fs::fsync(parent).map_err(refusal)?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(refusal(errno)),
    }
    open_folder(parent, name)
}
