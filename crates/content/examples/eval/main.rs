//! Recall and false positives of the inbound stages, per source, kind and carrier.
//!
//! Takes a folder with `attacks.jsonl[.gz]` and `benign.jsonl[.gz]`; gives tables. Promise: every text passes through
//! all six stages as it would in a worker; the verdict counts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a tool for people at a terminal: a bad corpus ends it"
)]

mod carriers;
#[path = "../../tests/encoders/mod.rs"]
mod encoders;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_content::{ContentVerdict, RawContent, ScreeningPlan, clean};

struct EvalItem {
    id: String,
    source: String,
    kind: String,
    text: String,
    content_type: Option<String>,
}

#[derive(Default, Clone, Copy)]
struct EvalCount {
    flagged: usize,
    all: usize,
}

impl EvalCount {
    fn add(&mut self, flagged: bool) {
        self.flagged += usize::from(flagged);
        self.all += 1;
    }

    fn rate(self) -> f64 {
        if self.all == 0 { 0.0 } else { self.flagged as f64 / self.all as f64 }
    }
}

/// Kinds of ordinary content, for which false alarms matter most.
const ORDINARY: [&str; 9] =
    ["mail", "mail_html", "chat", "changelog", "api_json", "tool_result", "newsletter", "code", "multilingual_ui"];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = option("--corpora").map_or_else(|| default_folder(here), PathBuf::from);
    let (attacks, benign) = (read(&folder, "attacks"), read(&folder, "benign"));
    if let Some(wanted) = option("--show") {
        show(&attacks, &benign, &wanted, option("--limit").and_then(|limit| limit.parse().ok()).unwrap_or(20));
        return;
    }
    println!(
        "corpora: {}, {} attacks, {} benign\n",
        folder.file_name().unwrap_or_default().display(),
        attacks.len(),
        benign.len()
    );
    let caught = table("recall", &attacks, |item| item.source.clone());
    let macro_recall = caught.values().map(|count| count.rate()).sum::<f64>() / caught.len().max(1) as f64;
    println!("{:<34} {macro_recall:.3}  (macro, over sources)\n", "all");
    table("recall by kind", &attacks, |item| item.kind.clone());
    println!();
    table("false positives", &benign, |item| format!("{}/{}", item.source, item.kind));
    let mut ordinary = EvalCount::default();
    benign.iter().filter(|item| ORDINARY.contains(&item.kind.as_str())).for_each(|item| ordinary.add(flagged(item)));
    println!("{:<34} {:.4}  {}/{}  (ordinary kinds)\n", "all", ordinary.rate(), ordinary.flagged, ordinary.all);
    encoded(&attacks);
    carriers::table(&attacks.iter().map(|item| item.text.as_str()).collect::<Vec<_>>());
}

/// Recall of every attack as each JSON encoder writes it, compared with the same text alone.
fn encoded(attacks: &[EvalItem]) {
    let plain: Vec<bool> = attacks.iter().map(flagged).collect();
    let caught = plain.iter().filter(|caught| **caught).count();
    println!("JSON encoders: {caught} of {} are caught alone", attacks.len());
    for (name, encode) in encoders::ENCODERS {
        let (mut all, mut lost) = (0, 0);
        for (item, alone) in attacks.iter().zip(&plain) {
            let document = format!("{{\"id\":7,\"text\":\"{}\"}}", encode(&item.text));
            let found = flags(&document, Some("application/json"));
            all += usize::from(found);
            lost += usize::from(*alone && !found);
        }
        println!("{name:<34} {all}, {lost} of those caught alone are missed");
    }
    println!();
}

fn default_folder(here: &Path) -> PathBuf {
    let shared = here.join("../../../shared/corpora/dev");
    if shared.is_dir() { shared } else { here.join("eval") }
}

fn read(folder: &Path, name: &str) -> Vec<EvalItem> {
    let plain = folder.join(format!("{name}.jsonl"));
    let packed = folder.join(format!("{name}.jsonl.gz"));
    let bytes: Box<dyn Read> = if plain.is_file() {
        Box::new(std::fs::File::open(plain).unwrap())
    } else {
        Box::new(flate2::read::MultiGzDecoder::new(std::fs::File::open(packed).unwrap()))
    };
    let field = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let line = |line: std::io::Result<String>| {
        let value: Value = serde_json::from_str(&line.unwrap()).unwrap();
        EvalItem {
            id: field(&value, "id"),
            source: field(&value, "source"),
            kind: field(&value, "kind"),
            text: field(&value, "text"),
            content_type: value["content_type"].as_str().map(str::to_owned),
        }
    };
    BufReader::new(bytes).lines().map(line).collect()
}

fn flagged(item: &EvalItem) -> bool {
    flags(&item.text, item.content_type.as_deref())
}

/// Whether a text is flagged, blocked or refused.
pub fn flags(text: &str, content_type: Option<&str>) -> bool {
    let raw = RawContent::new(text.as_bytes());
    let raw = content_type.map_or(raw, |declared| raw.declared(declared));
    clean(raw, &ScreeningPlan::default()).map_or(true, |clean| clean.verdict() != ContentVerdict::Pass)
}

fn table(title: &str, items: &[EvalItem], key: impl Fn(&EvalItem) -> String) -> BTreeMap<String, EvalCount> {
    let mut counts: BTreeMap<String, EvalCount> = BTreeMap::new();
    for item in items {
        counts.entry(key(item)).or_default().add(flagged(item));
    }
    println!("{title}");
    for (name, count) in &counts {
        println!("{name:<34} {:.4}  {}/{}", count.rate(), count.flagged, count.all);
    }
    counts
}

/// Missed attacks or flagged harmless texts of one source, with their findings.
fn show(attacks: &[EvalItem], benign: &[EvalItem], wanted: &str, limit: usize) {
    let missed = attacks.iter().filter(|item| item.source == wanted && !flagged(item));
    let wrong = benign.iter().filter(|item| format!("{}/{}", item.source, item.kind).contains(wanted) && flagged(item));
    for item in missed.chain(wrong).take(limit) {
        let clean = clean(RawContent::new(item.text.as_bytes()), &ScreeningPlan::default());
        println!("== {} {:?}", item.id, item.text.chars().take(700).collect::<String>());
        match clean {
            Ok(clean) => {
                println!("   score {}", clean.score());
                for finding in clean.findings().iter().filter(|finding| finding.score > 0.0) {
                    let part = item.text.get(finding.span.start..finding.span.end).unwrap_or("?");
                    println!(
                        "   {:.1} {} {:?} {:?}",
                        finding.score,
                        finding.rule,
                        finding.carrier,
                        part.chars().take(160).collect::<String>()
                    );
                }
            }
            Err(refused) => println!("   {}", refused.code()),
        }
    }
}
