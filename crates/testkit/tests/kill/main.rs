//! Processes that are killed, at every step and at any moment, on both engines.
//!
//! A driver runs the store against a service that never forgets; this side kills it, starts it again,
//! and compares what was acknowledged, what happened and what is on record. Each fault planted in the
//! driver must be found by the same checks.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test at the edge: it fails at that line, reads its own variables and watches the clock on the wall"
)]

mod anywhere;
mod check;
mod controls;
mod ground;
mod points;
mod trace;
