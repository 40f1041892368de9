//! The rooms of the corridor: one file each, in the order in which a call passes them.

pub mod answer;
pub(crate) mod approval;
pub mod audit;
pub(crate) mod brake;
pub(crate) mod check;
pub mod client_writes;
pub mod execute;
pub mod freeze;
pub mod hold;
pub(crate) mod idempotency;
pub mod identity;
pub mod leak;
pub(crate) mod observe;
pub mod origin;
pub(crate) mod own_files;
pub mod policy;
pub(crate) mod read;
pub mod rollback;
pub(crate) mod schema;
pub(crate) mod spawn;
