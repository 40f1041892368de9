//! Text search in files: `search_content`.
//!
//! Takes a folder or a file and a pattern; gives lines, files, counts or a total. Promise: patterns run in linear time,
//! and the amount read and answered is limited; an incomplete answer says so. Files that are not text, are too large,
//! or may not be read are counted as skipped.

use std::collections::BTreeMap;

use rustix::fs::FileType;
use serde_json::{Value, json};
use sluice_core::refusal::Refusal;

use super::arguments::{FileArguments, odd};
use super::open::{kind, size};
use super::roots::{OpenedRoots, RootedPath};
use super::screen::{CallFileScreen, FileScreenOutcome};
use super::visibility::FolderVisibility;
use super::walk::{FolderWalk, WalkEntry};
use crate::intake::without_imitations;
use crate::value::put;

/// The most lines in one answer.
const LINES: usize = 1_000;
/// The most files or groups in one answer.
const GROUPS: usize = 1_000;
/// The most characters shown of a line.
const LINE: usize = 400;
/// The largest file that is searched, in bytes.
const FILE: u64 = 16 << 20;
/// The most bytes read in one search.
const READ: u64 = 512 << 20;
/// The most files whose lines are shown in one answer: each is screened.
const SCREENED: usize = 500;
/// The most bytes of all group keys.
const KEYS: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentSearchOutput {
    Total,
    CountByFile,
    CountByFolder,
    CountByExtension,
    CountByMatch,
    Files,
    Lines,
}

/// Searches lines in the files of a folder.
pub fn search_content(
    scope: &OpenedRoots,
    place: &RootedPath,
    sight: FolderVisibility,
    arguments: FileArguments<'_>,
    screen: Option<&CallFileScreen<'_>>,
) -> Result<Value, Refusal> {
    let expression = arguments.expression()?;
    let wanted = wanted(arguments)?;
    let mut walk = FolderWalk::of(scope, place, sight, false)?;
    let (mut lines, mut groups, mut keys) = (Vec::new(), BTreeMap::<String, u64>::new(), 0_usize);
    let (mut total, mut searched, mut skipped, mut left, mut cut) = (0_u64, 0_u64, 0_u64, READ, false);
    let (mut withheld, mut screened_files) = (0_u64, 0_usize);
    for found in walk.by_ref().filter(|found| kind(&found.stat) == FileType::RegularFile) {
        let Some(text) = text_of(scope, &found, &mut left) else {
            skipped += 1;
            continue;
        };
        searched += 1;
        // Lines of a file are its content: if the file is withheld from agents, its lines are too.
        if let (Some(screen), ContentSearchOutput::Lines | ContentSearchOutput::CountByMatch) = (screen, wanted)
            && text.lines().any(|line| expression.is_match(line))
        {
            screened_files += 1;
            if screened_files > SCREENED {
                (cut, skipped) = (true, skipped + 1);
                continue;
            }
            match screen.file(&found.place, text.as_bytes(), &shown_of(&text, &expression))? {
                FileScreenOutcome::Trusted | FileScreenOutcome::Shown { .. } => {}
                FileScreenOutcome::Withheld(_) => {
                    withheld += 1;
                    continue;
                }
                FileScreenOutcome::Unreadable(_) => {
                    skipped += 1;
                    continue;
                }
            }
        }
        let mut count = |key: &str, by: u64| {
            if let Some(present) = groups.get_mut(key) {
                *present += by;
            } else if keys + key.len() <= KEYS {
                keys += key.len();
                groups.insert(key.to_owned(), by);
            } else {
                cut = true;
            }
        };
        let mut here = 0_u64;
        for (n, line) in text.lines().enumerate().filter(|(_, line)| expression.is_match(line)) {
            here += 1;
            match wanted {
                ContentSearchOutput::CountByMatch => expression.find_iter(line).for_each(|hit| count(hit.as_str(), 1)),
                ContentSearchOutput::Lines if lines.len() < LINES => {
                    let shown: String = line.chars().take(LINE).collect();
                    let shown = without_imitations(&shown).unwrap_or(shown);
                    lines.push(json!({"path": found.place.path, "line": n + 1, "text": shown}));
                }
                _ => {}
            }
        }
        total += here;
        if here > 0 {
            match wanted {
                ContentSearchOutput::CountByFile | ContentSearchOutput::Files => count(&found.place.path, here),
                ContentSearchOutput::CountByFolder => {
                    count(found.way.rsplit_once('/').map_or(".", |(folder, _)| folder), here)
                }
                ContentSearchOutput::CountByExtension => {
                    count(found.place.name().rsplit_once('.').map_or("", |(_, end)| end), here);
                }
                ContentSearchOutput::CountByMatch | ContentSearchOutput::Total | ContentSearchOutput::Lines => {}
            }
        }
    }
    cut |= walk.cut || left == 0;
    let mut answer = json!({"total_matches": total, "files_searched": searched, "files_skipped": skipped});
    let (key, value, more) = match wanted {
        ContentSearchOutput::Total => ("path", json!(place.path), false),
        ContentSearchOutput::Lines => {
            let more = total > lines.len() as u64;
            ("matches", Value::Array(lines), more)
        }
        ContentSearchOutput::Files => {
            let shown: Vec<&String> = groups.keys().take(GROUPS).collect();
            ("files", json!(shown), groups.len() > GROUPS)
        }
        ContentSearchOutput::CountByFile
        | ContentSearchOutput::CountByFolder
        | ContentSearchOutput::CountByExtension
        | ContentSearchOutput::CountByMatch => {
            let more = groups.len() > GROUPS;
            let mut counts: Vec<(String, u64)> = groups.into_iter().collect();
            counts.sort_by(|(_, one), (_, other)| other.cmp(one));
            let shown = counts.into_iter().take(GROUPS).map(|(key, count)| json!({"key": key, "count": count}));
            ("counts", shown.collect(), more)
        }
    };
    if withheld > 0 {
        put(&mut answer, "files_withheld", withheld);
    }
    if let Some(answer) = answer.as_object_mut() {
        answer.insert(key.into(), value);
        answer.insert("truncated".into(), (cut || more).into());
    }
    Ok(answer)
}

/// The kind of answer that the arguments ask for.
fn wanted(arguments: FileArguments<'_>) -> Result<ContentSearchOutput, Refusal> {
    if arguments.flag("total_only") {
        return Ok(ContentSearchOutput::Total);
    }
    match arguments.text("count_by") {
        Some("file") => Ok(ContentSearchOutput::CountByFile),
        Some("dir") => Ok(ContentSearchOutput::CountByFolder),
        Some("extension") => Ok(ContentSearchOutput::CountByExtension),
        Some("match") => Ok(ContentSearchOutput::CountByMatch),
        Some(_) => Err(odd("count_by", "`file`, `dir`, `extension` or `match`")),
        None if arguments.flag("files_only") => Ok(ContentSearchOutput::Files),
        None => Ok(ContentSearchOutput::Lines),
    }
}

/// The lines of a text that an answer can show.
fn shown_of(text: &str, expression: &regex::Regex) -> String {
    let lines = text.lines().filter(|line| expression.is_match(line)).take(LINES);
    lines.map(|line| line.chars().take(LINE).chain(['\n']).collect::<String>()).collect()
}

/// A file as text, if it is text and within the budget.
fn text_of(scope: &OpenedRoots, found: &WalkEntry, left: &mut u64) -> Option<String> {
    if size(&found.stat) > FILE {
        return None;
    }
    let Some(rest) = left.checked_sub(size(&found.stat)) else {
        *left = 0;
        return None;
    };
    *left = rest;
    let content = scope.snapshot(&found.place, true).ok()?.content?;
    String::from_utf8(content).ok().filter(|text| !text.contains('\0'))
}
