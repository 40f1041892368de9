//! Programs that check or build what is not Rust code: cargo-deny, cargo-machete, typos and mdbook, each of one pinned
//! version.
//!
//! Takes nothing; gives the command lines of the checks, and installs a program below `target/tools` when it is missing or
//! of another version. Promise: nothing outside the repository's target folder is changed.

use std::path::{Path, PathBuf};

use crate::command::CommandLine;
use crate::packages::command_output;
use crate::report::{SuiteOutcome, SuiteReport};

/// Where the programs are installed, from the root of the repository.
const FOLDER: &str = "target/tools";

/// A program of one version.
struct PinnedTool {
    name: &'static str,
    version: &'static str,
    /// The registry that it comes from.
    source: ToolSource,
}

/// The registry of a tool.
enum ToolSource {
    /// Built from crates.io, without optimisation: it runs for seconds and would take minutes to optimise. With further
    /// arguments for `cargo install`.
    Crate(&'static [&'static str]),
    /// A wheel of PyPI that holds the program.
    Wheel,
}

const DENY: PinnedTool = PinnedTool { name: "cargo-deny", version: "0.20.2", source: ToolSource::Crate(&[]) };
const MACHETE: PinnedTool = PinnedTool { name: "cargo-machete", version: "0.9.2", source: ToolSource::Crate(&[]) };
const TYPOS: PinnedTool = PinnedTool { name: "typos", version: "1.51.1", source: ToolSource::Wheel };
/// Without the server that shows a book while it is written.
const MDBOOK: PinnedTool = PinnedTool {
    name: "mdbook",
    version: "0.5.4",
    source: ToolSource::Crate(&["--no-default-features", "--features", "search"]),
};

/// Runs the three checks: licences, sources and banned crates; unused dependencies; spelling.
pub fn suites(report: &mut SuiteReport) {
    let deny = ["--workspace", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    suite(report, "dependencies", &DENY, &deny);
    suite(report, "unused dependencies", &MACHETE, &["crates", "xtask", "benches", "fuzz"]);
    suite(report, "spelling", &TYPOS, &["--format", "brief"]);
}

/// The program that builds the book, installed if it is missing.
pub fn mdbook(root: &Path) -> Result<PathBuf, String> {
    MDBOOK.install(root)
}

fn suite(report: &mut SuiteReport, name: &'static str, tool: &PinnedTool, arguments: &[&str]) {
    let root = std::env::current_dir().map_err(|error| error.to_string());
    match root.and_then(|root| tool.install(&root)) {
        Ok(program) => report.run(name, &CommandLine::new(&[&program.display().to_string()]).args(arguments)),
        Err(reason) => report.time(name, || (SuiteOutcome::Skipped(reason), ())),
    }
}

impl PinnedTool {
    /// The program, installed if it is missing.
    fn install(&self, root: &Path) -> Result<PathBuf, String> {
        let folder = root.join(FOLDER);
        let program = folder.join("bin").join(self.name);
        let is_there = || {
            let version = command_output(&CommandLine::new(&[&program.display().to_string(), "--version"]));
            let is_ours = |word: &str| word.strip_prefix('v').unwrap_or(word) == self.version;
            version.is_ok_and(|version| version.split_whitespace().any(is_ours))
        };
        if is_there() {
            return Ok(program);
        }
        let folder_text = folder.display().to_string();
        match self.source {
            ToolSource::Crate(further) => {
                let line =
                    ["install", "--locked", "--debug", "--force", "--root", &folder_text, "--version", self.version];
                command_output(&CommandLine::cargo(&line).args(further).args(&[self.name]))?;
            }
            ToolSource::Wheel => {
                command_output(&CommandLine::new(&["python3", "-m", "venv", &folder_text]))?;
                let pip = folder.join("bin/pip").display().to_string();
                let pinned = format!("{}=={}", self.name, self.version);
                command_output(&CommandLine::new(&[&pip, "install", "--quiet", &pinned]))?;
            }
        }
        if is_there() { Ok(program) } else { Err(format!("`{}` {} could not be installed", self.name, self.version)) }
    }
}
