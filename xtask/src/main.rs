//! The recipes of this repository: `cargo xtask check | test | nightly | bench | eval | fuzz | mcp | accounts | mail | pg`.
//!
//! Takes a recipe by name; gives the plain command lines it runs, their output, and a table at the
//! end. Promise: the last line of `check` and `test` counts every suite, one that was skipped is
//! named with its reason, and the exit code is zero only if nothing failed.
#![expect(clippy::disallowed_methods, reason = "a tool for people at a terminal: real time and environment")]

mod accounts;
mod agentdojo;
mod command;
mod discovery;
mod eval_outbound;
mod failures;
mod faults;
mod fuzz;
mod mail;
mod mcp;
mod mounts;
mod packages;
mod postgres;
mod report;
mod scanners;
mod schemathesis;

use std::path::Path;
use std::process::ExitCode;

use command::Line;
use faults::FaultTables;
use report::{Outcome, Report};

const USAGE: &str = "\
cargo xtask check                    format, lints, repository rules, documentation
cargo xtask test [--strict] [FILTER] everything: check, all tests, the demo without a person
                                     --strict: what would be skipped is a failure
                                     FILTER: only the tests whose name contains it
cargo xtask nightly [FILTER]         the long tests at full length: tens of thousands of kills, restores and simulated
                                     installations; `test` runs a slice of each. FILTER: one of their modules
cargo xtask nightly faults           kills, power cuts, full disks, cut connections and failovers under load, held against
                                     a service that counts, with one table of what came of every write
cargo xtask bench [NAME]             the measurements in benches/, with a private PostgreSQL; the report
                                     goes to docs/benchmarks.md
cargo xtask eval [--corpora DIR] [--misses] recall and false positives of the checks on content, per source, kind
                                     and carrier
cargo xtask eval --agentdojo [PASS]  AgentDojo's published suites through the real corridor, without a model and with the
                                     detector switched off; PASS: alone, helped, attacked
cargo xtask fuzz --quick             a minute of fuzzing for each reader of outside bytes, with the cost counted
cargo xtask fuzz TARGET [--seconds N] one of them; `fuzz/corpus` names them. --replay: only what is kept; --costs: and
                                     what it costs; --keep: minimise what was found into `fuzz/corpus`
cargo xtask mcp [--strict]           real clients of the Model Context Protocol against the gate; part of `test`
cargo xtask accounts                 somebody else's Gmail, sign-in and Bot API until Ctrl-C; part of `test`
cargo xtask mail                     somebody else's post office until Ctrl-C; part of `test`
cargo xtask pg                       a private PostgreSQL until Ctrl-C";

fn main() -> ExitCode {
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent() else {
        return refuse("xtask must sit in a folder of the repository");
    };
    if let Err(error) = std::env::set_current_dir(root) {
        return refuse(&format!("cannot enter the repository: {error}"));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["check"] => check(Report::new()).finish(),
        ["test", rest @ ..] => match Asked::read(rest) {
            Ok(asked) => test(&asked).finish(),
            Err(stranger) => refuse(&format!("`test` does not know `{stranger}`\n\n{USAGE}")),
        },
        ["nightly"] => nightly(None).finish(),
        ["nightly", filter] if !filter.starts_with('-') => nightly(Some(filter)).finish(),
        ["bench", rest @ ..] => bench(rest),
        ["eval", rest @ ..] => eval(rest),
        ["fuzz", rest @ ..] => match fuzz::Asked::read(rest) {
            Ok(asked) => fuzz::run(&asked),
            Err(reason) => refuse(&format!("{reason}\n\n{USAGE}")),
        },
        ["mcp", rest @ ..] => {
            let mut report = Report::new().strict(rest.contains(&"--strict"));
            mcp::suites(&mut report);
            mounts::suite(&mut report);
            report.finish()
        }
        ["accounts"] => {
            let mut report = Report::new().strict(true);
            accounts::start(&mut report).keep();
            report.finish()
        }
        ["mail"] => {
            let mut report = Report::new().strict(true);
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

/// What `test` was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    strict: bool,
    filter: Option<String>,
}

impl Asked {
    /// Reads the words after `test`, or gives the one it does not know.
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

/// What needs no service and little time.
fn check(mut report: Report) -> Report {
    report.run("format", &Line::cargo(&["fmt", "--all", "--check"]));
    report.run("lints", &Line::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    report.run_tests("repository rules", &Line::cargo(&["test", "--package", "sluice-testkit", "--test", "tidy"]));
    let doc = Line::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    report.run("documentation", &doc);
    report
}

/// Everything; or, with a filter, only the tests it names.
fn test(asked: &Asked) -> Report {
    let mut report = Report::new().strict(asked.strict);
    if asked.filter.is_none() {
        report = check(report);
    }
    let mut tests = Line::cargo(&["test", "--workspace", "--no-fail-fast"]);
    if asked.strict {
        tests = tests.env("SLUICE_TEST_STRICT", "1");
    }
    if let Some(filter) = &asked.filter {
        tests = tests.args(&["--", filter]);
    }
    // The server lives until the end of this function and goes with it, whatever happens in between.
    let server = report.time("postgresql server", || match postgres::start() {
        Ok(server) => (Outcome::Passed, Some(server)),
        Err(reason) => {
            (Outcome::Skipped(format!("tests on PostgreSQL were not run: {reason}; they need {}", postgres::URL)), None)
        }
    });
    if let Some(server) = &server {
        tests = tests.env(postgres::URL, server.url());
    } else {
        // A strict run has failed by now; the remaining tests still say what they can.
        tests = tests.without("SLUICE_TEST_STRICT");
    }
    // Without it nobody can see whether an answer left before its bytes were on disk.
    report.time("strace", || match packages::need("strace", "strace") {
        Ok(()) => (Outcome::Passed, ()),
        Err(reason) => (Outcome::Skipped(format!("syncs to disk were not watched: {reason}")), ()),
    });
    report.time("git", || match packages::need("git", "git") {
        Ok(()) => (Outcome::Passed, ()),
        Err(reason) => (Outcome::Skipped(format!("repositories were not worked on: {reason}")), ()),
    });
    need_faketime(&mut report);
    let fuzzer =
        std::env::current_dir().map_err(|error| error.to_string()).and_then(|root| schemathesis::install(&root));
    report.time("schemathesis", || match &fuzzer {
        Ok(_) => (Outcome::Passed, ()),
        Err(reason) => (Outcome::Skipped(format!("the API was not held against its description: {reason}")), ()),
    });
    if let Ok(program) = &fuzzer {
        tests = tests.env(schemathesis::PROGRAM, &program.display().to_string());
    }
    let described =
        std::env::current_dir().map_err(|error| error.to_string()).and_then(|root| discovery::install(&root));
    report.time("gmail description", || match &described {
        Ok(_) => (Outcome::Passed, ()),
        Err(reason) => {
            (Outcome::Skipped(format!("requests to Gmail were not held against its description: {reason}")), ())
        }
    });
    match &described {
        Ok(file) => tests = tests.env(discovery::FILE, &file.display().to_string()),
        // A strict run has failed by now; the remaining tests still say what they can.
        Err(_) => tests = tests.without("SLUICE_TEST_STRICT"),
    }
    // They live until the end of this function, as the database server does.
    let accounts = accounts::start(&mut report);
    tests = accounts.tell(tests);
    let mail = mail::start(&mut report);
    tests = mail.tell(tests);
    report.run_tests("tests", &tests);
    if asked.filter.is_none() {
        // A demo that prints nothing has shown nothing, whatever it exits with.
        report.run_aloud("demo", &Line::cargo(&["run", "--package", "sluice", "--", "demo", "--headless"]));
        mcp::suites(&mut report);
        mounts::suite(&mut report);
    }
    report
}

/// The tests that have a whole matrix beside the slice of every run: package, test binary, module.
const LONG: [(&str, &str, &str); 6] = [
    ("sluice-testkit", "sim", "whatever_breaks"),
    ("sluice-testkit", "kill", "anywhere"),
    ("sluice", "it", "kills::"),
    ("sluice", "it", "faults::"),
    ("sluice", "it", "gmail::sending"),
    ("sluice-gateway", "it", "restores"),
];

/// The module whose tables are put together.
const FAULTS: &str = "faults::";

/// The long tests at full length. Skips count as failures: a night in which nothing ran proves nothing.
fn nightly(filter: Option<&str>) -> Report {
    let mut report = Report::new().strict(true);
    // The server lives until the end of this function and goes with it, whatever happens in between.
    let server = report.time("postgresql server", || match postgres::start() {
        Ok(server) => (Outcome::Passed, Some(server)),
        Err(reason) => (Outcome::Skipped(reason), None),
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
        let mut line = Line::cargo(&["test", "--package", package, "--test", binary, "--", module]);
        if module == FAULTS {
            // Aloud: the tables are wanted also where all is well. The answers by mail have faults of their own.
            line = line.args(&["--nocapture", "--skip", "replies::"]);
        }
        let line = line.env("SLUICE_TEST_NIGHTLY", "1").env("SLUICE_TEST_STRICT", "1").env(postgres::URL, server.url());
        report.run_tests_and_read(module, &line, |line| tables.read(line));
    }
    print!("{tables}");
    report
}

/// With libfaketime the clock of one process can be moved.
fn need_faketime(report: &mut Report) {
    report.time("libfaketime", || match packages::need("faketime", "faketime") {
        Ok(()) => (Outcome::Passed, ()),
        Err(reason) => (Outcome::Skipped(format!("the clock of a gateway was not moved: {reason}")), ()),
    });
}

/// Quality, not speed: how well the stages tell attacks, and the leak scan secrets, from ordinary texts.
fn eval(words: &[&str]) -> ExitCode {
    if let Some(("--agentdojo", passes)) = words.split_first().map(|(first, rest)| (*first, rest)) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        return match agentdojo::replay(root, passes) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => refuse(&reason),
        };
    }
    let inbound = Line::cargo(&["run", "--release", "--package", "sluice-content", "--example", "eval", "--"]);
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

/// The measurements live in a workspace of their own, so that their dependencies stay out of ours.
fn bench(names: &[&str]) -> ExitCode {
    const MANIFEST: &str = "benches/Cargo.toml";
    const REPORT: &str = "docs/benchmarks.md";
    if !Path::new(MANIFEST).is_file() {
        return refuse(&format!("there is nothing to measure yet: `{MANIFEST}` does not exist"));
    }
    // The peers take longer to build than all the rest, and only one section is held against them.
    let needs_peers = names.is_empty() || names.iter().any(|name| ["policy", "all"].contains(name));
    let features: &[&str] = if needs_peers { &[] } else { &["--no-default-features"] };
    let build = Line::cargo(&["build", "--release", "--manifest-path", MANIFEST]).args(features);
    let run = Line::cargo(&["run", "--release", "--manifest-path", MANIFEST]).args(features);
    let mut run = run.args(&["--"]).args(names);
    run = run.args(&["--report", REPORT]);
    let mut builds = vec![build];
    let wants =
        |section: &[&str]| names.is_empty() || names.iter().any(|name| *name == "all" || section.contains(name));
    if wants(&["spawn", "mcp"]) {
        // Workers are our own program.
        builds.push(Line::cargo(&["build", "--release", "--package", "sluice"]));
    }
    if wants(&["mcp"])
        && let (Outcome::Skipped(reason) | Outcome::Failed(reason), _) = mcp::python()
    {
        println!("without the proxy of FastMCP: {reason}");
    }
    if wants(&["spawn"]) {
        // Bubblewrap is what they are held against.
        if let Err(reason) = packages::need("bwrap", "bubblewrap") {
            println!("without bubblewrap: {reason}");
        }
    }
    let held_against_scanners = names.is_empty() || names.iter().any(|name| ["all", "content", "leak"].contains(name));
    if held_against_scanners && std::env::var_os(scanners::PYTHON).is_none() {
        let python =
            std::env::current_dir().map_err(|error| error.to_string()).and_then(|root| scanners::install(&root));
        match python {
            Ok(python) => run = run.env(scanners::PYTHON, &python.display().to_string()),
            Err(reason) => println!("without yara-python and detect-secrets: {reason}"),
        }
    }
    // Built before the server is started: compiling beside it would only make it wait.
    for build in builds {
        println!("$ {build}");
        match build.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return refuse(&format!("the measurements could not be built: {status}")),
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
        Ok(status) => refuse(&format!("the measurement ended with {status}")),
        Err(error) => refuse(&format!("cargo could not be started: {error}")),
    }
}

/// A server for a person who runs single tests by hand.
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
        let both = Asked { strict: true, filter: Some("hold".into()) };
        assert_eq!(Asked::read(&["--strict", "hold"]), Ok(Asked { strict: true, filter: Some("hold".into()) }));
        assert_eq!(Asked::read(&["hold", "--strict"]), Ok(both));
        assert_eq!(Asked::read(&[]), Ok(Asked::default()));
    }

    #[test]
    fn a_misspelt_option_is_refused_instead_of_ignored() {
        assert_eq!(Asked::read(&["--stric"]), Err("--stric".into()));
        assert_eq!(Asked::read(&["one", "two"]), Err("two".into()));
    }
}
