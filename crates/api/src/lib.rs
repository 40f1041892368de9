//! The doors: the ways into the gateway. Each turns its protocol into call requests and answers, and back.
//!
//! Takes connections of agents, operators and people; gives answers over HTTP, MCP, the dashboard and the approval page. Promise: a door
//! decides nothing; every call walks the corridor of the gateway, and every door shows the same outcome of it.
#![warn(missing_docs)]

mod approval_page;
pub mod client_tools;
pub mod dashboard_door;
pub mod http;
pub mod mcp;
pub mod serve;
mod telegram_webhook;
