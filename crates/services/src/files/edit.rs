//! Text replacement in files: `edit`.
//!
//! Takes a file or a folder, a pattern and its replacement; gives the new content of each file. Promise: nothing here
//! writes; the number of matches is checked before any write; the same file gives the same result twice.

use std::borrow::Cow;

use rustix::fs::FileType;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};

use super::arguments::{FileArguments, odd};
use super::fingerprint::FileSnapshot;
use super::open::{WHOLE, kind, size};
use super::roots::{OpenedRoots, RootedPath};
use super::screen::{CallFileScreen, FileScreenOutcome};
use super::visibility::FolderVisibility;
use super::walk::FolderWalk;
use crate::intake::without_imitations;

/// The most files changed by one edit.
const FILES: usize = 500;
/// The most skipped files that are named.
const SKIPPED: usize = 100;
/// The most bytes of the difference that are shown.
const DIFF: usize = 64 << 10;
/// How far from a match the ends of its line are searched, in bytes.
const LINE: usize = 2_000;

/// A file that would change.
#[derive(Debug)]
pub struct EditedFile {
    pub place: RootedPath,
    pub seen: FileSnapshot,
    pub text: String,
    pub places: u64,
}

/// A computed edit.
#[derive(Debug)]
pub struct FileEdit {
    pub files: Vec<EditedFile>,
    pub skipped: Vec<Value>,
    pub total: u64,
    pub diff: String,
}

/// The pattern and its replacement.
#[derive(Debug)]
pub struct TextReplacement<'a> {
    expression: regex::Regex,
    with: &'a str,
    /// Whether `$1` in it refers to a group of the pattern.
    expands: bool,
}

/// One match in a text.
struct EditMatch<'t> {
    from: usize,
    to: usize,
    new: Cow<'t, str>,
}

/// Computes an edit and checks the number of matches.
pub fn work_out(
    scope: &OpenedRoots,
    place: &RootedPath,
    sight: FolderVisibility,
    arguments: FileArguments<'_>,
) -> Result<FileEdit, Refusal> {
    let replacing = TextReplacement::new(arguments)?;
    let glob = arguments.glob("include_glob")?;
    let expected = arguments.count("expected_replacements")?;
    let all = arguments.flag("replace_all");
    if all && expected.is_some() {
        return Err(odd("replace_all", "left out when `expected_replacements` is given"));
    }
    let mut edit = FileEdit { files: Vec::new(), skipped: Vec::new(), total: 0, diff: String::new() };
    let stat = scope.look(place)?.ok_or_else(|| Refusal::new(Code::FilesNotFound))?;
    let mut left = WHOLE;
    if kind(&stat) == FileType::Directory {
        let mut walk = FolderWalk::below(scope, place, Some(sight), arguments.flag("include_all"))?;
        for found in walk.by_ref().filter(|found| kind(&found.stat) == FileType::RegularFile) {
            if glob.as_ref().is_some_and(|glob| !glob.takes(&found.way)) {
                continue;
            }
            left = left.checked_sub(size(&found.stat)).ok_or_else(too_much)?;
            if let Err(refusal) = edit.take(scope, &found.place, &replacing) {
                match refusal.code() {
                    Code::FilesTooLarge => return Err(refusal),
                    code if edit.skipped.len() < SKIPPED => {
                        edit.skipped.push(json!({"path": found.place.path, "reason": code.as_str()}));
                    }
                    _ => {}
                }
            }
        }
        if walk.cut {
            return Err(too_much());
        }
    } else {
        edit.take(scope, place, &replacing)?;
    }
    let right = if all { edit.total > 0 } else { edit.total == expected.unwrap_or(1) };
    if !right {
        let wanted = if all { "at least 1".to_owned() } else { expected.unwrap_or(1).to_string() };
        let words = format!("found {} places and expected {wanted}; nothing was changed", edit.total);
        return Err(Refusal::new(Code::FilesCount).with_text(&words));
    }
    Ok(edit)
}

impl FileEdit {
    fn take(
        &mut self,
        scope: &OpenedRoots,
        place: &RootedPath,
        replacing: &TextReplacement<'_>,
    ) -> Result<(), Refusal> {
        let mut seen = scope.snapshot(place, true)?;
        let old = seen.content.take().ok_or_else(|| Refusal::new(Code::FilesNotAFile))?;
        let old = text_of(old)?;
        let places = replacing.places(&old)?;
        if places.is_empty() {
            return Ok(());
        }
        if self.files.len() == FILES {
            return Err(too_much());
        }
        self.total += places.len() as u64;
        show(&mut self.diff, place, &old, &places);
        let text = apply(&old, &places);
        seen.content = Some(old.into_bytes());
        self.files.push(EditedFile { place: place.clone(), seen, text, places: places.len() as u64 });
        Ok(())
    }

    /// The answer, with the given outcome. The difference shows parts of the files, so it is shown only if all of them
    /// may be shown.
    pub fn answer(&self, applied: &str, screen: Option<&CallFileScreen<'_>>) -> Value {
        let diff = screen
            .and_then(|screen| self.hidden(screen))
            .unwrap_or_else(|| without_imitations(&self.diff).unwrap_or_else(|| self.diff.clone()));
        let per_file: Vec<Value> =
            self.files.iter().map(|file| json!({"path": file.place.path, "replacements": file.places})).collect();
        json!({
            "applied": applied,
            "total_replacements": self.total,
            "files_changed": self.files.len(),
            "per_file": per_file,
            "skipped": self.skipped,
            "diff": diff,
        })
    }

    /// Why the difference is not shown, if it is hidden.
    fn hidden(&self, screen: &CallFileScreen<'_>) -> Option<String> {
        self.files.iter().find_map(|file| {
            let content = file.seen.content.as_deref().unwrap_or_default();
            match screen.file(&file.place, content, &self.diff) {
                Ok(FileScreenOutcome::Trusted | FileScreenOutcome::Shown { .. }) => None,
                Ok(FileScreenOutcome::Withheld(finding)) => {
                    Some(format!("(not shown: a file is kept back as {finding})"))
                }
                Ok(FileScreenOutcome::Unreadable(_)) | Err(_) => {
                    Some("(not shown: a file could not be screened)".into())
                }
            }
        })
    }
}

impl<'a> TextReplacement<'a> {
    /// The replacement in the arguments of a call.
    pub fn new(arguments: FileArguments<'a>) -> Result<Self, Refusal> {
        let (expression, with) = (arguments.expression()?, arguments.need("replace")?);
        Ok(Self { expression, with, expands: arguments.flag("regex") })
    }

    /// Every match in a text, with its replacement.
    fn places<'t>(&'t self, old: &str) -> Result<Vec<EditMatch<'t>>, Refusal> {
        let (mut places, mut grown) = (Vec::new(), 0_u64);
        for captures in self.expression.captures_iter(old) {
            let Some(whole) = captures.get(0) else { continue };
            let new: Cow<'t, str> = if self.expands {
                let mut new = String::new();
                captures.expand(self.with, &mut new);
                new.into()
            } else {
                self.with.into()
            };
            // Counted during the loop, so that a short pattern and a long replacement cannot use up the memory.
            grown += 32 + new.len() as u64;
            if grown > WHOLE {
                return Err(Refusal::new(Code::FilesTooLarge).with_text("the result would be too large"));
            }
            places.push(EditMatch { from: whole.start(), to: whole.end(), new });
        }
        Ok(places)
    }
}

fn apply(old: &str, places: &[EditMatch<'_>]) -> String {
    let (mut new, mut at) = (String::with_capacity(old.len()), 0);
    for place in places {
        new.push_str(old.get(at..place.from).unwrap_or_default());
        new.push_str(&place.new);
        at = place.to;
    }
    new.push_str(old.get(at..).unwrap_or_default());
    new
}

/// Adds the changed lines to the difference for people, up to its limit.
fn show(diff: &mut String, place: &RootedPath, old: &str, places: &[EditMatch<'_>]) {
    if diff.len() >= DIFF {
        return;
    }
    diff.push_str(&format!("--- {0}\n+++ {0}\n", place.path));
    let (mut line, mut counted) = (1, 0);
    let mut rest = places;
    while let Some((first, _)) = rest.split_first() {
        let start = line_start(old, first.from);
        let (mut end, mut taken) = (line_end(old, first.to), 1);
        // Matches on the same lines are shown together.
        while let Some(next) = rest.get(taken).filter(|next| next.from < end) {
            end = line_end(old, next.to.max(end));
            taken += 1;
        }
        let (here, others) = rest.split_at(taken);
        rest = others;
        line += old.get(counted..start).unwrap_or_default().matches('\n').count();
        counted = start;
        let shifted: Vec<EditMatch<'_>> = here
            .iter()
            .map(|place| EditMatch { from: place.from - start, to: place.to - start, new: (&*place.new).into() })
            .collect();
        let before = old.get(start..end).unwrap_or_default();
        diff.push_str(&format!("@@ line {line} @@\n"));
        for (sign, text) in [('-', before), ('+', &apply(before, &shifted))] {
            for line in text.split('\n') {
                diff.push(sign);
                diff.push_str(line);
                diff.push('\n');
            }
        }
        if diff.len() >= DIFF {
            let end = (0..=DIFF).rev().find(|at| diff.is_char_boundary(*at)).unwrap_or(0);
            diff.truncate(end);
            diff.push_str("\n(more is not shown)\n");
            return;
        }
    }
}

/// The beginning of a match's line, or the limit of the search.
fn line_start(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let floor = at.saturating_sub(LINE);
    let found = (floor..at).rev().find(|n| bytes.get(*n) == Some(&b'\n')).map(|n| n + 1);
    found.unwrap_or_else(|| (floor..=at).find(|n| text.is_char_boundary(*n)).unwrap_or(at))
}

/// The end of a match's line, or the limit of the search.
fn line_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let ceiling = (at + LINE).min(text.len());
    let found = (at..ceiling).find(|n| bytes.get(*n) == Some(&b'\n'));
    found.unwrap_or_else(|| (at..=ceiling).rev().find(|n| text.is_char_boundary(*n)).unwrap_or(at))
}

/// Computes the new content of a file again, when it is written.
pub fn again(arguments: FileArguments<'_>, old: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    let old = text_of(old)?;
    let replacing = TextReplacement::new(arguments)?;
    let places = replacing.places(&old)?;
    Ok(apply(&old, &places).into_bytes())
}

fn text_of(content: Vec<u8>) -> Result<String, Refusal> {
    let text = String::from_utf8(content).map_err(|_| Refusal::new(Code::FilesEncoding))?;
    if text.contains('\0') { Err(Refusal::new(Code::FilesEncoding)) } else { Ok(text) }
}

fn too_much() -> Refusal {
    Refusal::new(Code::FilesTooLarge).with_text("more files or bytes than one edit takes; name a smaller part")
}
