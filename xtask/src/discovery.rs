//! Google's own description of the Gmail API, to check every request of the adapter against.
//!
//! Needs Python; gives the file from a pinned package below `target`, or the reason why it is missing.

use std::path::{Path, PathBuf};

use crate::command::CommandLine;
use crate::packages::command_output;

/// The variable with the path of the file, for the tests.
pub const FILE: &str = "SLUICE_TEST_GMAIL_DISCOVERY";
const RELEASE: &str = "2.202.0";

/// Finds or installs the file.
pub fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target").join(format!("gmail-discovery-{RELEASE}"));
    let file = folder.join("googleapiclient/discovery_cache/documents/gmail.v1.json");
    if file.is_file() {
        return Ok(file);
    }
    let (place, wanted) = (folder.display().to_string(), format!("google-api-python-client=={RELEASE}"));
    let words = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", &place, &wanted];
    let line = CommandLine::new(&["python3", "-m", "pip"]).args(&words);
    println!("\n$ {line}");
    command_output(&line)?;
    if file.is_file() { Ok(file) } else { Err(format!("`{}` is not in the package", file.display())) }
}
