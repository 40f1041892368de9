//! Google's own description of the Gmail API, which every request of the adapter is held against.
//!
//! Takes a machine with Python; gives the file out of a pinned package below `target`, or the reason why there is none.

use std::path::{Path, PathBuf};

use crate::command::Line;
use crate::packages::said;

/// The variable in which the tests find the file.
pub const FILE: &str = "SLUICE_TEST_GMAIL_DISCOVERY";
const RELEASE: &str = "2.202.0";

/// Finds or installs it.
pub fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target").join(format!("gmail-discovery-{RELEASE}"));
    let file = folder.join("googleapiclient/discovery_cache/documents/gmail.v1.json");
    if file.is_file() {
        return Ok(file);
    }
    let (place, wanted) = (folder.display().to_string(), format!("google-api-python-client=={RELEASE}"));
    let words = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", &place, &wanted];
    let line = Line::new(&["python3", "-m", "pip"]).args(&words);
    println!("\n$ {line}");
    said(&line)?;
    if file.is_file() { Ok(file) } else { Err(format!("`{}` is not in the package", file.display())) }
}
