//! Measures how well the leak scan tells secrets from ordinary text: `cargo xtask eval` runs this.
//!
//! Takes two files of JSON lines (`.gz` or not) with `source`, `kind`, `label` and `text`: leaks, then clean texts.
//! Gives recall and false positives for each source and kind; `--misses` lists the errors by label.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a tool for people at a terminal")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use sluice_content::leak::{LeakConfig, LeakReport, LeakScope, LeakWeight, LiveSecrets, OutboundPart, Scanner};

#[derive(Default)]
struct OutboundCount {
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
    let scanner = Scanner::new(&LeakConfig::default())?;
    let live = LiveSecrets::default();
    for (path, wanted) in [(leaks, true), (clean, false)] {
        let mut counts: BTreeMap<String, OutboundCount> = BTreeMap::new();
        let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in lines(path)? {
            let item: Value = serde_json::from_str(&line)?;
            let word = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
            let text = expanded(&word("text"));
            let report = scanner.scan(&[OutboundPart::new("text", text.as_str())], LeakScope::Service, &live);
            let strict = scanner.scan(&[OutboundPart::new("text", text.as_str())], LeakScope::Proxy, &live);
            let count = counts.entry(format!("{} / {}", word("source"), word("kind"))).or_default();
            count.all += 1;
            count.blocked += usize::from(report.blocks());
            count.flagged += usize::from(report.needs_approval());
            count.proxy += usize::from(strict.blocks());
            let failed = word("kind") != "pii" && report.blocks() != wanted;
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

fn found(report: &LeakReport) -> String {
    let ids = report
        .findings
        .iter()
        .filter(|finding| finding.weight > LeakWeight::Note)
        .map(|finding| finding.pattern.as_str());
    ids.collect::<Vec<_>>().join(",")
}

/// A text with its made-up keys: `{{mark|alphabet|length}}` becomes the mark and that many characters that look
/// generated. The file stores the parts separately, so that no other scanner takes the sample for a leak.
fn expanded(text: &str) -> String {
    let (mut out, mut rest, mut state) = (String::new(), text, 0x9E37_79B9_7F4A_7C15_u64 ^ text.len() as u64);
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((inside, tail)) = after.split_once("}}") else { break };
        let mut words = inside.split('|');
        let (mark, alphabet, length) = (words.next(), words.next(), words.next().and_then(|word| word.parse().ok()));
        let (Some(mark), Some(alphabet), Some(length)) = (mark, alphabet, length) else {
            out.push_str(before);
            out.push_str("{{");
            rest = after;
            continue;
        };
        let letters: Vec<char> = match alphabet {
            "hex" => ('0'..='9').chain('a'..='f').collect(),
            "upper" => ('A'..='Z').chain('2'..='7').collect(),
            "digits" => ('0'..='9').collect(),
            _ => ('0'..='9').chain('a'..='z').chain('A'..='Z').collect(),
        };
        let _: usize = length;
        out.push_str(before);
        out.push_str(mark);
        for _ in 0..length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = usize::try_from(state >> 33).unwrap_or(0) % letters.len();
            out.extend(letters.get(n));
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// The lines of a file, decompressed while reading.
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
