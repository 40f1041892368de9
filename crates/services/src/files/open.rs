//! Opening: the only way from a place to a file descriptor.
//!
//! Takes a [`RootedPath`]; gives an open file or folder, or the reason why not. Promise: the kernel resolves every step
//! beneath the root's own descriptor and follows no symbolic link, so the opened object is the one that policy judged,
//! even if names are swapped meanwhile. Pipes, sockets and devices are inspected but never opened.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sluice_core::refusal::{Code, Refusal};

use super::roots::{OpenedRoots, RootedPath};

/// The largest file that is processed as a whole.
pub const WHOLE: u64 = 64 << 20;
/// How often an open is repeated when the kernel saw a concurrent rename.
const TRIES: u32 = 64;

/// A regular file, open for reading.
#[derive(Debug)]
pub struct OpenedFile {
    pub file: File,
    pub stat: Stat,
}

/// An entry of a folder.
#[derive(Debug)]
pub struct FolderEntry {
    /// The name. Bytes that are not UTF-8 are shown as replacement characters and cannot be addressed.
    pub name: String,
    pub stat: Stat,
}

impl OpenedRoots {
    /// The status of an object, without opening it. A symbolic link at the end is not followed.
    pub fn look(&self, place: &RootedPath) -> Result<Option<Stat>, Refusal> {
        match self.descriptor(place, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(found) => rustix::fs::fstat(&found).map(Some).map_err(refusal),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(refusal(errno)),
        }
    }

    /// Opens a regular file for reading.
    pub fn file(&self, place: &RootedPath) -> Result<OpenedFile, Refusal> {
        for _ in 0..TRIES {
            let seen = self.look(place)?.ok_or_else(|| Refusal::new(Code::FilesNotFound))?;
            self.check_file(&seen)?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = self.descriptor(place, flags).map_err(refusal)?;
            let stat = rustix::fs::fstat(&file).map_err(refusal)?;
            // The name may have been swapped since it was checked.
            if same_object(&seen, &stat) {
                self.check_file(&stat)?;
                return Ok(OpenedFile { file: File::from(file), stat });
            }
        }
        Err(Refusal::new(Code::FilesChanged))
    }

    /// Opens a folder for listing and for work in it.
    pub fn folder(&self, place: &RootedPath) -> Result<OwnedFd, Refusal> {
        self.descriptor(place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW).map_err(refusal)
    }

    /// Opens the parent folder of a place; returns it with the name.
    pub fn parent<'p>(&self, place: &'p RootedPath) -> Result<(OwnedFd, &'p str), Refusal> {
        let (way, name) = place.split().ok_or_else(|| Refusal::new(Code::FilesOutOfScope))?;
        let path = place.path.rsplit_once('/').map_or("", |(path, _)| path).to_owned();
        let folder = RootedPath { opened_root: place.opened_root, path, way: way.to_owned() };
        match self.folder(&folder) {
            Ok(folder) => Ok((folder, name)),
            Err(missing) if missing.code() == Code::FilesNotFound => {
                Err(missing.with_text("the folder it should be in does not exist"))
            }
            Err(other) => Err(other),
        }
    }

    /// The entries of a folder, sorted by name, without those that the gateway keeps. At most `most` names are
    /// returned; the flag says that there are more.
    pub fn entries(&self, folder: &OwnedFd, most: usize) -> Result<(Vec<FolderEntry>, bool), Refusal> {
        let (mut entries, mut more) = (Vec::new(), false);
        for entry in Dir::read_from(folder).map_err(refusal)? {
            let entry = entry.map_err(refusal)?;
            let bytes = entry.file_name().to_bytes();
            let name = String::from_utf8_lossy(bytes).into_owned();
            if matches!(bytes, b"." | b"..") || super::roots::is_own(&name) {
                continue;
            }
            if entries.len() == most {
                more = true;
                break;
            }
            // A name that is gone again counts as never seen.
            if let Ok(stat) = rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                entries.push(FolderEntry { name, stat });
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((entries, more))
    }

    /// Whether this may be read as a file.
    pub fn check_file(&self, stat: &Stat) -> Result<(), Refusal> {
        match kind(stat) {
            FileType::RegularFile if stat.st_nlink > 1 && !self.hard_links => Err(Refusal::new(Code::FilesHardLink)),
            FileType::RegularFile => Ok(()),
            FileType::Symlink => Err(Refusal::new(Code::FilesSymlink)),
            _ => Err(Refusal::new(Code::FilesNotAFile)),
        }
    }

    /// The only call that turns a path into a descriptor.
    fn descriptor(&self, place: &RootedPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let opened_root = self.opened_roots.get(place.opened_root).ok_or(Errno::XDEV)?;
        let way = if place.way.is_empty() { "." } else { place.way.as_str() };
        open_below(&opened_root.folder, way, flags, Mode::empty())
    }
}

/// Opens inside a folder: never above it, never through a link.
pub fn open_below(folder: &OwnedFd, way: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut last = Errno::AGAIN;
    for _ in 0..TRIES {
        match rustix::fs::openat2(folder, way, flags | OFlags::CLOEXEC, mode, resolve) {
            // The kernel saw a concurrent rename, or a signal arrived.
            Err(again @ (Errno::AGAIN | Errno::INTR)) => last = again,
            other => return other,
        }
    }
    Err(last)
}

/// The kind of an object.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The name of the kind in answers.
pub fn kind_word(stat: &Stat) -> &'static str {
    match kind(stat) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "other",
    }
}

/// Whether two checks saw the same object, whatever its content.
pub fn same_object(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether two checks saw the same object with nothing written in between. The time of the last status change is
/// ignored, because a rename changes it.
pub fn untouched(one: &Stat, other: &Stat) -> bool {
    let content = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_mode);
    same_object(one, other) && content(one) == content(other)
}

/// The size in bytes.
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// The time of the last write, as RFC 3339.
pub fn modified(stat: &Stat) -> String {
    moment(stat.st_mtime, stat.st_mtime_nsec)
}

/// Seconds and nanoseconds as RFC 3339.
pub fn moment(seconds: i64, nanos: impl TryInto<i32>) -> String {
    let nanos = nanos.try_into().unwrap_or(0);
    jiff::Timestamp::new(seconds, nanos).map_or_else(|_| format!("{seconds} s"), |moment| format!("{moment:.3}"))
}

/// The refusal for a kernel error. The error number itself is for the operator.
pub fn refusal(errno: Errno) -> Refusal {
    let code = match errno {
        Errno::NOENT => Code::FilesNotFound,
        Errno::LOOP => Code::FilesSymlink,
        Errno::XDEV => Code::FilesOutOfScope,
        Errno::NOTDIR => Code::FilesNotAFolder,
        Errno::ISDIR | Errno::NXIO | Errno::NODEV => Code::FilesNotAFile,
        Errno::EXIST => Code::FilesExists,
        Errno::NOTEMPTY => Code::FilesNotEmpty,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY => Code::FilesDenied,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Code::FilesDiskFull,
        Errno::NAMETOOLONG => {
            return Refusal::new(Code::FilesOutOfScope).with_text("the path or a name in it is too long");
        }
        _ => Code::FilesFailed,
    };
    Refusal::new(code).with_source(std::io::Error::from(errno))
}

/// The refusal for an error of the standard library.
pub fn refusal_of(error: &std::io::Error) -> Refusal {
    match Errno::from_io_error(error) {
        Some(errno) => refusal(errno),
        None => Refusal::new(Code::FilesFailed).with_source(error.kind().to_string()),
    }
}
