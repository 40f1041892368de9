//! Which crate may depend on which.
//!
//! The table of ARCHITECTURE.md, "Crates", checked against the Cargo manifests. They are parsed by hand: one `name = …`
//! or `name.workspace = true` per line, in tables whose name ends in `dependencies`.

use std::fs;

use crate::repository::{RepositoryFile, read, root};
use crate::{TidyOffence, none};

/// The folder of a crate, and our crates that it may depend on.
const TABLE: [(&str, &[&str]); 16] = [
    ("core", &[]),
    ("content", &["core"]),
    ("seal", &[]),
    ("store", &["core", "seal"]),
    ("protocol", &["core"]),
    ("adapters", &["core", "protocol"]),
    ("sandbox", &["core", "protocol"]),
    ("worker", &["core", "content", "protocol", "adapters", "sandbox"]),
    ("config", &["core", "content"]),
    ("egress", &["core", "content", "store", "config", "protocol"]),
    ("services", &["core", "content", "store", "protocol", "sandbox", "config", "egress"]),
    ("gateway", &["core", "content", "store", "protocol", "config", "egress", "services"]),
    ("dashboard", &["core", "store", "config", "services", "gateway"]),
    ("api", &["core", "content", "store", "config", "egress", "services", "gateway", "dashboard"]),
    ("sluice", &["core", "content", "store", "worker", "config", "egress", "services", "gateway", "api"]),
    (
        "testkit",
        &["core", "content", "seal", "store", "protocol", "adapters", "sandbox", "worker", "gateway", "sluice"],
    ),
];
/// Which crates may link these third-party packages.
const RESERVED: [(&[&str], &[&str]); 3] = [
    (
        &["rusqlite", "libsqlite3-sys", "sqlx", "postgres", "tokio-postgres", "deadpool-postgres"],
        &["store", "seal", "testkit"],
    ),
    (
        &["tokio", "async-std", "smol"],
        &["store", "egress", "services", "gateway", "dashboard", "api", "sluice", "testkit"],
    ),
    (
        &["reqwest", "ureq", "hyper", "hyper-util", "isahc", "curl"],
        &["egress", "services", "gateway", "api", "sluice", "testkit"],
    ),
];

#[derive(Debug, PartialEq, Eq)]
struct CrateDependency {
    line: usize,
    /// `dependencies`, `dev-dependencies` or `build-dependencies`.
    table: String,
    package: String,
}

impl CrateDependency {
    fn is_for_tests(&self) -> bool {
        self.table == "dev-dependencies"
    }

    /// The folder of the crate, if it is one of ours.
    fn ours(&self) -> Option<&str> {
        self.package.strip_prefix("sluice-").or((self.package == "sluice").then_some("sluice"))
    }
}

fn dependencies(manifest: &RepositoryFile) -> Vec<CrateDependency> {
    let (mut table, mut found) = (String::new(), Vec::new());
    for (n, line) in manifest.text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let parts: Vec<&str> = header.split('.').collect();
            let kind = parts.iter().position(|part| part.ends_with("dependencies"));
            table = kind.map_or_else(String::new, |at| parts[at].to_owned());
            // `[dependencies.name]` is a dependency itself; its keys are not.
            if let Some(name) = kind.and_then(|at| parts.get(at + 1)) {
                found.push(CrateDependency {
                    line: n + 1,
                    table: std::mem::take(&mut table),
                    package: (*name).to_owned(),
                });
            }
        } else if let Some((name, value)) = line.split_once('=').filter(|_| !table.is_empty() && !line.starts_with('#'))
        {
            let renamed = value.split_once("package = \"").and_then(|(_, rest)| rest.split('"').next());
            let name = name.trim().split('.').next().unwrap_or_default().trim_matches('"');
            let package = renamed.unwrap_or(name).to_owned();
            found.push(CrateDependency { line: n + 1, table: table.clone(), package });
        }
    }
    found
}

fn manifests() -> Vec<(String, RepositoryFile)> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap());
    let names = folders.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap());
    let mut found: Vec<_> = names.map(|name| (name.clone(), read(&format!("crates/{name}/Cargo.toml")))).collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert!(found.len() >= 4, "the crates were not found");
    found
}

fn offences(rule: fn(&str, &RepositoryFile) -> Vec<TidyOffence>) -> Vec<TidyOffence> {
    manifests().iter().flat_map(|(folder, manifest)| rule(folder, manifest)).collect()
}

fn layering(folder: &str, manifest: &RepositoryFile) -> Vec<TidyOffence> {
    let Some((_, allowed)) = TABLE.iter().find(|(known, _)| *known == folder) else {
        return vec![manifest.offence(1, "this crate is not in the table of crates")];
    };
    let normal = dependencies(manifest).into_iter().filter(|dependency| !dependency.is_for_tests());
    let strange = normal.filter(|dependency| dependency.ours().is_some_and(|ours| !allowed.contains(&ours)));
    strange.map(|d| manifest.offence(d.line, &format!("`{folder}` must not depend on `{}`", d.package))).collect()
}

#[test]
fn every_crate_depends_only_on_those_below_it() {
    none(offences(layering));
}

#[test]
fn planted_upward_dependencies_are_found() {
    let upward = |folder: &str, text: &str| layering(folder, &RepositoryFile::planted("Cargo.toml", text)).len();
    assert_eq!(upward("core", "[dependencies]\nsluice-store.workspace = true\n"), 1);
    assert_eq!(
        upward("gateway", "[dependencies]\nsluice-core.workspace = true\nsluice-adapters = { path = \"x\" }\n"),
        1
    );
    assert_eq!(upward("store", "[target.'cfg(unix)'.dependencies]\nq = { package = \"sluice-gateway\" }\n"), 1);
    assert_eq!(upward("store", "[build-dependencies.sluice-testkit]\nworkspace = true\n"), 1);
    assert_eq!(upward("utils", ""), 1, "a crate that is not in the table");
    assert_eq!(upward("store", "[dependencies]\nsluice-core = \"1\"\n[dev-dependencies]\nsluice-testkit = \"1\"\n"), 0);
}

fn testkit_in_production(_: &str, manifest: &RepositoryFile) -> Vec<TidyOffence> {
    let found = dependencies(manifest).into_iter().filter(|d| d.ours() == Some("testkit") && !d.is_for_tests());
    found.map(|d| manifest.offence(d.line, "the testkit is for tests only")).collect()
}

#[test]
fn the_testkit_is_never_a_normal_dependency() {
    none(offences(testkit_in_production));
    none(testkit_in_production("xtask", &read("xtask/Cargo.toml")));
}

#[test]
fn a_planted_testkit_is_found() {
    let manifest =
        |table| RepositoryFile::planted("Cargo.toml", &format!("[{table}]\nsluice-testkit.workspace = true\n"));
    assert_eq!(testkit_in_production("sluice", &manifest("dependencies")).len(), 1);
    assert_eq!(testkit_in_production("sluice", &manifest("build-dependencies")).len(), 1);
    assert!(testkit_in_production("sluice", &manifest("dev-dependencies")).is_empty());
}

fn reserved(folder: &str, manifest: &RepositoryFile) -> Vec<TidyOffence> {
    let normal = dependencies(manifest).into_iter().filter(|dependency| !dependency.is_for_tests());
    let kept = |d: &CrateDependency| {
        RESERVED.iter().any(|(packages, who)| packages.contains(&d.package.as_str()) && !who.contains(&folder))
    };
    normal.filter(kept).map(|d| manifest.offence(d.line, &format!("`{}` is not for `{folder}`", d.package))).collect()
}

#[test]
fn databases_runtimes_and_http_clients_stay_in_their_crates() {
    none(offences(reserved));
}

#[test]
fn planted_drivers_runtimes_and_clients_are_found() {
    let strange = |folder: &str, package: &str| {
        reserved(folder, &RepositoryFile::planted("Cargo.toml", &format!("[dependencies]\n{package} = \"1\"\n"))).len()
    };
    assert_eq!([strange("gateway", "rusqlite"), strange("core", "tokio"), strange("store", "reqwest")], [1, 1, 1]);
    assert_eq!([strange("store", "rusqlite"), strange("gateway", "reqwest")], [0, 0]);
}

fn own_lints(_: &str, manifest: &RepositoryFile) -> Vec<TidyOffence> {
    let shared = manifest.text.contains("[lints]\nworkspace = true\n");
    (!shared).then(|| manifest.offence(1, "the crate does not take the lints of the workspace")).into_iter().collect()
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    // These two set their own lints, because only they may lower `unsafe_code` from forbid to deny.
    let all = manifests().into_iter().filter(|(folder, _)| !["sandbox", "seal"].contains(&folder.as_str()));
    none(all.flat_map(|(folder, manifest)| own_lints(&folder, &manifest)).collect());
    none(own_lints("xtask", &read("xtask/Cargo.toml")));
}

#[test]
fn a_planted_crate_without_lints_is_found() {
    assert_eq!(own_lints("core", &RepositoryFile::planted("Cargo.toml", "[package]\nname = \"a\"\n")).len(), 1);
}
