//! How long the long tests run: a slice in every run, all cases in `cargo xtask nightly`.
//!
//! Takes the two counts of a test; gives the one for this run. Promise: without the variable a test runs its slice.

/// The variable that `cargo xtask nightly` sets.
pub const NIGHTLY: &str = "SLUICE_TEST_NIGHTLY";

/// How often a long test repeats its case: `slice` in every run, `whole` in a nightly one.
#[must_use]
pub fn repetitions(slice: u64, whole: u64) -> u64 {
    if std::env::var_os(NIGHTLY).is_some() { whole } else { slice }
}
