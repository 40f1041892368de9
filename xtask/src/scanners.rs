//! yara-python and detect-secrets: third-party text scanners, for comparison with ours.
//!
//! Needs Python; gives the Python of a virtual environment below `target` with both, or the reason
//! why it is missing. Promise: always the same releases, and nothing outside the repository is changed.

use std::path::{Path, PathBuf};

use crate::command::CommandLine;
use crate::packages::command_output;

/// The variable with the path of that Python, for the benchmarks.
pub const PYTHON: &str = "SLUICE_BENCH_PYTHON";
const RELEASES: [&str; 2] = ["yara-python==4.5.4", "detect-secrets==1.5.0"];

/// Finds or installs them.
pub fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/scanners");
    let python = folder.join("bin/python");
    let works = |python: &Path| {
        let asks = CommandLine::new(&[&python.display().to_string(), "-c", "import yara, detect_secrets"]);
        command_output(&asks).is_ok()
    };
    if works(&python) {
        return Ok(python);
    }
    let place = folder.display().to_string();
    let pip = folder.join("bin/pip").display().to_string();
    for line in [
        CommandLine::new(&["python3", "-m", "venv", "--clear", &place]),
        CommandLine::new(&[&pip, "install", "--quiet", "--disable-pip-version-check"]).args(&RELEASES),
    ] {
        println!("\n$ {line}");
        command_output(&line)?;
    }
    if works(&python) { Ok(python) } else { Err(format!("`{}` does not have them", python.display())) }
}
