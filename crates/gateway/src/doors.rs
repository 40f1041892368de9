//! The doors: the ways into the gateway. Each turns its protocol into call requests and answers, and back.

pub(crate) mod approval_page;
pub mod client_tools;
pub mod http;
pub mod mcp;
pub(crate) mod telegram_webhook;
