//! Whole walks through the gateway: a real store, real folders, a clock that obeys.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod freeze;
mod house;
mod http;
mod leak;
mod runaway;
mod walk;
