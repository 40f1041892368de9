//! Reports that a test cannot run on this machine.

use std::io::Write as _;

/// Reports why a test does nothing here, directly to standard error: the test harness hides the output of a passing
/// test.
///
/// # Panics
/// In a strict run, where nothing may be skipped.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("SLUICE_TEST_STRICT").is_none(), "skipped: {reason}");
    drop(writeln!(std::io::stderr(), "skipped: {reason}"));
}
