//! The inputs of learning: records of the corpora whose licence allows it, generated text, and files of pinned packages.
//!
//! Takes `train/inputs.txt`, gives items with the rules that match them. Promise: every input is compared with its pinned digest; a
//! record whose licence is not on the list is measured, not learnt from.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_content::stages::{OutputContext, encoding, html, injection, size};
use sluice_content::{ContentLimits, RawContent};

use super::generated;
use super::learn::TextMatches;

const PINS: &str = "train/inputs.txt";
const CORPORA: [&str; 2] = ["attacks", "benign"];
const LICENSES: [&str; 5] = ["MIT", "Apache-2.0", "BSD", "CC0", "Apache-2.0/MIT"];
/// Left out although their licence allows it: code, of which the rules say nothing, and a collection of doubtful origin.
const SKIPPED: [&str; 2] = ["jailbreakhub", "payloadsallthethings"];
/// Files of a package: at most this many, and this much of each.
const FILES: usize = 12;
const BYTES: usize = 16 << 10;

/// One text.
pub struct TrainingItem {
    pub source: String,
    pub attack: bool,
    /// Whether it is learnt from, or only measured.
    pub learns: bool,
    pub emphasis: f64,
    /// Points that no weight changes.
    pub fixed: f64,
    pub texts: Vec<TextMatches>,
}

/// Reads every input.
pub fn read(here: &Path, corpora: &Path) -> Result<Vec<TrainingItem>, String> {
    let pins = std::fs::read_to_string(here.join(PINS)).map_err(|error| format!("cannot read `{PINS}`: {error}"))?;
    let mut items = Vec::new();
    for line in pins.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(kind), Some(name), Some(digest)) = (words.next(), words.next(), words.next()) else { continue };
        match kind {
            "corpus" => {
                let path = corpora.join(format!("{name}.jsonl.gz"));
                let bytes = std::fs::read(&path)
                    .map_err(|_| format!("`{}` is missing: name its folder with `--corpora`", path.display()))?;
                compare(name, digest, &hex(&Sha256::digest(&bytes)))?;
                items.extend(corpus(&bytes, name == "attacks"));
            }
            "package" | "measured-package" => {
                let files = package(name).ok_or_else(|| {
                    format!("package `{name}` is missing: `cargo fetch` gets it, or unpack it there by hand")
                })?;
                compare(name, digest, &digest_of(&files))?;
                let learns = kind == "package";
                let source = if learns { "packages" } else { "packages left out" };
                items.extend(files.values().map(|text| item(source, false, learns, text)));
            }
            _ => return Err(format!("`{PINS}`: `{kind}` is no input")),
        }
    }
    items.extend(generated::harmless().iter().map(|text| item("generated", false, true, text)));
    items.extend(generated::attacks().iter().map(|text| item("generated attacks", true, true, text)));
    Ok(items)
}

fn compare(name: &str, wanted: &str, found: &str) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("`{name}` is not the pinned input: its digest is {found}")) }
}

/// Writes the digests of the inputs as they are now.
pub fn pin(here: &Path, corpora: &Path) -> Result<(), String> {
    let mut out = String::from(
        "# What `cargo xtask train` learns from: kind, name, SHA-256. Files of packages are those that `inputs.rs` picks.\n",
    );
    for name in CORPORA {
        let bytes = std::fs::read(corpora.join(format!("{name}.jsonl.gz"))).map_err(|error| error.to_string())?;
        let _ = writeln!(out, "corpus {name} {}", hex(&Sha256::digest(&bytes)));
    }
    for (at, name) in packages().iter().enumerate() {
        let Some(files) = package(name).filter(|files| !files.is_empty()) else { continue };
        match at % 3 {
            0 => writeln!(out, "package {name} {}", digest_of(&files)),
            1 => writeln!(out, "measured-package {name} {}", digest_of(&files)),
            _ => Ok(()),
        }
        .map_err(|error| error.to_string())?;
    }
    std::fs::write(here.join(PINS), out).map_err(|error| error.to_string())
}

/// Registry folders of this machine.
fn registries() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let folders = home.map(|home| home.join("registry/src")).and_then(|folder| std::fs::read_dir(folder).ok());
    folders.into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// Packages of the lock file under a permissive licence, sorted.
fn packages() -> Vec<String> {
    let lock =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock")).unwrap_or_default();
    let mut found = Vec::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(rest) = line.strip_prefix("name = \"") {
            name = rest.trim_end_matches('"');
        } else if let Some(rest) = line.strip_prefix("version = \"") {
            found.push(format!("{name}-{}", rest.trim_end_matches('"')));
        }
    }
    found.retain(|name| folder(name).is_some_and(|folder| is_permissive(&folder)));
    found.sort();
    found
}

fn folder(package: &str) -> Option<PathBuf> {
    registries().into_iter().map(|registry| registry.join(package)).find(|folder| folder.is_dir())
}

fn is_permissive(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let license = manifest.lines().find(|line| line.starts_with("license = ")).unwrap_or_default();
    ["MIT", "Apache-2.0"].iter().any(|allowed| license.contains(allowed)) && !license.contains("GPL")
}

/// The picked files of a package, by path.
fn package(name: &str) -> Option<BTreeMap<String, String>> {
    let root = folder(name)?;
    let mut paths = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if is_for_agents(&path) {
                // Files that tell a coding agent what to do are what the detector looks for.
            } else if path
                .extension()
                .and_then(|end| end.to_str())
                .is_some_and(|end| ["md", "rs", "toml", "yml", "sh", "json", "txt"].contains(&end))
            {
                paths.push(path);
            }
        }
    }
    // Texts for people first, then the largest files.
    let rank = |path: &Path| {
        let prose = path.extension().is_some_and(|end| end == "md" || end == "sh" || end == "yml");
        (!prose, std::cmp::Reverse(path.metadata().map_or(0, |data| data.len())), path.to_path_buf())
    };
    paths.sort_by_key(|path| rank(path));
    let mut files = BTreeMap::new();
    for path in paths.into_iter().take(FILES) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let cut = (0..=text.len().min(BYTES)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let name = path.strip_prefix(&root).ok()?.to_string_lossy().into_owned();
        files.insert(name, text[..cut].to_owned());
    }
    Some(files)
}

fn is_for_agents(path: &Path) -> bool {
    let name = path.to_string_lossy().to_ascii_lowercase();
    ["agents.md", "claude.md", "gemini.md", "copilot", ".cursor", "skill.md"].iter().any(|known| name.contains(known))
}

fn digest_of(files: &BTreeMap<String, String>) -> String {
    let mut digest = Sha256::new();
    for (path, text) in files {
        digest.update(format!("{path} {}\n", text.len()));
        digest.update(text);
    }
    hex(&digest.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn corpus(bytes: &[u8], attack: bool) -> Vec<TrainingItem> {
    let lines = BufReader::new(flate2::read::MultiGzDecoder::new(bytes)).lines();
    let read = |line: std::io::Result<String>| {
        let value: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let word = |key: &str| value[key].as_str().unwrap_or_default();
        if SKIPPED.contains(&word("source")) {
            return None;
        }
        let source = if attack { word("source").to_owned() } else { format!("{}/{}", word("source"), word("kind")) };
        Some(item(&source, attack, LICENSES.contains(&word("license")), word("text")))
    };
    lines.filter_map(read).collect()
}

/// Runs the stages before the detector, and notes which rules match.
fn item(source: &str, attack: bool, learns: bool, text: &str) -> TrainingItem {
    let bounded = size::bound(RawContent::new(text.as_bytes()), &ContentLimits::default());
    let texts = bounded.map_or_else(
        |_| Vec::new(),
        |bounded| {
            let defused = html::defuse(encoding::read(bounded), OutputContext::Text);
            let found = injection::evidence(&defused).into_iter();
            let written = injection::weights().count();
            let texts = found.filter(|text| !text.hits.is_empty() || !text.ideas.is_empty());
            texts
                .map(|text| TextMatches {
                    // Pairs that the detector has already are learnt again.
                    hits: text
                        .hits
                        .into_iter()
                        .filter(|(_, rule, _)| *rule < written)
                        .map(|(sentence, rule, share)| (sentence, rule, share as f64 / 100.0))
                        .collect(),
                    ideas: text.ideas,
                    places: text.places,
                })
                .collect()
        },
    );
    let emphasis = emphasis(source, attack);
    TrainingItem { source: source.to_owned(), attack, learns, emphasis, fixed: 0.0, texts }
}

/// How much a source counts. A false alarm costs a person's time in every ordinary mail, an attack that passes still meets the rules
/// about targets.
fn emphasis(source: &str, attack: bool) -> f64 {
    match (attack, source) {
        (true, "asb" | "evasion_dev" | "generated attacks") => 6.0,
        (true, _) => 1.0,
        (false, "packages") => 80.0,
        (false, "generated") => 30.0,
        (false, kind) if kind.ends_with("discusses_injection") => 5.0,
        (false, _) => 30.0,
    }
}
