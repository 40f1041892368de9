//! What a connection may reach: URLs, hosts, paths, address blocks, and where its credential goes.
//!
//! Takes texts of the configuration, of declarations and of agents; gives typed values that egress checks requests with.
//! Promise: pure functions on text; a text that two programs could read differently is refused.

mod address;
mod allow;
mod placement;
mod ssrf;

pub use address::EgressUrl;
pub use allow::{EgressConnection, HostPattern, METHODS, PathPattern, READS, is_read};
pub use placement::CredentialPlacement;
pub use ssrf::{IpNetwork, all_reachable};
