//! `sluice screen`: what the checks on content say about texts, without a gateway.
//!
//! Takes a text or JSON lines; gives a verdict with findings for each, as soon as it is read. Promise: the same
//! checks as in the corridor, and no finding shows what was found.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sluice_content::leak::{self, LiveSecrets, Part, Report, Scanner, Settings, Weight};

use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// See what the checks on content say about a text.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Screening {
    #[command(subcommand)]
    way: Way,
}

#[derive(Debug, Subcommand)]
enum Way {
    /// Look for what must not leave: secrets, internal terms, personal data
    Outbound(Outbound),
}

/// Look for what must not leave.
#[derive(Debug, Args)]
struct Outbound {
    /// File to read, or `-` for standard input
    #[arg(default_value = "-", value_name = "FILE")]
    file: PathBuf,
    /// Read JSON lines `{"id", "text"}` and answer each with a JSON line
    #[arg(long)]
    jsonl: bool,
    /// Say in words what each finding is
    #[arg(long)]
    explain: bool,
    /// Where the text would go
    #[arg(long, value_enum, default_value = "service")]
    scope: Scope,
}

/// `--scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// Connected mail and chat: personal data of many people is flagged
    Service,
    /// An untrusted service: any personal data blocks
    Proxy,
}

impl Screening {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        match self.way {
            Way::Outbound(outbound) => outbound.run(screen),
        }
    }
}

impl Outbound {
    fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let scanner = Scanner::new(&Settings::default())
            .map_err(|error| Failure::new(Exit::Failed, "the leak scan cannot be prepared").why(error.to_string()))?;
        let mut input = open(&self.file)?;
        if !self.jsonl {
            let mut bytes = Vec::new();
            input.read_to_end(&mut bytes)?;
            let verdict = self.verdict(&scanner, &String::from_utf8_lossy(&bytes));
            screen.json(&verdict)?;
            let blocked = verdict.get("verdict").and_then(Value::as_str) == Some("block");
            return Ok(if blocked { Exit::Failed } else { Exit::Ok });
        }
        let mut out = BufWriter::new(io::stdout().lock());
        for (n, line) in input.lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let broken = |why: String| Failure::new(Exit::Failed, format!("line {} cannot be read", n + 1)).why(why);
            let item: Value = serde_json::from_str(&line).map_err(|error| broken(error.to_string()))?;
            let text = item.get("text").and_then(Value::as_str).ok_or_else(|| broken("it has no `text`".into()))?;
            let mut verdict = self.verdict(&scanner, text);
            if let (Some(map), Some(id)) = (verdict.as_object_mut(), item.get("id")) {
                map.insert("id".into(), id.clone());
            }
            serde_json::to_writer(&mut out, &verdict).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(Exit::Ok)
    }

    fn verdict(&self, scanner: &Scanner, text: &str) -> Value {
        let scope = match self.scope {
            Scope::Service => leak::Scope::Service,
            Scope::Proxy => leak::Scope::Proxy,
        };
        let report = scanner.scan(&[Part::new("text", text)], scope, &LiveSecrets::default());
        as_json(&report, self.explain)
    }
}

fn as_json(report: &Report, explain: bool) -> Value {
    let (verdict, score) = match report.weight() {
        Some(Weight::Block) => ("block", 1.0),
        Some(Weight::Flag) => ("flag", 0.5),
        Some(Weight::Note) => ("pass", 0.1),
        None => ("pass", 0.0),
    };
    let findings = report.findings.iter().map(|finding| {
        let mut shown = json!({
            "rule": finding.pattern, "weight": finding.weight.as_str(), "field": finding.field, "view": finding.view,
            "length": finding.length, "hash": finding.hash,
        });
        if let (true, Some(map)) = (explain, shown.as_object_mut()) {
            map.insert("means".into(), json!(leak::describe(&finding.pattern)));
        }
        shown
    });
    json!({"verdict": verdict, "score": score, "findings": findings.collect::<Vec<_>>()})
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| {
        Failure::new(Exit::NotFound, format!("`{}` cannot be read", path.display())).why(error.to_string())
    })?;
    Ok(Box::new(BufReader::new(file)))
}
