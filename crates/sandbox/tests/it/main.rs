//! Workers as they are and as they must not be, each a real process.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests may"
)]

mod evil;
mod house;
mod lives;
mod moulds;
mod networks;
mod strangers;
