//! What the tests need from the machine, installed where that is ours to do.
//!
//! Takes the name of a Debian package; installs it when we are root and there is an `apt-get`. Promise:
//! what the machine already has is not upgraded.

use crate::command::Line;

/// Runs a line and gives what it printed.
pub fn said(line: &Line) -> Result<String, String> {
    let output = line.output().map_err(|error| format!("`{line}` could not be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{line}` failed: {}", complaint.trim().lines().next_back().unwrap_or("without a word")))
}

/// Whether we may do anything on this machine.
pub fn is_root() -> bool {
    said(&Line::new(&["id", "-u"])).is_ok_and(|id| id == "0")
}

/// Installs a package, or gives nothing where that is not ours to do.
pub fn install(package: &str) -> Option<()> {
    if !is_root() || said(&Line::new(&["apt-get", "--version"])).is_err() {
        return None;
    }
    let apt = |words: &[&str]| Line::new(&["apt-get", "-q", "-y"]).args(words).env("DEBIAN_FRONTEND", "noninteractive");
    for line in [apt(&["update"]), apt(&["install", "--no-upgrade", "--no-install-recommends", package])] {
        println!("\n$ {line}");
        // An update may fail for one source and still have fetched the one that matters.
        line.status().ok()?;
    }
    Some(())
}

/// Makes sure a program is there.
pub fn need(program: &str, package: &str) -> Result<(), String> {
    let there = || said(&Line::new(&[program, "--version"])).is_ok();
    if there() || (install(package).is_some() && there()) {
        return Ok(());
    }
    Err(format!("`{program}` is not installed (Debian: apt-get install {package})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_quoted_in_the_reason() {
        let reason = said(&Line::new(&["sh", "-c", "echo disk is full >&2; exit 1"])).unwrap_err();
        assert!(reason.ends_with("disk is full"), "{reason}");
    }

    #[test]
    fn a_program_that_is_there_needs_nothing() {
        assert_eq!(need("cargo", "no-such-package"), Ok(()));
    }
}
