//! The doors: ways in. Each turns what it hears into a knock or a question, and an answer into its own words.

pub mod foreign;
pub(crate) mod hook;
pub mod http;
pub mod mcp;
pub(crate) mod page;
