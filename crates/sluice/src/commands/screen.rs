//! `sluice screen`: what the content checks find in texts, for people and for comparing detectors.
//!
//! Takes one text or JSON lines; gives a verdict for each. Promise: a line that cannot be read gets the verdict block
//! and an error, does not stop the others, and makes the command fail; a text that is too long is refused, not cut; memory
//! use does not grow with the number of lines.

mod outbound;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_content::{CleanContent, ContentError, ContentVerdict, Finding, RawContent, ScreeningPlan, clean};

use crate::console::CommandConsole as Terminal;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// The longest text and the longest line that are read; longer ones get an error.
const LONGEST: u64 = 32 << 20;

/// Show what the content checks find in a text.
///
/// With --jsonl, each line of input is an object with `id`, `text` and optionally `content_type`, and each line of
/// output has `id`, `verdict` (pass, flag or block), `score` and `findings`. A line that cannot be read is answered with
/// the verdict block, an `error` and its number as `line`, and the exit code is 1; a line without `id` is answered
/// with the id null and its number. A text longer than 32 MiB is refused.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice screen inbound mail.txt\n  sluice screen inbound --jsonl < corpus.jsonl > verdicts.jsonl"
)]
pub(crate) struct ScreenCommand {
    #[command(subcommand)]
    direction: ScreenSubcommand,
}

/// The direction of the content. A new direction needs a variant here and a line in `run`.
#[derive(Debug, Subcommand)]
enum ScreenSubcommand {
    /// Check incoming content: the six stages, with their findings
    Inbound(ScreenInputArgs),
    /// Check outgoing content: secrets, internal terms, personal data
    Outbound(outbound::ScreenOutboundArgs),
}

/// Input and output options.
#[derive(Debug, Args)]
pub(crate) struct ScreenInputArgs {
    /// File with the text; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Read JSON lines and print JSON lines
    #[arg(long)]
    jsonl: bool,
    /// Quote the text of each finding
    #[arg(long)]
    explain: bool,
}

/// One text to check.
pub(crate) struct ScreenItem<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) content_type: Option<&'a str>,
    pub(crate) explain: bool,
}

impl ScreenCommand {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<CommandExit, CliError> {
        match self.direction {
            ScreenSubcommand::Inbound(input) => input.answer(terminal, inbound),
            ScreenSubcommand::Outbound(outbound) => outbound.run(terminal),
        }
    }
}

impl ScreenInputArgs {
    /// Answers each text with the result of `judge`: an object with `verdict`, `score` and `findings`.
    pub(crate) fn answer(
        &self,
        terminal: &Terminal,
        judge: impl Fn(&ScreenItem<'_>) -> Value,
    ) -> Result<CommandExit, CliError> {
        let mut input: Box<dyn BufRead> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::new(File::open(&self.file).map_err(|error| self.unreadable(&error))?))
        };
        if self.jsonl {
            return self.lines(&mut *input, &mut io::stdout().lock(), judge);
        }
        let text = self.whole(&mut *input, LONGEST)?;
        terminal.json(&judge(&ScreenItem { text: &text, content_type: None, explain: self.explain }))?;
        Ok(CommandExit::Ok)
    }

    /// Reads the whole text. A longer text is refused, because its end could contain what must not pass.
    fn whole(&self, input: &mut dyn BufRead, longest: u64) -> Result<Vec<u8>, CliError> {
        let mut text = Vec::new();
        input.take(longest + 1).read_to_end(&mut text).map_err(|error| self.unreadable(&error))?;
        if text.len() as u64 > longest {
            let why = format!("screen.too_long: it has more than {} MiB", longest >> 20);
            return Err(CliError::new(
                CommandExit::Failed,
                format!("`{}` is too long to be checked", self.file.display()),
            )
            .why(why)
            .hint("split it into parts, or give them as lines: --jsonl"));
        }
        Ok(text)
    }

    fn lines(
        &self,
        input: &mut dyn BufRead,
        out: &mut dyn Write,
        judge: impl Fn(&ScreenItem<'_>) -> Value,
    ) -> Result<CommandExit, CliError> {
        let mut line = Vec::new();
        let mut exit = CommandExit::Ok;
        for number in 1_u64.. {
            line.clear();
            let read =
                (&mut *input).take(LONGEST).read_until(b'\n', &mut line).map_err(|error| self.unreadable(&error))?;
            if read == 0 {
                break;
            }
            let answer = if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
                skip_line(input).map_err(|error| self.unreadable(&error))?;
                Err(unread(&Value::Null, number, "the line is too long"))
            } else {
                // Some editors begin a file with a byte order mark.
                let line = if number == 1 { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line) } else { &line };
                if line.trim_ascii().is_empty() {
                    continue;
                }
                self.line(line, number, &judge)
            };
            let answer = answer.unwrap_or_else(|error| {
                exit = CommandExit::Failed;
                error
            });
            writeln!(out, "{answer}")?;
        }
        Ok(exit)
    }

    /// The answer to a line, or the error if it cannot be read.
    fn line(&self, line: &[u8], number: u64, judge: &impl Fn(&ScreenItem<'_>) -> Value) -> Result<Value, Value> {
        let object = match serde_json::from_slice::<Value>(line) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return Err(unread(&Value::Null, number, "the line is not a JSON object")),
            Err(_) => return Err(unread(&Value::Null, number, "the line is not valid JSON")),
        };
        let id = object.get("id").cloned().unwrap_or_default();
        let Some(text) = object.get("text").and_then(Value::as_str) else {
            return Err(unread(&id, number, "`text` is missing or not a string"));
        };
        let content_type = object.get("content_type").and_then(Value::as_str);
        let verdict = judge(&ScreenItem { text: text.as_bytes(), content_type, explain: self.explain });
        let mut answer = serde_json::Map::from_iter([("id".to_owned(), id.clone())]);
        if id.is_null() {
            answer.insert("line".to_owned(), json!(number));
        }
        if let Value::Object(verdict) = verdict {
            answer.extend(verdict);
        }
        Ok(Value::Object(answer))
    }

    fn unreadable(&self, error: &io::Error) -> CliError {
        CliError::new(CommandExit::NotFound, format!("cannot read `{}`", self.file.display()))
            .why(describe_io_error(error))
    }
}

/// The answer to a line that could not be read. Its verdict is block, so that unchecked text never passes.
fn unread(id: &Value, line: u64, error: &str) -> Value {
    json!({"id": id, "line": line, "error": error, "verdict": ContentVerdict::Block, "score": 1.0, "findings": []})
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

/// Runs the six stages.
fn inbound(item: &ScreenItem<'_>) -> Value {
    let raw = RawContent::new(item.text);
    let raw = item.content_type.map_or(raw, |declared| raw.declared(declared));
    match clean(raw, &ScreeningPlan::default()) {
        Ok(clean) => {
            let findings: Vec<Value> =
                clean.findings().iter().map(|finding| shown(finding, &clean, item.explain)).collect();
            json!({"verdict": clean.verdict(), "score": clean.score(), "findings": findings})
        }
        Err(refused) => json!({"verdict": ContentVerdict::Block, "score": 1.0, "findings": [refusal(&refused)]}),
    }
}

fn shown(finding: &Finding, clean: &CleanContent, explain: bool) -> Value {
    let mut value = json!(finding);
    let excerpt = clean.text().get(finding.span.start..finding.span.end).filter(|text| explain && !text.is_empty());
    if let (Some(object), Some(excerpt), sluice_content::Carrier::Plain) =
        (value.as_object_mut(), excerpt, finding.carrier)
    {
        object.insert("excerpt".to_owned(), json!(excerpt.chars().take(200).collect::<String>()));
    }
    value
}

fn refusal(refused: &ContentError) -> Value {
    json!({"stage": refused.stage(), "rule": refused.code(), "reason": refused.to_string(), "score": 100.0})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> ScreenInputArgs {
        ScreenInputArgs { file: PathBuf::from("-"), jsonl: true, explain: false }
    }

    fn answers(text: &str) -> (CommandExit, Vec<Value>) {
        let mut out = Vec::new();
        let pass = |_: &ScreenItem<'_>| json!({"verdict": "pass", "score": 0.0, "findings": []});
        let exit = input().lines(&mut text.as_bytes(), &mut out, pass).unwrap_or(CommandExit::Conflict);
        let lines = String::from_utf8(out).unwrap();
        (exit, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn a_line_that_cannot_be_read_is_blocked_and_the_whole_ends_as_failed() {
        for line in ["{\"id\": 7, \"text\"", "[1]", "{\"id\": 7}", "{\"text\": \"\\ud800\"}", "{\"text\": 5}"] {
            let (exit, answers) = answers(&format!("{{\"id\": 1, \"text\": \"a\"}}\n{line}\n"));
            assert_eq!(exit, CommandExit::Failed, "{line}");
            let [good, bad] = answers.as_slice() else { panic!("{answers:?}") };
            assert_eq!((&good["verdict"], &good["id"]), (&json!("pass"), &json!(1)));
            assert_eq!((&bad["verdict"], &bad["line"]), (&json!("block"), &json!(2)), "{line}");
            assert!(bad["error"].is_string(), "{line}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_error_and_a_missing_id_is_nobodys() {
        let (exit, answers) = answers("\u{feff}{\"text\": \"a\"}\n\n{\"id\": 1, \"text\": \"b\"}\n");
        assert_eq!(exit, CommandExit::Ok);
        assert_eq!((&answers[0]["id"], &answers[0]["line"]), (&Value::Null, &json!(1)));
        assert_eq!(answers[1]["id"], 1);
    }

    #[test]
    fn a_text_that_is_too_long_is_refused_and_not_cut() {
        let text = vec![b'a'; 2 << 20];
        assert_eq!(input().whole(&mut text.as_slice(), 2 << 20).unwrap().len(), 2 << 20);
        let refused = input().whole(&mut text.as_slice(), (2 << 20) - 1).unwrap_err();
        assert_eq!(refused.exit, CommandExit::Failed);
        assert!(refused.why.unwrap().starts_with("screen.too_long"));
    }
}
