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
mod agreeing;
mod applying;
mod approved_files;
mod archiving;
mod around;
mod broken_upstreams;
mod canaries;
mod cards;
mod client_files;
mod coding;
mod crashes;
mod crowds;
mod custom;
mod damage;
mod dead;
mod decisions;
mod deliveries;
mod ending;
mod freeze;
mod freeze_walk;
mod gate;
mod growth;
mod hook;
mod http;
mod idle;
mod lateness;
mod leak;
mod limits;
mod local;
mod mail;
mod mail_replies;
mod mcp;
mod nodes;
mod notices;
mod oauth;
mod offer;
mod outside;
mod page;
mod pages;
mod peer;
mod polling;
mod postgres;
mod provenance;
mod races;
mod reading;
mod recovery;
mod reflections;
mod required;
mod restores;
mod retrying;
mod runaway;
mod scheduling;
mod ssrf;
mod standing;
mod state;
mod steady;
mod stopping;
mod streams;
mod taint;
mod telegram;
mod test_gateway;
mod updates;
mod walk;
mod watching;
mod ways_out;
mod witness;
