//! The corridor, its rooms, the doors and the loops.
#![warn(missing_docs)]

pub mod config;
pub mod keys;
pub mod services;
