//! What a service must be able to do to stand behind the gate, and one module per service.
//!
//! An adapter turns our words into a service's and back. It decides nothing, keeps nothing and sees
//! neither socket nor credential: each exchange goes through [`net::Net`]. Promise: every write says, in
//! its type, what an unclear outcome means and how to find it out ([`adapter::Operation`]).
#![warn(missing_docs)]

pub mod adapter;
pub mod conformance;
pub mod fake;
pub mod gmail;
pub mod job;
pub mod manifest;
pub mod mime;
pub mod net;
pub mod trouble;
