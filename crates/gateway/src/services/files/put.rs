//! Putting a file in place: whole or not at all.
//!
//! Takes content and the state that was found before; gives the new file under its name. Promise: a
//! reader sees the old file or the new one and never a part of one; what somebody else put there since
//! we looked is put back and not lost; when it returns, a power cut does not undo it.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use sluice_core::refusal::{Code, Refusal};

use super::open::{open_below, refusal, refusal_of, same_object, untouched};
use super::roots::{Place, Scope};
use crate::services::Trouble;

/// Permissions of a file that is not finished. No other file has them, so what a crash leaves is known as ours.
pub(crate) const UNFINISHED: u32 = 0o200;
/// How often something newer is put in again.
const BACK: u32 = 64;

/// A new file beside the place it is for, complete and durable, under a name of ours.
#[derive(Debug)]
pub(crate) struct Staged {
    folder: OwnedFd,
    name: String,
    beside: String,
    /// What is to be replaced, as it was when it was read.
    replaces: Option<Stat>,
    /// The new file itself.
    new: Stat,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Beside,
    /// The new file has its name, and the old one is where the new one was.
    Swapped,
    /// The new file has its name, and nothing is left beside it.
    Placed,
}

/// What to put where.
#[derive(Debug)]
pub(crate) struct Putting<'a> {
    pub place: &'a Place,
    /// The name of ours it has until it is complete.
    pub beside: String,
    pub content: &'a [u8],
    pub mode: u32,
    /// What is to be replaced, as it was when it was read; nothing if there must be nothing.
    pub replaces: Option<Stat>,
}

impl Staged {
    /// Writes the new file beside its place. Nothing an agent can see has changed yet.
    pub fn new(scope: &Scope, putting: Putting<'_>) -> Result<Self, Refusal> {
        let (folder, name) = scope.parent(putting.place)?;
        let name = name.to_owned();
        let file = create(&folder, &putting.beside)?;
        let (beside, replaces) = (putting.beside, putting.replaces);
        let new = rustix::fs::fstat(&file).map_err(refusal)?;
        // From here on, dropping it removes what was written.
        let mut staged = Self { folder, name, beside, replaces, new, step: Step::Beside };
        staged.new = fill(file, putting.content, putting.mode, replaces.as_ref())?;
        Ok(staged)
    }

    /// Gives the new file its name, in one step.
    pub fn place(&mut self) -> Result<(), Trouble> {
        let (folder, beside, name) = (&self.folder, self.beside.as_str(), self.name.as_str());
        let changed = || Trouble::refused(Code::FilesChanged);
        let Some(old) = self.replaces else {
            match rename_new(folder, beside, folder, name) {
                Err(Errno::EXIST) => return Err(changed()),
                other => other.map_err(|errno| trouble(refusal(errno)))?,
            }
            self.step = Step::Placed;
            return Ok(());
        };
        match rustix::fs::renameat_with(folder, beside, folder, name, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(changed()),
            Err(Errno::INVAL | Errno::NOSYS) => return self.replace_without_exchange(&old),
            Err(errno) => return Err(trouble(refusal(errno))),
        }
        self.step = Step::Swapped;
        // What we took out must be what we looked at: the exchange cannot be asked to check it.
        match rustix::fs::statat(folder, beside, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(taken) if untouched(&taken, &old) => Ok(()),
            _ => {
                self.take_back()?;
                Err(changed())
            }
        }
    }

    /// For file systems that cannot exchange two names: looks, then replaces.
    fn replace_without_exchange(&mut self, old: &Stat) -> Result<(), Trouble> {
        let (folder, name) = (&self.folder, self.name.as_str());
        let present = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if !present.is_ok_and(|present| untouched(&present, old)) {
            return Err(Trouble::refused(Code::FilesChanged));
        }
        rustix::fs::renameat(folder, self.beside.as_str(), folder, name).map_err(|errno| trouble(refusal(errno)))?;
        self.step = Step::Placed;
        Ok(())
    }

    /// Puts what was taken out back where it was. Only for what was exchanged.
    ///
    /// Somebody may replace the file once more while ours has the name. What comes out of an exchange must
    /// therefore be what we put in; if it is newer, it is put in again, until nothing newer comes out.
    pub fn take_back(&mut self) -> Result<(), Trouble> {
        if self.step != Step::Swapped {
            return Err(Trouble::Unclear);
        }
        // Until it is certain, nothing is removed.
        self.step = Step::Placed;
        let (folder, beside, name) = (&self.folder, self.beside.as_str(), self.name.as_str());
        let out = || rustix::fs::statat(folder, beside, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| Trouble::Unclear);
        let (mut ours, mut theirs) = (self.new, out()?);
        for _ in 0..BACK {
            rustix::fs::renameat_with(folder, beside, folder, name, RenameFlags::EXCHANGE)
                .map_err(|_| Trouble::Unclear)?;
            let came_out = out()?;
            if untouched(&came_out, &ours) {
                self.step = Step::Beside;
                return Ok(());
            }
            if same_object(&came_out, &ours) {
                // Somebody wrote into it. Both stay, and a person looks.
                return Err(Trouble::Unclear);
            }
            (ours, theirs) = (theirs, came_out);
        }
        Err(Trouble::Unclear)
    }

    /// Makes it durable and lets go of the old file.
    pub fn settle(mut self) -> Result<(), Trouble> {
        // The new name must be on disk before the old file is gone.
        rustix::fs::fsync(&self.folder).map_err(|_| Trouble::Unclear)?;
        if self.step == Step::Swapped {
            let _ = rustix::fs::unlinkat(&self.folder, self.beside.as_str(), AtFlags::empty());
        }
        self.step = Step::Placed;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // What was never placed is removed. What was exchanged and not settled is left for a look.
        if self.step == Step::Beside {
            let _ = rustix::fs::unlinkat(&self.folder, self.beside.as_str(), AtFlags::empty());
        }
    }
}

/// Creates an unfinished file under a name of ours, instead of one that a crash may have left.
fn create(folder: &OwnedFd, name: &str) -> Result<File, Refusal> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(UNFINISHED);
    let made = match open_below(folder, name, flags, mode) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(folder, name, AtFlags::empty()).map_err(refusal)?;
            open_below(folder, name, flags, mode)
        }
        other => other,
    };
    made.map(File::from).map_err(refusal)
}

/// Writes the content, then the permissions, and makes both durable.
fn fill(mut file: File, content: &[u8], mode: u32, like: Option<&Stat>) -> Result<Stat, Refusal> {
    file.write_all(content).map_err(|error| refusal_of(&error))?;
    if let Some(like) = like {
        // Only a privileged gateway can give files away; for others the file becomes their own.
        let _ = rustix::fs::fchown(&file, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid)));
    }
    // SECURITY: set-user-id and set-group-id belonged to the old content and are not given to the new.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777)).map_err(refusal)?;
    file.sync_all().map_err(|error| refusal_of(&error))?;
    rustix::fs::fstat(&file).map_err(refusal)
}

/// A file of ours in a folder of ours: created, filled and made durable.
pub(crate) fn write_own(folder: &OwnedFd, name: &str, content: &[u8]) -> Result<(), Refusal> {
    fill(create(folder, name)?, content, 0o600, None)?;
    rustix::fs::fsync(folder).map_err(refusal)
}

/// Renames only if there is nothing of the new name.
pub(crate) fn rename_new(from: &OwnedFd, name: &str, to: &OwnedFd, new: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Where the file system cannot promise that, a second name can: linking never replaces.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(from, name, to, new, AtFlags::empty())?;
            rustix::fs::unlinkat(from, name, AtFlags::empty())
        }
        other => other,
    }
}

/// Whether a refusal from before the effect is worth another try.
pub(crate) fn trouble(refusal: Refusal) -> Trouble {
    match refusal.code() {
        // Before the next attempt a person is asked about the state as it is then.
        Code::FilesDiskFull | Code::FilesFailed | Code::FilesNotAsApproved => Trouble::NotDone(refusal),
        _ => Trouble::Refused(refusal),
    }
}
