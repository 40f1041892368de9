//! The recipes of this repository: `cargo xtask check | test | nightly | book | tutorial | bench | eval | fuzz |
//! mcp | sdk | dashboard | accounts | mail | pg`.
//!
//! Takes a recipe by name; prints the command lines it runs, their output, and a table at the
//! end. Promise: the last line of `check` and `test` counts every suite, a skipped suite is
//! named with its reason, and the exit code is zero only if nothing failed.
#![expect(clippy::disallowed_methods, reason = "a tool for people at a terminal: real time and environment")]

mod accounts;
mod agentdojo;
mod book;
mod command;
mod dashboard;
mod discovery;
mod eval_outbound;
mod failures;
mod faults;
mod fuzz;
mod links;
mod mail;
mod mcp;
mod mounts;
mod packages;
mod postgres;
mod report;
mod scanners;
mod schemathesis;
mod sdk;
mod tools;
mod tutorial;

use std::path::Path;
use std::process::ExitCode;

use command::CommandLine;
use faults::FaultTables;
use report::{SuiteOutcome, SuiteReport};

const USAGE: &str = "\
cargo xtask check                    format, lints, repository rules, documentation
cargo xtask test [--strict] [FILTER] everything: check, all tests, the demo without questions
                                     --strict: a skipped suite counts as failed
                                     FILTER: only the tests whose name contains it
cargo xtask nightly [FILTER]         the long tests at full length: tens of thousands of kills, restores and simulated
                                     installations; `test` runs a part of each. FILTER: one of their modules
cargo xtask nightly faults           kills, power cuts, full disks, cut connections and failovers under load, compared with
                                     a service that counts, with one table of the outcome of every write
cargo xtask book                     builds the book of docs/ into target/book and checks every link; part of `test`
cargo xtask tutorial                 every command of docs/book/tutorial.md, and what the page says it prints; part of `test`
cargo xtask bench [NAME]             the measurements in benches/, with a private PostgreSQL; the report
                                     goes to docs/benchmarks.md
cargo xtask eval [--corpora DIR] [--misses] recall and false positives of the content checks, per source, kind
                                     and carrier
cargo xtask eval --agentdojo [PASS]  AgentDojo's published suites through the real corridor, without a model and with the
                                     detector switched off; PASS: alone, helped, attacked
cargo xtask fuzz --quick             a minute of fuzzing for each parser of untrusted bytes, with the cost counted
cargo xtask fuzz TARGET [--seconds N] one target; `fuzz/corpus` has a folder for each. --replay: only stored inputs; --costs: and
                                     their cost; --keep: minimise new inputs into `fuzz/corpus`
cargo xtask mcp [--strict]           real clients of the Model Context Protocol against the gate; part of `test`
cargo xtask sdk [--strict]           the Python and TypeScript packages: lint, types, suites with real agent frameworks, and packages
                                     in a clean place; part of `test`
cargo xtask accounts                 third-party Gmail, sign-in and Bot API servers until Ctrl-C; part of `test`
cargo xtask mail                     a third-party mail server until Ctrl-C; part of `test`
cargo xtask dashboard [--pictures]   the dashboard in Chromium; with the pictures of the documentation
cargo xtask pg                       a private PostgreSQL until Ctrl-C";

fn main() -> ExitCode {
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent() else {
        return refuse("xtask must be in a folder of the repository");
    };
    if let Err(error) = std::env::set_current_dir(root) {
        return refuse(&format!("cannot enter the repository: {error}"));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["check"] => check(SuiteReport::new()).finish(),
        ["test", rest @ ..] => match TestArgs::read(rest) {
            Ok(asked) => test(&asked).finish(),
            Err(stranger) => refuse(&format!("`test` does not know `{stranger}`\n\n{USAGE}")),
        },
        ["nightly"] => nightly(None).finish(),
        ["nightly", filter] if !filter.starts_with('-') => nightly(Some(filter)).finish(),
        ["book"] => {
            let mut report = SuiteReport::new().strict(true);
            book::suite(&mut report);
            report.finish()
        }
        ["tutorial"] => {
            let mut report = SuiteReport::new().strict(true);
            report.run("program", &CommandLine::cargo(&["build", "--package", "sluice"]));
            tutorial::suite(&mut report);
            report.finish()
        }
        ["bench", rest @ ..] => bench(rest),
        ["eval", rest @ ..] => eval(rest),
        ["fuzz", rest @ ..] => match fuzz::FuzzRun::read(rest) {
            Ok(asked) => fuzz::run(&asked),
            Err(reason) => refuse(&format!("{reason}\n\n{USAGE}")),
        },
        ["mcp", rest @ ..] => {
            let mut report = SuiteReport::new().strict(rest.contains(&"--strict"));
            mcp::suites(&mut report);
            mounts::suite(&mut report);
            report.finish()
        }
        ["dashboard", rest @ ..] => {
            let mut report = SuiteReport::new().strict(true);
            report.run("program", &CommandLine::cargo(&["build", "--package", "sluice"]));
            dashboard::suite(&mut report, rest.contains(&"--pictures").then_some("docs/pictures"));
            report.finish()
        }
        ["sdk", rest @ ..] => {
            let mut report = SuiteReport::new().strict(rest.contains(&"--strict"));
            report.run("program", &CommandLine::cargo(&["build", "--package", "sluice"]));
            let named = std::env::var(postgres::URL).ok().filter(|url| !url.is_empty());
            sdk::suites(&mut report, named.as_deref());
            report.finish()
        }
        ["accounts"] => {
            let mut report = SuiteReport::new().strict(true);
            accounts::start(&mut report).keep();
            report.finish()
        }
        ["mail"] => {
            let mut report = SuiteReport::new().strict(true);
            mail::start(&mut report).keep();
            report.finish()
        }
        ["pg"] => pg(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [stranger, ..] => refuse(&format!("there is no recipe `{stranger}`\n\n{USAGE}")),
    }
}

/// The parsed arguments of `test`.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestArgs {
    strict: bool,
    filter: Option<String>,
}

impl TestArgs {
    /// Parses the words after `test`; the error is the unknown word.
    fn read(words: &[&str]) -> Result<Self, String> {
        let mut asked = Self::default();
        for word in words {
            match *word {
                "--strict" => asked.strict = true,
                filter if !filter.starts_with('-') && asked.filter.is_none() => asked.filter = Some(filter.to_owned()),
                stranger => return Err(stranger.to_owned()),
            }
        }
        Ok(asked)
    }
}

/// The suites that need no service and little time.
fn check(mut report: SuiteReport) -> SuiteReport {
    report.run("format", &CommandLine::cargo(&["fmt", "--all", "--check"]));
    report.run("lints", &CommandLine::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    report
        .run_tests("repository rules", &CommandLine::cargo(&["test", "--package", "sluice-testkit", "--test", "tidy"]));
    let doc = CommandLine::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    report.run("documentation", &doc);
    report
}

/// All suites; with a filter, only the tests that match it.
fn test(asked: &TestArgs) -> SuiteReport {
    let mut report = SuiteReport::new().strict(asked.strict);
    if asked.filter.is_none() {
        report = check(report);
        tools::suites(&mut report);
        book::suite(&mut report);
    }
    let mut tests = CommandLine::cargo(&["test", "--workspace", "--no-fail-fast"]);
    if asked.strict {
        tests = tests.env("SLUICE_TEST_STRICT", "1");
    }
    // The server lives until the end of this function and is always stopped then.
    let server = report.time("postgresql server", || match postgres::start() {
        Ok(server) => (SuiteOutcome::Passed, Some(server)),
        Err(reason) => (
            SuiteOutcome::Skipped(format!("tests on PostgreSQL were not run: {reason}; they need {}", postgres::URL)),
            None,
        ),
    });
    if let Some(server) = &server {
        tests = tests.env(postgres::URL, server.url());
    } else {
        // A strict run has failed by now; the remaining tests can still report their results.
        tests = tests.without("SLUICE_TEST_STRICT");
    }
    // Without it nobody can check whether an answer was sent before its bytes were on disk.
    report.time("strace", || match packages::need("strace", "strace") {
        Ok(()) => (SuiteOutcome::Passed, ()),
        Err(reason) => (SuiteOutcome::Skipped(format!("syncs to disk were not checked: {reason}")), ()),
    });
    report.time("git", || match packages::need("git", "git") {
        Ok(()) => (SuiteOutcome::Passed, ()),
        Err(reason) => (SuiteOutcome::Skipped(format!("the tests with git repositories were not run: {reason}")), ()),
    });
    need_faketime(&mut report);
    let fuzzer =
        std::env::current_dir().map_err(|error| error.to_string()).and_then(|root| schemathesis::install(&root));
    report.time("schemathesis", || match &fuzzer {
        Ok(_) => (SuiteOutcome::Passed, ()),
        Err(reason) => {
            (SuiteOutcome::Skipped(format!("the API was not checked against its description: {reason}")), ())
        }
    });
    if let Ok(program) = &fuzzer {
        tests = tests.env(schemathesis::PROGRAM, &program.display().to_string());
    }
    let described =
        std::env::current_dir().map_err(|error| error.to_string()).and_then(|root| discovery::install(&root));
    report.time("gmail description", || match &described {
        Ok(_) => (SuiteOutcome::Passed, ()),
        Err(reason) => {
            (SuiteOutcome::Skipped(format!("requests to Gmail were not checked against its description: {reason}")), ())
        }
    });
    match &described {
        Ok(file) => tests = tests.env(discovery::FILE, &file.display().to_string()),
        // A strict run has failed by now; the remaining tests can still report their results.
        Err(_) => tests = tests.without("SLUICE_TEST_STRICT"),
    }
    // They live until the end of this function, like the database server.
    let accounts = accounts::start(&mut report);
    tests = accounts.add_environment(tests);
    let mail = mail::start(&mut report);
    tests = mail.add_environment(tests);
    if let Some(filter) = &asked.filter {
        report.run_tests("tests", &tests.args(&["--", filter]));
    } else {
        report.run_tests_with_repetition("tests", &tests);
        // A demo that prints nothing has shown nothing, whatever its exit code is.
        report.run_aloud("demo", &CommandLine::cargo(&["run", "--package", "sluice", "--", "demo", "--headless"]));
        tutorial::suite(&mut report);
        mcp::suites(&mut report);
        mounts::suite(&mut report);
        dashboard::suite(&mut report, None);
        sdk::suites(&mut report, server.as_ref().map(|server| server.url()));
    }
    report
}

/// The tests with a full matrix beside the part that every run covers: package, test binary, module.
const LONG: [(&str, &str, &str); 6] = [
    ("sluice-testkit", "sim", "whatever_breaks"),
    ("sluice-testkit", "kill", "anywhere"),
    ("sluice", "it", "kills::"),
    ("sluice", "it", "faults::"),
    ("sluice", "it", "gmail::sending"),
    ("sluice-gateway", "it", "restores"),
];

/// The module whose tables are combined.
const FAULTS: &str = "faults::";

/// The long tests at full length. Skipped tests count as failures: a night in which nothing ran proves nothing.
fn nightly(filter: Option<&str>) -> SuiteReport {
    let mut report = SuiteReport::new().strict(true);
    // The server lives until the end of this function and is always stopped then.
    let server = report.time("postgresql server", || match postgres::start() {
        Ok(server) => (SuiteOutcome::Passed, Some(server)),
        Err(reason) => (SuiteOutcome::Skipped(reason), None),
    });
    let Some(server) = server else { return report };
    if filter.is_none_or(|filter| FAULTS.contains(filter)) {
        need_faketime(&mut report);
    }
    let mut tables = FaultTables::default();
    for (package, binary, module) in LONG {
        if filter.is_some_and(|filter| !module.contains(filter)) {
            continue;
        }
        let mut line = CommandLine::cargo(&["test", "--package", package, "--test", binary, "--", module]);
        if module == FAULTS {
            // With output: the tables are needed even if all tests pass. The answers by mail have faults of their own.
            line = line.args(&["--nocapture", "--skip", "replies::"]);
        }
        let line = line.env("SLUICE_TEST_NIGHTLY", "1").env("SLUICE_TEST_STRICT", "1").env(postgres::URL, server.url());
        report.run_tests_and_read(module, &line, |line| tables.read(line));
    }
    print!("{tables}");
    report
}

/// libfaketime can change the clock of a single process.
fn need_faketime(report: &mut SuiteReport) {
    report.time("libfaketime", || match packages::need("faketime", "faketime") {
        Ok(()) => (SuiteOutcome::Passed, ()),
        Err(reason) => (SuiteOutcome::Skipped(format!("the clock of a gateway was not changed: {reason}")), ()),
    });
}

/// Quality, not speed: how well the stages separate attacks, and the leak scan secrets, from ordinary texts.
fn eval(words: &[&str]) -> ExitCode {
    if let Some(("--agentdojo", passes)) = words.split_first().map(|(first, rest)| (*first, rest)) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        return match agentdojo::replay(root, passes) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => refuse(&reason),
        };
    }
    let inbound = CommandLine::cargo(&["run", "--release", "--package", "sluice-content", "--example", "eval", "--"]);
    let misses: Vec<&str> = words.iter().copied().filter(|word| *word == "--misses").collect();
    let rest: Vec<&str> = words.iter().copied().filter(|word| *word != "--misses").collect();
    for line in [inbound.args(&rest), eval_outbound::line(&misses)] {
        println!("$ {line}");
        match line.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return refuse(&format!("the evaluation ended with {status}")),
            Err(error) => return refuse(&format!("cargo could not be started: {error}")),
        }
    }
    ExitCode::SUCCESS
}

/// The benchmarks are a separate workspace, so that their dependencies are not ours.
fn bench(names: &[&str]) -> ExitCode {
    const MANIFEST: &str = "benches/Cargo.toml";
    const REPORT: &str = "docs/benchmarks.md";
    if !Path::new(MANIFEST).is_file() {
        return refuse(&format!("there are no benchmarks yet: `{MANIFEST}` does not exist"));
    }
    // The compared programs take longer to build than everything else, and only one section needs them.
    let needs_peers = names.is_empty() || names.iter().any(|name| ["policy", "all"].contains(name));
    let features: &[&str] = if needs_peers { &[] } else { &["--no-default-features"] };
    let build = CommandLine::cargo(&["build", "--release", "--manifest-path", MANIFEST]).args(features);
    let run = CommandLine::cargo(&["run", "--release", "--manifest-path", MANIFEST]).args(features);
    let mut run = run.args(&["--"]).args(names);
    run = run.args(&["--report", REPORT]);
    let mut builds = vec![build];
    let wants =
        |section: &[&str]| names.is_empty() || names.iter().any(|name| *name == "all" || section.contains(name));
    if wants(&["spawn", "mcp"]) {
        // Workers are our own program.
        builds.push(CommandLine::cargo(&["build", "--release", "--package", "sluice"]));
    }
    if wants(&["mcp"])
        && let (SuiteOutcome::Skipped(reason) | SuiteOutcome::Failed(reason), _) = mcp::python()
    {
        println!("the FastMCP proxy is not measured: {reason}");
    }
    if wants(&["spawn"]) {
        // Workers are compared with Bubblewrap.
        if let Err(reason) = packages::need("bwrap", "bubblewrap") {
            println!("bubblewrap is not measured: {reason}");
        }
    }
    let held_against_scanners = names.is_empty() || names.iter().any(|name| ["all", "content", "leak"].contains(name));
    if held_against_scanners && std::env::var_os(scanners::PYTHON).is_none() {
        let python =
            std::env::current_dir().map_err(|error| error.to_string()).and_then(|root| scanners::install(&root));
        match python {
            Ok(python) => run = run.env(scanners::PYTHON, &python.display().to_string()),
            Err(reason) => println!("yara-python and detect-secrets are not measured: {reason}"),
        }
    }
    // Built before the server starts: compiling in parallel would only slow it down.
    for build in builds {
        println!("$ {build}");
        match build.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return refuse(&format!("the benchmarks could not be built: {status}")),
            Err(error) => return refuse(&format!("cargo could not be started: {error}")),
        }
    }
    // A server that is named already is used; otherwise a private one lives until the end of this function.
    let named = std::env::var(postgres::URL).is_ok_and(|url| !url.is_empty());
    let server = if named { None } else { Some(postgres::start()) };
    match &server {
        Some(Ok(server)) => run = run.env(postgres::URL, server.url()),
        Some(Err(reason)) => println!("\nwithout PostgreSQL: {reason}"),
        None => {}
    }
    println!("\n$ {run}");
    match run.status() {
        Ok(status) if status.success() => {
            println!("\nthe report is in {REPORT}");
            ExitCode::SUCCESS
        }
        Ok(status) => refuse(&format!("the benchmark ended with {status}")),
        Err(error) => refuse(&format!("cargo could not be started: {error}")),
    }
}

/// A server for a person who runs single tests.
fn pg() -> ExitCode {
    match postgres::start() {
        Ok(server) => {
            println!("\nexport {}={}\n\nCtrl-C stops the server and removes its files.", postgres::URL, server.url());
            server.keep()
        }
        Err(reason) => refuse(&format!("no PostgreSQL: {reason}")),
    }
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_takes_strict_and_one_filter_in_any_order() {
        let both = TestArgs { strict: true, filter: Some("hold".into()) };
        assert_eq!(TestArgs::read(&["--strict", "hold"]), Ok(TestArgs { strict: true, filter: Some("hold".into()) }));
        assert_eq!(TestArgs::read(&["hold", "--strict"]), Ok(both));
        assert_eq!(TestArgs::read(&[]), Ok(TestArgs::default()));
    }

    #[test]
    fn a_misspelt_option_is_refused_instead_of_ignored() {
        assert_eq!(TestArgs::read(&["--stric"]), Err("--stric".into()));
        assert_eq!(TestArgs::read(&["one", "two"]), Err("two".into()));
    }
}
