//! Whole walks through the gateway: a real store, real folders, a clock that obeys.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod damage;
mod freeze;
mod house;
mod http;
mod postgres;
mod races;
mod runaway;
mod walk;
