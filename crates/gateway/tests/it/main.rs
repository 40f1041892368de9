//! Whole walks through the gateway: a real store, real folders, a clock that obeys.

mod freeze;
mod house;
mod http;
mod runaway;
mod walk;
