//! The suites of a run: what was tried, how it ended, how long it took.
//!
//! Takes command lines; gives a table and the closing line. Promise: a suite is in the table once it
//! was begun, and the closing line counts exactly the rows of the table. What failed tests printed is
//! shown again before the table: the end of a long log is enough to see what failed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::command::Line;
use crate::failures::FailedTests;

/// How a suite ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Passed,
    /// It did not, and why.
    Failed(String),
    /// It was not run, and why.
    Skipped(String),
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

/// All suites so far.
#[derive(Debug)]
pub struct Report {
    rows: Vec<Row>,
    failed_tests: FailedTests,
    strict: bool,
}

impl Report {
    /// Of a run that has not begun.
    pub fn new() -> Self {
        Self { rows: Vec::new(), failed_tests: FailedTests::default(), strict: false }
    }

    /// In a strict run a skipped suite counts as failed. To be said before the first suite.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Runs a suite that is one command line; it passes if the command does.
    pub fn run(&mut self, name: &'static str, line: &Line) {
        println!("\n$ {line}");
        self.time(name, || (judged(line.status().map(|status| (status, 1))), ()));
    }

    /// The same for a command that runs Rust tests: what the failed ones printed is kept for the end.
    pub fn run_tests(&mut self, name: &'static str, line: &Line) {
        self.run_tests_and_read(name, line, |_| {});
    }

    /// The same, and each line that they printed goes to `read`.
    pub fn run_tests_and_read(&mut self, name: &'static str, line: &Line, mut read: impl FnMut(&str)) {
        println!("\n$ {line}");
        let mut failed = std::mem::take(&mut self.failed_tests);
        let all = |line: &str| {
            failed.read(line);
            read(line);
        };
        self.time(name, || (judged(line.status_and_lines(all).map(|status| (status, 1))), ()));
        self.failed_tests = failed;
    }

    /// The same for a command that must also have something to say.
    pub fn run_aloud(&mut self, name: &'static str, line: &Line) {
        println!("\n$ {line}");
        self.time(name, || (judged(line.status_and_length()), ()));
    }

    /// Runs anything as a suite.
    pub fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> (Outcome, T)) -> T {
        let begun = Instant::now();
        let (outcome, result) = work();
        let outcome = match outcome {
            Outcome::Skipped(reason) if self.strict => Outcome::Failed(format!("skipped: {reason}")),
            other => other,
        };
        self.rows.push(Row { name, outcome, took: begun.elapsed() });
        result
    }

    /// Prints the table and the closing line.
    pub fn finish(self) -> ExitCode {
        print!("{}", self.failed_tests);
        println!("\n{}", self.table());
        println!("{}", self.closing());
        if self.succeeded() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn count(&self, of: fn(&Outcome) -> bool) -> usize {
        self.rows.iter().filter(|row| of(&row.outcome)).count()
    }

    fn succeeded(&self) -> bool {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_))) == 0
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut table = String::new();
        for Row { name, outcome, took } in &self.rows {
            let (word, reason) = match outcome {
                Outcome::Passed => ("passed", String::new()),
                Outcome::Failed(reason) => ("failed", format!("  {reason}")),
                Outcome::Skipped(reason) => ("skipped", format!("  {reason}")),
            };
            table += &format!("{name:width$}  {word:7}  {:7.1} s{reason}\n", took.as_secs_f64());
        }
        table
    }

    fn closing(&self) -> String {
        let passed = self.count(|outcome| matches!(outcome, Outcome::Passed));
        let failed = self.count(|outcome| matches!(outcome, Outcome::Failed(_)));
        match self.count(|outcome| matches!(outcome, Outcome::Skipped(_))) {
            0 => format!("{passed} passed, {failed} failed"),
            skipped => format!("{passed} passed, {failed} failed, {skipped} skipped"),
        }
    }
}

fn judged(ended: std::io::Result<(std::process::ExitStatus, usize)>) -> Outcome {
    match ended {
        Ok((status, _)) if !status.success() => Outcome::Failed(status.to_string()),
        Ok((_, 0)) => Outcome::Failed("ended well but printed nothing".into()),
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("could not be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(strict: bool, outcomes: &[Outcome]) -> Report {
        let mut report = Report::new().strict(strict);
        outcomes.iter().for_each(|outcome| report.time("suite", || (outcome.clone(), ())));
        report
    }

    #[test]
    fn the_closing_line_counts_every_suite() {
        let all = [Outcome::Passed, Outcome::Failed("exit status: 1".into()), Outcome::Skipped("no server".into())];
        assert_eq!(report(false, &all).closing(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(report(false, &all[..1]).closing(), "1 passed, 0 failed");
        assert!(report(false, &all).table().contains("no server"));
    }

    #[test]
    fn a_skipped_suite_fails_only_a_strict_run() {
        let skipped = [Outcome::Passed, Outcome::Skipped("no server".into())];
        assert!(report(false, &skipped).succeeded());
        assert!(!report(true, &skipped).succeeded());
        assert_eq!(report(true, &skipped).closing(), "1 passed, 1 failed");
        assert!(report(true, &skipped).table().contains("skipped: no server"));
        assert!(!report(false, &[Outcome::Failed("x".into())]).succeeded());
    }

    #[test]
    fn a_suite_fails_with_its_command_and_when_there_is_no_command() {
        let mut report = Report::new();
        report.run("good", &Line::new(&["true"]));
        report.run("bad", &Line::new(&["false"]));
        report.run("absent", &Line::new(&["no-such-program-anywhere"]));
        report.run_aloud("silent", &Line::new(&["true"]));
        assert_eq!(report.closing(), "1 passed, 3 failed");
    }
}
