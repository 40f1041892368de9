//! Fingerprints of files: the state of an object, in one canonical line.
//!
//! Takes a place; gives `absent`, `folder`, or `file <mode> <size> <sha256>`. Promise: two fingerprints are equal
//! exactly if a person would call the objects the same; a file that changes while it is read has no fingerprint. Files
//! too large to be read completely are identified by inode and time instead of a hash.

use std::fmt::Write as _;
use std::io::Read;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sluice_core::hex;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;

use super::open::{OpenedFile, WHOLE, kind, refusal, refusal_of, size, untouched};
use super::roots::{OpenedRoots, RootedPath};

/// How often a file that changes during a read is read again.
const TRIES: u32 = 3;

/// The state of one object, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileFingerprint(String);

/// The state that was found at a place.
#[derive(Debug)]
pub struct FileSnapshot {
    /// The fingerprint.
    pub print: FileFingerprint,
    /// The status when it was read; none if nothing exists there.
    pub stat: Option<Stat>,
    /// The content, if it was requested and the object is a file.
    pub content: Option<Vec<u8>>,
}

impl FileFingerprint {
    /// The fingerprint of a missing object.
    pub fn absent() -> Self {
        Self("absent".into())
    }

    /// The fingerprint of a folder, whatever its content.
    pub fn folder() -> Self {
        Self("folder".into())
    }

    /// The fingerprint of a file.
    pub fn file(mode: u32, content: &[u8]) -> Self {
        Self::hashed(mode, content.len() as u64, &Sha256::digest(content))
    }

    /// The fingerprint of a content, with any permissions.
    pub fn content(size: u64, checksum: &str) -> Self {
        Self(format!("file 0 {size} {checksum}"))
    }

    /// The fingerprint of a content in memory.
    pub fn of_content(content: &[u8]) -> Self {
        Self::content(content.len() as u64, &hex::encode(&Sha256::digest(content)))
    }

    /// Whether this fingerprint, which may be that of a content only, matches an object with this other fingerprint.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || (self.mode() == Some(0) && self.checksum().is_some() && self.checksum() == other.checksum())
    }

    fn hashed(mode: u32, size: u64, hash: &[u8]) -> Self {
        Self(format!("file {:o} {size} {}", mode & 0o7777, hex::encode(hash)))
    }

    fn large(stat: &Stat) -> Self {
        let (dev, ino) = (stat.st_dev, stat.st_ino);
        let (mode, time) = (stat.st_mode & 0o7777, (stat.st_mtime, stat.st_mtime_nsec));
        Self(format!("large {mode:o} {} {dev} {ino} {}.{:09}", size(stat), time.0, time.1))
    }

    /// Whether nothing exists there.
    pub fn is_absent(&self) -> bool {
        self.0 == "absent"
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.0 == "folder"
    }

    /// The permissions of a file.
    pub fn mode(&self) -> Option<u32> {
        u32::from_str_radix(self.0.split(' ').nth(1)?, 8).ok()
    }

    /// The size of a file.
    pub fn size(&self) -> Option<u64> {
        self.0.split(' ').nth(2)?.parse().ok()
    }

    /// The SHA-256 of a file, unless it is too large to hash.
    pub fn checksum(&self) -> Option<&str> {
        self.0.strip_prefix("file ").and_then(|rest| rest.split(' ').nth(2))
    }
}

impl OpenedRoots {
    /// The fingerprint of the object at a place.
    pub fn fingerprint(&self, place: &RootedPath) -> Result<FileFingerprint, Refusal> {
        self.snapshot(place, false).map(|seen| seen.print)
    }

    /// The fingerprint of the object at a place, and its content if that is requested.
    pub fn snapshot(&self, place: &RootedPath, content: bool) -> Result<FileSnapshot, Refusal> {
        for _ in 0..TRIES {
            let stat = match self.look(place)? {
                None => return Ok(FileSnapshot { print: FileFingerprint::absent(), stat: None, content: None }),
                Some(stat) => stat,
            };
            if kind(&stat) == FileType::Directory {
                return Ok(FileSnapshot { print: FileFingerprint::folder(), stat: Some(stat), content: None });
            }
            self.check_file(&stat)?;
            let mut opened = match self.file(place) {
                Err(gone) if gone.code() == Code::FilesNotFound => continue,
                other => other?,
            };
            if size(&opened.stat) > WHOLE {
                if content {
                    return Err(Refusal::new(Code::FilesTooLarge));
                }
                return Ok(FileSnapshot {
                    print: FileFingerprint::large(&opened.stat),
                    stat: Some(opened.stat),
                    content: None,
                });
            }
            if let Some(seen) = read_still(&mut opened, content)? {
                return Ok(seen);
            }
        }
        Err(Refusal::new(Code::FilesChanged))
    }
}

/// Reads a complete file; nothing if it changed meanwhile.
fn read_still(opened: &mut OpenedFile, keep: bool) -> Result<Option<FileSnapshot>, Refusal> {
    let (mut hash, mut read) = (Sha256::new(), 0_u64);
    let mut content = keep.then(Vec::new);
    let mut buffer = vec![0; 128 << 10];
    loop {
        let count = match opened.file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(again) if again.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(refusal_of(&error)),
        };
        let part = buffer.get(..count).unwrap_or_default();
        read += count as u64;
        if read > WHOLE {
            return Ok(None);
        }
        hash.update(part);
        if let Some(content) = &mut content {
            content.extend_from_slice(part);
        }
    }
    let now = rustix::fs::fstat(&opened.file).map_err(refusal)?;
    let still = untouched(&opened.stat, &now) && read == size(&now);
    let print = FileFingerprint::hashed(now.st_mode, read, &hash.finalize());
    Ok(still.then_some(FileSnapshot { print, stat: Some(now), content }))
}

/// One fingerprint of several objects, in their order.
pub fn fingerprint<'p>(objects: impl IntoIterator<Item = (&'p str, &'p FileFingerprint)>) -> ObjectFingerprint {
    let mut text = String::new();
    for (path, print) in objects {
        // The length keeps a line break in a path from looking like another object. Writing into a String cannot fail.
        let _ = writeln!(text, "{} {} {path}", print.0, path.len());
    }
    ObjectFingerprint::of(text.as_bytes())
}
