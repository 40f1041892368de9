//! The walk: everything below a folder, without recursion and with an end.
//!
//! Takes a folder; gives what is below it, in the order of names. Promise: links are not followed, what
//! the gateway keeps is not seen, and a walk ends after a fixed number of names however large the tree is.

use rustix::fs::{FileType, Stat};
use sluice_core::refusal::{Code, Refusal};

use super::open::kind;
use super::roots::{Place, Scope};
use super::sight::Sight;

/// Names looked at in one walk.
const VISITS: usize = 200_000;

/// Something a walk came by.
#[derive(Debug)]
pub(crate) struct Found {
    pub place: Place,
    /// The way from the folder the walk started in.
    pub way: String,
    pub stat: Stat,
}

/// A walk under way.
#[derive(Debug)]
pub(crate) struct Walk<'s> {
    scope: &'s Scope,
    /// What of it may be seen; everything without one.
    sight: Option<Sight>,
    hidden: bool,
    /// Folders still to be opened, and things still to be given, the next one last.
    ahead: Vec<Found>,
    visits_left: usize,
    /// Whether something was left out because the walk was long enough.
    pub cut: bool,
}

impl<'s> Walk<'s> {
    /// Below a folder. Without `hidden`, names with a dot in front and all below them are left out.
    pub fn below(scope: &'s Scope, place: &Place, sight: Option<Sight>, hidden: bool) -> Result<Self, Refusal> {
        let mut walk = Self { scope, sight, hidden, ahead: Vec::new(), visits_left: VISITS, cut: false };
        walk.open(place, "")?;
        Ok(walk)
    }

    /// Of a single file, or below a folder.
    pub fn of(scope: &'s Scope, place: &Place, sight: Sight, hidden: bool) -> Result<Self, Refusal> {
        let stat = scope.look(place)?.ok_or_else(|| Refusal::new(Code::FilesNotFound))?;
        if kind(&stat) == FileType::Directory {
            return Self::below(scope, place, Some(sight), hidden);
        }
        scope.check_file(&stat)?;
        let only = Found { place: place.clone(), way: place.name().to_owned(), stat };
        Ok(Self { scope, sight: Some(sight), hidden, ahead: vec![only], visits_left: VISITS, cut: false })
    }

    fn open(&mut self, place: &Place, way: &str) -> Result<(), Refusal> {
        let folder = self.scope.folder(place)?;
        let (entries, more) = self.scope.entries(&folder, self.visits_left)?;
        self.visits_left -= entries.len().min(self.visits_left);
        self.cut |= more;
        for entry in entries.into_iter().rev().filter(|entry| self.hidden || !entry.name.starts_with('.')) {
            let way = if way.is_empty() { entry.name.clone() } else { format!("{way}/{}", entry.name) };
            let place = place.child(&entry.name);
            // SECURITY: before anything of it is opened.
            if self.sight.as_ref().is_none_or(|sight| sight.sees(&place.path)) {
                self.ahead.push(Found { place, way, stat: entry.stat });
            }
        }
        Ok(())
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let found = self.ahead.pop()?;
        if kind(&found.stat) == FileType::Directory {
            // A folder that is closed to us, or gone, or a link by now, has nothing below it.
            let _ = self.open(&found.place, &found.way);
        }
        Some(found)
    }
}
