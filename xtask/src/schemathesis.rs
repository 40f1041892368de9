//! schemathesis: a program that reads an API's description and tries to catch the API at saying something else.
//!
//! Takes a machine with Python; gives the program in an environment of its own below `target`, or the reason why
//! there is none. Promise: always the same release, and nothing outside the repository is changed.

use std::path::{Path, PathBuf};

use crate::command::Line;
use crate::packages::said;

/// The variable in which the tests find the program.
pub const PROGRAM: &str = "SLUICE_TEST_SCHEMATHESIS";
const RELEASE: &str = "4.32.5";

/// Finds or installs it.
pub fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target").join(format!("schemathesis-{RELEASE}"));
    let program = folder.join("bin/schemathesis");
    let works = |program: &Path| said(&Line::new(&[&program.display().to_string(), "--version"])).is_ok();
    if works(&program) {
        return Ok(program);
    }
    let place = folder.display().to_string();
    let pip = folder.join("bin/pip").display().to_string();
    let wanted = format!("schemathesis=={RELEASE}");
    for line in [
        Line::new(&["python3", "-m", "venv", "--clear", &place]),
        Line::new(&[&pip, "install", "--quiet", "--disable-pip-version-check", &wanted]),
    ] {
        println!("\n$ {line}");
        said(&line)?;
    }
    if works(&program) { Ok(program) } else { Err(format!("`{}` does not run", program.display())) }
}
