//! A world in a box: a clock that stands still, ids that count, a database of one's own.
//!
//! For tests only, never a normal dependency. Promise: what is made here repeats to the bit from
//! the same seed, and a test that could not run says so instead of passing in silence.
#![expect(clippy::panic, reason = "a test that cannot have its world must fail loudly")]

pub mod clock;
pub mod cutting;
pub mod depth;
pub mod history;
pub mod ids;
pub mod lives;
pub mod oracle;
pub mod postgres;
pub mod provider;
pub mod sim;
pub mod skipping;
pub mod standby;
pub mod stub;
pub mod world;

pub use clock::ManualClock;
pub use ids::{CountingIds, SeededEntropy, SeededIds};
pub use skipping::skip;
pub use world::World;
