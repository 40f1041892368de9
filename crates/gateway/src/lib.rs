//! The gateway: one corridor between agents and everything they can affect.
//!
//! A call request arrives at a door (`doors`), walks the corridor ([`corridor::walk`]) room by room, and ends as an
//! answer, a held write or a refusal. Each end writes its entry to the audit log, in the same transaction as
//! the state it describes. A held write leaves through [`loops::release`] after its undo window has closed,
//! policy has judged it a second time and no freeze covers it; a completed write can be rolled back through
//! `rooms::rollback`. The clock, ids and randomness are passed in.
#![warn(missing_docs)]

pub mod active_freezes;
pub mod archive;
pub mod backup;
mod call_error;
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
pub mod gateway_files;
pub mod intake;
pub mod keyring;
pub mod keys;
pub mod loops;
pub mod mounts;
pub mod nodes;
pub mod oauth;
pub mod open;
pub mod policies;
mod programs;
pub mod proxies;
pub mod queues;
pub mod recovery;
pub mod rooms;
pub mod serve;
pub mod services;
pub mod tls;
mod value;
pub mod vault;
mod wait_list;
pub mod workers;

pub use call_error::CallError;
pub use gateway::{DiskSpace, FatalGatewayError, Gateway, GatewayParts, GatewayPhase};
