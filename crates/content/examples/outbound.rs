//! How well the leak scan tells secrets from ordinary text: `cargo xtask eval` runs this.
//!
//! Takes two files of JSON lines (`.gz` or not) with `source`, `kind`, `label` and `text`: leaks, then clean texts.
//! Gives recall and false positives per source and kind; `--misses` lists what went wrong by label.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a tool for people at a terminal")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use sluice_content::leak::{LiveSecrets, Part, Report, Scanner, Scope, Settings, Weight};

#[derive(Default)]
struct Count {
    all: usize,
    blocked: usize,
    flagged: usize,
    proxy: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let misses = arguments.iter().any(|word| word == "--misses");
    let files: Vec<&String> = arguments.iter().filter(|word| !word.starts_with("--")).collect();
    let [leaks, clean] = files.as_slice() else { return Err("give two files: leaks, then clean texts".into()) };
    let scanner = Scanner::new(&Settings::default())?;
    let live = LiveSecrets::default();
    for (path, wanted) in [(leaks, true), (clean, false)] {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in lines(path)? {
            let item: Value = serde_json::from_str(&line)?;
            let word = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
            let text = word("text");
            let report = scanner.scan(&[Part::new("text", text.as_str())], Scope::Service, &live);
            let strict = scanner.scan(&[Part::new("text", text.as_str())], Scope::Proxy, &live);
            let count = counts.entry(format!("{} / {}", word("source"), word("kind"))).or_default();
            count.all += 1;
            count.blocked += usize::from(report.blocks());
            count.flagged += usize::from(report.asks());
            count.proxy += usize::from(strict.blocks());
            let failed = if word("kind") == "pii" { !strict.blocks() } else { report.blocks() != wanted };
            if failed {
                wrong.entry(word("label")).or_default().push(format!("{} {}", word("id"), found(&report)));
            }
        }
        println!("\n{} ({})", if wanted { "leaks" } else { "clean" }, path.rsplit('/').next().unwrap_or(path));
        println!("{:<36} {:>6} {:>9} {:>9} {:>14}", "source / kind", "texts", "blocked", "flagged", "proxy blocks");
        for (name, count) in &counts {
            let share = |n: usize| format!("{:.1} %", 100.0 * n as f64 / count.all as f64);
            println!(
                "{name:<36} {:>6} {:>9} {:>9} {:>14}",
                count.all,
                share(count.blocked),
                share(count.flagged),
                share(count.proxy)
            );
        }
        for (label, ids) in wrong.iter().filter(|_| misses) {
            println!("  {label}: {}", ids.join(" | "));
        }
    }
    Ok(())
}

fn found(report: &Report) -> String {
    let ids =
        report.findings.iter().filter(|finding| finding.weight > Weight::Note).map(|finding| finding.pattern.as_str());
    ids.collect::<Vec<_>>().join(",")
}

/// The lines of a file, unpacked on the way.
fn lines(path: &str) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    if !path.ends_with(".gz") {
        return Ok(std::fs::read_to_string(path)?.lines().map(str::to_owned).collect());
    }
    let mut child = Command::new("gzip").args(["-dc", path]).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or("gzip has no output")?;
    let lines = BufReader::new(out).lines().collect::<Result<_, _>>()?;
    child.wait()?;
    Ok(lines)
}
