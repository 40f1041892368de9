//! Whole commands, as a person or a script runs them. One binary: linking is dear.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod about;
mod adapters;
mod answering;
mod asking;
mod audit;
mod bombs;
mod canaries;
mod coding;
mod described;
mod dying;
mod failing;
mod gate;
mod gmail;
mod holding;
mod init;
mod kills;
mod lacking;
mod lasting;
mod mcp;
mod mounts;
mod naming;
mod newcomer;
mod operating;
mod policy;
mod proxies;
mod record;
mod replies;
mod running;
mod secrets;
mod services;
mod serving;
mod setting;
mod tls;
mod workers;
