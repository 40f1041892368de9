//! How a worker is locked in, spoken to, timed out and buried.
//!
//! A worker is a fresh exec of a program (ours, in its hidden worker role) that does one job and ends. The
//! gateway holds the [`parent`] half: it spawns, watches, kills and reaps. The process itself calls
//! [`child::enter`] before it reads a byte of its job. The two talk in [`protocol`] frames over one socket.
//! Promise: nothing a worker sends, does or leaves undone stops the parent, and no worker outlives its watch.
#![warn(missing_docs)]

pub mod child;
mod jail;
mod layers;
pub mod parent;
pub mod protocol;
pub mod stranger;
mod wait;

pub use layers::{Layer, LayerName, Layers, Mode};

/// The version of Landlock this kernel offers; none if it has none or it is off.
#[must_use]
pub fn landlock_version() -> Option<u32> {
    jail::landlock::version()
}
