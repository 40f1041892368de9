//! A test environment: a stopped clock, counting ids, a database for each test.
//!
//! For tests only, never a normal dependency. Promise: everything made here is reproduced exactly from the same seed,
//! and a test that could not run reports that instead of passing silently.
#![expect(clippy::panic, reason = "a test that cannot have its world must fail loudly")]

pub mod clock;
pub mod crash_state;
pub mod depth;
pub mod history;
pub mod ids;
pub mod oracle;
pub mod postgres;
pub mod provider;
pub mod relay;
pub mod sim;
pub mod skipping;
pub mod standby;
pub mod stub;
pub mod test_store;

pub use clock::ManualClock;
pub use ids::{CountingIds, SeededEntropy, SeededIds};
pub use skipping::skip;
pub use test_store::TestStore;
