//! Whole walks through the gateway: a real store, real folders, a clock that obeys.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod accounts;
mod canaries;
mod coding;
mod crashes;
mod damage;
mod dead;
mod decisions;
mod ending;
mod freeze;
mod gate;
mod hook;
mod house;
mod http;
mod lateness;
mod leak;
mod mail;
mod mcp;
mod oauth;
mod offer;
mod outside;
mod page;
mod pages;
mod peer;
mod postgres;
mod races;
mod runaway;
mod ssrf;
mod state;
mod stopping;
mod streams;
mod taint;
mod telegram;
mod updates;
mod walk;
mod ways_out;
mod zoo;
