//! Questions put to people: what they may answer, and the standing yes they may leave behind.

pub mod allowance;
pub mod reply;
