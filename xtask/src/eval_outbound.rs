//! `cargo xtask eval`, the outbound half: how well the leak scan separates secrets from ordinary text.
//!
//! Uses the corpora beside the repository, or the small sample inside it if there are none. Gives recall and false
//! positives per source and kind, printed by `crates/content/examples/outbound.rs`.

use std::path::Path;

use crate::command::CommandLine;

/// Where corpora are, relative to a checkout.
const BESIDE: [&str; 2] = ["../shared/corpora/dev", "../../shared/corpora/dev"];
const SAMPLE: &str = "crates/content/eval";

/// The command line of the evaluation. Other words, such as `--misses`, are passed on.
pub fn line(words: &[&str]) -> CommandLine {
    let [leaks, clean] = match BESIDE.into_iter().find(|folder| Path::new(folder).join("leaks.jsonl.gz").is_file()) {
        Some(folder) => [format!("{folder}/leaks.jsonl.gz"), format!("{folder}/clean.jsonl.gz")],
        None => [format!("{SAMPLE}/outbound-leaks.jsonl"), format!("{SAMPLE}/outbound-clean.jsonl")],
    };
    let run = ["run", "--release", "--package", "sluice-content", "--example", "outbound", "--"];
    CommandLine::cargo(&run).args(&[&leaks, &clean]).args(words)
}
