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
mod approved_files;
mod canaries;
mod cards;
mod coding;
mod crashes;
mod crowds;
mod damage;
mod dead;
mod decisions;
mod ending;
mod freeze;
mod freeze_walk;
mod gate;
mod hook;
mod house;
mod http;
mod lateness;
mod leak;
mod limits;
mod mail;
mod mcp;
mod oauth;
mod offer;
mod outside;
mod page;
mod pages;
mod peer;
mod postgres;
mod provenance;
mod races;
mod reading;
mod recovery;
mod reflections;
mod restores;
mod runaway;
mod ssrf;
mod standing;
mod state;
mod stopping;
mod streams;
mod taint;
mod telegram;
mod updates;
mod walk;
mod ways_out;
mod witness;
mod zoo;
