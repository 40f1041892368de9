//! schemathesis: a program that reads an API description and searches for responses that contradict it.
//!
//! Needs Python; gives the program in a virtual environment below `target`, or the reason why it is missing.
//! Promise: always the same release, and nothing outside the repository is changed.

use std::path::{Path, PathBuf};

use crate::command::CommandLine;
use crate::packages::command_output;

/// The variable with the path of the program, for the tests.
pub const PROGRAM: &str = "SLUICE_TEST_SCHEMATHESIS";
const RELEASE: &str = "4.32.5";

/// Finds or installs it.
pub fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target").join(format!("schemathesis-{RELEASE}"));
    let program = folder.join("bin/schemathesis");
    let works =
        |program: &Path| command_output(&CommandLine::new(&[&program.display().to_string(), "--version"])).is_ok();
    if works(&program) {
        return Ok(program);
    }
    let place = folder.display().to_string();
    let pip = folder.join("bin/pip").display().to_string();
    let wanted = format!("schemathesis=={RELEASE}");
    for line in [
        CommandLine::new(&["python3", "-m", "venv", "--clear", &place]),
        CommandLine::new(&[&pip, "install", "--quiet", "--disable-pip-version-check", &wanted]),
    ] {
        println!("\n$ {line}");
        command_output(&line)?;
    }
    if works(&program) { Ok(program) } else { Err(format!("`{}` does not run", program.display())) }
}
