//! The store's contract, run on every engine.

mod audit;
mod contract;
