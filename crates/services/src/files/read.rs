//! Reads of one object: `read`, `list` and `stat`.
//!
//! Takes a place and the arguments; gives the answer for the agent. Promise: answers are limited in size, links are
//! shown and not followed, and the checksum belongs to the content in the same answer.

use std::io::{Read, Seek, SeekFrom};

use rustix::fs::{AtFlags, StatxFlags};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::hex;
use sluice_core::refusal::{Code, Refusal};

use super::arguments::{ContentEncoding, FileArguments, encode, odd};
use super::open::{FolderEntry, WHOLE, kind_word, modified, moment, refusal, refusal_of, size, untouched};
use super::roots::{OpenedRoots, RootedPath};
use super::screen::{AROUND, CallFileScreen, FileScreenOutcome, WHOLE_SCREENED, kept_back, unread};
use super::visibility::FolderVisibility;
use crate::intake::without_imitations;
use crate::value::put;

/// The default size of one answer, in bytes.
const USUAL: u64 = 1 << 20;
/// The largest size of one answer, in bytes.
const MOST: u64 = 8 << 20;
/// The most names in one listing.
const LISTED: usize = 10_000;
/// The most names read to sort one listing.
const SORTED: usize = 200_000;

/// The content of a file, whole or in part.
pub fn read(
    scope: &OpenedRoots,
    place: &RootedPath,
    arguments: FileArguments<'_>,
    screen: Option<&CallFileScreen<'_>>,
) -> Result<Value, Refusal> {
    let encoding = arguments.encoding()?;
    let offset = arguments.count("offset")?.unwrap_or(0);
    let limit = arguments.count("limit")?.unwrap_or(USUAL).min(MOST);
    let mut opened = scope.file(place)?;
    let whole = size(&opened.stat);
    let start = offset.min(whole);
    let (bytes, base, checksum) = if whole <= WHOLE {
        let mut content = Vec::new();
        (&opened.file).take(WHOLE + 1).read_to_end(&mut content).map_err(|error| refusal_of(&error))?;
        let now = rustix::fs::fstat(&opened.file).map_err(refusal)?;
        if !untouched(&opened.stat, &now) || content.len() as u64 != whole {
            return Err(Refusal::new(Code::FilesChanged).with_text("the file changed while it was read"));
        }
        let checksum = hex::encode(&Sha256::digest(&content));
        (content, 0, Some(checksum))
    } else {
        let base = start.saturating_sub(AROUND as u64);
        opened.file.seek(SeekFrom::Start(base)).map_err(|error| refusal_of(&error))?;
        let (mut content, most) = (Vec::new(), limit + 2 * AROUND as u64);
        (&opened.file).take(most).read_to_end(&mut content).map_err(|error| refusal_of(&error))?;
        (content, base, None)
    };
    let from = usize::try_from(start - base).unwrap_or(usize::MAX).min(bytes.len());
    let end = from.saturating_add(usize::try_from(limit).unwrap_or(usize::MAX)).min(bytes.len());
    let mut part = bytes.get(from..end).unwrap_or_default().to_vec();
    let content = match encoding {
        ContentEncoding::Binary => encode(&part),
        ContentEncoding::Text => text_of(&mut part, offset)?,
    };
    let next = offset.saturating_add(part.len() as u64);
    let truncated = next < whole;
    let mut answer = json!({
        "content": content,
        "size": whole,
        "modified": modified(&opened.stat),
        "checksum": checksum,
        "truncated": truncated,
    });
    if let (true, Some(answer)) = (truncated, answer.as_object_mut()) {
        answer.insert("next_offset".into(), next.into());
    }
    let around = match bytes.len() <= WHOLE_SCREENED {
        true => &bytes,
        false => bytes.get(from.saturating_sub(AROUND)..bytes.len().min(end + AROUND)).unwrap_or_default(),
    };
    if let Some(screen) = screen {
        screened(screen, (place, around), (&part, encoding), &mut answer)?;
    }
    Ok(answer)
}

/// Refuses content that is withheld from agents, and marks outside text.
fn screened(
    screen: &CallFileScreen<'_>,
    (place, around): (&RootedPath, &[u8]),
    (part, encoding): (&[u8], ContentEncoding),
    answer: &mut Value,
) -> Result<(), Refusal> {
    let shown = String::from_utf8_lossy(part);
    match screen.file(place, around, &shown)? {
        FileScreenOutcome::Trusted => return Ok(()),
        FileScreenOutcome::Withheld(finding) => return Err(kept_back("file", finding)),
        FileScreenOutcome::Unreadable(code) => return Err(unread(&code)),
        FileScreenOutcome::Shown { suspect } => {
            put(answer, "untrusted", true);
            if suspect {
                put(answer, "suspicious", true);
            }
        }
    }
    // Content is returned byte for byte, except where it imitates the gateway.
    if encoding == ContentEncoding::Text
        && let Some(broken) = without_imitations(&shown)
    {
        put(answer, "content", broken);
    }
    Ok(())
}

/// Bytes as text. A character that is cut at the end of the part is left for the next part.
fn text_of(part: &mut Vec<u8>, offset: u64) -> Result<String, Refusal> {
    let not_text = |offset_is_odd: bool| {
        let refusal = Refusal::new(Code::FilesEncoding);
        if offset_is_odd { refusal.with_text("the offset lies inside a character") } else { refusal }
    };
    if let Err(error) = std::str::from_utf8(part) {
        if error.error_len().is_some() {
            let inside = offset > 0 && part.first().is_some_and(|byte| byte & 0xc0 == 0x80);
            return Err(not_text(inside));
        }
        // A part that holds only the start of a character would make no progress.
        if error.valid_up_to() == 0 {
            return Err(not_text(false));
        }
        part.truncate(error.valid_up_to());
    }
    String::from_utf8(part.clone()).map_err(|_| not_text(false))
}

/// The entries of a folder.
pub fn list(
    scope: &OpenedRoots,
    place: &RootedPath,
    sight: &FolderVisibility,
    arguments: FileArguments<'_>,
) -> Result<Value, Refusal> {
    let hidden = arguments.flag("include_hidden");
    let order = arguments.text("sort_by").unwrap_or("name");
    let (word, backwards) = order.strip_prefix('-').map_or((order, false), |word| (word, true));
    if !["name", "size", "modified"].contains(&word) {
        return Err(odd("sort_by", "`name`, `size` or `modified`, with `-` in front for the other way round"));
    }
    let folder = scope.folder(place)?;
    let (mut entries, more) = scope.entries(&folder, SORTED)?;
    entries.retain(|entry| hidden || !entry.name.starts_with('.'));
    // SECURITY: a name with its size and time is what `stat` returns: a listing shows no more than `stat` may.
    entries.retain(|entry| sight.sees(&place.child(&entry.name).path));
    match word {
        "size" => entries.sort_by_key(|entry| size(&entry.stat)),
        "modified" => entries.sort_by_key(|entry| (entry.stat.st_mtime, entry.stat.st_mtime_nsec)),
        _ => {} // already sorted by name
    }
    if backwards {
        entries.reverse();
    }
    let total = entries.len();
    let shown: Vec<Value> = entries.iter().take(LISTED).map(shown).collect();
    Ok(json!({"entries": shown, "total": total, "path": place.path, "truncated": more || total > LISTED}))
}

fn shown(entry: &FolderEntry) -> Value {
    json!({
        "name": entry.name,
        "type": kind_word(&entry.stat),
        "size": size(&entry.stat),
        "modified": modified(&entry.stat),
    })
}

/// Whether an object exists, and its kind.
pub fn stat(scope: &OpenedRoots, place: &RootedPath) -> Result<Value, Refusal> {
    let Some(stat) = scope.look(place)? else { return Ok(json!({"exists": false, "path": place.path})) };
    Ok(json!({
        "exists": true,
        "path": place.path,
        "type": kind_word(&stat),
        "size": size(&stat),
        "modified": modified(&stat),
        "created": created(scope, place),
        "permissions": format!("{:04o}", stat.st_mode & 0o7777),
        "owner": stat.st_uid,
    }))
}

/// The creation time, if the file system has it.
fn created(scope: &OpenedRoots, place: &RootedPath) -> Option<String> {
    let (folder, name) = scope.parent(place).ok()?;
    let known = rustix::fs::statx(&folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
    let has = StatxFlags::from_bits_retain(known.stx_mask).contains(StatxFlags::BTIME);
    has.then(|| moment(known.stx_btime.tv_sec, known.stx_btime.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_cut_in_two_is_left_for_the_next_part() {
        let mut part = "aä".as_bytes()[..2].to_vec();
        assert_eq!(text_of(&mut part, 0).unwrap(), "a");
        assert_eq!(part.len(), 1);
    }

    #[test]
    fn what_is_not_text_is_refused_as_text() {
        for mut bytes in [vec![0xff, b'a'], "ä".as_bytes()[1..].to_vec(), "ä".as_bytes()[..1].to_vec()] {
            assert_eq!(text_of(&mut bytes, 1).unwrap_err().code(), Code::FilesEncoding);
        }
    }
}
