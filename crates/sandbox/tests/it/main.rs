//! Tests of workers, honest and hostile, each a real process.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests may"
)]

mod evil;
mod lives;
mod networks;
mod test_sandbox;
mod third_party;
mod zygotes;
