//! The gateway: one corridor between agents and everything they can affect.
//!
//! A call request arrives at a door (`doors`), walks the corridor ([`corridor::walk`]) room by room, and ends as an
//! answer, a held write or a refusal. Each end writes its entry to the audit log, in the same transaction as
//! the state it describes. A held write leaves through [`loops::release`] after its undo window has closed,
//! policy has judged it a second time and no freeze covers it; a completed write can be rolled back through
//! `rooms::rollback`. The clock, ids and randomness are passed in.
#![warn(missing_docs)]

pub mod archive;
pub mod backup;
pub mod channels;
pub mod corridor;
pub mod gate;
mod gateway;
pub mod keyring;
pub mod keys;
pub mod loops;
pub mod nodes;
pub mod open;
mod open_error;
pub mod operating;
pub mod queues;
pub mod recovery;
pub mod rooms;
pub mod tls;
pub mod tool_list_changes;

pub use gateway::{DiskSpace, FatalGatewayError, Gateway, GatewayParts, GatewayPhase};
pub use open_error::OpenError;
