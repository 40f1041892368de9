//! An empty root folder: no path leads to anything.
//!
//! Only inside its own mount namespace; the parent created one where the system allows it.

use rustix::io;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{chdir, pivot_root};

/// Folders that exist everywhere and are no longer needed: the new root is mounted over the first that works.
const PLACES: [&str; 3] = ["/proc", "/tmp", "/dev"];

/// Makes an empty, read-only folder the root of this process, and detaches the old one.
pub(crate) fn empty() -> io::Result<String> {
    let mut last = io::Errno::NOENT;
    for place in PLACES {
        match enter(place) {
            Ok(()) => return Ok("an empty folder".into()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn enter(place: &str) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("none", place, "tmpfs", flags, c"size=4k,nr_inodes=2,mode=0500")?;
    chdir(place)?;
    // The old root ends up on top of the new one and is detached from there.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}
