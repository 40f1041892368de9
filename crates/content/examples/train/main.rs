//! Learns the weight of each rule: `cargo xtask train` runs this.
//!
//! Takes the pinned inputs (`crates/content/train/inputs.txt`), gives `weights.txt` and the figures of sources that were left out.
//! Promise: the same inputs give the same bytes on every machine; an input that is not the pinned one ends it before anything is
//! written; no text is kept.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a tool for people at a terminal: a bad input ends it"
)]

mod generated;
mod inputs;
mod learn;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use inputs::TrainingItem;
use learn::{Learner, LearntWeights};

const TABLE: &str = "src/stages/injection/weights.txt";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| words.iter().any(|word| word == name);
    let option = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpora = option("--corpora").map_or_else(|| here.join("../../../shared/corpora/dev"), PathBuf::from);
    if has("--pin") {
        return ended(inputs::pin(here, &corpora));
    }
    let items = match inputs::read(here, &corpora) {
        Ok(items) => items,
        Err(reason) => return ended(Err(reason)),
    };
    if has("--held-out") {
        held_out(&items);
        return ExitCode::SUCCESS;
    }
    let mut learner = Learner::new().with_pairs(&items, "");
    let wanted: Vec<&TrainingItem> = items.iter().filter(|item| item.learns).collect();
    let weights = learner.learn_in_full(&wanted);
    let all = learner.prepared(&items.iter().collect::<Vec<_>>());
    report("learnt on these sources; `measured` ones were left out", &all, &weights);
    if let Some(source) = option("--explain") {
        explain(&all, &weights, &learner, source);
    }
    let table = here.join(TABLE);
    let written = learner.table(&weights);
    if has("--check") {
        let same = std::fs::read_to_string(&table).is_ok_and(|known| known == written);
        println!("{}", if same { "the table is the one that these inputs give" } else { "the table is another one" });
        return if same { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    ended(std::fs::write(&table, written).map_err(|error| format!("cannot write `{}`: {error}", table.display())))
}

fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Leaves out each source in turn, and measures it with the weights of the others.
fn held_out(items: &[TrainingItem]) {
    let sources: Vec<&str> = {
        let mut names: Vec<&str> = items.iter().filter(|item| item.learns).map(|item| item.source.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let mut recalls = Vec::new();
    println!("{:<34} {:>8} {:>14}", "left out", "flagged", "");
    for source in sources {
        let rest: Vec<&TrainingItem> = items.iter().filter(|item| item.learns && item.source != source).collect();
        let mut learner = Learner::new().with_pairs(items, source);
        let weights = learner.learn_in_full(&rest);
        let (mut flagged, mut all, mut attack) = (0, 0, false);
        for item in items.iter().filter(|item| item.source == source) {
            all += 1;
            attack |= item.attack;
            flagged += usize::from(weights.points(&learner.prepare(item)) >= learn::FLAG);
        }
        println!("{source:<34} {:>8.4} {:>14}", flagged as f64 / f64::from(all), format!("{flagged}/{all}"));
        if attack {
            recalls.push(flagged as f64 / f64::from(all));
        }
    }
    println!("{:<34} {:>8.4}", "mean over attacks left out", recalls.iter().sum::<f64>() / recalls.len() as f64);
}

/// The rules that give the points of the flagged harmless texts, and of the attacks that pass, of a source.
fn explain(items: &[TrainingItem], weights: &LearntWeights, learner: &Learner, source: &str) {
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    for item in items.iter().filter(|item| item.source.contains(source)) {
        if (weights.points(item) >= learn::FLAG) != item.attack {
            for (rule, points) in weights.parts(item) {
                *sums.entry(rule).or_default() += points;
            }
        }
    }
    let mut sums: Vec<(usize, f64)> = sums.into_iter().collect();
    sums.sort_by(|one, other| other.1.total_cmp(&one.1));
    for (rule, points) in sums.into_iter().take(24) {
        println!("{points:>9.1} {}", learner.name(rule));
    }
}

fn report(title: &str, items: &[TrainingItem], weights: &LearntWeights) {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for item in items {
        let kind = match (item.attack, item.learns) {
            (true, true) => "attacks ",
            (true, false) => "attacks, measured ",
            (false, true) => "harmless ",
            (false, false) => "harmless, measured ",
        };
        let count = counts.entry(format!("{kind}{}", item.source)).or_default();
        count.0 += usize::from(weights.points(item) >= learn::FLAG);
        count.1 += 1;
    }
    println!("{title}");
    for (name, (flagged, all)) in counts {
        println!("{name:<50} {:>8.4} {:>14}", flagged as f64 / all as f64, format!("{flagged}/{all}"));
    }
}
