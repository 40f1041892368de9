//! Promises and threats name tests, and every test they name must exist.
//!
//! Takes the tables of two pages. The last column of each numbered row names at least one test function, and every
//! function and module that it names exists.

use std::collections::BTreeSet;

use crate::repository::{RepositoryFile, files, read};
use crate::{TidyOffence, none};

/// Pages whose tables name tests in their last column.
const PAGES: [&str; 2] = ["docs/promises.md", "docs/threat-model.md"];

/// Crates and test binaries that are named next to their tests; other crates are read from the workspace.
const PLACES: [&str; 6] = ["it", "kill", "sim", "tidy", "sluice", "sdk"];

/// The suite of the Python package; its tests are named like those of a crate.
const PYTHON_TESTS: &str = "sdk/python/tests/";

/// The names that the Rust sources and the suite of the Python package declare.
#[derive(Default)]
struct DeclaredNames {
    /// Functions and modules.
    all: BTreeSet<String>,
    /// Functions that are tests.
    tests: BTreeSet<String>,
}

fn declared_names(files: &[RepositoryFile]) -> DeclaredNames {
    let mut found = DeclaredNames::default();
    for file in files {
        let is_python = file.path.starts_with(PYTHON_TESTS);
        let mut steps = file.path.trim_end_matches(".rs").trim_end_matches(".py").rsplit('/');
        found.all.extend(steps.next().map(str::to_owned));
        let mut is_test = false;
        for line in file.text.lines() {
            if is_python {
                let name =
                    line.strip_prefix("def ").and_then(|rest| rest.split_once('(')).map(|(name, _)| name.to_owned());
                found.tests.extend(name.clone().filter(|name| name.starts_with("test_")));
                found.all.extend(name);
                continue;
            }
            let line = line.trim_start();
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let line = ["pub ", "pub(crate) ", "async "]
                .iter()
                .fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
            let function = line.strip_prefix("fn ");
            let Some(rest) = function.or_else(|| line.strip_prefix("mod ")) else { continue };
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let name = rest[..end].to_owned();
            if function.is_some() && is_test {
                found.tests.insert(name.clone());
                is_test = false;
            }
            found.all.insert(name);
        }
    }
    found
}

/// Rows of numbered or lettered tables whose last column names a test that does not exist, or no test function at all.
fn unproven_rows(page: &RepositoryFile, declared: &DeclaredNames) -> Vec<TidyOffence> {
    let crates = read_crates();
    let mut offences = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [first, .., last] = cells.as_slice() else { continue };
        // `A` and `C` are attacks; `T` are attackers, whose rows name no tests.
        let is_row = first.strip_prefix(['A', 'C']).unwrap_or(first).parse::<u32>().is_ok();
        if !line.starts_with('|') || !is_row {
            continue;
        }
        let mut is_proven = false;
        for quoted in last.split('`').skip(1).step_by(2) {
            let is_name = quoted.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c));
            let mut steps = quoted.rsplit("::").filter(|step| *step != "tests");
            let Some(step) = steps.next().filter(|_| is_name) else { continue };
            if PLACES.contains(&step) || crates.contains(step) {
                continue;
            }
            is_proven |= declared.tests.contains(step);
            if !declared.all.contains(step) {
                offences.push(page.offence(number + 1, &format!("there is no test `{quoted}`")));
            }
        }
        if !is_proven {
            offences.push(page.offence(number + 1, "the row names no test function"));
        }
    }
    offences
}

fn read_crates() -> BTreeSet<String> {
    let table = read("Cargo.toml").text;
    table.lines().filter_map(|line| line.strip_prefix("sluice-")?.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn every_promise_and_every_threat_names_tests_that_exist() {
    let sources: Vec<RepositoryFile> =
        files().into_iter().filter(|file| file.is_rust() || file.path.starts_with(PYTHON_TESTS)).collect();
    let declared = declared_names(&sources);
    let pages = PAGES.map(read);
    assert!(pages.iter().all(|page| page.text.contains("\n| ")), "a page has no table");
    none(pages.iter().flat_map(|page| unproven_rows(page, &declared)).collect());
}

#[test]
fn a_planted_promise_without_its_test_is_found() {
    let source = "mod walk {\nfn a_helper() {}\n#[test]\nasync fn a_real_test() {}\nfn b_helper() {}\n}\n";
    let declared = declared_names(&[RepositoryFile::planted("crates/gateway/tests/it/page.rs", source)]);
    let found = |row: &str| unproven_rows(&RepositoryFile::planted("a.md", row), &declared);
    assert!(found("| 1 | x | `gateway` `it`: `walk::a_real_test`; `walk` |").is_empty());
    assert_eq!(found("| 1 | x | `it`: `walk::gone`, `a_real_test` |"), ["a.md:1: there is no test `walk::gone`"]);
    assert_eq!(found("| A7 | x | y | `gone`, `a_real_test` |"), ["a.md:1: there is no test `gone`"]);
    for row in ["| 2 | x | `gateway` `it`: `walk`, `page` |", "| C3 | x | `a_helper`, `b_helper` |", "| 4 | x |"] {
        assert_eq!(found(row), ["a.md:1: the row names no test function"], "{row}");
    }
    assert!(found("| name | `gone` |").is_empty(), "only numbered rows are promises");

    let suite = RepositoryFile::planted("sdk/python/tests/test_a.py", "def helper():\ndef test_b(client):\n");
    let declared = declared_names(&[suite]);
    let found = |row: &str| unproven_rows(&RepositoryFile::planted("a.md", row), &declared);
    assert!(found("| 1 | x | `sdk` `test_a::test_b` |").is_empty());
    assert_eq!(found("| 1 | x | `sdk` `test_a::test_c`, `test_b` |"), ["a.md:1: there is no test `test_a::test_c`"]);
    assert_eq!(found("| 1 | x | `sdk` `test_a::helper` |"), ["a.md:1: the row names no test function"]);
}
