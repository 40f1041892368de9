//! `sluice screen`: what the content stages say about texts, for people and for comparing detectors.
//!
//! Takes one text or JSON lines, gives a verdict for each. Promise: a line that cannot be read gets an error line
//! of its own and stops nothing; memory does not grow with the number of lines.

mod outbound;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_content::{Clean, Finding, Plan, Raw, Refused, Verdict, clean};

use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen as Terminal;

/// The longest line that is read; longer ones get an error.
const LONGEST: u64 = 32 << 20;

/// Show what the content stages say about a text.
///
/// With --jsonl, each line of input is an object with `id`, `text` and optionally `content_type`, and each line of
/// output has `id`, `verdict` (pass, flag or block), `score` and `findings`.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice screen inbound mail.txt\n  sluice screen inbound --jsonl < corpus.jsonl > verdicts.jsonl"
)]
pub(crate) struct Screen {
    #[command(subcommand)]
    direction: Direction,
}

/// Which way content goes. A further direction is a variant here and a line in `run`.
#[derive(Debug, Subcommand)]
enum Direction {
    /// What comes from outside: six stages, with their findings
    Inbound(Input),
    /// What goes out: secrets, internal terms, personal data
    Outbound(outbound::Outbound),
}

/// What to read and how to answer.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The text; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Read JSON lines and answer with JSON lines
    #[arg(long)]
    jsonl: bool,
    /// Quote what each finding is about
    #[arg(long)]
    explain: bool,
}

/// One text to be screened.
pub(crate) struct Item<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) content_type: Option<&'a str>,
    pub(crate) explain: bool,
}

impl Screen {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        match self.direction {
            Direction::Inbound(input) => input.answer(terminal, inbound),
            Direction::Outbound(outbound) => outbound.run(terminal),
        }
    }
}

impl Input {
    /// Answers each text with what `judge` says: an object with `verdict`, `score` and `findings`.
    pub(crate) fn answer(&self, terminal: &Terminal, judge: impl Fn(&Item<'_>) -> Value) -> Result<Exit, Failure> {
        let mut input: Box<dyn BufRead> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::new(File::open(&self.file).map_err(|error| self.unreadable(&error))?))
        };
        if self.jsonl {
            return self.lines(&mut *input, judge);
        }
        let mut text = Vec::new();
        input.take(LONGEST).read_to_end(&mut text).map_err(|error| self.unreadable(&error))?;
        terminal.json(&judge(&Item { text: &text, content_type: None, explain: self.explain }))?;
        Ok(Exit::Ok)
    }

    fn lines(&self, input: &mut dyn BufRead, judge: impl Fn(&Item<'_>) -> Value) -> Result<Exit, Failure> {
        let mut out = io::stdout().lock();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read =
                (&mut *input).take(LONGEST).read_until(b'\n', &mut line).map_err(|error| self.unreadable(&error))?;
            if read == 0 {
                break;
            }
            let answer = if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
                skip_line(input).map_err(|error| self.unreadable(&error))?;
                json!({"line": number, "error": "the line is too long"})
            } else if line.trim_ascii().is_empty() {
                continue;
            } else {
                self.line(&line, number, &judge)
            };
            writeln!(out, "{answer}")?;
        }
        Ok(Exit::Ok)
    }

    fn line(&self, line: &[u8], number: u64, judge: &impl Fn(&Item<'_>) -> Value) -> Value {
        let object = match serde_json::from_slice::<Value>(line) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return json!({"line": number, "error": "the line is no JSON object"}),
            Err(_) => return json!({"line": number, "error": "the line is not valid JSON"}),
        };
        let id = object.get("id").cloned().unwrap_or_else(|| json!(number));
        let Some(text) = object.get("text").and_then(Value::as_str) else {
            return json!({"id": id, "line": number, "error": "`text` is missing or no text"});
        };
        let content_type = object.get("content_type").and_then(Value::as_str);
        let verdict = judge(&Item { text: text.as_bytes(), content_type, explain: self.explain });
        let mut answer = serde_json::Map::from_iter([("id".to_owned(), id)]);
        if let Value::Object(verdict) = verdict {
            answer.extend(verdict);
        }
        Value::Object(answer)
    }

    fn unreadable(&self, error: &io::Error) -> Failure {
        Failure::new(Exit::NotFound, format!("cannot read `{}`", self.file.display())).why(io_words(error))
    }
}

fn skip_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, done) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if done {
            return Ok(());
        }
    }
}

/// The six stages.
fn inbound(item: &Item<'_>) -> Value {
    let raw = Raw::new(item.text);
    let raw = item.content_type.map_or(raw, |declared| raw.declared(declared));
    match clean(raw, &Plan::default()) {
        Ok(clean) => {
            let findings: Vec<Value> =
                clean.findings().iter().map(|finding| shown(finding, &clean, item.explain)).collect();
            json!({"verdict": clean.verdict(), "score": clean.score(), "findings": findings})
        }
        Err(refused) => json!({"verdict": Verdict::Block, "score": 1.0, "findings": [refusal(&refused)]}),
    }
}

fn shown(finding: &Finding, clean: &Clean, explain: bool) -> Value {
    let mut value = json!(finding);
    let excerpt = clean.text().get(finding.span.start..finding.span.end).filter(|text| explain && !text.is_empty());
    if let (Some(object), Some(excerpt), sluice_content::Carrier::Plain) =
        (value.as_object_mut(), excerpt, finding.carrier)
    {
        object.insert("excerpt".to_owned(), json!(excerpt.chars().take(200).collect::<String>()));
    }
    value
}

fn refusal(refused: &Refused) -> Value {
    json!({"stage": refused.stage(), "rule": refused.code(), "reason": refused.to_string(), "score": 100.0})
}
