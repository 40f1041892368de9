//! The output of failed tests, extracted from the output of `cargo test`.
//!
//! Takes the output line by line; gives it back shortened, test by test. Promise: every failed test is named, and the
//! text shown for each test is limited.

use std::collections::BTreeSet;
use std::fmt;

/// Most characters shown per failed test: the beginning, which has the assertion.
const LONGEST: usize = 3_000;
/// Most failed tests shown with more than their name.
const MOST: usize = 12;
/// Most failed tests that are run a second time: more than these fail for a common reason.
const MOST_REPEATED: usize = 5;

/// The failed tests of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FailedTests {
    tests: Vec<FailedTest>,
    is_reading: bool,
    started_binaries: usize,
    finished_binaries: usize,
    passed: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct FailedTest {
    name: String,
    output: String,
}

impl FailedTests {
    /// Reads one line of the output.
    pub fn read(&mut self, line: &str) {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.started_binaries += 1;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.finished_binaries += 1;
            self.passed += passed_in(result);
        }
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

    /// The names of the tests to run a second time, each once. `None` if the failure is not one of a few tests: nothing
    /// was run, a test binary did not reach its end, or too many failed.
    pub fn names_to_repeat(&self) -> Option<Vec<&str>> {
        let names: BTreeSet<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
        let all_finished = self.started_binaries > 0 && self.started_binaries == self.finished_binaries;
        (all_finished && !names.is_empty() && names.len() <= MOST_REPEATED).then(|| names.into_iter().collect())
    }

    /// How many tests passed.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Adds the failed tests of another run.
    pub fn extend(&mut self, other: Self) {
        self.tests.extend(other.tests);
    }
}

/// The number before `passed` in `FAILED. 7 passed; 2 failed; …`.
fn passed_in(result: &str) -> usize {
    let before = result.split_once(" passed").map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
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

    fn read(output: &str) -> FailedTests {
        let mut failed = FailedTests::default();
        output.lines().for_each(|line| failed.read(line));
        failed
    }

    #[test]
    fn a_few_failed_tests_of_finished_binaries_are_run_again() {
        let one = "running 1 test\n---- a stdout ----\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        let good = "running 7 tests\ntest result: ok. 7 passed; 0 failed; 0 ignored\n";
        let failed = read(&format!("{one}{good}{one}"));
        assert_eq!((failed.names_to_repeat(), failed.passed()), (Some(vec!["a"]), 7));
        assert_eq!(read(&format!("{one}running 3 tests\n")).names_to_repeat(), None, "a binary that did not finish");
        assert_eq!(read(good).names_to_repeat(), None, "no failed test");
        assert_eq!(read("").names_to_repeat(), None, "nothing was run");
        let many: String = (0..6).map(|n| one.replace("- a", &format!("- a{n}"))).collect();
        assert_eq!(read(&many).names_to_repeat(), None, "too many");
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
