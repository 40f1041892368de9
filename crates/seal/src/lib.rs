//! Database files that are ciphertext on the disk and plain to SQLite.
//!
//! Takes a key, gives the name of a file system of SQLite (a VFS) through which a database is opened. Everything that
//! is written through it (the file itself, its write-ahead log, a journal, a temporary file) is AES-256-XTS with keys
//! of its own; locks, shared memory and all else are SQLite's own file system's. Promise: no byte of content reaches
//! the disk in the clear, and with another key there is only noise. Whoever can *write* the files can damage them or
//! set parts back to what they were: that is not promised against, as it is not with an encrypted disk.
#![warn(missing_docs)]

mod blocks;
mod file;
mod key;
mod vfs;
mod xts;

pub use key::Key;
pub use vfs::{Seal, SealError};
