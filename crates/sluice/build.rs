//! Links the program so that a worker starts quickly, and tells it which commit it is built from.
//!
//! On Linux with the GNU C library the stack unwinding library is linked statically, so that there is one library less to
//! find, open, map and search (decision 0022). The program itself is position-independent (decision 0024). A development
//! build does not look at the repository, so that a commit rebuilds nothing; a release build does, for `sluice version`,
//! unless `BUILD_COMMIT` names the commit.

#![expect(clippy::disallowed_methods, reason = "cargo passes the build target to a build script in its environment")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    name_the_build();
    let told = |what: &str| std::env::var(what).unwrap_or_default();
    if told("CARGO_CFG_TARGET_OS") != "linux" || told("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    // Only if the compiler here is the one that links: another one has its libraries elsewhere.
    if told("HOST") == told("TARGET")
        && let Some(folder) = unwinder_inside(Path::new(&told("OUT_DIR")))
    {
        println!("cargo::rustc-link-arg-bins=-L{}", folder.display());
    }
}

/// A folder with a linker script that has the name of the shared library and uses the archive of the same compiler.
fn unwinder_inside(out: &Path) -> Option<PathBuf> {
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output().ok()?;
    // A compiler without this file prints only its name.
    let archive = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    if !archive.is_absolute() || !archive.is_file() {
        return None;
    }
    let folder = out.join("link");
    std::fs::create_dir_all(&folder).ok()?;
    std::fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").ok()?;
    Some(folder)
}

/// Sets the variables that `sluice version` prints.
fn name_the_build() {
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    println!("cargo::rustc-env=BUILT_FOR_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    let named = std::env::var("BUILD_COMMIT").ok().filter(|commit| is_commit(commit));
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = named.or_else(|| is_release.then(read_commit).flatten()).unwrap_or_default();
    println!("cargo::rustc-env=BUILT_FROM_COMMIT={commit}");
}

/// The commit that is checked out, if this is a repository.
fn read_commit() -> Option<String> {
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        println!("cargo::rerun-if-changed={path}");
    }
    git(&["rev-parse", "HEAD"]).filter(|commit| is_commit(commit))
}

fn git(words: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(words).output().ok().filter(|ran| ran.status.success())?;
    String::from_utf8(ran.stdout).ok().map(|text| text.trim().to_owned())
}

fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
