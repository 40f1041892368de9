//! The scratch folder of a worker: regular files by name, with only the calls of the list.
//!
//! The standard library queries files with calls that the filter kills, so files are read and written here. Promise: a
//! file is read completely or not at all, and never beyond the requested size.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

/// A worker's own folder.
#[derive(Debug, Clone, Copy)]
pub struct WorkerScratchFolder<'a>(BorrowedFd<'a>);

impl<'a> WorkerScratchFolder<'a> {
    pub(super) fn new(folder: BorrowedFd<'a>) -> Self {
        Self(folder)
    }

    /// Reads a file of at most this many bytes.
    ///
    /// # Errors
    /// When there is none, it is outside the folder, or it is larger.
    pub fn read(&self, name: &str, most: usize) -> io::Result<Vec<u8>> {
        let file = self.open(name, OFlags::RDONLY)?;
        let (mut bytes, mut piece) = (Vec::new(), [0; 16 << 10]);
        loop {
            match rustix::io::read(&file, piece.as_mut_slice()) {
                Ok(0) => return Ok(bytes),
                Ok(count) => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if bytes.len() > most {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
        }
    }

    /// Writes a file, and replaces an existing one.
    ///
    /// # Errors
    /// When it cannot be created, or it is larger than a scratch file may be.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        super::write_all(file.as_fd(), bytes)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// When there is none, or it is outside the folder.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(self.0, name, AtFlags::empty())?)
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(self.0, name, flags, Mode::RUSR | Mode::WUSR)?)
    }
}
