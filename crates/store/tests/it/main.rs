//! The store's contract, run on every engine; its model; and deliberate damage to it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as loudly as the tests themselves"
)]

mod aging;
mod audit;
mod checker;
mod contract;
mod damage;
mod engines;
mod lane;
mod model;
mod races;
mod server;
