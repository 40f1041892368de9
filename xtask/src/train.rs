//! `cargo xtask train`: learns the weight of each rule of the detector from pinned inputs.
//!
//! Uses the corpora beside the repository, or those that `--corpora` names, and files of pinned packages in the registry folder of
//! cargo. Gives `crates/content/src/stages/injection/weights.txt`, the same bytes on every machine.

use std::path::Path;

use crate::command::CommandLine;

/// Where corpora are, relative to a checkout.
const BESIDE: [&str; 2] = ["../shared/corpora/dev", "../../shared/corpora/dev"];

/// The command line of the learner. `--check` compares the table, `--held-out` leaves out each source in turn, `--pin` writes the
/// digests of the inputs.
pub fn line(words: &[&str]) -> CommandLine {
    let run = ["run", "--release", "--package", "sluice-content", "--example", "train", "--"];
    let line = CommandLine::cargo(&run);
    let folder = BESIDE.into_iter().find(|folder| Path::new(folder).join("attacks.jsonl.gz").is_file());
    match folder.filter(|_| !words.contains(&"--corpora")) {
        Some(folder) => line.args(&["--corpora", folder]).args(words),
        None => line.args(words),
    }
}
