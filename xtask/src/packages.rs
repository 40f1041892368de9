//! Installs the system packages that the tests need, where we may do that.
//!
//! Takes the name of a Debian package; installs it if we are root and `apt-get` exists. Promise:
//! packages that are already installed are not upgraded.

use crate::command::CommandLine;

/// Runs a command and returns its output.
pub fn command_output(line: &CommandLine) -> Result<String, String> {
    let output = line.output().map_err(|error| format!("`{line}` could not be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{line}` failed: {}", complaint.trim().lines().next_back().unwrap_or("no output")))
}

/// Whether we are root on this machine.
pub fn is_root() -> bool {
    command_output(&CommandLine::new(&["id", "-u"])).is_ok_and(|id| id == "0")
}

/// Installs a package; `None` if we may not.
pub fn install(package: &str) -> Option<()> {
    if !is_root() || command_output(&CommandLine::new(&["apt-get", "--version"])).is_err() {
        return None;
    }
    let apt = |words: &[&str]| {
        CommandLine::new(&["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"])
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
    };
    for line in [apt(&["update"]), apt(&["install", "--no-upgrade", "--no-install-recommends", package])] {
        println!("\n$ {line}");
        // An update may fail for one source and still have fetched the needed one.
        line.status().ok()?;
    }
    Some(())
}

/// Makes sure that a program is installed.
pub fn need(program: &str, package: &str) -> Result<(), String> {
    let there = || command_output(&CommandLine::new(&[program, "--version"])).is_ok();
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
        let reason = command_output(&CommandLine::new(&["sh", "-c", "echo disk is full >&2; exit 1"])).unwrap_err();
        assert!(reason.ends_with("disk is full"), "{reason}");
    }

    #[test]
    fn a_program_that_is_there_needs_nothing() {
        assert_eq!(need("cargo", "no-such-package"), Ok(()));
    }
}
