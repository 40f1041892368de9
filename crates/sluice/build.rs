//! Links the program so that a worker starts quickly, on Linux with the GNU C library.
//!
//! The stack unwinding library is linked statically, so that there is one library less to find, open, map and
//! search (decision 0022). The program itself is position-independent (decision 0024).

#![expect(clippy::disallowed_methods, reason = "cargo passes the build target to a build script in its environment")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
