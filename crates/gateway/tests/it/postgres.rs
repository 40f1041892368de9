//! The same stories, on a PostgreSQL server.

#![allow(clippy::duplicate_mod, reason = "each story is told on both engines")]

pub mod test_gateway {
    pub use crate::test_gateway::*;
    pub type TestGateway = TestGatewayOn<OnPostgresServer>;
}

#[path = "freeze.rs"]
mod freeze;
#[path = "races.rs"]
mod races;
#[path = "runaway.rs"]
mod runaway;
#[path = "walk.rs"]
mod walk;
