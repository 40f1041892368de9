//! Database files that are ciphertext on the disk and plain to SQLite.
//!
//! Takes a key; gives the name of an SQLite file system (a VFS) through which a database is opened. Everything that
//! is written through it (the file itself, its write-ahead log, a journal, a temporary file) is AES-256-XTS with keys
//! of its own; locks, shared memory and everything else come from SQLite's own file system. Promise: no byte of content
//! reaches the disk in the clear, and another key reads only noise. An attacker who can *write* the files can damage
//! them or restore older parts: the crate does not protect against that, and neither does an encrypted disk.
#![warn(missing_docs)]

mod blocks;
mod file;
mod key;
mod vfs;
mod xts;

pub use key::SealKey;
pub use vfs::{Seal, SealError};
