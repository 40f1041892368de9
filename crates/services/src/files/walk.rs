//! The walk: all entries of a folder and its subfolders, without recursion and with a limit.
//!
//! Takes a folder; gives its entries, sorted by name. Promise: links are not followed, entries that the gateway keeps
//! are not seen, and a walk ends after a fixed number of names however large the tree is.

use rustix::fs::{FileType, Stat};
use sluice_core::refusal::{Code, Refusal};

use super::open::kind;
use super::roots::{OpenedRoots, RootedPath};
use super::visibility::FolderVisibility;

/// The most names visited in one walk.
const VISITS: usize = 200_000;

/// An entry that a walk found.
#[derive(Debug)]
pub struct WalkEntry {
    pub place: RootedPath,
    /// The path from the folder where the walk started.
    pub way: String,
    pub stat: Stat,
}

/// A walk in progress.
#[derive(Debug)]
pub struct FolderWalk<'s> {
    scope: &'s OpenedRoots,
    /// The part of it that may be seen; everything if none is given.
    sight: Option<FolderVisibility>,
    hidden: bool,
    /// Folders to open, and entries to return, the next one last.
    ahead: Vec<WalkEntry>,
    visits_left: usize,
    /// Whether entries were left out because the limit was reached.
    pub cut: bool,
}

impl<'s> FolderWalk<'s> {
    /// A walk of a folder. Without `hidden`, names that begin with a dot are left out, with everything below them.
    pub fn below(
        scope: &'s OpenedRoots,
        place: &RootedPath,
        sight: Option<FolderVisibility>,
        hidden: bool,
    ) -> Result<Self, Refusal> {
        let mut walk = Self { scope, sight, hidden, ahead: Vec::new(), visits_left: VISITS, cut: false };
        walk.open(place, "")?;
        Ok(walk)
    }

    /// A walk of a single file, or of a folder.
    pub fn of(
        scope: &'s OpenedRoots,
        place: &RootedPath,
        sight: FolderVisibility,
        hidden: bool,
    ) -> Result<Self, Refusal> {
        let stat = scope.look(place)?.ok_or_else(|| Refusal::new(Code::FilesNotFound))?;
        if kind(&stat) == FileType::Directory {
            return Self::below(scope, place, Some(sight), hidden);
        }
        scope.check_file(&stat)?;
        let only = WalkEntry { place: place.clone(), way: place.name().to_owned(), stat };
        Ok(Self { scope, sight: Some(sight), hidden, ahead: vec![only], visits_left: VISITS, cut: false })
    }

    fn open(&mut self, place: &RootedPath, way: &str) -> Result<(), Refusal> {
        let folder = self.scope.folder(place)?;
        let (entries, more) = self.scope.entries(&folder, self.visits_left)?;
        self.visits_left -= entries.len().min(self.visits_left);
        self.cut |= more;
        for entry in entries.into_iter().rev().filter(|entry| self.hidden || !entry.name.starts_with('.')) {
            let way = if way.is_empty() { entry.name.clone() } else { format!("{way}/{}", entry.name) };
            let place = place.child(&entry.name);
            // SECURITY: checked before it is opened.
            if self.sight.as_ref().is_none_or(|sight| sight.sees(&place.path)) {
                self.ahead.push(WalkEntry { place, way, stat: entry.stat });
            }
        }
        Ok(())
    }
}

impl Iterator for FolderWalk<'_> {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        let found = self.ahead.pop()?;
        if kind(&found.stat) == FileType::Directory {
            // A folder that is not accessible, or gone, or now a link, has no entries.
            let _ = self.open(&found.place, &found.way);
        }
        Some(found)
    }
}
