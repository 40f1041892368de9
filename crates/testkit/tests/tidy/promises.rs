//! Promises and threats name tests, and every test they name exists.

use std::collections::BTreeSet;

use crate::repository::{File, read, rust_files};
use crate::{Offence, none};

/// Pages whose tables name tests in their last column.
const PAGES: [&str; 2] = ["ARCHITECTURE.md", "docs/threat-model.md"];

/// The names of all functions and modules of the Rust sources.
fn names(files: &[File]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let mut steps = file.path.trim_end_matches(".rs").rsplit('/');
        found.extend(steps.next().map(str::to_owned));
        for line in file.text.lines() {
            let line = line.trim_start();
            let line = ["pub ", "pub(crate) ", "async "]
                .iter()
                .fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
            let Some(rest) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("mod ")) else { continue };
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            found.insert(rest[..end].to_owned());
        }
    }
    found
}

/// Rows of numbered or lettered tables whose last column names a test that does not exist.
fn unknown_tests(page: &File, known: &BTreeSet<String>) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [first, .., last] = cells.as_slice() else { continue };
        let is_row = first.strip_prefix(['A', 'T', 'C']).unwrap_or(first).parse::<u32>().is_ok();
        if !line.starts_with('|') || !is_row {
            continue;
        }
        for quoted in last.split('`').skip(1).step_by(2) {
            let is_name = quoted.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c));
            let mut steps = quoted.rsplit("::").filter(|step| *step != "tests");
            let Some(step) = steps.next().filter(|_| is_name) else { continue };
            // Crates and test binaries are named beside what is in them.
            let is_place = ["it", "kill", "sim", "tidy"].contains(&step);
            if !is_place && !known.contains(step) && !read_crates().contains(step) {
                offences.push(page.offence(number + 1, &format!("there is no test `{quoted}`")));
            }
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
    let known = names(&rust_files());
    none(PAGES.iter().flat_map(|page| unknown_tests(&read(page), &known)).collect());
}

#[test]
fn a_planted_promise_without_its_test_is_found() {
    let known = BTreeSet::from(["a_real_test".to_owned(), "walk".to_owned()]);
    let page = |row: &str| File::planted("a.md", row);
    assert!(unknown_tests(&page("| 1 | x | `gateway` `it`: `walk::a_real_test`; `walk` |"), &known).is_empty());
    assert_eq!(unknown_tests(&page("| 1 | x | `gateway` `it`: `walk::gone` |"), &known).len(), 1);
    assert_eq!(unknown_tests(&page("| A7 | x | y | `gone` |"), &known).len(), 1);
    assert!(unknown_tests(&page("| name | `gone` |"), &known).is_empty(), "only numbered rows are promises");
}
