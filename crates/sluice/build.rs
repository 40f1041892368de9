//! Links the program at a fixed address on Linux with the GNU C library, so that a worker's life does not begin with 80,000
//! corrected pointers (decision 0021).

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by its environment what it builds for")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
