//! Putting a file in place: complete or not at all.
//!
//! Takes content and the state that was found before; gives the new file under its name. Promise: a reader sees the old
//! file or the new one and never a part of one; a file that another program put there meanwhile is restored and not
//! lost; after the call returns, a power cut does not undo it.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use sluice_core::refusal::{Code, Refusal};

use super::open::{open_below, refusal, refusal_of, same_object, untouched};
use super::roots::{OpenedRoots, RootedPath};
use crate::WriteError;

/// The permissions of an unfinished file. No other file has them, so files left behind by a crash are recognized as
/// ours.
pub const UNFINISHED: u32 = 0o200;
/// How often a newer file is put back again.
const BACK: u32 = 64;

/// A new file next to its target, complete and durable, under a temporary name.
#[derive(Debug)]
pub struct StagedFile {
    folder: OwnedFd,
    name: String,
    beside: String,
    /// The status of the file to replace, when it was read.
    replaces: Option<Stat>,
    /// The status of the new file.
    new: Stat,
    step: StagedFileState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StagedFileState {
    Beside,
    /// The new file has its final name, and the old one has the temporary name.
    Swapped,
    /// The new file has its final name, and the temporary name is gone.
    Placed,
}

/// The parameters of a new file.
#[derive(Debug)]
pub struct FilePlacement<'a> {
    pub place: &'a RootedPath,
    /// The temporary name until the file is complete.
    pub beside: String,
    pub content: &'a [u8],
    pub mode: u32,
    /// The status of the file to replace, when it was read; none if nothing may exist there.
    pub replaces: Option<Stat>,
}

impl StagedFile {
    /// Writes the new file next to its target. Nothing that an agent can see has changed yet.
    pub fn new(scope: &OpenedRoots, putting: FilePlacement<'_>) -> Result<Self, Refusal> {
        let (folder, name) = scope.parent(putting.place)?;
        let name = name.to_owned();
        let file = create(&folder, &putting.beside)?;
        let (beside, replaces) = (putting.beside, putting.replaces);
        let new = rustix::fs::fstat(&file).map_err(refusal)?;
        // From here on, dropping it removes the new file.
        let mut staged = Self { folder, name, beside, replaces, new, step: StagedFileState::Beside };
        staged.new = fill(file, putting.content, putting.mode, replaces.as_ref())?;
        Ok(staged)
    }

    /// Gives the new file its final name, in one step.
    pub fn place(&mut self) -> Result<(), WriteError> {
        let (folder, beside, name) = (&self.folder, self.beside.as_str(), self.name.as_str());
        let changed = || WriteError::refused(Code::FilesChanged);
        let Some(old) = self.replaces else {
            match rename_new(folder, beside, folder, name) {
                Err(Errno::EXIST) => return Err(changed()),
                other => other.map_err(|errno| trouble(refusal(errno)))?,
            }
            self.step = StagedFileState::Placed;
            return Ok(());
        };
        match rustix::fs::renameat_with(folder, beside, folder, name, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(changed()),
            Err(Errno::INVAL | Errno::NOSYS) => return self.replace_without_exchange(&old),
            Err(errno) => return Err(trouble(refusal(errno))),
        }
        self.step = StagedFileState::Swapped;
        // The replaced file must be the one that was checked: the exchange itself cannot check it.
        match rustix::fs::statat(folder, beside, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(taken) if untouched(&taken, &old) => Ok(()),
            _ => {
                self.take_back()?;
                Err(changed())
            }
        }
    }

    /// For file systems that cannot exchange two names: checks, then replaces.
    fn replace_without_exchange(&mut self, old: &Stat) -> Result<(), WriteError> {
        let (folder, name) = (&self.folder, self.name.as_str());
        let present = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if !present.is_ok_and(|present| untouched(&present, old)) {
            return Err(WriteError::refused(Code::FilesChanged));
        }
        rustix::fs::renameat(folder, self.beside.as_str(), folder, name).map_err(|errno| trouble(refusal(errno)))?;
        self.step = StagedFileState::Placed;
        Ok(())
    }

    /// Puts the replaced file back. Only after an exchange.
    ///
    /// Another program may replace the file again while ours has the name. The file that an exchange returns must
    /// therefore be the one that we put in; a newer file is put back again, until nothing newer is returned.
    pub fn take_back(&mut self) -> Result<(), WriteError> {
        if self.step != StagedFileState::Swapped {
            return Err(WriteError::Unclear);
        }
        // Until the outcome is certain, nothing is removed.
        self.step = StagedFileState::Placed;
        let (folder, beside, name) = (&self.folder, self.beside.as_str(), self.name.as_str());
        let out = || rustix::fs::statat(folder, beside, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| WriteError::Unclear);
        let (mut ours, mut theirs) = (self.new, out()?);
        for _ in 0..BACK {
            rustix::fs::renameat_with(folder, beside, folder, name, RenameFlags::EXCHANGE)
                .map_err(|_| WriteError::Unclear)?;
            let came_out = out()?;
            if untouched(&came_out, &ours) {
                self.step = StagedFileState::Beside;
                return Ok(());
            }
            if same_object(&came_out, &ours) {
                // Another program wrote into it. Both files stay, and a person decides.
                return Err(WriteError::Unclear);
            }
            (ours, theirs) = (theirs, came_out);
        }
        Err(WriteError::Unclear)
    }

    /// Makes the file durable and removes the old one.
    pub fn settle(mut self) -> Result<(), WriteError> {
        // The new name must be on disk before the old file is gone.
        rustix::fs::fsync(&self.folder).map_err(|_| WriteError::Unclear)?;
        if self.step == StagedFileState::Swapped {
            let _ = rustix::fs::unlinkat(&self.folder, self.beside.as_str(), AtFlags::empty());
        }
        self.step = StagedFileState::Placed;
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // A file that was never placed is removed. A file that was exchanged but not settled is left for a lookup.
        if self.step == StagedFileState::Beside {
            let _ = rustix::fs::unlinkat(&self.folder, self.beside.as_str(), AtFlags::empty());
        }
    }
}

/// Creates an unfinished file under a temporary name, replacing one that a crash may have left.
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
        // Only a privileged gateway can give files away; otherwise the gateway's user owns the file.
        let _ = rustix::fs::fchown(&file, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid)));
    }
    // SECURITY: set-user-id and set-group-id belonged to the old content and are not given to the new one.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777)).map_err(refusal)?;
    file.sync_all().map_err(|error| refusal_of(&error))?;
    rustix::fs::fstat(&file).map_err(refusal)
}

/// A file of the gateway in a folder of its own: created, filled and made durable.
pub fn write_own(folder: &OwnedFd, name: &str, content: &[u8]) -> Result<(), Refusal> {
    fill(create(folder, name)?, content, 0o600, None)?;
    rustix::fs::fsync(folder).map_err(refusal)
}

/// Renames only if the new name does not exist.
pub fn rename_new(from: &OwnedFd, name: &str, to: &OwnedFd, new: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // If the file system does not support that, a hard link does it: linking never replaces.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(from, name, to, new, AtFlags::empty())?;
            rustix::fs::unlinkat(from, name, AtFlags::empty())
        }
        other => other,
    }
}

/// Whether a refusal before the effect can be retried.
pub fn trouble(refusal: Refusal) -> WriteError {
    match refusal.code() {
        // Before the next attempt a person is asked about the state at that time.
        Code::FilesDiskFull | Code::FilesFailed | Code::FilesNotAsApproved => WriteError::NotDone(refusal),
        _ => WriteError::Refused(refusal),
    }
}
