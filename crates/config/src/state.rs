//! State limits: how much agents may store.

use super::section::section;
use super::size::ByteSize;

const MOST: ByteSize = ByteSize::from_mb(1_000_000);

section! {
    /// How much agents may store in the gateway.
    State at "state" {
        /// For one session; deleted when it ends.
        session: ByteSize = ByteSize::from_mb(50); within ByteSize::from_bytes(0)..=MOST,
        /// For one agent.
        persistent: ByteSize = ByteSize::from_mb(100); within ByteSize::from_bytes(0)..=MOST,
        /// For all agents together, in shared state.
        shared: ByteSize = ByteSize::from_mb(500); within ByteSize::from_bytes(0)..=MOST,
    }
}
