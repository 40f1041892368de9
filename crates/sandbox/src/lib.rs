//! Locks a worker in, talks to it, enforces its time limits and reaps it.
//!
//! A worker is a fresh exec of a program (ours, in its hidden worker role) that does one job and ends. The gateway
//! holds the [`parent`] half: it spawns, watches, kills and reaps. The process itself calls [`child::enter`] before it
//! reads a byte of its job. The two exchange frames of `sluice-protocol` over one socket. Promise: nothing that a worker sends,
//! does or leaves undone stops the parent, and no worker outlives its watch.
#![warn(missing_docs)]

pub mod child;
mod jail;
pub mod parent;
pub mod third_party;
mod wait;
mod zygote_protocol;

pub use sluice_protocol::{JailLayer, JailLayerName, JailLayers, JailMode};

/// The version of Landlock that this kernel offers; `None` if it has none or it is off.
#[must_use]
pub fn landlock_version() -> Option<u32> {
    jail::landlock::version()
}
