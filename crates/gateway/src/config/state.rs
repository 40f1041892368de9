//! How much agents may remember.

use super::section::section;
use super::size::Size;

const MOST: Size = Size::from_mb(1_000_000);

section! {
    /// How much agents may remember in the gateway.
    State at "state" {
        /// For one session; gone when it ends.
        session: Size = Size::from_mb(50); within Size::from_bytes(0)..=MOST,
        /// For one agent.
        persistent: Size = Size::from_mb(100); within Size::from_bytes(0)..=MOST,
        /// For all agents together, in what they share.
        shared: Size = Size::from_mb(500); within Size::from_bytes(0)..=MOST,
    }
}
