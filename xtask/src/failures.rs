//! The output of failed tests, extracted from the output of `cargo test`.
//!
//! Takes the output line by line; gives it back shortened, test by test. Promise: every failed test is named, and the
//! text shown for each test is limited.

use std::fmt;

/// Most characters shown per failed test: the beginning, which has the assertion.
const LONGEST: usize = 3_000;
/// Most failed tests shown with more than their name.
const MOST: usize = 12;

/// The failed tests of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FailedTests {
    tests: Vec<FailedTest>,
    is_reading: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct FailedTest {
    name: String,
    output: String,
}

impl FailedTests {
    /// Reads one line of the output.
    pub fn read(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.is_reading = true;
            self.tests.push(FailedTest { name: name.to_owned(), output: String::new() });
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.is_reading = false;
        } else if self.is_reading
            && let Some(test) = self.tests.last_mut()
            && test.output.len() < LONGEST
        {
            test.output.extend(line.chars().take(LONGEST));
            test.output.push('\n');
        }
    }
}

impl fmt::Display for FailedTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for test in self.tests.iter().take(MOST) {
            let output: String = test.output.chars().take(LONGEST).collect();
            writeln!(f, "\nfailed: {}\n{}", test.name, output.trim_end())?;
        }
        for test in self.tests.iter().skip(MOST) {
            writeln!(f, "failed: {}", test.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_test_is_named_with_what_it_printed() {
        let output = "running 3 tests\ntest a::good ... ok\ntest a::bad ... FAILED\ntest worse ... FAILED\n\nfailures:\n\n\
                      ---- a::bad stdout ----\nthread 'a::bad' panicked at it.rs:1:2:\nleft: 1\n\n\
                      ---- worse stdout ----\nno\n\nfailures:\n    a::bad\n    worse\n\n\
                      test result: FAILED. 1 passed; 2 failed\n";
        let mut failed = FailedTests::default();
        output.lines().for_each(|line| failed.read(line));
        let shown = "\nfailed: a::bad\nthread 'a::bad' panicked at it.rs:1:2:\nleft: 1\n\nfailed: worse\nno\n";
        assert_eq!(failed.to_string(), shown);
    }

    #[test]
    fn what_is_shown_of_many_or_long_failures_is_bounded() {
        let mut failed = FailedTests::default();
        for n in 0..40 {
            failed.read(&format!("---- t{n} stdout ----"));
            (0..100).for_each(|_| failed.read(&"x".repeat(1_000)));
        }
        let shown = failed.to_string();
        assert!(shown.len() < 45_000, "{}", shown.len());
        assert!((0..40).all(|n| shown.contains(&format!("failed: t{n}\n"))));
    }
}
