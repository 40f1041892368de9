//! Processes that are killed, at every step and at any moment, on both engines.
//!
//! A driver runs the store against a service that never forgets; this side kills it, starts it again, and compares what
//! was acknowledged, what happened and what the audit log says. The same checks must find each fault planted in the
//! driver.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test at the edge: it fails at that line, reads its own variables and watches the clock on the wall"
)]

mod anywhere;
mod check;
mod controls;
mod environment;
mod points;
mod trace;
