//! The store's contract, run on every engine; its model; and what is done to it on purpose.

mod audit;
mod checker;
mod contract;
mod damage;
mod engines;
mod model;
mod races;
mod server;
