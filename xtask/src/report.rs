//! The suites of a run: what was run, its result, and how long it took.
//!
//! Takes command lines; gives a table and a closing line. Promise: a suite is in the table once it
//! was started, and the closing line counts exactly the rows of the table. The output of failed tests is
//! shown again before the table: the end of a long log is enough to see what failed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::command::CommandLine;
use crate::failures::FailedTests;

/// The result of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuiteOutcome {
    /// It passed.
    Passed,
    /// It passed, but the tests named here only when they were run again, alone.
    Flaky(String),
    /// It failed, and why.
    Failed(String),
    /// It was skipped, and why.
    Skipped(String),
}

#[derive(Debug)]
struct SuiteRow {
    name: &'static str,
    outcome: SuiteOutcome,
    took: Duration,
}

/// All suites so far.
#[derive(Debug)]
pub struct SuiteReport {
    rows: Vec<SuiteRow>,
    failed_tests: FailedTests,
    strict: bool,
}

impl SuiteReport {
    /// A report without suites.
    pub fn new() -> Self {
        Self { rows: Vec::new(), failed_tests: FailedTests::default(), strict: false }
    }

    /// In a strict run a skipped suite counts as failed. Must be called before the first suite.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Runs a suite that is one command line; it passes if the command succeeds.
    pub fn run(&mut self, name: &'static str, line: &CommandLine) {
        println!("\n$ {line}");
        self.time(name, || (judged(line.status().map(|status| (status, 1))), ()));
    }

    /// The same for a command that runs Rust tests: the output of failed tests is kept for the end.
    pub fn run_tests(&mut self, name: &'static str, line: &CommandLine) {
        self.run_tests_and_read(name, line, |_| {});
    }

    /// The same for `cargo test`. Tests that failed are run a second time, one after the other; those that pass then are
    /// named in the table. A failure that is not one of a few tests stays a failure.
    pub fn run_tests_with_repetition(&mut self, name: &'static str, line: &CommandLine) {
        println!("\n$ {line}");
        let failed = self.time(name, || {
            let mut failed = FailedTests::default();
            let first = judged(line.status_and_lines(|line| failed.read(line)).map(|status| (status, 1)));
            let names = match &first {
                SuiteOutcome::Failed(_) => failed.names_to_repeat(),
                _ => None,
            };
            let Some(names) = names else { return (first, failed) };
            let repeated = line.clone().args(&["--", "--test-threads=1", "--exact"]).args(&names);
            println!("\n$ {repeated}");
            let mut second = FailedTests::default();
            let ended = repeated.status_and_lines(|line| second.read(line));
            let flaky = ended.is_ok_and(|status| status.success()) && second.passed() >= names.len();
            let outcome = if flaky {
                SuiteOutcome::Flaky(format!("passed only when run again: {}", names.join(", ")))
            } else {
                first
            };
            failed.extend(second);
            (outcome, failed)
        });
        self.failed_tests.extend(failed);
    }

    /// The same, and each printed line is passed to `read`.
    pub fn run_tests_and_read(&mut self, name: &'static str, line: &CommandLine, mut read: impl FnMut(&str)) {
        println!("\n$ {line}");
        let mut failed = std::mem::take(&mut self.failed_tests);
        let all = |line: &str| {
            failed.read(line);
            read(line);
        };
        self.time(name, || (judged(line.status_and_lines(all).map(|status| (status, 1))), ()));
        self.failed_tests = failed;
    }

    /// The same for a command that must also print something.
    pub fn run_aloud(&mut self, name: &'static str, line: &CommandLine) {
        println!("\n$ {line}");
        self.time(name, || (judged(line.status_and_length()), ()));
    }

    /// Runs a function as a suite.
    pub fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> (SuiteOutcome, T)) -> T {
        let begun = Instant::now();
        let (outcome, result) = work();
        let outcome = match outcome {
            SuiteOutcome::Skipped(reason) if self.strict => SuiteOutcome::Failed(format!("skipped: {reason}")),
            other => other,
        };
        self.rows.push(SuiteRow { name, outcome, took: begun.elapsed() });
        result
    }

    /// Prints the table and the closing line.
    pub fn finish(self) -> ExitCode {
        print!("{}", self.failed_tests);
        println!("\n{}", self.table());
        println!("{}", self.closing());
        if self.succeeded() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn count(&self, of: fn(&SuiteOutcome) -> bool) -> usize {
        self.rows.iter().filter(|row| of(&row.outcome)).count()
    }

    fn succeeded(&self) -> bool {
        self.count(|outcome| matches!(outcome, SuiteOutcome::Failed(_))) == 0
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut table = String::new();
        for SuiteRow { name, outcome, took } in &self.rows {
            let (word, reason) = match outcome {
                SuiteOutcome::Passed => ("passed", String::new()),
                SuiteOutcome::Flaky(reason) => ("flaky", format!("  {reason}")),
                SuiteOutcome::Failed(reason) => ("failed", format!("  {reason}")),
                SuiteOutcome::Skipped(reason) => ("skipped", format!("  {reason}")),
            };
            table += &format!("{name:width$}  {word:7}  {:7.1} s{reason}\n", took.as_secs_f64());
        }
        table
    }

    fn closing(&self) -> String {
        let passed = self.count(|outcome| matches!(outcome, SuiteOutcome::Passed));
        let failed = self.count(|outcome| matches!(outcome, SuiteOutcome::Failed(_)));
        let flaky = self.count(|outcome| matches!(outcome, SuiteOutcome::Flaky(_)));
        let skipped = self.count(|outcome| matches!(outcome, SuiteOutcome::Skipped(_)));
        let mut closing = format!("{passed} passed, {failed} failed");
        for (count, word) in [(flaky, "flaky"), (skipped, "skipped")] {
            if count > 0 {
                closing += &format!(", {count} {word}");
            }
        }
        closing
    }
}

fn judged(ended: std::io::Result<(std::process::ExitStatus, usize)>) -> SuiteOutcome {
    match ended {
        Ok((status, _)) if !status.success() => SuiteOutcome::Failed(status.to_string()),
        Ok((_, 0)) => SuiteOutcome::Failed("succeeded but printed nothing".into()),
        Ok(_) => SuiteOutcome::Passed,
        Err(error) => SuiteOutcome::Failed(format!("could not be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(strict: bool, outcomes: &[SuiteOutcome]) -> SuiteReport {
        let mut report = SuiteReport::new().strict(strict);
        outcomes.iter().for_each(|outcome| report.time("suite", || (outcome.clone(), ())));
        report
    }

    #[test]
    fn the_closing_line_counts_every_suite() {
        let all = [
            SuiteOutcome::Passed,
            SuiteOutcome::Failed("exit status: 1".into()),
            SuiteOutcome::Skipped("no server".into()),
        ];
        assert_eq!(report(false, &all).closing(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(report(false, &all[..1]).closing(), "1 passed, 0 failed");
        assert!(report(false, &all).table().contains("no server"));
    }

    #[test]
    fn a_skipped_suite_fails_only_a_strict_run() {
        let skipped = [SuiteOutcome::Passed, SuiteOutcome::Skipped("no server".into())];
        assert!(report(false, &skipped).succeeded());
        assert!(!report(true, &skipped).succeeded());
        assert_eq!(report(true, &skipped).closing(), "1 passed, 1 failed");
        assert!(report(true, &skipped).table().contains("skipped: no server"));
        assert!(!report(false, &[SuiteOutcome::Failed("x".into())]).succeeded());
    }

    /// A command that prints what `cargo test` prints: test `a` fails, and again if `passes_later` is not set. The words
    /// that are added for the second run reach the shell as arguments.
    fn tests_that_fail_first(passes_later: bool) -> CommandLine {
        let again = if passes_later { "ok. 1 passed; 0 failed" } else { "FAILED. 0 passed; 1 failed" };
        let script = format!(
            "echo running 1 test; if [ \"$3\" = --exact ]; then test \"$4\" = a && echo 'test result: {again}'; {passes_later}; \
             else echo '---- a stdout ----'; echo 'test result: FAILED. 0 passed; 1 failed'; false; fi"
        );
        CommandLine::new(&["sh", "-c", &script, "sh"])
    }

    #[test]
    fn a_test_that_passes_when_run_again_is_named_and_one_that_does_not_fails_the_run() {
        let mut report = SuiteReport::new().strict(true);
        report.run_tests_with_repetition("tests", &tests_that_fail_first(true));
        assert!(report.succeeded());
        assert_eq!(report.closing(), "0 passed, 0 failed, 1 flaky");
        assert!(report.table().contains("passed only when run again: a"), "{}", report.table());
        let mut report = SuiteReport::new();
        report.run_tests_with_repetition("tests", &tests_that_fail_first(false));
        report.run_tests_with_repetition("compiler", &CommandLine::new(&["false"]));
        assert_eq!(report.closing(), "0 passed, 2 failed");
    }

    #[test]
    fn a_suite_fails_with_its_command_and_when_there_is_no_command() {
        let mut report = SuiteReport::new();
        report.run("good", &CommandLine::new(&["true"]));
        report.run("bad", &CommandLine::new(&["false"]));
        report.run("absent", &CommandLine::new(&["no-such-program-anywhere"]));
        report.run_aloud("silent", &CommandLine::new(&["true"]));
        assert_eq!(report.closing(), "1 passed, 3 failed");
    }
}
