//! The gateway: one corridor between agents and everything they can affect.
//!
//! A call knocks at a door (`doors`), walks the corridor ([`corridor::walk`]) room by room, and ends as an
//! answer, a held write or a refusal; each end leaves its entry in the record, in the same transaction as
//! the state it describes. What is held leaves through [`loops::release`] once its undo window has closed,
//! policy was asked a second time and nothing froze it; what was done can be taken back through
//! `rooms::rollback`. The gateway keeps time, ids and randomness outside: they are handed in.
#![warn(missing_docs)]

pub mod backup;
pub mod catalogue;
pub mod channels;
pub mod config;
pub mod connections;
pub mod corridor;
pub mod custom;
mod declarations;
pub mod doors;
pub mod egress;
pub mod events;
pub mod gate;
mod gateway;
pub mod intake;
pub mod keyring;
pub mod keys;
pub mod loops;
pub mod mounts;
mod no;
pub mod nodes;
pub mod oauth;
pub mod open;
pub mod own_files;
pub mod policies;
mod programs;
pub mod proxies;
pub mod queues;
pub mod recovery;
pub mod rooms;
pub mod serve;
pub mod services;
pub mod standstill;
pub mod tls;
mod value;
pub mod vault;
mod waiting;
pub mod workers;

pub use gateway::{Gateway, Lost, Parts, Phase, Room};
pub use no::No;
