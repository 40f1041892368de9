//! Whole commands, as a person or a script runs them. One binary: linking is dear.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod about;
mod audit;
mod init;
mod kills;
mod policy;
mod running;
