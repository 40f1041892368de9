//! yara-python and detect-secrets: what others scan text with, for measuring beside ours.
//!
//! Takes a machine with Python; gives the Python of an environment of its own below `target` that has both, or the reason
//! why there is none. Promise: always the same releases, and nothing outside the repository is changed.

use std::path::{Path, PathBuf};

use crate::command::Line;
use crate::packages::said;

/// The variable in which the measurements find the Python.
pub const PYTHON: &str = "SLUICE_BENCH_PYTHON";
const RELEASES: [&str; 2] = ["yara-python==4.5.4", "detect-secrets==1.5.0"];

/// Finds or installs them.
pub fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/scanners");
    let python = folder.join("bin/python");
    let works = |python: &Path| {
        let asks = Line::new(&[&python.display().to_string(), "-c", "import yara, detect_secrets"]);
        said(&asks).is_ok()
    };
    if works(&python) {
        return Ok(python);
    }
    let place = folder.display().to_string();
    let pip = folder.join("bin/pip").display().to_string();
    for line in [
        Line::new(&["python3", "-m", "venv", "--clear", &place]),
        Line::new(&[&pip, "install", "--quiet", "--disable-pip-version-check"]).args(&RELEASES),
    ] {
        println!("\n$ {line}");
        said(&line)?;
    }
    if works(&python) { Ok(python) } else { Err(format!("`{}` does not have them", python.display())) }
}
