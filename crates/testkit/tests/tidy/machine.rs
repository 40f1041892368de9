//! Rules that keep details of the build machine out of the repository.

use crate::repository::{RepositoryFile, files, read};
use crate::{TidyOffence, none};

/// Folders of build machines and home folders. Written in two halves, so that this file is clean.
const FOLDERS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
/// Hosts that packages are fetched from: which one is used depends on the machine, not on the project.
const REGISTRIES: [&str; 8] = [
    concat!("static.cra", "tes.io"),
    concat!("index.cra", "tes.io"),
    concat!("registry.np", "mjs.org"),
    concat!("registry.yar", "npkg.com"),
    concat!("pypi.o", "rg"),
    concat!("files.python", "hosted.org"),
    concat!("jfr", "og.io"),
    concat!("artif", "actory"),
];
/// Where every locked package comes from.
const PUBLIC_INDEX: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Each line that holds one of the needles as the beginning of a path or host.
fn mentions(file: &RepositoryFile, needles: &[&str], what: &str) -> Vec<TidyOffence> {
    let starts = |line: &str, needle: &str| {
        line.match_indices(needle)
            .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.*".contains(c)))
    };
    let numbered = file.text.lines().enumerate();
    let found = numbered.filter(|(_, line)| needles.iter().any(|needle| starts(line, needle)));
    found.map(|(n, _)| file.offence(n + 1, what)).collect()
}

fn folders(file: &RepositoryFile) -> Vec<TidyOffence> {
    mentions(file, &FOLDERS, "a path of one machine")
}

fn registries(file: &RepositoryFile) -> Vec<TidyOffence> {
    mentions(file, &REGISTRIES, "a host of a package registry")
}

#[test]
fn no_file_names_a_folder_of_a_build_machine() {
    none(files().iter().flat_map(folders).collect());
}

#[test]
fn no_file_names_a_host_of_a_package_registry() {
    none(files().iter().flat_map(registries).collect());
}

#[test]
fn planted_machines_are_found() {
    let path = format!("fine\nsee `{}a/b`", FOLDERS[0]);
    assert_eq!(folders(&RepositoryFile::planted("a.md", &path)), ["a.md:2: a path of one machine"]);
    assert!(
        folders(&RepositoryFile::planted("a.md", &format!("sub{}a", FOLDERS[0]))).is_empty(),
        "a relative path is no machine"
    );
    let url = format!("\"resolved\": \"https://{}/x\"", REGISTRIES[2]);
    assert_eq!(registries(&RepositoryFile::planted("a.json", &url)), ["a.json:1: a host of a package registry"]);
}

fn sources(lock: &RepositoryFile) -> Vec<TidyOffence> {
    let numbered = lock.text.lines().enumerate();
    let strange = numbered.filter(|(_, line)| line.starts_with("source = ") && *line != PUBLIC_INDEX);
    strange.map(|(n, line)| lock.offence(n + 1, &format!("a package from elsewhere: {line}"))).collect()
}

#[test]
fn every_locked_package_comes_from_the_public_index() {
    none(sources(&read("Cargo.lock")));
}

#[test]
fn a_planted_foreign_source_is_found() {
    let text = format!("{PUBLIC_INDEX}\nsource = \"git+https://example.org/a\"\n");
    assert_eq!(sources(&RepositoryFile::planted("Cargo.lock", &text)).len(), 1);
}

/// Functions that `clippy.toml` must forbid, each with a reason.
const FENCED: [&str; 8] = [
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "std::thread::sleep",
    "std::env::var",
    "tokio::time::sleep",
    "tokio::spawn",
    "reqwest::Client::new",
    "ureq::agent",
];

fn fences(clippy: &RepositoryFile) -> Vec<TidyOffence> {
    let stands = |fenced: &str| {
        let path = format!("path = \"{fenced}\"");
        clippy
            .text
            .lines()
            .any(|line| line.contains(&path) && line.contains("reason = \"") && !line.trim().starts_with('#'))
    };
    let fallen = FENCED.iter().filter(|fenced| !stands(fenced));
    fallen.map(|fenced| clippy.offence(1, &format!("`{fenced}` is not fenced off with a reason"))).collect()
}

#[test]
fn time_environment_tasks_and_http_clients_are_fenced_off() {
    none(fences(&read("clippy.toml")));
}

#[test]
fn a_fence_that_is_missing_or_gives_no_reason_is_found() {
    let whole: String = FENCED.iter().map(|path| format!("  {{ path = \"{path}\", reason = \"r\" }},\n")).collect();
    assert!(fences(&RepositoryFile::planted("clippy.toml", &whole)).is_empty());
    assert_eq!(fences(&RepositoryFile::planted("clippy.toml", &whole.replace("tokio::spawn", "tokio::x"))).len(), 1);
    assert_eq!(fences(&RepositoryFile::planted("clippy.toml", &whole.replace("reason", "why"))).len(), FENCED.len());
}
