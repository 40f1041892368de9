//! `cargo xtask eval`, the outbound half: how well the leak scan tells secrets from ordinary text.
//!
//! Takes the corpora beside the repository, or, where there are none, the small sample inside it. Gives recall and false
//! positives per source and kind, printed by `crates/content/examples/outbound.rs`.

use std::path::Path;

use crate::command::Line;

/// Where corpora lie beside a checkout.
const BESIDE: [&str; 2] = ["../shared/corpora/dev", "../../shared/corpora/dev"];
const SAMPLE: &str = "crates/content/eval";

/// The command line that measures. Further words, such as `--misses`, are passed on.
pub fn line(words: &[&str]) -> Line {
    let [leaks, clean] = match BESIDE.into_iter().find(|folder| Path::new(folder).join("leaks.jsonl.gz").is_file()) {
        Some(folder) => [format!("{folder}/leaks.jsonl.gz"), format!("{folder}/clean.jsonl.gz")],
        None => [format!("{SAMPLE}/outbound-leaks.jsonl"), format!("{SAMPLE}/outbound-clean.jsonl")],
    };
    let run = ["run", "--release", "--package", "sluice-content", "--example", "outbound", "--"];
    Line::cargo(&run).args(&[&leaks, &clean]).args(words)
}
