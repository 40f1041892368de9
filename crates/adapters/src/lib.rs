//! The interface that a service needs to stand behind the gate, and one module for each service.
//!
//! An adapter turns our words into a service's and back. It decides nothing, stores nothing and sees neither socket nor
//! credential: each exchange goes through [`net::Net`]. Promise: the type of every write says what an unclear outcome
//! means and how to find it out ([`adapter::WriteOperation`]).
#![warn(missing_docs)]

pub mod adapter;
pub mod conformance;
pub mod error;
pub mod fake;
pub mod gmail;
pub mod job;
pub mod manifest;
pub mod mime;
pub mod net;
